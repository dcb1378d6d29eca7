# Each target sets itself up: Python 3.11 or newer, a C compiler and make are enough.
# A JDK 17 and Maven add the tests against Apache Kafka itself.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

# another interpreter: make clean, then make PYTHON=python3.13 test
PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo $$p; break; }; done)
# release, trace, asan or ubsan: see setup.py
BATCHVAL_BUILD ?= release
export BATCHVAL_BUILD
# Test processes and commands share compiled modules, also where the environment forbids to write them.
unexport PYTHONDONTWRITEBYTECODE
# Names of files in tests are UTF-8, whatever the caller's locale.
export PYTHONUTF8 := 1
SEED ?= 1
# CPU hours of make hostile-long
HOURS ?= 6
# How many processes run the tests that may share the processors: two more than there are cores,
# because many tests wait, and four at most. 0: none but the first (for a debugger). make test takes
# up to six: its tests wait for more of their time, and next to another program six get more of it.
JOBS ?= $(shell echo $$(($$(nproc) + 2)))
BRIEF_JOBS ?= $(if $(filter file,$(origin JOBS)),$(shell echo $$(($$(nproc) + 4))),$(JOBS))
# Options of the benches. --write saves the result in bench/results and writes docs/benchmarks.
BENCH ?= --write
CLAIMS_BENCH ?= --write
# to save: --write --kroxylicious FOLDER --record-validation FOLDER --kafka-proxy PROGRAM (docs/benchmarks/method.md)
PROXY_BENCH ?=
PERF_BENCH ?= --write
SPARK_BENCH ?= --gib 16 --write
PIPELINING_BENCH ?= --write
# options of pytest, for example --benchmark-histogram=build/bench/quick
BENCH_QUICK ?=
# options of tests/system/chain/kills.py; old Java producers: --old-client --records 1000000 --kills 50
KILLS ?= --records 1000000 --kills 100
# options of tools/rehearsal
REHEARSAL ?=

VENV := .venv
DEMO := .venv-demo
RELEASE := .venv-release
SITE := .venv-docs
ENV ?= $(VENV)
PY := $(ENV)/bin/python
# modules are compiled where they are first imported: all 8,000 would take 20 seconds
PIP := -m pip --quiet --disable-pip-version-check install --no-compile

PYX := $(shell find batchval -name '*.pyx')
OWN_C := batchval/core/format/crc_kernels.c batchval/core/codecs/inflate.c
SOURCES := $(PYX) $(OWN_C) $(shell find batchval -name '*.pxd' -o -name '*.h') setup.py
# a deleted extension is built again, also if the stamp is new
MISSING := $(foreach pyx,$(PYX),$(if $(wildcard $(pyx:.pyx=.*.so)),,missing))
BUILT := build/.built-$(BATCHVAL_BUILD)

.PHONY: help build docs demo demo-broker test test-ci test-full lint check coverage hostile hostile-long kills bench bench-quick bench-claims bench-proxy bench-pipelining bench-perf bench-spark bench-pages bench-compare conformance dist rehearsal wheels lock clean python missing
.DELETE_ON_ERROR:

help:
	@sed -n 's/^\([a-z][a-z-]*\):[^#]*## \(.*\)/make \1|\2/p' $(firstword $(MAKEFILE_LIST)) | \
		while IFS='|' read -r target text; do printf '%-21s %s\n' "$$target" "$$text"; done

build: $(VENV)/.packages $(BUILT)  ## builds .venv with all extras, and the extension modules in place

demo:  ## checks real and damaged segments, then runs a gate before a cluster: about two minutes
	@$(MAKE) ENV=$(DEMO) $(BUILT)
	@$(DEMO)/bin/python -m demo.run
	@$(DEMO)/bin/python -m demo.gate

demo-broker:  ## compares the CPU of a stock Kafka broker and of one with the agent, in two minutes (Java, Maven)
	@$(MAKE) ENV=$(DEMO) $(BUILT)
	@$(DEMO)/bin/python -m demo.two_brokers

# Two stages: first the tests that may share the processors, then, one after the other, those that
# measure time or memory (the marker alone). Both run, also if the first one fails.
# $(1): a condition for the marker slow, or nothing
define stages
	@failed=0; \
	$(PY) -m pytest -n $(JOBS) --maxprocesses 4 -m '$(1)not alone' || failed=1; \
	$(PY) -m pytest -n 0 -m '$(1)alone' $(ALONE) || failed=1; \
	exit $$failed
