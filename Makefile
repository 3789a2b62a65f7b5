# Needs Python 3.11 or newer, and make. Everything else is installed into .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed

.DEFAULT_GOAL := help
.PHONY: help install test lint types format demo bench clean

help: ## say what there is to make
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

install: $(INSTALLED) ## create .venv and install regard into it, once

# The stamp is touched last: an interrupted installation starts again.
$(INSTALLED): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "regard needs Python 3.11 or newer; name one: make PYTHON=python3.11")'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "Installing into $(VENV); the first time takes a few minutes"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[all,bench,dev]'
	@touch $@

test: lint types ## lint, check types, run every test and doctest
	$(BIN)/pytest -n 2

lint: $(INSTALLED) ## ruff, as a linter and as a formatter's judge
	$(BIN)/ruff check
	$(BIN)/ruff format --check

types: $(INSTALLED) ## mypy
	$(BIN)/mypy

format: $(INSTALLED) ## put the source in order
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

demo: $(INSTALLED) ## train a model on dates, translate, show the alignment
	@$(BIN)/regard demo

bench: $(INSTALLED) ## attention beside its peers, in one run
	@$(BIN)/regard bench attention

clean: ## remove .venv and everything else that was made here
	rm -rf $(VENV) build dist src/*.egg-info .pytest_cache .ruff_cache .mypy_cache .hypothesis
	find src tests benchmarks -name __pycache__ -type d -exec rm -rf {} +
