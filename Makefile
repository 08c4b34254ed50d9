# The only commands anyone needs. `make` alone lists them.
#
# Each target does its own set-up; what is already done is not done again. The environment is .venv.

.DEFAULT_GOAL := help
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c

# The first interpreter that is new enough; `make PYTHON=…` chooses another.
PYTHON ?= $(shell for candidate in python3 python3.14 python3.13 python3.12 python3.11; do \
    "$$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
        && echo "$$candidate" && break; done)
BIN := .venv/bin
COMPILED_SOURCES := $(shell find src -name '*.pyx' -o -name '*.pxd')
# More words for pytest: make test ARGS='-k vfs'
ARGS ?=

.PHONY: help setup demo test test-again lint bench soak clean

help: ## List these commands
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## (.*)/  make \1\t\2/' | expand -t 16

setup: .venv/.compiled ## Make .venv, install everything and compile what changed

demo: setup ## See it work
	$(BIN)/penstock demo

test: setup ## Run the quick tests
	$(BIN)/pytest -n 2 $(ARGS) || $(MAKE) --no-print-directory test-again CODE=$$?

# What fails beside others on a busy machine gets a second chance alone, for all to see: load is then
# told from a fault. Only where few tests failed, and nothing else went wrong (pytest's code 1).
test-again:
	@test "$(CODE)" -eq 1
	@echo "Once more, alone, what failed:"
	$(BIN)/pytest --last-failed --last-failed-no-failures none --maxfail 3 $(ARGS)

lint: setup ## Check style, types and layers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/cython-lint src
	$(BIN)/mypy --strict
	$(BIN)/lint-imports --no-logo

bench: setup ## Measure
	$(BIN)/python -m benchmarks.run

soak: setup ## Run the long tests, with new random examples
	$(BIN)/pytest -m soak --timeout=0 --hypothesis-profile=soak $(ARGS)

clean: ## Remove all that these commands made, .venv included
	rm -rf .venv build dist src/*.egg-info .pytest_cache .hypothesis .mypy_cache .ruff_cache
	rm -rf .import_linter_cache benchmarks/results/local demo-data tests/interop/node/node_modules
	find src -name '*.so' -delete
	find src tests tools -name __pycache__ -type d -prune -exec rm -rf {} +

# The stamps say when a step was last done; they live in .venv, so that without it all is redone.

.venv/.made:
	@tools/check_prerequisites.sh "$(PYTHON)"
	"$(PYTHON)" -m venv .venv
	@touch $@

.venv/.installed: pyproject.toml | .venv/.made
	$(BIN)/python -m pip install --quiet --disable-pip-version-check 'setuptools>=77' 'Cython>=3.2,<4'
	PENSTOCK_COMPILE=0 $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-build-isolation -e '.[dev]'
	@touch $@

.venv/.compiled: .venv/.installed setup.py $(COMPILED_SOURCES)
	$(BIN)/python setup.py --quiet build_ext --inplace
	$(BIN)/python -m compileall -q src
	@touch $@
