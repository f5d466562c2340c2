# Copyright: (c) 2026, The slipway.inference authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: runtime_manifests
short_description: Expand names and short entries to manifests of OME serving runtimes
version_added: 0.5.0
author:
  - The slipway.inference authors (@slipway)
description:
  - A name is expanded to the manifest of a known runtime. Manifests can be short, with their metadata at the top level.
    Short manifests with a namespace become a C(ServingRuntime), others a C(ClusterServingRuntime).
  - The role P(slipway.inference.models#role) uses it.
positional: _input, known, namespace
options:
  _input:
    description: Names and manifests.
    type: list
    elements: raw
    required: true
  known:
    description: Manifests of the known runtimes.
    type: list
    elements: dict
    required: true
  namespace:
    description: Default namespace of a C(ServingRuntime).
    type: str
    required: true
"""

EXAMPLES = r"""
- name: Show the manifest of a ServingRuntime
  ansible.builtin.debug:
    msg: "{{ [{'name': 'mine', 'namespace': 'chat'}] | slipway.inference.runtime_manifests([], 'default') }}"
"""

RETURN = r"""
_value:
  description: The manifests.
  type: list
  elements: dict
"""

from collections.abc import Iterable, Mapping
from typing import Any

from ansible.errors import AnsibleFilterError

Object = Mapping[str, Any]
SHORT = ("name", "namespace", "labels", "annotations")


def runtime_manifests(chosen: Iterable[str | Object], known: Iterable[Object], namespace: str) -> list[dict[str, Any]]:
    """Return a manifest for each runtime in ``chosen``, which is a name in ``known`` or an object. Raise
    AnsibleFilterError for an unknown name."""
    by_name = {one["metadata"]["name"]: one for one in known}
    missing = [one for one in chosen if isinstance(one, str) and one not in by_name]
    if missing:
        raise AnsibleFilterError(f"Unknown runtime {', '.join(missing)}.")
    return [_manifest(by_name[one] if isinstance(one, str) else one, namespace) for one in chosen]


def _manifest(given: Object, namespace: str) -> dict[str, Any]:
    metadata = given.get("metadata", {key: given[key] for key in SHORT if key in given})
    kind = given.get("kind", "ServingRuntime" if "namespace" in metadata else "ClusterServingRuntime")
    place = {"namespace": namespace} if kind == "ServingRuntime" else {}
    return {
        "apiVersion": "ome.io/v1beta1",
        "kind": kind,
        "metadata": {**place, **metadata},
        "spec": given.get("spec", {}),
    }


class FilterModule:
    """Entry point from which Ansible loads the filter."""

    def filters(self) -> dict[str, Any]:
        return {"runtime_manifests": runtime_manifests}
