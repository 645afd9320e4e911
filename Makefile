# make demo and make test need only Python 3.11 or newer and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
CORE := $(VENV)/core.stamp
DEV := $(VENV)/dev.stamp

.DEFAULT_GOAL := help

help: ## List the targets
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/\1\t\2/p' $(MAKEFILE_LIST) | expand -t 12

demo: $(CORE) ## Install traceq and report the bundled two-rank sample
	$(BIN)/traceq report examples/two_ranks

test: $(DEV) ## Install everything the tests need and run them with coverage
	$(BIN)/python -m coverage erase
	POLARS_MAX_THREADS=1 $(BIN)/python -m coverage run -m pytest -n auto --dist loadfile --doctest-modules \
		--ignore tests/e2e $(PYTEST_ARGS)
	$(BIN)/python -m pytest tests/e2e # trainings, which share their cores with nothing, measuring included
	$(BIN)/python -m coverage combine -q
	$(BIN)/python -m coverage report

lint: $(DEV) ## Check style and import layers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

type: $(DEV) ## Check types
	$(BIN)/mypy

bench: $(DEV) ## Measure speed and memory beside a bare scan of the same columns
	$(BIN)/pip install -q connectorx==0.4.6 pyarrow
	$(BIN)/python benchmarks/nsys_report.py

docs: $(DEV) ## Generate the pages that are made from the code
	$(BIN)/python docs/generate.py

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(CORE): pyproject.toml | $(VENV)/bin/python
	$(BIN)/pip install -q -e .
	@touch $@

$(DEV): pyproject.toml | $(VENV)/bin/python
	$(BIN)/pip install -q -e '.[dev]'
	@touch $@ $(CORE)

.PHONY: help demo test lint type bench docs
