# Two commands do everything on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: setup setup-all demo test lint kill-test soak api formats docs dist clean

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
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,docs,tables,ray,flower,hf,track,wandb,figures,privacy,peft,live]'
	@touch $@ .venv/.setup-docs

.venv/.setup-docs: .venv/.setup
	@echo "installing what builds the docs into .venv"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,docs]'
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

# Long random tests. Each script prints its counts and exits with 1 after a failure.
SOAKS := tests/fuzz/soak.py tests/resume/mutations.py
soak: setup
	@for script in $(SOAKS); do echo "=== $$script"; $(BIN)/python $$script || exit 1; done

api: setup
	@$(BIN)/python docs/make_api.py

formats: setup
	@$(BIN)/python docs/make_formats.py

# Warnings are errors; nothing is fetched. Every page is read anew, because pages depend on the code.
docs: .venv/.setup-docs
	@$(BIN)/python docs/make_api.py
	@$(BIN)/python docs/make_formats.py
	@$(BIN)/python -m sphinx -E -W --keep-going -q -b html -d docs/_build/doctrees docs docs/_build/html
	@echo "wrote docs/_build/html/index.html: $$(find docs/_build/html -name '*.html' | wc -l) pages"

dist: setup
	@rm -rf dist build
	@$(BIN)/python -m build --quiet
	@ls -l dist | awk 'NR > 1 { print $$NF ": " int($$5 / 1024) " KB" }'

clean:
	rm -rf .venv runs build dist docs/_build docs/generated
