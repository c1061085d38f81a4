# `make demo` and `make test` set up all that they need, in .venv, .venv-ding, .venv-mlagents, .venv-old-gymnasium and .venv-tasks.
# `make nightly` also sets up .venv-neighbours, and adds to .venv-old-gymnasium.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
SOURCES := pyproject.toml CMakeLists.txt README.md $(shell find src -type f -not -name '*.so' -not -name '*.pyi' -not -path '*/__pycache__/*')

# The wheel is built once for all environments, in a fixed folder, so that a second build compiles only what has changed.
# The build requirements of pyproject.toml are installed first, because pip's isolated builds would start from nothing.
# UNITY=OFF compiles each file on its own, in another folder: slower at first, and faster after a change of one file.
UNITY ?= ON
export SKBUILD_BUILD_DIR := build/{wheel_tag}$(if $(filter OFF,$(UNITY)),-apart)
export SKBUILD_CMAKE_DEFINE := CMAKE_UNITY_BUILD=$(UNITY)
BUILD_REQUIRES := $(shell sed -n 's/^requires = \[\(.*\)\]/\1/p' pyproject.toml | tr , ' ') cmake ninja
WHEEL := build/wheel.stamp

CLANG_FORMAT := find src tests/core -name "*.?pp" | xargs $(BIN)/clang-format

MINUTES ?= 10

# Thousands of processes import the same modules, and pytest rewrites the test modules. So bytecode is kept, even if
# PYTHONDONTWRITEBYTECODE is set.
export PYTHONDONTWRITEBYTECODE :=

# The number of tests that run at the same time. It exceeds the cores, because tests wait for processes half of the time.
JOBS   ?= 5
SLOW   := --durations=50  # prints the slowest tests
USER_TYPES := tests/test_types.py  # type checkers read all of NumPy and Gymnasium
# All tests of clusters share one cluster, which takes seconds to start, so they are a run of their own (ray-test).
PYTEST := -m pytest $(SLOW) --numprocesses $(JOBS) --dist worksteal --ignore tests/cluster --ignore $(USER_TYPES)
FACE   := -m pytest $(SLOW)  # those of one face take as long as the others meanwhile

.PHONY: help venv demo test beside-pytest check nightly pytest lint style types format core-test site-unbuilt sanitize sanitize-module soak formal formal-unchecked ding-test ding-untested ray-test ray-untested mlagents-test mlagents-untested bench \
    old-gymnasium-test old-gymnasium-untested tasks-test tasks-untested neighbours-test neighbours-untested wheels docs reference test-portable test-free-threaded free-threaded-untested test-lowest test-newest test-pythons clean

# Without Spin, `make test` reports that the models were not verified.
FORMAL := $(if $(shell command -v spin 2>/dev/null),build/formal.stamp,formal-unchecked)

# DI-engine needs NumPy 1 and an old gym, so it has an environment of its own, if this Python supports it.
DING      := .venv-ding
DING_FACE := $(if $(shell $(PYTHON) -c 'import sys; sys.version_info < (3, 13) and print(1)'),ding-test,ding-untested)
DING_PINS := tests/faces/ding_requirements.txt

# Ray has wheels for the Pythons that tests/requirements.txt names.
RAY := $(if $(shell $(PYTHON) -c 'import sys; sys.version_info < (3, 14) and print(1)'),ray-test,ray-untested)

# ML-Agents needs an even older NumPy.
MLAGENTS      := .venv-mlagents
MLAGENTS_FACE := $(if $(shell $(PYTHON) -c 'import sys; sys.version_info < (3, 12) and print(1)'),mlagents-test,mlagents-untested)
MLAGENTS_PINS := tests/faces/mlagents_requirements.txt

# Gymnasium 0.29 needs NumPy 1 too.
OLD_GYMNASIUM      := .venv-old-gymnasium
OLD_GYMNASIUM_FACE := $(if $(shell $(PYTHON) -c 'import sys; sys.version_info < (3, 13) and print(1)'),old-gymnasium-test,old-gymnasium-untested)
OLD_GYMNASIUM_PINS := tests/faces/old_gymnasium_requirements.txt

