"""Stands in for OpenShift's admission of pods by the SecurityContextConstraints ``restricted-v2``.

That one refuses what it does not allow, and fills in what a pod leaves open: the user and the group come from the range
of the namespace, in which every namespace has its own.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

Object = dict[str, Any]
FIRST, SIZE = 1_000_650_000, 10_000
"""Of a namespace's users and groups."""
VOLUMES = frozenset(
    ("configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim", "projected", "secret")
)
SECCOMP = "RuntimeDefault"


def admitted(spec: Object) -> tuple[Object, list[str]]:
    """A pod's spec as it is let in, and what is not allowed of it: with any of that it is not let in."""
    filled = copy.deepcopy(spec)
    pod = filled.setdefault("securityContext", {})
    pod.setdefault("fsGroup", FIRST)
    pod.setdefault("seccompProfile", {"type": SECCOMP})
    for container in _containers(filled):
        own = container.setdefault("securityContext", {})
        if "runAsUser" not in pod:
            own.setdefault("runAsUser", FIRST)
        own.setdefault("allowPrivilegeEscalation", False)
        dropped = own.setdefault("capabilities", {}).setdefault("drop", [])
        own["capabilities"]["drop"] = [*dropped, *({"ALL"} - set(dropped))]
    return filled, list(_faults(filled))


def _faults(spec: Object) -> Iterator[str]:
    pod = spec["securityContext"]
    for field in ("hostNetwork", "hostPID", "hostIPC"):
        if spec.get(field):
            yield f"{field} is not allowed"
    if not _mine(pod["fsGroup"]):
        yield f"fsGroup {pod['fsGroup']} is not in the range of the namespace"
    if pod["seccompProfile"].get("type") != SECCOMP:
        yield f"seccompProfile {pod['seccompProfile']} is not allowed"
    for volume in spec.get("volumes") or ():
        for kind in set(volume) - {"name"} - VOLUMES:
            yield f"volume {volume['name']}: {kind} is not allowed"
    for container in _containers(spec):
        for fault in _faults_of(container, pod):
            yield f"container {container['name']}: {fault}"


def _faults_of(container: Object, pod: Object) -> Iterator[str]:
    own = container["securityContext"]
    user = own.get("runAsUser", pod.get("runAsUser"))
    if not _mine(user):
        yield f"runAsUser {user} is not in the range of the namespace"
    if own.get("privileged") or own["allowPrivilegeEscalation"]:
        yield "more privileges are not allowed"
    added = set(own["capabilities"].get("add") or ()) - {"NET_BIND_SERVICE"}
    if added:
        yield f"capabilities {sorted(added)} are not allowed"
    if own.get("seccompProfile", {"type": SECCOMP}).get("type") != SECCOMP:
        yield f"seccompProfile {own['seccompProfile']} is not allowed"
    for port in container.get("ports") or ():
        if port.get("hostPort"):
            yield f"hostPort {port['hostPort']} is not allowed"


def _containers(spec: Object) -> Iterator[Object]:
    yield from spec.get("initContainers") or ()
    yield from spec["containers"]


def _mine(number: int) -> bool:
    return FIRST <= number < FIRST + SIZE
