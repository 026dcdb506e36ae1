# Every target sets up what it needs: `make demo` and `make test` work in a fresh clone.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Two worker processes with one thread each: most of the suite is compilation. XLA splits each program into parts, to compile them
# side by side; with no processor free for that, one part is enough.
PYTEST := XLA_FLAGS="--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1 --xla_cpu_parallel_codegen_split_count=1" OMP_NUM_THREADS=1 \
	JAX_PLATFORMS=cpu $(BIN)/python -m pytest -n 2

.PHONY: demo test lint check bench lowest trust docs docs-serve format clean

$(VENV)/.ready: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	# torch first and exactly this version: any other request would bring its CUDA build.
	$(BIN)/python -m pip install --quiet --disable-pip-version-check torch==2.13.0
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[dev]"
	touch $@

demo: $(VENV)/.ready  ## The paper's sine task under four priors: a figure and a table against the exact GP.
	$(BIN)/python -m fsplaplace.experiments.demo

test: $(VENV)/.ready  ## The whole test suite.
	$(PYTEST)

lint: $(VENV)/.ready  ## Lint, format and types. Node.js for pyright comes as a wheel: nothing is downloaded on the first run.
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright

check: lint  ## What a commit must pass: lint, format, types, fast tests.
	$(PYTEST) -m "not slow"

bench: $(VENV)/.ready  ## Speed beside the peers, growth, devices; sets up the peers' own environments. Needs a quiet machine.
	$(BIN)/python benchmarks/peers.py
	$(BIN)/python benchmarks/scale.py
	$(BIN)/python benchmarks/devices.py

# The lowest versions that pyproject.toml allows, as wheels; without torch, whose lowest versions come with CUDA. A Python that is
# not on the PATH is downloaded: without a network, put it there.
LOWEST_PYTHONS ?= 3.11 3.13
LOWEST_TESTS ?= tests
lowest:  ## The fast tests on the lowest allowed versions of everything that is imported, on the oldest and the newest Python.
	$(PYTHON) -m venv build/uv
	build/uv/bin/python -m pip install --quiet --disable-pip-version-check uv
	for version in $(LOWEST_PYTHONS); do \
	  build/uv/bin/uv venv --quiet --clear --python $$version build/lowest-$$version && \
	  VIRTUAL_ENV=build/lowest-$$version build/uv/bin/uv pip install --quiet --no-build --resolution lowest-direct \
	    -r pyproject.toml --extra test && \
	  XLA_FLAGS="--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1" OMP_NUM_THREADS=1 JAX_PLATFORMS=cpu \
	    PYTHONPATH=$(CURDIR)/src build/lowest-$$version/bin/python -m pytest -n 2 -m "not slow" $(LOWEST_TESTS) || exit 1; \
	done

trust: $(VENV)/.ready  ## Wrong values, damaged files, killed processes, hostile hosts, long runs: half an hour, then benchmarks/results/trust.md.
	$(BIN)/python benchmarks/trust.py

$(VENV)/.ready-docs: $(VENV)/.ready
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[docs,neighbours,ax]"
	touch $@

docs: $(VENV)/.ready-docs  ## The documentation in build/site: runs every example, checks every link. Minutes; later builds seconds.
	$(BIN)/python benchmarks/readme.py --check
	$(BIN)/python docs/site/build.py

docs-serve: docs  ## The same, shown at http://localhost:8000.
	$(BIN)/python -m http.server --directory build/site 8000

format: $(VENV)/.ready
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) build dist .pytest_cache .ruff_cache
