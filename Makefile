# make demo    tune the headline kernel on a modelled Ascend910B4, look it up, explain and export it
# make test    all checks: ruff, mypy, import-linter, pytest
# make test-full  the tests that take too long for every run
# make test-gpu   the tests that need an NVIDIA GPU; test-npu: those that need an Ascend NPU with CANN
# make wheel   a wheel and a source distribution in dist/
# make first-steps  time a newcomer's three commands in a fresh environment
# make try-pythons  use the wheel's core on the interpreters PYTHONS, and note how it went
# make release-check  build both and look for faults: metadata, versions, changelog, content
# make mutation  change the code in 400 places, one at a time, and count the changes that tests notice
#
# All need Linux x86_64 and CPython 3.11 (if it has another name or path: make demo PYTHON=...). `demo` and `test` each
# make their own environment once, with the versions of constraints.txt.
# The tests start their own PostgreSQL if it is installed (Debian: postgresql), and skip its tests otherwise.

MAKEFLAGS += --jobs=2 # environments are made side by side

PYTHON ?= python3.11
# PyTorch's wheels for machines without a GPU. If this index cannot be reached, PyPI's are used. They bring gigabytes of
# CUDA, and upstream Triton, which is removed because it is the same package as triton-ascend.
TORCH_INDEX ?= https://download.pytorch.org/whl/cpu

DEMO := .venv-demo/bin
TEST := .venv-test/bin
TORCH_NPU := 2.7.1 2.14.0
# Projects that read exported tables, at the releases whose names and rules the exports follow.
READERS := sglang/0.5.23 fla-core/0.6.0 flag-gems/5.0.2
LARGE_READERS := vllm/0.33.0
AXE := axe-playwright-python/0.1.8
PROBLEM := row_reduce -s M=1000,N=8192
WINNER := $(DEMO)/tilewise lookup $(PROBLEM) --device Ascend910B4 --json | $(DEMO)/python -c 'import json, sys; \
	print(*map("{0[0]}={0[1]}".format, json.load(sys.stdin)["results"][0]["config"].items()), sep=",")'

# Bytecode is made where a module is imported: pip would make that of all of PyTorch.
INSTALL := pip install -qq --no-compile -c constraints.txt
export PIP_DISABLE_PIP_VERSION_CHECK := 1
unexport PYTHONDONTWRITEBYTECODE # each of the hundreds of processes that tests start would compile all modules again
export TILEWISE_DB = sqlite:///$(CURDIR)/build/$@/tilewise.db
export TILEWISE_CACHE = $(CURDIR)/build/$@/cache

.PHONY: demo test gate test-full test-gpu test-npu wheel first-steps try-pythons release-check wheels mutation collect lint style types format docs client screenshots clean
.DELETE_ON_ERROR:

demo: .venv-demo/ready
	rm -rf build/demo && mkdir -p build/demo
	$(DEMO)/tilewise tune $(PROBLEM) --device model:Ascend910B4
	$(DEMO)/tilewise lookup $(PROBLEM) --device Ascend910B4
	$(DEMO)/tilewise explain $(PROBLEM) --device model:Ascend910B4 -c "$$($(WINNER))"
	$(DEMO)/tilewise export --format json -o build/demo/configs.json

test: types gate

# Three processes for two cores, because some tests wait. Fixtures of a file are made once; files with one slow test come
# in their turn, not last.
gate: style wheels collect .venv-core/ready
	$(TEST)/pytest -n 3 --dist loadfile --no-loadscope-reorder

# These note in docs/results when they ran, on what, and how it ended; `make test` shows that for the devices.
test-full: .venv-test/ready wheels $(LARGE_READERS:%=build/readers/%)
	$(TEST)/pytest tests -n 2 --dist loadfile -m full --record docs/results/test-full.json

test-gpu: .venv-gpu/ready
	.venv-gpu/bin/pytest tests -m needs_gpu --record docs/results/test-gpu.json

test-npu: .venv-npu/ready
	.venv-npu/bin/pytest tests -m needs_npu --record docs/results/test-gpu.json

# Pytest's bytecode of all tests, made once rather than by each worker.
collect: .venv-test/ready
	mkdir -p build
	$(TEST)/pytest --collect-only -qq >build/collected.txt || { cat build/collected.txt; exit 1; }

