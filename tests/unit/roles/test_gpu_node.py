"""What the role gpu_node installs, refuses and reboots for, on every system and for every kind of GPU.

`SLIPWAY_WRITE_GOLDEN=1` rewrites the lists of packages.
"""

from __future__ import annotations

import os
import re
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests import documents

from .gpu_nodes import B200, FLEX, GH200, H100, MI300, NO_DRIVER, ROLE, RUNS, SYSTEMS, V100, Node, gpu_facts
from .test_container_runtimes import Dumper

GOLDEN = Path(__file__).parent / "golden/gpu_node_packages.yaml"
KNOWN = [name for name in SYSTEMS if name not in ("rhel8", "fedora", "opensuse")]
KERNELS = ("linux-image-generic", "linux-headers-generic", "linux-image-6.8.0-87-generic", "linux-image-amd64")
ORIGINS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "nvidia archive open": (H100, {"gpu_node_nvidia_repository": "distribution"}),
    "nvidia archive proprietary": (V100, {"gpu_node_nvidia_repository": "distribution"}),
    "nvidia cuda open": (H100, {"gpu_node_nvidia_repository": "cuda"}),
    "nvidia cuda proprietary": (V100, {"gpu_node_nvidia_repository": "cuda"}),
    "nvidia cuda 595": (H100, {"gpu_node_nvidia_repository": "cuda", "gpu_node_nvidia_branch": "595"}),
    "amd inbox": (MI300, {}),
    "amd amdgpu": (MI300, {"gpu_node_amd_driver": "amdgpu"}),
    "intel inbox": (FLEX, {}),
}


def packages(system: str, gpu: dict[str, Any], settings: dict[str, Any]) -> list[str]:
    listed: list[str] = Node(system, gpu_facts(gpu), packages=KERNELS, **settings)["__gpu_node_packages"]
    return listed


def test_packages_are_those_that_the_systems_have() -> None:
    lists = {
        system: {
            name: packages(system, gpu, settings)
            for name, (gpu, settings) in ORIGINS.items()
            if not (system in ("rocky9", "alma10") and "archive" in name)
        }
        for system in KNOWN
    }
    if os.environ.get("SLIPWAY_WRITE_GOLDEN"):
        GOLDEN.write_text(yaml.dump(lists, Dumper=Dumper, sort_keys=False, width=140))

    assert lists == documents.read(GOLDEN)


@pytest.mark.parametrize("system", KNOWN)
@pytest.mark.parametrize(("architecture", "directory"), [("x86_64", "x86_64"), ("aarch64", "sbsa")])
def test_the_cuda_repository_is_that_of_system_and_architecture(system: str, architecture: str, directory: str) -> None:
    node = Node(system, architecture=architecture, gpu_node_nvidia_repository="cuda")
    name = {"Ubuntu": "ubuntu", "Debian": "debian"}.get(SYSTEMS[system][0], "rhel") + re.sub(r"\D", "", system)
    name = name + "04" if "ubuntu" in name else name

    [repository] = [one for one in node["__gpu_node_repositories"] if one["name"] == "nvidia-cuda"]
    place = f"https://developer.download.nvidia.com/compute/cuda/repos/{name}/{directory}"
    assert repository["deb"]["uris"] == [repository["rpm"]["baseurl"]] == [place]
    assert repository["key"].startswith(f"{place}/")


@pytest.mark.parametrize("system", KNOWN)
def test_only_what_is_asked_for_is_added_to_the_repositories(system: str) -> None:
    def names(*gpus: dict[str, Any], **settings: Any) -> list[str]:
        return [one["name"] for one in Node(system, gpu_facts(*gpus), **settings)["__gpu_node_repositories"]]

    rhel = ["epel-dkms"] if SYSTEMS[system][2] == "RedHat" else []
    assert names(H100) == ([] if system.startswith("ubuntu") else ["nvidia-cuda", *rhel])
    assert names(H100, gpu_node_nvidia_repository="none", gpu_node_repository_epel_url="") == []
    assert names(MI300) == []
    assert names(MI300, gpu_node_amd_driver="amdgpu") == ["amdgpu", *rhel]
    assert names(MI300, gpu_node_amd_toolkit=True) == ["amd-container-toolkit"]
    assert names(FLEX) == []


def test_mirrors_stand_in_for_every_repository() -> None:
    mirrors = {f"gpu_node_repository_{name}_url": f"https://mirror/{name}" for name in ("cuda", "amd", "epel")}
    for system, gpu in product(KNOWN, (H100, MI300)):
        node = Node(
            system, gpu_facts(gpu), gpu_node_nvidia_repository="cuda", gpu_node_amd_driver="amdgpu",
            gpu_node_amd_toolkit=True, **mirrors,
        )  # fmt: skip
        addresses = re.findall(r"https?://[^/'\"]+", str(node["__gpu_node_repositories"]))
        assert set(addresses) == {"https://mirror"}, system


@pytest.mark.parametrize(
    ("system", "place"),
    [
        ("ubuntu24", "https://repo.radeon.com/amdgpu/30.30/ubuntu noble"),
        ("debian12", "https://repo.radeon.com/amdgpu/30.30/ubuntu jammy"),
        ("debian13", "https://repo.radeon.com/amdgpu/30.30/ubuntu noble"),
        ("rocky9", "https://repo.radeon.com/amdgpu/30.30/el/9.6/main/x86_64"),
        ("alma10", "https://repo.radeon.com/amdgpu/30.30/el/10/main/x86_64"),
    ],
)
def test_amd_s_driver_comes_from_the_release_that_fits(system: str, place: str) -> None:
    repository = Node(system, gpu_facts(MI300), gpu_node_amd_driver="amdgpu")["__gpu_node_repositories"][0]

    assert place in (f"{repository['deb']['uris'][0]} {repository['deb']['suites'][0]}", repository["rpm"]["baseurl"])


