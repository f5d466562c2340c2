"""A node's containerd is changed so that pods run as before: default runtime, types and options of every runtime."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping
from fnmatch import fnmatch
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
from ansible.errors import AnsibleFilterError
from ansible_collections.slipway.inference.plugins.filter.container_runtime_mismatches import (
    container_runtime_mismatches,
)
from ansible_collections.slipway.inference.plugins.filter.container_runtimes import container_runtimes
from ansible_collections.slipway.inference.plugins.filter.containerd_config import containerd_config
from ansible_collections.slipway.inference.plugins.plugin_utils._runtime_state import differences

from .containerd_model import TOP, dump
from .containerd_nodes import GVISOR, KATA, NODES, NVIDIA, RUNC, SINCE_3, SYSTEMD, default, node, runtime

HANDLERS = ["nvidia", "nvidia-cdi"]
BINARY = "/usr/bin/nvidia-container-runtime"
Files = Mapping[str, str]
# containerd's major version, and the version of its files.
KINDS = [(1, 2), (2, 2), (2, 3)]
CHOICES = ["leave", "yes", "no"]
EVERY = [(major, version, name) for major, version in ((1, 2), (2, 3)) for name in NODES]
EVERY += [(2, 2, name) for name in ("toolkit-alone-default", "kata-default", "toolkit-drop-in", "only-imports")]
EVERY += [(2, 3, name) for name in SINCE_3]


def plan(files: Files, major: int, **options: Any) -> dict[str, Any]:
    dumped = dump(major, files)
    chosen = {"handlers": HANDLERS, "defaults": dump(major, {}), "imported": imported(dumped, files), **options}
    return containerd_config(dumped, top=files.get(TOP), **chosen)


def imported(dumped: str, files: Files) -> dict[str, str]:
    """The files that the role finds by the output of ``containerd config dump``, in its order."""
    patterns = container_runtimes(dumped)["imports"]
    return {path: files[path] for pattern in patterns for path in sorted(files) if fnmatch(path, pattern)}


def done(files: Files, major: int, **options: Any) -> dict[str, str]:
    """The files of the node after the plan."""
    planned = plan(files, major, **options)
    after = {**files, **{file["path"]: file["content"] for file in planned["files"]}}
    return {path: text for path, text in after.items() if path not in planned["removed"]}


def state(files: Files, major: int) -> dict[str, Any]:
    return container_runtimes(dump(major, files))


def handler(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {**settings, "options": {**settings.get("options", {}), "BinaryName": BINARY}}


@pytest.mark.parametrize("choice", CHOICES)
@pytest.mark.parametrize(("major", "version", "name"), EVERY)
def test_every_runtime_of_a_node_stays_as_it_was(major: int, version: int, name: str, choice: str) -> None:
    files = node(name, version)
    before, after = state(files, major), state(done(files, major, default=choice), major)
    for existing, settings in before["runtimes"].items():
        # To be the default, runc is written if no file defines it, and loses NVIDIA's program.
        if choice == "no" and existing == after["default"] and _changes(files, settings):
            continue
        assert after["runtimes"][existing] == (handler(settings) if existing in HANDLERS else settings)
    assert after["default"] in after["runtimes"]
    assert {"nvidia", "nvidia-cdi"} <= set(after["runtimes"])
    assert after["runtimes"]["nvidia-cdi"]["options"]["BinaryName"] == BINARY


def _changes(files: Files, settings: Mapping[str, Any]) -> bool:
    return "runtimes.runc" not in str(files) or settings.get("options", {}).get("BinaryName") == BINARY


@pytest.mark.parametrize(("major", "version", "name"), EVERY)
def test_the_default_runtime_stays_unless_it_is_to_change(major: int, version: int, name: str) -> None:
    files = node(name, version)
    before = state(files, major)["default"]
    assert state(done(files, major), major)["default"] == before
    assert state(done(files, major, default="yes"), major)["default"] == "nvidia"
    ours = before in HANDLERS or state(files, major)["runtimes"][before].get("options", {}).get("BinaryName") == BINARY
    after = state(done(files, major, default="no"), major)
    if ours:
        settings = after["runtimes"][after["default"]]
        assert settings.get("options", {}).get("BinaryName") != BINARY
    else:
        assert after["default"] == before


@pytest.mark.parametrize("choice", CHOICES)
@pytest.mark.parametrize(("major", "version", "name"), EVERY)
def test_the_plan_knows_what_containerd_will_run_with(major: int, version: int, name: str, choice: str) -> None:
    files = node(name, version)
    for state_wanted in ("present", "absent"):
        planned = plan(files, major, default=choice, state=state_wanted)
        after = done(files, major, default=choice, state=state_wanted)
        assert container_runtime_mismatches(dump(major, after), planned["expected"]) == []
        trial = {f"/etc/containerd/trial/{file['name']}": file["content"] for file in planned["trial"]}
        tried = dump(major, {**files, **trial}, "/etc/containerd/trial/config.toml")
        assert container_runtime_mismatches(tried, planned["expected"]) == []


@pytest.mark.parametrize("choice", CHOICES)
@pytest.mark.parametrize("name", ["conflicting-drop-ins", "patterns-not-sorted", "imports-of-imports"])
@pytest.mark.parametrize("major", [1, 2])
def test_the_order_of_a_dump_means_nothing(major: int, name: str, choice: str) -> None:
    """containerd 1 prints the imported files in random order."""
    files = node(name, major + 1)
    texts = imported(dump(major, files), files)
    for state_wanted in ("present", "absent"):
        options = {"default": choice, "state": state_wanted}
        plans = [plan(files, major, imported=dict(order), **options) for order in permutations(texts.items())]
        assert plans == [plans[0]] * len(plans)
        assert len(plans) > 1


def test_containerd_1_is_changed_in_the_file_that_it_reads_last() -> None:
    for name, last in (
        ("conflicting-drop-ins", "conf.d/20-gpu"),
        ("patterns-not-sorted", "conf.a/gpu"),
        ("imports-of-imports", "conf.a/gpu"),
    ):
        files = node(name, 2)
        assert [file["path"] for file in plan(files, 1)["files"]] == [f"/etc/containerd/{last}.toml"]


@pytest.mark.parametrize("choice", CHOICES)
@pytest.mark.parametrize(("major", "version", "name"), EVERY)
def test_a_second_run_changes_nothing(major: int, version: int, name: str, choice: str) -> None:
    once = done(node(name, version), major, default=choice)
    again = plan(once, major, default=choice)
    assert again["changes"] == []
    assert all(once[file["path"]] == file["content"] for file in again["files"])


@pytest.mark.parametrize("choice", CHOICES)
@pytest.mark.parametrize(("major", "version", "name"), EVERY)
def test_pods_run_as_before_when_it_is_removed(major: int, version: int, name: str, choice: str) -> None:
    files = node(name, version)
    before = state(files, major)
    after = state(done(done(files, major, default=choice), major, state="absent"), major)
    assert after["default"] in after["runtimes"]
    assert all(one.get("options", {}).get("BinaryName") != BINARY for one in after["runtimes"].values())
    ran_by, runs_by = before["runtimes"][before["default"]], after["runtimes"][after["default"]]
    if choice == "yes" and major == 1 and before["default"] in ("kata", "runsc", "crun"):
        # What containerd's own file said before is known to its backup alone.
        assert runs_by["runtime_type"] == "io.containerd.runc.v2"
    elif "nvidia" not in str(ran_by.get("options", {}).get("BinaryName", "")):
        assert (after["default"], runs_by) == (before["default"], ran_by)
    else:
        assert runs_by.get("options", {}).get("SystemdCgroup") is True


# Handlers that run another program.
REPLACED = {
    "operator": ['  BinaryName = "/usr/local/nvidia/toolkit/nvidia-container-runtime"'],
    "toolkit-1.17": ['  BinaryName = "/usr/bin/nvidia-container-runtime.cdi"'],
}


@pytest.mark.parametrize(("major", "version", "name"), EVERY)
def test_lines_that_need_no_change_stay(major: int, version: int, name: str) -> None:
    files = node(name, version)
    after = done(files, major)
    for path, text in files.items():
        lines = after[path].splitlines()
        lost = [line for line in text.splitlines() if line.strip() and line not in lines]
        assert lost == REPLACED.get(name, [])


# ---- what a handler is derived from --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("toolkit-alone-default", {"SystemdCgroup": True}),
        ("kata-default", {"SystemdCgroup": True}),
        ("kata-and-nvidia-default", {"SystemdCgroup": True}),
        ("kata-alone", {}),
        ("gvisor-default", {"SystemdCgroup": True}),
        ("crun-default", {"SystemdCgroup": True}),
        ("dotted-keys", {"SystemdCgroup": True}),
        ("quoted-otherwise", {"SystemdCgroup": True}),
        ("only-imports", {"SystemdCgroup": True}),
        ("every-setting", {"SystemdCgroup": True, "Root": "/run/other", "NoNewKeyring": True}),
    ],
)
@pytest.mark.parametrize(("major", "version"), KINDS)
def test_a_handler_is_derived_from_a_runtime_of_its_type(
    major: int, version: int, name: str, options: dict[str, Any]
) -> None:
    derived = state(done(node(name, version), major), major)["runtimes"]["nvidia-cdi"]
    assert derived["runtime_type"] == "io.containerd.runc.v2"
    assert derived["options"] == {**options, "BinaryName": BINARY}
    if name != "every-setting":
        assert set(derived) == {"runtime_type", "options"}


@pytest.mark.parametrize(("major", "version"), KINDS)
def test_a_handler_has_every_setting(major: int, version: int) -> None:
    derived = state(done(node("every-setting", version), major), major)["runtimes"]
    assert derived["nvidia"] == handler(derived["runc"])
    assert {"pod_annotations", "cni_conf_dir", "base_runtime_spec", "cni_max_conf_num"} <= set(derived["nvidia"])


@pytest.mark.parametrize(("major", "version"), KINDS)
def test_a_handler_that_exists_keeps_its_options(major: int, version: int) -> None:
    derived = state(done(node("operator", version), major), major)["runtimes"]["nvidia"]
    assert derived["options"] == {"BinaryName": BINARY, "SystemdCgroup": True, "Root": "/run/gpu"}


def test_a_shim_of_another_program_is_no_pattern() -> None:
    path = '  runtime_path = "/opt/kata/bin/containerd-shim-kata-v2"\n'
    other = runtime("other", further=path, options='ConfigPath = "/opt"')
    files = {TOP: ("version = 2\n" + default("other") + other).replace('"CRI"', '"io.containerd.grpc.v1.cri"')}
    assert state(done(files, 1), 1)["runtimes"]["nvidia"]["options"] == {"BinaryName": BINARY}


@pytest.mark.parametrize(("major", "version"), KINDS)
def test_a_handler_made_of_kata_is_replaced(major: int, version: int) -> None:
    """An earlier release of this role derived it from any default runtime."""
    wrong = runtime("nvidia", "io.containerd.kata.v2", options=f'BinaryName = "{BINARY}"\n  ConfigPath = "/opt"')
    files = _of("version = 0\n" + default("kata") + RUNC + KATA + wrong, version)
    derived = state(done(files, major), major)["runtimes"]["nvidia"]
    assert derived == {
        "runtime_type": "io.containerd.runc.v2",
        "options": {"SystemdCgroup": True, "BinaryName": BINARY},
    }


def _of(text: str, version: int) -> dict[str, str]:
    name = {2: "io.containerd.grpc.v1.cri", 3: "io.containerd.cri.v1.runtime"}[version]
    return {TOP: text.replace("version = 0", f"version = {version}").replace('"CRI"', f'"{name}"')}


@pytest.mark.parametrize(("major", "version"), KINDS)
def test_a_handler_of_another_type_is_not_replaced(major: int, version: int) -> None:
    files = _of("version = 0\n" + RUNC + runtime("nvidia", "io.containerd.kata.v2"), version)
    with pytest.raises(AnsibleFilterError, match=r"nvidia exists already and is of the type 'io.containerd.kata.v2'"):
        plan(files, major)


@pytest.mark.parametrize(("choice", "stays"), [("leave", True), ("no", False), ("yes", False)])
def test_a_handler_that_is_no_longer_registered_stays_while_it_is_the_default(choice: str, stays: bool) -> None:
    cdi = NVIDIA.replace("runtimes.nvidia", "runtimes.nvidia-cdi")
    files = _of("version = 0\n" + default("nvidia-cdi") + RUNC + NVIDIA + cdi, 2)
    after = state(done(files, 1, handlers=["nvidia"], cdi=False, default=choice), 1)
    assert ("nvidia-cdi" in after["runtimes"]) is stays
    assert after["default"] == {"leave": "nvidia-cdi", "no": "runc", "yes": "nvidia"}[choice]


def test_a_trial_reads_files_in_their_order() -> None:
    """A file that containerd reads after ours keeps its default, so that the plan is not what would run."""
    later = "/etc/containerd/conf.d/zz.toml"
    top = 'version = 3\nimports = ["/etc/containerd/conf.d/*.toml"]\n'
    files = {TOP: top, later: _of("version = 0\n" + default("runc"), 3)[TOP]}
    planned = plan(files, 2, default="yes")
    trial = {f"/etc/containerd/trial/{file['name']}": file["content"] for file in planned["trial"]}
    for tried in (dump(2, trial, "/etc/containerd/trial/config.toml"), dump(2, done(files, 2, default="yes"))):
        assert container_runtime_mismatches(tried, planned["expected"]) == ["default runtime: nvidia -> runc"]


@pytest.mark.parametrize("choice", CHOICES)
def test_a_backup_that_containerd_reads_is_removed(choice: str) -> None:
    """Earlier releases of the role kept it in the same directory."""
    name = "/etc/containerd/conf.d/99-nvidia.toml"
    top = {TOP: 'version = 3\nimports = ["/etc/containerd/conf.d/*"]\n'}
    for earlier in CHOICES:
        old = done(top, 2, default=earlier)[name]
        files = {**done(top, 2), f"{name}.1.2026-11-28@09:00:00~": old}
        after = done(files, 2, default=choice)
        assert list(after) == [TOP, name]
        assert container_runtime_mismatches(dump(2, after), plan(files, 2, default=choice)["expected"]) == []


# ---- what is refused -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("major", "version"), KINDS)
def test_a_default_that_no_runtime_has_is_refused(major: int, version: int) -> None:
    files = _of("version = 0\n" + default("gone") + RUNC, version)
    with pytest.raises(AnsibleFilterError, match=r"config.toml: the default runtime 'gone' is not defined.*are nvidia"):
        plan(files, major)
    assert state(done(files, major, default="yes"), major)["default"] == "nvidia"


def test_the_deprecated_default_is_kept_and_not_overridden() -> None:
    table = '[plugins."CRI".containerd.default_runtime]\n  runtime_type = "io.containerd.runc.v2"\n'
    options = f'[plugins."CRI".containerd.default_runtime.options]\n  {SYSTEMD}\n'
    files = _of("version = 0\n" + table + options, 2)
    derived = state(done(files, 1), 1)
    assert derived["default"] == "default"
    assert derived["runtimes"]["nvidia"]["options"] == {"SystemdCgroup": True, "BinaryName": BINARY}
    with pytest.raises(AnsibleFilterError, match="deprecated table default_runtime"):
        plan(files, 1, default="yes")


def test_a_choice_that_there_is_not_is_refused() -> None:
    with pytest.raises(AnsibleFilterError, match=r"cannot be 'maybe'[.] Use leave, yes or no"):
        plan({}, 1, default="maybe")


@pytest.mark.parametrize(
    ("choice", "same"), [(True, "yes"), ("True", "yes"), ("true", "yes"), (False, "no"), ("no", "no")]
)
def test_booleans_are_choices(choice: object, same: str) -> None:
    files = node("toolkit-default", 2)
    assert plan(files, 1, default=choice) == plan(files, 1, default=same)


@pytest.mark.parametrize(
    ("now", "line"),
    [
        (default("gone") + RUNC, "default runtime: 'gone' is not defined"),
        (
            default("runc") + runtime("runc", options="SystemdCgroup = false"),
            "runtime runc: SystemdCgroup true -> not set",
        ),
        (
            default("runc") + RUNC.replace("runc.v2", "kata.v2"),
            "runtime runc: runtime_type io.containerd.runc.v2 -> io",
        ),
        (default("runc") + RUNC + GVISOR, "runtime runsc: added"),
        (default("runsc") + RUNC + GVISOR, "default runtime: runc -> runsc"),
    ],
)
def test_a_result_is_compared_by_default_types_and_options(now: str, line: str) -> None:
    expected = state(_of("version = 0\n" + default("runc") + RUNC, 2), 1)
    differ = container_runtime_mismatches(dump(1, _of("version = 0\n" + now, 2)), expected)
    assert any(one.startswith(line) for one in differ), differ


# ---- what is reported ----------------------------------------------------------------------------------------------


def test_changes_are_listed() -> None:
    derived = f"runtime_type = io.containerd.runc.v2, SystemdCgroup = true, BinaryName = {BINARY}"
    assert plan(node("operator", 2), 1)["changes"] == [
        f"runtime nvidia: BinaryName /usr/local/nvidia/toolkit/nvidia-container-runtime -> {BINARY}",
        f"runtime nvidia-cdi: added ({derived})",
        "enable_cdi: false -> true",
    ]
    assert plan(node("kata-default", 2), 1, default="yes")["changes"][0] == "default runtime: kata -> nvidia"
    removed = plan(node("toolkit-alone-default", 2), 1, state="absent")["changes"]
    assert removed == [
        "default runtime: nvidia -> runc",
        "runtime nvidia: removed",
        "runtime runc: added (runtime_type = io.containerd.runc.v2, SystemdCgroup = true)",
    ]


# ---- containerd itself ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def program() -> str:
    return shutil.which("containerd") or pytest.skip("needs containerd")


@pytest.fixture(scope="module")
def major(program: str) -> int:
    shown = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout
    return 1 if " 1." in shown else 2


def printed(program: str, folder: Path, files: Files) -> str:
    """What containerd prints of the files, in a directory in place of /etc/containerd."""
    for path, text in files.items():
        at = folder / path.removeprefix("/etc/containerd/")
        at.parent.mkdir(parents=True, exist_ok=True)
        at.write_text(text.replace("/etc/containerd/conf", str(folder / "conf")))
    command = [program, "--config", str(folder / "config.toml"), "config", "dump"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@pytest.fixture(scope="module")
def defaults(program: str) -> str:
    return subprocess.run([program, "config", "default"], capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("name", NODES)
def test_containerd_itself_agrees(program: str, defaults: str, major: int, tmp_path: Path, name: str) -> None:
    """Its own parser reads the files of the node, the trial of the plan, and the files after it."""
    files = node(name, 2 if major == 1 else 3)
    before = printed(program, tmp_path / "before", files) if TOP in files else defaults
    drop_ins = imported(before.replace(str(tmp_path / "before"), "/etc/containerd"), files)
    assert differences(container_runtimes(before), state(files, major)) == []
    for choice in CHOICES:
        options = {"handlers": HANDLERS, "imported": drop_ins, "default": choice, "defaults": defaults}
        planned = containerd_config(before, top=files.get(TOP), **options)
        trial = {f"/etc/containerd/{file['name']}": file["content"] for file in planned["trial"]}
        for folder, texts in (("trial", trial), ("after", done(files, major, default=choice))):
            shown = printed(program, tmp_path / choice / folder, texts)
            assert container_runtime_mismatches(shown, planned["expected"]) == []


def test_the_files_that_are_imported_are_known(program: str, major: int, tmp_path: Path) -> None:
    files = node("only-imports", 2)
    shown = container_runtimes(printed(program, tmp_path, files), path=str(tmp_path / "config.toml"))
    expected = "10-runtimes.toml" if major == 1 else "*.toml"
    assert shown["imports"] == [str(tmp_path / "conf.d" / expected)]
