"""The accelerators that a pod requests, and its required and preferred nodes. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from fractions import Fraction

import msgspec

from slipway.apis.llmkube.types.model import Gpu, Hardware, Vendor
from slipway.apis.llmkube.types.service import InferenceServiceSpec
from slipway.kube.objects import Object
from slipway.kube.values.quantity import amount
from slipway.serving.contract.api import InvalidSpecError

RESOURCES: dict[Vendor, str] = {"nvidia": "nvidia.com/gpu", "amd": "amd.com/gpu", "intel": "gpu.intel.com/i915"}
RENDER_NODES = "devic.es/dri-render"
"""Resource for the device files of AMD GPUs, which several programs on a node can share."""
PARTITION = "nvidia.com/mig-"
PROFILE = re.compile(r"[0-9]+g\.[0-9]+gb")
GPU_MEMORY = "nvidia.com/gpu.memory"
"""Label of nodes with the memory of each of their GPUs in MiB, set by NVIDIA's feature discovery."""
NOMINAL = 0.9
"""Part of a GPU's nominal memory that a node must report. Drivers report slightly less than the nominal size."""


class Accelerators(msgspec.Struct, frozen=True):
    """The GPUs of one pod."""

    count: int
    resource: str
    """Name of the extended resource for the GPUs, even if ``count`` is 0."""
    toleration_key: str
    """Key of the taint that the pod tolerates; empty: none."""
    backend: str
    """Compute API of the GPUs: ``cuda``, ``rocm``, ``vulkan`` or ``intel``; empty: no GPU image is needed."""
    vendor: Vendor
    claims: tuple[Object, ...] = ()
    """Device claims instead of a resource, in a pod's format."""

    @property
    def limits(self) -> Object:
        return {self.resource: str(self.count)} if self.count and not self.claims else {}

    @property
    def tolerations(self) -> tuple[Object, ...]:
        if not self.count or not self.toleration_key:
            return ()
        taint = {"key": self.toleration_key, "operator": "Equal", "value": "present", "effect": "NoSchedule"}
        return (taint,)


def accelerators(spec: InferenceServiceSpec, hardware: Hardware) -> Accelerators:
    """Return the GPUs of each pod of a service. The Model's count takes precedence over the service's. ``enabled``
    without a count requests no GPU, but selects a GPU image for pods that get GPUs in another way."""
    gpu, vendor, sharing = hardware.gpu, vendor_of(hardware), spec.resources.gpu_sharing
    part = f"{PARTITION}{sharing.profile}" if sharing.mode == "partitioned" else ""
    backend, resource_name = _backend(hardware, vendor), part or resource(hardware)
    count = gpu.count or spec.resources.gpu or int(bool(gpu.resource_claims))
    return Accelerators(
        count=count,
        resource=resource_name,
        # Only the author knows the taints of nodes with claimed devices.
        toleration_key=gpu.toleration_key or ("" if gpu.resource_claims else resource_name),
        backend=backend if count or gpu.enabled else "",
        vendor=vendor,
        claims=gpu.resource_claims,
    )


def gpus_of(pod: Object, claimed: int) -> int:
    """Return the number of GPUs that a pod with the spec ``pod`` holds: the largest sum of its containers' limits for
    one extended resource. A pod with only device claims, which do not show the number of devices, holds ``claimed``,
    but at least one for each claim."""
    sums: dict[str, int] = {}
    for container in pod.get("containers") or ():
        for name, text in ((container.get("resources") or {}).get("limits") or {}).items():
            if "/" in name:
                sums[name] = sums.get(name, 0) + _whole(text)
    claims = len(pod.get("resourceClaims") or ())
    return max(sums.values(), default=0) or (max(claims, claimed) if claims else 0)


def _whole(text: object) -> int:
    """Return the value of a quantity, rounded up, or 0 if the quantity is invalid."""
    try:
        return math.ceil(amount(str(text)))
    except ValueError:
        return 0


def sharing_fault(spec: InferenceServiceSpec, hardware: Hardware, shared_nodes: Mapping[str, str]) -> str:
    """Return the reason why a GPU cannot be shared as the service requests, or an empty string if it can.
    ``shared_nodes`` are the labels of the nodes that the operator reserves for sharing."""
    gpu, sharing = hardware.gpu, spec.resources.gpu_sharing
    if sharing.mode == "exclusive":
        return ""
    if (gpu.count or spec.resources.gpu) != 1 or gpu.resource_claims:
        return f"the mode {sharing.mode} needs a pod with exactly one GPU, without resourceClaims"
    vendor = vendor_of(hardware)
    if sharing.mode == "shared":
        available = shared_nodes or vendor == "amd"
        return "" if available else "the operator has no nodes for shared GPUs (controller_shared_gpu_nodes)"
    if vendor != "nvidia" or gpu.resource_name:
        return "the mode partitioned needs NVIDIA GPUs, without resourceName"
    return "" if PROFILE.fullmatch(sharing.profile) else f"{sharing.profile!r} is not a MIG profile such as 1g.24gb"


def resource(hardware: Hardware) -> str:
    """Return the name of the extended resource that a pod requests to get GPUs."""
    gpu, vendor = hardware.gpu, vendor_of(hardware)
    # A shared resource does not have the vendor's name.
    shared = gpu.runtime or hardware.accelerator == "vulkan"
    return gpu.resource_name or (RENDER_NODES if vendor == "amd" and shared else RESOURCES[vendor])


def vendor_of(hardware: Hardware) -> Vendor:
    """Return the vendor of the GPUs. An accelerator that implies a vendor takes precedence over the vendor field, which
    has a default."""
    if hardware.accelerator == "rocm":
        return "amd"
    return "intel" if hardware.accelerator == "intel" else hardware.gpu.vendor


def _backend(hardware: Hardware, vendor: Vendor) -> str:
    if hardware.gpu.runtime:
        return hardware.gpu.runtime
    if hardware.accelerator in ("rocm", "vulkan", "intel"):
        return hardware.accelerator
    return {"nvidia": "cuda", "amd": _amd(hardware.gpu), "intel": "intel"}[vendor]


def _amd(gpu: Gpu) -> str:
    """Return the backend for an AMD GPU: ``vulkan`` if the pod requests the GPU's device files, which Vulkan needs,
    otherwise ``rocm``."""
    return "vulkan" if "render" in gpu.resource_name else "rocm"


def affinity(spec: InferenceServiceSpec, gpus: Accelerators) -> Object:
    """Return the user's affinity and, if GPU memory is requested, a preference for nodes with enough of it."""
    own, memory = spec.affinity or {}, spec.resources.gpu_memory
    if not (memory and gpus.count and gpus.vendor == "nvidia"):
        return own
    least = math.floor(_bytes(memory) * NOMINAL / 1024**2)
    has = {"key": GPU_MEMORY, "operator": "Gt", "values": [str(least)]}
    liking = {"weight": 10, "preference": {"matchExpressions": [has]}}
    node = own.get("nodeAffinity") or {}
    field = "preferredDuringSchedulingIgnoredDuringExecution"
    return {**own, "nodeAffinity": {**node, field: [*(node.get(field) or ()), liking]}}


def _bytes(quantity: str) -> Fraction:
    """Return the bytes in ``resources.gpuMemory``. Raise InvalidSpecError for an exponent that is too large, because
    the definition's pattern accepts any exponent."""
    try:
        return amount(quantity)
    except ValueError as error:
        raise InvalidSpecError("InvalidSpec", f"spec.resources.gpuMemory: {error}") from error