@pytest.mark.parametrize("system", ["rocky9", "alma10"])
def test_only_dkms_is_installed_from_epel(system: str) -> None:
    [epel] = [one for one in Node(system)["__gpu_node_repositories"] if one["name"] == "epel-dkms"]

    assert epel["rpm"]["options"] == {"includepkgs": "dkms"}
    assert epel["key"].endswith(f"RPM-GPG-KEY-EPEL-{re.sub(r'[^0-9]', '', system)}")


@pytest.mark.parametrize(
    ("gpus", "modules"),
    [
        ([V100], "proprietary"),
        ([H100], "open"),
        ([B200], "open"),
        ([GH200], "open"),
        ([H100, V100], "proprietary"),
        ([{**H100, "architecture": ""}], "open"),  # newer than all that are known
        ([{**FLEX}, H100], "open"),
    ],
)
def test_modules_are_those_that_all_gpus_can_use(gpus: list[dict[str, Any]], modules: str) -> None:
    node = Node(facts=gpu_facts(*gpus))

    assert node["__gpu_node_nvidia_modules"] == modules
    assert node["__gpu_node_driver_problems"] == []


@pytest.mark.parametrize(
    ("node", "why", "what"),
    [
        (
            Node(facts=gpu_facts(V100), gpu_node_nvidia_branch="595"),
            "Branch 595 of NVIDIA's driver no longer supports V100.",
            "Set gpu_node_nvidia_branch to 580, the last one that does.",
        ),
        (
            Node(facts=gpu_facts(V100), gpu_node_nvidia_modules="open"),
            "NVIDIA's open modules do not support V100.",
            "Set gpu_node_nvidia_modules to proprietary or auto.",
        ),
        (
            Node(facts=gpu_facts(B200, GH200), gpu_node_nvidia_modules="proprietary"),
            "NVIDIA's proprietary modules do not support B200, GH200.",
            "Set gpu_node_nvidia_modules to open or auto.",
        ),
        (
            Node(facts=gpu_facts(B200, V100)),
            "No NVIDIA driver supports both V100 and B200.",
            "Remove one kind of GPU.",
        ),
        (
            Node(gpu_node_nvidia_branch="580", gpu_node_nvidia_version="595.91.07"),
            "gpu_node_nvidia_version 595.91.07 is not of branch 580.",
            "Set gpu_node_nvidia_branch to 595.",
        ),
        (
            Node("rocky9", gpu_node_nvidia_repository="distribution"),
            "The RHEL family's own repositories have no NVIDIA driver.",
            "Set gpu_node_nvidia_repository to cuda, or to none if the node already has a repository with one.",
        ),
        (
            Node(facts=gpu_facts(MI300), architecture="aarch64", gpu_node_amd_driver="amdgpu"),
            "AMD publishes its driver for amd64 only.",
            "Set gpu_node_amd_driver to inbox.",
        ),
    ],
)
def test_impossible_settings_are_reported_before_any_change(node: Node, why: str, what: str) -> None:
    assert node["__gpu_node_driver_problems"] == [{"broken": True, "why": why, "do": what}]


def test_a_branch_without_quotes_is_a_branch_too() -> None:
    node = Node(gpu_node_nvidia_branch=580, gpu_node_nvidia_version="580.95.05")

    assert node["__gpu_node_driver_problems"] == []
    assert node["__gpu_node_packages"] == Node(gpu_node_nvidia_version="580.95.05")["__gpu_node_packages"]


@pytest.mark.parametrize("system", [*SYSTEMS])
def test_systems_that_are_not_known_are_left_alone(system: str) -> None:
    assert Node(system)["__gpu_node_supported"] is (system in KNOWN)
    assert not Node(system, architecture="ppc64le")["__gpu_node_supported"]


@pytest.mark.parametrize(("system", "revision"), [("ubuntu24", "-*"), ("debian12", "-*"), ("rocky9", "")])
def test_packages_of_the_driver_are_of_its_branch_or_version(system: str, revision: str) -> None:
    assert Node(system)["__gpu_node_glob"] == "580.*"
    assert Node(system, gpu_node_nvidia_version="580.95.05")["__gpu_node_glob"] == f"580.95.05{revision}"
    assert Node(system, gpu_facts(MI300))["__gpu_node_glob"] == ""
    # The one driver that Debian's archive has.
    assert Node("debian12", gpu_node_nvidia_repository="distribution")["__gpu_node_glob"] == ""


POLICY = """\
nvidia-headless-no-dkms-580-server-open:
  Installed: (none)
  Candidate: 580.95.05-0ubuntu1
  Version table:
     580.95.05-0ubuntu1 500
nvidia-utils-580-server:
  Installed: 580.65.06-0ubuntu1
  Candidate: 580.95.05-0ubuntu1
"""


def test_apt_gets_all_of_one_release_as_the_preferences_choose_it() -> None:
    node = Node(__gpu_node_policy={"stdout": POLICY})

    assert node["__gpu_node_driver_specs"] == [
        "nvidia-headless-no-dkms-580-server-open=580.95.05-0ubuntu1",
        "nvidia-utils-580-server=580.95.05-0ubuntu1",
    ]
    lost = Node(__gpu_node_policy={"stdout": POLICY.replace("580.95.05-0ubuntu1", "(none)")})
    assert lost["__gpu_node_driver_specs"] == ["nvidia-headless-no-dkms-580-server-open", "nvidia-utils-580-server"]


