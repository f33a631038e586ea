# `make demo` and `make test` work on a bare clone: they make .venv and install requirements.txt.
PYTHON ?= python3
VENV ?= .venv
RUN := $(VENV)/bin/python
INSTALLED := $(VENV)/.installed
DOCS_INSTALLED := $(VENV)/.installed-docs
AUDIT_INSTALLED := $(VENV)/.installed-audit

.PHONY: help setup demo test test-fast lint audit format toy compare mutants notebooks notebooks-check docs test-docs policy clean test-trl test-trl-matrix test-verl mutants-trl mutants-verl soak

help:  ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 18

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
	$(RUN) -m pytest -n 2 --dist worksteal -m "not gpu and not docs"

test-fast: setup  ## the fast tests alone
	$(RUN) -m pytest -n 2 --dist worksteal -m "not gpu and not docs and not slow"

lint: setup  ## ruff, dangerous calls, and mypy on core and methods
	$(RUN) -m ruff check --no-cache .
	$(RUN) -m ruff format --check .
	$(RUN) -m tests.dangers
	$(RUN) -m mypy

$(AUDIT_INSTALLED): requirements-audit.txt $(INSTALLED)
	$(RUN) -m pip install --quiet --disable-pip-version-check -c requirements.txt -r requirements-audit.txt
	touch $@

audit: $(AUDIT_INSTALLED)  ## known vulnerabilities in the pinned packages; needs a network
	$(RUN) -m tests.audit

format: setup  ## let ruff mend what it can
	$(RUN) -m ruff check --fix .
	$(RUN) -m ruff format .

toy: setup  ## the six-option toy and its kin: table and figures
	$(RUN) -m toy

compare: setup  ## every treatment of negative groups on the same problems, short version
	$(RUN) -m toy.compare

mutants: setup  ## break the source on purpose: every mutant must be killed by its test
	$(RUN) tests/mutants.py

notebooks: setup  ## build notebooks/*.ipynb from their sources and execute them
	$(RUN) notebooks/build.py

notebooks-check: setup  ## execute all notebooks afresh, compare the stored ones with their sources
	$(RUN) notebooks/build.py --check

$(DOCS_INSTALLED): docs/requirements.txt $(INSTALLED)
	$(RUN) -m pip install --quiet --disable-pip-version-check -r docs/requirements.txt
	touch $@

docs: $(DOCS_INSTALLED)  ## the site: build/docs/index.html
	rm -rf build/docs
	$(RUN) -m sphinx -q -c docs/site -d build/doctrees . build/docs
	@echo "build/docs/index.html"

test-docs: $(DOCS_INSTALLED)  ## build the site afresh and open every page in Chromium
	$(RUN) -m pytest tests/docs -m docs

# TRL pins what it needs at other versions than the GPU set: an environment of its own.
TRL_ENDS := 1.12.0 1.16.0

.venv-trl/.installed: requirements-trl.txt
	$(PYTHON) -m venv .venv-trl
	.venv-trl/bin/python -m pip install --quiet --disable-pip-version-check -r requirements-trl.txt
	touch $@

test-trl: .venv-trl/.installed  ## LENS inside TRL's own trainer, on a CPU
	OMP_NUM_THREADS=1 .venv-trl/bin/python -m pytest -m trl tests/engines

test-trl-matrix: .venv-trl/.installed  ## the same at both ends of the range of TRL releases
	@for version in $(TRL_ENDS); do echo "TRL $$version"; \
		.venv-trl/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --upgrade \
			--target build/trl/$$version trl==$$version && \
		PYTHONPATH=build/trl/$$version OMP_NUM_THREADS=1 \
			.venv-trl/bin/python -m pytest -m trl tests/engines || exit 1; \
	done

# verl, like TRL; --no-deps because the file is the whole set.
.venv-verl/.installed: requirements-verl.txt
	$(PYTHON) -m venv .venv-verl
	.venv-verl/bin/python -m pip install --quiet --disable-pip-version-check --no-deps -r requirements-verl.txt
	touch $@

test-verl: .venv-verl/.installed  ## LENS inside verl's own trainer and dispatcher, on a CPU
	OMP_NUM_THREADS=1 .venv-verl/bin/python -m pytest -W ignore -m verl tests/engines

mutants-trl: .venv-trl/.installed  ## break the TRL engine on purpose
	.venv-trl/bin/python tests/mutants.py trl:

mutants-verl: .venv-verl/.installed  ## break the verl engine on purpose
	.venv-verl/bin/python tests/mutants.py verl:

soak: setup  ## slow checks of reliability; figures go to results/reliability
	$(RUN) -m tests.soak

policy: setup  ## rebuild the bundled tiny policy from its corpus
	$(RUN) -m lens_ref.tiny.pretrain --out runs/policy

clean:  ## remove all virtual environments, the site and caches
	rm -rf $(VENV) .venv-trl .venv-verl build .pytest_cache .ruff_cache .mypy_cache .hypothesis
