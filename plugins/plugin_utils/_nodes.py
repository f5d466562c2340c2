# Copyright: (c) 2026, The slipway.inference authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Private to this collection: it may change in any release.

"""Inventory variables and groups of a cluster's nodes: accelerators, readiness and addresses. All functions are
pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ansible_collections.slipway.inference.plugins.plugin_utils._quantity import whole_number

Node = Mapping[str, Any]

LABEL = "slipway.inference/accelerator"
"""Node label in which the role device_plugin stores the vendor."""


@dataclass(frozen=True)
class Vendor:
    """How to recognize a vendor's accelerators.

    ``resources`` is a pattern of the extended resources that count as accelerators. A node has the vendor's
    accelerators if it has one of ``labels`` with the value ``true``. ``product`` is the label with the product's name.
    """

    resources: str
    labels: tuple[str, ...]
    product: str


# The resources and labels of the role device_plugin.
VENDORS: Mapping[str, Vendor] = {
    "nvidia": Vendor(
        r"^nvidia[.]com/(gpu|mig-)",
        (
            "feature.node.kubernetes.io/pci-10de.present",
            "feature.node.kubernetes.io/pci-0300_10de.present",
            "feature.node.kubernetes.io/pci-0302_10de.present",
            "nvidia.com/gpu.present",
        ),
        "nvidia.com/gpu.product",
    ),
    "amd": Vendor(
        r"^amd[.]com/",
        (
            "feature.node.kubernetes.io/amd-gpu",
            "feature.node.kubernetes.io/pci-1200_1002.present",
            "feature.node.kubernetes.io/pci-0380_1002.present",
        ),
        "amd.com/gpu.product-name",
    ),
    "intel": Vendor(
        r"^gpu[.]intel[.]com/(i915|xe)$",
        ("intel.feature.node.kubernetes.io/gpu", "feature.node.kubernetes.io/pci-0380_8086.present"),
        "gpu.intel.com/product",
    ),
}
# Types of addresses at which Ansible connects to a node, in order of preference.
_REACHED = ("InternalIP", "ExternalIP", "Hostname")
# Nodes write their own status, and connection plugins pass the address as an argument. It must not look like an option.
_HOST = re.compile(r"[A-Za-z0-9:][A-Za-z0-9.:_-]{0,252}")


def variables(node: Node) -> dict[str, Any]:
    """Return the host variables of a node, as in the documentation of the inventory plugin."""
    metadata, spec, status = node.get("metadata") or {}, node.get("spec") or {}, node.get("status") or {}
    labels, system = metadata.get("labels") or {}, status.get("nodeInfo") or {}
    offered = _accelerators(status.get("allocatable") or {})
    vendor = _vendor(labels, offered)
    addresses = _addresses(status)
    candidates = (address for kind in _REACHED for address in addresses.get(kind, ()))
    reached = next((address for address in candidates if _HOST.fullmatch(address)), "")
    return {
        **({"ansible_host": reached} if reached else {}),
        "node_accelerator": vendor,
        "node_accelerator_product": labels.get(VENDORS[vendor].product, "") if vendor in VENDORS else "",
        "node_accelerators": sum(offered.values()),
        "node_accelerators_capacity": sum(_accelerators(status.get("capacity") or {}).values()),
        "node_accelerator_resources": offered,
        "node_ready": any(
            condition.get("type") == "Ready" and condition.get("status") == "True"
            for condition in status.get("conditions") or ()
        ),
        "node_schedulable": not spec.get("unschedulable"),
        "node_addresses": addresses,
        "node_labels": dict(labels),
        "node_taints": [dict(taint) for taint in spec.get("taints") or ()],
        "node_architecture": system.get("architecture", ""),
        "node_os_image": system.get("osImage", ""),
        "node_kernel": system.get("kernelVersion", ""),
        "node_kubelet": system.get("kubeletVersion", ""),
        "node_container_runtime": system.get("containerRuntimeVersion", ""),
    }


def groups(host: Mapping[str, Any]) -> list[str]:
    """Return the inventory groups of a host with these variables."""
    return ["accelerators", f"accelerator_{host['node_accelerator']}"] if host["node_accelerator"] else []


def _vendor(labels: Mapping[str, str], offered: Mapping[str, int]) -> str:
    """Return the vendor of a node's accelerators: by the role's label, or else by labels of feature discovery, or else
    by the node's resources. The result is empty if there is none."""
    if labels.get(LABEL) in VENDORS:
        return labels[LABEL]
    for name, vendor in VENDORS.items():
        if any(labels.get(label) == "true" for label in vendor.labels):
            return name
    for name, vendor in VENDORS.items():
        if any(count and re.search(vendor.resources, resource) for resource, count in offered.items()):
            return name
    return ""


def _accelerators(resources: Mapping[str, Any]) -> dict[str, int]:
    """Return the extended resources that are accelerators, with the number of each."""
    patterns = [vendor.resources for vendor in VENDORS.values()]
    return {
        name: whole_number(amount)
        for name, amount in sorted(resources.items())
        if any(re.search(pattern, name) for pattern in patterns)
    }


def _addresses(status: Mapping[str, Any]) -> dict[str, list[str]]:
    addresses: dict[str, list[str]] = {}
    for address in status.get("addresses") or ():
        addresses.setdefault(str(address.get("type", "")), []).append(str(address.get("address", "")))
    return addresses
