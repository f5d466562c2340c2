#!/usr/bin/python

# Copyright: (c) 2026, The slipway.inference authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: model_info
short_description: Return models and their state
version_added: 0.1.0
author:
  - The slipway.inference authors (@slipway)
description:
  - Reads models by name, namespace or labels, or all in the cluster, and says of each whether it answers, where, and if
    not why.
  - Where asked to, waits for models that somebody else makes. It ends at once when one has failed for good.
extends_documentation_fragment:
  - slipway.inference.apis.of_models
  - slipway.inference.k8s_auth
  - slipway.inference.state.of_others
  - slipway.inference.attributes
attributes:
  check_mode:
    support: full
    details: It changes nothing.
  diff_mode:
    support: N/A
    details: It changes nothing.
  idempotent:
    support: full
    details: It changes nothing.
options:
  name:
    description: Only models of this name.
    type: str
  namespace:
    description: Only models of this namespace. Without it, those of all namespaces and of the whole cluster.
    type: str
  label_selectors:
    description: Only models whose labels match all of these, such as V(team=search) or V(team in (search, ads\)).
    type: list
    elements: str
    default: []
seealso:
  - module: slipway.inference.inference_service_info
  - module: slipway.inference.model
"""

EXAMPLES = r"""
- name: Read all models of the cluster
  slipway.inference.model_info:
  register: found

- name: Show those that do not answer, and why
  ansible.builtin.debug:
    msg: "{{ item.namespace }}/{{ item.name }} {{ item.reason }} {{ item.message }}"
  loop: "{{ found.models | rejectattr('ready') }}"
  loop_control:
    label: "{{ item.name }}"

- name: Count the replicas of KubeAI models
  slipway.inference.model_info:
    api: kubeai
  register: kubeai

- name: Show them
  ansible.builtin.debug:
    msg: "{{ kubeai.resources | map(attribute='status.replicas.all', default=0) | sum }}"

- name: Wait until the models that Argo CD applies are there and answer
  slipway.inference.model_info:
    namespace: models
    label_selectors: [app.kubernetes.io/instance=chat]
    wait: true
    wait_timeout: 1800

- name: Read the models of a team
  slipway.inference.model_info:
    namespace: models
    label_selectors: [team=search]
  register: found

- name: Remove them
  slipway.inference.model:
    models: "{{ found.resources }}"
    state: absent
"""

RETURN = r"""
api_found:
  description: Whether the cluster has the definition of the API. Without it the lists are empty.
  returned: success
  type: bool
models:
  description: State of each model. Also there when a wait failed.
  returned: success
  type: list
  elements: dict
  contains:
    kind:
      description: Kind of the model.
      type: str
      sample: Model
    name:
      description: Name of the model.
      type: str
      sample: qwen2-0-5b
    namespace:
      description: Namespace of the model. Empty for one of the whole cluster.
      type: str
      sample: models
    ready:
      description: Whether it runs as described and answers.
      type: bool
    phase:
      description: As RV(slipway.inference.model#module:results[].phase).
      type: str
      sample: Ready
    url:
      description: As RV(slipway.inference.model#module:results[].url).
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
      type: str
      sample: Unschedulable
    message:
      description: Why it is not ready, in words; empty when it is.
      type: str
    conditions:
      description: Conditions in the status of the model, as RV(slipway.inference.model#module:results[].conditions).
      type: list
      elements: dict
    waited:
      description: Seconds until it was ready or failed.
      returned: when O(wait=true) and it failed
      type: float
      sample: 12.4
      version_added: 0.5.0
    error_code:
      description: As RV(error_code), for this model.
      returned: when it is among those that made a wait fail
      type: str
      version_added: 0.5.0
    events:
      description: As RV(slipway.inference.model#module:results[].events).
      returned: for the first three models that made a wait fail
      type: list
      elements: dict
      version_added: 0.5.0
    log:
      description: As RV(slipway.inference.model#module:results[].log).
      returned: for the first three models that made a wait fail
      type: list
      elements: str
      version_added: 0.5.0
resources:
  description:
    - The models as the API server has them, without C(metadata.managedFields) and with secrets masked.
    - O(slipway.inference.model#module:models) takes them with O(slipway.inference.model#module:state=absent).
  returned: success
  type: list
  elements: dict
error_code:
  description: What kind of failure it was, as RV(slipway.inference.model#module:error_code).
  returned: on failure
  type: str
  sample: forbidden
hint:
  description:
    - What to do about it, as at the end of C(msg). May be empty.
    - Without C(-v), a task that fails because of objects returns it empty. It returns no conditions, events and log of
      objects, and of C(resources) only the names.
  returned: on failure
  type: str
status:
  description: HTTP status that the API server answered; V(0) if it is not about an answer.
  returned: on failure
  type: int
"""

from ansible_collections.slipway.inference.plugins.module_utils._apis import MODELS
from ansible_collections.slipway.inference.plugins.module_utils._task import Module, info_arguments, run_info


def main() -> None:
    module = Module(
        argument_spec={
            "api": {"type": "str", "choices": sorted(MODELS), "default": next(iter(MODELS))},
            **info_arguments(),
        },
        supports_check_mode=True,
    )
    run_info(module, MODELS[module.params["api"]], "models")


if __name__ == "__main__":
    main()