# The oldest and the newest torch_npu that the NPU code supports, the readers of tables, and a checker of web pages. Tests
# read the wheels; they are never installed. pip of .venv-core gets them while .venv-test is made.
wheels: $(TORCH_NPU:%=build/wheels/%) $(READERS:%=build/readers/%) $(AXE:%=build/readers/%)
build/wheels/%: | .venv-core/ready
	.venv-core/bin/pip download -qq --no-deps --only-binary :all: -d $@ torch_npu==$*

build/readers/%: | .venv-core/ready
	.venv-core/bin/pip download -qq --no-deps --only-binary :all: -d $@ $(subst /,==,$*)

wheel: .venv-test/ready
	$(TEST)/python -m build --no-isolation --outdir dist .

first-steps: wheel
	$(TEST)/python tools/first_steps.py dist/*.whl -o docs/results/first-steps.json

PYTHONS ?= python3.11 python3.12 python3.13
try-pythons: wheel
	$(TEST)/python tools/try_pythons.py dist/*.whl $(PYTHONS) -o docs/results/pythons.json

release-check: .venv-test/ready
	rm -rf build/$@ && mkdir -p build/$@
	$(TEST)/python tools/release_check.py build/$@

# Most of an hour on two cores, and no part of `test`. It goes on where it was interrupted.
mutation: wheels .venv-test/ready
	$(TEST)/pip install -qq -c constraints.txt cosmic-ray coverage
	$(TEST)/python tools/mutate.py

lint: types style

types: .venv-test/ready
	$(TEST)/mypy --strict -p tilewise

style: .venv-test/ready
	$(TEST)/ruff check .
	$(TEST)/ruff format --check .
	$(TEST)/lint-imports --no-cache

format: .venv-test/ready
	$(TEST)/ruff check --fix .
	$(TEST)/ruff format .

docs: .venv-test/ready
	$(TEST)/python -m tilewise.benchmarks.gpu.report docs/kernels.md
	$(TEST)/python -m tilewise.benchmarks.model.model_report docs
	$(TEST)/python -m tilewise.benchmarks.service.service_report docs
	$(TEST)/python -m tilewise.benchmarks.claims.report docs

client: .venv-test/ready
	$(TEST)/python tools/generate_client.py src/tilewise/client.py
	$(TEST)/ruff format -q src/tilewise/client.py

screenshots: .venv-test/ready
	$(TEST)/python docs/screenshots.py

clean:
	rm -rf .venv-demo .venv-test .venv-core .venv-gpu .venv-npu build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis

# An environment with only the core dependencies, into which tests install the wheel.
.venv-core/ready: pyproject.toml constraints.txt
	rm -rf .venv-core
	$(PYTHON) -m venv .venv-core
	.venv-core/bin/$(INSTALL) .
	.venv-core/bin/pip uninstall -qqy tilewise
	touch $@

# With PyTorch's own triton.
.venv-gpu/ready: pyproject.toml constraints.txt
	rm -rf .venv-gpu
	$(PYTHON) -m venv .venv-gpu
	.venv-gpu/bin/$(INSTALL) -e '.[cuda,test]'
	touch $@

# pip uses one core. PyTorch and what it and the Ascend compiler alone need are installed beside all the rest, which the
# last command completes.
.venv-demo/ready .venv-test/ready: ASCEND := ascendnpu-ir networkx sympy triton-ascend xdsl
.venv-demo/ready: EXTRAS := ascend
.venv-test/ready: EXTRAS := ascend,test,dev
.venv-test/ready: REST := [test,dev]
.venv-npu/ready: EXTRAS := npu,test
.venv-npu/ready: REST := [test]
.venv-%/ready: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11) and "CPython 3.11 is needed, this is " + sys.version)'
	rm -rf .venv-$*
	$(PYTHON) -m venv .venv-$*
	.venv-$*/bin/$(INSTALL) -e '.$(REST)' & rest=$$!; \
		.venv-$*/bin/$(INSTALL) --no-deps --extra-index-url $(TORCH_INDEX) --retries 1 torch \
		$(if $(ASCEND),&& .venv-$*/bin/$(INSTALL) --no-deps $(ASCEND)); \
		code=$$?; wait $$rest && exit $$code
	.venv-$*/bin/$(INSTALL) -e '.[$(EXTRAS)]'
	! .venv-$*/bin/pip show -qq triton || { .venv-$*/bin/pip uninstall -qqy triton && \
		.venv-$*/bin/$(INSTALL) --force-reinstall --no-deps triton-ascend; }
	touch $@