INSTALLED_580 = (
    "hi  nvidia-headless-no-dkms-580-server-open 580.65.06-0ubuntu1",
    "hi  nvidia-utils-580-server 580.65.06-0ubuntu1",
    "hi  linux-modules-nvidia-580-server-open-6.8.0-87-generic 6.8.0-87.1",
    "hi  linux-image-generic 6.8.0-87",
    "ii  linux-modules-nvidia-580-server-open-generic 6.8.0-87.1",
    "hi  nvidia-container-toolkit 1.20.0-1",
    "hi  kubelet 1.35.0-1",
)


@pytest.mark.parametrize(
    ("settings", "lets_go"),
    [
        ({}, False),  # a newer release of the branch is no reason
        ({"gpu_node_nvidia_version": "580.65.06"}, False),
        ({"gpu_node_nvidia_version": "580.95.05"}, True),
        ({"gpu_node_nvidia_branch": "595"}, True),
        ({"gpu_node_nvidia_repository": "cuda"}, True),
    ],
)
def test_a_driver_that_is_held_is_let_go_for_another_one_only(settings: dict[str, Any], lets_go: bool) -> None:
    node = Node(__gpu_node_policy={"stdout": POLICY}, **settings)
    node.variables["__gpu_node_dpkg"] = {"stdout_lines": INSTALLED_580}

    held = [line.split()[1] for line in INSTALLED_580[:4]]
    assert sorted(node["__gpu_node_let_go"]) == (sorted(held) if lets_go else [])
    assert any("=" in spec for spec in node["__gpu_node_driver_specs"]) == (
        lets_go and "580" in str(node["__gpu_node_driver_specs"]) and "gpu_node_nvidia_repository" not in settings
    )


@pytest.mark.parametrize("system", ["ubuntu24", "debian12", "rocky9"])
@pytest.mark.parametrize(
    ("setting", "switches", "installed"),
    [("auto", 0, False), ("auto", 4, True), ("always", 0, True), ("never", 4, False)],
)
def test_the_fabric_manager_goes_with_switches(system: str, setting: str, switches: int, installed: bool) -> None:
    for origin in ("cuda", "cuda" if system == "rocky9" else "distribution"):
        node = Node(
            system, gpu_facts(H100, nvswitches=switches),
            gpu_node_nvidia_repository=origin, gpu_node_nvidia_fabric_manager=setting,
        )  # fmt: skip
        listed = any("fabric" in name for name in node["__gpu_node_packages"])
        missing = (system, origin) == ("debian12", "distribution")
        assert listed == (installed and not missing)
        refused = any("no fabric manager" in problem["why"] for problem in node["__gpu_node_driver_problems"])
        assert refused == (installed and missing)


def test_switches_of_nvlink_5_get_what_manages_them() -> None:
    for system in ("ubuntu24", "debian12", "rocky9"):
        node = Node(system, gpu_facts(B200, nvlink_managers=1), gpu_node_nvidia_repository="cuda")
        names = " ".join(node["__gpu_node_packages"])
        assert all(name in names for name in ("fabricmanager", "nvlsm", "infiniband-diags"))
        assert node["__gpu_node_loads"][-1] == "ib_umad"

    [problem] = Node(facts=gpu_facts(B200, nvlink_managers=1))["__gpu_node_driver_problems"]
    assert problem["why"] == "Ubuntu's archive has no nvlsm, which the switches of NVLink 5 need."
    never = Node(facts=gpu_facts(B200, nvlink_managers=1), gpu_node_nvidia_fabric_manager="never")
    assert never["__gpu_node_driver_problems"] == never["__gpu_node_fabric_beside"] == []


@pytest.mark.parametrize(
    ("expected", "states"),
    [
        (
            "    Fabric\n        State                             : Completed\n        Status : Success\n",
            ["Completed"],
        ),
        (
            "    Fabric\n        State : In Progress\n    Fabric\n        State : Completed\n",
            ["In Progress", "Completed"],
        ),
        ("    Fabric\n        State                             : N/A\n    Performance State : P0\n", []),
        ("", []),
    ],
)
def test_the_state_of_the_fabric_is_that_of_each_gpu(expected: str, states: list[str]) -> None:
    assert Node(__gpu_node_fabric_answer={"stdout": expected})["__gpu_node_fabric_states"] == states


@pytest.mark.parametrize(
    ("branch", "names"),
    [
        ("570", ["nvidia-fabric-manager-570.*", "libnvidia-nscq-570-570.*"]),
        ("580", ["nvidia-fabricmanager-580.*", "libnvidia-nscq-580.*"]),
    ],
)
def test_the_fabric_manager_has_the_name_that_its_branch_has_on_the_rhel_family(branch: str, names: list[str]) -> None:
    node = Node("rocky9", gpu_facts(H100, nvswitches=4), gpu_node_nvidia_branch=branch)

    assert [name for name in node["__gpu_node_packages"] if "fabric" in name or "nscq" in name] == names


def test_the_user_s_packages_go_before_those_that_are_known() -> None:
    node = Node(gpu_node_driver_packages=["nvidia-driver-of-ours=1.2"])

    assert node["__gpu_node_packages"] == ["nvidia-driver-of-ours=1.2"]
    assert not node["__gpu_node_pinned"]


