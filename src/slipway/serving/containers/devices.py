"""Devices: adds pods that use GPU device files to the groups that may open them. Pure.

``/dev/kfd`` and ``/dev/dri/renderD*`` of AMD and Intel GPUs belong to root and a group of the node, such as ``render``.
An engine that runs neither as root nor in that group cannot open the device, assumes that there is none, and uses the
CPU.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from slipway.kube.objects import Object

SHARED = "devic.es/"
"""Prefix of resources that expose device files, regardless of the number of GPUs behind them."""
PREFIXES = ("amd.com/", "gpu.intel.com/", SHARED)
"""Prefixes of resources whose devices belong to a group. NVIDIA devices are open to every user."""


def device_resources(container: Object) -> dict[str, str]:
    """Returns resource -> count for a container's devices that belong to a group."""
    resources = container.get("resources") or {}
    amounts = {**(resources.get("requests") or {}), **(resources.get("limits") or {})}
    return {str(name): str(amount) for name, amount in amounts.items() if str(name).startswith(PREFIXES)}


def with_groups(pod: Object, groups: Sequence[int]) -> Object:
    """Returns the pod spec with these groups added to the author's, if the pod uses such devices or resource claims."""
    claims = any(pod.get("resourceClaims") or ())
    if not groups or not (claims or any(device_resources(one) for one in _containers(pod))):
        return pod
    security = pod.get("securityContext") or {}
    own = [group for group in security.get("supplementalGroups") or () if group not in groups]
    return {**pod, "securityContext": {**security, "supplementalGroups": [*own, *groups]}}


def _containers(pod: Object) -> Iterator[Object]:
    for field in ("initContainers", "containers"):
        yield from pod.get(field) or ()
