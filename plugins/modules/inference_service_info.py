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
  - Returns the inference services of the cluster, or those with a given name, namespace or labels. For each one,
    returns whether it is ready, its URL, and why it is not ready.
  - Can wait for services that another tool creates. When one fails permanently, the task fails at once.
extends_documentation_fragment:
  - slipway.inference.apis.of_services
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
    description: Only services with this name.
    type: str
  namespace:
    description: Only services in this namespace. By default, services in all namespaces.
    type: str
  label_selectors:
    description:
      - Only services that match all of these label selectors, such as V(team=search) or V(team in (search, ads\)).
    type: list
    elements: str
    default: []
  why:
    description:
      - Whether to return the runtime of each service and the reason for its selection, for APIs with automatic runtime
        selection.
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

- name: Show services that wait for a GPU, in queue order
  ansible.builtin.debug:
    msg: "{{ item.queue_position }} {{ item.namespace }}/{{ item.name }} {{ item.waiting_for }}"
  loop: "{{ found.inference_services | selectattr('queue_position') | sort(attribute='queue_position') }}"
  loop_control:
    label: "{{ item.name }}"

- name: Wait until the services that Argo CD applies exist and are ready
  slipway.inference.inference_service_info:
    namespace: models
    label_selectors: [app.kubernetes.io/instance=chat]
    wait: true
    wait_timeout: 1800

- name: Read why a service has its runtime
  slipway.inference.inference_service_info:
    api: ome
    name: llama-3-2-1b-instruct
    namespace: chat
    why: true
  register: services

- name: Show the runtimes that do not match
  ansible.builtin.debug:
    msg: "{{ item.name }}: {{ item.reason }}"
  loop: "{{ services.inference_services | map(attribute='excluded') | flatten }}"
  loop_control:
    label: "{{ item.name }}"

- name: Delete the services of a team
  slipway.inference.inference_service:
    inference_services: "{{ found.resources | selectattr('metadata.labels.team', 'defined')
      | selectattr('metadata.labels.team', 'eq', 'search') }}"
    state: absent
"""

RETURN = r"""
api_found:
  description: Whether the cluster has the CRD. If not, the lists are empty.
  returned: success
  type: bool
inference_services:
  description: State of each service. Also returned if the wait failed.
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
      description: Whether it runs with the described spec and answers.
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
      description: Reason why it is not ready, as one word. Empty if it is ready.
      type: str
      sample: WaitingForGPU
    message:
      description: Explanation why it is not ready. Empty if it is ready.
      type: str
    conditions:
      description: Conditions in the status of the service, as RV(slipway.inference.model#module:results[].conditions).
      type: list
      elements: dict
    waited:
      description: Seconds until it was ready or failed.
      returned: if O(wait=true) and it failed
      type: float
      sample: 12.4
      version_added: 0.5.0
    error_code:
      description: As RV(error_code), for this service.
      returned: if it made the wait fail
      type: str
      version_added: 0.5.0
    events:
      description: As RV(slipway.inference.inference_service#module:results[].events).
      returned: for the first three services that made the wait fail
      type: list
      elements: dict
      version_added: 0.5.0
    log:
      description: As RV(slipway.inference.inference_service#module:results[].log).
      returned: for the first three services that made the wait fail
      type: list
      elements: str
      version_added: 0.5.0
    runtime:
      description:
        - Selected runtime and alternatives, from the status of the service.
        - Empty if it has none.
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
          description: Score of the match.
          type: int
        chosen:
          description: C(Service) if the spec names the runtime, C(Selection) if the controller selected it.
          type: str
        next:
          description: The next two best matches, each with C(name), C(kind) and C(score).
          type: list
          elements: dict
        better:
          description: A better match that was created later. To use it, set it in the spec.
          type: dict
    excluded:
      description: If no runtime matches, up to 50 runtimes, the closest first.
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
          description: First mismatch.
          type: str
resources:
  description:
    - The services from the API server, without C(metadata.managedFields) and with masked secrets.
    - O(slipway.inference.inference_service#module:inference_services) accepts them with
      O(slipway.inference.inference_service#module:state=absent).
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

from collections.abc import Mapping
from typing import Any

from ansible_collections.slipway.inference.plugins.module_utils._apis import SERVICES
from ansible_collections.slipway.inference.plugins.module_utils._task import Module, info_arguments, run_info


def runtimes(resource: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the selected runtime and the excluded runtimes from the status of an InferenceService."""
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
    extra_fields = runtimes if module.params["why"] else None
    run_info(module, SERVICES[module.params["api"]], "inference_services", extra_fields)


if __name__ == "__main__":
    main()
