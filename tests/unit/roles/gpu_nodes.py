"""Nodes with GPUs, as the role ``gpu_node`` knows them, and its variables as Ansible resolves them there."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar

LOADER = DataLoader()
# One for all nodes: what it has compiled it keeps.
TEMPLAR = Templar(loader=LOADER, variables={})
ROLE = Path(__file__).parents[3] / "roles/gpu_node"
SYSTEMS = {
    "ubuntu22": ("Ubuntu", "22.04", "Debian", "5.15.0-130-generic"),
    "ubuntu24": ("Ubuntu", "24.04", "Debian", "6.8.0-87-generic"),
    "ubuntu26": ("Ubuntu", "26.04", "Debian", "7.0.0-14-generic"),
    "debian12": ("Debian", "12.11", "Debian", "6.1.0-37-amd64"),
    "debian13": ("Debian", "13.1", "Debian", "6.12.48+deb13-amd64"),
    "rhel8": ("RedHat", "8.10", "RedHat", "4.18.0-553.el8_10.x86_64"),
    "rocky9": ("Rocky", "9.6", "RedHat", "5.14.0-570.el9_6.x86_64"),
    "alma10": ("AlmaLinux", "10.0", "RedHat", "6.12.0-55.el10_0.x86_64"),
    "fedora": ("Fedora", "44", "RedHat", "7.0.9-200.fc44.x86_64"),
    "opensuse": ("openSUSE Leap", "15.6", "Suse", "6.4.0-150600-default"),
}
NO_DRIVER = {
    "vendor": "nvidia", "module": "nvidia", "loaded": False, "loaded_version": "", "loaded_kind": "",
    "installed_version": "", "installed_kind": "",
}  # fmt: skip
RUNS = NO_DRIVER | {
    "loaded": True, "loaded_version": "580.95.05", "loaded_kind": "open",
    "installed_version": "580.95.05", "installed_kind": "open",
}  # fmt: skip
H100 = {"address": "0000:3b:00.0", "vendor": "nvidia", "device_id": "2330", "architecture": "hopper", "model": "H100"}
V100 = {"address": "0000:5e:00.0", "vendor": "nvidia", "device_id": "1db6", "architecture": "volta", "model": "V100"}
B200 = {
    "address": "0000:1b:00.0",
    "vendor": "nvidia",
    "device_id": "2901",
    "architecture": "blackwell",
    "model": "B200",
}
GH200 = {"address": "0009:01:00.0", "vendor": "nvidia", "device_id": "2342", "architecture": "hopper", "model": "GH200"}
MI300 = {"address": "0000:05:00.0", "vendor": "amd", "device_id": "74a1", "architecture": "", "model": "MI300X"}
FLEX = {"address": "0000:03:00.0", "vendor": "intel", "device_id": "56c0", "architecture": "", "model": "Flex 170"}


def found(*gpus: dict[str, Any], **further: Any) -> dict[str, Any]:
    """What ``gpu_info`` says of a node with these GPUs."""
    vendors = [vendor for vendor in ("nvidia", "amd", "intel") if vendor in {gpu["vendor"] for gpu in gpus}]
    vendor = vendors[0] if vendors else "none"
    facts = {
        "vendor": vendor,
        "vendors": vendors,
        "gpus": [{"driver": ""} | gpu for gpu in gpus],
        "nvswitches": 0,
        "driver": NO_DRIVER | {"vendor": vendor},
        "nouveau_loaded": False,
        "secure_boot": False,
        "module_keys": [],
        "reboot_required": False,
    }
    return facts | further


class Node:
    """The role's variables on a node. ``settings`` are those of its user."""

    def __init__(
        self,
        system: str = "ubuntu24",
        facts: dict[str, Any] | None = None,
        *,
        architecture: str = "x86_64",
        packages: tuple[str, ...] = (),
        **settings: Any,
    ) -> None:
        distribution, version, family, kernel = SYSTEMS[system]
        known = {
            "inventory_hostname": "gpu-1",
            "__gpu_node_facts": found(H100) if facts is None else facts,
            "__gpu_node_dpkg": {"stdout_lines": [f"ii  {name} 1.0" for name in packages] + ["rc  nvidia-of-old 1.0"]},
            "ansible_facts": {
                "architecture": architecture,
                "distribution": distribution,
                "distribution_version": version,
                "distribution_major_version": version.split(".")[0],
                "os_family": family,
                "kernel": kernel,
                "packages": {name: [{"name": name}] for name in packages},
            },
        }
        self.variables = read("defaults/main.yml") | read("vars/main.yml") | known
        names = self["__gpu_node_system"]
        if (ROLE / f"vars/{names}.yml").exists():
            self.variables |= read(f"vars/{names}.yml")
        self.variables |= settings

    def __getitem__(self, name: str) -> Any:
        TEMPLAR.available_variables = self.variables
        # In plain types, without what Ansible notes about their origin.
        return json.loads(json.dumps(TEMPLAR.template(self.variables[name])))


@cache
def read(name: str) -> dict[str, Any]:
    """A file of the role. From ansible-core 2.19 on templates are only resolved in what is trusted."""
    try:
        return dict(LOADER.load_from_file(str(ROLE / name), trusted_as_template=True))
    except TypeError:
        return dict(LOADER.load_from_file(str(ROLE / name)))