def test_modules_that_were_built_for_a_kernel_keep_that_kernel() -> None:
    kernels = ("linux-generic", "linux-image-generic", "linux-headers-generic", "linux-image-6.8.0-87-generic")
    held = Node(packages=kernels)["__gpu_node_held"]

    assert set(held) - {name for name in held if "nvidia" in name} == set(kernels[:3])
    built = Node(packages=kernels, gpu_node_nvidia_repository="cuda")["__gpu_node_held"]
    assert [name for name in built if "nvidia" not in name] == []


@pytest.mark.parametrize(
    ("installed", "flavours"),
    [
        ((), []),
        (("linux-image-virtual",), ["generic"]),
        (("linux-image-generic-hwe-24.04", "linux-image-6.14.0-33-generic"), ["generic-hwe-24.04"]),
        (("linux-image-aws", "linux-image-unsigned-6.8.0-1-aws"), ["aws"]),
        (("linux-image-nvidia-64k", "linux-image-oem-24.04"), ["nvidia-64k", "oem-24.04"]),
        (("linux-image-azure-lts-22.04", "linux-azure-6.8-headers-6.8.0-1005"), ["azure-lts-22.04"]),
        (("linux-image-aws-64k-lts-24.04", "linux-image-gcp-6.8"), ["aws-64k-lts-24.04", "gcp-6.8"]),
        (("linux-image-oem-22.04d", "linux-image-generic-hwe-24.04-edge"), ["generic-hwe-24.04-edge", "oem-22.04d"]),
        (("linux-image-realtime", "linux-firmware", "linux-base", "linux-libc-dev"), []),  # none are built for it
    ],
)
def test_the_kernels_to_come_get_their_modules_too(installed: tuple[str, ...], flavours: list[str]) -> None:
    assert Node(packages=installed)["__gpu_node_flavours"] == flavours


@pytest.mark.parametrize(
    "metas",
    [
        ("linux-image-realtime-hwe-24.04", "linux-headers-realtime-hwe-24.04"),
        ("linux-azure-lts-22.04", "linux-image-azure-lts-22.04"),
        ("linux-oem-24.04b",),
    ],
)
def test_kernels_of_clouds_and_makers_are_held_as_well(metas: tuple[str, ...]) -> None:
    assert set(Node(packages=(*metas, "linux-tools-common", "linux-base"))["__gpu_node_kernel_metas"]) == set(metas)


@pytest.mark.parametrize(
    ("kernel", "package"),
    [
        ("5.14.0-570.el9_6.x86_64", "kernel-devel-5.14.0-570.el9_6.x86_64"),
        ("5.14.0-570.el9_6.aarch64", "kernel-devel-5.14.0-570.el9_6.aarch64"),
        ("5.14.0-570.el9_6.aarch64+64k", "kernel-64k-devel-5.14.0-570.el9_6.aarch64"),
    ],
)
def test_headers_are_those_of_the_kernel_that_runs(kernel: str, package: str) -> None:
    assert Node("rocky9", __gpu_node_kernel=kernel)["__gpu_node_headers"][0] == package


GONE = {"rc": 100, "stdout": ""}


def test_a_kernel_that_signed_modules_no_longer_come_for_is_left_for_a_newer_one() -> None:
    node = Node(packages=("linux-image-generic",), __gpu_node_for_kernel=GONE)

    assert node["__gpu_node_unavailable"] == ["linux-modules-nvidia-580-server-open-6.8.0-87-generic"]
    assert node["__gpu_node_other_kernel_does"]
    assert node["__gpu_node_reboot_reasons"] == ["The driver is for a newer installed kernel, not for the running one."]
    runs = Node(facts=gpu_facts(H100, driver=RUNS), packages=("linux-image-generic",), __gpu_node_for_kernel=GONE)
    assert runs["__gpu_node_reboot_reasons"] == []


@pytest.mark.parametrize(
    ("system", "facts", "settings", "goes_on"),
    [
        ("ubuntu24", gpu_facts(H100), {}, False),  # nothing brings a newer kernel
        ("ubuntu24", gpu_facts(H100), {"gpu_node_nvidia_repository": "cuda"}, False),
        ("debian12", gpu_facts(H100), {}, False),
        ("ubuntu24", gpu_facts(MI300), {}, True),  # the driver may be part of the kernel
    ],
)
def test_without_headers_of_the_kernel_that_runs_nothing_can_be_built(
    system: str, facts: dict[str, Any], settings: dict[str, Any], goes_on: bool
) -> None:
    node = Node(system, facts, __gpu_node_for_kernel=GONE, **settings)

    assert len(node["__gpu_node_unavailable"]) == 1
    assert node["__gpu_node_other_kernel_does"] is goes_on


def test_headers_of_rpms_are_known_to_be_there_by_their_version() -> None:
    kernel = {"version": "5.14.0", "release": "570.el9_6", "arch": "x86_64"}
    node = Node("rocky9")
    node.variables["ansible_facts"]["packages"] = {"kernel-devel": [{"name": "kernel-devel"} | kernel]}

    assert "kernel-devel-5.14.0-570.el9_6.x86_64" in node["__gpu_node_packages_present"]
    assert not any("kernel-devel" in name for name in node["__gpu_node_packages_absent"])


def test_amd_s_toolkit_is_installed_where_it_is_asked_for() -> None:
    assert packages("ubuntu24", MI300, {"gpu_node_amd_toolkit": True})[-1] == "amd-container-toolkit"


