# Needs git, make and Python >= 3.11; everything else is put into .venv by `make setup`.
.DEFAULT_GOAL := help
.PHONY: help setup demo test lint bench reproduce matrix docs lock clean

VENV := .venv
BIN := $(VENV)/bin
SOURCES := src tests scripts

# Hundreds of short Python processes: where bytecode is not kept, each compiles pandas, PySpark and Floodway again.
unexport PYTHONDONTWRITEBYTECODE

# The first Python on the PATH that runs and is new enough; `make PYTHON=/some/python setup` names another.
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11 python3.14 python; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 && { echo $$p; break; }; done)

help: ## List the targets
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## /\1|/' | \
		while IFS='|' read -r name text; do printf '  make %-10s %s\n' "$$name" "$$text"; done

setup: ## Make .venv with the locked versions, and find or obtain Java >= 17
	@test -n "$(PYTHON)" || { echo "Floodway needs Python >= 3.11 and found none on the PATH: install python3.11 or newer, or run 'make PYTHON=/path/to/python setup'." >&2; exit 1; }
	@$(PYTHON) scripts/setup.py

demo: setup ## Three minutes of overload, without and with Floodway, side by side
	$(BIN)/floodway demo

test: setup ## All checks: lint, types, import direction, tests (ARGS="-k plan" runs these tests alone)
	$(BIN)/python scripts/run_tests.py $(ARGS)

lint: setup ## Formatting, style, strict types, import direction and dead code
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/ruff format --check $(SOURCES)
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python scripts/check_dead_code.py

bench: setup ## Measure against the goals and the alternatives
	$(BIN)/floodway bench

reproduce: setup ## The papers' tables and figures, each beside what is measured here
	$(BIN)/floodway reproduce

matrix: setup ## The one line on Spark 3.5 to 4.3, Classic and Connect (ARGS="3.5 --connect" runs these alone)
	$(BIN)/python -m scripts.matrix $(ARGS)

docs: setup ## The documentation as a site in build/docs, with search
	$(BIN)/mkdocs build --strict
	@echo "Open build/docs/index.html. Its search needs a server: $(BIN)/python -m http.server -d build/docs 8000"

lock: setup ## Resolve the newest allowed versions into the lock files (ARGS="-P numpy" moves one only)
	$(BIN)/python scripts/lock.py $(ARGS)

clean: ## Remove .venv, caches and build output (the fetched Kafka in .cache stays)
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis spark-warehouse
	find src tests scripts -name __pycache__ -type d -prune -exec rm -rf {} +
