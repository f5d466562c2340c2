"""The role gpu_node changes the files of containerd and CRI-O: stand-ins read them by the programs' rules."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from .containerd_model import TOP
from .containerd_nodes import RUNC, default, node, runtime
from .role_run import PATH, ROOT, run_play

pytestmark = pytest.mark.plays

CONTAINERD = """
from tests.unit.roles.containerd_model import dump
named = sys.argv[1] == "--config"
top = sys.argv[2] if named else TOP
paths = [] if "default" in sys.argv else [path for path in Path(top).parent.rglob("*") if path.is_file()]
files = {str(path): path.read_text(errors="replace") for path in paths}
if named and top not in files:
    sys.exit(f"containerd: open {top}: no such file or directory")
try:
    print(dump(MAJOR, files, top))
except ValueError as error:
    sys.exit(f"containerd: {error}")
"""
CRIO = """
from tests.unit.roles.test_crio_nodes import printed
named = sys.argv[2] if len(sys.argv) > 2 else FOLDER
paths = [Path(named)] if Path(named).is_file() else Path(named).iterdir()
print(printed({path.name: path.read_text() for path in paths}))
"""
CRUN = '[crio.runtime]\ndefault_runtime = "crun"\n[crio.runtime.runtimes.crun]\nmonitor_path = "/usr/bin/conmon"\n'


class Node:
    """Its tools are stand-ins, so that nothing of this machine is read, written or restarted."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.etc = folder / "etc"
        self.crio = self.etc / "crio.conf.d"
        self.backups = folder / "backups"
        self.crio.mkdir(parents=True)
        home = folder.parent / "ansible"
        self.begin = (
            f"#!{sys.executable}\nimport sys\nfrom pathlib import Path\nsys.path[:0] = [{str(ROOT)!r}, {str(home)!r}]\n"
        )
        self.has_containerd(1)
        self._tool("crio", f"{self.begin}FOLDER = {str(self.crio)!r}\n{CRIO}")
        shown = "ActiveState=active\\nLoadState=loaded\\n"
        self._tool("systemctl", f'#!/bin/sh\necho "$@" >> {folder}/systemctl\nprintf "{shown}"\n')

    def _tool(self, name: str, text: str) -> None:
        file = self.folder / "bin" / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
        file.chmod(0o755)

    def has_containerd(self, major: int) -> None:
        top = str(self.etc / "config.toml")
        self._tool("containerd", f"{self.begin}MAJOR, TOP = {major}, {top!r}\n{CONTAINERD}")

    def has(self, files: dict[str, str]) -> Node:
        for path, text in files.items():
            file = self.etc / path.removeprefix("/etc/containerd/")
            file.parent.mkdir(exist_ok=True)
            file.write_text(text.replace("/etc/containerd", str(self.etc)))
        return self

    def files(self) -> dict[str, str]:
        paths = [path for path in self.etc.rglob("*") if path.is_file()]
        return {str(path.relative_to(self.etc)): path.read_text() for path in paths}

    @property
    def restarted(self) -> bool:
        log = self.folder / "systemctl"
        return log.exists() and "restart" in log.read_text()

    def plays(self, entry: str, *flags: str, failing: bool = False, **variables: object) -> str:
        extra = {
            "gpu_node_containerd_config": str(self.etc / "config.toml"),
            "gpu_node_container_runtime": entry,
            "__gpu_node_containerd_backups": str(self.backups),
            "__gpu_node_crio_drop_in": str(self.crio / "99-nvidia.toml"),
            "__gpu_node_environment": {"PATH": f"{self.folder}/bin:{PATH}"},
            "__gpu_node_runtime_service": "slipway-tests-none.service",
            **variables,
        }
        role = {"name": "slipway.inference.gpu_node", "tasks_from": f"runtime_{entry}"}
        play = {
            "hosts": "localhost",
            "connection": "local",
            "gather_facts": False,
            "environment": {"PATH": f"{self.folder}/bin:{PATH}"},
            "vars": {"ansible_python_interpreter": sys.executable},
            "tasks": [{"ansible.builtin.import_role": role}],
        }
        return run_play(self.folder, play, "-e", json.dumps(extra), *flags, failing=failing)


@pytest.fixture
def machine(tmp_path: Path) -> Node:
    folder = tmp_path / "node"
    folder.mkdir()
    return Node(folder)


def test_a_node_with_nvidia_s_runtime_alone_keeps_it_and_a_second_run_changes_nothing(machine: Node) -> None:
    machine.has(node("toolkit-alone-default", 2))
    output = machine.plays("containerd")
    text = machine.files()["config.toml"]
    assert 'default_runtime_name = "nvidia"' in text
    assert text.count("SystemdCgroup = true") == 2
    assert "runtime nvidia-cdi: added" in output
    assert machine.restarted

    assert "changed=0 " in machine.plays("containerd")
    assert machine.files()["config.toml"] == text


def test_an_imported_file_that_wins_is_changed_and_keeps_its_mode(machine: Node) -> None:
    machine.has(node("only-imports", 2))
    (machine.etc / "conf.d/10-runtimes.toml").chmod(0o600)
    before = machine.files()["config.toml"]
    machine.plays("containerd")
    assert "runtimes.nvidia-cdi]" in machine.files()["conf.d/10-runtimes.toml"]
    assert (machine.etc / "conf.d/10-runtimes.toml").stat().st_mode & 0o777 == 0o600
    assert machine.files()["config.toml"] == before


