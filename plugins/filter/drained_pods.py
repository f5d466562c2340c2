# Copyright: (c) 2026, The slipway.inference authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: drained_pods
short_description: Return the pods that a drain moves, and those that would lose data
version_added: 0.5.0
author:
  - The slipway.inference authors (@slipway)
description:
  - Selects pods of a node. Completed pods, DaemonSet pods and static pods are ignored.
  - The role P(slipway.inference.gpu_node#role) uses it.
positional: _input, labels, managers
options:
  _input:
    description: Pods from the API server.
    type: list
    elements: dict
    required: true
  labels:
    description: Labels of pods with emptyDir volumes that can be lost.
    type: list
    elements: str
    default: []
  managers:
    description: Values of C(app.kubernetes.io/managed-by) for such pods.
    type: list
    elements: str
    default: []
"""

EXAMPLES = r"""
- name: Show the pods that block a drain
  ansible.builtin.debug:
    msg: "{{ (pods.resources | slipway.inference.drained_pods).bare }}"
"""

RETURN = r"""
_value:
  description: Pods as namespace/name.
  type: dict
  contains:
    to_go:
      description: Pods that a drain evicts.
      type: list
      elements: str
    bare:
      description: Evicted pods that no controller recreates.
      type: list
      elements: str
    keepers:
      description: Evicted pods with data in an emptyDir volume.
      type: list
      elements: str
"""

from collections.abc import Iterable, Mapping
from typing import Any

Object = Mapping[str, Any]
MIRROR = "kubernetes.io/config.mirror"
ENDED = ("Succeeded", "Failed")


def drained_pods(
    pods: Iterable[Object], labels: Iterable[str] = (), managers: Iterable[str] = ()
) -> dict[str, list[str]]:
    """Return the names (``namespace/name``) of three kinds of pods, each as a list.

    ``to_go`` are the pods that a drain evicts, ``bare`` those among them that no controller recreates, and ``keepers``
    the pods whose local data a drain would delete.
    """
    running = [pod for pod in pods if (pod.get("status") or {}).get("phase") not in ENDED]
    movable = [pod for pod in running if "DaemonSet" not in _owners(pod)]
    own = [pod for pod in movable if MIRROR not in (pod["metadata"].get("annotations") or {})]
    labels, managers = set(labels), set(managers)
    return {
        "to_go": [_name(pod) for pod in own],
        "bare": [_name(pod) for pod in own if not _owners(pod)],
        "keepers": [_name(pod) for pod in movable if _keeps(pod) and not _replaceable(pod, labels, managers)],
    }


def _name(pod: Object) -> str:
    return f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"


def _owners(pod: Object) -> list[str]:
    return [owner["kind"] for owner in pod["metadata"].get("ownerReferences") or []]


def _keeps(pod: Object) -> bool:
    return any("emptyDir" in volume for volume in pod["spec"].get("volumes") or [])


def _replaceable(pod: Object, labels: set[str], managers: set[str]) -> bool:
    has = pod["metadata"].get("labels") or {}
    return (
        not labels.isdisjoint(has)
        or has.get("app.kubernetes.io/part-of") == "slipway"
        or has.get("app.kubernetes.io/managed-by") in managers
    )


class FilterModule:
    """Entry point from which Ansible loads the filter."""

    def filters(self) -> dict[str, Any]:
        return {"drained_pods": drained_pods}
