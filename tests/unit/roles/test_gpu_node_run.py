"""The role gpu_node on machines that are but files and stubs of tools: what it says of them, and what it foretells."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from .gpu_nodes import SYSTEMS
from .role_run import PATH, run_play

pytestmark = pytest.mark.plays

SECURE_BOOT = "sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
OPEN = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build  (builder@host)\n"


class Machine:
    """One with a GPU of NVIDIA. Plays of it run on this one, which they do not change."""

    def __init__(self, folder: Path, system: str = "ubuntu24") -> None:
        self.folder = folder
        self.root = folder / "root"
        self.system = system
        self.has("sys/firmware/acpi/pm_profile", "4")
        # What is installed is no concern here, and this machine need not have the tool.
        self.tool("dpkg-query", "true")

    def has(self, name: str, content: str) -> Machine:
        file = self.root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content)
        return self

    def has_gpu(self, driver: str = "") -> Machine:
        folder = "sys/bus/pci/devices/0000:3b:00.0"
        for name, content in {"class": "0x030200", "vendor": "0x10de", "device": "0x2330"}.items():
            self.has(f"{folder}/{name}", content)
        if driver:
            (self.root / folder / "driver").symlink_to(f"../../../bus/pci/drivers/{driver}")
        return self

    def runs_driver(self) -> Machine:
        self.has("proc/driver/nvidia/version", OPEN).has("sys/module/nvidia/refcnt", "1")
        return self.tool("modinfo", "printf 'version: 580.95.05\\nlicense: Dual MIT/GPL\\n'")

    def has_secure_boot(self) -> Machine:
        return self.has(SECURE_BOOT, "\x06\x00\x00\x00\x01")

    def tool(self, name: str, script: str) -> Machine:
        file = self.folder / "bin" / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(f"#!/bin/sh\n{script}\n")
        file.chmod(0o755)
        return self

    def places(self) -> dict[str, str]:
        """Where the role would write."""
        (self.root / "etc").mkdir(exist_ok=True)
        names = ("settings", "loads", "preferences")
        paths = {f"__gpu_node_{name}_path": f"{self.root}/etc/{name}" for name in names}
        others = {"__gpu_node_rpm_source": "repository", "__gpu_node_amd_cdi_path": "cdi/amd.json"}
        return {**paths, **{name: f"{self.root}/etc/{file}" for name, file in others.items()}}

    def plays(self, entry: str, *flags: str, failing: bool = False, **variables: object) -> str:
        """Output of a play of this entry point, in one line."""
        role = {"ansible.builtin.import_role": {"name": "slipway.inference.gpu_node", "tasks_from": entry}}
        return self._play([role], variables, self.places(), sys.executable, {}, *flags, failing=failing)

    def plays_tasks(
        self,
        files: list[str],
        extra: dict[str, Any],
        python: str,
        environment: dict[str, str],
        *flags: str,
        failing: bool = False,
    ) -> str:
        """Output of a play of files of tasks, in one line."""
        named = [{"name": "slipway.inference.gpu_node", "tasks_from": name} for name in files]
        tasks = [{"ansible.builtin.include_role": role} for role in named]
        return self._play(tasks, {}, extra, python, environment, *flags, failing=failing)

    def _play(
        self,
        tasks: list[dict[str, object]],
        variables: dict[str, object],
        extra: dict[str, Any],
        python: str,
        environment: dict[str, str],
        *flags: str,
        failing: bool = False,
    ) -> str:
        distribution, version, family, kernel = SYSTEMS[self.system]
        facts = {
            "distribution": distribution,
            "distribution_version": version,
            "distribution_major_version": version.split(".")[0],
            "os_family": family,
            "kernel": kernel,
            "architecture": "x86_64",
        }
        play = {
            "hosts": "localhost",
            "connection": "local",
            "gather_facts": False,
            "environment": {"PATH": f"{self.folder}/bin:{PATH}", **environment},
            "vars": {
                "ansible_python_interpreter": python,
                "gpu_node_root": str(self.root),
                "gpu_node_toolkit": False,
                **variables,
            },
            "tasks": [{"ansible.builtin.set_fact": {**facts, "cacheable": True}}, *tasks],
        }
        return run_play(
            self.folder,
            play,
            *("--extra-vars", json.dumps(extra), *flags),
            failing=failing,
            ANSIBLE_CALLBACK_RESULT_FORMAT="yaml",
        )


def test_a_node_that_can_be_done_passes_the_check_with_secure_boot_too(tmp_path: Path) -> None:
    output = Machine(tmp_path).has_gpu().has_secure_boot().plays("check")

    assert "changed=0" in output


def test_secure_boot_ends_it_before_anything_is_changed(tmp_path: Path) -> None:
    output = Machine(tmp_path, "debian13").has_gpu().has_secure_boot().plays("main", failing=True)

    assert "Secure Boot is enabled, and localhost does not trust the signing key" in output
    assert "mokutil --import /var/lib/dkms/mok.pub" in output
    assert "changed=0" in output


def test_a_gpu_that_is_spoken_of_and_not_there_ends_it(tmp_path: Path) -> None:
    output = Machine(tmp_path).has_gpu().plays("check", failing=True, gpu_node_vendor="amd")

    assert "localhost has no amd GPU. Found: nvidia." in output


@pytest.mark.parametrize("choice", ["maybe", "", "[]"])
def test_an_unknown_choice_of_the_default_runtime_ends_it(tmp_path: Path, choice: str) -> None:
    output = Machine(tmp_path).has_gpu().plays("check", failing=True, gpu_node_toolkit_default_runtime=choice)

    assert (
        f"gpu_node_toolkit_default_runtime cannot be {choice}. Set it to leave, yes or no.".replace("  ", " ") in output
    )


@pytest.mark.parametrize("choice", [True, "false"])
def test_an_old_inventory_with_booleans_keeps_working(tmp_path: Path, choice: object) -> None:
    output = Machine(tmp_path).has_gpu().plays("main", "--check", gpu_node_toolkit_default_runtime=choice)

    assert "failed=0" in output


def test_a_machine_without_gpus_stays_as_it_is_on_any_operating_system(tmp_path: Path) -> None:
    output = Machine(tmp_path, "opensuse").plays("main")

    assert "localhost has no NVIDIA, AMD or Intel GPU, so it is not changed." in output
    assert "changed=0" in output


def test_a_system_that_is_not_known_ends_it(tmp_path: Path) -> None:
    output = Machine(tmp_path, "opensuse").has_gpu().plays("check", failing=True)

    assert "localhost runs openSUSE Leap 15.6 on x86_64, which this role does not support." in output


def test_check_mode_predicts_the_changes_to_an_empty_node(tmp_path: Path) -> None:
    output = Machine(tmp_path).has_gpu().plays("main", "--check", "--diff")

    assert "would be installed: nvidia-headless-no-dkms-580-server-open, nvidia-utils-580-server" in output
    assert "+blacklist nouveau" in output
    assert "RUNNING HANDLER [slipway.inference.gpu_node : Rebuild the initramfs]" in output
    assert list((tmp_path / "root/etc").iterdir()) == []


def test_a_foreign_driver_that_works_stays_unchanged(tmp_path: Path) -> None:
    """The role does not manage its packages. It only queries dpkg, apt and the kernel."""
    machine = Machine(tmp_path).has_gpu("nvidia").runs_driver()
    machine.tool("nvidia-smi", 'echo "GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-8d6c)"')
    machine.tool("apt-get", f"touch {tmp_path}/apt-get").tool("modprobe", f"touch {tmp_path}/modprobe")
    output = machine.plays("main", gpu_node_drain=False)

    assert (
        "localhost keeps its driver nvidia 580.95.05 open: this role did not install it, and it matches the variables"
        in output
    )
    assert "changed=0" in output
    assert list((tmp_path / "root/etc").iterdir()) == []
    assert not (tmp_path / "apt-get").exists()
    assert not (tmp_path / "modprobe").exists()


def test_a_node_that_is_to_keep_its_driver_has_one(tmp_path: Path) -> None:
    output = Machine(tmp_path).has_gpu().plays("check", failing=True, gpu_node_driver="keep")

    assert "localhost has no loaded GPU driver, and gpu_node_driver is keep." in output


def test_a_node_whose_gpus_answer_is_verified(tmp_path: Path) -> None:
    machine = Machine(tmp_path).has_gpu("nvidia").runs_driver()
    output = machine.tool("nvidia-smi", 'echo "GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-8d6c)"').plays("verify")

    assert "changed=0" in output


@pytest.mark.parametrize(
    ("smi", "variables", "words"),
    [
        (
            "echo 'Failed to initialize NVML'; exit 18",
            {},
            "0 of 1 GPUs answer. nvidia-smi reports: Failed to initialize",
        ),
        (
            "true",
            {"gpu_node_nvidia_branch": "595"},
            "runs the open modules 580.95.05. Required: the open modules 595.",
        ),
    ],
)
def test_a_node_that_does_not_answer_as_it_should_is_not(
    tmp_path: Path, smi: str, variables: dict[str, str], words: str
) -> None:
    machine = Machine(tmp_path).has_gpu("nvidia").runs_driver().tool("nvidia-smi", smi)

    assert words in machine.plays("verify", failing=True, **variables)


def test_a_gpu_without_its_driver_is_named(tmp_path: Path) -> None:
    output = Machine(tmp_path).has_gpu().runs_driver().plays("verify", failing=True)

    assert "the driver is not bound to 0000:3b:00.0." in output


@pytest.mark.parametrize(
    ("proxy", "mode", "shown"),
    [("http://proxy:3128", 0o644, True), ("http://user:a-secret@proxy:3128", 0o600, False)],
    ids=["open", "with-password"],
)
def test_a_password_in_an_address_is_for_root_alone(tmp_path: Path, proxy: str, mode: int, shown: bool) -> None:
    repository = {"name": "mirror", "key": "", "rpm": {"baseurl": "https://mirror/rpm"}}
    machine = Machine(tmp_path, "rocky9")
    output = machine.plays("repository", "--diff", __gpu_node_repository=repository, gpu_node_proxy=proxy)

    file = tmp_path / "root/etc/repository"
    assert f"proxy={proxy}\n" in file.read_text()
    assert file.stat().st_mode & 0o777 == mode
    assert "a-secret" not in output
    assert (f"+proxy={proxy}" in output) is shown


def test_gpus_of_amd_are_described_again_when_they_are_others(tmp_path: Path) -> None:
    described, there = tmp_path / "root/etc/cdi/amd.json", tmp_path / "gpus"
    machine = Machine(tmp_path).tool(
        "amd-ctk", f"case $2 in generate) cp {there} {described} ;; *) cmp -s {there} {described} ;; esac"
    )
    loaded = {"__gpu_node_facts": {"driver": {"loaded": True}}}

    # The first time its folder is made as well.
    for gpus, changed in (("one", 2), ("one", 0), ("two", 1)):
        there.write_text(gpus)
        assert f"changed={changed} " in machine.plays("cdi_amd", **loaded)
        assert described.read_text() == gpus
