"""Devices: pods that use the device files of GPUs are members of the groups that may open them. Pure.

``/dev/kfd`` and ``/dev/dri/renderD*`` of AMD and Intel GPUs belong to root and a group of the node, such as ``render``.
An engine that is not root and not in that group takes a device that it cannot open for none, and uses the CPU.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from slipway.kube.objects import Object

SHARED = "devic.es/"
"""Of resources that are device files, whatever number of GPUs is behind them."""
PREFIXES = ("amd.com/", "gpu.intel.com/", SHARED)
"""Of the resources whose devices belong to a group. Those of NVIDIA are open to every user."""


def device_resources(container: Object) -> dict[str, str]:
    """Returns resource -> count for a container's devices that belong to a group."""
    resources = container.get("resources") or {}
    amounts = {**(resources.get("requests") or {}), **(resources.get("limits") or {})}
    return {str(name): str(amount) for name, amount in amounts.items() if str(name).startswith(PREFIXES)}


def with_groups(pod: Object, groups: Sequence[int]) -> Object:
    """A pod's spec with these groups added to the author's, if the pod has such devices or claims devices."""
    claims = any(pod.get("resourceClaims") or ())
    if not groups or not (claims or any(device_resources(one) for one in _containers(pod))):
        return pod
    security = pod.get("securityContext") or {}
    given = [group for group in security.get("supplementalGroups") or () if group not in groups]
    return {**pod, "securityContext": {**security, "supplementalGroups": [*given, *groups]}}


def _containers(pod: Object) -> Iterator[Object]:
    for field in ("initContainers", "containers"):
        yield from pod.get(field) or ()
