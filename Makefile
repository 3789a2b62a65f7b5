# Needs Python 3.11 or newer, and make. Everything else is installed into .venv.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
# Two processes; one that has finished takes over tests of the other. -rs lists what was skipped.
PYTEST := $(BIN)/pytest -n 2 --dist worksteal -rs
MINUTES ?= 30

.DEFAULT_GOAL := help
.PHONY: help install test browser test-all test-gpu test-with attack lint types format demo studio bench docs pictures samples reference architectures clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

install: $(INSTALLED) ## create .venv and install regard into it, once

# The stamp is touched last: an interrupted installation starts again.
$(INSTALLED): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "regard needs Python 3.11 or newer; choose one: make PYTHON=python3.11")'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "Installing into $(VENV); the first time takes a few minutes"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[all,bench,dev,docs]'
	@touch $@

test: lint types ## lint, check types, run the tests and doctests that take seconds
	$(PYTEST) -m "not slow and not browser"

browser: $(INSTALLED) ## test the pages in chromium
	$(PYTEST) -m browser tests

test-all: $(INSTALLED) ## every test; with MARK=slow those that `make test` leaves out
	$(PYTEST) $(if $(MARK),-m "$(MARK)")

test-gpu: $(INSTALLED) ## the tests on CUDA or MPS, skipped without a device
	$(BIN)/pytest -m gpu -rs tests/test_gpu.py

TESTS ?= tests
test-with: ## the tests in an environment that is then removed: TORCH=2.15.0 PYTHON=python3.13 [TESTS=tests/core]
	@.ci/test_with "$(TORCH)" "$(PYTHON)" $(TESTS)

attack: $(INSTALLED) ## random attacks with new cases, for MINUTES=30
	@count=$$($(BIN)/pytest --collect-only -q tests/attack | grep -c ::) && \
	REGARD_ATTACK_SECONDS=$$((2 * 60 * $(MINUTES) / count)) $(PYTEST) tests/attack

lint: $(INSTALLED) ## ruff: lint, and check the format
	$(BIN)/ruff check
	$(BIN)/ruff format --check

types: $(INSTALLED) ## mypy
	$(BIN)/mypy

format: $(INSTALLED) ## fix imports and format
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

demo: $(INSTALLED) ## train a model on dates, translate, show the alignment
	@$(BIN)/regard demo

studio: $(INSTALLED) ## the studio on the model of the demo, which is trained first if it is not there
	@test -f runs/dates/model.safetensors || $(BIN)/regard demo
	@$(BIN)/regard studio runs/dates

bench: $(INSTALLED) ## attention compared with other libraries, in one run
	@$(BIN)/python -m benchmarks.attention

docs: $(INSTALLED) ## the documentation as a site that opens from disk: site/index.html
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo "Open site/index.html"

MODELS := attention bahdanau copy dates # of the guide
pictures: $(INSTALLED) $(MODELS:%=runs/%/model.safetensors) ## run the guide and draw its pictures; PAGES=docs/guide/masks.md
	@$(BIN)/python -m docs.tools.pages $(PAGES)

samples: $(INSTALLED) ## train the small models that come with regard; SAMPLES=dates-luong
	@$(BIN)/python -m docs.tools.samples $(SAMPLES)

reference: $(INSTALLED) ## write the generated pages of docs/: commands, recipes, keys
	@$(BIN)/python -m docs.tools.reference

architectures: $(INSTALLED) ## try every architecture of transformers, into docs/hugging_face.md; NAMES="bert llama": those
	@$(BIN)/python -m docs.tools.architectures $(NAMES)

runs/%/model.safetensors:
	@$(BIN)/regard train $*

runs/attention/model.safetensors runs/bahdanau/model.safetensors: runs/%/model.safetensors:
	@$(BIN)/regard train dates --set model.kind=$* --out runs/$*

clean: ## remove .venv and all other generated files
	rm -rf $(VENV) .ci/venv build dist site src/*.egg-info .pytest_cache .ruff_cache .mypy_cache .hypothesis
	find src tests benchmarks -name __pycache__ -type d -exec rm -rf {} +
