#!/usr/bin/python

# Copyright: (c) 2026, The slipway.inference authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: inference_service_info
short_description: Return inference services and their state
version_added: 0.3.0
author:
  - The slipway.inference authors (@slipway)
description:
  - Reads inference services by name, namespace or labels, or all in the cluster, and says of each whether it answers,
    where, and if not why.
  - Where asked to, waits for services that somebody else makes. It ends at once when one has failed for good.
extends_documentation_fragment:
  - slipway.inference.apis.of_services
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
  why:
    description:
      - Whether to tell of each service which runtime it has and why, for an API that chooses runtimes.
    type: bool
    default: false
    version_added: 0.5.0
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

- name: Wait until the services that Argo CD applies are there and answer
  slipway.inference.inference_service_info:
    namespace: models
    label_selectors: [app.kubernetes.io/instance=chat]
    wait: true
    wait_timeout: 1800

- name: Ask why a service has the runtime that it has
  slipway.inference.inference_service_info:
    api: ome
    name: llama-3-2-1b-instruct
    namespace: chat
    why: true
  register: told

- name: Show the runtimes that did not fit
  ansible.builtin.debug:
    msg: "{{ item.name }}: {{ item.reason }}"
  loop: "{{ told.inference_services | map(attribute='excluded') | flatten }}"
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
  description: State of each service. Also there when a wait failed.
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
    waited:
      description: Seconds until it was ready or failed.
      returned: when O(wait=true) and it failed
      type: float
      sample: 12.4
      version_added: 0.5.0
    error_code:
      description: As RV(error_code), for this service.
      returned: when it is among those that made a wait fail
      type: str
      version_added: 0.5.0
    events:
      description: As RV(slipway.inference.inference_service#module:results[].events).
      returned: for the first three services that made a wait fail
      type: list
      elements: dict
      version_added: 0.5.0
    log:
      description: As RV(slipway.inference.inference_service#module:results[].log).
      returned: for the first three services that made a wait fail
      type: list
      elements: str
      version_added: 0.5.0
    runtime:
      description:
        - The runtime that it has, with its kind, its score, who has chosen it, and which would come next. As the
          status of the service has it.
        - Empty where it has none.
      returned: when O(why=true)
      type: dict
      version_added: 0.5.0
      contains:
        name:
          description: Name of the runtime.
          type: str
          sample: srt-llama-3-2-1b-instruct
        kind:
          description: Kind of the runtime.
          type: str
          sample: ClusterServingRuntime
        score:
          description: How well it fits.
          type: int
        chosen:
          description: Who has chosen it, C(Service) in its spec or C(Selection).
          type: str
        next:
          description: The two that fit best after it, each with C(name), C(kind) and C(score).
          type: list
          elements: dict
        better:
          description: One that fits better and came later. It serves once the spec names it, or this one does not fit.
          type: dict
    excluded:
      description: Where no runtime fits, those that do not, the closest first and 50 at most.
      returned: when O(why=true)
      type: list
      elements: dict
      version_added: 0.5.0
      contains:
        name:
          description: Name of the runtime.
          type: str
          sample: srt-llama-3-3-70b-instruct
        kind:
          description: Kind of the runtime.
          type: str
          sample: ClusterServingRuntime
        reason:
          description: The first thing that keeps it from fitting, in words.
          type: str
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

from collections.abc import Mapping
from typing import Any

from ansible_collections.slipway.inference.plugins.module_utils._apis import SERVICES
from ansible_collections.slipway.inference.plugins.module_utils._task import Module, info_arguments, run_info


def runtimes(resource: Mapping[str, Any]) -> Mapping[str, Any]:
    """What a status tells of the choice of a runtime."""
    status = resource.get("status") or {}
    return {"runtime": status.get("runtime") or {}, "excluded": status.get("excluded") or []}


def main() -> None:
    module = Module(
        argument_spec={
            "api": {"type": "str", "choices": sorted(SERVICES), "default": next(iter(SERVICES))},
            "why": {"type": "bool", "default": False},
            **info_arguments(),
        },
        supports_check_mode=True,
    )
    told = runtimes if module.params["why"] else None
    run_info(module, SERVICES[module.params["api"]], "inference_services", told)


if __name__ == "__main__":
    main()
