# Copyright: (c) 2026, The slipway.inference authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: ready_nodes
short_description: Choose the nodes that are ready, or that take any pod
version_added: 0.5.0
author:
  - The slipway.inference authors (@slipway)
description:
- Chooses those whose kubelet says that they are ready.
- The roles P(slipway.inference.preflight#role) and P(slipway.inference.status#role) use it.
positional: _input, for_any_pod
options:
  _input:
    description: Nodes, as the API server lists them.
    type: list
    elements: dict
    required: true
  for_any_pod:
    description: Whether to leave out those that are cordoned, or have a taint that keeps pods away.
    type: bool
    default: false
"""

EXAMPLES = r"""
- name: Show how many nodes take any pod
  ansible.builtin.debug:
    msg: "{{ nodes.resources | slipway.inference.ready_nodes(for_any_pod=true) | length }}"
"""

RETURN = r"""
_value:
  description: The nodes, as they were given.
  type: list
  elements: dict
"""

from collections.abc import Iterable, Mapping
from typing import Any

Object = Mapping[str, Any]


def ready_nodes(nodes: Iterable[Object], for_any_pod: bool = False) -> list[Object]:
    return [node for node in nodes if _ready(node) and not (for_any_pod and _closed(node))]


def _ready(node: Object) -> bool:
    conditions = (node.get("status") or {}).get("conditions") or []
    return any(condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions)


def _closed(node: Object) -> bool:
    spec = node.get("spec") or {}
    return bool(spec.get("unschedulable")) or any(
        taint["effect"] != "PreferNoSchedule" for taint in spec.get("taints") or []
    )


class FilterModule:
    """Registers the filter."""

    def filters(self) -> dict[str, Any]:
        return {"ready_nodes": ready_nodes}
