# Two commands: `make drill` shows the product, `make test` is what CI runs.
PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin

.PHONY: drill monitoring test lint types check sweep bench wheels clean

$(BIN)/drill: pyproject.toml ci/constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -c ci/constraints.txt -e '.[dev]'
	touch $@

drill: $(BIN)/drill
	$(BIN)/drill run fr_hang --culprit 5

# Prometheus and Alertmanager for the page drill and its tests; without apt they must be on PATH.
monitoring: $(BIN)/drill
	ci/install_monitoring.sh $(VENV)/monitoring

test: $(BIN)/drill
	@ci/install_monitoring.sh $(VENV)/monitoring || echo "tests that need Prometheus are skipped, or fail in CI"
	PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -m 'not sweep' -n 2 --dist worksteal

sweep: $(BIN)/drill
	PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -m sweep --timeout 600
	DRILL_ALL_SEEDS=1 $(BIN)/python -m pytest -n 2 tests/diagnose/flight/test_simulated.py

lint: $(BIN)/drill
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(BIN)/drill
	$(BIN)/mypy

check: lint types test

bench: $(BIN)/drill
	$(BIN)/python benchmarks/spine.py
	$(BIN)/python benchmarks/flight.py
	$(BIN)/python benchmarks/collect.py
	$(BIN)/python benchmarks/signals.py
	$(BIN)/python benchmarks/traces.py
	$(BIN)/python benchmarks/logs.py
	$(BIN)/python benchmarks/checklist.py --rehearse
	$(BIN)/python benchmarks/monitor.py

# For a machine without a network: make wheels PYTHON=3.12 [WITHOUT=numpy] [WHEELS=folder]
WHEELS ?= wheels
FOR = $(shell echo "$(PYTHON)" | grep -Eo '^3\.[0-9]+$$')
wheels:
	$(if $(FOR),$(MAKE) --no-print-directory $(BIN)/drill PYTHON=python3,$(MAKE) --no-print-directory $(BIN)/drill)
	$(BIN)/python ci/wheels.py $(WHEELS) $(if $(FOR),--python $(FOR)) $(addprefix --without ,$(WITHOUT))

clean:
	rm -rf $(VENV) build dist wheels .mypy_cache .ruff_cache .pytest_cache
