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
  - Returns the models of the cluster, or those with a given name, namespace or labels. For each one, returns whether it
    is ready, its URL, and why it is not ready.
  - Can wait for models that another tool creates. When one fails permanently, the task fails at once.
extends_documentation_fragment:
  - slipway.inference.apis.of_models
  - slipway.inference.k8s_auth
  - slipway.inference.state.of_others
  - slipway.inference.attributes
attributes:
  check_mode:
    support: full
    details: The module changes nothing.
  diff_mode:
    support: N/A
    details: The module changes nothing.
  idempotent:
    support: full
    details: The module changes nothing.
options:
  name:
    description: Only models with this name.
    type: str
  namespace:
    description: Only models in this namespace. By default, models in all namespaces and cluster-scoped models.
    type: str
  label_selectors:
    description:
      - Only models that match all of these label selectors, such as V(team=search) or V(team in (search, ads\)).
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

- name: Show models that are not ready, with the reason
  ansible.builtin.debug:
    msg: "{{ item.namespace }}/{{ item.name }} {{ item.reason }} {{ item.message }}"
  loop: "{{ found.models | rejectattr('ready') }}"
  loop_control:
    label: "{{ item.name }}"

- name: Read KubeAI Models
  slipway.inference.model_info:
    api: kubeai
  register: kubeai

- name: Show them
  ansible.builtin.debug:
    msg: "{{ kubeai.resources | map(attribute='status.replicas.all', default=0) | sum }}"

- name: Wait until the models that Argo CD applies exist and are ready
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

- name: Delete them
  slipway.inference.model:
    models: "{{ found.resources }}"
    state: absent
"""

RETURN = r"""
api_found:
  description: Whether the cluster has the CRD. If not, the lists are empty.
  returned: success
  type: bool
models:
  description: State of each model. Also returned if the wait failed.
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
      description: Namespace of the model. Empty for cluster-scoped models.
      type: str
      sample: models
    ready:
      description: Whether it runs with the described spec and answers.
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
      type: str
      sample: Unschedulable
    message:
      description: Explanation why it is not ready. Empty if it is ready.
      type: str
    conditions:
      description: Conditions in the status of the model, as RV(slipway.inference.model#module:results[].conditions).
      type: list
      elements: dict
    waited:
      description: Seconds until it was ready or failed.
      returned: if O(wait=true) and it failed
      type: float
      sample: 12.4
      version_added: 0.5.0
    error_code:
      description: As RV(error_code), for this model.
      returned: if it made the wait fail
      type: str
      version_added: 0.5.0
    events:
      description: As RV(slipway.inference.model#module:results[].events).
      returned: for the first three models that made the wait fail
      type: list
      elements: dict
      version_added: 0.5.0
    log:
      description: As RV(slipway.inference.model#module:results[].log).
      returned: for the first three models that made the wait fail
      type: list
      elements: str
      version_added: 0.5.0
resources:
  description:
    - The models from the API server, without C(metadata.managedFields) and with masked secrets.
    - O(slipway.inference.model#module:models) accepts them with O(slipway.inference.model#module:state=absent).
  returned: success
  type: list
  elements: dict
error_code:
  description: Kind of the failure, as RV(slipway.inference.model#module:error_code).
  returned: on failure
  type: str
  sample: forbidden
hint:
  description:
    - Suggested fix, as at the end of C(msg). May be empty.
    - If objects failed, it is only returned with C(-v), as are the objects' conditions, events and logs. Without C(-v),
      C(resources) contains only names.
  returned: on failure
  type: str
status:
  description: HTTP status of the API server's response. V(0) if there was none.
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
