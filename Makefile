# Everything a newcomer or CI needs. Each target sets up what it uses, once; `make clean` forgets that.
#
#   make demo             watch a destructive call wait for a person   (DIR=… takes a folder of yours)
#   make test             every test                                   (ARGS='-k expired' passes on to pytest)
#   make lint             format, lint, types, layers
#   make format           write the formatting, fix what can be fixed
#   make mutants          remove the guards one at a time; each removal must turn a named test red
#   make bench            one table beside hand-written SQL and peers  (ARGS=--quick for a short one)
#   make docs             build the pages into site/
#   make clean            remove environments, caches and builds
#
# Needs python3 (3.11 or newer, with venv), make and git. PYTHON=… picks another interpreter.

PYTHON ?= python3
DIR    ?=
ARGS   ?=

VENV    := .venv
BENCH   := .venv-bench
DOCS    := .venv-docs
PEERS   := udspy holdpoint call4agents chowki timbal
INSTALL := -m pip --disable-pip-version-check install -qq

# pyright looks for a newer version of itself on every run unless it is told not to.
export PYRIGHT_PYTHON_IGNORE_WARNINGS := 1

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo test lint format mutants bench docs clean

help:
	@sed -n 's/^#   make /  make /p' Makefile

demo: $(VENV)/.ready
	@$(VENV)/bin/sayso demo $(if $(DIR),--dir '$(DIR)') $(ARGS)

test: $(VENV)/.ready-test
	$(VENV)/bin/python -m pytest $(ARGS)

lint: $(VENV)/.ready-lint
	@status=0; \
	for check in "ruff format --check ." "ruff check ." pyright "lint-imports --no-cache --no-logo"; do \
	  echo "$$check"; $(VENV)/bin/$$check || status=1; \
	done; exit $$status

format: $(VENV)/.ready-lint
	$(VENV)/bin/ruff format .
	$(VENV)/bin/ruff check --fix .

mutants: $(VENV)/.ready-test
	$(VENV)/bin/python tests/mutants/run.py $(ARGS)

bench: $(BENCH)/.ready $(BENCH)/.peers
	$(BENCH)/bin/python -m benchmarks $(ARGS)

docs: $(DOCS)/.ready
	$(DOCS)/bin/zensical build --clean --strict

clean:
	rm -rf $(VENV) $(BENCH) $(DOCS) build dist site .hypothesis .import_linter_cache .pytest_cache .ruff_cache

# Set-up. A stamp is newer than pyproject.toml once its environment holds what that asks for.

$(VENV)/.ready $(BENCH)/.ready $(DOCS)/.ready: %/.ready: pyproject.toml
	@$(PYTHON) -c 'import sys; v = sys.version_info; v >= (3, 11) or sys.exit("sayso needs Python 3.11 or newer, and $(PYTHON) is %d.%d; try make PYTHON=python3.12" % v[:2])'
	@echo "setting up $* (once)"
	@$(PYTHON) -m venv $*
	@$*/bin/python $(INSTALL) --editable '.$(if $(filter $(DOCS),$*),[docs])'
	@touch $@

$(VENV)/.ready-%: $(VENV)/.ready
	@echo "setting up $(VENV) for $* (once)"
	@$(VENV)/bin/python $(INSTALL) --editable '.[$*]'
	@touch $@

# A peer that cannot be installed is named and left out of the table; the next run tries again.
$(BENCH)/.peers: $(BENCH)/.ready
	@absent=; \
	for peer in $(PEERS); do $(BENCH)/bin/python $(INSTALL) "$$peer" || absent="$$absent $$peer"; done; \
	if [ -n "$$absent" ]; then echo "absent, not installable here:$$absent"; else touch $@; fi
