"""Membership of pods in the groups that may open GPU device files. Pure.

``/dev/kfd`` and ``/dev/dri/renderD*`` of AMD and Intel GPUs belong to root and a group of the node, such as ``render``.
An engine that runs neither as root nor in that group cannot open the device, assumes that the node has no GPU, and uses
the CPU.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from slipway.kube.objects import Object

SHARED = "devic.es/"
"""Prefix of resource names that expose device files. An amount of such a resource is not a number of GPUs."""
PREFIXES = ("amd.com/", "gpu.intel.com/", SHARED)
"""Prefixes of the names of resources whose device files only a group may open. NVIDIA devices are open to every
user."""


def device_resources(container: Object) -> dict[str, str]:
    """Return the container's resources whose device files only a group may open, with the amount of each."""
    resources = container.get("resources") or {}
    amounts = {**(resources.get("requests") or {}), **(resources.get("limits") or {})}
    return {str(name): str(amount) for name, amount in amounts.items() if str(name).startswith(PREFIXES)}


def with_groups(pod: Object, groups: Sequence[int]) -> Object:
    """Return the pod spec with ``groups`` added to its supplemental groups if a container requests a resource in
    :data:`PREFIXES` or the pod has resource claims. Otherwise, return the pod spec unchanged."""
    claims = any(pod.get("resourceClaims") or ())
    if not groups or not (claims or any(device_resources(one) for one in _containers(pod))):
        return pod
    security = pod.get("securityContext") or {}
    own = [group for group in security.get("supplementalGroups") or () if group not in groups]
    return {**pod, "securityContext": {**security, "supplementalGroups": [*own, *groups]}}


def _containers(pod: Object) -> Iterator[Object]:
    for field in ("initContainers", "containers"):
        yield from pod.get(field) or ()
