# The two commands of the README; each sets itself up from a fresh clone.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: demo test test-lowest fuzz lint types record clean

demo: $(STAMP)
	$(BIN)/diffputer demo --output demo_output

test: $(STAMP) lint types
	$(BIN)/python -m pytest -n 2 --dist loadfile src tests

# Ugly tables, a tenth as many CSV texts and damaged model files: make fuzz N=10000 JOBS=2 SEED=0
N ?= 1000
JOBS ?= 2
SEED ?= 0
fuzz: $(STAMP)
	$(BIN)/python -m tests.fuzz $(N) --seed $(SEED) --jobs $(JOBS) --output fuzz_output

# The suite with the lowest versions that pyproject.toml declares, but torch's: see tests/lowest.py.
# PYTHON=python3.12 takes another Python, TORCH=2.4.0 another torch, TESTS a part of the suite.
# Run whole with Python 3.11, TORCH=2.4.0 (some gigabytes with its CUDA packages) and no GPU: 4203 passed, 61 skipped.
TESTS ?= src tests
test-lowest:
	$(PYTHON) -m venv .venv-lowest
	$(PYTHON) tests/lowest.py $(TORCH) > .venv-lowest/lowest.txt
	.venv-lowest/bin/python -m pip install --quiet --disable-pip-version-check -r .venv-lowest/lowest.txt -e .
	.venv-lowest/bin/python -m pytest -n 2 --dist loadfile $(TESTS)

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
	rm -rf $(VENV) .venv-lowest demo_output fuzz_output .pytest_cache .mypy_cache .ruff_cache
