# `make` without a target lists all targets with their descriptions.

SHELL := /bin/sh
.DEFAULT_GOAL := help
.NOTPARALLEL:

PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
AT_ONCE := -n 4 --dist loadfile --no-loadscope-reorder
CLAUDE_CODE := 2.1.327
ACP_AGENTS := @agentclientprotocol/claude-agent-acp@0.100.0 opencode-ai@1.18.33
BARE := scripts/bare
CONTAINED := $(BARE) scripts/contained
TOOLS := prometheus chromium-headless-shell
CODE := fleet agents worktrees dashboards tests bench chaos evaluation examples scripts

.PHONY: help setup demo demo-100 example-deployment example-research test test-all test-pythons kill soak soak-wide chaos chaos-mutants nodes cheats claude-code acp-agents collector ray container bench eval docs docs-site pictures lint format format-check types coverage check lock clean

help: ## list the targets
	@sed -n 's/^\([a-z0-9-]*\):[^#]*## \(.*\)/\1|\2/p' Makefile | while IFS='|' read -r name text; do \
		printf '  make %-20s%s\n' "$$name" "$$text"; done

ifneq ($(origin PYTHON),file) # another Python needs another .venv
ifneq ($(shell $(BIN)/python -V 2>&1),$(shell $(PYTHON) -V 2>&1))
.PHONY: $(READY)
endif
endif

setup: $(READY) ## build .venv from pinned packages; install bubblewrap and test tools if possible

$(READY): requirements/dev.txt pyproject.toml scripts/venv scripts/bubblewrap scripts/tools
	@scripts/bubblewrap
	@scripts/venv "$(PYTHON)" .venv requirements/dev.txt
	@scripts/tools "$(CURDIR)/.venv/tools" $(TOOLS)
	@touch $@
	@echo "setup: done"

demo: $(READY) ## run an epic of 16 subtasks with a simulated model: no key, no network, under two minutes
	@echo "demo: 16 subtasks with a simulated model"
	@$(BARE) $(BIN)/python examples/demo/demo.py --subtasks 16

demo-100: $(READY) ## run the demo with 120 subtasks and more than 100 parallel workers
	@echo "demo: 120 subtasks, 120 parallel workers, with a simulated model"
	@$(BARE) $(BIN)/python examples/demo/demo.py --subtasks 120 --workers 120

example-deployment: $(READY) ## run a deployment from a plan, without a model: reviewed, scheduled, aborted, rolled back
	@echo "example-deployment: four deployments with one plan"
	@$(BARE) $(BIN)/python examples/deployment/deployment.py

example-research: $(READY) ## run a research epic with three workers and every remedy for a failure, with a simulated model
	@echo "example-research: two pieces of research with a simulated model"
	@$(BARE) $(BIN)/python examples/research/research.py

test: $(READY) ## run the tests: five minutes on two processors
	@echo "test: pytest"
	@$(CONTAINED) $(BIN)/pytest $(AT_ONCE)

test-all: $(READY) ## run the tests and the thorough tests: more kills, sizes, examples and pages, a quarter of an hour
	@echo "test-all: pytest"
	@$(CONTAINED) $(BIN)/pytest $(AT_ONCE) -m ""

test-pythons: $(READY) ## run all tests with each Python found on this machine, oldest first: 15 minutes each
	@scripts/test-pythons

kill: $(READY) ## kill runs at every point, damage their files, kill 100 sandboxes, resume and check: 30 minutes
	@echo "kill: SIGKILL at each point, with real git and real sandboxes; docs/internals/reliability.md lists the invariants"
	@$(BARE) $(BIN)/python -B -m chaos.kill points
	@$(BARE) $(BIN)/python -B -m chaos.kill points plain --lease pool
	@$(BARE) $(BIN)/python -B -m chaos.damage
	@$(BARE) $(BIN)/python -B -m chaos.boxes window
	@$(BARE) $(BIN)/python -B -m chaos.boxes boxes

soak: $(READY) ## kill 2,000 runs repeatedly at random points; SEEDS=N for N runs, FIRST=N for the first seed
	@echo "soak: repeated SIGKILL; docs/internals/reliability.md lists the invariants"
	@$(BARE) $(BIN)/python -B -m chaos.kill seeds --seeds $(or $(SEEDS),2000) --first $(or $(FIRST),0) --jobs 2

soak-wide: $(READY) ## run 10,000 subtasks with 200 workers, faults and kills, and plot the result in soak-wide.html; SUBTASKS=300 WORKERS=40 takes minutes
	@echo "soak-wide: the real program on a real repository; docs/internals/reliability.md lists the invariants"
	@$(BARE) $(BIN)/python -B -m chaos.wide --subtasks $(or $(SUBTASKS),10000) --workers $(or $(WORKERS),200) \
		--files $(or $(FILES),10000) --seed $(or $(SEED),1) --report $(or $(REPORT),soak-wide.html)

