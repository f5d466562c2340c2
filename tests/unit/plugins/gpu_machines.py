# Copyright: (c) 2026, The slipway.inference authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Machines with GPUs, represented by the kernel's files about them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from ansible_collections.slipway.inference.plugins.module_utils._gpu import Answer
from ansible_collections.slipway.inference.plugins.module_utils._gpu_tree import Tree

Files = Mapping[str, "str | bytes"]

PROPRIETARY = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.183.01  Sun May 12 19:39:15 UTC 2024\n"
OPEN = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build  (builder@host)\n"
SECURE_BOOT = "sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"


class Machine(Tree):
    """A directory that stands for ``/``, and tools that answer what they were given; all others are missing."""

    def __init__(self, root: Path) -> None:
        super().__init__(str(root))
        self.tools: dict[str, Answer] = {}
        self.asked: list[list[str]] = []
        self.at = root

    def has(self, files: Files) -> Machine:
        for name, content in files.items():
            file = self.at / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content.encode() if isinstance(content, str) else content)
        return self

    def has_device(
        self, address: str, ids: str, pci_class: str = "0x030200", driver: str = "", **files: str
    ) -> Machine:
        """``ids``: vendor and device, such as ``10de:2330``."""
        vendor, _colon, device = ids.partition(":")
        folder = f"sys/bus/pci/devices/{address}"
        self.has({f"{folder}/class": pci_class, f"{folder}/vendor": f"0x{vendor}", f"{folder}/device": f"0x{device}\n"})
        self.has({f"{folder}/{name}": content for name, content in files.items()})
        if driver:
            (self.at / folder / "driver").symlink_to(f"../../../bus/pci/drivers/{driver}")
        return self

    def has_module(self, name: str, version: str = "") -> Machine:
        return self.has({f"sys/module/{name}/version": version} if version else {f"sys/module/{name}/refcnt": "0"})

    def answers(self, command: str, text: str, status: int = 0) -> Machine:
        """To commands that begin so."""
        self.tools[command] = Answer(status, text)
        return self

    def run(self, command: Sequence[str]) -> Answer | None:
        self.asked.append(list(command))
        line = " ".join(command)
        return next((answer for start, answer in self.tools.items() if line.startswith(start)), None)
