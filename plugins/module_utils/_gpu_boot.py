# Copyright: (c) 2026, The slipway.inference authors
# Simplified BSD License (see LICENSES/BSD-2-Clause.txt or https://opensource.org/licenses/BSD-2-Clause)
# SPDX-License-Identifier: BSD-2-Clause

# Private to this collection: it may change in any release. It runs on the nodes, whose Python may be 3.8.

"""Facts about how a system was booted: Secure Boot, the keys that it trusts, and whether it needs a reboot."""

from __future__ import annotations

from ansible_collections.slipway.inference.plugins.module_utils._gpu_tree import Tree

EFI = "/sys/firmware/efi"
SECURE_BOOT = f"{EFI}/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
# GUID of the EFI variables in which the boot loader passes on the keys of the machine's owner.
OWNER = "605dab50-e046-4300-abb6-3dd810dd8b23"
# Certificates that sign the kernel modules built on the machine, at the paths that Ubuntu and DKMS use.
MODULE_KEYS = ("/var/lib/shim-signed/mok/MOK.der", "/var/lib/dkms/mok.pub")
REBOOT_REQUIRED = ("/run/reboot-required", "/var/run/reboot-required")
# Number of bytes of attributes before the value of an EFI variable.
ATTRIBUTES = 4


def secure_boot(tree: Tree) -> bool | None:
    """Whether Secure Boot is enabled. The result is False if the machine was not booted with EFI, and None if this
    cannot be determined, as in a container."""
    value = tree.data(SECURE_BOOT)[ATTRIBUTES:]
    if value:
        return value[:1] == b"\x01"
    firmware = tree.names("/sys/firmware")
    return False if firmware and "efi" not in firmware else None


def module_keys(tree: Tree) -> list[dict[str, str | bool]]:
    """Return the path of each key on the machine that signs kernel modules, and whether the firmware trusts the key."""
    trusted = trusted_keys(tree)
    keys = ((path, tree.data(path)) for path in MODULE_KEYS)
    return [{"path": path, "enrolled": key in trusted} for path, key in keys if key]


def trusted_keys(tree: Tree) -> bytes:
    """Return the concatenated lists of trusted certificates, which contain each certificate unchanged."""
    files = [f"{EFI}/mok-variables/{name}" for name in tree.names(f"{EFI}/mok-variables") if _of_owner(name)]
    files += [
        f"{EFI}/efivars/{name}"
        for name in tree.names(f"{EFI}/efivars")
        if name.endswith(OWNER) and _of_owner(name.partition("-")[0])
    ]
    return b"".join(tree.data(file) for file in files)


def reboot_required(tree: Tree) -> bool:
    """Whether Debian or Ubuntu requires a reboot. The RHEL family has a tool for this instead."""
    return any(tree.exists(file) for file in REBOOT_REQUIRED)


def _of_owner(name: str) -> bool:
    return name.rstrip("0123456789") == "MokListRT"
