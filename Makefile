# Two commands do everything on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: setup setup-all demo test lint kill-test docs clean

setup: .venv/.setup
setup-all: .venv/.setup-all

.venv/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Undrift needs Python 3.11 or newer; set PYTHON=…"; exit 1; }
	@$(PYTHON) -m venv .venv || { echo "cannot make a virtual environment; on Debian: apt-get install python3-venv"; exit 1; }

.venv/.setup: .venv/bin/python pyproject.toml constraints.txt
	@echo "installing Undrift into .venv (once; about two minutes)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

.venv/.setup-all: .venv/.setup
	@echo "installing all extras into .venv"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,tables,ray,flower,hf,track]'
	@touch $@

demo: setup
	@$(BIN)/undrift demo

test: setup
	@$(BIN)/python -m pytest --numprocesses auto $(ARGS)
	@echo "left out here, run by .ci/run: tests that need real data, extras, a browser, Ray or Flower"

lint: setup
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy

kill-test: setup
	@$(BIN)/python tests/resume/kills.py --kills 20

docs: setup
	@$(BIN)/python docs/make_api.py

clean:
	rm -rf .venv runs
