"""The role gpu_node on machines that are but files and stubs of tools: what it says of them, and what it foretells."""

from __future__ import annotations

import json
import runpy
import sys
from pathlib import Path
from typing import Any

import pytest

from .gpu_nodes import SYSTEMS
from .role_run import PATH, run_play

pytestmark = pytest.mark.plays

CUDA = Path(__file__).parents[3] / "molecule/shared/gpu_node/node/cuda.py"
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
        self.library = folder / "libcuda.so.1"
        self.computes()

    def has(self, name: str, content: str) -> Machine:
        file = self.root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content)
        return self

    def has_gpu(self, driver: str = "", device: str = "2330") -> Machine:
        folder = "sys/bus/pci/devices/0000:3b:00.0"
        for name, content in {"class": "0x030200", "vendor": "0x10de", "device": f"0x{device}"}.items():
            self.has(f"{folder}/{name}", content)
        if driver:
            (self.root / folder / "driver").symlink_to(f"../../../bus/pci/drivers/{driver}")
        return self

    def runs_driver(self) -> Machine:
        self.has("proc/driver/nvidia/version", OPEN).has("sys/module/nvidia/refcnt", "1")
        return self.tool("modinfo", "printf 'version: 580.95.05\\nlicense: Dual MIT/GPL\\n'")

    def computes(self, gpus: int = 1, code: int = 0) -> Machine:
        """Or CUDA ends with this error."""
        self.library.write_bytes(runpy.run_path(str(CUDA))["library"](gpus, code))
        return self

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
            *("--extra-vars", json.dumps({"__gpu_node_cuda_library": str(self.library)} | extra), *flags),
            failing=failing,
            ANSIBLE_CALLBACK_RESULT_FORMAT="yaml",
        )


@pytest.mark.nightly
def test_a_node_that_can_be_done_passes_the_check_with_secure_boot_too(tmp_path: Path) -> None:
    output = Machine(tmp_path).has_gpu().has_secure_boot().plays("check")

    assert "changed=0" in output


def test_secure_boot_ends_it_before_anything_is_changed(tmp_path: Path) -> None:
    output = Machine(tmp_path, "debian13").has_gpu().has_secure_boot().plays("main", failing=True)

    assert "Secure Boot is on, and localhost does not trust the key" in output
    assert "mokutil --import /var/lib/dkms/mok.pub" in output
    assert "changed=0" in output


def test_a_gpu_that_is_spoken_of_and_not_there_ends_it(tmp_path: Path) -> None:
    output = Machine(tmp_path).has_gpu().plays("check", failing=True, gpu_node_vendor="amd")

    assert "localhost has no GPU of amd: nvidia was found." in output


def test_a_machine_without_gpus_stays_as_it_is_whatever_system_it_has(tmp_path: Path) -> None:
    output = Machine(tmp_path, "opensuse").plays("main")

    assert "localhost has no GPU of NVIDIA, AMD or Intel: it stays as it is." in output
    assert "changed=0" in output


def test_a_system_that_is_not_known_ends_it(tmp_path: Path) -> None:
    output = Machine(tmp_path, "opensuse").has_gpu().plays("check", failing=True)

    assert "localhost runs openSUSE Leap 15.6 on x86_64, which this role does not know." in output


def test_check_mode_foretells_what_an_empty_node_would_get(tmp_path: Path) -> None:
    output = Machine(tmp_path).has_gpu().plays("main", "--check", "--diff")

    assert "would be installed: nvidia-headless-no-dkms-580-server-open, nvidia-utils-580-server" in output
    assert "+blacklist nouveau" in output
    assert "RUNNING HANDLER [slipway.inference.gpu_node : Rebuild the initramfs]" in output
    assert list((tmp_path / "root/etc").iterdir()) == []


def test_a_driver_of_somebody_else_that_works_is_left_as_it_is(tmp_path: Path) -> None:
    """Its packages are none of the role's. Nothing is asked of dpkg, apt or the kernel but to be told."""
    machine = Machine(tmp_path).has_gpu("nvidia").runs_driver()
    machine.tool("nvidia-smi", 'echo "GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-8d6c)"')
    machine.tool("apt-get", f"touch {tmp_path}/apt-get").tool("modprobe", f"touch {tmp_path}/modprobe")
    output = machine.plays("main", gpu_node_drain=False)

    assert "localhost keeps its driver nvidia 580.95.05 open: it was not installed by this role" in output
    assert "changed=0" in output
    assert list((tmp_path / "root/etc").iterdir()) == []
    assert not (tmp_path / "apt-get").exists()
    assert not (tmp_path / "modprobe").exists()


def test_a_node_that_is_to_keep_its_driver_has_one(tmp_path: Path) -> None:
    output = Machine(tmp_path).has_gpu().plays("check", failing=True, gpu_node_driver="keep")

    assert "localhost runs no driver for its GPUs, and gpu_node_driver is keep." in output


