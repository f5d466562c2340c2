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
  - Makes, changes or deletes any number of inference services, and the models that they serve, in one task and waits
    until all of them are ready.
  - All are checked by the API server before the first is written. They are written by server-side apply, with the
    field manager C(slipway.inference), so fields that others set are left alone. Models are written before services,
    and services are deleted before models.
  - All of them are waited for together, by watch, under one deadline. The task ends at once when one has failed for
    good, and says why. A service that waits for its model, or for a GPU that others have, is waited for.
  - A service that is asked for no replicas, or is suspended, is as it should be once its pods are gone. So is one whose
    model is computed by a Mac outside of the cluster. Such a service does not fail the task, and is not C(ready).
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
      - The API server is asked to check the change without making it.
      - Where the definition of the API or the namespace is missing, the change is predicted, with a warning.
  diff_mode:
    support: full
    details: Shows the fields that this module owns. Secrets are masked.
  idempotent:
    support: full
options:
  inference_services:
    description:
      - The services. Each is described either by O(inference_services[].name), O(inference_services[].namespace),
        O(inference_services[].labels), O(inference_services[].annotations) and O(inference_services[].spec), or as a
        whole manifest.
      - An empty list is allowed; then there are only O(models).
    type: list
    elements: dict
    suboptions:
      name:
        description: Name of the service. The gateway serves it under this name.
        type: str
      namespace:
        description: Namespace of the service. Falls back to O(namespace).
        type: str
      labels:
        description: Labels of the service.
        type: dict
      annotations:
        description: Annotations of the service.
        type: dict
      spec:
        description: Spec of the service, as its API defines it. Not needed to delete it.
        type: dict
      api_version:
        description: C(apiVersion) of a manifest. It has to be that of O(api).
        type: str
        aliases: [apiVersion]
      kind:
        description: Kind of a manifest. It has to be C(InferenceService).
        type: str
      metadata:
        description: Metadata of a manifest, with C(name), C(namespace), C(labels), C(annotations).
        type: dict
      status:
        description: Ignored. Allowed so that objects that were read from a cluster are accepted.
        type: dict
  name:
    description: Name of a single service, instead of O(inference_services).
    type: str
  namespace:
    description:
      - Namespace of the single service, or of those in O(inference_services) and O(models) that name none. It has to
        exist.
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
  - O(wait_for) speaks of the services. For O(models) it is always waited until they are ready.
  - A failure of a service whose model is among O(models) counts only when it is still there a few seconds after the
    model has become ready. Until then it may be about what the model was before the task.
  - The namespaces are not made by this module; M(kubernetes.core.k8s) makes them.
  - The account needs the verbs C(get), C(list), C(watch), C(create), C(patch) and C(delete) on the services and models,
    and, to explain failures, C(list) on events and pods and C(get) on C(pods/log) in their namespaces.
  - The values of environment variables that look like secrets by their names are masked in all output. It is better to
    name a Secret by C(valueFrom).
seealso:
  - module: slipway.inference.inference_service_info
  - module: slipway.inference.model
"""

EXAMPLES = r"""
- name: Register a model and a service, and wait until it answers
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

- name: Show where it answers
  ansible.builtin.debug:
    msg: "{{ registered.results | selectattr('kind', 'eq', 'InferenceService') | map(attribute='url') }}"

- name: Register all that a file with manifests of both kinds describes
  vars:
    manifests: "{{ lookup('ansible.builtin.file', 'llmkube.yaml') | from_yaml_all | select }}"
  slipway.inference.inference_service:
    models: "{{ manifests | selectattr('kind', 'eq', 'Model') }}"
    inference_services: "{{ manifests | selectattr('kind', 'eq', 'InferenceService') }}"
    wait_timeout: 3600

- name: Go on as soon as a service waits for a GPU, or has one
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

- name: Serve a model of OME with a runtime that the cluster chooses
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

- name: Stop a service, and keep it
  slipway.inference.inference_service:
    name: qwen2-0-5b
    namespace: models
    spec:
      modelRef: qwen2-0-5b
      contextSize: 4096
      replicas: 0

- name: Remove a service and its model, and wait until pods and weights are gone
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
    - What came of each model and each service, in the order of the task, models first.
    - If the task fails, it has no RV(results[].conditions), RV(results[].events) and RV(results[].log) without C(-v).
      Of what failed, it has no RV(results[].drift), RV(results[].phase), RV(results[].url) or RV(results[].waited).
  returned: always, as far as the task came
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
      description: Whether it was changed. What its controller writes into the status does not count.
      returned: always
      type: bool
    ready:
      description:
        - Whether it runs as described and answers; of a model, whether services can be started with it.
        - V(false) for a service that is stopped or suspended, or that a Mac outside of the cluster has to serve.
      returned: unless O(state=absent) or the API server refused it
      type: bool
    phase:
      description: Phase of the object; empty as long as no controller has seen it.
      returned: unless O(state=absent) or the API server refused it
      type: str
      sample: Ready
    url:
      description: Address that the status of a service names. Empty for a model.
      returned: unless O(state=absent) or the API server refused it
      type: str
      sample: http://qwen2-0-5b.models.svc.cluster.local:8080/v1/chat/completions
    waiting_for:
      description: Resource that a service waits for, and how many of it. Empty while it waits for none.
      returned: for a service unless O(state=absent) or the API server refused it
      type: str
      sample: 'nvidia.com/gpu: 4'
    queue_position:
      description: Place of a service among all that wait for that resource, from 1 on. V(0) while it waits for none.
      returned: for a service unless O(state=absent) or the API server refused it
      type: int
      sample: 2
    nodes_ready:
      description: Nodes that have the files of a model.
      returned: for a model of OME
      type: list
      elements: str
      version_added: 0.5.0
    nodes_failed:
      description: Nodes that could not get the files of a model.
      returned: for a model of OME
      type: list
      elements: str
      version_added: 0.5.0
    reason:
      description: Why it is not ready, in one word; empty when it is.
      returned: unless O(state=absent) or the API server refused it, and when it was not gone in time
      type: str
      sample: WaitingForGPU
    message:
      description: Why it is not ready, or was refused, in words; empty when it is ready.
      returned: unless O(state=absent), and when it could not be deleted
      type: str
    conditions:
      description: Conditions in the status, as RV(slipway.inference.model#module:results[].conditions).
      returned: unless O(state=absent) or the API server refused it
      type: list
      elements: dict
    drift:
      description:
        - What somebody else has changed of the fields that the task describes, as
          RV(slipway.inference.model#module:results[].drift).
      returned: unless O(state=absent)
      type: list
      elements: dict
      version_added: 0.5.0
    waited:
      description: Seconds until it was ready, failed or gone.
      returned: unless the API server refused it
      type: float
      sample: 12.4
    error_code:
      description: As RV(error_code), for this object.
      returned: when it is among those that made the task fail
      type: str
    events:
      description:
        - Newest events of the object and of its newest pod that is not ready, the newest last, as
          RV(slipway.inference.model#module:results[].events).
      returned: for the first three objects that made a wait fail
      type: list
      elements: dict
    log:
      description: Last lines that the engine, or the loader, in that pod has logged.
      returned: for the first three objects that made a wait fail
      type: list
      elements: str
error_code:
  description: What kind of failure it was, as RV(slipway.inference.model#module:error_code).
  returned: on failure
  type: str
  sample: failed
hint:
  description: What to do about it, as at the end of C(msg). May be empty. Without C(-v), it is empty if objects failed.
  returned: on failure
  type: str
status:
  description: HTTP status that the API server answered; V(0) if it is not about an answer.
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
