#!/usr/bin/python

# Copyright: (c) 2026, The slipway.inference authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: inference_service_info
short_description: Read inference services and whether they answer
version_added: 0.3.0
author:
  - The slipway.inference authors (@slipway)
description:
  - Reads inference services by name, namespace or labels, or all in the cluster, and says of each whether it answers,
    where, and if not why.
extends_documentation_fragment:
  - slipway.inference.k8s_auth
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
  api:
    description:
      - Serving API of the services.
      - V(llmkube) is C(inference.llmkube.dev/v1alpha1).
    type: str
    choices: [llmkube]
    default: llmkube
  name:
    description: Only services of this name.
    type: str
  namespace:
    description: Only services of this namespace. Without it, those of all namespaces.
    type: str
  label_selectors:
    description: Only services whose labels match all of these, such as V(team=search) or V(team in (search, ads\)).
    type: list
    elements: str
    default: []
seealso:
  - module: slipway.inference.inference_service
  - module: slipway.inference.model_info
"""

EXAMPLES = r"""
- name: Read all inference services of the cluster
  slipway.inference.inference_service_info:
  register: found

- name: Show those that wait for a GPU, in the order in which they will get one
  ansible.builtin.debug:
    msg: "{{ item.queue_position }} {{ item.namespace }}/{{ item.name }} {{ item.waiting_for }}"
  loop: "{{ found.inference_services | selectattr('queue_position') | sort(attribute='queue_position') }}"
  loop_control:
    label: "{{ item.name }}"

- name: Remove those of a team
  slipway.inference.inference_service:
    inference_services: "{{ found.resources | selectattr('metadata.labels.team', 'defined')
      | selectattr('metadata.labels.team', 'eq', 'search') }}"
    state: absent
"""

RETURN = r"""
api_found:
  description: Whether the cluster has the definition of the API. Without it the lists are empty.
  returned: success
  type: bool
inference_services:
  description: State of each service.
  returned: success
  type: list
  elements: dict
  contains:
    kind:
      description: Kind of the service.
      type: str
      sample: InferenceService
    name:
      description: Name of the service.
      type: str
      sample: qwen2-0-5b
    namespace:
      description: Namespace of the service.
      type: str
      sample: models
    ready:
      description: Whether it runs as described and answers.
      type: bool
    phase:
      description: As RV(slipway.inference.inference_service#module:results[].phase).
      type: str
      sample: Ready
    url:
      description: As RV(slipway.inference.inference_service#module:results[].url).
      type: str
      sample: http://qwen2-0-5b.models.svc.cluster.local:8080/v1/chat/completions
    waiting_for:
      description: As RV(slipway.inference.inference_service#module:results[].waiting_for).
      type: str
      sample: 'nvidia.com/gpu: 4'
    queue_position:
      description: As RV(slipway.inference.inference_service#module:results[].queue_position).
      type: int
      sample: 2
    reason:
      description: Why it is not ready, in one word; empty when it is.
      type: str
      sample: WaitingForGPU
    message:
      description: Why it is not ready, in words; empty when it is.
      type: str
    conditions:
      description: Conditions in the status of the service, as RV(slipway.inference.model#module:results[].conditions).
      type: list
      elements: dict
resources:
  description:
    - The services as the API server has them, without C(metadata.managedFields) and with secrets masked.
    - O(slipway.inference.inference_service#module:inference_services) takes them with
      O(slipway.inference.inference_service#module:state=absent).
  returned: success
  type: list
  elements: dict
error_code:
  description: What kind of failure it was, as RV(slipway.inference.model#module:error_code).
  returned: on failure
  type: str
  sample: forbidden
hint:
  description: What to do about it. May be empty.
  returned: on failure
  type: str
status:
  description: HTTP status that the API server answered; V(0) if it is not about an answer.
  returned: on failure
  type: int
"""

from ansible_collections.slipway.inference.plugins.module_utils._apis import SERVICES
from ansible_collections.slipway.inference.plugins.module_utils._task import Module, info_arguments, run_info


def main() -> None:
    module = Module(
        argument_spec={
            "api": {"type": "str", "choices": sorted(SERVICES), "default": "llmkube"},
            **info_arguments(),
        },
        supports_check_mode=True,
    )
    run_info(module, SERVICES[module.params["api"]], "inference_services")


if __name__ == "__main__":
    main()
