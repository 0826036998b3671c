# Each target makes what it needs: `make demo` and `make test` work on a machine with Python 3.11+ only.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test quick nightly lint types check docs notebooks mutants machine-mutants fuzz paper data bench clean

demo: $(VENV)/.core
	@rm -rf demo && mkdir demo
	$(BIN)/repsynth demo -o demo

PYTEST := $(BIN)/pytest -n 2 --dist worksteal

# Before a commit: all tests without a special resource, all seeded faults, and one smoke test of each resource.
RESOURCES := cluster or server or browser or train or attack or notebooks or data or nightly
test: $(VENV)/.dev $(VENV)/.axe
	$(PYTEST) -r fE -m "smoke or not ($(RESOURCES))"

# While you work: no whole runs.
quick: $(VENV)/.dev
	$(PYTEST) -r fE -m "not (slow or $(RESOURCES))"

# Everything. Lists the tests that take more than 5 s of CPU time, and states the line coverage of the package.
nightly: $(VENV)/.dev $(VENV)/.axe
	$(PYTEST) --cov=repsynth --cov-report= --cpu-above 5
	@echo "Lines of repsynth that the tests run: $$($(BIN)/coverage report --format=total) %"

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.dev
	$(BIN)/mypy

check: test lint types

# The site, in the folder site: open site/index.html. Dead links are errors; nothing is fetched, then or when it is read.
docs: $(VENV)/.docs
	@rm -rf site
	$(BIN)/sphinx-build --quiet --fresh-env --fail-on-warning --keep-going --doctree-dir $(VENV)/doctrees docs site
	$(BIN)/python docs/_site/check.py site

# Run the notebooks again and keep what they print, after a change that the tests say made them stale.
notebooks: $(VENV)/.dev
	$(BIN)/python docs/_site/notebooks.py docs/notebooks/*.ipynb

# Which seeded fault is caught by which check.
mutants: $(VENV)/.dev
	@cd tests && ../$(BIN)/python test_mutants.py && ../$(BIN)/python test_faults.py

# Which changes that a machine makes in the modules of privacy, mechanism and scoring no quick test notices.
NUMBER ?= 230
machine-mutants: $(VENV)/.dev
	@cd tests && ../$(BIN)/python machine_mutants.py $(NUMBER)

# Coverage-guided fuzzing of everything that reads a stranger's file, a minute each by default; then the property
# tests on examples that the suite does not draw.
SECONDS ?= 60
fuzz: $(VENV)/.dev
	$(BIN)/pip install --quiet --disable-pip-version-check '.[fuzz]'
	for target in schema plan csv parquet release ledger; do \
	  $(BIN)/python fuzz/fuzz.py $$target -max_total_time=$(SECONDS) -rss_limit_mb=2048 -timeout=20 || exit 1; done
	$(BIN)/pytest -n 2 -m hypothesis --hypothesis-profile=other-examples

# The paper's experiments: half a minute with QUICK=1. All of them need DATA, the folder that `make data` fills.
paper: $(VENV)/.studies
	$(BIN)/python -m studies.paper $(if $(QUICK),--quick) $(if $(DATA),--data-dir $(DATA)) -o paper-results

# Download adult.csv and german_credit.csv: make data DATA=folder
data: $(VENV)/.core
	$(BIN)/python -m studies.download $(DATA)

# make bench DATA=folder
bench: $(VENV)/.studies
	$(BIN)/python -m studies.benchmarks.protection --data-dir $(DATA)
	$(BIN)/python -m studies.benchmarks.speed --data-dir $(DATA)
	$(BIN)/python -m studies.benchmarks.noise

$(VENV)/.core: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --editable .
	@touch $@

$(VENV)/.dev: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[test,lint]'
	@touch $@ $(VENV)/.core

$(VENV)/.studies: $(VENV)/.core
	$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[studies]'
	@touch $@

$(VENV)/.docs: $(VENV)/.dev
	$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[docs]'
	@touch $@

# Tests that need it are skipped where there is no npm.
$(VENV)/.axe: $(VENV)/.dev
	@if command -v npm >/dev/null && npm install --prefix $(VENV) --no-save --silent axe-core@4.14.0; then touch $@; \
	else echo "axe-core was not installed: no test of accessibility"; fi

clean:
	rm -rf $(VENV) demo site paper-results
