# make demo: see it work. make test: check it. Both need Python 3.11 or newer with venv, and nothing else.
# The first of them makes .venv; it is made anew when pyproject.toml changes. PYTHON=… chooses another interpreter.

SHELL := /bin/sh
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo test check docs prove machine simulate bench

VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
CANDIDATES := $(PYTHON) python3.14 python3.13 python3.12 python3.11 python3
USABLE := import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))

help: ## Show the targets
	@sed -n 's/^\([a-z]*\):.*## /  make \1	/p' $(firstword $(MAKEFILE_LIST))

demo: $(READY) ## Run two tickets through a control plane and a supervisor, and watch them
	@exec $(BIN)/stateous-supervisor demo

test: check ## Check everything: style, types, walls, tests
	$(BIN)/pytest -m "not prove and not machine" -n 3 --dist loadfile --no-loadscope-reorder --hypothesis-profile same --reruns 2 --reruns-delay 1

check: $(READY) ## Check what needs no running: style, types, walls
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

docs: $(READY) ## Write anew the pages that are written from tables and tests
	PYTHONPATH=tests:contract $(BIN)/python -m house.states_page
	PYTHONPATH=tests:contract $(BIN)/python -m house.requirements_page

prove: $(READY) ## Run the long counts
	$(BIN)/pytest -m prove --timeout 3600

machine: $(READY) ## Prove the services under a systemd of their own, in a virtual machine (as root, with debootstrap and qemu)
	$(BIN)/pytest -m machine -p no:randomly tests/machine

HOURS := 1000
simulate: $(READY) ## Simulate HOURS=… of an agent's life among faults, or exactly the life of one SEED=…
	@PYTHONPATH=tests:contract exec $(BIN)/python -m simulation --hours $(HOURS) \
	  $(if $(FIRST),--first $(FIRST)) $(if $(SEED),--seed $(SEED)) $(if $(BASELINE),--baseline)

bench: $(READY) ## Measure speed on this machine, beside the published package where it can be installed
	@$(BIN)/python benchmarks/peer.py
	@$(BIN)/python benchmarks/durable_peers.py
	@exec $(BIN)/python benchmarks/bench.py all

$(READY): pyproject.toml
	@for candidate in $(CANDIDATES); do \
	  if $$candidate -c '$(USABLE)' >/dev/null 2>&1; then found=$$candidate; break; fi; \
	done; \
	if [ -z "$$found" ]; then \
	  echo "No python3 of 3.11 or newer with venv and ensurepip is on the PATH; install one (on Debian and Ubuntu: apt-get install python3 python3-venv)." >&2; \
	  exit 1; \
	fi; \
	if ! $(BIN)/python -c '$(USABLE)' >/dev/null 2>&1 || ! $(BIN)/python -m pip --version >/dev/null 2>&1; then \
	  echo "Making $(VENV) with $$($$found --version)."; \
	  rm -rf $(VENV); \
	  $$found -m venv $(VENV) || exit 1; \
	fi
	@echo "Installing into $(VENV)."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[control,embedded,dev]'
	@touch $@