endef
# only these files: pytest would need longer to collect all
ALONE = $(shell grep -rlw --include='test_*.py' 'mark.alone' tests | sort)

test: build  ## runs tests/unit and one of each folder of tests/system: five minutes; prints what it leaves out
	$(PY) -m pytest -n $(BRIEF_JOBS) --maxprocesses 6 --brief

test-ci: build  ## runs all that are not slow, in at most 20 minutes, as .ci/run does
	$(call stages,not slow and )

test-full: build  ## runs all tests
	$(call stages)

check: lint  ## runs lint, and the tests that read the sources: stubs, public names, imports, documents
	$(PY) -m pytest -q tests/repo/contract

lint: build  ## runs ruff, cython-lint, mypy (strict), the import contract, and the check of columns
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	PATH="$(CURDIR)/$(VENV)/bin:$$PATH" cython-lint batchval  # it calls pycodestyle by name
	$(PY) -m mypy
	$(VENV)/bin/lint-imports --no-cache
	$(PY) tools/style.py
	$(PY) -m bench.pages --commits

coverage: build  ## measures the line coverage of the core's .pyx files into docs/reports; fails below its floor
	$(PY) -m tools.coverage --floor 90 --page

hostile: build  ## runs every fuzz target for 60 seconds, then bombs, sanitizers and hostile clients of a gate
	$(PY) tests/evidence/hostile/fuzz.py --seconds 60 --everything

hostile-long: build  ## runs the same targets for HOURS (6) CPU hours in all, into docs/reports/hostile-runs
	$(PY) tests/evidence/hostile/fuzz.py --cpu-hours $(HOURS) --report

kills: build  ## sends 10^6 records through 100 kills of gate and broker (Java, Maven; KILLS='--records N --kills N')
	$(PY) -m tests.system.chain.kills $(KILLS)

# No bench writes README.md: bench-pages does.
bench: build  ## measures validation and its peers into docs/benchmarks (Java, Maven; BENCH=--quick: a short look)
	$(PY) -m bench validation $(BENCH)

bench-quick: build  ## measures the rows that matter, also of other libraries, in two minutes; saves nothing (BENCH_QUICK: options of pytest)
	$(PY) -m pytest bench -q -p no:cacheprovider -m quick --benchmark-only --benchmark-sort=mean \
		--benchmark-columns=median,iqr,ops,rounds $(BENCH_QUICK)

bench-claims: build  ## measures claims and Kafka into docs/benchmarks (Java, Maven)
	$(PY) -m bench claims $(CLAIMS_BENCH)

bench-proxy: build  ## measures the gate and other proxies (PROXY_BENCH: which, and --write)
	$(PY) -m bench proxy $(PROXY_BENCH)

bench-pipelining: build  ## measures producers over a long path into docs/benchmarks (root, Java, Maven, Go)
	$(PY) -m bench pipelining $(PIPELINING_BENCH)

bench-perf: build  ## measures perf produce and consume into docs/benchmarks (Java, Maven)
	$(PY) -m bench perf-produce $(PERF_BENCH)
	$(PY) -m bench perf-consume $(PERF_BENCH)

bench-spark: build  ## measures kafka-segments and plain processes into docs/benchmarks (Java)
	$(PY) -m bench spark $(SPARK_BENCH)

docs: build $(SITE)/.packages  ## builds the documentation site into build/site, with all links and anchors checked
	$(PY) -m tools.site_metrics --markdown >build/metrics.md
	NO_MKDOCS_2_WARNING=1 $(SITE)/bin/python -m mkdocs build  # not --quiet: strict counts what is logged

bench-pages: $(VENV)/.packages  ## writes docs/benchmarks and the figures of README.md from bench/results
	$(PY) -m bench.pages

bench-compare: build  ## measures again and compares with the saved baseline
	$(PY) -m bench compare

conformance: build  ## compares the verdicts on new cases with Apache Kafka's (Java, Maven): make conformance SEED=7
	$(PY) tests/evidence/conformance/fresh.py --seed $(SEED)

dist: build  ## builds sdist and wheel, and tries them as a user does: each extra alone, no compiler, tests/unit/core (DIST=--keep)
	$(PY) -m tools.dist $(DIST)

