# Copyright: (c) 2026, The slipway.inference authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is said of a machine's GPUs, by its files alone and with the tools that it may have."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.slipway.inference.plugins.module_utils import _gpu, _gpu_nvidia, _gpu_pci
from ansible_collections.slipway.inference.plugins.modules import gpu_info
from gpu_machines import OPEN, PROPRIETARY, SECURE_BOOT, Machine
from module_run import Run

H100 = "0000:3b:00.0"
SMI = "00000000:3B:00.0, NVIDIA H100 80GB HBM3, GPU-8d6c, 81559, Disabled\n"
LIST = """\
GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-8d6c)
  MIG 1g.10gb     Device  0: (UUID: MIG-1111)
  MIG 3g.40gb     Device  1: (UUID: MIG-2222)
GPU 1: NVIDIA H100 80GB HBM3 (UUID: GPU-9999)
"""
MODINFO = """\
filename:       /lib/modules/6.8.0-87-generic/updates/dkms/nvidia.ko.zst
version:        580.95.05
license:        Dual MIT/GPL
alias:          pci:v000010DEd*sv*sd*bc03sc02i00*
parm:           NVreg_Mobile:int
"""


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def facts(machine: Machine) -> dict[str, Any]:
    return _gpu.facts(machine, machine.run)


def test_a_machine_without_gpus_has_none_and_no_driver(machine: Machine) -> None:
    machine.has_device("0000:00:02.0", "1a03:2000", "0x030000")  # the graphics of a server's management controller
    machine.has_device("0000:01:00.0", "10de:22ba", "0x040300")  # the sound of a GPU that was handed on alone
    report = facts(machine)

    assert (report["vendor"], report["vendors"], report["gpus"]) == ("none", [], [])
    assert report["driver"] == {
        "vendor": "none",
        "module": "",
        "loaded": False,
        "loaded_version": "",
        "loaded_kind": "",
        "installed_version": "",
        "installed_kind": "",
        "source": "",
    }
    assert [command for command in machine.asked if command[0] != "needs-restarting"] == []


def test_a_gpu_is_reported_before_it_has_a_driver(machine: Machine) -> None:
    machine.has_device(H100, "10de:2330").has(
        {"usr/share/misc/pci.ids": "10de  NVIDIA\n\t2330  GH100 [H100 SXM5 80GB]\n"}
    )

    assert facts(machine)["gpus"] == [
        {
            "address": H100,
            "vendor": "nvidia",
            "vendor_id": "10de",
            "device_id": "2330",
            "model": "GH100 [H100 SXM5 80GB]",
            "architecture": "hopper",
            "uuid": "",
            "memory_bytes": None,
            "driver": "",
            "mig_enabled": None,
            "mig_devices": [],
        }
    ]


def test_the_loaded_driver_is_enough_for_model_and_uuid(machine: Machine) -> None:
    machine.has_device(H100, "10de:2330", driver="nvidia").has_module("nvidia").has(
        {
            "proc/driver/nvidia/version": OPEN,
            f"proc/driver/nvidia/gpus/{H100}/information": "Model: \t\t NVIDIA H100\nGPU UUID: \t GPU-8d6c\n",
        }
    )
    report = facts(machine)

    [gpu] = report["gpus"]
    assert (gpu["model"], gpu["uuid"], gpu["driver"]) == ("NVIDIA H100", "GPU-8d6c", "nvidia")
    assert report["driver"]["loaded"]
    # No command reports the driver that would be loaded.
    assert (report["driver"]["installed_version"], report["driver"]["installed_kind"]) == (None, None)


def test_nvidia_smi_adds_memory_and_mig(machine: Machine) -> None:
    machine.has_device(H100, "10de:2330").answers("nvidia-smi --query", SMI)
    [gpu] = facts(machine)["gpus"]

    assert (gpu["memory_bytes"], gpu["mig_enabled"], gpu["mig_devices"]) == (81559 * 1024**2, False, [])
    assert not any(command[1] == "-L" for command in machine.asked)


def test_a_gpu_that_is_cut_into_parts_lists_them(machine: Machine) -> None:
    machine.has_device(H100, "10de:2330").answers("nvidia-smi --query", SMI.replace("Disabled", "Enabled"))
    [gpu] = facts(machine.answers("nvidia-smi -L", LIST))["gpus"]

    assert gpu["mig_enabled"]
    assert gpu["mig_devices"] == [
        {"profile": "1g.10gb", "uuid": "MIG-1111"},
        {"profile": "3g.40gb", "uuid": "MIG-2222"},
    ]


