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
  - Makes, changes or deletes any number of models in one task and waits until all of them answer.
  - All models are checked by the API server before the first is written. They are written by server-side apply, with
    the field manager C(slipway.inference), so fields that others set are left alone.
  - All of them are waited for together, by watch. The task ends at once when a model has failed for good, and says why.
  - A KubeAI model that is scaled to zero counts as ready. The first request to it starts a replica.
  - An LLMKube model is weights. It is ready when services can be started with them;
    M(slipway.inference.inference_service) registers it together with those services.
  - A model of Deckhouse is ready when it is published. One that is uploaded is waited for until somebody has uploaded
    it, as M(slipway.inference.model_upload) does; O(wait_for) can end the wait when its upload is open.
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
      - The API server is asked to check the change without making it.
      - Where the definition of the API or the namespace is missing, the change is predicted, with a warning.
  diff_mode:
    support: full
    details: Shows the fields that this module owns. Secrets are masked.
  idempotent:
    support: full
options:
  name:
    description: Name of a single model, instead of O(models).
    type: str
  kind:
    description:
      - Kind of a single model. For an API with several kinds of models, such as V(BaseModel) and V(ClusterBaseModel).
      - Without it the model is of the kind that O(models[].kind) says.
    type: str
    version_added: 0.5.0
  namespace:
    description:
      - Namespace of the single model, or of those in O(models) that name none. It has to exist.
      - Models of the whole cluster have none, whatever is said here.
    type: str
  labels:
    description: Labels of a single model.
    type: dict
  annotations:
    description: Annotations of a single model.
    type: dict
  spec:
    description: Spec of a single model. Part of it with O(state=patched).
    type: dict
  prune:
    description:
      - Label selectors. Models that match all of them and are not in O(models) are removed, after those in O(models)
        were applied, and it is waited until they are gone.
      - One of them has to name a label that the models carry, such as V(team=search). An empty list is refused.
      - It looks for kinds of the API that O(api) names, or that O(models) are of, in the namespaces that the task or
        its models name; for models of the whole cluster where O(namespace) is not set, or O(models) has one of their
        kind.
        Models that a controller has made for something else stay.
      - With an empty list of O(models) everything goes that is found.
      - Check mode and diffs show what would go.
    type: list
    elements: str
    version_added: 0.5.0
notes:
  - The namespaces are not made by this module; M(kubernetes.core.k8s) makes them.
  - The account needs the verbs C(get), C(list), C(watch), C(create), C(patch) and C(delete) on the models, and, to
    explain failures, C(list) on events and pods and C(get) on C(pods/log) in their namespaces.
  - The values of environment variables that look like secrets by their names are masked in all output. It is better to
    name a Secret by C(envFrom).
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

- name: Show where they answer
  ansible.builtin.debug:
    msg: "{{ registered.results | items2dict(key_name='name', value_name='url') }}"

- name: Register the models of a manifest, each of the API that it names
  slipway.inference.model:
    models: "{{ lookup('ansible.builtin.file', 'models.yaml') | from_yaml_all }}"
    wait_timeout: 1800

- name: Change one model and go on as soon as the gateway knows it
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

- name: Scale a model that is there, and leave all else as it is
  slipway.inference.model:
    name: qwen2-0-5b
    namespace: models
    state: patched
    spec:
      minReplicas: 3

- name: Have the models of a team as a file says, and no others
  slipway.inference.model:
    namespace: models
    models: "{{ lookup('ansible.builtin.file', 'search.yaml') | from_yaml_all }}"
    prune: [team=search]
  register: applied

- name: Show what somebody else has changed of them
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

- name: Bring a model of OME onto nodes, for every namespace, and wait until one has it
  slipway.inference.model:
    api: ome
    name: llama-3-2-1b-instruct
    kind: ClusterBaseModel
    spec:
      storage:
        storageUri: hf://meta-llama/Llama-3.2-1B-Instruct
        path: /raid/models/meta/llama-3-2-1b-instruct
        key: hf-token

- name: Register KubeAI models, one that starts with the first request and one that always runs
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