# gym-pusht needs an old pymunk, and brings OpenCV in a package that conflicts with the one of the other tests.
TASKS      := .venv-tasks
TASKS_EVAL := $(if $(shell $(PYTHON) -c 'import sys; sys.version_info < (3, 14) and print(1)'),tasks-test,tasks-untested)
TASKS_PINS := tests/training/tasks_requirements.txt

# RLlib holds Gymnasium at an older release than the other tests, and Sample Factory at 0.29. AgileRL asks for another
# tensordict than TorchRL.
NEIGHBOURS         := .venv-neighbours
NEIGHBOURS_PAGE    := $(if $(shell $(PYTHON) -c 'import sys; (3, 11) <= sys.version_info < (3, 13) and print(1)'),neighbours-test,neighbours-untested)
NEIGHBOURS_PINS    := tests/faces/neighbours_requirements.txt
NEIGHBOURS_NO_DEPS := agilerl==2.58.0
NEIGHBOURS_OF_OLD  := sample-factory==2.1.1

# The first Python without the GIL that remuda supports.
PYTHON_FREE_THREADED ?= $(shell command -v python3.14t 2>/dev/null)
FREE_THREADED := $(if $(PYTHON_FREE_THREADED),test-free-threaded,free-threaded-untested)

# The environments of the peers. They are made before the tests, some while one core compiles, because make goes on with a
# target that had to wait only after all others.
PEERS := $(patsubst %,%/test.stamp,$(if $(filter %-test,$(DING_FACE)),$(DING)) $(if $(filter %-test,$(MLAGENTS_FACE)),$(MLAGENTS)) \
    $(if $(filter %-test,$(OLD_GYMNASIUM_FACE)),$(OLD_GYMNASIUM)) $(if $(filter %-test,$(TASKS_EVAL)),$(TASKS)))

# Sphinx builds the site, and needs the Python that docs/requirements.txt names.
SITE := $(if $(shell $(PYTHON) -c 'import sys; sys.version_info >= (3, 11) and print(1)'),build/docs.stamp,site-unbuilt)

help:  ## what can be made
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

$(BIN)/python:
	@echo "making the environment $(VENV): some seconds"
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip

# If there is no C++ compiler, PyPI's zig is one.
COMPILER := $(if $(shell command -v c++ || command -v g++ || command -v clang++),,build/compiler/c++)
ifneq ($(COMPILER),)
export PATH := $(CURDIR)/build/compiler:$(PATH)
export CC := $(CURDIR)/build/compiler/cc
export CXX := $(CURDIR)/build/compiler/c++
endif

build/compiler/c++: $(BIN)/python packaging/requirements.txt
	@echo "found no C++ compiler: installing zig from PyPI, about 100 MB"
	$(BIN)/python -m pip install --quiet "$$(grep ziglang packaging/requirements.txt)"
	@mkdir -p build/compiler
	@for name in cc ar ranlib c++; do \
	    printf '#!/bin/sh\nexec "%s" -m ziglang %s "$$@"\n' "$(CURDIR)/$(BIN)/python" $$name > build/compiler/$$name && \
	    chmod +x build/compiler/$$name || exit; done

$(WHEEL): $(BIN)/python $(COMPILER) $(SOURCES)
	@echo "compiling remuda, silently: some minutes on two cores for the first time, later only what has changed"
	rm -rf build/wheel
	$(BIN)/python -m pip install --quiet $(BUILD_REQUIRES)
	$(BIN)/python -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir build/wheel .
	@touch $@

