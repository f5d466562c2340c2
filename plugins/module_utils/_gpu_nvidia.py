# Copyright: (c) 2026, The slipway.inference authors
# Simplified BSD License (see LICENSES/BSD-2-Clause.txt or https://opensource.org/licenses/BSD-2-Clause)
# SPDX-License-Identifier: BSD-2-Clause

# Private to this collection: it may change in any release. It runs on the nodes, whose Python may be 3.8.

"""Facts that are specific to NVIDIA: GPU generations, the driver's files, and the output of nvidia-smi."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from ansible_collections.slipway.inference.plugins.module_utils._gpu_tree import Tree

# Ranges of PCI device IDs. NVIDIA assigns them in blocks for a generation or a chip.
ARCHITECTURES: tuple[tuple[int, int, str], ...] = (
    (0x0FC0, 0x103F, "kepler"),
    (0x1180, 0x11FF, "kepler"),
    (0x1280, 0x12BF, "kepler"),
    (0x1340, 0x143F, "maxwell"),
    (0x15F0, 0x15FF, "pascal"),
    (0x1600, 0x17FF, "maxwell"),
    (0x1B00, 0x1D7F, "pascal"),
    (0x1D80, 0x1DFF, "volta"),
    (0x1E00, 0x1FFF, "turing"),
    (0x2080, 0x20FF, "ampere"),
    (0x2180, 0x21FF, "turing"),
    (0x2200, 0x22FF, "ampere"),
    (0x2300, 0x23FF, "hopper"),
    (0x2400, 0x25FF, "ampere"),
    (0x2600, 0x28FF, "ada"),
    (0x2900, 0x31FF, "blackwell"),
)
# Properties of each GPU to query with nvidia-smi.
QUERY = ("pci.bus_id", "name", "uuid", "memory.total", "mig.mode.current")
# Where a driver container mounts its root on the node.
DRIVER_CONTAINER = "/run/nvidia/driver"
VERSION = re.compile(r"Kernel Module(?: for \S+)?\s+(\d+(?:\.\d+)+)")
MIG_DEVICE = re.compile(r"^\s+MIG (\S+)\s.*\(UUID: (\S+?)\)")


@dataclass(frozen=True)
class Card:
    """The driver's facts about a GPU. ``mig`` is whether MIG mode is enabled, or None if the GPU does not support
    it."""

    model: str
    uuid: str
    memory_bytes: int | None = None
    mig: bool | None = None
    mig_devices: list[dict[str, str]] = field(default_factory=list)


def architecture(device_id: str) -> str:
    number = int(device_id, 16)
    return next((name for first, last, name in ARCHITECTURES if first <= number <= last), "")


def loaded_version(text: str) -> str:
    """Return the driver version in the text of ``/proc/driver/nvidia/version``, or an empty string."""
    match = VERSION.search(text)
    return match.group(1) if match else ""


def loaded_kind(text: str) -> str:
    return ("open" if "Open Kernel Module" in text else "proprietary") if loaded_version(text) else ""


def kind_of_license(text: str) -> str:
    """Return ``open`` or ``proprietary`` for the license of a kernel module. The open modules have the licenses MIT and
    GPL. The result is empty without a license."""
    return ("open" if "MIT" in text or "GPL" in text else "proprietary") if text else ""


def source(tree: Tree) -> str:
    """Return how the driver was installed if not from packages: ``container``, or ``runfile`` for NVIDIA's own
    installer. The result is empty otherwise."""
    if any(tree.exists(f"{DRIVER_CONTAINER}/usr/bin/{tool}") for tool in ("nvidia-smi", "nvidia-installer")):
        return "container"
    return "runfile" if tree.exists("/usr/bin/nvidia-uninstall") else ""


def known_by_driver(tree: Tree, address: str) -> Card | None:
    """Return the loaded driver's facts about a GPU, read without any tool. The result is None if the driver does not
    list the GPU."""
    text = tree.text(f"/proc/driver/nvidia/gpus/{address}/information")
    fields = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
    if not fields:
        return None
    return Card(model=fields.get("Model", "").strip(), uuid=fields.get("GPU UUID", "").strip())


def known_by_tool(query: str, listing: str) -> dict[str, Card]:
    """Return the facts about each GPU by PCI address. ``query`` is the CSV output for QUERY without units, and
    ``listing`` the output of ``nvidia-smi -L``."""
    parts = mig_devices(listing)
    cards: dict[str, Card] = {}
    for line in query.splitlines():
        values = [value.strip() for value in line.split(",")]
        if len(values) != len(QUERY):
            continue
        bus, model, uuid, memory, mig = values
        cards[address(bus)] = Card(
            model=model,
            uuid=uuid,
            memory_bytes=int(memory) * 1024**2 if memory.isdigit() else None,
            mig={"Enabled": True, "Disabled": False}.get(mig),
            mig_devices=parts.get(uuid, []),
        )
    return cards


def mig_devices(listing: str) -> dict[str, list[dict[str, str]]]:
    """Return the MIG devices, each with profile and UUID, by the UUID of their GPU."""
    partitions: dict[str, list[dict[str, str]]] = {}
    uuid = ""
    for line in listing.splitlines():
        part = MIG_DEVICE.match(line)
        if line.startswith("GPU "):
            uuid = line.rpartition("UUID: ")[2].rstrip(")")
        elif part and uuid:
            partitions.setdefault(uuid, []).append({"profile": part.group(1), "uuid": part.group(2)})
    return partitions


def address(bus: str) -> str:
    """Return a PCI address in the kernel's format. nvidia-smi prints it as 00000000:3B:00.0."""
    domain, _colon, rest = bus.lower().partition(":")
    return f"{domain[-4:]}:{rest}"
