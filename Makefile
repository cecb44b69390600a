# Two commands do all the set-up on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt
WORK := .work

.PHONY: demo test lint unit minimal install reference clean

# $(call first,N): the first N prompts of each task.
first = awk -F'"task": "' '{split($$2, a, "\""); if (n[a[1]]++ < $(1)) print}' traces/reference/prompts.jsonl
PAIR := --target traces/reference/models/target --draft traces/reference/models/draft
POLICIES := --policy 'autoregressive' --policy 'fixed(3)' --policy 'fixed(5)' --policy 'svip(h=0.8)' \
  --policy 'heuristic(initial=5)' --policy 'confidence(threshold=0.4)' --policy 'oracle'

demo: $(VENV)/.installed  ## record the shipped pair on a few prompts, time it, replay policies
	@rm -rf $(WORK)/demo && mkdir -p $(WORK)/demo
	$(call first,4) > $(WORK)/demo/prompts.jsonl
	$(BIN)/simkit record $(PAIR) --prompts $(WORK)/demo/prompts.jsonl --out $(WORK)/demo/trace
	$(BIN)/simkit latency $(PAIR) --repeats 10 --out $(WORK)/demo/trace
	$(BIN)/simkit info $(WORK)/demo/trace
	$(BIN)/simkit replay $(WORK)/demo/trace $(POLICIES)

test: lint unit minimal  ## everything that CI runs

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright --pythonpath $(BIN)/python
	$(BIN)/lint-imports

unit: $(VENV)/.installed-dev
	$(BIN)/python -m pytest -n 2

minimal: $(VENV)-minimal/.installed  ## replay without torch
	$(VENV)-minimal/bin/python -m pytest --noconftest tests/test_minimal.py

install: $(VENV)/.installed

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade "pip>=25.1"

$(VENV)/.installed: $(VENV)/bin/python pyproject.toml constraints.txt
	$(PIP) --editable '.[record]'
	touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	$(PIP) --editable '.[all]' --group dev
	touch $@

$(VENV)-minimal/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)-minimal
	$(VENV)-minimal/bin/python -m pip install --quiet --disable-pip-version-check \
	  --constraint constraints.txt . pytest
	touch $@

clean:
	rm -rf $(VENV) $(VENV)-minimal $(WORK)

# The bundled traces, made again: 32 prompts a task, greedy and at temperature 1, and their timings.
# Timings mean something only on a machine that does nothing else.
reference: $(VENV)/.installed
	mkdir -p $(WORK)
	$(call first,32) > $(WORK)/reference.jsonl
	rm -rf traces/data/reference traces/data/reference-sampled
	$(BIN)/simkit record $(PAIR) --prompts $(WORK)/reference.jsonl --batch-size 16 \
	  --out traces/data/reference
	$(BIN)/simkit record $(PAIR) --prompts $(WORK)/reference.jsonl --batch-size 16 --temperature 1 \
	  --out traces/data/reference-sampled
	$(BIN)/simkit latency $(PAIR) --repeats 40 --out traces/data/reference
	$(BIN)/simkit latency $(PAIR) --repeats 40 --out traces/data/reference-sampled