# Tests import the installed package, as a user does, never the source tree. `--force-reinstall`: the version stays the
# same from build to build, and pip would keep the older one. Later commands name the wheel again, because pip looks up
# a package's name in an index.
INSTALL_WHEEL := -m pip install --quiet --no-deps --force-reinstall build/wheel/*.whl

$(VENV)/demo.stamp: $(WHEEL)
	@echo "installing remuda and Gymnasium in $(VENV): up to a minute"
	$(BIN)/python $(INSTALL_WHEEL)
	$(BIN)/python -m pip install --quiet build/wheel/*.whl 'gymnasium[classic-control]'
	@touch $@

$(VENV)/test.stamp: $(WHEEL) tests/requirements.txt docs/requirements.txt
	$(BIN)/python $(INSTALL_WHEEL)
	$(BIN)/python -m pip install --quiet build/wheel/*.whl --requirement tests/requirements.txt --requirement docs/requirements.txt
	@touch $@

# torch is installed first, with its dependencies. Everything else is pinned and installed without dependencies.
$(DING)/peers.stamp: $(DING_PINS)
	$(PYTHON) -m venv --clear $(DING)
	$(DING)/bin/python -m pip install --quiet --constraint $(DING_PINS) torch setuptools wheel
	$(DING)/bin/python -m pip install --quiet --no-deps --no-build-isolation --requirement $(DING_PINS)
	@touch $@

$(DING)/test.stamp: $(DING)/peers.stamp $(WHEEL)
	$(DING)/bin/python $(INSTALL_WHEEL)
	@touch $@

$(MLAGENTS)/peers.stamp: $(MLAGENTS_PINS)
	$(PYTHON) -m venv --clear $(MLAGENTS)
	$(MLAGENTS)/bin/python -m pip install --quiet --constraint $(MLAGENTS_PINS) torch setuptools
	$(MLAGENTS)/bin/python -m pip install --quiet --no-deps --ignore-requires-python --requirement $(MLAGENTS_PINS)
	@touch $@

$(MLAGENTS)/test.stamp: $(MLAGENTS)/peers.stamp $(WHEEL)
	$(MLAGENTS)/bin/python $(INSTALL_WHEEL)
	@touch $@

$(OLD_GYMNASIUM)/peers.stamp: $(OLD_GYMNASIUM_PINS)
	$(PYTHON) -m venv --clear $(OLD_GYMNASIUM)
	$(OLD_GYMNASIUM)/bin/python -m pip install --quiet --requirement $(OLD_GYMNASIUM_PINS)
	@touch $@

$(OLD_GYMNASIUM)/test.stamp: $(OLD_GYMNASIUM)/peers.stamp $(WHEEL)
	$(OLD_GYMNASIUM)/bin/python $(INSTALL_WHEEL)
	@touch $@

$(TASKS)/peers.stamp: $(TASKS_PINS)
	$(PYTHON) -m venv --clear $(TASKS)
	$(TASKS)/bin/python -m pip install --quiet --requirement $(TASKS_PINS)
	@touch $@

$(TASKS)/test.stamp: $(TASKS)/peers.stamp $(WHEEL)
	$(TASKS)/bin/python $(INSTALL_WHEEL)
	@touch $@

$(NEIGHBOURS)/peers.stamp: $(NEIGHBOURS_PINS)
	$(PYTHON) -m venv --clear $(NEIGHBOURS)
	$(NEIGHBOURS)/bin/python -m pip install --quiet --requirement $(NEIGHBOURS_PINS)
	$(NEIGHBOURS)/bin/python -m pip install --quiet --no-deps $(NEIGHBOURS_NO_DEPS)
	@touch $@

$(NEIGHBOURS)/test.stamp: $(NEIGHBOURS)/peers.stamp $(WHEEL)
	$(NEIGHBOURS)/bin/python $(INSTALL_WHEEL)
	@touch $@

venv: $(VENV)/test.stamp  ## .venv, with remuda as it is now and what the tests need

demo: $(VENV)/demo.stamp  ## steps 64 CartPoles on remuda, Gymnasium and a plain loop
	$(BIN)/python -m remuda demo

# The tests run beside the other checks, of which two run at a time, the longest first: if all did, programs would wait
# for a core for minutes. Each prints its output when it is done. A watchdog ends a test that hangs (tests/conftest.py).
# If a check fails, the others still run, and then `make` fails.
CHECKS := $(DING_FACE) $(RAY) $(MLAGENTS_FACE) $(FORMAL) style build/types.stamp build/core-test.stamp $(SITE) $(OLD_GYMNASIUM_FACE) $(TASKS_EVAL) $(FREE_THREADED)
test:  ## everything that must hold: style, types, the core's own tests, its models, the site, the tests
	@$(MAKE) --no-print-directory --jobs 2 --keep-going $(VENV)/test.stamp $(PEERS)
	@$(MAKE) --no-print-directory --jobs --keep-going pytest beside-pytest

beside-pytest:
	@$(MAKE) --no-print-directory --jobs 2 --keep-going --output-sync=target $(CHECKS)

check: style types  ## what your change touches, in two minutes: style, types, and some of the tests
	$(BIN)/python packaging/check.py

nightly: sanitize soak test-portable test-lowest test-pythons  ## what takes hours: sanitizers, random faults, learning, other systems, Pythons and libraries
	REMUDA_SOAK_MINUTES=$(MINUTES) $(MAKE) --no-print-directory $(DING_FACE) $(MLAGENTS_FACE) $(NEIGHBOURS_PAGE)

pytest: $(VENV)/test.stamp
	$(BIN)/python $(PYTEST)

# These give the same result each time, so `make test` repeats them only if what they read has changed. Each has a target
# of its own name, which always runs.
build/formal.stamp: $(wildcard formal/*.pml) formal/check.py
build/types.stamp: $(VENV)/test.stamp tests/test_types.py tests/test_public_names.py tests/user_program.py
build/core-test.stamp: $(VENV)/test.stamp CMakePresets.json $(wildcard tests/core/*)
build/docs.stamp: $(VENV)/test.stamp $(wildcard *.md) formal/README.md $(shell find docs -type f -not -path '*/__pycache__/*')
build/%.stamp:
	@$(MAKE) --no-print-directory $*
	@mkdir -p build && touch $@

lint: style types  ## style, types and prose

style: $(VENV)/test.stamp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python packaging/prose.py
	$(CLANG_FORMAT) --dry-run -Werror

types: $(VENV)/test.stamp  # of the package, and as a user's type checker finds them
	$(BIN)/mypy
	$(BIN)/python -m pytest $(USER_TYPES)

format: $(VENV)/test.stamp  ## put Python and C++ into shape
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(CLANG_FORMAT) -i

core-test: $(VENV)/test.stamp  ## the C++ core's own tests
	PATH="$(CURDIR)/$(BIN):$$PATH" sh -c 'cmake --preset core-tests && cmake --build --preset core-tests && ctest --preset core-tests'

sanitize: $(VENV)/test.stamp sanitize-module  ## the same under ThreadSanitizer, and under AddressSanitizer with UBSan, and so the pool's tests
	PATH="$(CURDIR)/$(BIN):$$PATH" sh -c 'for p in core-tests-tsan core-tests-asan; do \
	    cmake --preset $$p && cmake --build --preset $$p && ctest --preset $$p || exit; done'

# The package with a module that the sanitizers have instrumented. Python itself is not, so the libraries are preloaded in
# all processes. A finding ends the process and is written to a file. Signals of envs that access invalid memory are not
# intercepted, because tests expect them. LeakSanitizer would report Python's own memory; other tests look for leaks.
ASAN     := build/module-asan
ASAN_ENV  = PYTHONPATH=$(CURDIR)/$(ASAN)/site PYTHONMALLOC=malloc \
    LD_PRELOAD="$$($(CXX) -print-file-name=libasan.so) $$($(CXX) -print-file-name=libstdc++.so)" \
    ASAN_OPTIONS=detect_leaks=0:handle_segv=0:handle_sigbus=0:handle_abort=0:allocator_may_return_null=1:log_path=$(CURDIR)/$(ASAN)/found/asan \
    UBSAN_OPTIONS=print_stacktrace=1:log_path=$(CURDIR)/$(ASAN)/found/ubsan

sanitize-module: $(VENV)/test.stamp
	PATH="$(CURDIR)/$(BIN):$$PATH" sh -c 'cmake --preset module-asan && cmake --build --preset module-asan'
	rm -rf $(ASAN)/site $(ASAN)/found
	mkdir -p $(ASAN)/site $(ASAN)/found
	cp -R src/remuda $(ASAN)/site
	$(BIN)/cmake --install $(ASAN) --prefix $(ASAN)/site
	$(ASAN_ENV) $(BIN)/python $(PYTEST) tests/wire tests/worker tests/engine/pool tests/engine/rollouts
	@! cat $(ASAN)/found/* 2>/dev/null

# Files whose tests are more, or search longer, with these variables (tests/drawn.py).
SOAK = REMUDA_SOAK_MINUTES=$(MINUTES) REMUDA_SOAK_SEED=$(or $(SEED),$(shell date +%j)) $(BIN)/python -m pytest -s
soak: $(VENV)/test.stamp  ## thousands of faults, and lives drawn at random, for MINUTES=10; another storm each day, or SEED=7
	$(SOAK) $$(grep -rlE 'from drawn|simulator_envs.(PLACES|SOME)' tests --include='test_*.py' --exclude-dir=cluster)
	$(SOAK) $$(grep -rl 'from drawn' tests/cluster --include='test_*.py')

formal:  ## the models of the core's protocol, checked by Spin
	$(PYTHON) formal/check.py

formal-unchecked:
	@echo "SKIPPED: the models in formal/ were not checked, because spin was not found (on Debian: apt-get install spin gcc)."

ding-test: $(DING)/test.stamp  ## the tests of remuda.ding, beside DI-engine
	$(DING)/bin/python $(FACE) -k 'ding or README' tests/faces/ding tests/faces/test_direct_bases.py tests/faces/test_fault_table.py tests/faces/test_options.py tests/faces/test_pool_beneath.py tests/test_docs.py

ding-untested:
	@echo "SKIPPED: remuda.ding was not tested, because DI-engine's company needs Python 3.12 or older (make clean test PYTHON=python3.12)."

ray-test: $(VENV)/test.stamp  ## the tests of pools on a Ray cluster: two nodes on this machine
	$(BIN)/python -m pytest $(SLOW) tests/cluster

ray-untested:
	@echo "SKIPPED: pools on a Ray cluster were not tested, because Ray needs Python 3.13 or older (make clean test PYTHON=python3.13)."

mlagents-test: $(MLAGENTS)/test.stamp  ## the tests of remuda.mlagents, beside Unity ML-Agents
	$(MLAGENTS)/bin/python $(FACE) -k 'mlagents or README' tests/faces/mlagents tests/faces/test_direct_bases.py tests/faces/test_fault_table.py tests/faces/test_options.py tests/faces/test_pool_beneath.py tests/test_docs.py

mlagents-untested:
	@echo "SKIPPED: remuda.mlagents was not tested, because ML-Agents' company needs Python 3.11 or older (make clean test PYTHON=python3.11)."

old-gymnasium-test: $(OLD_GYMNASIUM)/test.stamp  ## the tests of the faces beside Gymnasium 0.29
	$(OLD_GYMNASIUM)/bin/python $(FACE) tests/faces/gymnasium/test_old_gymnasium.py tests/faces/gymnasium/test_old_infos.py tests/faces/sb3/test_old_gymnasium.py

old-gymnasium-untested:
	@echo "SKIPPED: Gymnasium 0.29 was not tested, because its NumPy needs Python 3.12 or older (make clean test PYTHON=python3.12)."

tasks-test: $(TASKS)/test.stamp  ## evaluations of tasks in gym-pusht and MetaWorld
	$(TASKS)/bin/python $(FACE) tests/training/test_simulated_tasks.py

tasks-untested:
	@echo "SKIPPED: evaluations in gym-pusht were not tested, because its pymunk needs Python 3.13 or older (make clean test PYTHON=python3.13)."

neighbours-test: $(NEIGHBOURS)/test.stamp $(OLD_GYMNASIUM)/test.stamp  ## the programs of docs/other-libraries.md, beside the libraries
	$(NEIGHBOURS)/bin/python $(FACE) tests/faces/gymnasium/test_neighbours.py
	$(OLD_GYMNASIUM)/bin/python -m pip install --quiet $(NEIGHBOURS_OF_OLD)
	$(OLD_GYMNASIUM)/bin/python $(FACE) tests/faces/gymnasium/test_neighbours.py

neighbours-untested:
	@echo "SKIPPED: TorchRL, RLlib and others were not tested, because their company needs Python 3.11 or 3.12 (make clean nightly PYTHON=python3.12)."

bench: $(VENV)/demo.stamp  ## a quick look at the benchmarks
	$(BIN)/python benchmarks/throughput.py --quick --any-round --against gymnasium

wheels: $(BIN)/python  ## wheels for the Pythons that are found here, each tried in an environment without a compiler: dist/
	$(BIN)/python packaging/wheels.py

# Warnings are errors, such as a link without a target. Sphinx skips pages that have not changed and does not repeat their
# warnings, so after a failure all pages are read again.
docs: $(VENV)/test.stamp  ## the documentation site: build/docs/index.html
	$(BIN)/python -m sphinx -W --keep-going -q -b html docs build/docs || { rm -rf build/docs/.doctrees; exit 1; }

reference: $(VENV)/test.stamp  ## the docstrings in docs/reference, anew
	$(BIN)/python packaging/reference.py

site-unbuilt:
	@echo "SKIPPED: the documentation site was not built, because Sphinx needs Python 3.11 or newer (make clean test PYTHON=python3.11)."

# Each runs in an environment of its own, with a package built for it. `TESTS=` selects the tests.
TESTS ?= tests/engine tests/worker tests/backends tests/wire
OTHER  = build/$@
define other_environment
	$(PYTHON) -m venv --clear $(OTHER)
	$(OTHER)/bin/python -m pip install --quiet --upgrade pip
endef

test-portable: $(COMPILER)  ## what other systems than Linux get, built and tried on Linux: threads and serial
	$(other_environment)
	SKBUILD_BUILD_DIR=$(OTHER)/cmake SKBUILD_CMAKE_DEFINE=REMUDA_PORTABLE=ON $(OTHER)/bin/python -m pip install --quiet .
	$(OTHER)/bin/python -m pip install --quiet "torch==2.13.0"
	$(OTHER)/bin/python -m pip install --quiet stable-baselines3 mpe2 "gymnasium[classic-control]"
	$(OTHER)/bin/python packaging/elsewhere.py --quick-starts

test-lowest: $(COMPILER)  ## with the oldest dependencies that pyproject.toml declares, on PYTHON=python3.10
	$(other_environment)
	SKBUILD_BUILD_DIR=$(OTHER)/cmake $(OTHER)/bin/python -m pip install --quiet . --constraint packaging/lowest.txt
	$(OTHER)/bin/python packaging/smoke.py
	$(OTHER)/bin/python -m pip install --quiet pytest pytest-xdist hypothesis --constraint packaging/lowest.txt
	$(OTHER)/bin/python $(PYTEST) -W default $(TESTS)

test-newest: $(COMPILER)  ## with the newest releases, and what is about to be one
	$(other_environment)
	SKBUILD_BUILD_DIR=$(OTHER)/cmake $(OTHER)/bin/python -m pip install --quiet --pre . gymnasium[classic-control,toy-text] numpy
	$(OTHER)/bin/python -m pip install --quiet pytest pytest-xdist hypothesis
	$(OTHER)/bin/python $(PYTEST) -W default $(TESTS)

WITHOUT_GIL := tests/backends/test_local.py tests/engine/pool tests/engine/rollouts tests/engine/startup/test_spinning.py \
    tests/engine/supervision/test_hung_threads.py \
    --ignore tests/engine/pool/test_simulated_pictures.py
test-free-threaded: PYTHON := $(PYTHON_FREE_THREADED)
test-free-threaded: $(COMPILER)  ## threads without the GIL, on PYTHON_FREE_THREADED=python3.14t
	$(other_environment)
	SKBUILD_BUILD_DIR=$(OTHER)/cmake $(OTHER)/bin/python -m pip install --quiet . pytest pytest-xdist hypothesis
	$(OTHER)/bin/python -c 'import sys, remuda.gymnasium; assert not sys._is_gil_enabled(), "the import has enabled the GIL"'
	$(OTHER)/bin/python -X gil=0 $(PYTEST) -W default $(WITHOUT_GIL)

free-threaded-untested:
	@echo "SKIPPED: threads without the GIL were not tested, because python3.14t was not found (make test PYTHON_FREE_THREADED=/path/to/python3.14t)."

test-pythons:  ## `make test-newest` on every Python that is found here
	for version in 3.10 3.11 3.12 3.13 3.14; do \
	    ! python$$version -c '' 2>/dev/null || $(MAKE) test-newest PYTHON=python$$version || exit; done

clean:  ## forget everything that was built
	rm -rf $(VENV) $(DING) $(MLAGENTS) $(OLD_GYMNASIUM) $(TASKS) $(NEIGHBOURS) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