@pytest.mark.parametrize("answer", ["Failed to initialize NVML: Driver/library version mismatch\n", ""])
def test_a_tool_that_fails_is_done_without(machine: Machine, answer: str) -> None:
    machine.has_device(H100, "10de:2330").answers("nvidia-smi", answer, status=18)

    assert [gpu["memory_bytes"] for gpu in facts(machine)["gpus"]] == [None]


def test_a_gpu_without_mig_and_one_that_is_lost_do_not_disturb(machine: Machine) -> None:
    output = "00000000:3B:00.0, NVIDIA L4, GPU-1, 23034, [N/A]\nUnable to determine the device handle\n"
    cards = _gpu_nvidia.known_by_tool(output, "")

    assert {address: (card.model, card.mig) for address, card in cards.items()} == {H100: ("NVIDIA L4", None)}


@pytest.mark.parametrize(
    ("text", "version", "kind"),
    [(OPEN, "580.95.05", "open"), (PROPRIETARY, "535.183.01", "proprietary"), ("", "", "")],
)
def test_the_loaded_modules_say_which_they_are(machine: Machine, text: str, version: str, kind: str) -> None:
    machine.has_device(H100, "10de:2330").has({"proc/driver/nvidia/version": text})
    driver = facts(machine)["driver"]

    assert (driver["loaded_version"], driver["loaded_kind"]) == (version, kind)


@pytest.mark.parametrize(
    ("text", "status", "version", "kind"),
    [
        (MODINFO, 0, "580.95.05", "open"),
        (MODINFO.replace("Dual MIT/GPL", "NVIDIA"), 0, "580.95.05", "proprietary"),
        ("modinfo: ERROR: Module nvidia not found.\n", 1, "", ""),
    ],
)
def test_the_installed_modules_say_which_they_are(
    machine: Machine, text: str, status: int, version: str, kind: str
) -> None:
    machine.has_device(H100, "10de:2330").answers("modinfo nvidia", text, status)
    driver = facts(machine)["driver"]

    assert (driver["installed_version"], driver["installed_kind"]) == (version, kind)


@pytest.mark.parametrize(
    ("file", "source"),
    [
        ("usr/bin/nvidia-smi", ""),
        ("usr/bin/nvidia-uninstall", "runfile"),
        ("run/nvidia/driver/usr/bin/nvidia-smi", "container"),
        ("run/nvidia/validations/driver-ready", ""),
    ],
)
def test_a_driver_that_did_not_come_in_packages_is_known(machine: Machine, file: str, source: str) -> None:
    machine.has_device(H100, "10de:2330").has({file: ""})

    assert facts(machine)["driver"]["source"] == source


def test_amd_s_driver_tells_everything_by_files(machine: Machine) -> None:
    machine.has_device(
        "0000:05:00.0",
        "1002:74a1",
        "0x120000",
        driver="amdgpu",
        product_name="AMD Instinct MI300X\n",
        unique_id="1234abcd\n",
        mem_info_vram_total="206141652992\n",
    ).has_module("amdgpu")
    report = facts(machine)

    [gpu] = report["gpus"]
    assert (gpu["model"], gpu["uuid"], gpu["memory_bytes"]) == ("AMD Instinct MI300X", "1234abcd", 206141652992)
    assert (gpu["vendor"], gpu["driver"], gpu["architecture"]) == ("amd", "amdgpu", "")
    assert (report["driver"]["module"], report["driver"]["loaded_kind"]) == ("amdgpu", "inbox")


def test_the_npu_of_a_processor_is_no_gpu(machine: Machine) -> None:
    machine.has_device("0000:00:0b.0", "8086:7d1d", "0x120000", driver="intel_vpu")

    assert facts(machine)["vendor"] == "none"


def test_amd_s_own_driver_is_distinguished_from_the_kernel_s(machine: Machine) -> None:
    machine.has_device("0000:05:00.0", "1002:74a1", "0x120000").has_module("amdgpu", "6.14.14")
    machine.answers("modinfo amdgpu", "filename: /lib/modules/6.8.0/updates/dkms/amdgpu.ko.zst\nversion: 6.16.6\n")
    driver = facts(machine)["driver"]

    assert (driver["loaded_kind"], driver["loaded_version"]) == ("added", "6.14.14")
    assert (driver["installed_kind"], driver["installed_version"]) == ("added", "6.16.6")


def test_the_kernel_s_driver_has_no_version_of_its_own(machine: Machine) -> None:
    machine.has_device("0000:05:00.0", "1002:74a1", "0x120000")
    machine.answers("modinfo amdgpu", "filename: /lib/modules/6.8.0/kernel/drivers/gpu/drm/amd/amdgpu/amdgpu.ko.zst\n")
    driver = facts(machine)["driver"]

    assert (driver["loaded"], driver["installed_kind"], driver["installed_version"]) == (False, "inbox", "")


