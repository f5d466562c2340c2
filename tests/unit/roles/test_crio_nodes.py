"""A node's CRI-O is changed so that pods run as before."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest
from ansible.errors import AnsibleFilterError
from ansible_collections.slipway.inference.plugins.filter.container_runtime_mismatches import (
    container_runtime_mismatches,
)
from ansible_collections.slipway.inference.plugins.filter.container_runtimes import container_runtimes
from ansible_collections.slipway.inference.plugins.filter.crio_config import crio_config
from ansible_collections.slipway.inference.plugins.plugin_utils._toml import at, laid_over, written

HANDLERS = ["nvidia", "nvidia-cdi"]
BINARY = "/usr/bin/nvidia-container-runtime"
OURS = "99-nvidia.toml"
CRUN = """
[crio.runtime.runtimes.crun]
runtime_path = "/usr/libexec/crio/crun"
runtime_type = ""
runtime_root = "/run/crun"
monitor_path = "/usr/libexec/crio/conmon"
monitor_cgroup = "system.slice"
monitor_env = ["PATH=/usr/bin"]
privileged_without_host_devices = true
allowed_annotations = ["io.containers.trace-syscall"]
container_min_memory = "12MiB"
[crio.runtime.runtimes.crun.platform_runtime_paths]
"linux/arm64" = "/usr/libexec/crio/crun-arm"
"""
KATA = """
[crio.runtime.runtimes.kata]
runtime_path = "/usr/bin/containerd-shim-kata-v2"
runtime_type = "vm"
runtime_config_path = "/opt/kata/configuration.toml"
privileged_without_host_devices = true
"""
TOOLKIT = f"""
[crio.runtime.runtimes.nvidia]
runtime_path = "{BINARY}"
runtime_type = "oci"
monitor_path = "/usr/bin/conmon"
"""
LEGACY = TOOLKIT.replace("runtimes.nvidia", "runtimes.nvidia-legacy").replace(
    "container-runtime", "container-runtime.legacy"
)


def default(name: str) -> str:
    return f'[crio.runtime]\ndefault_runtime = "{name}"\n'


NODES: dict[str, dict[str, str]] = {
    "defaults-as-comments": {},
    "only-default": {"10.conf": default("crun")},
    "crun": {"10.conf": default("crun") + CRUN},
    "kata-default": {"10.conf": default("kata") + CRUN + KATA},
    "kata-alone": {"10.conf": default("kata") + KATA},
    "toolkit": {"10.conf": CRUN, OURS: TOOLKIT},
    "toolkit-default": {"10.conf": default("crun") + CRUN, OURS: default("nvidia") + TOOLKIT + LEGACY},
    "toolkit-default-elsewhere": {"10.conf": default("nvidia") + CRUN + TOOLKIT},
    "other-settings": {"10.conf": CRUN, OURS: '[crio.runtime]\nhooks_dir = ["/usr/share/hooks"]\n' + TOOLKIT},
}


def printed(files: dict[str, str]) -> str:
    """What ``crio config`` prints: a later file replaces a whole runtime, and defaults are comments."""
    config: dict[str, Any] = {}
    for name in sorted(files):
        runtime = at(tomllib.loads(files[name]), ("crio", "runtime"), {})
        runtimes = {**config.get("runtimes", {}), **runtime.get("runtimes", {})}
        runtimes = {"crun": {"runtime_path": "/usr/bin/crun"}, **runtimes} if runtimes else {}
        config = {**laid_over(config, runtime), **({"runtimes": runtimes} if runtimes else {})}
    return (
        written({"crio": {"runtime": config}}) if config else "# [crio.runtime]\n# default_runtime = 'crun'\n[crio]\n"
    )


def plan(files: dict[str, str], **options: Any) -> dict[str, Any]:
    return crio_config(printed(files), handlers=HANDLERS, drop_in=files.get(OURS), **options)


def done(files: dict[str, str], **options: Any) -> dict[str, str]:
    content = plan(files, **options)["content"]
    return {**files, OURS: content} if content else {name: text for name, text in files.items() if name != OURS}


def state(files: dict[str, str]) -> dict[str, Any]:
    return container_runtimes(printed(files))


CHOICES = pytest.mark.parametrize("choice", ["leave", "yes", "no"])
EVERY = pytest.mark.parametrize("name", NODES)


@CHOICES
@EVERY
def test_every_runtime_of_a_node_stays_as_it_was(name: str, choice: str) -> None:
    before, after = state(NODES[name]), state(done(NODES[name], default=choice))
    for existing, settings in before["runtimes"].items():
        assert after["runtimes"][existing] == settings
    assert set(HANDLERS) <= set(after["runtimes"])
    if choice == "leave" or (choice == "no" and before["default"] != "nvidia"):
        assert after["default"] == before["default"]
    else:
        assert after["default"] == {"yes": "nvidia", "no": "crun"}[choice]


@CHOICES
@EVERY
def test_the_plan_knows_what_crio_will_run_with_and_a_second_run_changes_nothing(name: str, choice: str) -> None:
    planned = plan(NODES[name], default=choice)
    once = done(NODES[name], default=choice)
    assert container_runtime_mismatches(printed(once), planned["expected"], exact=False) == []
    assert plan(once, default=choice)["changes"] == []
    assert done(once, default=choice) == once


@CHOICES
@pytest.mark.parametrize("name", [name for name in NODES if name != "toolkit-default-elsewhere"])
def test_pods_run_as_before_when_it_is_removed(name: str, choice: str) -> None:
    once = done(NODES[name], default=choice)
    planned, after = plan(once, state="absent"), state(done(once, state="absent"))
    assert container_runtime_mismatches(printed(done(once, state="absent")), planned["expected"], exact=False) == []
    assert after["default"] not in HANDLERS
    kept = {key: value for key, value in state(NODES[name])["runtimes"].items() if "nvidia" not in key}
    assert kept == after["runtimes"]


@pytest.mark.parametrize("choice", ["leave", "yes"])
def test_it_is_not_removed_if_another_file_sets_it_as_the_default(choice: str) -> None:
    once = done(NODES["toolkit-default-elsewhere"], default=choice)
    with pytest.raises(AnsibleFilterError, match="another file sets default_runtime to nvidia"):
        plan(once, state="absent")


def test_it_is_not_removed_if_our_file_hides_that_another_one_sets_it_as_the_default() -> None:
    """Only the trial shows the default below our file."""
    once = done(NODES["toolkit-default-elsewhere"], default="no")
    after = printed(done(once, state="absent"))
    assert container_runtime_mismatches(after, plan(once, state="absent")["expected"], exact=False) == [
        "default runtime: another file sets it to nvidia, which will be removed"
    ]


def test_a_handler_has_every_setting_that_does_not_choose_its_program() -> None:
    for name in ("crun", "kata-default"):
        derived = state(done(NODES[name]))["runtimes"]["nvidia"]
        assert derived == {
            "runtime_path": BINARY,
            "runtime_type": "oci",
            "runtime_root": "/run/crun",
            "monitor_path": "/usr/libexec/crio/conmon",
            "monitor_cgroup": "system.slice",
            "monitor_env": ["PATH=/usr/bin"],
            "privileged_without_host_devices": True,
            "allowed_annotations": ["io.containers.trace-syscall"],
            "container_min_memory": "12MiB",
        }


def test_a_handler_is_not_derived_from_a_virtual_machine() -> None:
    assert state(done(NODES["kata-alone"]))["runtimes"]["nvidia"] == {"runtime_path": BINARY, "runtime_type": "oci"}


def test_a_handler_is_not_derived_from_a_runtime_with_another_kind_of_monitor() -> None:
    conmonrs = CRUN.replace('runtime_type = ""', 'runtime_type = "pod"').replace("libexec/crio/conmon", "bin/conmonrs")
    derived = state(done({"10.conf": default("crun") + conmonrs}))["runtimes"]["nvidia"]
    assert derived == {"runtime_path": BINARY, "runtime_type": "oci"}


def test_settings_of_another_tool_in_our_file_stay() -> None:
    assert "hooks_dir" in done(NODES["other-settings"])[OURS]
    assert state(done(NODES["toolkit-default"]))["runtimes"]["nvidia-legacy"]["monitor_path"] == "/usr/bin/conmon"


@pytest.mark.parametrize(
    ("files", "options", "message"),
    [
        ({"10.conf": KATA.replace("kata]", "nvidia]")}, {}, "nvidia exists already and is of the type 'vm'"),
        ({"10.conf": default("gone") + CRUN}, {}, "the default runtime 'gone' is not defined"),
        (
            {"10.conf": default("nvidia") + CRUN, OURS: TOOLKIT},
            {"state": "absent"},
            "another file sets default_runtime to nvidia",
        ),
    ],
)
def test_settings_that_would_stop_pods_are_rejected(
    files: dict[str, str], options: dict[str, str], message: str
) -> None:
    with pytest.raises(AnsibleFilterError, match=f"CRI-O was not changed: .*{message}"):
        plan(files, **options)


def test_without_another_runtime_the_default_stays() -> None:
    with pytest.raises(AnsibleFilterError, match="CRI-O has no other that runs by runc or crun"):
        crio_config(default("nvidia") + TOOLKIT, handlers=HANDLERS, default="no")


def test_a_default_that_crio_does_not_define_is_a_mismatch() -> None:
    expected = plan(NODES["crun"])["expected"]
    assert container_runtime_mismatches(default("gone") + CRUN, expected, exact=False) != []
