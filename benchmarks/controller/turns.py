"""The cost of one look at a BaseModel of OME that waits for its turn on 20 nodes, among models of other authors.

    PYTHONPATH=src python benchmarks/controller/turns.py [--before DIRECTORY]

DIRECTORY is a checkout of another commit: its code is measured in the same run, alternately. Everything is in memory.
The other authors' models are older. They are on claims and need no node, wait in one namespace, or wait in a hundred.
"load" is a look while a turn is free and the model is behind others, "full" while all turns are taken, and "node" is
the list of models to reconcile when a node's records change. A look resolves, plans and computes the status, in
milliseconds of a processor, the best of several rounds. The numbers must not grow with the number of models.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from functools import partial
from pathlib import Path

from nodes import Known, milliseconds, node

from slipway.apis.ome import names
from slipway.apis.ome.models.table import MODELS
from slipway.kube.caches.store import Change
from slipway.kube.objects import JOB, NODE, Key, Object
from slipway.serving.contract.api import World
from slipway.serving.contract.settings import Settings

COUNTS, NODES, AUTHORS = (10, 100, 2000), 20, 100
MOST_MILLISECONDS = 5.0
SETTINGS, API = Settings(system_namespace="system"), MODELS[0]
OTHERS = ("on claims", "one namespace", "many namespaces")
NOW, ROUNDS = 1.8e9, 3
SOURCE = Path(__file__).parents[2]


def model(name: str, namespace: str, uri: str, number: int) -> Object:
    hours, seconds = divmod(number, 3600)
    metadata = {
        "name": name,
        "namespace": namespace,
        "uid": f"uid-{name}",
        "generation": 1,
        "resourceVersion": "1",
        "creationTimestamp": f"2026-11-21T{9 + hours:02}:{seconds // 60:02}:{seconds % 60:02}Z",
    }
    return {"kind": names.BASE_MODEL.kind, "metadata": metadata, "spec": {"storage": {"storageUri": uri}}}


def loading(number: int, where: str, namespace: str) -> Object:
    """A Job that loads another model of this namespace onto a node, without an end."""
    owner = {"apiVersion": "ome.io/v1beta1", "kind": "BaseModel", "name": "a", "uid": f"a-{number}", "controller": True}
    metadata = {"name": f"a-{number}-{where}", "namespace": namespace, "uid": f"job-{number}-{where}"}
    metadata |= {"creationTimestamp": "2026-11-21T08:00:00Z", "ownerReferences": [owner], "resourceVersion": "1"}
    terms = {"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [where]}]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    pod = {"affinity": affinity, "containers": [{"args": ["loader", "stage", "hf://a/a", "/mnt/a"]}]}
    return {"kind": "Job", "metadata": metadata, "spec": {"template": {"spec": pod}}, "status": {"active": 1}}


def filled(others: str, count: int, loads: int) -> Known:
    stores = Known(API)
    for number in range(count):
        namespace = f"author-{number % AUTHORS}" if others == "many namespaces" else "author-0"
        uri = f"pvc://claim/{number}" if others == "on claims" else f"hf://acme/m{number}"
        stores.store(names.BASE_MODEL).put(model(f"m{number}", namespace, uri, number))
    stores.store(names.BASE_MODEL).put(model("mine", "chat", "hf://acme/mine", count))
    for number in range(NODES):
        stores.store(NODE).put(node(number, {}, {}))
        for one in range(loads):
            stores.store(JOB).put(loading(one, f"n{number:04}", f"busy-{one}"))
    return stores


def look(stores: Known) -> None:
    resource = stores.get(names.BASE_MODEL, Key("chat", "mine"))
    assert resource is not None
    world = World(resource=resource, children={}, pods=(), routed=(), settings=SETTINGS, now=NOW, listers=stores)
    view = API.resolve(world)
    API.plan(view)
    API.status(view, None)


def woken(stores: Known) -> None:
    (watch,) = [one for one in API.watches(SETTINGS) if one.kind == NODE]
    old = stores.list(NODE)[0]
    noted = {"annotations": {"weights.slipway.inference/author-0.basemodel.m1": "{}"}}
    list(watch.enqueue(Change(old, {**old, "metadata": {**old["metadata"], **noted}}), stores))


def measured() -> dict[str, list[float]]:
    """Other authors' models, and how many -> milliseconds of "load", "full" and "node"."""
    rows = {}
    for others in OTHERS:
        for count in COUNTS:
            free, full = filled(others, count, 1), filled(others, count, 3)
            rows[f"{others:<16} {count:>6}"] = [
                milliseconds(partial(look, free), ROUNDS),
                milliseconds(partial(look, full), ROUNDS),
                milliseconds(partial(woken, free), ROUNDS),
            ]
    return rows


def process(checkout: Path) -> dict[str, list[float]]:
    """``measured`` with the code of a checkout."""
    environment = {**os.environ, "PYTHONPATH": str(checkout / "src")}
    command = [sys.executable, __file__, "--json"]
    output = subprocess.run(command, env=environment, check=True, capture_output=True).stdout
    return {name: [float(one) for one in row] for name, row in json.loads(output).items()}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", type=Path)
    parser.add_argument("--json", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.json:
        print(json.dumps(measured()))
        return 0
    rounds = [[process(one) for one in filter(None, (options.before, SOURCE))] for _unused in range(2)]
    columns = (["before: load", "full", "node"] if options.before else []) + ["now: load", "full", "node"]
    print(f"{'other models':<23}  {'  '.join(f'{one:>12}' for one in columns)}")
    worst = 0.0
    for name in rounds[0][-1]:
        best = [
            [min(two) for two in zip(*(one[which][name] for one in rounds), strict=True)]
            for which in range(len(rounds[0]))
        ]
        print(f"{name:<23}  {'  '.join(f'{one:>9.2f} ms' for row in best for one in row)}")
        worst = max(worst, *best[-1])
    return int(worst > MOST_MILLISECONDS)


if __name__ == "__main__":
    sys.exit(main())
