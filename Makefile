# Every target sets itself up: a virtual environment in $(VENV) from python3, the pinned packages of requirements.lock,
# and the project itself, editable. The stamp file keeps that from being repeated until one of its inputs changes.
#
#   make demo    the main job: on a bundled kernel where there are a GPU and ncu, else on a recorded report
#   make test    the whole test suite            make check   ruff, mypy --strict, validation of the rules
#   make gpu     builds, checks, times and profiles the bundled kernels on this GPU, by stages that a second run resumes:
#                STAGE=build|code|check|sanitize|time|profile|ladders|ceilings|ablations|results   GPU_OUT=build/gpu
#   make bench   the benchmarks
#   make lock    renews requirements.lock        make clean   removes what the targets above made

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.diagnose-installed
ARGS ?=
STAGE ?=
GPU_OUT ?= build/gpu

# The report that `make demo` reads without a GPU: the first of these that is there.
DEMO_REPORTS := \
  examples/reports/gemm-naive.ncu-rep.xz \
  $(sort $(wildcard examples/reports/gemm*.ncu-rep*)) \
  $(sort $(wildcard examples/reports/*.ncu-rep*))
DEMO_REPORT = $(firstword $(wildcard $(DEMO_REPORTS)))
DEMO_KERNEL := kernel:gemm/naive

# ncu as `diagnose` looks for it, told apart from "not here" only to choose what to demonstrate.
FIND_NCU = ncu="$${DIAGNOSE_NCU:-$$(command -v ncu || ls -d /usr/local/cuda*/bin/ncu /opt/nvidia/nsight-compute/*/ncu 2>/dev/null | tail -n 1 || true)}"
HAS_GPU = command -v nvidia-smi >/dev/null 2>&1 && nvidia-smi -L 2>/dev/null | grep -q '^GPU '

.PHONY: help setup demo test check gpu bench lock clean

help:
	@sed -n 's/^#   //p' Makefile

setup: $(STAMP)

$(STAMP): pyproject.toml requirements.lock
	@command -v $(PYTHON) >/dev/null 2>&1 || { \
	  echo "error: $(PYTHON) is not on the PATH" >&2; \
	  echo "hint: install Python 3.10 or newer, or name one: make PYTHON=/path/to/python3 $(MAKECMDGOALS)" >&2; exit 2; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || { \
	  echo "error: $(PYTHON) is $$($(PYTHON) -V 2>&1), and diagnose needs Python 3.10 or newer" >&2; \
	  echo "hint: name a newer one: make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 2; }
	@if ! $(BIN)/python -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null || ! $(BIN)/python -m pip -V >/dev/null 2>&1; then \
	  echo "making $(VENV) with $$($(PYTHON) -V)"; \
	  $(PYTHON) -m venv --clear $(VENV) || { \
	    echo "error: $(PYTHON) cannot make a virtual environment (its venv or ensurepip module is missing)" >&2; \
	    echo "hint: on Debian and Ubuntu: apt-get install python3-venv" >&2; exit 2; }; \
	fi
	@echo "installing the pinned packages into $(VENV)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c requirements.lock -e '.[dev]' || { \
	  echo "error: the packages of requirements.lock could not be installed" >&2; \
	  echo "hint: see pip's message above; without a network, give pip a folder of wheels: PIP_FIND_LINKS=DIR make $(MAKECMDGOALS)" >&2; exit 2; }
	@touch $@

# A live run that measured nothing (no permission for the counters, say) has said why: the recorded report follows.
demo: $(STAMP)
	@$(FIND_NCU); \
	if $(HAS_GPU) && [ -n "$$ncu" ]; then \
	  rc=0; $(BIN)/diagnose $(DEMO_KERNEL) || rc=$$?; \
	  if [ $$rc -eq 0 ]; then exit 0; fi; \
	  echo "the live run ended with exit code $$rc (its reason is above); a recorded report instead:" >&2; \
	fi; \
	if [ -z "$(DEMO_REPORT)" ]; then \
	  echo "error: examples/reports holds no recorded report" >&2; \
	  echo "hint: git checkout -- examples" >&2; exit 2; \
	fi; \
	$(BIN)/diagnose $(DEMO_REPORT)

test: $(STAMP)
	$(BIN)/python -m pytest $(ARGS)

check: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy --strict
	$(BIN)/diagnose rules test

gpu: $(STAMP)
	@if [ "$(STAGE)" = results ]; then exec $(BIN)/python tests/gpu/stages.py --stage results --out $(GPU_OUT); fi; \
	$(FIND_NCU); \
	missing=; \
	$(HAS_GPU) || missing="$$missing an NVIDIA GPU with its driver (nvidia-smi -L names none);"; \
	[ -n "$$ncu" ] || missing="$$missing ncu (Nsight Compute; on the PATH, or DIAGNOSE_NCU=/path/to/ncu);"; \
	if [ -n "$$missing" ]; then \
	  echo "make gpu builds the bundled kernels, checks their results, profiles them and compares verdicts and gains."; \
	  echo "It needs:$$missing permission to read the GPU's counters; nvcc, or: pip install 'diagnose[cuda]' (13.0)"; \
	  echo "Nothing was run. '$(BIN)/diagnose doctor' says what is here."; \
	  exit 3; \
	fi; \
	$(BIN)/python tests/gpu/stages.py $(if $(STAGE),--stage $(STAGE)) --out $(GPU_OUT) $(ARGS)

bench: $(STAMP)
	@$(BIN)/python tests/benchmarks/bench_startup.py
	@$(BIN)/python tests/benchmarks/bench_report.py
	@$(BIN)/python tests/benchmarks/bench_rules.py
	@$(BIN)/python tests/benchmarks/bench_html.py

# --no-emit-index-url: the lock names packages and versions only, so that it serves behind any mirror.
lock: $(STAMP)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check uv
	$(BIN)/uv pip compile --quiet --universal --python-version 3.10 --upgrade --no-emit-index-url --no-header \
	  --extra dev --extra cuda --output-file requirements.lock pyproject.toml

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .benchmarks diagnose.egg-info
	find diagnose tests kernels -name __pycache__ -type d -prune -exec rm -rf {} +
