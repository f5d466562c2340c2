#!/usr/bin/python

# Copyright: (c) 2026, The slipway.inference authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: inference_service
short_description: Apply inference services with their models, and wait until they answer
version_added: 0.3.0
author:
  - The slipway.inference authors (@slipway)
description:
  - Creates, updates or deletes any number of inference services and their models in one task, and waits until all of
    them are ready.
  - The API server checks all objects before the first one is written. Objects are written by server-side apply with the
    field manager C(slipway.inference), so fields of other managers do not change. Models are written before services,
    and services are deleted before models.
  - The task watches all objects at the same time, with one deadline. When one fails permanently, the task fails at once
    and reports the cause. Waiting for a model or for a GPU is not a failure.
  - The task does not wait for services that are stopped or suspended, or that are served by a Mac outside of the
    cluster, to be ready. It waits until the pods of stopped and suspended services are gone. None of them is C(ready).
extends_documentation_fragment:
  - slipway.inference.apis.of_services
  - slipway.inference.k8s_auth
  - slipway.inference.models
  - slipway.inference.state
  - slipway.inference.attributes
attributes:
  check_mode:
    support: full
    details:
      - Sends the change to the API server as a dry run.
      - If the CRD or the namespace is missing, predicts the change and prints a warning.
  diff_mode:
    support: full
    details: Shows the fields that the module owns. Secrets are masked.
  idempotent:
    support: full
options:
  inference_services:
    description:
      - The services. Each is either a complete manifest, or O(inference_services[].name),
        O(inference_services[].namespace), O(inference_services[].labels), O(inference_services[].annotations) and
        O(inference_services[].spec).
      - An empty list is allowed.
    type: list
    elements: dict
    suboptions:
      name:
        description: Name of the service, and its model ID at the gateway.
        type: str
      namespace:
        description: Namespace of the service. Defaults to O(namespace).
        type: str
      labels:
        description: Labels of the service.
        type: dict
      annotations:
        description: Annotations of the service.
        type: dict
      spec:
        description: Spec of the service according to its API. Not needed to delete it.
        type: dict
      api_version:
        description: C(apiVersion) of a manifest. It must match O(api).
        type: str
        aliases: [apiVersion]
      kind:
        description: Kind of a manifest. It must be C(InferenceService).
        type: str
      metadata:
        description: Metadata of a manifest, with C(name), C(namespace), C(labels), C(annotations).
        type: dict
      status:
        description: Ignored, so objects that were read from a cluster are accepted.
        type: dict
  name:
    description: Name of a single service, instead of O(inference_services).
    type: str
  namespace:
    description:
      - Namespace of the single service, and of entries in O(inference_services) and O(models) without a namespace. It
        must exist.
    type: str
  labels:
    description: Labels of a single service.
    type: dict
  annotations:
    description: Annotations of a single service.
    type: dict
  spec:
    description: Spec of a single service.
    type: dict
notes:
  - O(wait_for) applies to the services. The task always waits until the O(models) are ready.
  - If a service's model is in O(models), a failure of the service only counts if it persists for a few seconds after
    the model is ready. Before that, it can be caused by the previous model.
  - The module does not create namespaces. Create them with M(kubernetes.core.k8s).
  - The account needs the verbs C(get), C(list), C(watch), C(create), C(patch) and C(delete) on the services and models.
    To explain failures, it also needs C(list) on events and pods and C(get) on C(pods/log) in their namespaces.
  - Values of environment variables with names that suggest secrets are masked in all output. Prefer a Secret in
    C(valueFrom).
seealso:
  - module: slipway.inference.inference_service_info
  - module: slipway.inference.model
"""

EXAMPLES = r"""
- name: Register a model and a service, and wait until the service answers
  slipway.inference.inference_service:
    namespace: models
    models:
      - name: qwen2-0-5b
        spec:
          source: https://huggingface.co/Qwen/Qwen2.5-0.5B-Instruct-GGUF/resolve/main/qwen2.5-0.5b-instruct-q4_k_m.gguf
    inference_services:
      - name: qwen2-0-5b
        spec:
          modelRef: qwen2-0-5b
          contextSize: 4096
  register: registered

- name: Show its URL
  ansible.builtin.debug:
    msg: "{{ registered.results | selectattr('kind', 'eq', 'InferenceService') | map(attribute='url') }}"

- name: Register models and services from one file of manifests
  vars:
    manifests: "{{ lookup('ansible.builtin.file', 'llmkube.yaml') | from_yaml_all | select }}"
  slipway.inference.inference_service:
    models: "{{ manifests | selectattr('kind', 'eq', 'Model') }}"
    inference_services: "{{ manifests | selectattr('kind', 'eq', 'InferenceService') }}"
    wait_timeout: 3600

- name: Continue as soon as a service has a GPU or waits for one
  slipway.inference.inference_service:
    name: llama-3-70b
    namespace: models
    spec:
      modelRef: llama-3-70b
      runtime: vllm
      priority: batch
      resources: {gpu: 4}
    wait_for:
      - field: status.phase
        in: [WaitingForGPU, Creating, Ready]

- name: Serve an OME model with an automatically selected runtime
  slipway.inference.inference_service:
    api: ome
    namespace: chat
    models:
      - name: llama-3-2-1b-instruct
        kind: ClusterBaseModel
        spec:
          storage:
            storageUri: hf://meta-llama/Llama-3.2-1B-Instruct
            path: /raid/models/meta/llama-3-2-1b-instruct
    inference_services:
      - name: chat
        spec:
          model:
            name: llama-3-2-1b-instruct
          engine:
            minReplicas: 1