def test_a_node_whose_gpus_answer_is_verified(tmp_path: Path) -> None:
    machine = Machine(tmp_path).has_gpu("nvidia").runs_driver()
    output = machine.tool("nvidia-smi", 'echo "GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-8d6c)"').plays("verify")

    assert "changed=0" in output


@pytest.mark.parametrize(
    ("smi", "variables", "words"),
    [
        ("echo 'Failed to initialize NVML'; exit 18", {}, "0 of 1 GPUs answer. nvidia-smi says: Failed to initialize"),
        (
            "true",
            {"gpu_node_nvidia_branch": "595"},
            "runs the open modules 580.95.05. Wanted are the open ones of 595.",
        ),
    ],
)
def test_a_node_that_does_not_answer_as_it_should_is_not(
    tmp_path: Path, smi: str, variables: dict[str, str], words: str
) -> None:
    machine = Machine(tmp_path).has_gpu("nvidia").runs_driver().tool("nvidia-smi", smi)

    assert words in machine.plays("verify", failing=True, **variables)


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("cut", "gpus", "code", "words"),
    [
        (
            "Disabled",
            1,
            802,
            "no program can compute on its GPUs. cuInit failed with CUDA_ERROR_SYSTEM_NOT_READY (802)",
        ),
        ("Disabled", 0, 0, "no program can compute on its GPUs. CUDA starts, and finds no GPU."),
        ("Enabled", 0, 803, "its library and the kernel modules that are loaded are of different versions."),
        ("Enabled", 0, 100, ""),  # the devices are made later
        ("Enabled", 1, 0, ""),
    ],
)
def test_a_node_on_which_no_program_can_compute_is_told(
    tmp_path: Path, cut: str, gpus: int, code: int, words: str
) -> None:
    machine = Machine(tmp_path).has_gpu("nvidia").runs_driver().computes(gpus, code)
    machine.tool(
        "nvidia-smi",
        f"""case $1 in
          --query*) echo "00000000:3B:00.0, NVIDIA H100 80GB HBM3, GPU-8d6c, 81559, {cut}" ;;
          *) echo "GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-8d6c)" ;;
        esac""",
    )
    for flags in ((), ("--check",)):
        assert words in machine.plays("verify", *flags, failing=bool(words))


@pytest.mark.nightly
def test_the_driver_of_a_container_is_left_to_its_operator(tmp_path: Path) -> None:
    machine = Machine(tmp_path).has_gpu("nvidia").runs_driver().computes(0, 803)
    machine.has("run/nvidia/driver/usr/bin/nvidia-smi", "")
    machine.tool("chroot", 'echo "GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-8d6c)"')

    assert "changed=0" in machine.plays("verify")


def test_a_gpu_without_its_driver_is_named(tmp_path: Path) -> None:
    output = Machine(tmp_path).has_gpu().runs_driver().plays("verify", failing=True)

    assert "the driver has not taken 0000:3b:00.0." in output


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


@pytest.mark.nightly
def test_gpus_of_amd_are_described_anew_when_they_are_others(tmp_path: Path) -> None:
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


SYSTEMCTL = """\
case $1 in
  show) printf 'LoadState=loaded\\nActiveState=%s\\nUnitFileState=enabled\\n' "$(cat {state})" ;;
  is-enabled) echo enabled ;;
  is-active) cat {state}; grep -q ^active {state} ;;
  stop) echo "$@" >> {log}; echo inactive > {state} ;;
  *) echo "$@" >> {log}; echo active > {state} ;;
esac"""


def a_tray(folder: Path) -> tuple[Machine, dict[str, Any]]:
    """A machine of a GB200 NVL72 whose driver is loaded, and the variables by which its files lie in a folder."""
    machine = Machine(folder)
    machine.tool("systemctl", SYSTEMCTL.format(state=folder / "state", log=folder / "told"))
    machine.tool("mknod", f'echo "$@" >> {folder / "told"}; touch "$2"')
    (folder / "state").write_text("inactive\n")
    gpu = {"address": "0008:01:00.0", "vendor": "nvidia", "device_id": "2941", "model": "GB200", "superchip": True}
    driver = {"loaded": True, "loaded_version": "580.95.05", "loaded_kind": "open", "module": "nvidia"}
    facts = {
        "gpus": [gpu],
        "driver": driver | {"installed_version": "580.95.05", "installed_kind": "open"},
        "nvlink_domain": "9277d399.1",
        "imex_major": 234,
    }
    return machine, {
        "__gpu_node_facts": facts,
        "gpu_node_found": {"vendor": "nvidia"},
        "gpu_node_nvidia_imex_group": "rack",
        "gpu_node_nvidia_imex_addresses": ["10.0.0.1", "10.0.0.2"],
        "__gpu_node_dpkg": {"stdout_lines": []},
        "__gpu_node_imex_settings_path": str(folder / "imex.conf"),
        "__gpu_node_imex_nodes_path": str(folder / "nvidia-imex/nodes_config.cfg"),
        "__gpu_node_imex_channel": str(folder / "channels/channel0"),
        "__gpu_node_initramfs": ["true"],
    }