def test_a_repository_of_rpms_holds_the_driver_and_not_the_toolkit() -> None:
    patterns = Node("rocky9")["__gpu_node_repositories"][0]["rpm"]["options"]["excludepkgs"].split()
    held = re.compile("|".join(pattern.replace("*", ".*") for pattern in patterns))

    for name in packages("rocky9", H100, {})[:3]:
        assert held.fullmatch(name.partition("-580")[0]), name
    assert not held.fullmatch("nvidia-container-toolkit-base")
    assert not held.fullmatch("libnvidia-container1")
    assert "excludepkgs" not in str(Node("rocky9", gpu_node_hold=False)["__gpu_node_repositories"])


# ---- Secure Boot ----

KEY = {"path": "/var/lib/dkms/mok.pub", "enrolled": False}


@pytest.mark.parametrize(
    ("system", "settings", "facts", "refused"),
    [
        ("ubuntu24", {}, gpu_facts(H100, secure_boot=True), False),  # signed by Ubuntu
        ("ubuntu24", {"gpu_node_nvidia_repository": "cuda"}, gpu_facts(H100, secure_boot=True), True),
        ("debian12", {}, gpu_facts(H100, secure_boot=True), True),
        ("rocky9", {}, gpu_facts(H100, secure_boot=True), True),
        ("rocky9", {}, gpu_facts(H100, secure_boot=True, module_keys=[KEY]), True),
        ("rocky9", {}, gpu_facts(H100, secure_boot=True, module_keys=[{**KEY, "enrolled": True}]), False),
        ("rocky9", {}, gpu_facts(H100, secure_boot=True, driver=RUNS), False),  # let in already
        ("rocky9", {"gpu_node_ignore_secure_boot": True}, gpu_facts(H100, secure_boot=True), False),
        ("rocky9", {}, gpu_facts(H100), False),
        ("rocky9", {}, gpu_facts(H100, secure_boot=None), False),
        ("rocky9", {}, gpu_facts(MI300, secure_boot=True), False),  # the kernel's own
        ("rocky9", {"gpu_node_amd_driver": "amdgpu"}, gpu_facts(MI300, secure_boot=True), True),
        ("rocky9", {}, gpu_facts(FLEX, secure_boot=True), False),
    ],
)
def test_secure_boot_refuses_what_is_built_on_the_node_with_a_key_that_it_does_not_trust(
    system: str, settings: dict[str, Any], facts: dict[str, Any], refused: bool
) -> None:
    assert Node(system, facts, **settings)["__gpu_node_refused_by_secure_boot"] is refused


def test_the_secure_boot_help_fits_the_node() -> None:
    ubuntu = Node(facts=gpu_facts(H100), gpu_node_nvidia_repository="cuda")["__gpu_node_secure_boot_help"]
    rocky = Node("rocky9", gpu_facts(H100, module_keys=[KEY]))["__gpu_node_secure_boot_help"]

    assert "gpu_node_nvidia_repository to distribution" in ubuntu
    assert "update-secureboot-policy --new-key\n" in ubuntu
    assert "mokutil --import /var/lib/shim-signed/mok/MOK.der\n" in ubuntu
    assert "gpu_node_nvidia_repository" not in rocky
    # It has a key already.
    assert "generate_mok" not in rocky
    assert "mokutil --import /var/lib/dkms/mok.pub\n" in rocky
    assert rocky.splitlines()[0].startswith("Secure Boot is enabled, and gpu-1 does not trust")


# ---- Reboot ----

OLD = RUNS | {"loaded_version": "570.133.20"}


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        (gpu_facts(H100), []),  # in check mode, before anything is installed
        (gpu_facts(H100, driver=RUNS), []),
        (gpu_facts(H100, driver=RUNS | {"installed_version": None, "installed_kind": None}), []),
        (gpu_facts(H100, driver=OLD), ["(570.133.20, open) is not the installed one (580.95.05, open)"]),
        (
            gpu_facts(H100, driver=RUNS | {"loaded_kind": "proprietary"}),
            ["(580.95.05, proprietary) is not the installed one"],
        ),
        (gpu_facts(H100, driver=RUNS | NO_DRIVER | {"installed_kind": "open"}), ["installed but not loaded"]),
        (gpu_facts(H100, nouveau_loaded=True), ["nouveau is loaded"]),
        (gpu_facts(MI300, nouveau_loaded=True), []),
        (gpu_facts(H100, driver=OLD, reboot_required=True), ["570.133.20"]),
        (gpu_facts(MI300, driver=NO_DRIVER | {"loaded": True, "loaded_kind": "inbox", "installed_kind": "inbox"}), []),
        (
            gpu_facts(
                MI300,
                driver=NO_DRIVER
                | {"loaded": True, "loaded_kind": "inbox", "installed_kind": "added", "installed_version": "6.16.6"},
            ),
            ["(inbox) is not the installed one (6.16.6, added)"],
        ),
    ],
)
def test_a_reboot_has_its_reasons(facts: dict[str, Any], words: list[str]) -> None:
    reasons = Node(facts=facts)["__gpu_node_reboot_reasons"]

    assert len(reasons) == len(words)
    assert all(word in reason for word, reason in zip(words, reasons, strict=True))


def test_a_reboot_that_only_the_system_requires_needs_a_setting() -> None:
    facts = gpu_facts(H100, driver=RUNS, reboot_required=True)

    assert Node(facts=facts)["__gpu_node_reboot_reasons"] == []
    assert Node(facts=facts, gpu_node_reboot_for_system=True)["__gpu_node_reboot_reasons"] == [
        "The operating system requires it."
    ]


