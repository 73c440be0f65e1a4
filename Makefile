# The two commands of the README; each sets itself up from a fresh clone.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: demo test lint types record clean

demo: $(STAMP)
	$(BIN)/diffputer demo --output demo_output

test: $(STAMP) lint types
	$(BIN)/python -m pytest -n 2 --dist loadfile src tests

lint: $(STAMP)
	$(BIN)/ruff check src tests
	$(BIN)/ruff format --check src tests

types: $(STAMP)
	$(BIN)/mypy

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -c "import sys; sys.exit('diffputer needs Python 3.11 or newer') if sys.version_info < (3, 11) else None"
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev]"
	touch $(STAMP)

# The README's table and figure of benchmarks/results
record: $(STAMP)
	$(BIN)/python -m diffputer.benchmark.report.readme README.md docs/images/record.png
	$(BIN)/python -m diffputer.benchmark.report.results_page docs/results.md

clean:
	rm -rf $(VENV) demo_output .pytest_cache .mypy_cache .ruff_cache
