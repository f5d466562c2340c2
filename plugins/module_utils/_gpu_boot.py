# Copyright: (c) 2026, The slipway.inference authors
# Simplified BSD License (see LICENSES/BSD-2-Clause.txt or https://opensource.org/licenses/BSD-2-Clause)
# SPDX-License-Identifier: BSD-2-Clause

# Private to this collection: it may change in any release. It runs on the nodes, whose Python may be 3.8.

"""What a system says of its start: Secure Boot, the keys that it trusts, whether it wants to be started anew."""

from __future__ import annotations

from ansible_collections.slipway.inference.plugins.module_utils._gpu_tree import Tree

EFI = "/sys/firmware/efi"
SECURE_BOOT = f"{EFI}/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
# Who gives out the variables in which the boot loader hands on the keys of the machine's owner.
OWNER = "605dab50-e046-4300-abb6-3dd810dd8b23"
# The certificates with which modules are signed that are built on the machine, as Ubuntu and DKMS name them.
MODULE_KEYS = ("/var/lib/shim-signed/mok/MOK.der", "/var/lib/dkms/mok.pub")
REBOOT_REQUIRED = ("/run/reboot-required", "/var/run/reboot-required")
# Four bytes of attributes stand before the value of an EFI variable.
ATTRIBUTES = 4


def secure_boot(tree: Tree) -> bool | None:
    """``None`` where nothing can be said, as in a container: false where a machine was not started by EFI."""
    value = tree.data(SECURE_BOOT)[ATTRIBUTES:]
    if value:
        return value[:1] == b"\x01"
    firmware = tree.names("/sys/firmware")
    return False if firmware and "efi" not in firmware else None


def module_keys(tree: Tree) -> list[dict[str, str | bool]]:
    """The keys for modules that the machine has, and whether it trusts what they sign."""
    trusted = trusted_keys(tree)
    keys = ((path, tree.data(path)) for path in MODULE_KEYS)
    return [{"path": path, "enrolled": key in trusted} for path, key in keys if key]


def trusted_keys(tree: Tree) -> bytes:
    """The certificates lie in these lists as they are, one after the other."""
    files = [f"{EFI}/mok-variables/{name}" for name in tree.names(f"{EFI}/mok-variables") if _of_owner(name)]
    files += [
        f"{EFI}/efivars/{name}"
        for name in tree.names(f"{EFI}/efivars")
        if name.endswith(OWNER) and _of_owner(name.partition("-")[0])
    ]
    return b"".join(tree.data(file) for file in files)


def reboot_required(tree: Tree) -> bool:
    """As Debian and Ubuntu say it. The RHEL family has a tool for this."""
    return any(tree.exists(file) for file in REBOOT_REQUIRED)


def _of_owner(name: str) -> bool:
    return name.rstrip("0123456789") == "MokListRT"
