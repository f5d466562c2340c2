#!/usr/bin/python

# Copyright: (c) 2026, The slipway.inference authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: model
short_description: Apply models, and wait until they answer
version_added: 0.1.0
author:
  - The slipway.inference authors (@slipway)
description:
  - Creates, updates or deletes any number of models in one task, and waits until all of them are ready.
  - The API server checks all models before the first one is written. Models are written by server-side apply with the
    field manager C(slipway.inference), so fields of other managers do not change.
  - The task watches all models at the same time. When one fails permanently, the task fails at once and reports the
    cause.
  - A KubeAI Model that is scaled to zero is ready. Its next request starts a replica.
  - An LLMKube Model describes weights. It is ready when services can start with them.
    M(slipway.inference.inference_service) registers it together with its services.
  - A Deckhouse Model is ready when it is published. If its source is an upload, the task also waits for the upload, for
    example by M(slipway.inference.model_upload). Use O(wait_for) to wait only until the upload is open.
extends_documentation_fragment:
  - slipway.inference.apis.of_manifests
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
  name:
    description: Name of a single model, instead of O(models).
    type: str
  kind:
    description:
      - Kind of a single model, for APIs with several kinds of models, such as V(BaseModel) and V(ClusterBaseModel).
      - The default is described under O(models[].kind).
    type: str
    version_added: 0.5.0
  namespace:
    description:
      - Namespace of the single model, and of models in O(models) without a namespace. It must exist.
      - Ignored for cluster-scoped models.
    type: str
  labels:
    description: Labels of a single model.
    type: dict
  annotations:
    description: Annotations of a single model.
    type: dict
  spec:
    description: Spec of a single model. With O(state=patched), only the fields to change.
    type: dict
  prune:
    description:
      - Label selectors. After O(models) are applied, models that match all selectors and are not in O(models) are
        deleted, and the task waits until they are gone.
      - At least one selector must require a label, such as V(team=search). An empty list is rejected.
      - Searches the kinds of O(api), or of the APIs in O(models), in the namespaces of the task and its models.
        Includes cluster-scoped models if O(namespace) is not set or O(models) contains one. Models with a controlling
        owner reference are kept.
      - If O(models) is empty, all matching models are deleted.
      - Check mode and diffs list the models to delete.
    type: list
    elements: str
    version_added: 0.5.0
notes:
  - The module does not create namespaces. Create them with M(kubernetes.core.k8s).
  - The account needs the verbs C(get), C(list), C(watch), C(create), C(patch) and C(delete) on the models. To explain
    failures, it also needs C(list) on events and pods and C(get) on C(pods/log) in their namespaces.
  - Values of environment variables with names that suggest secrets are masked in all output. Prefer a Secret in
    C(envFrom).
seealso:
  - module: slipway.inference.inference_service
  - module: slipway.inference.model_info
  - module: slipway.inference.model_upload
"""

EXAMPLES = r"""
- name: Register two models and wait until both answer
  slipway.inference.model:
    api: krypton
    namespace: models
    models:
      - name: qwen2-0-5b
        spec:
          source:
            huggingface: Qwen/Qwen2.5-0.5B-Instruct-GGUF
            file: qwen2.5-0.5b-instruct-q4_k_m.gguf
      - name: tinyllama-1-1b
        labels:
          team: search
        spec:
          source:
            huggingface: TheBloke/TinyLlama-1.1B-Chat-v1.0-GGUF
            file: tinyllama-1.1b-chat-v1.0.Q4_K_M.gguf
          args: [--ctx-size, "2048"]
  register: registered

- name: Show their URLs
  ansible.builtin.debug:
    msg: "{{ registered.results | items2dict(key_name='name', value_name='url') }}"

- name: Register the models in a file, each with the API in its manifest
  slipway.inference.model:
    models: "{{ lookup('ansible.builtin.file', 'models.yaml') | from_yaml_all }}"
    wait_timeout: 1800

- name: Change one model and continue as soon as the gateway routes to it
  slipway.inference.model:
    name: qwen2-0-5b
    namespace: models
    spec:
      source:
        huggingface: Qwen/Qwen2.5-0.5B-Instruct-GGUF
        file: qwen2.5-0.5b-instruct-q4_k_m.gguf
      minReplicas: 2
    wait_for:
      - condition: Routed

- name: Scale an existing model without changing anything else
  slipway.inference.model:
    name: qwen2-0-5b
    namespace: models
    state: patched
    spec:
      minReplicas: 3

- name: Apply a team's models from a file and delete its other models
  slipway.inference.model:
    namespace: models
    models: "{{ lookup('ansible.builtin.file', 'search.yaml') | from_yaml_all }}"
    prune: [team=search]
  register: applied