chaos-mutants: $(READY) ## add one mistake at a time to the product, and check that the kill suite detects it
	@$(BARE) $(BIN)/python -B -m chaos.mutants

cheats: $(READY) ## try to make checks pass without the work, by test runner; needs node, npm, go and cargo
	@$(BARE) $(BIN)/python -B -m chaos.cheats

claude-code: $(READY) .claude-code/.$(CLAUDE_CODE) ## install Claude Code into .claude-code, test its worker, and let it drive fleet by MCP and by the skill; needs npm
	@echo "claude-code: the worker's tests, with the real program and the simulated model"
	@$(BARE) $(BIN)/pytest -m "" tests/contract tests/e2e/test_workers.py -k "claude or example" --claude-code .claude-code/node_modules/.bin/claude
	@echo "claude-code: it drives fleet through fleet mcp"
	@$(BARE) $(BIN)/python -B -m chaos.claude_mcp --claude .claude-code/node_modules/.bin/claude
	@echo "claude-code: it drives fleet with only skills/fleet/SKILL.md"
	@$(BARE) $(BIN)/python -B -m chaos.claude_skill --claude .claude-code/node_modules/.bin/claude

acp-agents: $(READY) ## install Claude Code and OpenCode as ACP agents into .acp-agents, and test workers with them; needs npm
	@command -v npm >/dev/null || { echo "acp-agents: npm is needed: apt-get install npm" >&2; exit 1; }
	@mkdir -p .acp-agents
	@npm install --silent --no-save --no-audit --no-fund --prefix .acp-agents $(ACP_AGENTS)
	@echo "acp-agents: the worker's tests with Claude Code, and an attempt with OpenCode; the model is simulated"
	@$(BARE) $(BIN)/pytest -m "" tests/contract/test_workers.py -k acp --acp-agent claude-agent-acp --acp-agents .acp-agents
	@$(BARE) $(BIN)/pytest -m "" tests/contract/test_workers.py -k "acp and in_full" --acp-agent opencode --acp-agents .acp-agents

.claude-code/.$(CLAUDE_CODE):
	@command -v npm >/dev/null || { echo "claude-code: npm is needed: apt-get install npm" >&2; exit 1; }
	@echo "claude-code: installing $(CLAUDE_CODE)"
	@mkdir -p .claude-code
	@npm install --silent --no-save --no-audit --no-fund --prefix .claude-code @anthropic-ai/claude-code@$(CLAUDE_CODE)
	@touch $@

collector: $(READY) .collector/.ready ## send the trace of a killed run to a real OpenTelemetry collector: complete, twice and in parts
	@echo "collector: Rotel, a collector in a wheel, decoded with the official messages"
	@$(BARE) $(BIN)/python -B -m chaos.otlp_collector --tools .collector

.collector/.ready: $(READY) requirements/collector.txt
	@echo "collector: installing it into .collector"
	@rm -rf .collector
	@$(BIN)/python -m pip --disable-pip-version-check --quiet --no-input install --require-hashes --target .collector \
		-r requirements/collector.txt
	@touch $@

ray: .ray/.ready ## test nodes on a local Ray cluster of three: contract, demo, drain, kills; in .ray
	@echo "ray: three Ray nodes with token authentication; docs/guides/nodes.md describes its use"
	@$(BARE) .ray/bin/python -B -m chaos.ray_cluster --subtasks $(or $(SUBTASKS),120)

.ray/.ready: requirements/ray.txt pyproject.toml scripts/venv
	@scripts/venv "$(PYTHON)" .ray requirements/ray.txt
	@touch $@

container: $(READY) ## build the image of the Containerfile and run a node in it; needs podman; BASE=IMAGE, PODMAN="podman --runtime runc", MORE="--ulimit …"
	@command -v $(firstword $(or $(PODMAN),podman)) >/dev/null || { echo "container: podman is needed: apt-get install podman" >&2; exit 1; }
	@echo "container: building the image fleet-node"
	@rm -rf dist && $(BIN)/python -m hatchling build --target wheel >/dev/null
	@$(or $(PODMAN),podman) build --tag fleet-node --build-arg BASE=$(or $(BASE),debian:12-slim) . >/dev/null || \
		{ echo "container: could not build the image; without a registry, set BASE to a local image" >&2; exit 1; }
	@$(BARE) $(BIN)/python -B -m chaos.container --podman "$(or $(PODMAN),podman)" --more "$(MORE)"

bench: $(READY) ## measure cost compared with plain git, up to 100,000 files; SMALL=1 for 10,000, ONLY=GROUP for one group of rows
	@echo "bench: compared with plain git; docs/internals/benchmarks.md explains the figures"
	@$(BARE) $(BIN)/python -B -m bench $(ONLY) $(if $(SMALL),--small)

