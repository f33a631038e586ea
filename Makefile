# `make demo` and `make test` work on a bare clone: they make .venv and install requirements.txt.
PYTHON ?= python3
VENV ?= .venv
RUN := $(VENV)/bin/python
INSTALLED := $(VENV)/.installed

.PHONY: help setup demo test test-fast lint format toy compare mutants notebooks policy clean

help:  ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

$(INSTALLED): requirements.txt pyproject.toml
	$(PYTHON) -c 'import sys; assert (3, 11) <= sys.version_info < (3, 14), "Python 3.11 to 3.13 is needed: make PYTHON=python3.12"'
	$(PYTHON) -m venv $(VENV)
	$(RUN) -m pip install --quiet --disable-pip-version-check -r requirements.txt
	$(RUN) -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	touch $@

setup: $(INSTALLED)  ## create .venv with the exact pins

demo: setup  ## the main job: GRPO and LENS on the bundled policy, then a report
	$(RUN) -m lens_ref.train

# one thread a worker: two threads each on two cores only wait for each other
test test-fast: export OMP_NUM_THREADS = 1

test: setup  ## all tests that need no GPU
	$(RUN) -m pytest -n 2 --dist worksteal -m "not gpu"

test-fast: setup  ## the fast tests alone
	$(RUN) -m pytest -n 2 --dist worksteal -m "not gpu and not slow"

lint: setup  ## ruff, and mypy on core and methods
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .
	$(RUN) -m mypy

format: setup  ## let ruff mend what it can
	$(RUN) -m ruff check --fix .
	$(RUN) -m ruff format .

toy: setup  ## the six-option toy and its kin: table and figures
	$(RUN) -m toy

compare: setup  ## every treatment of negative groups on the same problems, short version
	$(RUN) -m toy.compare

mutants: setup  ## break the source on purpose: every mutant must be killed by its test
	$(RUN) tests/mutants.py

notebooks: setup  ## build and execute notebooks/*.py (none yet)
	@set -e; for source in $$(ls notebooks/*.py 2>/dev/null); do \
		$(VENV)/bin/jupytext --to notebook --execute $$source; done

policy: setup  ## rebuild the bundled tiny policy from its corpus
	$(RUN) -m lens_ref.tiny.pretrain --out runs/policy

clean:  ## remove .venv and caches
	rm -rf $(VENV) .pytest_cache .ruff_cache .mypy_cache .hypothesis