@pytest.mark.parametrize(
    ("facts", "settings", "goes"),
    [
        (gpu_facts(H100), {}, False),
        (gpu_facts(H100, driver=RUNS), {}, False),
        (gpu_facts(H100, driver=RUNS), {"gpu_node_nvidia_version": "580.95.05"}, False),
        (gpu_facts(H100, driver=RUNS), {"gpu_node_nvidia_version": "580.126.20"}, True),
        (gpu_facts(H100, driver=RUNS), {"gpu_node_nvidia_branch": "595"}, True),
        (gpu_facts(H100, driver=RUNS), {"gpu_node_nvidia_modules": "proprietary"}, True),
        (
            gpu_facts(MI300, driver=RUNS | {"vendor": "amd", "loaded_kind": "added"}),
            {"gpu_node_amd_driver": "amdgpu"},
            False,
        ),
    ],
    ids=["none", "right", "right-version", "version", "branch", "modules", "amd"],
)
def test_pods_go_before_a_driver_that_runs_is_replaced(
    facts: dict[str, Any], settings: dict[str, Any], goes: bool
) -> None:
    packages = tuple(Node(facts=facts, **settings)["__gpu_node_driver_names"])

    assert bool(Node(facts=facts, packages=packages, **settings)["__gpu_node_driver_goes"]) == goes


def test_pods_go_before_a_missing_part_brings_all_others_of_one_release() -> None:
    present = Node()["__gpu_node_driver_names"][:-1]

    assert Node(facts=gpu_facts(H100, driver=RUNS), packages=tuple(present), **OURS)["__gpu_node_driver_goes"]


def test_another_driver_than_the_wanted_one_is_not_taken_for_it() -> None:
    node = Node(gpu_node_nvidia_version="580.99.01")
    name = node["__gpu_node_driver_names"][0]
    node.variables["__gpu_node_policy"] = {"stdout": f"{name}:\n  Installed: (none)\n  Candidate: 595.91.07-1\n"}

    assert node["__gpu_node_other_candidates"] == {name: "595.91.07-1"}


def test_kernels_that_another_tool_holds_stay_held() -> None:
    node = Node(gpu_node_hold=False)
    node.variables["__gpu_node_dpkg"] = {"stdout_lines": ["hi  linux-generic 6.8"]}

    assert not set(node["__gpu_node_kernel_metas"]) & set(node["__gpu_node_held_or_free"])


@pytest.mark.parametrize(
    ("facts", "requested"),
    [
        (gpu_facts(H100), False),
        (gpu_facts(H100, driver=RUNS | {"installed_version": "", "installed_kind": ""}), True),
        (
            gpu_facts(MI300, driver=NO_DRIVER | {"loaded": True, "loaded_kind": "inbox", "installed_kind": "inbox"}),
            False,
        ),
    ],
)
def test_after_a_removal_only_a_driver_that_still_runs_wants_a_reboot(facts: dict[str, Any], requested: bool) -> None:
    assert bool(Node(facts=facts)["__gpu_node_reasons_after_removal"]) == requested


# ---- Whose driver it is ----

OURS = {"__gpu_node_mark_of_ours": {"stat": {"exists": True}}}
PACKAGES_OF_OTHERS = ("nvidia-open-580", "nvidia-driver-580-server-open", "nvidia-utils-580-server")
BY_RUNFILE = RUNS | {"source": "runfile"}
IN_CONTAINER = RUNS | {"source": "container", "installed_version": "", "installed_kind": ""}


def listed_objects(kind: str, *objects: dict[str, Any], **answer: Any) -> dict[str, Any]:
    """What the cluster says of the objects of a kind."""
    return {"__gpu_node_lookup": {"results": [{"item": kind, "api_found": True, "resources": [*objects]} | answer]}}


@pytest.mark.parametrize(
    ("driver", "settings", "kept"),
    [
        (RUNS, {}, True),  # of another archive
        (BY_RUNFILE, {}, True),
        (IN_CONTAINER, {}, True),
        (RUNS | {"loaded_version": "570.133.20", "installed_version": "570.133.20"}, {}, True),
        (RUNS | {"loaded_kind": "proprietary", "installed_kind": "proprietary"}, {}, True),
        (RUNS, {"gpu_node_nvidia_branch": "580"}, True),
        (RUNS, {"gpu_node_nvidia_version": "580.95.05", "gpu_node_nvidia_modules": "open"}, True),
        (RUNS, {"gpu_node_nvidia_branch": "595"}, False),
        (RUNS, {"gpu_node_nvidia_modules": "proprietary"}, False),
        (NO_DRIVER, {}, False),
        (RUNS, OURS, False),
        (RUNS, {"gpu_node_driver": "manage"}, False),
        (NO_DRIVER, {"gpu_node_driver": "keep"}, True),
        (RUNS, {"gpu_node_driver": "keep", "gpu_node_nvidia_branch": "595"}, True),
    ],
)
def test_a_working_driver_that_fits_the_request_stays_regardless_of_its_origin(
    driver: dict[str, Any], settings: dict[str, Any], kept: bool
) -> None:
    node = Node(facts=gpu_facts(H100, driver=driver), packages=PACKAGES_OF_OTHERS, **settings)

    assert node["__gpu_node_kept"] is kept
    if kept:
        assert not node["__gpu_node_driver_goes"]
        assert node["__gpu_node_reboot_reasons"] == []


