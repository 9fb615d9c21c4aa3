# Forge Jobs: everything a contributor runs. `make` alone prints what there is.
# Kept to what both GNU make 4 and the make 3.81 of macOS understand.

VENV := .venv
BIN := $(VENV)/bin
PY := $(BIN)/python
PIP := $(PY) -m pip --disable-pip-version-check --no-input
INSTALL := $(PIP) install --quiet --quiet --require-hashes -r

# make setup PYTHON=python3.12 chooses the interpreter; make test T="tests/core -x" narrows the run.
# Tests run in three processes, file by file, because many of them wait; SIDE_BY_SIDE=0 runs them in one.
PYTHON ?=
T ?=
SIDE_BY_SIDE ?= 3
SPREAD = -n $(SIDE_BY_SIDE) --dist loadfile --no-loadscope-reorder
# A few failed tests get a second look, alone (docs/decisions/0090); SECOND_LOOK=0 leaves it out.
SECOND_LOOK ?= 1
VERSIONS ?=
SEEDS ?= 100
SEED ?=
ARGS ?=

.DEFAULT_GOAL := help
.PHONY: help setup demo docs release test matrix check cover bench storm sim fmt lock clean

help: ## Show this list
	@echo "Forge Jobs: durable background jobs for Python."
	@echo
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-8s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

setup: $(VENV)/.package $(VENV)/.dev $(VENV)/.pages $(VENV)/.pooler $(VENV)/.servers ## Create .venv and install the package with its test tools
	@echo "Ready: $(BIN)/forge and the test tools are installed."

demo: $(VENV)/.package $(VENV)/.web $(VENV)/.pages ## Workers and sample jobs on a SQLite file, live in the terminal
	@$(BIN)/forge demo $(ARGS)

docs: $(VENV)/.package $(VENV)/.dev $(VENV)/.docs $(VENV)/.pages ## Build the documentation as a site in build/docs
	@$(PY) -m scripts.docs_site.reference
	@$(PY) -m scripts.docs_site $(ARGS)

release: $(VENV)/.package $(VENV)/.dev $(VENV)/.release $(VENV)/.pages ## Wheel, source archive, bill of materials and checksums in dist
	@$(PY) -m scripts.release $(ARGS)

test: setup $(VENV)/.docs $(VENV)/.release $(VENV)/.browser $(VENV)/.django check ## Check, then run the whole test suite (T="tests/core -x" narrows it)
	@echo "Running the tests ..."
	@$(PY) $(if $(filter 0,$(SECOND_LOOK)),-m pytest,scripts/run_tests.py) $(SPREAD) $(T)

matrix: setup ## The tests on Postgres 13 to 18, Python 3.11 to 3.13, Django 5.2 to 6.1 (VERSIONS="13 3.12 django")
	@$(PY) -m scripts.matrix $(VERSIONS) -- $(SPREAD)

check: $(VENV)/.package $(VENV)/.dev ## Lint, format, types, import rules and sizes
	@echo "Checking lint rules and format (ruff) ..."
	@$(BIN)/ruff check --quiet .
	@$(BIN)/ruff format --quiet --check . || { echo "Some files are not formatted: run make fmt." >&2; exit 1; }
	@echo "Checking types (pyright, strict) ..."
	@$(BIN)/pyright
	@echo "Checking who imports whom (import-linter) ..."
	@$(BIN)/lint-imports --no-logo
	@echo "Checking sizes and names ..."
	@$(PY) scripts/check_shape.py

cover: setup ## Branch coverage of the suite without browser and processes (T="tests/core" narrows it)
	@rm -f .coverage .coverage.*
	@$(PY) -m coverage run -m pytest -q -p no:cacheprovider $(if $(T),$(T),-m "not processes and not slow" --ignore tests/web/browser)
	@$(PY) -m coverage combine -q
	@$(PY) -m coverage report

bench: $(VENV)/.package $(VENV)/.dev $(VENV)/.bench $(VENV)/.bench-django ## Measure against the targets, with peers in the same run
	@$(PY) -m benchmarks $(ARGS)

storm: $(VENV)/.package $(VENV)/.dev ## Run the storms: kill workers, restart servers, check that no job is lost
	@$(PY) -m rigs.storms $(ARGS)

