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
UV := $(BIN)/uv --quiet
COMPILED_SOURCES := $(shell find src -name '*.pyx' -o -name '*.pxd')
# More words for pytest or the benchmarks: make test ARGS='-k vfs', make bench ARGS=--quick
ARGS ?=

.PHONY: help setup demo test test-all lint layers bench soak lock clean

help: ## List these commands
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1\t\2/' | expand -t 16

# What is installed and what is compiled does not wait for the other.
setup: ## Make .venv, install everything and compile what changed
	@$(MAKE) --no-print-directory -j 2 .venv/.installed .venv/.compiled
# Bytecode, also where the environment forbids to write it in passing: a start without takes twice as
# long.
	@$(BIN)/python -m compileall -q src

demo: setup ## See it work
	$(BIN)/penstock demo

test: setup ## Run the quick tests: every promise, in minutes
	$(BIN)/pytest -n 2 $(ARGS)

test-all: setup ## Run the rest: every pair with the real server, every Spark format and job
	$(BIN)/pytest -n 2 -m "exhaustive and not soak" $(ARGS)

lint: setup ## Check style, types and layers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/cython-lint src
	$(BIN)/mypy --strict
	$(BIN)/lint-imports --no-logo

layers: setup ## Write the table of layers where people and tools read it
	$(BIN)/python -m tools.layers

bench: setup ## Measure
	$(BIN)/python -m benchmarks.run $(ARGS)

soak: setup ## Run the long tests, with new random examples
	$(BIN)/pytest -m soak --timeout=0 --hypothesis-profile=soak $(ARGS)

lock: setup ## Take the newest versions of what is installed into requirements.lock
	$(UV) pip compile --upgrade --universal --python-version 3.11 --extra dev \
	    --custom-compile-command "make lock" pyproject.toml -o requirements.lock

clean: ## Remove all that these commands made, .venv included
	rm -rf .venv build dist src/*.egg-info .pytest_cache .hypothesis .mypy_cache .ruff_cache
	rm -rf .import_linter_cache benchmarks/results/local demo-data tests/interop/node/node_modules
	find src -name '*.so' -delete
	find src tests tools -name __pycache__ -type d -prune -exec rm -rf {} +

# The stamps say when a step was last done; they live in .venv, so that without it all is redone.

.venv/.made:
	@tools/check_prerequisites.sh "$(PYTHON)"
	@echo "Making .venv with $(PYTHON)"
	@"$(PYTHON)" -m venv .venv
	@touch $@

.venv/.compiler: requirements.lock | .venv/.made
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c requirements.lock uv setuptools Cython
	@touch $@

.venv/.installed: pyproject.toml requirements.lock | .venv/.compiler
	@echo "Installing $$(grep -c == requirements.lock) packages; Spark is the large one, 400 MB"
	@$(UV) pip install --python $(BIN)/python --no-deps -r requirements.lock
	@PENSTOCK_COMPILE=0 $(UV) pip install --python $(BIN)/python --no-deps --no-build-isolation -e .
	@cd .venv/lib/python*/site-packages && \
	    ../../../bin/python -m compileall -q msgspec uvloop typing_extensions.py
	@touch $@

.venv/.compiled: setup.py $(COMPILED_SOURCES) | .venv/.compiler
	@echo "Compiling what changed of $(words $(filter %.pyx,$(COMPILED_SOURCES))) modules"
	@$(BIN)/python setup.py --quiet build_ext --inplace
	@touch $@
