# slipway.inference: the commands for the demo and for development. `make help` lists the targets.
SHELL := /bin/bash -o pipefail
.DEFAULT_GOAL := help

VENV := .venv
BIN := $(VENV)/bin
PYTHON ?= $(firstword $(foreach name,python3.11 python3.12 python3.13 python3,$(shell command -v $(name) 2>/dev/null)))
COLLECTIONS := $(CURDIR)/$(VENV)/collections
CACHE ?= $(or $(SLIPWAY_CACHE),$(or $(XDG_CACHE_HOME),$(HOME)/.cache)/slipway)
export SLIPWAY_CACHE := $(CACHE)
export ANSIBLE_COLLECTIONS_PATH := $(COLLECTIONS)
export ANSIBLE_CONFIG := $(CURDIR)/ansible.cfg
export PATH := $(CURDIR)/$(BIN):$(PATH)

.PHONY: help
help: ## List the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-14s %s\n", $$1, $$2}'

# --- requirements of the other targets -------------------------------------------------------------------------------------

$(VENV)/.ready: requirements/dev.txt requirements/build.txt
	@test -n "$(PYTHON)" || { echo "error: Python 3.11 or newer is missing. Install it, or set PYTHON to its path."; exit 1; }
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "error: $(PYTHON) is older than 3.11. Set PYTHON to the path of a newer one."; exit 1; }
	@echo "Installing Python packages into $(VENV) (about a minute)"
	@"$(PYTHON)" -m venv $(VENV) || { echo "error: python3-venv is missing. Install it, and run make again."; exit 1; }
	@$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes --only-binary :all: --requirement requirements/build.txt
	@$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes --no-build-isolation --requirement requirements/dev.txt
	@touch $@

$(COLLECTIONS)/.ready: $(VENV)/.ready scripts/collections.sh requirements/collections.txt
	@scripts/collections.sh $(COLLECTIONS)
	@mkdir -p $(COLLECTIONS)/ansible_collections/slipway
	@ln -sfn $(CURDIR) $(COLLECTIONS)/ansible_collections/slipway/inference
	@touch $@

.PHONY: setup
setup: $(COLLECTIONS)/.ready ## Install the Python packages and collections that the checkout uses

# Ansible prints nothing until a task ends, and these can take minutes on the first run, so they run first and show progress.
include images/versions.env
PUBLIC_IMAGES := $(NODE_IMAGE) $(HAPROXY_IMAGE) $(LLAMACPP_IMAGE) $(PYTHON_IMAGE)
.PHONY: docker public-images
docker:
	@scripts/docker.sh
public-images: docker
	@images/public.sh auto $(PUBLIC_IMAGES)

# --- the product ------------------------------------------------------------------------------------------------------

# The roles and plays of each stage. ANSIBLE_STDOUT_CALLBACK=default prints every task instead.
DEMO_STAGES := cluster=local_cluster,images=images+Prepare images and weights,checks=preflight,APIs=crds,controller,gateway,models=hub+models,answers=Ask the models
.PHONY: demo demo-settings free-port free-cache
# Checked before images are built for minutes.
free-port:
	@scripts/port.sh $(VARS)
demo-settings: setup
	@$(BIN)/python scripts/demo_settings.py --tags "$(TAGS)" --stages "$(DEMO_STAGES)" $(if $(VARS),--vars "$(VARS)")
# Ansible prints nothing while a role waits for another build.
free-cache:
	@scripts/cache.sh

# The demo itself sends requests to its models, so it skips the tag verify. A run with TAGS needs no public images.
demo: free-port setup demo-settings $(if $(TAGS),docker,public-images) free-cache ## Create a cluster, install Slipway and send a question to its models
	@ANSIBLE_STDOUT_CALLBACK=$${ANSIBLE_STDOUT_CALLBACK:-slipway.inference.stages} \
	  SLIPWAY_STAGES_LOG=$${SLIPWAY_STAGES_LOG:-$(CACHE)/demo.log} SLIPWAY_STAGES="$(DEMO_STAGES)" \
	  ansible-playbook playbooks/demo.yml --skip-tags verify $(if $(TAGS),--tags $(TAGS)) $(if $(VARS),-e @$(VARS))

.PHONY: cold
cold: ## Run the demo without caches, as on a new machine, and print the time of each step
	@scripts/cold.sh

.PHONY: uninstall
uninstall: setup ## Uninstall Slipway from the demo's cluster
	@export K8S_AUTH_KUBECONFIG=$${K8S_AUTH_KUBECONFIG:-$$HOME/.kube/slipway.config}; ansible-playbook playbooks/uninstall.yml

# --- checks -----------------------------------------------------------------------------------------------------------

# The sanity tests that CI runs. `make matrix` runs all of them with every supported ansible-core.
# pep8, yamllint and shellcheck are skipped, because ruff, yamllint and shellcheck below check the same files and more.
# pylint is the slowest, so it only checks plugins; ruff's pylint rules and mypy check the rest. The oldest ansible-core only
# runs the tests whose result depends on it: plugins compile, can be imported, and have documentation that it can read.
ANSIBLE_CONTENT := meta/ playbooks/ plugins/ roles/ tests/unit/plugins/
NEWEST_SKIPS := $(addprefix --skip-test ,pylint pep8 yamllint shellcheck)
OLDEST_TESTS := $(addprefix --test ,compile import validate-modules)

