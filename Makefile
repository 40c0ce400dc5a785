# `make demo` and `make test` each do all set-up themselves; `make help` lists the rest.
PYTHON ?= python3
VENV ?= .venv
CONSTRAINTS ?= constraints.txt
# Everything but gp, whose torch is larger than all the rest; the tests that need it are skipped without.
EXTRAS ?= equinox,flax,haiku,keras,studies
DEMO ?= .demo
WORKERS ?= 2
# Of each search of `make studies`.
BUDGET ?= 2m
# What test-newest runs, and with which Python: by default the one that .ci/find-python finds.
NEWEST_TESTS ?= tests/conformance
NEWEST_PYTHON ?=
NEWEST_EXTRAS ?= equinox,flax,haiku,keras

BIN := $(VENV)/bin
NEWEST := .venv-newest/bin
PIP_INSTALL := -m pip install --quiet --disable-pip-version-check
STAMP := $(VENV)/.installed
DEMO_DATABASE := sqlite:///$(DEMO)/precision.db

.DEFAULT_GOAL := help
.PHONY: help install data demo test test-minimum test-newest coverage check format bench studies clean

help: ## list the commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-12s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

install: $(STAMP) ## create .venv and install everything into it

# Old pips know neither dependency groups nor some wheels, so pip itself comes first.
$(STAMP): pyproject.toml $(CONSTRAINTS)
	@$(PYTHON) -c 'import sys; sys.exit(None if sys.version_info >= (3, 11) else \
	    "Python 3.11 or newer is needed and $(PYTHON) is " + sys.version.split()[0] + ": make PYTHON=python3.12")'
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv $(VENV)
	$(BIN)/python $(PIP_INSTALL) --upgrade 'pip>=25.1'
	$(BIN)/python $(PIP_INSTALL) -c $(CONSTRAINTS) -e '.[$(EXTRAS)]' --group dev
	@touch $@

data: $(STAMP) ## fetch the data of the ready studies (without a network: what the machine has)
	@$(BIN)/python -m studies.fetch || echo 'data: not everything could be fetched; the tests that need it are skipped and say so'

demo: $(STAMP) ## a small search on scikit-learn's digits: a front, and its smallest good policy, in .demo/
	@rm -rf $(DEMO) && mkdir -p $(DEMO)
	$(BIN)/tuner search studies.digits_mlp --trials 12 --budget 30s --max-drop 1% --storage $(DEMO_DATABASE)
	$(BIN)/tuner front digits_mlp --storage $(DEMO_DATABASE)
	$(BIN)/tuner export digits_mlp --max-drop 1% --minimize memory --storage $(DEMO_DATABASE) -o $(DEMO)/policy.json

test: $(STAMP) data ## all tests that need no accelerator
	$(BIN)/pytest -n $(WORKERS) -m 'not gpu'

test-minimum: ## the same with the oldest dependencies that pyproject.toml allows, in .venv-minimum
	@$(MAKE) --no-print-directory test VENV=.venv-minimum CONSTRAINTS=constraints-minimum.txt

test-newest: .venv-newest/.installed ## the conformance suite with Python 3.13 and the newest jax, in .venv-newest
	@$(NEWEST)/python -c 'import jax, sys; print("Python", sys.version.split()[0], "and jax", jax.__version__)'
	$(NEWEST)/pytest -n $(WORKERS) -m 'not gpu' $(NEWEST_TESTS)

# No constraints: pip takes the newest of everything. The model libraries may lag behind the newest jax, and then stay out.
.venv-newest/.installed: pyproject.toml
	@$(NEWEST)/python -m pip --version >/dev/null 2>&1 || \
	    { python=$(or $(NEWEST_PYTHON),$$(.ci/find-python 3.13)) && "$$python" -m venv .venv-newest; }
	$(NEWEST)/python $(PIP_INSTALL) --upgrade 'pip>=25.1'
	$(NEWEST)/python $(PIP_INSTALL) --upgrade -e . --group test
	@$(NEWEST)/python $(PIP_INSTALL) --upgrade -e '.[$(NEWEST_EXTRAS)]' || echo 'test-newest: goes on without $(NEWEST_EXTRAS)'
	@touch $@

coverage: $(STAMP) data ## what the tests reach (without what subprocesses run); a report, not a gate
	$(BIN)/coverage run -m pytest -m 'not gpu'
	$(BIN)/coverage report

check: $(STAMP) ## formatter, linter, strict types, spelling: what CI demands before the tests
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy
	$(BIN)/codespell

format: $(STAMP) ## format, and mend what the linter can mend
	$(BIN)/ruff format
	$(BIN)/ruff check --fix

bench: $(STAMP) data ## the numbers of the README, measured here
	$(BIN)/python $(PIP_INSTALL) -c $(CONSTRAINTS) --group bench
	$(BIN)/python -m benchmarks
	$(BIN)/python -m benchmarks.models
	$(BIN)/python -m benchmarks.kernels

studies: $(STAMP) data ## a short search on every ready study, and the table in studies/README.md (about an hour; BUDGET=5m)
	$(BIN)/python -m benchmarks.studies --budget $(BUDGET) --write studies/README.md

clean: ## remove everything that make and the tools built, .venv included
	rm -rf $(VENV) .venv-minimum .venv-newest $(DEMO) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage
