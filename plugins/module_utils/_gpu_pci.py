# Copyright: (c) 2026, The slipway.inference authors
# Simplified BSD License (see LICENSES/BSD-2-Clause.txt or https://opensource.org/licenses/BSD-2-Clause)
# SPDX-License-Identifier: BSD-2-Clause

# Private to this collection: it may change in any release. It runs on the nodes, whose Python may be 3.8.

"""Which PCI devices are GPUs, and their names."""

from __future__ import annotations

from dataclasses import dataclass

from ansible_collections.slipway.inference.plugins.module_utils._gpu_tree import Tree

DEVICES = "/sys/bus/pci/devices"
# In order of precedence if a machine has several: a server's processor may have its own GPU.
VENDORS = {"10de": "nvidia", "1002": "amd", "8086": "intel"}
# First digits of the PCI class: display controllers (VGA, 3D, other), and processing accelerators such as AMD's
# Instincts. Intel's processing accelerators are NPUs of its processors, so they are excluded.
GPU_CLASSES = {"nvidia": ("03", "12"), "amd": ("03", "12"), "intel": ("03",)}
# PCI class "other bridge", which NVSwitches have.
SWITCH_CLASS = "0680"
# Text in the product data of InfiniBand functions that manage NVLink 5 switches, which are not PCI devices.
SWITCH_MANAGER = b"SW_MNG"
INFINIBAND = "/sys/class/infiniband"
# Paths at which distributions store the names of PCI devices.
NAMES = ("/usr/share/hwdata/pci.ids", "/usr/share/misc/pci.ids")


@dataclass(frozen=True)
class Device:
    """A PCI device. ``vendor_id`` and ``device_id`` are four hexadecimal digits, and ``driver`` is the kernel driver to
    which it is bound."""

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
    """Return the number of InfiniBand functions that manage NVLink 5 switches, detected as in NVIDIA's driver
    container."""
    return sum(SWITCH_MANAGER in tree.data(f"{INFINIBAND}/{name}/device/vpd") for name in tree.names(INFINIBAND))


def vendors(pci_devices: list[Device]) -> list[str]:
    present = {device.vendor for device in pci_devices}
    return [vendor for vendor in VENDORS.values() if vendor in present]


def listed_name(tree: Tree, device: Device) -> str:
    """Return the device's name from the machine's list of PCI devices, or an empty string."""
    return next(filter(None, (name_in(tree.text(file), device.vendor_id, device.device_id) for file in NAMES)), "")


def name_in(listing: str, vendor_id: str, device_id: str) -> str:
    """Return a device's name from the text of a list of PCI devices, or an empty string. In the list, a vendor's line
    begins with its ID, and those of its devices with a tab and their ID."""
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
