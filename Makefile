# Two commands set everything up: `make demo` and `make test`. Both need Python 3.11+ only.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
WORKERS ?= 2
# The CPU build of torch is enough: name an index that carries it to spare the CUDA packages.
TORCH_INDEX ?=

.PHONY: demo test lint docs soak bench clean

demo: $(VENV)/.installed  ## the three methods side by side, a table and an HTML report
	$(BIN)/depsue demo

test: lint  ## lint, types, import layers and all tests
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(WORKERS)

lint: $(VENV)/.installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check --quiet .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

docs: $(VENV)/.installed  ## the docs site with reports of all results, in site/: open site/index.html (its search needs a web server)
	DEPSUE_REPORTS=1 NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

soak: $(VENV)/.installed  ## larger doses of the statistical tests at other seeds, and of kill -9; finished parts of the service's soak are not run again
	OMP_NUM_THREADS=1 $(BIN)/depsue-research soak --store sqlite --kills 1000 --decisions 1000000 --out soak
	OMP_NUM_THREADS=1 $(BIN)/depsue-research soak --store postgresql --kills 100 --out soak
	DEPSUE_SOAK=10 OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(WORKERS) tests/bounds tests/data tests/policies tests/ledger
	DEPSUE_KILLS=200 OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 tests/campaigns/test_killed.py
	DEPSUE_SOAK=1 DEPSUE_MALFORMED=10000 OMP_NUM_THREADS=1 $(BIN)/python -m pytest tests/check/test_malformed.py tests/campaigns/test_malformed.py

bench: $(VENV)/.installed  ## Algorithm 1 as written against ours; bounds and the service against their peers; the monitor
	$(PIP) install -c constraints.txt vw-estimators==0.2.2 vowpalwabbit==9.11.9
	$(BIN)/python benchmarks/safe_opg.py
	$(BIN)/python benchmarks/bounds.py
	$(BIN)/python benchmarks/serving.py
	$(BIN)/python benchmarks/monitor.py
	$(BIN)/python benchmarks/candidates.py

$(VENV)/.installed: pyproject.toml research/pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and \
	  "depsue needs Python 3.11 or newer, this is %s: make PYTHON=python3.11" % sys.version.split()[0])'
	$(PYTHON) -m venv $(VENV)
	$(PIP) install -c constraints.txt torch $(if $(TORCH_INDEX),--index-url $(TORCH_INDEX))
	$(PIP) install -c constraints.txt -e '.[dev]' -e research
	@touch $@

clean:
	rm -rf $(VENV) demo-report site soak .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
