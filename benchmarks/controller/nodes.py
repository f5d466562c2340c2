"""What a ClusterBaseModel of OME costs among 200 that 10, 100 and 1,000 nodes are to have.

    PYTHONPATH=src python benchmarks/controller/nodes.py

Everything is in memory: the stores are those of the controller, with what the API keeps of nodes. Each model is for
every node, by an affinity. At rest each node has a record of each model; before, none has any, and the youngest model
is looked at, which waits for all others. The milliseconds are a processor's. What counts is what a node costs, which
is to stay the same, and that a heartbeat costs next to nothing.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable
from typing import Any

from slipway.apis.ome import names
from slipway.apis.ome.models import storage
from slipway.apis.ome.models.resolve import ModelView
from slipway.apis.ome.models.table import MODELS
from slipway.kube.caches.store import Change, Store, Stores
from slipway.kube.objects import NODE, POD, Key, Object
from slipway.serving.contract.api import World
from slipway.serving.contract.settings import Settings
from slipway.serving.contract.table import Table
from slipway.weights import nodes
from slipway.weights.nodes import Record

NUMBERS, WEIGHTS = (10, 100, 1000), 200
SETTINGS, API = Settings(system_namespace="system"), MODELS[1]
GPUS = {"key": "gpu", "operator": "In", "values": ["h100", "h200"]}
TERMS = {"nodeSelectorTerms": [{"matchExpressions": [GPUS]}]}


class Known(Stores):
    """The stores of what models watch."""

    def __init__(self, api: Table[ModelView] = API) -> None:
        indexes: dict[Any, dict[str, Any]] = {}
        for watch in api.watches(SETTINGS):
            indexes.setdefault(watch.kind, {}).update(watch.indexes)
        super().__init__({kind: Store(index) for kind, index in indexes.items()})

    def pods_of(self, _owner: Any, index: str, value: str) -> list[Object]:
        return list(self.list(POD, index, value))


def model(number: int) -> Object:
    metadata = {
        "name": f"m{number:03}",
        "namespace": "",
        "uid": f"uid-{number}",
        "generation": 1,
        "resourceVersion": "1",
        "creationTimestamp": "2026-11-21T09:00:00Z",
    }
    placed = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": TERMS}}
    source = {"storageUri": f"hf://acme/m{number}", "path": f"/raid/models/acme/m{number}"}
    return {"kind": names.CLUSTER_BASE_MODEL.kind, "metadata": metadata, "spec": {"storage": source | placed}}


def marks(models: Iterable[Object]) -> tuple[dict[str, str], dict[str, str]]:
    """Labels and annotations of a node that has all of these models."""
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    bare = nodes.Node(name="n", uid="n", boot="b", ready=True, labels={}, records={})
    for one in models:
        path, digest = one["spec"]["storage"]["path"], storage.parse_storage(one, SETTINGS).identity
        record = Record(state="Ready", of=one["metadata"]["uid"], digest=digest, path=path, boot="b", size=10**11)
        patch = nodes.build_patch(bare, storage.node_label(one), record)
        labels |= {name: text for name, text in patch.labels.items() if text}
        annotations |= {name: text for name, text in patch.annotations.items() if text}
    return labels, annotations


def node(number: int, labels: dict[str, str], annotations: dict[str, str]) -> Object:
    usual = {"gpu": "h100", **{f"example.com/label-{one}": "some-value" for one in range(30)}}
    metadata = {"name": f"n{number:04}", "uid": f"node-{number}", "resourceVersion": "1"}
    ready = {"type": "Ready", "status": "True"}
    status = {"nodeInfo": {"bootID": "b"}, "conditions": [ready]}
    return nodes.trim_node(
        {"metadata": metadata | {"labels": usual | labels, "annotations": annotations}, "status": status}
    )


def filled(number: int, *, loaded: bool) -> Known:
    listers, models = Known(), [model(one) for one in range(WEIGHTS)]
    model_marks = marks(models) if loaded else ({}, {})
    for one in models:
        listers.store(names.CLUSTER_BASE_MODEL).put(one)
    for one in range(number):
        listers.store(NODE).put(node(one, *model_marks))
    return listers


def pass_over(listers: Known) -> None:
    """What a reconciliation of the youngest model computes."""
    resource = listers.get(names.CLUSTER_BASE_MODEL, Key("", f"m{WEIGHTS - 1:03}"))
    assert resource is not None
    world = World(resource=resource, children={}, pods=(), routed=(), settings=SETTINGS, now=1.8e9, listers=listers)
    view = API.resolve(world)
    assert API.plan(view).children == ()
    API.status(view, None)


def milliseconds(work: Callable[[], object], rounds: int = 5) -> float:
    """The best round."""
    best = float("inf")
    for _unused in range(rounds):
        begun = time.process_time()
        work()
        best = min(best, time.process_time() - begun)
    return best * 1000


def enqueued(listers: Known, change: Change) -> Callable[[], list[Key]]:
    (watch,) = [one for one in API.watches(SETTINGS) if one.kind == NODE]
    return lambda: list(watch.enqueue(change, listers))


def main() -> int:
    print(f"{'nodes':>6}  {'at rest':>11}  {'waiting':>11}  {'heartbeat':>12}  {'a node comes':>12}")
    for number in NUMBERS:
        rest, waiting = filled(number, loaded=True), filled(number, loaded=False)
        old = rest.list(NODE)[0]
        beat = {**old, "metadata": {**old["metadata"], "resourceVersion": "2"}}
        assert enqueued(rest, Change(old, beat))() == []
        row = (
            f"{milliseconds(lambda listers=rest: pass_over(listers)):>8.2f} ms",
            f"{milliseconds(lambda listers=waiting: pass_over(listers)):>8.2f} ms",
            f"{milliseconds(enqueued(rest, Change(old, beat))) * 1000:>9.0f} us",
            f"{milliseconds(enqueued(waiting, Change(None, waiting.list(NODE)[0]))):>9.2f} ms",
        )
        print(f"{number:>6}  {'  '.join(row)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
