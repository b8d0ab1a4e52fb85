# make            what is needed to work here, in .venv
# make test       what to run before a commit: checks, tests in this process, a smoke test of each real part
# make test-all   everything that CI checks
# make durations  measures how long tests take, so that the slowest start first
# make mutants    mutation tests of the pure packages; ten minutes the first time, then only what changed
# make soak       random processes, faults and network cuts until MINUTES are over (10); SEED runs one again
# make demo       a cluster on this machine whose workers are killed while you watch
# make env        .env with random passwords for docker-compose.yml; SIZE=small for the small cluster
# make bench      measures, and fails where a bar is not met; ONLY="requeue lag" some of it
# make dashboards Grafana's, from deploy/grafana/dashboards; DOCS and CONSOLE are addresses that panels link to
# make pictures of the dashboards for docs/, from a cluster under load; needs Prometheus and matplotlib, takes five minutes
# make audit      the lock against what is known of vulnerable versions; needs the network
# make pin-images the images of Dockerfile and docker-compose.yml by digest; needs Docker and the network
#
# Only relative paths: the folder's own path may have spaces, which make can't have in a target.

SHELL := /bin/bash
PYTHON ?= python3
BIN := .venv/bin

.DEFAULT_GOAL := venv
.PHONY: venv test test-all durations mutants check soak demo env bench dashboards pictures lock audit pin-images clean

venv: .venv/installed

# Hashes for everything that is installed; --no-deps since the lock is complete. pyspark comes as source and is
# built by pip on its own (a minute, once). Our build tool is in the lock, so the last step needs no network.
.venv/installed: constraints.txt pyproject.toml
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	    echo "Python 3.11 or newer is needed, and $(PYTHON) is '$$("$(PYTHON)" --version 2>&1)'." \
	         "Name another one: make PYTHON=python3.12" >&2; exit 1; }
	"$(PYTHON)" -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r constraints.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

PYTEST = $(BIN)/python -m pytest -n 4 --dist loadscope --no-loadscope-reorder

test: check
	$(PYTEST) -m "not soak and (smoke or not (cluster or spark or thorough))"

test-all: check
	$(PYTEST)

durations: venv
	$(PYTEST) --record-durations

check: venv
	$(BIN)/python -m ruff format --check .
	$(BIN)/python -m ruff check .
	$(BIN)/python -m mypy
	$(BIN)/lint-imports

# mutmut keeps its results in mutants/. It has its own virtual environment, which sees ours: it depends on setproctitle,
# with which Celery renames its processes and overwrites the environment by which tests recognise them.
mutants: venv
	"$(PYTHON)" -m venv .venv/mutants
	.venv/mutants/bin/python -m pip install --quiet --disable-pip-version-check mutmut==3.8.1
	$(BIN)/python -c "import site; print(*site.getsitepackages())" > \
	    "$$(.venv/mutants/bin/python -c "import site; print(*site.getsitepackages())")/beside.pth"
	PATH="$(CURDIR)/.venv/mutants/bin:$$PATH" .venv/mutants/bin/python -m mutmut run
	.venv/mutants/bin/python -m tests.mutants $(ONLY)

soak: venv
	MINUTES=$(or $(MINUTES),10) SEED=$(SEED) $(BIN)/python -m pytest -m soak
	$(BIN)/python -m tests.stateful.soak --minutes $(or $(MINUTES),10) $(if $(SEED),--seed $(SEED))

demo: venv
	$(BIN)/recovery demo

env:
	@sh deploy/compose/env.sh .env $(or $(SIZE),full)

bench: venv
	$(BIN)/python -m tests.bench $(ONLY)

dashboards: venv
	$(BIN)/python -m deploy.grafana.dashboards --docs "$(DOCS)" --console "$(CONSOLE)"

pictures: venv
	@$(BIN)/python -c "import matplotlib" 2> /dev/null || { \
	    echo "matplotlib is needed for the pictures: $(BIN)/python -m pip install matplotlib" >&2; exit 1; }
	$(BIN)/python -m tests.pictures

# Keeps the versions that are locked; `make lock UPGRADE=--upgrade` takes the newest. One file for every Python
# that we support, and of it what each image takes. The options keep the addresses and paths of this machine out of it.
COMPILE = .venv/lock/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate \
    --custom-compile-command "make lock"
PART = $(COMPILE) --constraints constraints.txt --output-file deploy/locks

lock:
	"$(PYTHON)" -m venv .venv/lock
	.venv/lock/bin/python -m pip install --quiet --disable-pip-version-check uv
	$(COMPILE) $(UPGRADE) --all-extras --output-file constraints.txt pyproject.toml
	$(PART)/worker.txt pyproject.toml
	$(PART)/spark.txt --extra spark pyproject.toml
	$(PART)/build.txt $(UPGRADE) deploy/locks/build.in

# By what PyPI knows of each version. Where it can't be asked all are listed as not audited, and this fails.
audit:
	"$(PYTHON)" -m venv .venv/audit
	.venv/audit/bin/python -m pip install --quiet --disable-pip-version-check pip-audit
	@.venv/audit/bin/pip-audit --strict --disable-pip --require-hashes --progress-spinner off -r constraints.txt || { \
	    echo "audit: a vulnerable version, or one that nobody could be asked about; see above" >&2; exit 1; }

pin-images:
	"$(PYTHON)" deploy/pin_images.py Dockerfile docker-compose.yml

clean:
	rm -rf .venv dist mutants .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache spark-warehouse
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