- name: Show changes by other managers
  ansible.builtin.debug:
    msg: "{{ item.0.name }}{{ item.1.path }} was {{ item.1.theirs }} by {{ item.1.manager }}, is {{ item.1.ours }}"
  loop: "{{ applied.results | subelements('drift') }}"
  loop_control:
    label: "{{ item.0.name }}"

- name: Remove a model and wait until its pods are gone
  slipway.inference.model:
    name: tinyllama-1-1b
    namespace: models
    state: absent

- name: Download an OME model to nodes, for all namespaces, and wait until one node has it
  slipway.inference.model:
    api: ome
    name: llama-3-2-1b-instruct
    kind: ClusterBaseModel
    spec:
      storage:
        storageUri: hf://meta-llama/Llama-3.2-1B-Instruct
        path: /raid/models/meta/llama-3-2-1b-instruct
        key: hf-token

- name: Register two KubeAI Models, one that scales to zero and one that always runs
  slipway.inference.model:
    api: kubeai
    namespace: models
    models:
      - name: qwen2.5-7b-instruct-l4
        spec:
          url: hf://Qwen/Qwen2.5-7B-Instruct
          engine: VLLM
          features: [TextGeneration]
          resourceProfile: nvidia-gpu-l4:1
          minReplicas: 0
      - name: nomic-embed-text-cpu
        labels:
          tenancy: public
        spec:
          url: ollama://nomic-embed-text
          engine: OLlama
          features: [TextEmbedding]
          resourceProfile: cpu:1
          minReplicas: 1

- name: Publish a Hugging Face model in the cluster's registry, and wait until workloads can use it
  slipway.inference.model:
    api: deckhouse
    name: qwen3-0-6b
    namespace: models
    spec:
      source:
        url: https://huggingface.co/Qwen/Qwen3-0.6B
"""

RETURN = r"""
results:
  description:
    - Result for each model, in the order of the task.
    - If the task fails, RV(results[].conditions), RV(results[].events) and RV(results[].log) are only returned with
      C(-v). Failed entries do not contain RV(results[].drift), RV(results[].phase), RV(results[].url) and
      RV(results[].waited).
  returned: always, for the entries that were processed
  type: list
  elements: dict
  contains:
    kind:
      description: Kind of the model.
      returned: always
      type: str
      sample: Model
    name:
      description: Name of the model.
      returned: always
      type: str
      sample: qwen2-0-5b
    namespace:
      description: Namespace of the model. Empty for cluster-scoped models.
      returned: always
      type: str
      sample: models
    changed:
      description: Whether the task changed it. Status changes do not count.
      returned: always
      type: bool
    ready:
      description: Whether it runs with the described spec and answers.
      returned: unless O(state=absent) or the API server rejected it
      type: bool
    phase:
      description:
        - Phase of the model. Empty until a controller has reconciled it.
        - For a KubeAI Model, V(Ready), V(Pending) or V(Failed), according to its conditions.
      returned: unless O(state=absent) or the API server rejected it
      type: str
      sample: Ready
    url:
      description:
        - Base URL of the model's OpenAI-compatible API inside the cluster.
        - Empty for a KubeAI Model, which is only served by the gateway.
        - Empty for an LLMKube Model, which is served by services.
      returned: unless O(state=absent) or the API server rejected it
      type: str
      sample: http://qwen2-0-5b.models.svc:8080/v1
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
    progress:
      description: Progress of the upload or publication.
      returned: for Deckhouse models
      type: str
      sample: 17%
      version_added: 0.5.0
    digest:
      description: Digest of its artifact in the registry. Empty until it is published.
      returned: for Deckhouse models
      type: str
      sample: sha256:7d865e959b2466918c9863afca942d0fb89d7c9ac0c99bafc3749504ded97730
      version_added: 0.5.0
    upload_secret:
      description: Name of the Secret with the upload's URL and token. Empty if no upload is open.
      returned: for Deckhouse models
      type: str
      version_added: 0.5.0
    upload_namespace:
      description: Namespace of that Secret.
      returned: for Deckhouse models
      type: str
      version_added: 0.5.0
    reason:
      description: Reason why it is not ready, as one word. Empty if it is ready.
      returned: unless O(state=absent) or the API server rejected it, and if it was not deleted in time
      type: str
      sample: DownloadFailed
    message:
      description: Explanation why it is not ready or was rejected. Empty if it is ready.
      returned: unless O(state=absent), and if it could not be deleted
      type: str
    conditions:
      description: Conditions in the status of the model.
      returned: unless O(state=absent) or the API server rejected it
      type: list
      elements: dict
      contains:
        type:
          description: Type of the condition.
          type: str
          sample: Available
        status:
          description: Status of the condition.
          type: str
          sample: 'True'
        reason:
          description: Reason, as one word.
          type: str
          sample: Ready
        message:
          description: Explanation.
          type: str
        lastTransitionTime:
          description: Time when the status last changed.
          type: str
        observedGeneration:
          description: Generation of the model that the condition describes.
          type: int
    drift:
      description:
        - Fields of the task that another manager had changed before the task ran.
        - Removed fields are not included, because they cannot be distinguished from fields that are new in the task.
      returned: unless O(state=absent)
      type: list
      elements: dict
      version_added: 0.5.0
      contains:
        path:
          description: Path of the field.
          type: str
          sample: .spec.minReplicas
        ours:
          description: Value in the task.
          type: raw
          sample: 1
        theirs:
          description: Value before the task.
          type: raw
          sample: 3
        manager:
          description: Field manager that set it, such as C(kubectl-edit).
          type: str
          sample: kubectl-edit
    waited:
      description: Seconds until it was ready, failed or deleted.
      returned: unless the API server rejected it
      type: float
      sample: 12.4
    error_code:
      description: As RV(error_code), for this model.
      returned: if it made the task fail
      type: str
    events:
      description:
        - Latest events of the model and of its latest pod that is not ready, in chronological order.
        - Loader pods of the model are included.
      returned: for the first three models that made the wait fail
      type: list
      elements: dict
      contains:
        type:
          description: Normal or Warning.
          type: str
        reason:
          description: Reason, as one word.
          type: str
        message:
          description: Explanation.
          type: str
        count:
          description: Number of occurrences.
          type: int
        object:
          description: Kind and name of the object.
          type: str
          sample: Pod/qwen2-0-5b-84989bd6c9-ztxbk
    log:
      description: Last log lines of the engine or the loader in that pod.
      returned: for the first three models that made the wait fail
      type: list
      elements: str
