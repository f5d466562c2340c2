"""What a plan and a status of LLMKube's Model cost among 1, 100, 1,000 and 5,000 Models of one namespace.

    PYTHONPATH=src python benchmarks/controller/planning.py

Everything is in memory: the stores are those of the controller, with the indexes that the API declares. Each Model has
a source of its own, one InferenceService, a record of weights that are complete, and one pod that reads them. The
milliseconds are a processor's, for one Model that is resolved once as in a reconciliation, in the best of several
rounds. What counts is their ratio.
"""

from __future__ import annotations

import sys
import time
from typing import Any

from slipway.apis.llmkube import MODELS, names
from slipway.apis.llmkube.models import cache
from slipway.apis.llmkube.models.cache import Record, encode_record
from slipway.apis.llmkube.models.spec import key_of, place
from slipway.apis.llmkube.types.service import KIND as INFERENCE_SERVICE
from slipway.artifacts.documents.report import Report
from slipway.kube.caches.store import Change, Store, Stores
from slipway.kube.objects import PERSISTENT_VOLUME_CLAIM, POD, Key, Object
from slipway.serving.contract.api import USES, World
from slipway.serving.contract.settings import Settings

NUMBERS = (1, 100, 1000, 5000)
MOST = 2.0
"""Times what it costs alone."""
SETTINGS = Settings(system_namespace="system")
NOW = 1_795_252_000.0
CLAIM: Object = {
    "kind": "PersistentVolumeClaim",
    "metadata": {"name": names.CLAIM, "namespace": "models", "uid": "claim", "resourceVersion": "1"},
    "status": {"phase": "Bound"},
}


class Known(Stores):
    """The stores of what Models watch."""

    def __init__(self) -> None:
        watches = [watch for watch in MODELS.watches(SETTINGS) if watch.listed and not watch.owned]
        super().__init__({watch.kind: Store(watch.indexes) for watch in watches})

    def pods_of(self, _owner: Any, index: str, value: str) -> list[Object]:
        return list(self.list(POD, index, value))


def model(number: int) -> Object:
    metadata = {
        "name": f"m{number}",
        "namespace": "models",
        "uid": f"uid-{number}",
        "generation": 1,
        "resourceVersion": "1",
        "creationTimestamp": "2026-11-21T09:00:00Z",
        "finalizers": [names.FINALIZER],
    }
    spec = {"source": f"https://files.example/{number}.gguf", "format": "gguf"}
    report = Report(file=f"{number}.gguf", size=668788096, sha256="ab" * 32, etag="1")
    record = Record(loaded="2026-11-21T09:00:00Z", by=metadata["name"], report=report)
    folder = place("models", key_of({"spec": spec}))
    return {"metadata": metadata | {"annotations": {folder.annotation: encode_record(record, CLAIM)}}, "spec": spec}


def service(number: int) -> Object:
    metadata = {"name": f"s{number}", "namespace": "models", "uid": f"s-{number}", "resourceVersion": "1"}
    return {"kind": "InferenceService", "metadata": metadata, "spec": {"modelRef": f"m{number}"}}


def pod(number: int, folder: str) -> Object:
    metadata = {"name": f"p{number}", "namespace": "models", "uid": f"p-{number}", "resourceVersion": "1"}
    return {"metadata": metadata | {"annotations": {USES: f"{folder}=1"}}, "status": {"phase": "Running"}}


def filled(number: int) -> Known:
    listers = Known()
    listers.store(PERSISTENT_VOLUME_CLAIM).put(CLAIM)
    for one in range(number):
        resource = model(one)
        listers.store(MODELS.resource.kind).put(resource)
        listers.store(INFERENCE_SERVICE).put(service(one))
        listers.store(POD).put(pod(one, key_of(resource)))
    return listers


def pass_over(listers: Known, name: str) -> None:
    """What a reconciliation of a Model computes."""
    api = MODELS
    resource = listers.get(api.resource.kind, Key("models", name))
    assert resource is not None
    world = World(
        resource=resource,
        children={},
        pods=(),
        routed=(),
        settings=SETTINGS,
        now=NOW,
        listers=listers,
        controller_key="k",
    )
    view = api.resolve(world)
    assert api.plan(view).children == ()
    assert api.status(view, None).status["phase"] == "Ready"


def milliseconds(listers: Known, number: int, rounds: int = 9, passes: int = 200) -> float:
    """The best round's mean."""
    best = float("inf")
    for _unused in range(rounds):
        begun = time.process_time()
        for one in range(passes):
            pass_over(listers, f"m{one * 7919 % number}")
        best = min(best, (time.process_time() - begun) / passes)
    return best * 1000


def woken(listers: Known, number: int) -> tuple[int, int]:
    """How many Models come back for a record that another Model is handed, and for one that leaves the claim."""
    api = MODELS
    by_kind = {watch.kind: watch for watch in api.watches(SETTINGS) if watch.listed and not watch.owned}
    old = model(number - 1)
    new = {**old, "metadata": {**old["metadata"], "annotations": {}}}
    noted = {**CLAIM, "metadata": {**CLAIM["metadata"], "annotations": dict(old["metadata"]["annotations"])}}
    return (
        len(set(by_kind[api.resource.kind].enqueue(Change(old, new), listers))),
        len(set(by_kind[PERSISTENT_VOLUME_CLAIM].enqueue(Change(noted, CLAIM), listers))),
    )


def main() -> int:
    alone, failed = 0.0, False
    print(f"{'Models':>7}  {'plan + status':>13}  {'ratio':>6}  enqueued by a record")
    for number in NUMBERS:
        cache._remembered.cache_clear()  # noqa: SLF001 - what is read of records must not be from before
        listers = filled(number)
        took = milliseconds(listers, number)
        alone = alone or took
        failed |= took > MOST * alone
        print(f"{number:>7}  {took:>10.3f} ms  {took / alone:>6.2f}  {woken(listers, number)}")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
