# Copyright: (c) 2026, The slipway.inference authors
# Simplified BSD License (see LICENSES/BSD-2-Clause.txt or https://opensource.org/licenses/BSD-2-Clause)
# SPDX-License-Identifier: BSD-2-Clause

# Private to this collection: it may change in any release. It runs on the nodes, whose Python may be 3.8.
"""Facts about a machine's GPUs. Only ``run`` executes tools; without tools, the facts come from the kernel's files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from ansible_collections.slipway.inference.plugins.module_utils import _gpu_boot, _gpu_nvidia, _gpu_pci
from ansible_collections.slipway.inference.plugins.module_utils._gpu_nvidia import Card
from ansible_collections.slipway.inference.plugins.module_utils._gpu_pci import Device
from ansible_collections.slipway.inference.plugins.module_utils._gpu_tree import Tree

# Kernel modules of each vendor. An Intel GPU uses one of the two.
MODULES = {"nvidia": ("nvidia",), "amd": ("amdgpu",), "intel": ("xe", "i915")}
# Directories of modules that are not part of the kernel.
ADDED = ("/updates/", "/extra/", "/weak-updates/", "/dkms/")


@dataclass(frozen=True)
class Answer:
    status: int
    text: str


class Run(Protocol):
    def __call__(self, command: Sequence[str]) -> Answer | None:
        """Run a tool and return its exit status and output, or None if the machine does not have the tool."""


def facts(tree: Tree, run: Run, driver_of: str = "auto") -> dict[str, Any]:
    """Return the facts about the GPUs of a machine. ``driver_of`` is the vendor whose driver is described; ``auto``
    means the vendor of the machine's GPUs."""
    devices = _gpu_pci.devices(tree)
    gpus = _gpu_pci.gpus(devices)
    vendors = _gpu_pci.vendors(gpus)
    vendor = vendors[0] if vendors else "none"
    return {
        "vendor": vendor,
        "vendors": vendors,
        "gpus": _described(tree, run, gpus),
        "nvswitches": len(_gpu_pci.switches(devices)),
        "nvlink_managers": _gpu_pci.switch_managers(tree),
        "driver": driver(tree, run, vendor if driver_of == "auto" else driver_of, gpus),
        "nouveau_loaded": tree.exists("/sys/module/nouveau"),
        "secure_boot": _gpu_boot.secure_boot(tree),
        "module_keys": _gpu_boot.module_keys(tree),
        "reboot_required": _gpu_boot.reboot_required(tree) or _wants_restart(run),
    }


def driver(tree: Tree, run: Run, vendor: str, gpus: Sequence[Device]) -> dict[str, Any]:
    """Return facts about the loaded and the installed driver. They differ between an upgrade and the next reboot."""
    module = _module(tree, vendor, gpus)
    version, kind = _loaded(tree, module)
    installed_version, installed_kind = _installed(run, module)
    return {
        "vendor": vendor,
        "module": module,
        "loaded": bool(module) and tree.exists(f"/sys/module/{module}"),
        "loaded_version": version,
        "loaded_kind": kind,
        "installed_version": installed_version,
        "installed_kind": installed_kind,
        "source": _gpu_nvidia.source(tree) if module == "nvidia" else "",
    }


def _module(tree: Tree, vendor: str, gpus: Sequence[Device]) -> str:
    modules = MODULES.get(vendor, ())
    bound = [gpu.driver for gpu in gpus if gpu.driver in modules]
    loaded = [module for module in modules if tree.exists(f"/sys/module/{module}")]
    return next(iter([*bound, *loaded, *reversed(modules)]), "")


def _loaded(tree: Tree, module: str) -> tuple[str, str]:
    if module == "nvidia":
        text = tree.text("/proc/driver/nvidia/version")
        return _gpu_nvidia.loaded_version(text), _gpu_nvidia.loaded_kind(text)
    if not module or not tree.exists(f"/sys/module/{module}"):
        return "", ""
    # Modules that are part of the kernel have no separate version.
    version = tree.text(f"/sys/module/{module}/version")
    return version, "added" if version else "inbox"


