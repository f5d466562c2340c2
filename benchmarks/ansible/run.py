"""Measures how long Models take to be applied by Ansible: our module beside kubernetes.core.k8s, in interleaved rounds.

    run.py            100 Models, 3 rounds: about fifteen minutes, nearly all of them the loop's
    run.py --quick    20 Models, 1 round: about two minutes

What is measured is whole `ansible-playbook` runs, without waiting for models: first where none of them exists, then
again where all are as wanted. Both need a cluster with Krypton's definition: that of K8S_AUTH_KUBECONFIG, else a kind
cluster of its own, which is removed at the end. The Models are in a namespace of their own; controllers of the cluster
that act on them share its cores with the measurement.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.metadata
import json
import os
import resource
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from kubernetes import client, config

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "benchmarks"), str(ROOT / "benchmarks/controller")]

from outcome import Goal, Outcome, finish  # noqa: E402
from plane import cluster  # noqa: E402

NAMESPACE = "bench-ansible"
GROUP, VERSION, PLURAL = "krypton.ai", "v1alpha1", "models"
GOAL_SECONDS = 5.0
"""In which 100 Models are to be applied by one task."""
PATIENCE = 900

CONTESTANTS: dict[str, list[dict[str, Any]]] = {
    # What every ansible-playbook costs before its first task does anything.
    "no task": [{"name": "Do nothing", "ansible.builtin.meta": "noop"}],
    "slipway.inference.model": [
        {"name": "Apply", "slipway.inference.model": {"models": "{{ models }}", "wait": False}},
    ],
    "k8s with a list": [
        {
            "name": "Apply",
            "kubernetes.core.k8s": {
                "resource_definition": "{{ models }}",
                "apply": True,
                "server_side_apply": {"field_manager": "bench"},
            },
        },
    ],
    "k8s in a loop": [
        {
            "name": "Apply",
            "kubernetes.core.k8s": {
                "resource_definition": "{{ item }}",
                "apply": True,
                "server_side_apply": {"field_manager": "bench"},
            },
            "loop": "{{ models }}",
            "loop_control": {"label": "{{ item.metadata.name }}"},
        },
    ],
}
OURS = "slipway.inference.model"


class Cluster:
    """The API server that is measured against."""

    def __init__(self, kubeconfig: str) -> None:
        self.kubeconfig = kubeconfig
        self._api = config.new_client_from_config(kubeconfig)
        self._models = client.CustomObjectsApi(self._api)

    def prepare(self) -> None:
        """Makes the namespace, and the definition where it is missing."""
        definition = yaml.safe_load((ROOT / "roles/crds/files/krypton.ai_models.yaml").read_text())
        namespace = {"metadata": {"name": NAMESPACE}}
        for make, body in (
            (client.ApiextensionsV1Api(self._api).create_custom_resource_definition, definition),
            (client.CoreV1Api(self._api).create_namespace, namespace),
        ):
            with contextlib.suppress(client.ApiException):
                make(body)
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            with contextlib.suppress(client.ApiException):
                self.count()
                return
            time.sleep(0.5)
        raise SystemExit("the cluster does not serve Krypton's definition")

    def count(self) -> int:
        return len(self._models.list_namespaced_custom_object(GROUP, VERSION, NAMESPACE, PLURAL)["items"])

    def clear(self) -> None:
        """Removes the Models."""
        self._models.delete_collection_namespaced_custom_object(GROUP, VERSION, NAMESPACE, PLURAL)
        deadline = time.monotonic() + 120
        while self.count():
            if time.monotonic() > deadline:
                raise SystemExit("the Models of the round before do not go")
            time.sleep(0.2)

    def remove(self) -> None:
        with contextlib.suppress(client.ApiException):
            client.CoreV1Api(self._api).delete_namespace(NAMESPACE)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


@contextlib.contextmanager
def reachable() -> Iterator[Cluster]:
    """The cluster that the environment names, else one that is made for the time being."""
    given = os.environ.get("K8S_AUTH_KUBECONFIG", "")
    with contextlib.ExitStack() as stack:
        bench_cluster = Cluster(given or str(stack.enter_context(cluster(free_port()))))
        bench_cluster.prepare()
        stack.callback(bench_cluster.remove)
        yield bench_cluster


def manifests(number: int) -> list[dict[str, Any]]:
    return [
        {
            "apiVersion": f"{GROUP}/{VERSION}",
            "kind": "Model",
            "metadata": {"name": f"model-{index:03}", "namespace": NAMESPACE},
            "spec": {
                "source": {"huggingface": "org/repo", "file": f"weights-{index}.gguf"},
                "args": ["--ctx-size", "2048"],
                "resources": {"requests": {"cpu": "1m", "memory": "1Mi"}},
            },
        }
        for index in range(number)
    ]


def play(tasks: list[dict[str, Any]], models: list[dict[str, Any]]) -> list[dict[str, Any]]:
    interpreter = {"ansible_python_interpreter": sys.executable}
    start = {"hosts": "localhost", "connection": "local", "gather_facts": False}
    return [{**start, "vars": {**interpreter, "models": models}, "tasks": tasks}]


def measure(tasks: list[dict[str, Any]], models: list[dict[str, Any]], kubeconfig: str) -> tuple[float, float]:
    """Seconds, and CPU seconds, of one run of ansible-playbook and all that it starts."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "play.json"
        path.write_text(json.dumps(play(tasks, models)))
        environment = {**os.environ, "K8S_AUTH_KUBECONFIG": kubeconfig, "ANSIBLE_NOCOLOR": "1"}
        environment.setdefault("ANSIBLE_COLLECTIONS_PATH", str(ROOT / ".venv/collections"))
        before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
        command = ["ansible-playbook", "-i", "localhost,", str(path)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=PATIENCE, check=False)
        seconds, after = time.monotonic() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        raise SystemExit(f"ansible-playbook failed:\n{done.stdout[-3000:]}{done.stderr[-3000:]}")
    return seconds, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    quick = parser.parse_args().quick
    models, rounds = manifests(20 if quick else 100), 1 if quick else 3
    measured: dict[str, dict[str, list[tuple[float, float]]]] = {
        name: {"first": [], "again": []} for name in CONTESTANTS
    }
    with reachable() as target:
        # The first run of a machine compiles and caches; it counts for nobody.
        measure(CONTESTANTS[OURS], models[:1], target.kubeconfig)
        names = list(CONTESTANTS)
        for turn in range(rounds):
            for name in [*names[turn % len(names) :], *names[: turn % len(names)]]:
                target.clear()
                for when in ("first", "again"):
                    measured[name][when].append(measure(CONTESTANTS[name], models, target.kubeconfig))
                if name != "no task" and target.count() != len(models):
                    raise SystemExit(f"{name} did not make all Models")
                print(f"round {turn + 1}: {name}: {measured[name]['first'][-1][0]:.1f} s", flush=True)
        target.clear()
    return report(measured, len(models), rounds, quick=quick)


