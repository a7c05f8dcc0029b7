# The project's commands. The first one that needs it makes .venv and fetches the engine (see scripts/setup.py).
# Choose the interpreter with `make setup PYTHON=python3.12`; pass options on with `make demo ARGS="--keep"`.
SHELL := /bin/bash
.DEFAULT_GOAL := help
CANDIDATES := python3 python3.13 python3.12 python3.11 python3.14 python
ifeq ($(origin PYTHON),undefined)
PYTHON := $(shell for name in $(CANDIDATES); do \
	"$$name" -c 'import sys, venv; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 && { echo "$$name"; break; }; done)
endif
BIN := .venv/bin
ARGS ?=

.PHONY: help setup demo chaos bench-chain test engines fuzz check format up clean distclean

help: ## List these targets
	@echo "make <target>:"
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  \1|\2/p' $(firstword $(MAKEFILE_LIST)) | awk -F'|' '{printf "%-13s %s\n", $$1, $$2}'

setup: ## Make .venv with pinned packages and fetch CometBFT; does nothing when that is done
	@"$(PYTHON)" -c 'import sys, venv; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 || { \
		echo "No Python of version 3.11 or later with venv was found (tried: $(or $(PYTHON),$(CANDIDATES)))." >&2; \
		echo "Install one together with its venv module, or name it: make setup PYTHON=/path/to/python3.12" >&2; exit 1; }
	@"$(PYTHON)" scripts/setup.py

demo: setup ## Four nodes, four workers, one paid training job on real text; writes build/demo.json (ARGS="--keep" leaves it up)
	@$(BIN)/python -m localnet.demo $(ARGS)

chaos: setup ## Four nodes under load, broken in every way we know, about 8 minutes; writes build/chaos.json (ARGS="--seed 7")
	@$(BIN)/python -m localnet.chaos $(ARGS)

bench-chain: setup ## The chain under load beside CometBFT's Go kvstore, about 10 minutes; writes build/bench-chain.json (ARGS="--quick")
	@$(BIN)/python benchmarks/bench_chain.py $(ARGS)

# Three files at a time: most of the time of the long ones is waiting for blocks.
test: setup ## Run all tests (ARGS="tests/storage -k resume" for some of them, ARGS="-n 0" one after the other)
	@$(BIN)/pytest -n 3 --dist loadfile $(ARGS)

engines: setup ## Run the tests that start engines with CometBFT 0.38.26 and 0.40.0, building both (ARGS="-k transfers")
	@$(BIN)/python -m node.engine --install --with-abci-cli
	@OUTERSTEP_ENGINE_VERSION=0.40.0 $(BIN)/python -m node.engine --install --with-abci-cli
	@for version in 0.38.26 0.40.0; do echo "== CometBFT $$version"; \
		OUTERSTEP_ALL_ENGINES=1 OUTERSTEP_ENGINE_VERSION=$$version $(BIN)/pytest -n 3 --dist loadfile -m network $(ARGS) || exit 1; done

fuzz: setup ## Fuzz the application under coverage guidance, about 5 minutes; writes build/fuzz.json (ARGS="--seconds 600")
	@$(BIN)/python -c 'import atheris, coverage' 2>/dev/null || $(BIN)/uv pip install -q -p $(BIN)/python -c constraints.txt atheris coverage
	@$(BIN)/python -m tests.fuzz $(ARGS)

check: setup ## Format, lint, types, import rules, and that docs/protocol.md is true to the code
	@echo "== format"; $(BIN)/ruff format --check .
	@echo "== lint"; $(BIN)/ruff check .
	@echo "== types"; $(BIN)/mypy && $(BIN)/mypy --strict scripts/setup.py
	@echo "== import rules"; $(BIN)/lint-imports
	@echo "== protocol page"; $(BIN)/pytest tests/abci_app/test_protocol_page.py

format: setup ## Reformat the code and mend what ruff can mend
	@$(BIN)/ruff format . && $(BIN)/ruff check --fix .

up: setup ## A local network of four nodes that runs until Ctrl-C
	@$(BIN)/outerstep localnet up --nodes 4 $(ARGS)

clean: ## Remove what tests and the demo left (build/ and tool caches)
	rm -rf build .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache *.egg-info
	find . -name __pycache__ -not -path './.venv/*' -prune -exec rm -rf {} +

distclean: clean ## The same, and .venv
	rm -rf .venv