sim: $(VENV)/.package $(VENV)/.dev ## Simulate a faulty cluster (SEEDS=100, or SEED=7 to replay one)
	@$(PY) -m rigs.simulation $(if $(SEED),--seed $(SEED),--seeds $(SEEDS)) $(ARGS)

fmt: $(VENV)/.dev ## Format the code and fix what ruff can fix
	@$(BIN)/ruff check --quiet --fix . || true
	@$(BIN)/ruff format .

lock: ## Compile requirements/*.in into hashed pins (needs uv)
	@scripts/lock.sh $(ARGS)

clean: ## Remove .venv, caches and build output
	rm -rf $(VENV) dist build .pytest_cache .ruff_cache .import_linter_cache .hypothesis .coverage .coverage.*
	find src tests benchmarks examples scripts -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

# Each stamp stands for one finished step, so that a second run has nothing to do.

$(VENV)/.made: scripts/find-python.sh
	@python=$$(PYTHON="$(PYTHON)" scripts/find-python.sh) && \
	echo "Creating the virtual environment in $(VENV) with $$($$python --version) ..." && \
	$$python -m venv $(VENV)
	@touch $@

$(VENV)/.base: $(VENV)/.made requirements/base.txt requirements/build.txt
	@echo "Installing what Forge Jobs needs to run (requirements/base.txt) ..."
	@$(INSTALL) requirements/base.txt -r requirements/build.txt
	@touch $@

$(VENV)/.package: $(VENV)/.base pyproject.toml
	@echo "Installing the package itself, linked to this folder ..."
	@$(PIP) install --quiet --quiet --no-deps --no-build-isolation -e .
	@touch $@

$(VENV)/.web: $(VENV)/.made requirements/web.txt
	@echo "Installing what Mission Control needs (requirements/web.txt) ..."
	@$(INSTALL) requirements/web.txt
	@touch $@

$(VENV)/.pages: $(VENV)/.made package.json package-lock.json scripts/web_assets.py
	@echo "Fetching the scripts of Mission Control's pages (package-lock.json) ..."
	@$(PY) scripts/web_assets.py
	@touch $@

$(VENV)/.dev: $(VENV)/.made requirements/dev.txt
	@echo "Installing the test tools (requirements/dev.txt, about 100 MB the first time) ..."
	@$(INSTALL) requirements/dev.txt
	@touch $@

$(VENV)/.docs: $(VENV)/.made requirements/docs.txt
	@echo "Installing the generator of the documentation (requirements/docs.txt) ..."
	@$(INSTALL) requirements/docs.txt
	@touch $@

$(VENV)/.release: $(VENV)/.made requirements/release.txt
	@echo "Installing what a release is checked with (requirements/release.txt) ..."
	@$(INSTALL) requirements/release.txt
	@touch $@

$(VENV)/.pooler: $(VENV)/.made scripts/pgbouncer.sh
	@scripts/pgbouncer.sh "$(CURDIR)/$(VENV)/pgbouncer"
	@touch $@

$(VENV)/.servers: $(VENV)/.made scripts/postgres_servers.py scripts/postgres_servers.json
	@$(PY) -m scripts.postgres_servers refused oldest
	@touch $@

$(VENV)/.bench-django: $(VENV)/.base requirements/bench-django.txt scripts/django_environments.py
	@echo "Installing the newest Django and the backends to measure against (requirements/bench-django.txt) ..."
	@$(PY) -m scripts.django_environments bench
	@touch $@

$(VENV)/.django: $(VENV)/.base requirements/django61.txt scripts/django_environments.py
	@echo "Installing the newest Django for its tests (requirements/django61.txt) ..."
	@$(PY) -m scripts.django_environments
	@touch $@

$(VENV)/.browser: $(VENV)/.made scripts/browser.sh
	@echo "Looking for a Chromium for the browser tests ..."
	@sh scripts/browser.sh --install
	@touch $@

$(VENV)/.bench: $(VENV)/.made requirements/bench.txt
	@echo "Installing the peers to measure against (requirements/bench.txt) ..."
	@$(INSTALL) requirements/bench.txt
	@touch $@