- name: Stop a service without deleting it
  slipway.inference.inference_service:
    name: qwen2-0-5b
    namespace: models
    spec:
      modelRef: qwen2-0-5b
      contextSize: 4096
      replicas: 0

- name: Delete a service and its model, and wait until pods and weights are gone
  slipway.inference.inference_service:
    namespace: models
    models:
      - name: qwen2-0-5b
    inference_services:
      - name: qwen2-0-5b
    state: absent
"""

RETURN = r"""
results:
  description:
    - Result for each model and each service, in the order of the task, models first.
    - If the task fails, RV(results[].conditions), RV(results[].events) and RV(results[].log) are only returned with
      C(-v). Failed entries do not contain RV(results[].drift), RV(results[].phase), RV(results[].url) and
      RV(results[].waited).
  returned: always, for the entries that were processed
  type: list
  elements: dict
  contains:
    kind:
      description: Kind of the object, such as V(Model) or V(InferenceService).
      returned: always
      type: str
      sample: InferenceService
    name:
      description: Name of the object.
      returned: always
      type: str
      sample: qwen2-0-5b
    namespace:
      description: Namespace of the object.
      returned: always
      type: str
      sample: models
    changed:
      description: Whether the task changed it. Status changes do not count.
      returned: always
      type: bool
    ready:
      description:
        - Whether it runs with the described spec and answers. For a model, whether services can start with it.
        - V(false) for services that are stopped or suspended, or that are served by a Mac outside of the cluster.
      returned: unless O(state=absent) or the API server rejected it
      type: bool
    phase:
      description: Phase of the object. Empty until a controller has reconciled it.
      returned: unless O(state=absent) or the API server rejected it
      type: str
      sample: Ready
    url:
      description: URL in the status of a service. Empty for a model.
      returned: unless O(state=absent) or the API server rejected it
      type: str
      sample: http://qwen2-0-5b.models.svc.cluster.local:8080/v1/chat/completions
    waiting_for:
      description: Resource and amount that a service waits for. Empty if it waits for none.
      returned: for services unless O(state=absent) or the API server refused it
      type: str
      sample: 'nvidia.com/gpu: 4'
    queue_position:
      description: Position of a service in the queue for that resource, starting with 1. V(0) if it waits for none.
      returned: for services unless O(state=absent) or the API server refused it
      type: int
      sample: 2
    nodes_ready:
      description: Nodes with the model's files.
      returned: for OME models
      type: list
      elements: str
      version_added: 0.5.0
    nodes_failed:
      description: Nodes on which the download failed.
      returned: for OME models
      type: list
      elements: str
      version_added: 0.5.0
    reason:
      description: Reason why it is not ready, as one word. Empty if it is ready.
      returned: unless O(state=absent) or the API server rejected it, and if it was not deleted in time
      type: str
      sample: WaitingForGPU
    message:
      description: Explanation why it is not ready or was rejected. Empty if it is ready.
      returned: unless O(state=absent), and if it could not be deleted
      type: str
    conditions:
      description: Conditions in the status, as RV(slipway.inference.model#module:results[].conditions).
      returned: unless O(state=absent) or the API server rejected it
      type: list
      elements: dict
    drift:
      description:
        - Fields of the task that another manager had changed, as RV(slipway.inference.model#module:results[].drift).
      returned: unless O(state=absent)
      type: list
      elements: dict
      version_added: 0.5.0
    waited:
      description: Seconds until it was ready, failed or deleted.
      returned: unless the API server rejected it
      type: float
      sample: 12.4
    error_code:
      description: As RV(error_code), for this object.
      returned: if it made the task fail
      type: str
    events:
      description:
        - Latest events of the object and of its latest pod that is not ready, in chronological order, as
          RV(slipway.inference.model#module:results[].events).
      returned: for the first three objects that made the wait fail
      type: list
      elements: dict
    log:
      description: Last log lines of the engine or the loader in that pod.
      returned: for the first three objects that made the wait fail
      type: list
      elements: str
error_code:
  description: Kind of the failure, as RV(slipway.inference.model#module:error_code).
  returned: on failure
  type: str
  sample: failed
hint:
  description: Suggested fix, or a reference to the one at the end of C(msg). May be empty.
  returned: on failure
  type: str
status:
  description: HTTP status of the API server's response. V(0) if there was none.
  returned: on failure
  type: int
"""

from ansible_collections.slipway.inference.plugins.module_utils._apis import MODELS, SERVICES
from ansible_collections.slipway.inference.plugins.module_utils._task import Module, run_state, state_arguments


def main() -> None:
    module = Module(
        argument_spec={
            "api": {"type": "str", "choices": sorted(SERVICES), "default": next(iter(SERVICES))},
            **state_arguments("models", "inference_services"),
        },
        mutually_exclusive=[("inference_services", name) for name in ("name", "labels", "annotations", "spec")],
        required_one_of=[("inference_services", "name")],
        supports_check_mode=True,
    )
    api = module.params["api"]
    run_state(module, {"models": [MODELS[api]], "inference_services": [SERVICES[api]]})


if __name__ == "__main__":
    main()
