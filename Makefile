# Everything a newcomer or a contributor types; `make help` lists it.

PYTHON ?= python3
ROUNDS ?= 60
MUTANTS ?= 300
CONFIG ?= sample_configs/first_message.xml
EXTRAS ?= sql,oauth,otel
BIN    := .venv/bin

# Made when the server is installed, and when everything is; .venv goes with what is in it.
SERVER     := .venv/.server
EVERYTHING := .venv/.everything
# Of what setup.py compiles, the modules that amperage/compiled_modules.py lists are Python.
BUILT_FROM := pyproject.toml setup.py config_schema/version.py \
	$(shell find amperage pipeline server -name '*.pyx' -o -name '*.pxd' 2>/dev/null) \
	$(wildcard amperage/compiled_modules.py $(patsubst %,%.py,$(subst .,/,\
	$(shell sed -n 's/^    "\([a-z_.]*\)",$$/\1/p' amperage/compiled_modules.py 2>/dev/null))))
PIP        := $(BIN)/pip install --disable-pip-version-check --editable

NEW_ENOUGH := import sys; sys.exit(sys.version_info < (3, 11))

.PHONY: run server install check quicktests test alltests test-times test-long test-mutants lint bench docs pages client packages help clean

## run: run a configuration (CONFIG=path/to/config.xml; a small sample without it)
run: $(SERVER)
	@! grep -Eqs '<Protocol>(postgresql|flight-sql)<' $(CONFIG) || $(BIN)/python -c 'import duckdb, grpc, sqlglot' \
		2>/dev/null || $(PIP) '.[sql]' --quiet
	$(BIN)/ampServer $(CONFIG)

## server: install what runs a server into .venv: no Spark, no tools of contributors (400 MB)
server: $(SERVER)

## install: install everything into .venv: also Spark with Java, and what tests need (1.3 GB)
install: $(EVERYTHING)

## check: run the checks of form, layers and types, and the tests that start no processes
check: install
	@$(MAKE) --no-print-directory -j2 lint quicktests

quicktests: install
	env -u PYTHONDONTWRITEBYTECODE $(BIN)/pytest -n auto -m 'not process'

## test: run all checks and all tests
test: install
	@# Side by side: checking types takes a minute of one core.
	@$(MAKE) --no-print-directory -j2 lint alltests

alltests: install
	@# Hundreds of processes are started: each would compile all modules if none kept the bytecode.
	env -u PYTHONDONTWRITEBYTECODE $(BIN)/pytest -n auto

## test-times: run all tests, and tell where their time goes
test-times: install
	env -u PYTHONDONTWRITEBYTECODE $(BIN)/pytest -n auto --times

## test-long: run what is left to chance for ROUNDS=60 rounds, from SEED=n on; goes on if interrupted
test-long: install
	$(BIN)/python scripts/run_long_tests.py --rounds $(ROUNDS) $(if $(SEED),--seed $(SEED))

## test-mutants: mutation testing with MUTANTS=300 mutants, selected by SEED=1; resumes if interrupted
test-mutants: install
	@$(BIN)/python -c 'import cosmic_ray' 2>/dev/null || $(PIP) '.[mutants]' --quiet
	$(BIN)/python scripts/run_mutants.py --mutants $(MUTANTS) $(if $(SEED),--seed $(SEED))

## lint: run the checks of form, layers and types
lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-logo --no-cache
	$(BIN)/mypy

## bench: measure
bench: install
	$(BIN)/python -m benchmarks

## docs: make the site of the pages, in site/, after writing those again that are made from the code
docs: pages
	@$(BIN)/python -c 'import furo, myst_parser' 2>/dev/null || $(PIP) '.[docs]' --quiet
	$(BIN)/sphinx-build --quiet --fail-on-warning --keep-going \
		--conf-dir scripts/site --doctree-dir build/site . site
	@echo 'The site is in $(CURDIR)/site: open index.html.'

## pages: write the pages again that are made from the code
pages: $(SERVER)
	$(BIN)/python -m config_schema.reference_page docs/configuration.md man/amps-config.5
	$(BIN)/python -m config_schema.editors schemas
	$(BIN)/python -m server.log.reference_page docs/messages.md
	$(BIN)/python -m server.expressions.functions.reference_page docs/expressions.md
	$(BIN)/python -m actions.reference_page docs/actions.md
	$(BIN)/python scripts/make_blocking_client.py
	$(BIN)/python scripts/make_client_api.py
	$(BIN)/python scripts/make_module_index.py
	$(BIN)/python scripts/make_completions.py
	$(BIN)/python scripts/make_notebook.py

## client: build the wheel of the client alone in dist/: pure Python, for machines without a compiler
client:
	$(PYTHON) -m pip wheel --disable-pip-version-check --no-deps --wheel-dir dist ./packaging/client

## packages: build sdist, wheel, Debian package, RPM (where there is rpmbuild) and SBOM in dist/
packages: export SOURCE_DATE_EPOCH ?= $(shell git log -1 --format=%ct 2>/dev/null || date +%s)
packages:
	$(PYTHON) -m venv --clear build/packages
	build/packages/bin/pip install --quiet --disable-pip-version-check build
	build/packages/bin/python -m build --outdir dist .
	build/packages/bin/pip install --quiet --disable-pip-version-check \
		"$$(ls dist/amperage-*.whl | tail -n 1)[$(EXTRAS)]" 'cyclonedx-bom>=7'
	build/packages/bin/python scripts/make_packages.py dist

## clean: remove .venv and whatever was built
clean:
	rm -rf .venv build dist site *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find amperage pipeline server -name '*.so' -delete -o -name '*.c' -delete -o -name '*.digest' -delete

## help: print this list
help:
	@echo 'make TARGET [PYTHON=python3.12]    the Python to make .venv with, 3.11 or newer'
	@echo
	@sed -n 's/^## \([a-z-]*\): /  \1\t/p' $(MAKEFILE_LIST) | expand -t 13

$(SERVER): $(BUILT_FROM)
	@$(make_venv)
	@echo 'Installing the server into .venv: about 400 MB, and a minute or two of compiling ...'
	@$(PIP) .
	@$(link_manual)
	@touch $@

$(EVERYTHING): $(BUILT_FROM)
	@$(make_venv)
	@echo 'Installing everything into .venv: about 1.3 GB, and a minute or two of compiling ...'
	@$(PIP) '.[dev]'
	@$(link_manual)
	@touch $(SERVER) $@

# `man ampServer` works with .venv/bin in PATH; pip leaves the pages of an editable installation out.
define link_manual
mkdir -p .venv/share/man/man1 .venv/share/man/man5 && \
ln -sf '$(CURDIR)'/man/*.1 .venv/share/man/man1 && \
ln -sf '$(CURDIR)'/man/*.5 .venv/share/man/man5
endef

# Keeps a .venv that is fit, and makes one anew that is not: of an older Python, or half made.
define make_venv
if ! $(BIN)/python -c 'import pip; $(NEW_ENOUGH)' 2>/dev/null; then \
	if ! $(PYTHON) -c '$(NEW_ENOUGH)' 2>/dev/null; then \
		found=$$({ $(PYTHON) --version || echo 'not there'; } 2>&1 | tail -n 1); \
		echo "Amperage needs Python 3.11 or newer, and $(PYTHON) is $$found." >&2; \
		echo 'Name another: make $(or $(MAKECMDGOALS),run) PYTHON=python3.12' >&2; \
		exit 1; \
	fi; \
	$(PYTHON) scripts/build_needs.py && $(PYTHON) -m venv --clear .venv; \
fi
endef
