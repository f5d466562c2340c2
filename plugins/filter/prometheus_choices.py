# Copyright: (c) 2026, The slipway.inference authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: prometheus_choices
short_description: Tell which Prometheus of the operator takes our monitors and rules
version_added: 0.5.0
author:
  - The slipway.inference authors (@slipway)
description:
- One takes them if its selectors ask for no label that they or their namespace lack. A selector that is missing takes
  nothing of other namespaces, one that is empty takes everything.
- The role P(slipway.inference.monitoring#role) uses it.
positional: _input, labels, namespace
options:
  _input:
    description: The Prometheus objects, as the API server lists them.
    type: list
    elements: dict
    required: true
  labels:
    description: Labels of the monitors and rules.
    type: dict
    required: true
  namespace:
    description: Their Namespace, as the API server shows it.
    type: dict
    required: true
"""

EXAMPLES = r"""
- name: See that one of them takes ours
  ansible.builtin.assert:
    that: found.resources | slipway.inference.prometheus_choices(labels, namespace) | selectattr('takes') | length > 0
"""

RETURN = r"""
_value:
  description: For each C(name) as namespace/name, whether it C(takes) both, and its C(spec).
  type: list
  elements: dict
"""

from collections.abc import Iterable, Mapping
from typing import Any

Object = Mapping[str, Any]
SELECTED = ("podMonitor", "rule")


def prometheus_choices(prometheuses: Iterable[Object], labels: Object, namespace: Object) -> list[dict[str, Any]]:
    return [
        {
            "name": f"{one['metadata']['namespace']}/{one['metadata']['name']}",
            "takes": all(_takes(one, kind, labels, namespace["metadata"]) for kind in SELECTED),
            "spec": one["spec"],
        }
        for one in prometheuses
    ]


def _takes(prometheus: Object, kind: str, labels: Object, space: Object) -> bool:
    objects, spaces = (prometheus["spec"].get(f"{kind}{what}") for what in ("Selector", "NamespaceSelector"))
    if objects is None or not _fits(objects, labels):
        return False
    if spaces is None:
        return bool(prometheus["metadata"]["namespace"] == space["name"])
    return _fits(spaces, space.get("labels") or {})


def _fits(selector: Object, labels: Object) -> bool:
    return all(labels.get(name) == value for name, value in (selector.get("matchLabels") or {}).items())


class FilterModule:
    """Registers the filter."""

    def filters(self) -> dict[str, Any]:
        return {"prometheus_choices": prometheus_choices}