def test_packages_are_not_mixed_up_with_what_came_without_them() -> None:
    for driver, way in ((BY_RUNFILE, "Run nvidia-uninstall"), (IN_CONTAINER, "Remove that first")):
        [problem] = Node(facts=gpu_facts(H100, driver=driver), gpu_node_driver="manage")["__gpu_node_driver_problems"]
        assert problem["do"].startswith(way)


@pytest.mark.parametrize(
    ("answer", "driver", "toolkit"),
    [
        ({}, False, False),
        (listed_objects("ClusterPolicy"), False, False),
        (listed_objects("ClusterPolicy", {"spec": {}}), True, True),
        (
            listed_objects("ClusterPolicy", {"spec": {"driver": {"enabled": True}, "toolkit": {"enabled": False}}}),
            True,
            False,
        ),
        (listed_objects("ClusterPolicy", {"spec": {"driver": {"enabled": False}}}), False, True),
        (listed_objects("DeviceConfig", {"spec": {}}), False, False),
        (listed_objects("ClusterPolicy", api_found=None, msg="403 Forbidden"), True, True),
    ],
)
def test_beside_an_operator_drivers_are_the_operator_s(answer: dict[str, Any], driver: bool, toolkit: bool) -> None:
    node = Node(facts=gpu_facts(H100), **answer)

    assert (node["__gpu_node_kept"], node["__gpu_node_toolkit_enabled"]) == (driver, not toolkit)
    assert Node(facts=gpu_facts(H100), gpu_node_driver="manage", **answer)["__gpu_node_kept"] is False


@pytest.mark.parametrize(
    ("objects", "kept"), [([{"spec": {}}], True), ([{"spec": {"driver": {"enable": False}}}], False), ([], False)]
)
def test_amd_s_operator_has_its_drivers_too(objects: list[dict[str, Any]], kept: bool) -> None:
    assert Node(facts=gpu_facts(MI300), **listed_objects("DeviceConfig", *objects))["__gpu_node_kept"] is kept


@pytest.mark.parametrize(
    ("answer", "settings", "openshift"),
    [
        ({}, {}, False),
        (listed_objects("SecurityContextConstraints"), {}, True),
        (listed_objects("SecurityContextConstraints", api_found=None, msg="Forbidden"), {}, True),
        (listed_objects("SecurityContextConstraints"), {"slipway_openshift": False}, False),
        ({}, {"slipway_openshift": True}, True),
    ],
)
def test_openshift_is_asked_and_not_presumed(answer: dict[str, Any], settings: dict[str, Any], openshift: bool) -> None:
    assert (Node(**answer, **settings)["__gpu_node_vendor"] == "none") is openshift


@pytest.mark.parametrize(
    ("driver", "settings", "branch"),
    [
        (NO_DRIVER, {}, "580"),
        (RUNS | {"installed_version": "570.1"}, {}, "570"),  # what will run
        (RUNS | {"installed_version": None}, {}, "580"),
        (RUNS, {"gpu_node_nvidia_version": "595.91.07"}, "595"),
        (RUNS, {"gpu_node_nvidia_branch": "570"}, "570"),
    ],
)
def test_the_branch_is_that_of_the_driver_that_is_there(
    driver: dict[str, Any], settings: dict[str, Any], branch: str
) -> None:
    assert Node(facts=gpu_facts(H100, driver=driver), **settings)["__gpu_node_branch"] == branch


def test_a_removal_leaves_a_foreign_driver() -> None:
    assert Node(facts=gpu_facts(H100, driver=RUNS))["__gpu_node_stays"]
    assert not Node(facts=gpu_facts(H100, driver=RUNS), **OURS)["__gpu_node_stays"]
    assert Node(facts=gpu_facts(H100, driver=RUNS))["__gpu_node_reasons_after_removal"] == []


# ---- Modules of the kernel ----


def test_nouveau_is_kept_out_and_options_are_written_in_order() -> None:
    node = Node(gpu_node_nvidia_module_options={"NVreg_B": True, "NVreg_A": 0})

    assert node["__gpu_node_settings"] == [
        "blacklist nouveau",
        "options nouveau modeset=0",
        "options nvidia NVreg_A=0 NVreg_B=1",
    ]
    assert node["__gpu_node_loads"] == ["nvidia", "nvidia_uvm"]


@pytest.mark.parametrize(
    ("module", "settings", "loads"),
    [
        ("auto", [], ["i915"]),
        ("xe", ["options xe force_probe=56c0", "options i915 force_probe=!56c0"], ["xe"]),
        ("i915", ["options i915 force_probe=56c0", "options xe force_probe=!56c0"], ["i915"]),
    ],
)
def test_intel_s_gpus_go_to_the_module_that_is_named(module: str, settings: list[str], loads: list[str]) -> None:
    facts = gpu_facts(FLEX, driver=NO_DRIVER | {"vendor": "intel", "module": "i915"})
    node = Node(facts=facts, gpu_node_intel_module=module)

    assert (node["__gpu_node_settings"], node["__gpu_node_loads"]) == (settings, loads)


def test_the_kernel_s_own_driver_of_amd_needs_no_settings() -> None:
    node = Node(facts=gpu_facts(MI300))

    assert (node["__gpu_node_settings"], node["__gpu_node_loads"]) == ([], ["amdgpu"])


# ---- Whose node, and what becomes of it ----


