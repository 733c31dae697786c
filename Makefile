# Every target sets up what it needs in .venv; the second time that costs nothing.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Everything the environment is built from: a change here, and only here, builds it anew.
NATIVE := $(wildcard src/rookery/*/*.pyx src/rookery/*/*.pxd src/rookery/*/*/*.pyx)
READY := $(VENV)/.ready
PEERS := $(VENV)/.peers

.PHONY: help demo demo-secure demo-proxy test test-peers test-faults check bench fuzz long crash faults killing soak stock spark42 large audit clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(READY): pyproject.toml constraints.txt scripts/setup $(NATIVE)
	@scripts/setup $(PYTHON) $(VENV)
	@touch $@

$(PEERS): scripts/install-peers
	@scripts/install-peers
	@mkdir -p $(VENV) && touch $@

demo: $(READY) $(PEERS) ## See it work: a killed broker, a killed pipeline, and nothing lost
	@$(BIN)/rookery demo
	@$(BIN)/rookery demo --tables --records 200k --report build/report.html

demo-secure: $(READY) ## See a closed broker: a stranger refused, a user admitted, a rule removed
	@$(BIN)/rookery demo --secure

demo-proxy: $(READY) ## See a proxy: renamed topics, an audit, a killed upstream, and nothing lost
	@$(BIN)/rookery demo --proxy --records 200k

test: $(READY) $(PEERS) ## Run the tests of every change (one Kafka, Spark, S3 and etcd): 12 minutes
	@scripts/test

test-peers: $(READY) $(PEERS) ## Run the tests with Java tools, further servers and second backends
	@scripts/test peers

test-faults: $(READY) $(PEERS) ## Run the tests that kill, pause, cut off and abuse processes
	@scripts/test faults

check: $(READY) ## Format, lint, types, layers, sizes, names, prose, security
	@scripts/check

audit: $(READY) ## Before a release: fail if an installed package has a known vulnerability
	@$(BIN)/python scripts/audit --strict

bench: $(READY) ## Measure against kio, kafka-python and aiokafka, and print ratios
	@scripts/bench

fuzz: $(READY) ## Run every fuzz target for 60 seconds
	@scripts/fuzz 60

long: $(READY) ## Compare native code with its Python twins over millions of cases
	@scripts/long

crash: $(READY) $(PEERS) ## Kill brokers 200 times under load: one process, three, and on object storage
	@$(BIN)/python -m tests.crash.long --kills $(or $(KILLS),200)
	@$(BIN)/python -m tests.crash.long --kills $(or $(KILLS),200) --workers 3
	@$(BIN)/python -m tests.crash.long --kills $(or $(KILLS),200) --backend etcd+s3
	@$(BIN)/python -m tests.crash.long --kills $(or $(KILLS),200) --backend store+s3

faults: $(READY) $(PEERS) ## Break brokers under load for hours, and check what everybody saw
	@status=0; for target in sqlite etcd+s3; do for fault in kill pause cut client; do \
	$(BIN)/python -m tests.faults.history.long --runs 5 --seconds $(or $(SECONDS),300) \
	--fault $$fault --target $$target || status=1; done; done; exit $$status

killing: $(READY) $(PEERS) ## Kill every kind of Spark process 50 times under a stream
	@$(BIN)/python -m tests.spark.killing --kills $(or $(KILLS),50)
	@$(BIN)/python -m tests.spark.killing --kills $(or $(KILLS),50) --into iceberg

soak: $(READY) $(PEERS) ## Give the light daemon of Spark's workers 30 000 tasks
	@$(BIN)/python -m tests.spark.soak

stock: $(READY) $(PEERS) ## Let Spark's own Kafka connector read and write our broker
	@$(BIN)/pytest -q tests/spark/test_stock_connector.py

spark42: $(READY) $(PEERS) ## Run the tests of Spark on pyspark 4.2, too
	@scripts/spark42

large: $(READY) ## Pass a batch of GB gigabytes (4) through a driver of one
	@$(BIN)/python -m tests.spark.large --gigabytes $(or $(GB),4)

clean: ## Remove everything that was built
	@rm -rf $(VENV) build src/build dist src/*.egg-info .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	@find src -name '*.so' -delete -o -name '*.c' -path '*rookery*' -delete
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
