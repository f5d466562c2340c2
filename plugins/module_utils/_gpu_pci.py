# Copyright: (c) 2026, The slipway.inference authors
# Simplified BSD License (see LICENSES/BSD-2-Clause.txt or https://opensource.org/licenses/BSD-2-Clause)
# SPDX-License-Identifier: BSD-2-Clause

# Private to this collection: it may change in any release. It runs on the nodes, whose Python may be 3.8.

"""Which PCI devices are GPUs, and what they are called."""

from __future__ import annotations

from dataclasses import dataclass

from ansible_collections.slipway.inference.plugins.module_utils._gpu_tree import Tree

DEVICES = "/sys/bus/pci/devices"
# In the order in which one is chosen where a machine has several: a server's processor may bring a GPU of its own.
VENDORS = {"10de": "nvidia", "1002": "amd", "8086": "intel"}
# By the first digits of the class: display controllers (VGA, 3D, other) and processing accelerators, such as AMD's
# Instincts. Those of Intel are the NPUs of its processors.
GPU_CLASSES = {"nvidia": ("03", "12"), "amd": ("03", "12"), "intel": ("03",)}
# A bridge of no other kind: what NVSwitches call themselves.
SWITCH_CLASS = "0680"
# How the product data of an InfiniBand function names what manages the switches of NVLink 5, which PCI does not show.
SWITCH_MANAGER = b"SW_MNG"
INFINIBAND = "/sys/class/infiniband"
# Where distributions keep the names of PCI devices.
NAMES = ("/usr/share/hwdata/pci.ids", "/usr/share/misc/pci.ids")


@dataclass(frozen=True)
class Device:
    """``vendor_id`` and ``device_id`` are four hexadecimal digits, ``driver`` is the kernel's that it is bound to."""

    address: str
    pci_class: str
    vendor_id: str
    device_id: str
    driver: str

    @property
    def vendor(self) -> str:
        return VENDORS.get(self.vendor_id, "")

    @property
    def path(self) -> str:
        return f"{DEVICES}/{self.address}"


def devices(tree: Tree) -> list[Device]:
    return [
        Device(
            address=address,
            pci_class=_digits(tree.text(f"{DEVICES}/{address}/class")),
            vendor_id=_digits(tree.text(f"{DEVICES}/{address}/vendor")),
            device_id=_digits(tree.text(f"{DEVICES}/{address}/device")),
            driver=tree.target(f"{DEVICES}/{address}/driver"),
        )
        for address in tree.names(DEVICES)
    ]


def gpus(pci_devices: list[Device]) -> list[Device]:
    return [
        device for device in pci_devices if device.vendor and device.pci_class.startswith(GPU_CLASSES[device.vendor])
    ]


def switches(pci_devices: list[Device]) -> list[Device]:
    return [device for device in pci_devices if device.vendor == "nvidia" and device.pci_class.startswith(SWITCH_CLASS)]


def switch_managers(tree: Tree) -> int:
    """How many InfiniBand functions manage switches of NVLink 5, as NVIDIA's driver container finds them."""
    return sum(SWITCH_MANAGER in tree.data(f"{INFINIBAND}/{name}/device/vpd") for name in tree.names(INFINIBAND))


def vendors(pci_devices: list[Device]) -> list[str]:
    present = {device.vendor for device in pci_devices}
    return [vendor for vendor in VENDORS.values() if vendor in present]


def listed_name(tree: Tree, device: Device) -> str:
    """The name in the list of PCI devices, where the machine has one."""
    return next(filter(None, (name_in(tree.text(file), device.vendor_id, device.device_id) for file in NAMES)), "")


def name_in(listing: str, vendor_id: str, device_id: str) -> str:
    """A vendor's line begins with its id, those of its devices with a tab and theirs."""
    of_vendor = False
    for line in listing.splitlines():
        if line[:4].lower() == vendor_id:
            of_vendor = True
        elif line[:1] not in ("\t", "#", ""):
            of_vendor = False
        elif of_vendor and line[:5].lower() == f"\t{device_id}":
            return line[5:].strip()
    return ""


def _digits(text: str) -> str:
    return text[2:].lower() if text.startswith("0x") else text.lower()