@pytest.mark.parametrize("module", ["xe", "i915"])
def test_of_intel_s_drivers_it_is_the_one_that_has_the_gpu(machine: Machine, module: str) -> None:
    machine.has_module("i915").has_module("xe").has_device("0000:03:00.0", "8086:56c0", "0x038000", driver=module)

    assert facts(machine)["driver"]["module"] == module


@pytest.mark.parametrize(
    "files",
    [
        {"tile0/physical_vram_size_bytes": "17179869184", "tile1/physical_vram_size_bytes": "0x200000000"},
        {"drm/card1/lmem_total_bytes": "25769803776", "drm/renderD128/dev": "226:128"},
    ],
)
def test_intel_s_memory_is_that_of_all_tiles(machine: Machine, files: dict[str, str]) -> None:
    machine.has_device("0000:03:00.0", "8086:0bd5", "0x038000", **files)

    assert [gpu["memory_bytes"] for gpu in facts(machine)["gpus"]] == [24 * 1024**3]


def test_the_gpu_of_a_processor_does_not_outweigh_the_one_in_a_slot(machine: Machine) -> None:
    machine.has_device("0000:00:02.0", "8086:a780", "0x030000").has_device(H100, "10de:2330")
    report = facts(machine)

    assert (report["vendor"], report["vendors"]) == ("nvidia", ["nvidia", "intel"])
    assert [gpu["vendor"] for gpu in report["gpus"]] == ["intel", "nvidia"]


def test_the_driver_of_the_other_vendor_can_be_asked_for(machine: Machine) -> None:
    machine.has_device("0000:00:02.0", "8086:a780", "0x030000", driver="i915").has_device(H100, "10de:2330")

    assert _gpu.facts(machine, machine.run, "intel")["driver"]["module"] == "i915"


def test_switches_are_counted(machine: Machine) -> None:
    for number in range(4):
        machine.has_device(f"0000:0{number}:00.0", "10de:22a3", "0x068000")

    assert facts(machine)["nvswitches"] == 4


def test_switches_of_nvlink_5_are_known_by_what_manages_them(machine: Machine) -> None:
    vpd = b"\x82\x10\x00NVIDIA ConnectX-7\x90\x20\x00V1\x06SW_MNG\x00\xff"
    machine.has({"sys/class/infiniband/mlx5_0/device/vpd": vpd, "sys/class/infiniband/mlx5_1/device/vpd": b"\x82card"})
    machine.has({"sys/class/infiniband/mlx5_2/node_type": "1: CA"})
    report = facts(machine)

    assert (report["nvswitches"], report["nvlink_managers"]) == (0, 1)


@pytest.mark.parametrize(
    ("device", "architecture"),
    [
        ("102d", "kepler"),  # K80
        ("13f2", "maxwell"),  # M60
        ("1b38", "pascal"),  # P40
        ("15f8", "pascal"),  # P100
        ("1db6", "volta"),  # V100
        ("1eb8", "turing"),  # T4
        ("2187", "turing"),  # GTX 1650 Super
        ("20b5", "ampere"),  # A100
        ("2236", "ampere"),  # A10
        ("2330", "hopper"),  # H100
        ("2335", "hopper"),  # H200
        ("2342", "hopper"),  # GH200
        ("26b9", "ada"),  # L40S
        ("27b8", "ada"),  # L4
        ("2901", "blackwell"),  # B200
        ("2b85", "blackwell"),  # RTX 5090
        ("3182", "blackwell"),  # B300
        ("0191", ""),  # older than all that are known
        ("ffff", ""),  # newer
    ],
)
def test_the_generation_follows_from_the_device_id(device: str, architecture: str) -> None:
    assert _gpu_nvidia.architecture(device) == architecture


@pytest.mark.parametrize(
    ("listing", "name"),
    [
        ("10de  NVIDIA\n\t2330  GH100\n", "GH100"),
        ("# list\n\n1002  AMD\n\t2330  Another\n10de  NVIDIA\n\t2330  GH100\n\t\t10de 1234  Board\n", "GH100"),
        ("10de  NVIDIA\n\t2331  GH100\n1002  AMD\n\t2330  Another\n", ""),
        ("", ""),
    ],
)
def test_names_are_those_of_the_vendor_s_devices(listing: str, name: str) -> None:
    assert _gpu_pci.name_in(listing, "10de", "2330") == name