pruned:
  description: Result for each model that O(prune) selected, as in RV(results) with O(state=absent).
  returned: when O(prune) is set, for the entries that were processed
  type: list
  elements: dict
  version_added: 0.5.0
  contains:
    kind:
      description: Kind of the model.
      type: str
      sample: Model
    name:
      description: Name of the model.
      type: str
      sample: tinyllama-1-1b
    namespace:
      description: Namespace of the model. Empty for cluster-scoped models.
      type: str
      sample: models
    changed:
      description: Whether the task deleted it, or would delete it. V(false) if it was already being deleted.
      type: bool
    waited:
      description: Seconds until it was deleted.
      returned: unless the API server rejected it
      type: float
    reason:
      description: Reason why it still exists, as one word.
      returned: if it was not deleted in time
      type: str
      sample: Deleting
    message:
      description: Explanation why it still exists or could not be deleted.
      returned: if it was not deleted in time, or could not be deleted
      type: str
    error_code:
      description: As RV(error_code), for this model.
      returned: if it made the task fail
      type: str
    events:
      description: As RV(slipway.inference.model#module:results[].events).
      returned: for the first three models that were not deleted in time
      type: list
      elements: dict
    log:
      description: As RV(slipway.inference.model#module:results[].log).
      returned: for the first three models that were not deleted in time
      type: list
      elements: str
error_code:
  description:
    - Kind of the failure. The codes are stable.
    - V(failed) failed permanently; V(timeout) not ready or deleted in time; V(controller_missing) not ready in time,
      because no controller has reconciled the latest spec; V(deleted) deleted by another client during the wait;
      V(replaced) changed or recreated by another client during the deletion.
    - V(invalid_input) invalid task arguments; V(invalid) the API server rejected the spec; V(conflict) another manager
      owns a field; V(denied) an admission policy or a quota denied the request; V(definition_missing) the CRD is not
      installed; V(namespace_missing); V(not_found).
    - V(unauthorized), V(forbidden), V(certificate), V(unreachable), V(server_error), V(no_connection_details),
      V(missing_library), V(internal_error).
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

from ansible_collections.slipway.inference.plugins.module_utils._apis import AUTO, MODELS, of_api
from ansible_collections.slipway.inference.plugins.module_utils._task import Module, run_state, state_arguments


def main() -> None:
    module = Module(
        argument_spec={
            "api": {"type": "str", "choices": [AUTO, *sorted(MODELS)], "default": AUTO},
            "kind": {"type": "str"},
            "prune": {"type": "list", "elements": "str"},
            **state_arguments("models"),
        },
        mutually_exclusive=[("models", name) for name in ("name", "kind", "labels", "annotations", "spec")],
        required_by={"prune": ["models"]},
        required_one_of=[("models", "name")],
        supports_check_mode=True,
    )
    run_state(module, {"models": of_api(MODELS, module.params["api"])})


if __name__ == "__main__":
    main()
