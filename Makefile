# The verbs of this repository; `make` alone lists them. Everything runs in .venv, which the first verb
# makes with uv, or with Python 3.11 or newer where there is no uv. How it goes is told on standard error:
# standard output is the verb's own.

VENV ?= .venv
WORKERS ?= 2
PYTHON_BIN := $(VENV)/bin
CODE := proto schemas core services client cli simengine tools tests $(wildcard benchmarks)
export VENV

.DEFAULT_GOAL := help

.PHONY: help
help: ## list the verbs
	@awk -F ':.*## ' '/^[a-z%-]+:.*## / {printf "  make %-18s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: demo
demo: runtime ## the whole system on this machine with simulated engines; flags by ARGS="--once --json"
	@$(PYTHON_BIN)/inferencecache up $(ARGS)

.PHONY: test
test: dev ## all tests whose facilities are present; REQUIRE=all insists on all; ARGS go to pytest; WORKERS=2
	@$(PYTHON_BIN)/python -m pytest -n $(WORKERS) --report-not-run --require="$(REQUIRE)" $(ARGS)

.PHONY: check
check: dev ## lint, format, types, import contracts, generated files, pins
	$(PYTHON_BIN)/ruff check .
	$(PYTHON_BIN)/ruff format --check .
	$(PYTHON_BIN)/mypy $(CODE)
	$(PYTHON_BIN)/lint-imports
	$(PYTHON_BIN)/python -m tools.generate --check
	$(PYTHON_BIN)/python -m tools.requirements check

.PHONY: format
format: dev ## put every file in the common form
	$(PYTHON_BIN)/ruff check --fix .
	$(PYTHON_BIN)/ruff format .

.PHONY: generate
generate: dev ## write the generated files: gRPC stubs, JSON Schemas, CRDs, reference pages
	@$(PYTHON_BIN)/python -m tools.generate

.PHONY: docs
docs: dev ## build the documentation site into site/; ARGS=--serve shows it on this machine
	@$(PYTHON_BIN)/python -m tools.docs $(ARGS)

.PHONY: pictures
pictures: dev ## draw the picture of the live view anew from a run of the demo
	@$(PYTHON_BIN)/python -m tools.docs.live_view

.PHONY: bench
bench: dev ## rerun the measurements beside their targets; BENCH_OUT=file for JSON, ARGS="index lookup" for some
	@BENCH_OUT="$(BENCH_OUT)" $(PYTHON_BIN)/python -m benchmarks $(ARGS)

.PHONY: bench-routing
bench-routing: dev ## what hints are worth on production traces; SLICE=10m for a part, BENCH_OUT=file for JSON, ARGS
	@SLICE="$(SLICE)" BENCH_OUT="$(BENCH_OUT)" $(PYTHON_BIN)/python -m benchmarks.routing $(ARGS)

.PHONY: differential
differential: dev ## fold OPS=100000 random steps by the naive model and the product; SEED=n repeats a run
	@$(PYTHON_BIN)/python -m tools.differential $(if $(OPS),--ops $(OPS)) $(if $(SEED),--seed $(SEED)) $(ARGS)

.PHONY: simulate
simulate: dev ## carry out SEEDS=1000 random plans of work and faults in simulation; SEED=n is the first
	@$(PYTHON_BIN)/python -m tools.simulate $(if $(SEEDS),--seeds $(SEEDS)) $(if $(SEED),--first $(SEED)) $(ARGS)

.PHONY: fuzz
fuzz: dev ## look for hostile inputs, SECONDS=60 a target; SEED=n repeats a run, ARGS="records" names targets
	@$(PYTHON_BIN)/python -m tools.fuzz $(if $(SECONDS),--seconds $(SECONDS)) $(if $(SEED),--seed $(SEED)) $(ARGS)

.PHONY: chaos
chaos: dev ## harm a whole fleet at random for MINUTES=3, then check it; SEED=n repeats the choice of faults
	@$(PYTHON_BIN)/python -m tools.chaos $(if $(MINUTES),--minutes $(MINUTES)) $(if $(SEED),--seed $(SEED)) $(ARGS)

.PHONY: images
images: dev ## build all container images; BASE_IMAGE, IMAGE_PREFIX, IMAGE_TAG, ARGS="server cli" for some
	@$(PYTHON_BIN)/python -m tools.images $(ARGS)

.PHONY: assets
assets: dev ## install or build every facility that tests can use
	@$(PYTHON_BIN)/python -m tools.facilities all

.PHONY: %-assets
%-assets: dev
	@$(PYTHON_BIN)/python -m tools.facilities $*

.PHONY: requirements
requirements: dev ## resolve the pins anew from requirements/*.in (needs uv); ARGS=--upgrade for newer ones
	@$(PYTHON_BIN)/python -m tools.requirements compile $(ARGS)

.PHONY: install-hooks
install-hooks: dev ## let git run the fast checks before each commit
	@git config core.hooksPath tools/hooks
	@echo "git runs tools/hooks/pre-commit before each commit; 'git config --unset core.hooksPath' undoes it"

.PHONY: clean
clean: ## remove the environment and every cache
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

.PHONY: runtime
runtime:
	@tools/bootstrap runtime >&2

.PHONY: dev
dev:
	@tools/bootstrap dev >&2