def _installed(run: Run, module: str) -> tuple[str | None, str | None]:
    """Return version and kind of the installed kernel module. The result is None if there is no tool to find out, and
    empty if there is no such module."""
    answer = run(["modinfo", module]) if module else Answer(1, "")
    if answer is None:
        return None, None
    if answer.status != 0:
        return "", ""
    fields = dict(line.split(":", 1) for line in reversed(answer.text.splitlines()) if ":" in line)
    version = fields.get("version", "").strip()
    if module == "nvidia":
        return version, _gpu_nvidia.kind_of_license(fields.get("license", ""))
    return version, "added" if any(place in fields.get("filename", "") for place in ADDED) else "inbox"


def _described(tree: Tree, run: Run, gpus: Sequence[Device]) -> list[dict[str, Any]]:
    cards = _asked(run) if any(gpu.vendor == "nvidia" for gpu in gpus) else {}
    return [_gpu(tree, gpu, cards.get(gpu.address) or _card(tree, gpu)) for gpu in gpus]


def _asked(run: Run) -> dict[str, Card]:
    query = run(["nvidia-smi", f"--query-gpu={','.join(_gpu_nvidia.QUERY)}", "--format=csv,noheader,nounits"])
    if query is None or query.status != 0:
        return {}
    # Only if a GPU has MIG devices to list.
    listing = run(["nvidia-smi", "-L"]) if "Enabled" in query.text else None
    return _gpu_nvidia.known_by_tool(query.text, listing.text if listing else "")


def _card(tree: Tree, gpu: Device) -> Card:
    if gpu.vendor == "nvidia":
        return _gpu_nvidia.known_by_driver(tree, gpu.address) or Card(model="", uuid="")
    if gpu.vendor == "amd":
        return Card(
            model=tree.text(f"{gpu.path}/product_name"),
            uuid=tree.text(f"{gpu.path}/unique_id"),
            memory_bytes=tree.number(f"{gpu.path}/mem_info_vram_total"),
        )
    return Card(model="", uuid="", memory_bytes=_intel_memory(tree, gpu))


def _intel_memory(tree: Tree, gpu: Device) -> int | None:
    """Return the memory in bytes of an Intel GPU with dedicated memory, as its drivers xe and i915 report it. The
    result is None if it has none."""
    tiles = [name for name in tree.names(gpu.path) if name.startswith("tile")]
    cards = [name for name in tree.names(f"{gpu.path}/drm") if name.startswith("card")]
    files = [f"{gpu.path}/{tile}/physical_vram_size_bytes" for tile in tiles]
    files += [f"{gpu.path}/drm/{card}/lmem_total_bytes" for card in cards]
    return sum(tree.number(file) or 0 for file in files) or None


def _gpu(tree: Tree, gpu: Device, card: Card) -> dict[str, Any]:
    return {
        "address": gpu.address,
        "vendor": gpu.vendor,
        "vendor_id": gpu.vendor_id,
        "device_id": gpu.device_id,
        "model": card.model or _gpu_pci.listed_name(tree, gpu),
        "architecture": _gpu_nvidia.architecture(gpu.device_id) if gpu.vendor == "nvidia" else "",
        "uuid": card.uuid,
        "memory_bytes": card.memory_bytes,
        "driver": gpu.driver,
        "mig_enabled": card.mig,
        "mig_devices": card.mig_devices,
    }


def _wants_restart(run: Run) -> bool:
    """Whether the RHEL family's tool reports that a reboot is required. The tool also ends with 1 after errors, which
    must not cause a reboot."""
    answer = run(["needs-restarting", "-r"])
    return answer is not None and answer.status == 1 and "Reboot is required" in answer.text