.PHONY: lint lint-code lint-collection lint-sanity
# Two jobs, because ansible-lint takes more than half of the time and mostly uses one core.
lint: setup ## Check style, types, imports and the collection's rules
	@$(MAKE) --no-print-directory --jobs 2 --output-sync=target lint-code lint-collection lint-sanity

# mypy's cache is outside the checkout, so a new clone can use it. The lock prevents concurrent writes by two checkouts.
lint-code:
	ruff check .
	ruff format --check .
	@mkdir -p $(CACHE)
	flock $(CACHE)/mypy.lock mypy --cache-dir $(CACHE)/mypy
	PYTHONPATH=src lint-imports --no-cache
	yamllint --strict .
	shellcheck $$(git ls-files '*.sh' .ci/run)
	reuse lint --lines

# ansible-lint starts Ansible for each playbook, and four of five are in molecule/, so the lane scenarios checks those.
lint-collection:
	antsibull-changelog lint
	antsibull-docs lint-collection-docs --plugin-docs --skip-rstcheck --validate-collection-refs=all .
	ansible-lint --offline --profile production --exclude molecule/

lint-sanity:
	scripts/ansible-test.sh sanity newest $(NEWEST_SKIPS) $(ANSIBLE_CONTENT)
	scripts/ansible-test.sh sanity newest --test pylint plugins/
	scripts/ansible-test.sh sanity oldest $(OLDEST_TESTS) plugins/

# Every test of ansible-test, on every file of the checkout.
.PHONY: matrix
matrix: setup ## Run ansible-test's sanity and unit tests with every supported ansible-core
	scripts/ansible-test.sh sanity
	scripts/ansible-test.sh units

.PHONY: prepare
prepare: setup ## Download the dependencies of lint and matrix, so that both run without a network
	scripts/ansible-test.sh prepare

.PHONY: test unit plugins
test: setup docker ## Run CI's tests on a temporary cluster
	scripts/lanes.py ci

unit: setup docker ## Run CI's unit tests
	scripts/lanes.py ci units

plugins: setup docker ## Run the plugins' unit tests with the latest ansible-core, and measure their coverage
	scripts/lanes.py ci plugins

.PHONY: test-all
test-all: setup docker ## Run all lanes, the tests that are too slow for CI (hours)
	scripts/lanes.py run --all

.PHONY: molecule
molecule: setup docker ## Run all Molecule scenarios
	scripts/lanes.py run 'molecule-*'

.PHONY: engines
engines: setup docker ## Test real engines behind the gateway, on a separate cluster (half an hour, up to 22 GB)
	scripts/engines.sh

# PARTS="loader/run registry/run" measures these, PARTS=--quick tries all.
.PHONY: bench
bench: setup public-images ## Measure gateway, controller, loader and modules beside their peers (hours)
	@images/public.sh auto $(REGISTRY_IMAGE)
	scripts/bench.sh $(PARTS)

# --- generated files --------------------------------------------------------------------------------------------------

.PHONY: generate
generate: setup ## Generate the CRDs, the data on APIs and engines, the page's advice, and the reference and code map pages
	PYTHONPATH=src python -m slipway crds roles/crds/files
	PYTHONPATH=src python -m slipway apis .
	PYTHONPATH=src python -m slipway engines roles/monitoring/vars/main/engines.yml
	python scripts/advice.py
	python scripts/reference.py
	python scripts/package_map.py
	ruff format --quiet plugins/module_utils/_advice_data.py

.PHONY: requirements
COMPILE := pip-compile --quiet --upgrade --generate-hashes --no-emit-index-url --no-emit-find-links --strip-extras
requirements: setup ## Update the pinned requirements and their hashes
	$(COMPILE) --output-file requirements/runtime.txt requirements/runtime.in
	$(COMPILE) --output-file tests/standins/requirements.txt tests/standins/requirements.in
	$(COMPILE) --allow-unsafe --output-file requirements/build.txt requirements/build.in
	$(COMPILE) --allow-unsafe --output-file requirements/dev.txt requirements/dev.in
	$(COMPILE) --output-file images/closed-network/python/sglang-router.txt images/closed-network/python/sglang-router.in
	$(COMPILE) --output-file images/closed-network/python/genai-bench.txt images/closed-network/python/genai-bench.in
	$(COMPILE) --allow-unsafe --output-file images/closed-network/python/infinity.txt images/closed-network/python/infinity.in
	$(COMPILE) --allow-unsafe --output-file images/closed-network/python/faster-whisper.txt images/closed-network/python/faster-whisper.in
	scripts/without-cuda.sh images/closed-network/python/infinity.txt
	scripts/vllm-requirements.sh
	scripts/matrix-requirements.sh --upgrade

.PHONY: clean
clean: ## Delete everything built in this checkout, and the clusters of the demo and of all checkouts' tests; ~/.cache/slipway stays
	@rm -rf $(VENV) .cache build dist .mypy_cache .ruff_cache .pytest_cache tests/output *.tar.gz
	@scripts/clean.sh
