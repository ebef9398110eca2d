# Everything a newcomer or a contributor types. `make run` and `make test` need Python 3.11 and a C compiler.

PYTHON ?= python3
CONFIG ?= sample_configs/first_message.xml
BIN    := .venv/bin
STAMP  := .venv/.installed

.PHONY: run test lint install bench docs clean

run: install
	$(BIN)/ampServer $(CONFIG)

test: install lint
	@# Hundreds of processes are started: each would compile all modules if none kept the bytecode.
	env -u PYTHONDONTWRITEBYTECODE $(BIN)/pytest -n auto

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

install: $(STAMP)

$(STAMP): pyproject.toml setup.py $(shell find server -name '*.pyx' -o -name '*.pxd')
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

bench: install
	$(BIN)/python -m benchmarks

clean:
	rm -rf .venv build *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find server -name '*.so' -delete -o -name '*.c' -delete
