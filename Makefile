# slipway.inference: everything that a developer or a first visitor runs. `make help` lists the targets.
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

# --- what the other targets need -------------------------------------------------------------------------------------

$(VENV)/.ready: requirements/dev.txt requirements/build.txt
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer is needed: install it, or name it with PYTHON=..."; exit 1; }
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "$(PYTHON) is older than 3.11: name a newer one with PYTHON=..."; exit 1; }
	@echo "Installing the Python packages into $(VENV) (a minute)"
	@"$(PYTHON)" -m venv $(VENV) || { echo "python3-venv is missing"; exit 1; }
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

# Ansible shows nothing until a task ends, and these may take minutes the first time: so they come before it, with progress.
include images/versions.env
PUBLIC_IMAGES := $(NODE_IMAGE) $(HAPROXY_IMAGE) $(LLAMACPP_IMAGE) $(PYTHON_IMAGE)
.PHONY: docker public-images
docker:
	@scripts/docker.sh
public-images: docker
	@images/public.sh auto $(PUBLIC_IMAGES)

# --- the product ------------------------------------------------------------------------------------------------------

# Each stage with its roles and plays. ANSIBLE_STDOUT_CALLBACK=default shows every task instead.
DEMO_STAGES := cluster=local_cluster,images=images+Prepare images and weights,checks=preflight,APIs=crds,controller,gateway,models=hub+models,answers=Ask the models
.PHONY: demo free-port free-cache
# Before minutes of building.
free-port:
	@scripts/port.sh $(VARS)
# Ansible would show nothing while a role waits for another build.
free-cache:
	@scripts/cache.sh

# The demo asks its models itself, so it skips the tag verify. A run that changes a single part needs no images.
demo: free-port setup $(if $(TAGS),docker,public-images) free-cache ## Bring up a cluster, install everything and ask a model a question
	@ANSIBLE_STDOUT_CALLBACK=$${ANSIBLE_STDOUT_CALLBACK:-slipway.inference.stages} \
	  SLIPWAY_STAGES_LOG=$${SLIPWAY_STAGES_LOG:-$(CACHE)/demo.log} SLIPWAY_STAGES="$(DEMO_STAGES)" \
	  ansible-playbook playbooks/demo.yml --skip-tags verify $(if $(TAGS),--tags $(TAGS)) $(if $(VARS),-e @$(VARS))

.PHONY: cold
cold: ## Run the demo with every cache empty and elsewhere, and print the time of each step
	@scripts/cold.sh

.PHONY: uninstall
uninstall: setup ## Take everything off the demo's cluster again
	@export K8S_AUTH_KUBECONFIG=$${K8S_AUTH_KUBECONFIG:-$$HOME/.kube/slipway.config}; ansible-playbook playbooks/uninstall.yml

# --- checks -----------------------------------------------------------------------------------------------------------

# CI's part of what ansible-test finds. The rest of it runs whole, with every ansible-core that is supported, in `make matrix`.
# pep8, yamllint and shellcheck: ruff, yamllint and shellcheck below read the same files and more. pylint takes longest, and
# outside of plugins ruff's rules of the same name and mypy stand in for it. The oldest ansible-core is asked only for what
# depends on it: whether plugins compile and import there, and whether it understands their documentation.
ANSIBLE_CONTENT := meta/ playbooks/ plugins/ roles/ tests/unit/plugins/
NEWEST_SKIPS := $(addprefix --skip-test ,pylint pep8 yamllint shellcheck)
OLDEST_TESTS := $(addprefix --test ,compile import validate-modules)

.PHONY: lint lint-code lint-collection lint-sanity
# Two jobs: ansible-lint is more than half of the work and waits much of its time for one core only.
lint: setup ## Check style, types, imports and the collection's rules
	@$(MAKE) --no-print-directory --jobs 2 --output-sync=target lint-code lint-collection lint-sanity

# mypy's cache is outside the checkout, so that a fresh clone has it. The lock keeps two checkouts from writing it at once.
lint-code:
	ruff check .
	ruff format --check .
	@mkdir -p $(CACHE)
	flock $(CACHE)/mypy.lock mypy --cache-dir $(CACHE)/mypy
	PYTHONPATH=src lint-imports --no-cache
	yamllint --strict .
	shellcheck $$(git ls-files '*.sh' .ci/run)
	reuse lint --lines

# The lane scenarios lints molecule/: ansible-lint starts Ansible for each playbook, and four of five are there.
lint-collection:
	antsibull-changelog lint
	antsibull-docs lint-collection-docs --plugin-docs --skip-rstcheck --validate-collection-refs=all .
	ansible-lint --offline --profile production --exclude molecule/

lint-sanity:
	scripts/ansible-test.sh sanity newest $(NEWEST_SKIPS) $(ANSIBLE_CONTENT)
	scripts/ansible-test.sh sanity newest --test pylint plugins/
	scripts/ansible-test.sh sanity oldest $(OLDEST_TESTS) plugins/

# Whole: every test of ansible-test on every file of the checkout.
.PHONY: matrix
matrix: setup ## Check and unit-test everything with every ansible-core that is supported
	scripts/ansible-test.sh sanity
	scripts/ansible-test.sh units

.PHONY: prepare
prepare: setup ## Fetch what lint and matrix need, so that they run without a network afterwards
	scripts/ansible-test.sh prepare

.PHONY: test unit plugins
test: setup docker ## Run the tests of CI, on a cluster that is made and removed for them
	scripts/lanes.py ci

unit: setup docker ## Run CI's unit tests
	scripts/lanes.py ci units

plugins: setup docker ## Run the unit tests of the plugins with the newest ansible-core, and measure what they cover
	scripts/lanes.py ci plugins

.PHONY: test-all
test-all: setup docker ## Run all lanes, the tests that CI has no time for (hours)
	scripts/lanes.py run --all

.PHONY: molecule
molecule: setup docker ## Run all Molecule scenarios
	scripts/lanes.py run 'molecule-*'

.PHONY: engines
engines: setup docker ## Run real engines behind the gateway, on a separate cluster (an hour, 30 GB)
	scripts/engines.sh

.PHONY: bench
bench: setup public-images ## Measure gateway, controller, loader and modules beside their peers
	scripts/bench.sh

# --- generated files --------------------------------------------------------------------------------------------------

.PHONY: generate
generate: setup ## Write the definitions, what roles and modules know of APIs and engines, the page's advice, and the map of packages
	PYTHONPATH=src python -m slipway crds roles/crds/files
	PYTHONPATH=src python -m slipway apis .
	PYTHONPATH=src python -m slipway engines roles/monitoring/vars/main/engines.yml
	python scripts/advice.py
	python scripts/reference.py
	python scripts/package_map.py
	ruff format --quiet plugins/module_utils/_advice_data.py

.PHONY: requirements
COMPILE := pip-compile --quiet --upgrade --generate-hashes --no-emit-index-url --no-emit-find-links --strip-extras
requirements: setup ## Resolve the pinned requirements anew, with the hashes of all their files
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
clean: ## Remove the local clusters and everything built in the checkout; caches outside of it stay
	@if [ -e $(COLLECTIONS)/.ready ] && docker info > /dev/null 2>&1; then \
	  for name in slipway slipway-test slipway-gpu slipway-engines slipway-streams; do ansible-playbook playbooks/local.yml -e local_cluster_state=absent -e local_cluster_name=$$name; done; fi
	@rm -rf $(VENV) .cache build dist .mypy_cache .ruff_cache .pytest_cache tests/output *.tar.gz
