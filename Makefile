# Two commands do all the set-up on a fresh machine: `make demo` and `make test`. How the bundled data
# were made is in traces/recipes/Makefile.
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

.PHONY: demo test lint docs unit browser minimal wheel release stories install notebooks smollm2 clean

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

# The wheels of the code and of the data, and tests of what they install without a repository around
# them, the first alone and both: with the newest versions of what it needs and with the lowest that
# pyproject.toml allows.
WHEEL := build/wheel
wheel: $(VENV)/.installed-dev
	rm -rf $(WHEEL) build/lib build/bdist.* draft-simkit-data/build
	$(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir $(WHEEL) . ./draft-simkit-data
	$(BIN)/python tests/release.py check $(WHEEL)

release: wheel
	$(BIN)/python tests/release.py lowest > $(WHEEL)/lowest.txt
	$(call installed_wheel,newest,)
	$(call installed_wheel,lowest,--constraint $(WHEEL)/lowest.txt)

# $(call installed_wheel,NAME,CONSTRAINTS): the small install's tests, without and with the data.
define installed_wheel
	rm -rf $(WHEEL)/$(1) && $(PYTHON) -m venv $(WHEEL)/$(1)
	$(WHEEL)/$(1)/bin/python -m pip install --quiet --disable-pip-version-check $(2) $(WHEEL)/draft_simkit-*.whl pytest
	cp tests/test_minimal.py $(WHEEL)/$(1)/
	cd $(WHEEL)/$(1) && bin/python -m pytest --noconftest -c /dev/null --rootdir . test_minimal.py
	$(WHEEL)/$(1)/bin/python -m pip install --quiet --disable-pip-version-check --no-index $(WHEEL)/draft_simkit_data-*.whl
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

# A real model, SmolLM2-135M-Instruct, in the user's cache (docs/smollm2.md).
smollm2: $(VENV)/.installed-dev
	$(BIN)/python -m traces.fetch_smollm2
