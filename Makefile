# The two commands for a fresh machine are `make demo` and `make test`; the rest is for every day.

PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --disable-pip-version-check
LOCKED := -qq --no-deps --require-hashes
# The smallest models that everything works with: a worker, the planner's sentence encoder, the names.
MODELS := smollm2-135m minilm-l6 rampart-names
# The interpreter of the box that a package or release is for, and the model files that a release holds.
BOX_PYTHON ?= $(if $(filter trixie,$(SUITE)),python3.13,python3.11)
BOX_SERIES = $(patsubst python%,%,$(BOX_PYTHON))
BUNDLED ?= smollm2-135m minilm-l6 minilm-l6-tokenizer rampart-names rampart-names-tokenizer rampart-names-config
# What `make bench` runs beside the whole appliance: tests/bench/bench_*.py.
BENCHES := encode plan train policy policy_apply policy_streams scan names declassify flow audit

.PHONY: help demo serve test test-system test-system-core check bench bench-gpu train-set lm-set lock deb bundle clean

help: ## show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 12

demo: $(VENV)/.demo ## the main job, for real: start everything, send requests, show what happened
	@$(BIN)/conductor demo

serve: $(VENV)/.demo ## start the appliance with the shipped configuration; Ctrl-C stops it
	@$(BIN)/conductor models pull $(MODELS)
	@$(BIN)/conductor up

check: $(VENV)/.dev ## lint, types and import contracts, without tests
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/conductor check --config configs
	$(BIN)/conductor check --config configs/demo

test: check ## everything that must hold: check, then all tests
	$(BIN)/conductor models pull $(MODELS)
	OMP_NUM_THREADS=1 TRITON_INTERPRET=1 $(BIN)/pytest -n 2 tests/kernels/interpreted
	OMP_NUM_THREADS=1 $(BIN)/pytest -n 3 --dist loadfile

test-system: $(VENV)/.dev ## install and run the package in a booted Debian, as root; SUITE=trixie for another
	COMPRESSION=1 systemd/package/deb.sh var/system $(BOX_PYTHON)
	tests/systemd/run.sh $(if $(SUITE),-s $(SUITE)) var/system/conductor-appliance_*_py$(BOX_SERIES)_amd64.deb

test-system-core: $(VENV)/.dev ## its core, in a guest made of this machine's own Debian; left out where that cannot be
	tests/systemd/core.sh

bench: $(VENV)/.dev ## speed and memory, printed beside a direct call
	PYTHONPATH=tests $(BIN)/python -m bench.run
	for one in $(BENCHES); do \
	  PYTHONPATH=build:appliance:tests $(BIN)/python tests/bench/bench_$$one.py || exit 1; done

bench-gpu: ## benchmarks of the kernels, on a box with a GPU: ten minutes, no network
	$(or $(wildcard $(BIN)/python),$(PYTHON)) kernels/bench/run.py

train-set: $(VENV)/.train ## install what `conductor-build train` needs, without the development tools
	$(BIN)/conductor models pull minilm-l6

lm-set: $(VENV)/.lm ## install what training a language-model conductor needs, without the development tools
	$(BIN)/conductor models pull minilm-l6 smollm2-135m

deb: $(VENV)/.dev ## build the Debian package, for Debian 12; BOX_PYTHON=python3.13 for 13
	systemd/package/deb.sh dist $(BOX_PYTHON)

bundle: $(VENV)/.dev ## build a signed release file for boxes without a network; RELEASE_KEY=FILE
	$(BIN)/conductor models pull $(MODELS)
	$(BIN)/python systemd/package/bundle.py dist --python $(BOX_PYTHON) $(addprefix --model ,$(BUNDLED)) \
	  $(if $(RELEASE_KEY),--key $(RELEASE_KEY))

lock: $(VENV)/.dev ## write the hash-pinned locks anew from pyproject.toml
	requirements/lock.sh

clean: ## remove the virtual environment and all state under var/
	rm -rf $(VENV) var

$(VENV)/bin/python:
	@echo "making $(VENV) with $(PYTHON)"
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed: make PYTHON=...")'
	@$(PYTHON) -m venv $(VENV)

$(VENV)/.demo: requirements/demo.txt requirements/build.txt pyproject.toml | $(VENV)/bin/python
	@echo "installing the locked runtime (about 80 packages)"
	@$(PIP) install $(LOCKED) -r requirements/build.txt -r requirements/demo.txt
	@$(PIP) install -qq --no-deps --no-build-isolation --editable .
	@touch $@

$(VENV)/.dev: requirements/dev.txt requirements/torch-cpu.txt requirements/triton.txt requirements/xgrammar.txt requirements/build.txt pyproject.toml | $(VENV)/bin/python
	@echo "installing the locked development set"
	@$(PIP) install $(LOCKED) -r requirements/build.txt -r requirements/dev.txt
	@$(TORCH)
	@$(BIN)/python -c 'import triton' 2>/dev/null || $(PIP) install $(LOCKED) -r requirements/triton.txt
	@$(PIP) install $(LOCKED) -r requirements/xgrammar.txt
	@$(PIP) install -qq --no-deps --no-build-isolation --editable .
	@touch $@ $(VENV)/.demo $(VENV)/.train $(VENV)/.lm

$(VENV)/.train: requirements/train.txt requirements/torch-cpu.txt requirements/build.txt pyproject.toml | $(VENV)/bin/python
	@echo "installing the locked training set"
	@$(PIP) install $(LOCKED) -r requirements/build.txt -r requirements/train.txt
	@$(TORCH)
	@$(PIP) install -qq --no-deps --no-build-isolation --editable .
	@touch $@

$(VENV)/.lm: requirements/lm.txt requirements/torch-cpu.txt requirements/build.txt pyproject.toml | $(VENV)/bin/python
	@echo "installing the locked training set for language models"
	@$(PIP) install $(LOCKED) -r requirements/build.txt -r requirements/lm.txt
	@$(TORCH)
	@$(PIP) install -qq --no-deps --no-build-isolation --editable .
	@touch $@ $(VENV)/.train

# The small build if an index that pip knows has it, else the one that everybody has.
TORCH = $(PIP) install $(LOCKED) -r requirements/torch-cpu.txt 2>/dev/null || { \
	echo "no CPU build of torch in reach: installing the one with CUDA, some gigabytes"; \
	$(PIP) install $(LOCKED) -r requirements/torch-cuda.txt; }