@pytest.mark.parametrize(
    ("facts", "settings", "vendor"),
    [
        (gpu_facts(), {}, "none"),
        (gpu_facts(H100, FLEX), {}, "nvidia"),
        (gpu_facts(H100, FLEX), {"gpu_node_vendor": "intel"}, "intel"),
        (gpu_facts(H100), {"gpu_node_vendor": "none"}, "none"),
        (gpu_facts(H100), {"slipway_openshift": True}, "none"),
        (gpu_facts(H100), {"hostvars": {"localhost": {"preflight_openshift": True}}}, "none"),
    ],
)
def test_the_vendor_is_the_one_that_is_found_or_said(
    facts: dict[str, Any], settings: dict[str, Any], vendor: str
) -> None:
    assert Node(facts=facts, **settings)["__gpu_node_vendor"] == vendor


def test_the_reason_for_no_change_is_reported() -> None:
    assert "GPU Operator" in Node(slipway_openshift=True)["__gpu_node_nothing"]
    assert "gpu_node_vendor is none" in Node(gpu_node_vendor="none")["__gpu_node_nothing"]
    assert Node(facts=gpu_facts())["__gpu_node_nothing"].startswith("gpu-1 has no NVIDIA, AMD or Intel GPU")


def test_a_gpu_that_a_virtual_machine_is_to_have_is_not_missed() -> None:
    taken, bound, lost = (
        {**H100, "address": f"0000:0{n}:00.0", "driver": d} for n, d in enumerate(("vfio-pci", "nvidia", ""))
    )
    node = Node(facts=gpu_facts(taken, bound, lost, driver=RUNS))

    assert [gpu["driver"] for gpu in node["__gpu_node_own_gpus"]] == ["nvidia", ""]
    assert node["__gpu_node_unbound"] == ["0000:02:00.0"]


INSTALLED = (
    "nvidia-headless-no-dkms-580-server-open", "libnvidia-compute-580-server", "nvidia-utils-580-server",
    "linux-modules-nvidia-580-server-open-generic", "linux-objects-nvidia-580-server-6.8.0-87-generic",
    "nvidia-fabricmanager-580", "libcuda1", "kmod-nvidia-open-dkms", "nvidia-driver-cuda", "cuda-drivers-580",
    "nvidia-container-toolkit", "nvidia-container-toolkit-base", "libnvidia-container1", "libnvidia-container-tools",
    "linux-image-generic", "libc6", "amdgpu-dkms", "amd-container-toolkit", "dkms",
)  # fmt: skip


@pytest.mark.parametrize(
    ("gpu", "removed"),
    [(H100, set(INSTALLED[:10])), (MI300, {"amdgpu-dkms", "amd-container-toolkit"}), (FLEX, set())],
)
def test_a_removal_takes_the_driver_and_nothing_else(gpu: dict[str, Any], removed: set[str]) -> None:
    assert set(Node(facts=gpu_facts(gpu), packages=INSTALLED)["__gpu_node_removed"]) == removed


def test_a_removal_takes_the_user_s_own_packages_too() -> None:
    ours = ("driver-of-ours", "missing-of-ours=1.0")
    node = Node(packages=("driver-of-ours", "libc6"), gpu_node_driver_packages=list(ours))

    assert node["__gpu_node_removed"] == ["driver-of-ours"]


# ---- Order ----


def tasks(name: str) -> list[dict[str, Any]]:
    listed: list[dict[str, Any]] = documents.read(ROLE / f"tasks/{name}.yml")
    return listed


def prepared() -> dict[str, Any]:
    """The tasks between which a node may be drained."""
    [block] = [task for task in tasks("prepare") if "block" in task]
    return block


def test_a_node_is_drained_before_its_driver_is_replaced_and_always_uncordoned() -> None:
    names = [task["name"] for task in prepared()["block"]]

    assert names[1:3] == ["Drain the node before its driver is replaced", "Install the driver"]
    assert names[-1] == "Verify that the GPUs answer"
    assert [task["ansible.builtin.include_tasks"] for task in prepared()["always"]] == ["uncordon.yml"]


def test_the_initramfs_is_rebuilt_once_before_a_reboot_is_decided_on() -> None:
    names = [task["name"] for task in prepared()["block"]]

    assert names.index("Run the handlers") < names.index("Reboot the node if needed")
    notifying = [path.name for path in (ROLE / "tasks").glob("*.yml") if "update-initramfs" in path.read_text()]
    assert notifying == []


def test_everything_is_checked_before_anything_is_changed() -> None:
    first = tasks("main")[0]
    assert first["ansible.builtin.import_tasks"] == "check.yml"
    reading = {
        "ansible.builtin.assert", "ansible.builtin.import_tasks", "ansible.builtin.include_vars",
        "ansible.builtin.setup", "ansible.builtin.package_facts", "ansible.builtin.set_fact", "ansible.builtin.stat",
        "ansible.builtin.debug", "slipway.inference.k8s_info", "slipway.inference.gpu_info",
    }  # fmt: skip
    read = [task for name in ("check", "find", "look") for task in tasks(name)]
    flat = [inner for task in read for inner in task.get("block", [task])]

    flat = [task for task in flat if task.get("changed_when") is not False]

    assert [task["name"] for task in flat if not reading & set(task)] == []


@pytest.mark.parametrize(("now", "missing"), [("1k", []), ("1000", []), ("999", ["1k nvidia.com/gpu"])])
def test_a_node_that_offered_1k_devices_waits_for_a_thousand(now: str, missing: list[str]) -> None:
    node = Node(
        __gpu_node_had={"nvidia.com/gpu": "1k"},
        __gpu_node_read={"resources": [{"status": {"allocatable": {"nvidia.com/gpu": now}}}]},
    )
    assert node["__gpu_node_missing"] == missing
