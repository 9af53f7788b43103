# Two commands: `make drill` shows the product, `make test` is what CI runs.
PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin

.PHONY: drill test lint types check sweep bench clean

$(BIN)/drill: pyproject.toml ci/constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -c ci/constraints.txt -e '.[dev]'
	touch $@

drill: $(BIN)/drill
	$(BIN)/drill run fr_hang --culprit 5

test: $(BIN)/drill
	PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -m 'not sweep' -n 2 --dist worksteal

sweep: $(BIN)/drill
	PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -m sweep --timeout 600

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

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache
