# Two commands do all the set-up on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# Modules are compiled when they are first imported, which most of what is installed never is.
INSTALL := -m pip install --quiet --disable-pip-version-check --no-compile --constraint constraints.txt
PIP := $(BIN)/python $(INSTALL)
WORK := .work
# What is compiled is kept, also where an environment asks Python not to: the tests start hundreds of
# processes, and each would compile all that it imports.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: demo test lint docs unit browser minimal wheel release stories install notebooks reference timings heads \
  heads-greedy heads-sampled heads-prompts ablation-heads answers drafters trees tree-heads arms \
  smollm2 smollm2-answers smollm2-draft smollm2-feature smollm2-parallel smollm2-recordings smollm2-prompts \
  smollm2-greedy smollm2-sampled smollm2-long smollm2-heads smollm2-timings smollm2-bundle clean

# $(call first,N): the first N prompts of each task.
first = awk -F'"task": "' '{split($$2, a, "\""); if (n[a[1]]++ < $(1)) print}' traces/reference/prompts.jsonl
TARGET := --target traces/reference/models/target
PAIR := $(TARGET) --draft traces/reference/models/draft
POLICIES := --policy 'autoregressive' --policy 'fixed(3)' --policy 'fixed(5)' --policy 'svip(h=0.8)' \
  --policy 'heuristic(initial=5)' --policy 'confidence(threshold=0.4)' --policy 'oracle'

demo: $(VENV)/.installed  ## record the shipped pair on a few prompts, time it, replay policies
	@rm -rf $(WORK)/demo && mkdir -p $(WORK)/demo
	$(call first,4) > $(WORK)/demo/prompts.jsonl
	$(BIN)/simkit record $(PAIR) --prompts $(WORK)/demo/prompts.jsonl --out $(WORK)/demo/trace
	$(BIN)/simkit latency $(PAIR) --repeats 10 --out $(WORK)/demo/trace
	$(BIN)/simkit info $(WORK)/demo/trace
	$(BIN)/simkit replay $(WORK)/demo/trace $(POLICIES)

# What takes one core goes beside something else, each with its output in one piece; of the unit tests
# three are run at once, for some wait: for a server, a browser, a killed process.
TOGETHER := $(if $(filter output-sync,$(.FEATURES)),--output-sync=target) --jobs 2
test:  ## everything that CI runs
	$(MAKE) $(TOGETHER) browser minimal stories lint docs
	$(MAKE) unit

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright --pythonpath $(BIN)/python
	$(BIN)/lint-imports

# The site, in build/docs/html: a warning is an error, every link within it is followed, and what leads
# out of it is listed in build/docs/external-links.txt and not asked.
docs: $(VENV)/.installed-dev
	$(BIN)/sphinx-build --quiet --fail-on-warning --keep-going -c docs -d build/docs/doctrees . build/docs/html
	$(BIN)/python docs/_ext/links.py build/docs/html
	$(BIN)/python -m pytest tests/test_site.py

unit: $(VENV)/.installed-dev browser
	$(BIN)/python -m pytest -n 3 --dist worksteal --ignore tests/test_notebooks.py --ignore tests/test_site.py

BROWSER := chromium chromium-driver
browser:  ## Chromium, in which the report's page is tested, if it can be had
	@command -v chromium >/dev/null && command -v chromedriver >/dev/null \
	  || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && apt-get update -qq \
	    && apt-get install -y -qq --no-install-recommends $(BROWSER) >/dev/null; } \
	  || echo "no chromium and chromedriver: the browser test will be skipped"

minimal: $(VENV)-minimal/.installed  ## replay without torch
	$(VENV)-minimal/bin/python -m pytest --noconftest tests/test_minimal.py

