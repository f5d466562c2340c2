# Copyright: (c) 2026, The slipway.inference authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: accelerator_nodes
short_description: Return the nodes that have accelerators, and those without a device plugin
version_added: 0.5.0
author:
  - The slipway.inference authors (@slipway)
description:
  - Reads the nodes of a cluster and the pods of device plugins. Returns the vendor of each node's accelerators, the
    labels it should have, the resources it offers, and whether its plugin is running.
  - The role P(slipway.inference.device_plugin#role) uses it.
positional: _input, pods, settings
options:
  _input:
    description: Nodes from the API server.
    type: list
    elements: dict
    required: true
  pods:
    description: Pods of the device plugins from the API server.
    type: list
    elements: dict
    required: true
  settings:
    description: Facts and variables of the role.
    type: dict
    required: true
    suboptions:
      vendors:
        description:
          - For each vendor, C(resources), a pattern for its accelerator resources, and C(nodes), label rules. A node
            belongs to the vendor if any rule matches.
        type: dict
        required: true
      said:
        description: Vendor of each node, or V(none).
        type: dict
        default: {}
      served:
        description: Vendors that get a device plugin.
        type: list
        elements: str
        default: []
      label:
        description: Label with the vendor.
        type: str
        required: true
      manager:
        description: Field manager of the labels.
        type: str
        required: true
      selector:
        description: Labels that a node needs to get a device plugin.
        type: dict
        default: {}
      further_labels:
        description: For each label, the value of each NVIDIA node.
        type: dict
        default: {}
      mig_label:
        description: Label in C(further_labels) that repartitions GPUs when it changes.
        type: str
        default: ""
      revisions:
        description: Current revisions of the device plugins.
        type: list
        elements: str
        default: []
      stuck_reasons:
        description: Reasons of waiting containers that need manual action.
        type: list
        elements: str
        default: []
      tolerate:
        description: Maximum number or percentage of nodes without a running plugin.
        type: raw
        default: 0
"""

EXAMPLES = r"""
- name: Show which nodes have GPUs
  ansible.builtin.debug:
    msg: "{{ (nodes.resources | slipway.inference.accelerator_nodes([], settings)).nodes }}"
  vars:
    settings:
      label: slipway.inference/accelerator
      manager: slipway.inference/device-plugin
      vendors:
        nvidia:
          resources: ^nvidia[.]com/gpu
          nodes:
            - {key: nvidia.com/gpu.present, values: ["true"]}
"""

RETURN = r"""
_value:
  description: State of the nodes.
  type: dict
  contains:
    nodes:
      description: >-
        Name of a node to C(vendor), C(refused), C(labels), C(settled), C(cut_anew), C(selected), C(offers) and
        C(ready).
      type: dict
    expected:
      description: Nodes that should have a device plugin.
      type: list
      elements: str
    states:
      description: V(ready), V(stuck) or V(pending) for each node, according to its plugin's pod.
      type: dict
    stuck:
      description: Nodes with a plugin that cannot start without manual action.
      type: list
      elements: str
    pending:
      description: Nodes with a plugin that is starting.
      type: list
      elements: str
    missing:
      description: Nodes that should offer accelerators and do not, or will soon stop.
      type: list
      elements: str
    awaited:
      description: Nodes in C(missing) that can still become ready.
      type: list
      elements: str
    tolerable:
      description: Whether the number of missing nodes is within the tolerance.
      type: bool
"""

import re
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

from ansible_collections.slipway.inference.plugins.plugin_utils._quantity import whole_number
from ansible_collections.slipway.inference.plugins.plugin_utils._shapes import plain
from ansible_collections.slipway.inference.plugins.plugin_utils._tolerance import share, tolerated

Object = Mapping[str, Any]
# With this label, users keep NVIDIA's device plugin, and ours, off a node.
DEPLOY = "nvidia.com/gpu.deploy.device-plugin"
REVISION = "slipway.inference/revision"


def accelerator_nodes(nodes: Iterable[Object], pods: Iterable[Object], settings: Object) -> dict[str, Any]:
    """Return facts of all nodes by name, and sorted lists of the nodes that have a device plugin, lack it or wait for
    it."""
    settings = plain(settings)
    node_facts = {node["metadata"]["name"]: _node(node, settings) for node in nodes}
    served = settings.get("served") or []
    expected = sorted(name for name, node in node_facts.items() if node["selected"] and node["vendor"] in served)
    states = _states(expected, pods, settings)
    stuck = [name for name in expected if states[name] == "stuck"]
    missing = [name for name in expected if states[name] == "stuck" or not node_facts[name]["offers"]]
    away = {name for name in missing if not node_facts[name]["ready"]}
    # Nodes that are not ready are not waited for, unless there are so many that the play would fail.
    few = len(away) < len(expected) and len(away) <= tolerated(settings.get("tolerate", 0), len(expected))
    excused = away if few else set()
    return {
        "nodes": node_facts,
        "expected": expected,
        "states": states,
        "stuck": stuck,
        "pending": [name for name in expected if states[name] == "pending" and name not in excused],
        "missing": missing,
        "awaited": [name for name in missing if name not in excused and states[name] != "stuck"],
        "tolerable": _tolerable(len(missing), len(away), len(expected), settings.get("tolerate", 0)),
    }


def _tolerable(missing: int, away: int, expected: int, tolerate: object) -> bool:
    """Whether the play may continue although some nodes offer no devices.

    A few nodes that are not ready are normal in any cluster. A ready node that offers nothing is tolerable only within
    the given share.
    """
    if missing in (0, expected):
        return missing == 0
    return missing <= share(tolerate, expected) or (missing == away and away <= tolerated(tolerate, expected))


def _node(node: Object, settings: Object) -> dict[str, Any]:
    metadata = node["metadata"]
    name, labels = metadata["name"], metadata.get("labels") or {}
    override = (settings.get("said") or {}).get(name, "")
    vendors = settings["vendors"]
    vendor = override or _labelled(labels, vendors) or labels.get(settings["label"], "")
    vendor = vendor if vendor in vendors else ""
    refused = override == "none"
    desired_labels = {settings["label"]: vendor or "none"} if vendor or refused else {}
    if vendor == "nvidia":
        further = settings.get("further_labels") or {}
        desired_labels |= {label: values[name] for label, values in further.items() if name in values}
    mig = settings.get("mig_label", "")
    return {
        "vendor": vendor,
        "refused": refused,
        "labels": desired_labels,
        "settled": _has(labels, desired_labels) and _managed(metadata, settings["manager"]) <= desired_labels.keys(),
        "cut_anew": mig in desired_labels and desired_labels[mig] != labels.get(mig, ""),
        "selected": _has(labels, settings.get("selector") or {})
        and (DEPLOY not in labels or labels[DEPLOY] != "false"),
        "offers": _offers(node, vendors[vendor]["resources"]) if vendor else {},
        "ready": _ready(node),
    }


def _labelled(labels: Object, vendors: Object) -> str:
    """Return the first vendor whose labels a node has from other software, or an empty string."""
    for vendor, definition in vendors.items():
        if any(rule["key"] in labels and labels[rule["key"]] in rule["values"] for rule in definition["nodes"]):
            return str(vendor)
    return ""


def _has(labels: Object, expected: Object) -> bool:
    return all(label in labels and labels[label] == value for label, value in expected.items())


def _managed(metadata: Object, manager: str) -> set[str]:
    """Return the labels that our field manager owns. Server-side apply removes an owned label that is no longer
    applied."""
    for entry in metadata.get("managedFields") or []:
        if entry.get("manager") == manager:
            fields = entry.get("fieldsV1", {}).get("f:metadata", {}).get("f:labels", {})
            return {label.removeprefix("f:") for label in fields}
    return set()


def _offers(node: Object, resources: str) -> dict[str, Any]:
    allocatable = (node.get("status") or {}).get("allocatable") or {}
    return {
        name: count for name, count in allocatable.items() if whole_number(count) and _pattern(resources).match(name)
    }


@cache
def _pattern(text: str) -> re.Pattern[str]:
    return re.compile(text)


def _ready(node: Object) -> bool:
    """Whether the node is ready. A node without the condition Ready counts as ready."""
    conditions = (node.get("status") or {}).get("conditions") or []
    return all(condition["status"] == "True" for condition in conditions if condition["type"] == "Ready")


def _states(expected: Iterable[str], pods: Iterable[Object], settings: Object) -> dict[str, str]:
    states = dict.fromkeys(expected, "pending")
    revisions, reasons = settings.get("revisions") or [], settings.get("stuck_reasons") or []
    for pod in pods:
        name = pod["spec"].get("nodeName", "")
        if name in states and states[name] != "ready" and pod["metadata"]["labels"].get(REVISION) in revisions:
            states[name] = _state(pod, reasons, states[name])
    return states


def _state(pod: Object, reasons: Iterable[str], otherwise: str) -> str:
    status = pod.get("status") or {}
    for condition in status.get("conditions") or []:
        if condition["type"] == "Ready" and condition["status"] == "True":
            return "ready"
    containers = [*(status.get("initContainerStatuses") or []), *(status.get("containerStatuses") or [])]
    waiting = {((one.get("state") or {}).get("waiting") or {}).get("reason") for one in containers}
    return "stuck" if waiting.intersection(reasons) else otherwise


class FilterModule:
    """Entry point from which Ansible loads the filter."""

    def filters(self) -> dict[str, Any]:
        return {"accelerator_nodes": accelerator_nodes}
