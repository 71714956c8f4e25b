# `make` lists the targets. Everything installs into .venv; nothing else on the machine is touched.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
WORKERS ?= 2
EXAMPLES ?= 100
SEED ?= 1
ROUNDS ?= 50
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.PHONY: help demo test soak crash crash-full memory lint format docs clean

help: ## List the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sort | awk -F ':.*## ' '{printf "  make %-10s %s\n", $$1, $$2}'

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "Glossator needs Python 3.11 or newer: make PYTHON=python3.12 ..."; exit 2; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/installed: pyproject.toml constraints.txt | $(BIN)/python
	@echo "Installing into $(VENV): 2 GB, one to two minutes"
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable .
	@touch $@

$(VENV)/installed-dev: $(VENV)/installed
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	@touch $@

demo: $(VENV)/installed ## Install, index data/corpus, and ask it three questions
	@PATH="$(CURDIR)/$(BIN):$$PATH" bash data/demo.sh

test: $(VENV)/installed-dev ## Install and run the whole test suite
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup

soak: $(VENV)/installed-dev ## Tell long stories of a collection at random: make soak EXAMPLES=500
	GLOSSATOR_EXAMPLES=$(EXAMPLES) $(BIN)/python -m pytest tests/properties/test_incremental_properties.py

crash: $(VENV)/installed-dev ## Kill commands at random moments: make crash SEED=1 ROUNDS=50
	$(BIN)/python -m tests.crash.random_crasher --seed $(SEED) --rounds $(ROUNDS)

crash-full: $(VENV)/installed-dev ## Have every fault strike every operation, and record what came of it
	$(BIN)/python -m tests.crash.matrices
	$(BIN)/python -m tests.crash.damage
	$(BIN)/python -m tests.crash.moving_source
	$(BIN)/python -m pytest -m long tests/e2e
	$(BIN)/python docs/generate.py

memory: $(VENV)/installed-dev ## Measure the memory of a first index of small and large corpora (20 minutes)
	$(BIN)/python -m tests.benchmarks.memory 10000 100000 35MB 200MB
	$(BIN)/python docs/generate.py

lint: $(VENV)/installed-dev ## Check style, types and spelling
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/codespell

format: $(VENV)/installed-dev ## Format the code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(VENV)/installed-dev ## Generate the pages and the picture in docs/
	$(BIN)/python docs/generate.py

clean: ## Remove the environment and the demo's lake
	rm -rf $(VENV) data/lake data/prefect
