"""The playbook drain_node where there is no node to drain."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]


def drained(*arguments: str) -> subprocess.CompletedProcess[str]:
    playbook = Path(sys.executable).with_name("ansible-playbook")
    return subprocess.run(
        [str(playbook), "playbooks/drain_node.yml", *arguments],
        cwd=ROOT,
        env={**os.environ, "ANSIBLE_NOCOLOR": "1"},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


def test_without_an_inventory_it_fails_and_says_what_to_name() -> None:
    done = drained("-e", "drain_node_name=nope")
    assert done.returncode != 0
    output = " ".join((done.stdout + done.stderr).split())
    assert "The group gpu_nodes has no hosts, so there is nothing to drain." in output
    assert "-i inventory --limit NODE" in output
