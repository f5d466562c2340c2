"""Measures the playbook gpu_nodes on 200 GPU hosts that need no change, with 50 forks.

    hosts.py            200 hosts, 50 forks: about fifteen minutes on two cores
    hosts.py --quick    10 hosts, 5 forks: more than a minute

The hosts are directories of this machine with the files that the role reads, and a program in the place of ssh runs
their modules here. So one machine does the work of 200, and real hosts are faster. The playbook runs in check mode,
because these hosts share one package database. Their driver is loaded already, which is what "no change" means.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
COLLECTIONS = ROOT / ".venv/collections"
sys.path[:0] = [str(ROOT / "benchmarks"), str(ROOT), str(COLLECTIONS)]

from outcome import Goal, Outcome, finish  # noqa: E402 - found by the line before

from tests.unit.roles.node_api import NodeApi  # noqa: E402
from tests.unit.roles.test_gpu_nodes_playbook import Fleet  # noqa: E402

GOAL_SECONDS = 600.0
PATIENCE = 3600
# Takes the place of ssh: runs here what a host is to run, and writes down the CPU time of it.
SSH = 'for last; do :; done; sh -c "$last"; status=$?; times >> "{times}"; exit $status'
TIME = re.compile(r"(\d+)m([\d.]+)s")
RECAP = re.compile(r"^(\S+) +: ok=(\d+) +changed=(\d+) +unreachable=(\d+) +failed=(\d+)", re.MULTILINE)


def inventory(fleet: Fleet) -> dict[str, Any]:
    common = {
        "ansible_connection": "ssh",
        "ansible_ssh_executable": str(fleet.folder / "bin/ssh-stand-in"),
        "ansible_become": False,
        "ansible_pipelining": True,
        "ansible_python_interpreter": sys.executable,
        "gpu_node_toolkit": False,
    }
    return {"all": {"children": {"gpu_nodes": {"hosts": fleet.hosts, "vars": common}}}}


def seconds_of(times: str) -> float:
    """The sum of what the shell's `times` printed."""
    return sum(60 * int(minutes) + float(seconds) for minutes, seconds in TIME.findall(times))


def measure(folder: Path, hosts: int, forks: int) -> dict[str, float]:
    """Seconds, CPU seconds, and what the hosts say at the end."""
    api = NodeApi()
    try:
        fleet = Fleet(folder, api)
        fleet.tools.tool("ssh-stand-in", SSH.format(times=folder / "times"))
        for number in range(hosts):
            fleet.has(f"gpu-{number:03}")
        (folder / "inventory.json").write_text(json.dumps(inventory(fleet)))
        environment = {**os.environ, "ANSIBLE_NOCOLOR": "1", "PATH": f"{folder}/bin:{os.environ['PATH']}"}
        environment |= {"K8S_AUTH_HOST": api.url, "K8S_AUTH_API_KEY": "a-token", "K8S_AUTH_KUBECONFIG": ""}
        environment.setdefault("ANSIBLE_COLLECTIONS_PATH", str(COLLECTIONS))
        command = ["ansible-playbook", "-i", str(folder / "inventory.json"), "--forks", str(forks), "--check"]
        before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
        done = subprocess.run(
            [*command, str(ROOT / "playbooks/gpu_nodes.yml")],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        seconds, after = time.monotonic() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
    finally:
        api.stop()
    rows = [tuple(map(int, counts)) for host, *counts in RECAP.findall(done.stdout) if host.startswith("gpu-")]
    if done.returncode or len(rows) != hosts:
        raise SystemExit(f"ansible-playbook failed:\n{done.stdout[-3000:]}{done.stderr[-3000:]}")
    return {
        "hosts": hosts,
        "forks": forks,
        "seconds": seconds,
        "cpu_seconds": after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime,
        "module_cpu_seconds": seconds_of((folder / "times").read_text()),
        "changed": sum(changed for _ok, changed, _unreachable, _failed in rows),
        "failed": sum(unreachable + failed for _ok, _changed, unreachable, failed in rows),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    quick = parser.parse_args().quick
    hosts, forks = (10, 5) if quick else (200, 50)
    with tempfile.TemporaryDirectory() as folder:
        figures = measure(Path(folder), hosts, forks)
    print(
        f"{hosts} hosts, {forks} forks: {figures['seconds']:.0f} s, {figures['cpu_seconds']:.0f} s of CPU, of which"
        f" {figures['module_cpu_seconds']:.0f} s are the modules', which real hosts run themselves"
    )
    goals = [
        Goal(f"{hosts} GPU hosts without a change, {forks} forks", figures["seconds"], GOAL_SECONDS, "s"),
        Goal("tasks that changed something", figures["changed"], 0),
        Goal("tasks that failed", figures["failed"], 0),
    ]
    versions = {"ansible-core": importlib.metadata.version("ansible-core")}
    return finish(Outcome("ansible-hosts", quick, goals, figures, versions=versions))


if __name__ == "__main__":
    sys.exit(main())
