# Copyright: (c) 2026, The slipway.inference authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: container_states
short_description: Tell what keeps the containers of pods, one by one
version_added: 0.5.0
author:
  - The slipway.inference authors (@slipway)
description:
- Reads what kubelets said of the containers of pods, but not of their init containers.
- The roles P(slipway.inference.preflight#role) and P(slipway.inference.model_registry#role) use it.
options:
  _input:
    description: Pods, as the API server lists them.
    type: list
    elements: dict
    required: true
"""

EXAMPLES = r"""
- name: Show what each container waits for
  ansible.builtin.debug:
    msg: "{{ pods.resources | slipway.inference.container_states | selectattr('waits') }}"
"""

RETURN = r"""
_value:
  description:
    - For each container C(pod), C(node), C(phase) of the pod, C(container), C(image), whether it C(waits), its
      C(reason), C(message), and C(words), its last ones where it has ended, else what it waits for.
    - Of a pod of which no kubelet has said anything yet, one with an empty C(container).
  type: list
  elements: dict
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

Object = Mapping[str, Any]


def container_states(pods: Iterable[Object]) -> list[dict[str, Any]]:
    return [state for pod in pods for state in _states(pod)]


def _states(pod: Object) -> Iterator[dict[str, Any]]:
    status = pod.get("status") or {}
    spec = pod.get("spec") or {}
    images = {container["name"]: container.get("image", "") for container in spec.get("containers") or []}
    of = {"pod": pod["metadata"]["name"], "node": spec.get("nodeName", ""), "phase": status.get("phase", "")}
    for told in status.get("containerStatuses") or [{"name": ""}]:
        state = told.get("state") or {}
        waiting, ended = state.get("waiting"), state.get("terminated") or {}
        reason, message = (waiting or {}).get("reason", ""), (waiting or {}).get("message", "")
        yield {
            **of,
            "container": told["name"],
            "image": images.get(told["name"], ""),
            "waits": waiting is not None,
            "reason": reason,
            "message": message or reason,
            "words": ended.get("message") or f"{reason} {message}".strip(),
        }


class FilterModule:
    """Registers the filter."""

    def filters(self) -> dict[str, Any]:
        return {"container_states": container_states}