wheels: $(RELEASE)/.packages  ## builds and tries the wheels for Linux into dist/wheels by cibuildwheel (Docker or Podman; WHEELS=--help)
	SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct) \
		$(RELEASE)/bin/python -m cibuildwheel --platform linux --output-dir dist/wheels $(WHEELS)
	$(RELEASE)/bin/python -m tools.hardening dist/wheels/*.whl

lock: $(RELEASE)/.packages  ## writes requirements/*.txt from pyproject.toml (LOCK=--upgrade: the newest versions)
	PATH="$(CURDIR)/$(RELEASE)/bin:$$PATH" $(RELEASE)/bin/python -m tools.lock $(LOCK)

rehearsal: build  ## rehearses a release: install, use and upgrade in a bare Debian tree (root, Java, Maven; REHEARSAL=--help)
	$(PY) -m tools.rehearsal $(REHEARSAL)

clean:  ## removes what was built, and the environments
	rm -rf $(VENV) $(DEMO) $(RELEASE) $(SITE) build dist .mypy_cache .ruff_cache .pytest_cache batchval.egg-info
	find batchval -name '*.so' -delete
	for pyx in $(PYX); do rm -f "$${pyx%.pyx}.c"; done

# What a bare machine may lack: one line for each.
python:
	@test -n "$(PYTHON)" || { echo 'batchval needs Python 3.11 or newer: install it, or name it with make PYTHON=…' >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || \
		{ echo "$(PYTHON) cannot make environments: apt-get install python3-venv (or your system's package of that name)" >&2; exit 1; }
	@$(PYTHON) -c 'import os, sys, sysconfig; sys.exit(not os.path.exists(sysconfig.get_paths()["include"] + "/Python.h"))' || \
		{ echo "Python.h is missing for $(PYTHON): apt-get install python3-dev (or your system's package of that name)" >&2; exit 1; }
	@set -- $${CC:-cc}; command -v "$$1" >/dev/null || \
		{ echo 'a C compiler is needed: apt-get install gcc libc6-dev (or set CC)' >&2; exit 1; }

# Exact versions, by hash, of $(2).txt. Source distributions are built with locked versions too.
define locked
	@$(MAKE) python
	@echo 'setting up $(1)'
	@test -x $(1)/bin/python || $(PYTHON) -m venv $(1)
	@$(1)/bin/python $(PIP) --require-hashes --requirement requirements/build.txt
	@$(1)/bin/python $(PIP) --require-hashes --no-build-isolation --requirement requirements/$(2).txt
endef

# Both environments see the package in this folder, so one build of the modules serves them. It is installed
# as a folder on the path (compat): type checkers do not see what setuptools' own finder would import.
define environment
	$(call locked,$(1),$(2))
	@BATCHVAL_BUILD=none $(1)/bin/python $(PIP) --no-build-isolation --no-deps \
		--config-settings editable_mode=compat --editable .
	@touch $@
endef

$(VENV)/.packages: pyproject.toml requirements/build.txt requirements/dev.txt
	$(call environment,$(VENV),dev)

$(DEMO)/.packages: pyproject.toml requirements/build.txt requirements/demo.txt
	$(call environment,$(DEMO),demo)

$(RELEASE)/.packages: requirements/build.txt requirements/release.txt requirements/wheels.txt
	$(call locked,$(RELEASE),release)
	@$(RELEASE)/bin/python $(PIP) --require-hashes --requirement requirements/wheels.txt
	@touch $@

$(SITE)/.packages: requirements/build.txt requirements/docs.txt
	$(call locked,$(SITE),docs)
	@touch $@

# setuptools does not see that flags have changed: another kind of build starts from nothing
$(BUILT): $(SOURCES) $(MISSING) | $(ENV)/.packages
	@mkdir -p build
	@echo 'building the extension modules ($(BATCHVAL_BUILD))'
	@force=; if ls build/.built-* 2>/dev/null | grep -qv -- '-$(BATCHVAL_BUILD)$$'; then force=--force; fi; \
	BATCHVAL_FORCE=$$force $(PY) setup.py --quiet build_ext --inplace $$force >build/log 2>&1 || { cat build/log >&2; exit 1; }
	@rm -f build/.built-*
	@touch $@
