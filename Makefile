# The commands of the project. `make help` lists them.
#
# Everything runs inside .venv, which the first command makes (scripts/venv.sh finds a Python) and
# which is brought up to date when pyproject.toml or constraints.txt change.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.PHONY: help install java mingo typescript npm chromium kafka packages peers demo linear-road test test-bounds test-long check wheels docs \
	bench bench-full clean

VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
EXTRAS ?= dev,bench,spark,plot,server,client
export PYTHON
# Where this is set, each of the many processes that tests start would compile every module anew.
unexport PYTHONDONTWRITEBYTECODE

# Several processes share the tests, file by file: what a module sets up is set up once, and a session of Spark
# serves many files. Many tests wait for something, so it takes more of them than cores. The heaviest files come
# first (tests/conftest.py).
TEST_PROCESSES ?= 4
PARALLEL := -n $(TEST_PROCESSES) --dist loadfile --no-loadscope-reorder

# The checked job: numba's bounds checks, and every address is looked up (docs/decisions/0045). A read outside of an
# array, or of all memory that kernels were given, is an error instead of a wrong answer.
BOUNDS_TESTS := tests/kernels/test_checks.py tests/kernels/test_jsonnumber.py tests/test_channel_contract.py \
	tests/test_apply.py tests/test_told_runs.py tests/where/test_batch.py \
	tests/where/test_batch_damage.py tests/where/test_standing.py tests/where/test_standing_grams.py \
	tests/documents/test_grid.py \
	tests/documents/test_entries.py tests/documents/test_engine_machine.py tests/documents/test_find.py \
	tests/documents/test_nearest_entries.py \
	tests/documents/test_inverted.py tests/documents/test_fuzzy_index.py tests/stream/test_sliding.py \
	tests/stream/test_window.py
BOUNDS_MACHINE := $(wildcard tests/test_state_machine.py tests/test_machine.py)

# What `make check` runs: files, links, names and blocks of pages.
CHECKED := tests/test_imports.py tests/test_docs.py tests/test_internals_docs.py tests/test_site.py \
	tests/test_private_names.py

help:  ## list the commands
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## */\1|/' | \
	  while IFS='|' read -r name text; do printf '  make %-12s %s\n' "$$name" "$$text"; done

$(STAMP): pyproject.toml constraints.txt scripts/venv.sh
	@bash scripts/venv.sh $(VENV)
	@echo "tideline: installing into $(VENV) (about a minute the first time)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[$(EXTRAS)]'
	@touch $@

install: $(STAMP) java mingo typescript chromium  ## make .venv with everything in it

java:  ## see to Java 17 or newer for Spark, by apt-get when there is none
	@bash scripts/java.sh

mingo:  ## see to mingo, which the tests compare conditions with; node and npm by apt-get if missing
	@bash scripts/mingo.sh

typescript: mingo  ## see to TypeScript, which checks the types of the JavaScript client
	@bash scripts/typescript.sh

npm:  ## the npm package of the JavaScript client, in dist/
	@mkdir -p dist
	@cd clients/js && npm pack --silent --pack-destination ../../dist

chromium:  ## see to Chromium for the tests of the page, by apt-get when there is none
	@bash scripts/chromium.sh

kafka: java  ## see to the jars of a Kafka broker and Spark's connector, for the long tests
	@bash scripts/kafka.sh

packages: kafka  ## see to Spark's packages for S3 and Avro, and to an S3 on loopback, for the long tests
	@bash scripts/packages.sh

peers:  ## see to the servers of the side-by-side benchmark, by apt-get where one is missing
	@bash scripts/peers.sh

demo: $(STAMP) java  ## server, Spark pipeline and live map in one; DEMO_S=30 stops by itself
	@$(BIN)/tideline demo

linear-road: $(STAMP)  ## the Linear Road benchmark, with a picture: L=1 MINUTES=10 START=60 SPEED=10 PORT=8080 FOLDER=
	$(BIN)/python -m examples.linear_road -L $(or $(L),1) --minutes $(or $(MINUTES),10) \
	  --start $(or $(START),60) --speed $(or $(SPEED),10) --port $(or $(PORT),8080) $(if $(FOLDER),--folder $(FOLDER))

test: $(STAMP) java mingo typescript chromium  ## install, compile the kernels, run the tests and one job with bounds checks
	@$(BIN)/python tests/quick_java.py & $(BIN)/tideline warm; wait
	$(BIN)/python -m pytest -q -m "not long" $(PARALLEL)
	@$(MAKE) --no-print-directory test-bounds

