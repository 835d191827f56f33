# World Protocol: set-up, tests and checks. `make` alone lists the targets.
#
# Every target makes its own virtual environment in .venv first, and does so only once: the stamp holds the
# pyproject.toml and constraints.txt that were installed, and only when these changed is anything fetched again. Then the
# modules of the product are compiled as well, as pip does with those that it installs.

VENV    := .venv
PY      := $(VENV)/bin/python
STAMP   := $(VENV)/.installed
PRODUCT := $(wildcard world projections authority host worldprotocol conformance examples)
CODE    := $(PRODUCT) $(wildcard tests bench)

# The tests start hundreds of processes, and pytest rewrites the assertions of every test module: without bytecode all
# of that is compiled again each time, which takes as long as a third of the quick tests.
unexport PYTHONDONTWRITEBYTECODE

# How many test processes run at once: three keep two cores busy, because a test process waits for child processes and
# the disk a third of the time. ARGS are further arguments for pytest (`make test ARGS="-k lease"`).
WORKERS ?= 3
ARGS    ?=

# What `make simulate` simulates: how many seeds, from which on, and how many steps of each; or one seed, SEED=4711.
SEEDS ?= 1000
FROM  ?= 0
STEPS ?= 300

# How many mutants `make mutate` draws; SEED=N draws others, and ARGS="sample --only klis" keeps to some modules.
SAMPLE ?= 400

# The Python that makes the environment: the first one found that is new enough, or PYTHON=/path/to/python.
IS_NEW_ENOUGH := import sys; sys.exit(sys.version_info < (3, 11))
PYTHON ?= $(shell for python in python3 python3.13 python3.12 python3.11 python; do \
	"$$python" -c '$(IS_NEW_ENOUGH)' >/dev/null 2>&1 && { echo "$$python"; break; }; done)

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help setup demo screenshots test test-ci test-all conformance npm-packages check format bench fuzz kill damage mutate simulate constraints clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

setup: $(STAMP) ## make .venv and install everything into it

demo: $(STAMP) ## run the worked example
	$(PY) -m examples.repository.demo

screenshots: $(STAMP) ## make the pictures of the pages in docs/screenshots, in the browser that is installed
	$(PY) -m tests.pages.screenshots

test: $(STAMP) ## run the quick tests, with the same examples every time
	$(PY) -m pytest -n $(WORKERS) --dist loadfile -m "not slow" $(ARGS)

test-ci: npm-packages ## run the slow tests in their short form, the same every time: fewer kills, seeds, cuts and cases
	$(PY) -m pytest -n $(WORKERS) --dist loadfile -m "slow" $(ARGS)

test-all: npm-packages test ## run every test in its long form, property tests with fresh examples; write docs/conformance.md
	HYPOTHESIS_PROFILE=full $(PY) -m pytest -n $(WORKERS) --dist loadfile -m "slow or hypothesis" $(ARGS)

conformance: $(STAMP) ## run the tests that docs/conformance.md does not list yet, and bring it in step
	$(PY) -m pytest --unrecorded

npm-packages: $(STAMP) ## install the programs of npm that the tests run, into .venv/npm
	@$(PY) -m tests.npm.install

check: $(STAMP) ## format, lint, types, who imports whom, documents in step
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/ruff check .
	$(VENV)/bin/mypy $(CODE)
	$(VENV)/bin/lint-imports
	$(PY) -m tests.plugins.conformance --check

format: $(STAMP) ## put the code in the house format and mend what ruff can mend
	$(VENV)/bin/ruff check --fix .
	$(VENV)/bin/ruff format .

bench: $(STAMP) ## measure every budget, each as a ratio taken in one run
	$(PY) -m bench $(ARGS)

fuzz: $(STAMP) ## run the property tests for long
	HYPOTHESIS_PROFILE=fuzz $(PY) -m pytest -n $(WORKERS) -m hypothesis $(ARGS)

kill: $(STAMP) ## kill a run several hundred times and compare what came of it
	WORLDPROTOCOL_KILLS=400 $(PY) -m pytest tests/pipeline/test_kill.py $(ARGS)

simulate: $(STAMP) ## simulate SEEDS=1000 seeds (from FROM=0) of STEPS=300 steps, or the one of SEED=N
	$(VENV)/bin/worldctl simulate --steps $(STEPS) $(if $(SEED),--seed $(SEED),--seed $(FROM) --seeds $(SEEDS)) $(ARGS)

damage: $(STAMP) ## change every byte and row of a small log, one by one
	WORLDPROTOCOL_DAMAGE=all $(PY) -m pytest -n $(WORKERS) --dist load tests/log/test_damage.py $(ARGS)

mutate: $(STAMP) ## change the code in scratch copies, SAMPLE=400 mutants drawn with SEED=1, and see whether tests notice
	$(PY) -m tests.mutation --size $(SAMPLE) --seed $(or $(SEED),1) --workers $(WORKERS) --write $(ARGS)

constraints: $(STAMP) ## pin in constraints.txt what .venv holds now
	$(PY) -m pip --disable-pip-version-check freeze --exclude-editable > constraints.new
	mv constraints.new constraints.txt
	cat pyproject.toml constraints.txt > $(STAMP)

clean: ## remove .venv and everything that was made
	rm -rf $(VENV) .mutation build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(STAMP): pyproject.toml constraints.txt
	@if ! "$(PYTHON)" -c '$(IS_NEW_ENOUGH)' >/dev/null 2>&1; then \
		echo "World Protocol needs Python 3.11 or newer, and none was found$(if $(PYTHON), at $(PYTHON))." >&2; \
		echo "Install one, or name it: make PYTHON=/path/to/python3.11" >&2; exit 1; fi
	@test -x $(PY) && $(PY) -c '$(IS_NEW_ENOUGH)' && $(PY) -m pip --version >/dev/null 2>&1 \
		|| "$(PYTHON)" -m venv --clear $(VENV) \
		|| { echo "The environment could not be made; on Debian and Ubuntu install python3-venv." >&2; exit 1; }
	@cat pyproject.toml constraints.txt | cmp -s - $(STAMP) \
		|| $(PY) -m pip --disable-pip-version-check install --quiet -c constraints.txt -e '.[dev]'
	@$(PY) -m compileall -q -j 0 $(PRODUCT)
	@cat pyproject.toml constraints.txt > $(STAMP)
