"""Measures the CPU time of one task: `model_info` beside an empty task, `k8s_info` and `kubernetes.core.k8s_info`.

    tasks.py            20 tasks of each kind, 3 rounds: about five minutes
    tasks.py --quick    5 tasks, 1 round: about one minute

What a task costs is what `ansible-playbook` with many of them needs beyond one with a single task, divided by their
number. `debug` is what Ansible itself spends on a task that does nothing, `ping` on one that runs a module for it. The
others ask a small server in this process by an address and a token; what the server needs is not counted.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))

from outcome import Goal, Outcome, finish  # noqa: E402 - found by the line before

PATIENCE = 600
GOAL_SECONDS = 0.15
"""CPU time that `model_info` may need beyond an empty task."""
EMPTY, OURS = "debug", "model_info"
SELECTED = {"namespace": "models"}
KIND = {"api_version": "krypton.ai/v1alpha1", "kind": "Model"}
TASKS: dict[str, dict[str, Any]] = {
    EMPTY: {"ansible.builtin.debug": {}},
    "ping": {"ansible.builtin.ping": {}},
    OURS: {"slipway.inference.model_info": SELECTED},
    "k8s_info": {"slipway.inference.k8s_info": {**SELECTED, **KIND}},
    "kubernetes.core": {"kubernetes.core.k8s_info": {**SELECTED, **KIND}},
}
RESOURCE = {"name": "models", "singularName": "model", "namespaced": True, "kind": "Model", "verbs": ["get", "list"]}
GROUP_VERSION = {"groupVersion": "krypton.ai/v1alpha1", "version": "v1alpha1"}
GROUP = {"name": "krypton.ai", "versions": [GROUP_VERSION], "preferredVersion": GROUP_VERSION}
ANSWERS: dict[str, dict[str, Any]] = {
    "/version": {"major": "1", "minor": "34", "gitVersion": "v1.34.0"},
    "/api": {"kind": "APIVersions", "versions": ["v1"]},
    "/api/v1": {"kind": "APIResourceList", "groupVersion": "v1", "resources": []},
    "/apis": {"kind": "APIGroupList", "apiVersion": "v1", "groups": [GROUP]},
    "/apis/krypton.ai/v1alpha1": {
        "kind": "APIResourceList",
        "groupVersion": "krypton.ai/v1alpha1",
        "resources": [RESOURCE],
    },
    "/apis/krypton.ai/v1alpha1/namespaces/models/models": {
        "kind": "ModelList",
        "apiVersion": "krypton.ai/v1alpha1",
        "metadata": {"resourceVersion": "1"},
        "items": [],
    },
}


class Handler(BaseHTTPRequestHandler):
    """Answers discovery, and that there are no models."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        answer = ANSWERS.get(self.path.partition("?")[0].rstrip("/"))
        body = json.dumps(answer or {"kind": "Status", "reason": "NotFound", "code": 404}).encode()
        self.send_response(200 if answer else 404)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_arguments: Any) -> None:
        pass


def measure(task: dict[str, Any], number: int, url: str) -> float:
    """CPU seconds of one run of ansible-playbook with so many tasks, and of all that it starts."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "play.json"
        play = {
            "hosts": "localhost",
            "connection": "local",
            "gather_facts": False,
            "vars": {"ansible_python_interpreter": sys.executable},
            "tasks": [{"name": "Do it", **task} for _ in range(number)],
        }
        path.write_text(json.dumps([play]))
        environment = {**os.environ, "K8S_AUTH_HOST": url, "K8S_AUTH_API_KEY": "a-token", "ANSIBLE_NOCOLOR": "1"}
        environment |= {"ANSIBLE_PIPELINING": "1", "K8S_AUTH_KUBECONFIG": "", "HOME": folder}
        environment.setdefault("ANSIBLE_COLLECTIONS_PATH", str(ROOT / ".venv/collections"))
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        command = ["ansible-playbook", "-i", "localhost,", str(path)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=PATIENCE, check=False)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        raise SystemExit(f"ansible-playbook failed:\n{done.stdout[-3000:]}{done.stderr[-3000:]}")
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    quick = parser.parse_args().quick
    tasks, rounds = (5, 1) if quick else (20, 3)
    costs: dict[str, list[float]] = {name: [] for name in TASKS}
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_port}"
    for task in TASKS.values():
        measure(task, 1, url)  # The first run of a machine compiles and caches; it counts for nobody.
    for turn in range(rounds):
        for name, task in TASKS.items():
            single, many = measure(task, 1, url), measure(task, 1 + tasks, url)
            costs[name].append((many - single) / tasks)
            print(f"round {turn + 1}: {name}: {costs[name][-1]:.3f} CPU s a task", flush=True)
    server.shutdown()
    return report(costs, quick=quick)


def report(costs: dict[str, list[float]], *, quick: bool) -> int:
    """Prints the medians, and what they are beyond an empty task; 1 when the goal was missed."""
    medians = {name: statistics.median(seconds) for name, seconds in costs.items()}
    beyond = {name: seconds - medians[EMPTY] for name, seconds in medians.items()}
    print(f"\nCPU s of a task, median of {len(costs[OURS])} round(s), {os.cpu_count()} cores")
    for name, seconds in medians.items():
        print(f"{name:16}{seconds:8.3f}{beyond[name]:+8.3f} beyond {EMPTY}  {seconds / medians[OURS]:6.1f}x {OURS}")
    goal = Goal(f"CPU of {OURS} beyond an empty task", beyond[OURS], GOAL_SECONDS, "s")
    versions = {name: importlib.metadata.version(name) for name in ("ansible-core", "kubernetes")}
    figures = {"medians": medians, "beyond": beyond, "rounds": len(costs[OURS])}
    return finish(Outcome("ansible-tasks", quick, [goal], figures, costs, versions))


if __name__ == "__main__":
    sys.exit(main())