eval: $(READY) ## score the prompts on eight small repositories; AGAINST=FOLDER or COMMIT compares, KEY_FILE=FILE BUDGET=USD for real models
	@$(BARE) $(BIN)/python -B -m evaluation $(if $(KEY_FILE),--key-file "$(KEY_FILE)" $(if $(BUDGET),--budget "$(BUDGET)"),--simulated) \
		$(if $(AGAINST),--against "$(AGAINST)") $(if $(SEEDS),--seeds "$(SEEDS)") $(if $(KEEP),--keep "$(KEEP)")

chaos: $(READY) ## play a thousand scripted faults and count those recovered without a human; tend 20 pull requests with 100 kills; SMALL=1 for a sample
	@echo "chaos: the real program against a simulated model; docs/internals/reliability.md explains the table"
	@$(BARE) $(BIN)/python -B -m chaos.rates $(if $(SMALL),--episodes 24 --unrecoverable 1) --jobs $(or $(JOBS),2) --seed $(or $(SEED),1)
	@$(BARE) $(BIN)/python -B -m chaos.forge $(if $(SMALL),--pulls 4 --kills 8) --jobs $(or $(JOBS),2) --seed $(or $(SEED),1)

nodes: $(READY) ## test nodes over SSH: faulty and lying nodes, kills, 120 subtasks on three hosts; SUBTASKS=30 HOSTS=2 for less
	@echo "nodes: real nodes, real SSH servers in network namespaces (root, openssh-server and iproute2 are needed)"
	@$(BARE) $(BIN)/python -B -m chaos.over_ssh
	@$(BARE) $(BIN)/python -B -m chaos.node_levels --jobs $(or $(JOBS),1)
	@$(BARE) $(BIN)/python -B -m chaos.node_kills
	@$(BARE) $(BIN)/python -B -m chaos.nodes --subtasks $(or $(SUBTASKS),120) --hosts $(or $(HOSTS),3)

docs: $(READY) ## generate docs/reference from the code
	@$(BARE) $(BIN)/python -B -m scripts.reference

docs-site: $(READY) ## build the documentation as a website with search, in site/: offline, and strict about pages and links
	@$(BARE) $(BIN)/python -B -m scripts.docs_site

pictures: $(READY) ## make the pictures of README and docs from the demo, in minutes; DEMO=FOLDER reuses a demo
	@$(BARE) $(BIN)/python -B -m scripts.pictures $(if $(DEMO),--demo "$(DEMO)")

lint: $(READY) ## check for mistakes (ruff)
	@echo "lint: ruff check"
	@$(BIN)/ruff check --quiet $(CODE)

format: $(READY) ## format the code
	@$(BIN)/ruff format $(CODE)

format-check: $(READY) ## check the format of the code
	@echo "format: ruff format --check"
	@$(BIN)/ruff format --quiet --check $(CODE)

types: $(READY) ## check the types (mypy --strict)
	@echo "types: mypy --strict"
	@$(BIN)/mypy --strict --explicit-package-bases --no-error-summary $(CODE)

coverage: $(READY) ## measure branch coverage of fleet/core by its own tests: at least 95 %
	@echo "coverage: fleet/core"
	@$(BARE) $(BIN)/coverage run -m pytest -qq -m "" tests/fleet/core
	@$(BIN)/coverage report

check: format-check lint types coverage test-all ## check everything: format, lint, types, coverage of the core, all tests

lock: ## pin the newest packages allowed by pyproject.toml, with hashes, in requirements/
	@echo "lock: fetching uv into a temporary folder"
	@set -e; folder=$$(mktemp -d); trap 'rm -rf "$$folder"' EXIT; \
		"$(PYTHON)" -m venv "$$folder/venv"; \
		"$$folder/venv/bin/python" -m pip --disable-pip-version-check --quiet install uv; \
		echo "lock: resolving"; \
		"$$folder/venv/bin/uv" pip compile pyproject.toml --group dev --generate-hashes --no-header --no-emit-index-url \
			--no-emit-find-links --no-annotate -p 3.11 --universal -q -o requirements/dev.txt; \
		"$$folder/venv/bin/uv" pip compile pyproject.toml --group dev --extra ray --generate-hashes --no-header --no-emit-index-url \
			--no-emit-find-links --no-annotate -p 3.11 --universal -q -c requirements/dev.txt -o requirements/ray.txt; \
		"$$folder/venv/bin/uv" pip compile requirements/collector.in --generate-hashes --no-header --no-emit-index-url \
			--no-emit-find-links --no-annotate -p 3.11 --universal -q -o requirements/collector.txt
	@echo "lock: requirements/dev.txt, ray.txt and collector.txt are written; make setup, make ray and make collector install them"

clean: ## remove everything that make creates: .venv, caches, the demo's folder
	rm -rf .venv .pythons .demo .claude-code .acp-agents .collector .ray build dist site .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