# The wheel, and tests of what it installs without a repository around it: with the newest versions of
# what it needs and with the lowest that pyproject.toml allows.
WHEEL := build/wheel
wheel: $(VENV)/.installed-dev
	rm -rf $(WHEEL) build/lib build/bdist.*
	$(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir $(WHEEL) .
	$(BIN)/python tests/release.py size $(WHEEL)

release: wheel
	$(BIN)/python tests/release.py lowest > $(WHEEL)/lowest.txt
	$(call installed_wheel,newest,)
	$(call installed_wheel,lowest,--constraint $(WHEEL)/lowest.txt)

# $(call installed_wheel,NAME,CONSTRAINTS): the small install's tests on the wheel alone.
define installed_wheel
	rm -rf $(WHEEL)/$(1) && $(PYTHON) -m venv $(WHEEL)/$(1)
	$(WHEEL)/$(1)/bin/python -m pip install --quiet --disable-pip-version-check $(2) $(WHEEL)/*.whl pytest
	cp tests/test_minimal.py $(WHEEL)/$(1)/
	cd $(WHEEL)/$(1) && bin/python -m pytest --noconftest -c /dev/null --rootdir . test_minimal.py
endef

stories: $(VENV)-notebooks/.installed  ## the notebooks, with what they ask for and nothing else
	$(VENV)-notebooks/bin/python -m pytest --noconftest -n 2 --maxschedchunk 1 tests/test_notebooks.py

install: $(VENV)/.installed

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade "pip>=25.1"

$(VENV)/.installed: $(VENV)/bin/python pyproject.toml constraints.txt
	$(PIP) --editable '.[record]'
	touch $@

$(VENV)/.installed-dev: $(VENV)/bin/python pyproject.toml constraints.txt
	$(PIP) --editable '.[all]' --group dev --group docs
	touch $(VENV)/.installed $@

# $(call clean_venv,PACKAGES): an environment that has nothing else. One after the other, for what they
# build from lies in the same folder.
define clean_venv
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/python $(INSTALL) $(1)
	touch $@
endef

$(VENV)-minimal/.installed: pyproject.toml constraints.txt | $(VENV)/.installed-dev
	$(call clean_venv,. pytest)

$(VENV)-notebooks/.installed: pyproject.toml constraints.txt | $(VENV)-minimal/.installed
	$(call clean_venv,--editable '.[notebooks]' pytest pytest-xdist)

clean:
	rm -rf $(VENV) $(VENV)-minimal $(VENV)-notebooks $(WORK)

# The notebooks, run again, outputs and all; ONLY=04_optimal_gamma runs one. Whichever is newer of a
# notebook and its text counts. No times, no versions: what did not change makes no diff.
ONLY ?= *
STRIPPED := --ExecutePreprocessor.record_timing=False --ClearMetadataPreprocessor.enabled=True \
  --ClearMetadataPreprocessor.preserve_cell_metadata_mask=tags \
  --ClearMetadataPreprocessor.preserve_nb_metadata_mask=kernelspec

notebooks: $(VENV)/.installed-dev
	$(BIN)/jupytext --quiet --sync --set-kernel python3 notebooks/$(ONLY).py
	$(BIN)/jupyter nbconvert --log-level WARN --to notebook --inplace --execute $(STRIPPED) \
	  notebooks/$(ONLY).ipynb

# The bundled traces, made again: 32 prompts a task, greedy and at temperature 1, and the target
# alone at temperature 1, 16 a task; drafters are attached. Scores and timings come after:
# `make reference heads timings`.
reference: $(VENV)/.installed
	mkdir -p $(WORK)
	$(call first,32) > $(WORK)/reference.jsonl
	rm -rf traces/data/reference traces/data/reference-sampled
	$(BIN)/simkit record $(PAIR) --prompts $(WORK)/reference.jsonl --batch-size 16 \
	  --out traces/data/reference
	$(BIN)/simkit record $(PAIR) --prompts $(WORK)/reference.jsonl --batch-size 16 --temperature 1 \
	  --out traces/data/reference-sampled
	$(call first,16) > $(WORK)/reference-target.jsonl
	rm -rf traces/data/reference-target
	$(BIN)/simkit record $(TARGET) --prompts $(WORK)/reference-target.jsonl --batch-size 16 --temperature 1 \
	  --out traces/data/reference-target
	for trace in reference reference-sampled reference-target; do \
	  for spec in "prompt_lookup()" "ngram(least=2, most=4)" "suffix()"; do \
	    $(BIN)/simkit attach traces/data/$$trace --drafter "$$spec" || exit 1; \
	  done; \
	done
	$(BIN)/simkit attach traces/data/reference-target $(TARGET) --name draft --max-draft 8 \
	  --drafter 'model("traces/reference/models/draft")'
	$(call attached_to,reference,draft_prob_raw)
	$(call attached_to,reference-target,draft_prob)

# $(call attached_to,TRACE,COLUMN): the networks, with what the figures and most rules read of them.
define attached_to
	for net in pard2 pard; do \
	  $(BIN)/simkit attach traces/data/$(1) $(TARGET) --name $$net --columns $(STATISTICS),$(2) \
	    --drafter "parallel(\"traces/reference/models/$$net\", length=8)" || exit 1; \
	done
	$(BIN)/simkit attach traces/data/$(1) $(TARGET) --name eagle --columns $(STATISTICS),$(2) \
	  --drafter 'feature("traces/reference/models/eagle", length=6)'
endef
STATISTICS := draft_token,draft_entropy,cross_entropy,overlap

# Their timings, taken in running decoders, heads included, and those of their networks. They mean
# something only on a machine that does nothing else: an hour. A live decoder cannot repeat outputs
# that are the target's own draws, so that recording has the times of the other sampled one.
# $(call times_of,TRACE,SUFFIX,OPTIONS)
times_of = $(BIN)/simkit calibrate $(1) $(PAIR) --threads 1 --turns step --log $(WORK)/times$(2).parquet \
	$(foreach head,pacer acceptance specdecpp,--head traces/reference/heads/$(head)$(2).safetensors) $(3)
DATA := traces/data
NETWORKS := pard2 pard eagle
# $(call same_times,FROM,TO)
same_times = $(BIN)/python -m traces.times $(DATA)/$(1) $(DATA)/$(2)

timings: $(VENV)/.installed
	mkdir -p $(WORK)
	$(call times_of,$(DATA)/reference,)
	$(call times_of,$(DATA)/reference-sampled,-sampled,--prompts 8 --rounds 2)
	for net in $(NETWORKS); do \
	  OMP_NUM_THREADS=1 $(BIN)/simkit latency $(TARGET) --drafter $$net --repeats 40 --out $(DATA)/reference || exit 1; \
	done
	$(call same_times,reference-sampled,reference-target)
	$(call same_times,reference-sampled,reference-target/drafters/draft)
	for net in $(NETWORKS); do \
	  $(call same_times,reference/drafters/$$net,reference-target/drafters/$$net) || exit 1; \
	done

# The bundled heads: trained on the prompts that the bundled traces do not hold, whose states are
# recorded again because they are bundled without them. Then the score tables, one for each head.
rest = awk -F'"task": "' '{split($$2, a, "\""); if (n[a[1]]++ >= $(1)) print}' traces/reference/prompts.jsonl
HEADS := traces/reference/heads
RECORD_STATES := $(BIN)/simkit record $(PAIR) --batch-size 16 --hidden

# $(call heads_of,TRACE,SUFFIX,OPTIONS): heads HEAD+SUFFIX for a bundled TRACE recorded with OPTIONS.
define heads_of
	OMP_NUM_THREADS=1 $(RECORD_STATES) $(3) --mix 0.5 --prompts $(WORK)/heads/train.jsonl --out $(WORK)/heads/train$(2)
	$(RECORD_STATES) $(3) --prompts $(WORK)/heads/bundled.jsonl --out $(WORK)/heads/$(1)
	for head in pacer acceptance specdecpp; do \
	  file=$(HEADS)/$$head$(2).safetensors; \
	  OMP_NUM_THREADS=1 $(BIN)/simkit train $$head $(WORK)/heads/train$(2) -o $$file && \
	  $(BIN)/simkit score $(1) --head $$file --hidden $(WORK)/heads/$(1) || exit 1; \
	done
endef

heads: heads-greedy heads-sampled  ## with `make -j 2 heads` the two at once

heads-greedy: heads-prompts
	$(call heads_of,reference,,)

heads-sampled: heads-prompts
	$(call heads_of,reference-sampled,-sampled,--temperature 1)

heads-prompts: $(VENV)/.installed-dev
	rm -rf $(WORK)/heads && mkdir -p $(WORK)/heads $(HEADS)
	$(call rest,32) > $(WORK)/heads/train.jsonl
	$(call first,32) > $(WORK)/heads/bundled.jsonl

# Score tables of the PACER head's variants, for `python -m benchmarks.ablations`: trained like the
# bundled head, after `make heads`, on the same recording. $(call variant,NAME,OPTIONS)
# And the acceptance head as its public code trains it, with 0.15 of the tokens mixed in.
define variant
	OMP_NUM_THREADS=1 $(BIN)/simkit train pacer $(WORK)/heads/train \
	  -o $(WORK)/heads/pacer-$(1).safetensors $(2)
	$(BIN)/simkit score reference --head $(WORK)/heads/pacer-$(1).safetensors \
	  --hidden $(WORK)/heads/reference --name pacer-$(1)
endef

ablation-heads: $(VENV)/.installed-dev
	$(call variant,no-position,--no-position-embedding)
	$(call variant,local-block,--attention local-block)
	$(call variant,local-draft,--attention local-draft)
	OMP_NUM_THREADS=1 $(RECORD_STATES) --mix 0.15 --prompts $(WORK)/heads/train.jsonl \
	  --out $(WORK)/heads/train-code
	OMP_NUM_THREADS=1 $(BIN)/simkit train acceptance $(WORK)/heads/train-code --variant code \
	  -o $(WORK)/heads/acceptance-code.safetensors

# What parallel and feature drafters of the reference target are trained on: its own answers to the
# prompts that the bundled traces do not hold and to prompts that it makes up, and its states behind
# every token (docs/drafters.md).
ANSWERS := $(WORK)/answers
RECORD_ANSWERS := $(BIN)/simkit record $(PAIR) --prompts $(ANSWERS)/prompts.jsonl --batch-size 16 --max-draft 1

answers: $(VENV)/.installed-dev
	rm -rf $(ANSWERS) && mkdir -p $(ANSWERS)
	$(call rest,32) > $(ANSWERS)/prompts.jsonl
	$(RECORD_ANSWERS) --out $(ANSWERS)/greedy
	for seed in 0 1; do \
	  $(RECORD_ANSWERS) --temperature 1 --seed $$seed --out $(ANSWERS)/sampled-$$seed || exit 1; \
	done
	OMP_NUM_THREADS=1 $(BIN)/python -m traces.reference.made_texts -o $(ANSWERS)/made
	$(BIN)/python -m traces.reference.answers $(ANSWERS)/greedy $(ANSWERS)/sampled-* \
	  --made $(ANSWERS)/made -o $(ANSWERS)/states.npz

# Its drafters, which come with the package: PARD, PARD-2 and an EAGLE chain; 15 CPU minutes each.
# ARMS are those of PARD-2's ablations, of which only what is accepted of their drafts is kept.
TRAIN := OMP_NUM_THREADS=1 $(BIN)/python -m traces.reference
MODELS := traces/reference/models

drafters: $(VENV)/.installed-dev
	$(TRAIN).parallel --loss pard --features none --block 16 --steps 1500 -o $(MODELS)/pard
	$(TRAIN).parallel --loss cat --features four --block 16 --steps 1500 -o $(MODELS)/pard2
	$(TRAIN).feature -o $(MODELS)/eagle

# Trees of its drafters, on four prompts of each task, 64 tokens: all that beams of 1 to 10 nodes reach
# in eight levels, of the parallel drafter the likeliest nodes too, with statistics rounded to 5 bits.
# And at temperature 1, the target alone, on two prompts of each task. Five minutes.
TREES := $(WORK)/trees
ATTACH_TREES = OMP_NUM_THREADS=1 $(BIN)/simkit attach $(TREES)/$(1) $(TARGET) --name $(2) --drafter '$(3)'
BEAMS := --tree 'eagle2(top_k=1:10, depth=1:7)'
# $(call trees_of,TRACE)
define trees_of
	$(call ATTACH_TREES,$(1),eagle,feature("$(MODELS)/eagle")) --draft-temperature 0 \
	  --columns draft_token,draft_prob_raw,draft_entropy
	$(call ATTACH_TREES,$(1),eagle-tree,feature("$(MODELS)/eagle")) $(BEAMS)
	$(call ATTACH_TREES,$(1),pard2-tree,parallel("$(MODELS)/pard2"$(comma) length=8)) $(BEAMS) \
	  --tree 'best_first(60)'
endef
# $(call thinned_trees,TRACE)
define thinned_trees
	$(BIN)/simkit thin $(TREES)/$(1) -o $(TREES)/thin-$(1) --bits 5
	rm -rf $(DATA)/$(1) && mv $(TREES)/thin-$(1) $(DATA)/$(1)
	$(call same_times,reference/drafters/eagle,$(1)/drafters/eagle)
	$(call same_times,reference/drafters/eagle,$(1)/drafters/eagle-tree)
	$(call same_times,reference/drafters/pard2,$(1)/drafters/pard2-tree)
endef

trees: $(VENV)/.installed  ## their `reference-trees` and `reference-trees-sampled`
	rm -rf $(TREES) && mkdir -p $(TREES)
	$(BIN)/python -m traces.reference.cut $(DATA)/reference -o $(TREES)/reference-trees
	$(call trees_of,reference-trees)
	$(call ATTACH_TREES,reference-trees,draft-tree,model("$(MODELS)/draft")) $(BEAMS)
	$(call thinned_trees,reference-trees)
	$(call same_times,reference,reference-trees/drafters/draft-tree)
	$(call first,2) > $(TREES)/prompts.jsonl
	$(BIN)/simkit record $(TARGET) --prompts $(TREES)/prompts.jsonl --temperature 1 \
	  --max-new-tokens 40 --out $(TREES)/reference-trees-sampled
	$(call trees_of,reference-trees-sampled)
	$(call thinned_trees,reference-trees-sampled)
	$(call same_times,reference-target,reference-trees-sampled)

# Heads of its EAGLE drafter, trained on its answers to the prompts that the bundled traces do not
# hold, and the scores of the bundled trees. Half an hour, most of it recording.
TREE_HEADS := $(WORK)/tree-heads
# $(call tree_head,SUFFIX,TEMPERATURE)
define tree_head
	$(BIN)/simkit record $(TARGET) --prompts $(TREE_HEADS)/prompts.jsonl --batch-size 16 \
	  --temperature $(2) --out $(TREE_HEADS)/answers$(1)
	$(BIN)/simkit attach $(TREE_HEADS)/answers$(1) $(TARGET) --name eagle \
	  --drafter 'feature("$(MODELS)/eagle", length=1)'
	OMP_NUM_THREADS=1 $(BIN)/simkit train acceptance $(TREE_HEADS)/answers$(1) --drafter eagle $(TARGET) \
	  -o $(HEADS)/acceptance-trees$(1).safetensors
	OMP_NUM_THREADS=1 $(BIN)/simkit score reference-trees$(1) --drafter eagle-tree $(TARGET) \
	  --head $(HEADS)/acceptance-trees$(1).safetensors
endef

tree-heads: $(VENV)/.installed-dev
	rm -rf $(TREE_HEADS) && mkdir -p $(TREE_HEADS)
	$(call rest,32) > $(TREE_HEADS)/prompts.jsonl
	$(call tree_head,,0)
	$(call tree_head,-sampled,1)

arms: $(VENV)/.installed-dev
	$(TRAIN).arms train
	$(TRAIN).arms measure

# A real model, SmolLM2-135M-Instruct, in the user's cache (docs/smollm2.md), and its own answers to
# prompts that are not recorded, on which its drafters are trained.
smollm2: $(VENV)/.installed-dev
	$(BIN)/python -m traces.smollm2.fetch

smollm2-answers: smollm2
	$(BIN)/python -m traces.smollm2.answers -o $(WORK)/smollm2/answers
	$(BIN)/python -m traces.smollm2.teacher $(WORK)/smollm2/answers

smollm2-draft: $(VENV)/.installed-dev
	$(BIN)/python -m traces.smollm2.draft --answers $(WORK)/smollm2/answers -o $(WORK)/smollm2/draft

smollm2-feature: $(VENV)/.installed-dev
	$(BIN)/python -m traces.smollm2.feature --answers $(WORK)/smollm2/answers -o $(WORK)/smollm2/feature

smollm2-parallel: $(VENV)/.installed-dev
	$(BIN)/python -m traces.smollm2.parallel --answers $(WORK)/smollm2/answers -o $(WORK)/smollm2/parallel

# Recordings of it, greedy and at temperature 1: the target alone, to which its drafters are attached;
# and a long one. Some two hours of two cores and up to 10 GiB a command; what was stopped goes on with
# --resume in the command that stopped.
SMOLLM2 = $$($(BIN)/python -c "from traces.smollm2.fetch import default_folder as f; print(f())")
MODELS_SMOLLM2 := traces/smollm2/models
RECORDS := $(WORK)/smollm2
RECORD_SMOLLM2 = OMP_NUM_THREADS=1 $(BIN)/simkit record --target $(SMOLLM2)
ATTACH_SMOLLM2 = OMP_NUM_THREADS=1 $(BIN)/simkit attach

smollm2-recordings: smollm2-greedy smollm2-sampled smollm2-long  ## with `make -j 2` two at once

smollm2-prompts: smollm2
	mkdir -p $(RECORDS)
	for some in recorded long; do \
	  $(BIN)/python -m traces.smollm2.prompts --$$some -o $(RECORDS)/$$some.jsonl || exit 1; \
	done

# $(call recorded_with,TRACE,TEMPERATURE,HIDDEN)
define recorded_with
	$(RECORD_SMOLLM2) --prompts $(RECORDS)/recorded.jsonl --coupling target --temperature $(2) \
	  --max-new-tokens 512 --batch-size 60 --out $(RECORDS)/$(1)
	$(ATTACH_SMOLLM2) $(RECORDS)/$(1) --drafter 'prompt_lookup(length=16)' --drafter suffix
	$(ATTACH_SMOLLM2) $(RECORDS)/$(1) --target $(SMOLLM2) --max-draft 16 --name draft \
	  --drafter 'model("$(MODELS_SMOLLM2)/draft", at_once=16$(3))'
	$(ATTACH_SMOLLM2) $(RECORDS)/$(1) --target $(SMOLLM2) --columns draft_token,draft_prob_raw,draft_entropy,overlap \
	  --drafter 'feature("$(MODELS_SMOLLM2)/feature")' --drafter 'parallel("$(MODELS_SMOLLM2)/parallel", length=8)'
endef

smollm2-greedy: smollm2-prompts
	$(call recorded_with,greedy,0,$(comma) hidden=true)

smollm2-sampled: smollm2-prompts
	$(call recorded_with,sampled,1,)

smollm2-long: smollm2-prompts
	$(RECORD_SMOLLM2) --draft $(MODELS_SMOLLM2)/draft --prompts $(RECORDS)/long.jsonl --coupling target --temperature 1 \
	  --max-new-tokens 4096 --ignore-eos --max-draft 16 --batch-size 8 --out $(RECORDS)/long

# Heads of its draft model, trained on answers to questions that the model makes up and that no drafter
# has seen, and their scores for the recorded prompts; behind `smollm2-greedy` and `smollm2-bundle`.
smollm2-heads: smollm2
	test -d $(RECORDS)/greedy/drafters/draft  # whose states are scored
	mkdir -p traces/smollm2/heads
	OMP_NUM_THREADS=1 $(BIN)/python -m traces.smollm2.questions -o $(RECORDS)/questions.jsonl
	$(RECORD_SMOLLM2) --draft $(MODELS_SMOLLM2)/draft --prompts $(RECORDS)/questions.jsonl --hidden --mix 0.5 \
	  --max-new-tokens 128 --max-draft 8 --batch-size 48 --out $(RECORDS)/train
	for head in pacer acceptance specdecpp; do \
	  file=traces/smollm2/heads/$$head.safetensors; \
	  OMP_NUM_THREADS=1 $(BIN)/simkit train $$head $(RECORDS)/train -o $$file && \
	  $(BIN)/simkit score smollm2 --head $$file --hidden $(RECORDS)/greedy/drafters/draft --max-draft 16 || exit 1; \
	done

# Its times and its networks', on a machine that does nothing else: 20 minutes. A live decoder cannot
# repeat outputs that are the target's own draws, so the sampled recording has those of the greedy one.
SMOLLM2_HEADS := $(foreach head,pacer acceptance specdecpp,--head traces/smollm2/heads/$(head).safetensors)
smollm2-timings: smollm2
	$(BIN)/simkit calibrate $(DATA)/smollm2 --target $(SMOLLM2) --draft $(MODELS_SMOLLM2)/draft \
	  $(SMOLLM2_HEADS) --threads 1 --turns step --max-new-tokens 48 --rounds 2
	for name in feature parallel; do \
	  OMP_NUM_THREADS=1 $(BIN)/simkit latency --target $(SMOLLM2) --drafter $$name --repeats 40 \
	    --context 32,256,768,1400 --out $(DATA)/smollm2 || exit 1; \
	done
	for folder in . drafters/feature drafters/parallel; do \
	  $(call same_times,smollm2/$$folder,smollm2-sampled/$$folder) || exit 1; \
	done

comma := ,

# What of them comes with the package: statistics that rules and figures read, rounded to 5 bits.
KEPT := draft_prob_raw,draft_entropy,cross_entropy,overlap,target_token_prob_raw,target_entropy
# $(call bundled_of,RECORDING,NAME,COLUMNS,OPTIONS)
define bundled_of
	rm -rf $(RECORDS)/$(2)
	$(BIN)/simkit thin $(RECORDS)/$(1) -o $(RECORDS)/$(2) --bits 5 --drop-tokens --columns $(3) \
	  --drafter-columns draft_prob_raw,draft_entropy $(4)
	rm -rf traces/data/$(2) && mv $(RECORDS)/$(2) traces/data/$(2)
endef

smollm2-bundle:
	$(call bundled_of,greedy,smollm2,$(KEPT)$(comma)draft_top10_mass,--own draft)
	$(call bundled_of,sampled,smollm2-sampled,$(KEPT),--own draft)
	$(call bundled_of,long,smollm2-long,$(subst draft_prob_raw$(comma),,$(KEPT)))