- name: Publish a model of Hugging Face into the cluster's registry, and wait until workloads can read it
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
    - What came of each model, in the order of the task.
    - If the task fails, it has no RV(results[].conditions), RV(results[].events) and RV(results[].log) without C(-v).
      Of what failed, it has no RV(results[].drift), RV(results[].phase), RV(results[].url) or RV(results[].waited).
  returned: always, as far as the task came
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
      description: Namespace of the model. Empty for one of the whole cluster.
      returned: always
      type: str
      sample: models
    changed:
      description: Whether it was changed. What its controller writes into the status does not count.
      returned: always
      type: bool
    ready:
      description: Whether it runs as described and answers.
      returned: unless O(state=absent) or the API server refused it
      type: bool
    phase:
      description:
        - Phase of the model; empty as long as no controller has seen it.
        - A KubeAI model's status has no phase; its conditions make it V(Ready), V(Pending) or V(Failed).
      returned: unless O(state=absent) or the API server refused it
      type: str
      sample: Ready
    url:
      description:
        - Base URL of the model's own OpenAI API inside the cluster.
        - Empty for a KubeAI model, whose status names none. It is reached through the gateway.
        - Empty for an LLMKube model, which is served by services.
      returned: unless O(state=absent) or the API server refused it
      type: str
      sample: http://qwen2-0-5b.models.svc:8080/v1
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
    progress:
      description: How much of it is uploaded or published.
      returned: for a model of Deckhouse
      type: str
      sample: 17%
      version_added: 0.5.0
    digest:
      description: Digest of its artifact in the registry; empty until it is published.
      returned: for a model of Deckhouse
      type: str
      sample: sha256:7d865e959b2466918c9863afca942d0fb89d7c9ac0c99bafc3749504ded97730
      version_added: 0.5.0
    upload_secret:
      description: Name of the Secret that says where to upload it; empty while nothing is to be uploaded.
      returned: for a model of Deckhouse
      type: str
      version_added: 0.5.0
    upload_namespace:
      description: Namespace of that Secret.
      returned: for a model of Deckhouse
      type: str
      version_added: 0.5.0
    reason:
      description: Why it is not ready, in one word; empty when it is.
      returned: unless O(state=absent) or the API server refused it, and when it was not gone in time
      type: str
      sample: DownloadFailed
    message:
      description: Why it is not ready, or was refused, in words; empty when it is ready.
      returned: unless O(state=absent), and when it could not be deleted
      type: str
    conditions:
      description: Conditions in the status of the model.
      returned: unless O(state=absent) or the API server refused it
      type: list
      elements: dict
      contains:
        type:
          description: Type of the condition.
          type: str
          sample: Available
        status:
          description: Whether it holds.
          type: str
          sample: 'True'
        reason:
          description: Why, in one word.
          type: str
          sample: Ready
        message:
          description: Why, in words.
          type: str
        lastTransitionTime:
          description: Since when it has this status.
          type: str
        observedGeneration:
          description: Generation of the model that it speaks of.
          type: int
    drift:
      description:
        - What somebody else has changed of the fields that the task describes, as it was before the task.
        - Empty where nobody has. A field that somebody has removed cannot be told from one that is new in the task, and
          is not among them.
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
          description: Value that the task describes.
          type: raw
          sample: 1
        theirs:
          description: Value that it had.
          type: raw
          sample: 3
        manager:
          description: Field manager that has set it, such as C(kubectl-edit).
          type: str
          sample: kubectl-edit
    waited:
      description: Seconds until it was ready, failed or gone.
      returned: unless the API server refused it
      type: float
      sample: 12.4
    error_code:
      description: As RV(error_code), for this model.
      returned: when it is among those that made the task fail
      type: str
    events:
      description:
        - Newest events of the model and of its newest pod that is not ready, the newest last.
        - A pod that loads a model's weights into a cache, or clears them from it, counts as one.
      returned: for the first three models that made a wait fail
      type: list
      elements: dict
      contains:
        type:
          description: Normal or Warning.
          type: str
        reason:
          description: What happened, in one word.
          type: str
        message:
          description: What happened, in words.
          type: str
        count:
          description: How often.
          type: int
        object:
          description: Kind and name of what it happened to.
          type: str
          sample: Pod/qwen2-0-5b-84989bd6c9-ztxbk
    log:
      description: Last lines that the engine, or the loader, in that pod has logged.
      returned: for the first three models that made a wait fail
      type: list
      elements: str
pruned:
  description: What came of each model that O(prune) has found, as RV(results) tells it of models that are removed.
  returned: when O(prune) is set, as far as the task came
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
      description: Namespace of the model. Empty for one of the whole cluster.
      type: str
      sample: models
    changed:
      description: Whether it was removed, or would be. V(false) for one that was going already.
      type: bool
    waited:
      description: Seconds until it was gone.
      returned: unless the API server refused it
      type: float
    reason:
      description: Why it is not gone, in one word.
      returned: when it was not gone in time
      type: str
      sample: Deleting
    message:
      description: Why it is not gone, or could not be deleted, in words.
      returned: when it was not gone in time, or could not be deleted
      type: str
    error_code:
      description: As RV(error_code), for this model.
      returned: when it is among those that made the task fail
      type: str
    events:
      description: As RV(slipway.inference.model#module:results[].events).
      returned: for the first three models that were not gone in time
      type: list
      elements: dict
    log:
      description: As RV(slipway.inference.model#module:results[].log).
      returned: for the first three models that were not gone in time
      type: list
      elements: str
error_code:
  description:
    - What kind of failure it was. The codes keep their meaning.
    - V(failed) a model failed for good; V(timeout) not ready or gone in time; V(controller_missing) not in time, and no
      controller has seen the newest spec; V(deleted) something else deleted it meanwhile; V(replaced) something
      else changed it, or made another one of its name, while it was to be deleted.
    - V(invalid_input) the task's arguments; V(invalid) the API server finds the spec wrong; V(conflict) another manager
      owns a field; V(denied) refused by an admission rule or a quota; V(definition_missing) the API is not installed;
      V(namespace_missing); V(not_found).
    - V(unauthorized), V(forbidden), V(certificate), V(unreachable), V(server_error), V(no_connection_details),
      V(missing_library), V(internal_error).
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