def test_check_mode_lists_the_changes_and_makes_none(machine: Node) -> None:
    machine.has(node("kata-default", 2))
    before = machine.files()
    output = machine.plays("containerd", "--check", "--diff", gpu_node_toolkit_default_runtime=True)
    assert "default runtime: kata -> nvidia" in output
    assert machine.files() == before
    assert not machine.restarted


def test_pods_run_as_before_when_it_is_removed(machine: Node) -> None:
    machine.has(node("toolkit-alone-default", 2))
    output = machine.plays("containerd", __gpu_node_toolkit_state="absent")
    text = machine.files()["config.toml"]
    assert "default runtime: nvidia -> runc" in output
    assert "nvidia" not in text
    assert "SystemdCgroup = true" in text


def test_a_backup_is_where_no_import_reads_it(machine: Node) -> None:
    """An import of conf.d/* reads every file there, and a backup after the file that it is of."""
    machine.has_containerd(2)
    machine.has({TOP: 'version = 3\nimports = ["/etc/containerd/conf.d/*"]\n'})
    machine.plays("containerd")
    machine.plays("containerd", gpu_node_toolkit_default_runtime="yes")
    files = machine.files()
    assert list(files) == ["config.toml", "conf.d/99-nvidia.toml"]
    assert 'default_runtime_name = "nvidia"' in files["conf.d/99-nvidia.toml"]
    (backup,) = machine.backups.rglob("99-nvidia.toml")
    assert backup.is_relative_to(next(machine.backups.iterdir()) / str(machine.etc)[1:])
    assert "default_runtime_name" not in backup.read_text()


def test_files_are_restored_if_containerd_reads_them_otherwise_afterwards(machine: Node) -> None:
    """A stand-in that reads the new files in their places as the old ones."""
    machine.has(node("conflicting-drop-ins", 2))
    changed = machine.etc / "conf.d/20-gpu.toml"
    changed.chmod(0o600)
    before = machine.files()
    tool = machine.folder / "bin/containerd"
    old = f"files |= { ({str(changed): changed.read_text()})!r} if TOP in files else {{}}\n"
    tool.write_text(tool.read_text().replace("try:", f"{old}try:"))
    output = machine.plays("containerd", failing=True)
    assert "containerd's files were restored" in output
    assert machine.files() == before
    assert changed.stat().st_mode & 0o777 == 0o600
    assert not machine.restarted


def test_it_is_removed_from_a_default_import_without_a_file_of_containerd(machine: Node) -> None:
    machine.has_containerd(2)
    machine.has(node("drop-ins-without-a-file", 3))
    output = machine.plays("containerd", __gpu_node_toolkit_state="absent")
    assert "runtime nvidia: removed" in output
    assert list(machine.files()) == ["conf.d/10-gpu.toml"]
    assert "nvidia" not in machine.files()["conf.d/10-gpu.toml"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("version =", "containerd rejects"),
        ("version = 2\n" + default("gone") + RUNC, "the default runtime 'gone' is not defined"),
        ("version = 2\n" + RUNC + runtime("nvidia", "io.containerd.kata.v2"), "nvidia exists already"),
    ],
)
def test_a_file_that_does_not_work_is_not_changed(machine: Node, text: str, message: str) -> None:
    machine.has({TOP: text.replace('"CRI"', '"io.containerd.grpc.v1.cri"')})
    before = machine.files()
    assert message in machine.plays("containerd", failing=True)
    assert machine.files() == before
    assert not machine.restarted


def test_nothing_is_replaced_if_containerd_reads_it_otherwise(machine: Node) -> None:
    """A stand-in that ignores new runtimes: no file is touched, and nothing is restarted."""
    machine.has(node("kubeadm-full", 2))
    tool = machine.folder / "bin/containerd"
    old = repr(machine.files()["config.toml"])
    tool.write_text(tool.read_text().replace("dump(MAJOR, files, top)", f"dump(MAJOR, {{top: {old}}}, top)"))
    before = machine.files()
    output = machine.plays("containerd", failing=True)
    assert "nothing was changed" in output
    assert "runtime nvidia: removed" in output
    assert machine.files() == before
    assert not machine.backups.exists()
    assert not machine.restarted


def test_crio_gets_a_handler_with_all_settings_and_loses_it_again(machine: Node) -> None:
    (machine.crio / "10.conf").write_text(CRUN)
    output = machine.plays("crio")
    text = machine.files()["crio.conf.d/99-nvidia.toml"]
    assert "runtime nvidia-cdi: added" in output
    assert 'monitor_path = "/usr/bin/conmon"' in text
    assert "default_runtime" not in text
    assert "changed=0 " in machine.plays("crio")

    machine.plays("crio", __gpu_node_toolkit_state="absent")
    assert list(machine.files()) == ["crio.conf.d/10.conf"]


def test_crio_is_left_alone_if_it_reads_it_otherwise(machine: Node) -> None:
    (machine.crio / "10.conf").write_text(CRUN)
    (machine.crio / "zz.conf").write_text('[crio.runtime.runtimes.nvidia]\nruntime_path = "/opt/other"\n')
    before = machine.files()
    assert "runtime nvidia: runtime_path /usr/bin" in machine.plays("crio", failing=True)
    assert machine.files() == before
    assert not machine.restarted
