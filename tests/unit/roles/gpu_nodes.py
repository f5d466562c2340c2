"""Nodes with GPUs, as the role ``gpu_node`` knows them, and what its variables become there.

They are resolved as Ansible does it, but each template is compiled once only: a decision is made of a hundred of them.
Whether Ansible agrees is seen where the role runs.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from types import GeneratorType
from typing import Any

from ansible.plugins.filter import core as core_filters
from ansible.plugins.filter import mathstuff as list_filters
from ansible.plugins.test import core as core_tests
from ansible.plugins.test import mathstuff as list_tests
from ansible_collections.slipway.inference.plugins.filter.drained_pods import drained_pods
from ansible_collections.slipway.inference.plugins.filter.listed import listed
from ansible_collections.slipway.inference.plugins.filter.shaped import shaped
from ansible_collections.slipway.inference.plugins.filter.whole_quantity import whole_quantity
from jinja2 import Template
from jinja2.nativetypes import NativeEnvironment, NativeTemplate
from jinja2.runtime import Context, Undefined, missing

from tests import documents

from ..ansible_files import role_variables

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


def gpu_facts(*gpus: dict[str, Any], **further: Any) -> dict[str, Any]:
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
        host_vars = {
            "inventory_hostname": "gpu-1",
            "__gpu_node_facts": gpu_facts(H100) if facts is None else facts,
            "__gpu_node_dpkg": {"stdout_lines": [f"ii  {name} 1.0" for name in packages] + ["rc  nvidia-of-old 1.0"]},
            "ansible_facts": {
                "architecture": architecture,
                "distribution": distribution,
                "distribution_version": version,
                "distribution_major_version": version.split(".", maxsplit=1)[0],
                "os_family": family,
                "kernel": kernel,
                "packages": {name: [{"name": name}] for name in packages},
            },
        }
        self.variables = read("defaults/main.yml") | role_variables(ROLE) | host_vars
        names = self["__gpu_node_system"]
        if (ROLE / f"vars/{names}.yml").exists():
            self.variables |= read(f"vars/{names}.yml")
        self.variables |= settings
        self.variables["gpu_node_found"] = {"vendor": "{{ __gpu_node_whose }}"}

    def __getitem__(self, name: str) -> Any:
        return resolved(self.variables[name], self.variables)


def resolved(value: Any, variables: dict[str, Any]) -> Any:
    """With the templates in it resolved, those in variables that they name too."""
    if isinstance(value, dict):
        return {key: resolved(part, variables) for key, part in value.items()}
    if isinstance(value, list):
        return [resolved(part, variables) for part in value]
    if not isinstance(value, str) or "{" not in value:
        return value
    result = _compiled(value).render(variables)
    return list(result) if isinstance(result, GeneratorType) else result


class _Scope(Context):
    """Resolves a variable when it is asked for."""

    def resolve_or_missing(self, key: str) -> Any:
        value = super().resolve_or_missing(key)
        return value if value is missing else resolved(value, self.parent)


class _Chained(Undefined):
    """Parts of what is not there are not there either."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self


class _Environment(NativeEnvironment):
    context_class = _Scope

    @staticmethod
    def concat(values: Any) -> Any:
        """A lone value keeps its type, and a text stays one."""
        parts = list(values)
        return parts[0] if len(parts) == 1 else "".join(str(part) for part in parts)


class _Template(NativeTemplate):
    environment_class = _Environment


_Environment.template_class = _Template


@cache
def _environment() -> _Environment:
    environment = _Environment(trim_blocks=True, undefined=_Chained)
    # Jinja's own ones know what is undefined here.
    for filters in (core_filters, list_filters):
        environment.filters = filters.FilterModule().filters() | environment.filters
    environment.filters["slipway.inference.listed"] = listed
    environment.filters["slipway.inference.drained_pods"] = drained_pods
    environment.filters["slipway.inference.shaped"] = shaped
    environment.filters["slipway.inference.whole_quantity"] = whole_quantity
    for tests in (core_tests, list_tests):
        environment.tests = tests.TestModule().tests() | environment.tests
    return environment


@cache
def _compiled(text: str) -> Template:
    # In Ansible a backslash in a text stands for itself.
    return _environment().from_string(text.replace("\\", "\\\\"))


@cache
def read(name: str) -> dict[str, Any]:
    """A file of the role."""
    document: dict[str, Any] = documents.read(ROLE / name)
    return document