def report(measured: dict[str, dict[str, list[tuple[float, float]]]], models: int, rounds: int, *, quick: bool) -> int:
    """Prints the medians and their ratios to ours; 1 when the goal was missed."""
    medians = {
        name: {
            f"{when} {what}": statistics.median(run[index] for run in runs)
            for when, runs in runs_by_time.items()
            for index, what in enumerate(("s", "CPU s"))
        }
        for name, runs_by_time in measured.items()
    }
    columns = list(medians[OURS])
    print(f"\n{models} Models, median of {rounds} round(s), {os.cpu_count()} cores")
    print(f"{'':26}" + "".join(f"{column:>20}" for column in columns))
    for name, row in medians.items():
        cells = [f"{row[column]:.2f} ({row[column] / medians[OURS][column]:.1f}x)" for column in columns]
        print(f"{name:26}" + "".join(f"{cell:>20}" for cell in cells))
    goal = Goal(f"{models} Models applied by one task", medians[OURS]["first s"], GOAL_SECONDS, "s")
    figures = {"models": models, "rounds": rounds, "medians": medians}
    return finish(Outcome("ansible", quick, [goal], figures, measured, versions()))


def versions() -> dict[str, str]:
    core = ROOT / ".venv/collections/ansible_collections/kubernetes/core/MANIFEST.json"
    pinned = {"kubernetes.core": json.loads(core.read_text())["collection_info"]["version"]} if core.exists() else {}
    return {name: importlib.metadata.version(name) for name in ("ansible-core", "kubernetes")} | pinned


if __name__ == "__main__":
    sys.exit(main())