@pytest.mark.parametrize(
    ("files", "secure"),
    [
        ({SECURE_BOOT: b"\x06\x00\x00\x00\x01"}, True),
        ({SECURE_BOOT: b"\x06\x00\x00\x00\x00"}, False),
        ({"sys/firmware/acpi/pm_profile": "4"}, False),  # started without EFI
        ({"sys/firmware/efi/fw_platform_size": "64"}, None),  # its variables are not mounted
        ({}, None),  # a container
    ],
)
def test_secure_boot_is_on_off_or_not_known(machine: Machine, files: dict[str, str | bytes], secure: bool) -> None:
    assert facts(machine.has(files))["secure_boot"] is secure


KEY = b"0\x82\x03 a certificate"
OWNER_S = "sys/firmware/efi/efivars/MokListRT-605dab50-e046-4300-abb6-3dd810dd8b23"


@pytest.mark.parametrize(
    ("list_of", "content", "enrolled"),
    [
        (OWNER_S, b"\x06\x00\x00\x00 header" + KEY, True),
        (OWNER_S.replace("RT-", "RT2-"), KEY, True),
        ("sys/firmware/efi/mok-variables/MokListRT", KEY, True),
        (OWNER_S, b"another certificate", False),
        # Those that are trusted no longer.
        (OWNER_S.replace("MokListRT", "MokListXRT"), KEY, False),
    ],
)
def test_a_key_is_enrolled_where_the_owner_s_list_has_it(
    machine: Machine, list_of: str, content: bytes, enrolled: bool
) -> None:
    machine.has({"var/lib/dkms/mok.pub": KEY, list_of: content})

    assert facts(machine)["module_keys"] == [{"path": "/var/lib/dkms/mok.pub", "enrolled": enrolled}]


def test_a_machine_without_keys_has_none(machine: Machine) -> None:
    assert facts(machine)["module_keys"] == []


@pytest.mark.parametrize(
    ("status", "text", "requested"),
    [
        (0, "No core libraries or services have been updated since boot-up.\nReboot should not be necessary.\n", False),
        (1, "Updated since boot-up:\n  * kernel\n\nReboot is required to fully utilize these updates.\n", True),
        (1, "No such command: needs-restarting. Please use /usr/bin/dnf --help\n", False),
    ],
    ids=["not-needed", "needed", "error"],
)
def test_the_rhel_family_is_asked_whether_it_wants_a_reboot(
    machine: Machine, status: int, text: str, requested: bool
) -> None:
    assert facts(machine.answers("needs-restarting -r", text, status))["reboot_required"] == requested


def test_debian_leaves_a_file_where_it_wants_a_reboot(machine: Machine) -> None:
    assert not facts(machine)["reboot_required"]
    assert facts(machine.has({"run/reboot-required": ""}))["reboot_required"]


def test_nouveau_is_seen(machine: Machine) -> None:
    assert not facts(machine)["nouveau_loaded"]
    assert facts(machine.has_module("nouveau"))["nouveau_loaded"]


def test_a_missing_file_reads_as_empty(machine: Machine) -> None:
    assert (machine.text("/sys/none"), machine.names("/sys/none"), machine.target("/sys/none")) == ("", [], "")
    assert machine.number("/sys/none") is None


def test_the_module_reads_the_configured_paths_and_changes_nothing(machine: Machine, run: Run) -> None:
    machine.has_device(H100, "10de:2330")
    before = sorted(os.walk(machine.root))
    result = run("gpu_info", node=True, root=machine.root, tools=False)

    assert not result.failed
    assert not result["changed"]
    assert result["vendor"] == "nvidia"
    assert run("gpu_info", node=True, check=True, root=machine.root, tools=False).data == result.data
    assert sorted(os.walk(machine.root)) == before


def test_tools_have_a_time_to_answer_in(
    machine: Machine, run: Run, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path_factory.mktemp("bin")
    for name, script in {"timeout": 'shift; exec "$@"', "modinfo": "echo version: 580.95.05"}.items():
        (folder / name).write_text(f"#!/bin/sh\n{script}\n")
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    machine.has_device(H100, "10de:2330")

    assert run("gpu_info", node=True, root=machine.root)["driver"]["installed_version"] == "580.95.05"


def test_results_are_those_that_are_documented(machine: Machine) -> None:
    machine.has_device(H100, "10de:2330").has({"var/lib/dkms/mok.pub": KEY})
    machine.answers("nvidia-smi --query", SMI.replace("Disabled", "Enabled")).answers("nvidia-smi -L", LIST)

    assert _shape(facts(machine)) == _documented(yaml.safe_load(gpu_info.RETURN))


def _shape(value: Any) -> Any:
    if isinstance(value, list):
        return _shape(value[0]) if value else None
    return {key: _shape(part) for key, part in value.items()} if isinstance(value, dict) else None


def _documented(values: dict[str, Any]) -> dict[str, Any]:
    return {name: _documented(value["contains"]) if "contains" in value else None for name, value in values.items()}