@pytest.mark.nightly
def test_imex_is_set_up_once_and_started_anew_for_another_list(tmp_path: Path) -> None:
    machine, variables = a_tray(tmp_path)
    nodes, told = tmp_path / "nvidia-imex/nodes_config.cfg", tmp_path / "told"

    machine.plays_tasks(["imex"], variables, sys.executable, {})
    assert nodes.read_text() == "10.0.0.1\n10.0.0.2\n"
    assert "options nvidia NVreg_CreateImexChannel0=1\n" in (tmp_path / "imex.conf").read_text()
    assert told.read_text().splitlines() == [
        f"--mode=0666 {tmp_path}/channels/channel0 c 234 0",
        "start nvidia-imex",
    ]
    assert "changed=0" in machine.plays_tasks(["imex", "verify_imex"], variables, sys.executable, {})

    third = variables | {"gpu_node_nvidia_imex_addresses": ["10.0.0.1", "10.0.0.2", "10.0.0.3"]}
    machine.plays_tasks(["imex"], third, sys.executable, {})
    assert nodes.read_text().endswith("10.0.0.3\n")
    assert told.read_text().splitlines()[2:] == ["restart nvidia-imex"]


@pytest.mark.nightly
def test_imex_is_refused_before_anything_is_changed_where_it_cannot_be(tmp_path: Path) -> None:
    machine = Machine(tmp_path).has_gpu(device="2941")
    output = machine.plays("main", failing=True, gpu_node_nvidia_imex_group="all")

    assert "localhost cannot have IMEX. IMEX takes IP addresses, not localhost." in output
    assert "changed=0" in output
    named = {"gpu_node_nvidia_imex_group": "all", "gpu_node_nvidia_imex_addresses": ["10.0.0.1"]}
    assert "changed=0" in machine.plays("check", **named)


def test_check_mode_foretells_imex_and_changes_nothing(tmp_path: Path) -> None:
    machine, variables = a_tray(tmp_path)
    output = machine.plays_tasks(["imex"], variables, sys.executable, {}, "--check", "--diff")

    assert "+options nvidia NVreg_CreateImexChannel0=1" in output
    assert not (tmp_path / "nvidia-imex").exists()
    assert not (tmp_path / "told").exists()


@pytest.mark.nightly
def test_imex_of_a_host_that_left_its_group_is_undone_once(tmp_path: Path) -> None:
    machine, variables = a_tray(tmp_path)
    nodes, settings, told = (tmp_path / name for name in ("nvidia-imex/nodes_config.cfg", "imex.conf", "told"))
    machine.plays_tasks(["imex"], variables, sys.executable, {})
    told.unlink()
    left = variables | {"gpu_node_nvidia_imex_group": "", "__gpu_node_dpkg": {"stdout_lines": ["ii  nvidia-imex 1"]}}

    foretold = machine.plays_tasks(["imex"], left, sys.executable, {}, "--check")
    assert (nodes.exists(), settings.exists(), told.exists()) == (True, True, False)
    done = machine.plays_tasks(["imex"], left, sys.executable, {})
    assert (nodes.exists(), settings.exists()) == (False, False)
    assert told.read_text().splitlines() == ["disable nvidia-imex", "stop nvidia-imex"]
    assert "changed=3" in foretold
    assert "changed=4" in done  # the handler, which check mode does not foretell
    assert "changed=0" in machine.plays_tasks(["imex"], left, sys.executable, {})


def test_a_list_of_imex_that_somebody_else_wrote_stays(tmp_path: Path) -> None:
    machine, variables = a_tray(tmp_path)
    nodes = tmp_path / "nvidia-imex/nodes_config.cfg"
    nodes.parent.mkdir()
    nodes.write_text("10.0.0.1\n")
    (tmp_path / "state").write_text("active\n")
    left = variables | {"gpu_node_nvidia_imex_group": "", "__gpu_node_dpkg": {"stdout_lines": ["ii  nvidia-imex 1"]}}

    assert "changed=0" in machine.plays_tasks(["imex"], left, sys.executable, {})
    assert nodes.exists()


def test_a_domain_that_nobody_asks_for_is_told_and_left_alone(tmp_path: Path) -> None:
    machine, variables = a_tray(tmp_path)
    output = machine.plays_tasks(["imex"], variables | {"gpu_node_nvidia_imex_group": ""}, sys.executable, {})

    assert "localhost is in the NVLink domain 9277d399.1." in output
    assert "changed=0" in output


@pytest.mark.parametrize(
    ("state", "channel", "words"),
    [
        ("failed", True, "IMEX does not run (failed)"),
        ("active", False, "the driver has made no channel of IMEX"),
    ],
)
def test_imex_that_does_not_work_is_told(tmp_path: Path, state: str, channel: bool, words: str) -> None:
    machine, variables = a_tray(tmp_path)
    (tmp_path / "state").write_text(f"{state}\n")
    if channel:
        (tmp_path / "channels").mkdir()
        (tmp_path / "channels/channel0").touch()

    assert words in machine.plays_tasks(["verify_imex"], variables, sys.executable, {}, failing=True)
