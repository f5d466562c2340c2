"""The playbook gpu_nodes on several hosts: it skips unreachable ones, reboots come last, and no secret is printed."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from .node_api import MARK, NodeApi
from .role_run import PATH, run_play
from .test_gpu_node_run import Machine

pytestmark = pytest.mark.plays

TOKEN = "canary-of-the-cluster"
PASSWORD = "canary-of-the-mirror"
# Replaces ssh: it logs the commands for a host, and runs them here.
SSH = 'echo "$@" >> "{log}"; for last; do :; done; exec sh -c "$last"'


@pytest.fixture
def api() -> Iterator[NodeApi]:
    server = NodeApi()
    yield server
    server.stop()


class Fleet:
    """Hosts of an inventory. Reachable ones answer through a stand-in for ssh, and have a foreign driver."""

    def __init__(self, folder: Path, api: NodeApi) -> None:
        self.folder = folder
        self.api = api
        self.hosts: dict[str, dict[str, Any]] = {}
        self.log = folder / "told"
        self.tools = Machine(folder)
        self.tools.tool("ssh-stand-in", SSH.format(log=self.log))
        self.tools.tool("ssh-in-vain", "exit 255")
        self.tools.tool("modinfo", "printf 'version: 580.95.05\\nlicense: Dual MIT/GPL\\n'")
        self.tools.tool("nvidia-smi", "test $1 = -L && echo 'GPU 0: NVIDIA H100 (UUID: GPU-8d6c)'")

    def has(self, name: str, *, gpu: bool = True, **variables: Any) -> Fleet:
        place = self.folder / name
        place.mkdir()
        machine = Machine(place)
        if gpu:
            machine.has_gpu("nvidia").runs_driver()
        self.hosts[name] = {"gpu_node_root": str(machine.root), **variables}
        self.api.node(name)
        return self

    def is_away(self, name: str) -> Fleet:
        return self.has(name, ansible_ssh_executable=str(self.folder / "bin/ssh-in-vain"))

    def plays(self, *flags: str, failing: bool = False) -> str:
        common = {
            "ansible_connection": "ssh",
            "ansible_ssh_executable": str(self.folder / "bin/ssh-stand-in"),
            "ansible_become": False,
            "ansible_python_interpreter": sys.executable,
            "gpu_node_toolkit": False,
            "gpu_node_proxy": f"http://user:{PASSWORD}@proxy:3128",
        }
        group = {"gpu_nodes": {"hosts": self.hosts, "vars": common}}
        (self.folder / "inventory.json").write_text(json.dumps({"all": {"children": group}}))
        cluster = {"K8S_AUTH_HOST": self.api.url, "K8S_AUTH_API_KEY": TOKEN}
        return run_play(
            self.folder,
            {"import_playbook": "slipway.inference.gpu_nodes"},
            *("--extra-vars", json.dumps({"slipway_environment": cluster}), *flags),
            inventory="inventory.json",
            failing=failing,
            PATH=f"{self.folder}/bin:{PATH}",
        )


def recap(output: str, host: str) -> dict[str, int]:
    match = re.search(rf"{host} : ((?:\w+=\d+ ?)+)", output)
    assert match, output
    return {name: int(count) for name, count in (pair.split("=") for pair in match[1].split())}


def test_a_few_hosts_that_are_away_are_left_behind_and_the_others_go_on(tmp_path: Path, api: NodeApi) -> None:
    """One must reboot, which check mode predicts, and only after all non-disruptive steps."""
    fleet = Fleet(tmp_path, api).has("settled").has("rebooting", gpu_node_reboot="always").has("empty", gpu=False)
    fleet.is_away("away")
    # A mark from an interrupted run, which shows that the playbook contacts the cluster.
    api.node("settled", unschedulable=True, **{MARK: "slipway.inference.gpu_node"})

    output = fleet.plays("--check", "-vvv")

    assert "1 of 4 hosts failed. The run continues with the others." in output
    assert "away: unreachable" in output
    assert "settled keeps its driver nvidia 580.95.05 open" in output
    assert "empty has no NVIDIA, AMD or Intel GPU, so it is not changed." in output
    assert output.index("The run continues with the others.") < output.index(
        "rebooting would reboot: gpu_node_reboot is always."
    )
    for host in fleet.hosts:
        assert recap(output, host)["failed"] == 0
    # It would take pods again: who has the credentials reached the cluster.
    assert recap(output, "settled")["changed"] == 1

    log = fleet.log.read_text()
    assert "settled" in log
    assert TOKEN not in log
    assert PASSWORD not in output + log


def test_if_too_many_hosts_are_unreachable_none_is_drained(tmp_path: Path, api: NodeApi) -> None:
    fleet = Fleet(tmp_path, api).has("rebooting", gpu_node_reboot="always")
    fleet.is_away("away").is_away("gone")

    output = fleet.plays("--check", failing=True)

    assert "2 of 3 hosts failed, more than gpu_nodes_tolerate allows." in output
    assert "would reboot" not in output
    assert api.events == []