test-bounds: $(STAMP)  ## the core tests again with every index and address checked
	HYPOTHESIS_PROFILE=$${HYPOTHESIS_PROFILE:-bounds} NUMBA_BOUNDSCHECK=1 $(BIN)/python -m pytest -q $(PARALLEL) \
	  -m "not long and not spark" $(BOUNDS_TESTS) $(BOUNDS_MACHINE)

# ONLY names pieces or paths (scripts/test_long.py): ONLY="tests/stream spark-cluster". ARGS is for pytest: ARGS="-m long".
LONG_SPARK := $(if $(findstring spark,$(or $(ONLY),spark)),kafka packages)
test-long: $(STAMP) java mingo typescript chromium $(LONG_SPARK)  ## all tests with long random runs, piece by piece; ONLY=tests/stream for one
	@$(BIN)/python tests/quick_java.py & $(BIN)/tideline warm; wait
	@$(BIN)/python scripts/test_long.py $(ONLY) -- $(ARGS)

# Types are checked beside the tests. What starts Spark or commands is left to `make test`.
check: $(STAMP)  ## lint, format, types, layers, docs and their site: under a minute
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	@$(BIN)/mypy --strict src tests/aclient/typed.py & types=$$!; failed=0; \
	  $(BIN)/python -m pytest -q -m "not spark and not long" -k "not commands_of_a_page" $(CHECKED) || failed=1; \
	  wait $$types || failed=1; exit $$failed

$(VENV)/.docs: $(STAMP)
	@echo "tideline: installing what builds the documentation"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[docs]'
	@touch $@

docs: $(VENV)/.docs  ## the documentation site, in build/site; open build/site/index.html
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet
	@echo "tideline: open build/site/index.html"

wheels: $(STAMP)  ## the wheel of the sources and one with compiled kernels for this platform, in dist/
	$(BIN)/python scripts/wheels.py

bench: $(STAMP) peers  ## measure in small; writes benchmarks/results/
	$(BIN)/python benchmarks/channel.py
	$(BIN)/python benchmarks/conditions.py
	$(BIN)/python benchmarks/unseen.py
	$(BIN)/python benchmarks/secondary.py
	$(BIN)/python benchmarks/experiments.py
	$(BIN)/python benchmarks/side_by_side.py
	$(BIN)/python benchmarks/spark.py
	$(BIN)/python benchmarks/spark_live.py
	$(BIN)/python benchmarks/server.py
	$(BIN)/python benchmarks/many_calls.py
	$(BIN)/python benchmarks/live.py
	$(BIN)/python benchmarks/volume.py
	$(BIN)/python benchmarks/spatial.py
	$(BIN)/python benchmarks/reconcile.py
	$(BIN)/python benchmarks/replication.py
	$(BIN)/python benchmarks/fuzzy.py
	$(BIN)/python benchmarks/words.py
	$(BIN)/python benchmarks/filters.py
	$(BIN)/python benchmarks/ingestion.py
	$(BIN)/python benchmarks/levels.py
	$(BIN)/python benchmarks/linear_road.py
	$(BIN)/python benchmarks/page.py

bench-full: $(STAMP) peers  ## measure in full, to 10 million subscriptions; takes hours
	$(BIN)/python benchmarks/channel.py --full
	$(BIN)/python benchmarks/conditions.py
	$(BIN)/python benchmarks/unseen.py
	$(BIN)/python benchmarks/secondary.py --size full
	$(BIN)/python benchmarks/experiments.py --size full
	$(BIN)/python benchmarks/side_by_side.py --size full
	$(BIN)/python benchmarks/spark.py --size full
	$(BIN)/python benchmarks/spark_live.py --size full
	$(BIN)/python benchmarks/server.py
	$(BIN)/python benchmarks/live.py --size full
	$(BIN)/python benchmarks/spatial.py --size full
	$(BIN)/python benchmarks/reconcile.py --size full
	$(BIN)/python benchmarks/replication.py
	$(BIN)/python benchmarks/fuzzy.py --size full
	$(BIN)/python benchmarks/words.py --size full
	$(BIN)/python benchmarks/filters.py --size full
	$(BIN)/python benchmarks/ingestion.py --size full
	$(BIN)/python benchmarks/levels.py --size full
	$(BIN)/python benchmarks/page.py

clean:  ## remove what the commands made (keeps .venv)
	@rm -rf build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	@find . -name __pycache__ -not -path './$(VENV)/*' -prune -exec rm -rf {} +
