# make demo       create the environment and profile a sample
# make check      create the environment; formatting, lint, types and the quick tests (no child process)
# make test       make check, and the other tests that need no GPU
# make campaign   the tests that try many variations of what another test shows once
# make test-gpu   the tests marked gpu
# make bench      the benchmarks, into $(RESULTS)
# make format     rewrite the sources in the project's format
# make env        only the environment
# make clean      remove the environment and every cache
#
# PYTHON=python3.12   the interpreter the environment is made from
# TORCH=torch==2.11.0 another PyTorch; TORCH= leaves the choice to the project's own requirement
# VENV=/path          another place for the environment
# ENV=system          no environment at all: $(PYTHON) as it is, with what it has installed

PYTHON  ?= python3
TORCH   ?= torch==2.13.0
VENV    ?= .venv
ENV     ?= venv
RESULTS ?= tests/benchmarks/results
SHOWN   ?= sample_workloads/recordings/small_gpt

ifeq ($(ENV),system)
python := $(PYTHON)
ready  :=
run    := PYTHONPATH="$(CURDIR)$${PYTHONPATH:+:$$PYTHONPATH}" $(python)
else
python := $(VENV)/bin/python
ready  := $(VENV)/.ready
run    := $(python)
endif

# One more than there are cores: some tests mostly wait.
workers := $(shell $(PYTHON) -c "import os; print(min(8, os.cpu_count() + 1))")
sources := docs launchscope sample_workloads tests
pip     := $(python) -m pip install -qq --disable-pip-version-check

.PHONY: demo check test campaign test-gpu bench format env clean

env: $(ready)

$(VENV)/.ready: pyproject.toml
	@echo "==> environment in $(VENV)"
	@test -x $(python) || $(PYTHON) -m venv $(VENV)
ifneq ($(TORCH),)
	@echo "==> installing $(TORCH) (large: minutes on a slow line)"
	@$(pip) "$(TORCH)"
endif
	@echo "==> installing launchscope and its development tools"
	@$(pip) --editable ".[dev]"
	@touch $@

demo: $(ready)
	@echo "==> launchscope profile sample_workloads/small_mlp.py"
	@$(run) -m launchscope profile sample_workloads/small_mlp.py
	@$(run) -c "import sys, torch; sys.exit(not torch.cuda.is_available())" || { \
	  echo; \
	  echo "==> no GPU here, so the report of a run on an H200: launchscope report $(SHOWN)"; \
	  $(run) -m launchscope report $(SHOWN); }

check: selected := not gpu and not child and not slow and not campaign
check: workers := $(shell $(PYTHON) -c "import os; print(min(8, os.cpu_count()))")
test: selected := not gpu and not campaign
check test: $(ready)
	@echo "==> format"
	@$(run) -m ruff format --check --quiet $(sources)
	@echo "==> lint"
	@$(run) -m ruff check --quiet $(sources)
	@echo "==> types and tests"
	@errors=$$(mktemp); \
	  $(run) -m mypy --no-error-summary >"$$errors" 2>&1 & types=$$!; \
	  $(run) -m pytest -q -n $(workers) --dist worksteal -m "$(selected)"; tests=$$?; \
	  wait $$types || tests=1; cat "$$errors"; rm -f "$$errors"; exit $$tests

campaign: $(ready)
	@$(run) -m pytest -q -n $(workers) --dist worksteal -m "campaign and not gpu"

test-gpu: $(ready)
	@$(run) -m pytest -q -m gpu tests/gpu

bench: $(ready)
	@for name in startup first_verdict slowdown; do \
	  echo "==> $$name"; \
	  $(run) -m tests.benchmarks.$$name --output $(RESULTS)/$$name.json || exit; \
	done

format: $(ready)
	@$(run) -m ruff check --quiet --fix $(sources)
	@$(run) -m ruff format --quiet $(sources)

clean:
	rm -rf .venv build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find $(sources) -name __pycache__ -type d -prune -exec rm -rf {} +
