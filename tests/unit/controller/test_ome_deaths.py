"""OME's models come onto nodes and go from them though the controller dies around a write, or a node leaves."""

from __future__ import annotations

import asyncio
import time
from functools import partial
from typing import Any

import pytest

from slipway.apis.ome import names
from slipway.apis.ome.models import status as model_status
from slipway.apis.ome.models import storage
from slipway.apis.ome.models.table import MODELS
from slipway.artifacts.documents.report import Report, encode_report
from slipway.artifacts.facts.config import ModelFacts
from slipway.kube.objects import JOB, NODE, POD
from slipway.kube.schemas.conditions import timestamp
from slipway.serving.contract.api import USES
from slipway.serving.contract.settings import Settings
from slipway.weights.nodes import RECORDS, node_of

from .conftest import changes
from .deaths import Death, Process, assert_only_writes, moments

SETTINGS = Settings(system_namespace="system")
KIND = names.CLUSTER_BASE_MODEL
LABEL = names.node_label(KIND, "", "tiny")
URI, OTHER, PATH = "hf://acme/tiny", "hf://acme/tiny@v2", "/raid/models/tiny"
GPU = {"gpu": "yes"}
WRITES = {
    "PATCH clusterbasemodels": 3,
    "PATCH jobs": 8,
    "PATCH nodes": 16,
    "PATCH clusterbasemodels/status": 13,
    "DELETE jobs": 8,
}


class Nodes:
    """Simulates Kubernetes: Jobs complete if their node exists, and objects without an owner are deleted."""

    def __init__(self, server: Any, cluster: Any) -> None:
        self.server, self.cluster = server, cluster
        self.disks: dict[str, dict[str, str]] = {}
        self.held: set[str] = set()
        """Nodes on which nothing gets on just now."""
        self.most = 0
        """Most Jobs of one node at a time."""

    async def join(self, name: str, **labels: str) -> None:
        self.disks[name] = {}
        status = {"nodeInfo": {"bootID": "b1"}, "conditions": [{"type": "Ready", "status": "True"}]}
        await self.server.put(
            NODE.path(name=name), kind="Node", apiVersion="v1", metadata={"labels": labels}, status=status
        )

    async def leave(self, name: str) -> None:
        del self.disks[name]
        await self.server.remove(NODE.path(name=name))

    async def change(self, name: str, *, boot: str = "", **labels: str) -> None:
        node = self.server.objects[NODE.path(name=name)]
        metadata = {**node["metadata"], "labels": node["metadata"]["labels"] | labels}
        status = node["status"] | ({"nodeInfo": {"bootID": boot}} if boot else {})
        await self.server.store(NODE.path(name=name), {**node, "metadata": metadata, "status": status})

    def says(self) -> dict[str, str]:
        """Node -> its label for the model."""
        states = {name: self._metadata(name)["labels"].get(LABEL, "") for name in self.disks}
        return {name: state for name, state in states.items() if state}

    def forgot(self) -> bool:
        """Whether no node says anything of any model."""
        metadata = (self._metadata(name) for name in self.disks)
        return not any(key.startswith((RECORDS, names.NODE_LABEL)) for one in metadata for key in _marks(one))

    def _metadata(self, name: str) -> dict[str, Any]:
        metadata: dict[str, Any] = self.server.objects[NODE.path(name=name)]["metadata"]
        return metadata

    async def run(self) -> None:
        while True:
            await asyncio.sleep(0.02)
            uids = {obj["metadata"]["uid"] for obj in self.server.objects.values()}
            jobs = [
                node_of(obj) for obj in self.server.objects.values() if obj["kind"] == "Job" and "status" not in obj
            ]
            self.most = max([self.most, *map(jobs.count, set(jobs))])
            for path, obj in list(self.server.objects.items()):
                metadata = obj["metadata"]
                owners = {owner["uid"] for owner in metadata.get("ownerReferences") or ()}
                gone = "deletionTimestamp" in metadata and not metadata.get("finalizers")
                if path in self.server.objects and (gone or (owners and not uids & owners)):
                    await self.server.remove(path)
                elif obj["kind"] == "Job" and "status" not in obj:
                    await self._works(path, obj)

    async def _works(self, path: str, job: dict[str, Any]) -> None:
        node = node_of(job)
        if node not in self.disks or node in self.held:
            return
        words = job["spec"]["template"]["spec"]["containers"][0]["args"]
        if words[1] == "evict":
            self.disks[node].pop(words[2], None)
        else:
            self.disks[node][words[3]] = words[2]
        name, uid, namespace = job["metadata"]["name"], job["metadata"]["uid"], job["metadata"]["namespace"]
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": uid, "controller": True}
        report = Report(file="a.safetensors", size=5, revision="abc", model=ModelFacts(model_type="llama"))
        message = encode_report(report).decode() if words[1] == "stage" else ""
        container = {"name": "loader", "restartCount": 0, "state": {"terminated": {"exitCode": 0, "message": message}}}
        labels = job["spec"]["template"]["metadata"]["labels"]
        status = {"phase": "Succeeded", "containerStatuses": [container]}
        place = POD.path(namespace, f"{name}-{uid}"[-60:])
        metadata = {"labels": labels, "ownerReferences": [owner]}
        await self.server.put(place, kind="Pod", metadata=metadata, status=status)
        over = {"type": "Complete", "status": "True", "lastTransitionTime": timestamp(time.time())}
        if path in self.server.objects:
            await self.server.store(path, {**self.server.objects[path], "status": {"conditions": [over]}})


def _marks(metadata: dict[str, Any]) -> list[str]:
    return [*metadata.get("labels", {}), *metadata.get("annotations", {})]


class Life:
    """Short words for what people do, and for what they see."""

    process: Process

    def __init__(self, server: Any, cluster: Any, eventually: Any) -> None:
        self.server, self.eventually = server, eventually
        self.nodes = Nodes(server, cluster)

    def at_rest(self) -> bool:
        return self.process.at_rest(self.server)

    async def create(self, name: str = "tiny", uri: str = URI, **storage: Any) -> None:
        spec = {"storage": {"storageUri": uri, "path": f"/raid/models/{name}"} | storage}
        await self.server.put(KIND.path(name=name), kind=KIND.kind, apiVersion=KIND.api_version, spec=spec)

    async def change(self, **storage: Any) -> None:
        model = self.model()
        spec = model["spec"] | {"storage": model["spec"]["storage"] | storage}
        await self.server.store(KIND.path(name="tiny"), {**model, "spec": spec})

    async def delete(self, name: str = "tiny", ago: float = 0.0) -> None:
        model = self.model(name)
        metadata = {**model["metadata"], "deletionTimestamp": timestamp(time.time() - ago)}
        await self.server.store(KIND.path(name=name), {**model, "metadata": metadata})

    def model(self, name: str = "tiny") -> dict[str, Any]:
        model: dict[str, Any] = self.server.objects[KIND.path(name=name)]
        return model

    def status(self, name: str = "tiny") -> dict[str, Any]:
        status: dict[str, Any] = self.server.objects.get(KIND.path(name=name), {}).get("status", {})
        return status

    def ready(self, *nodes: str) -> bool:
        quiet = not any(obj["kind"] == JOB.kind for obj in self.server.objects.values())
        return (
            quiet and self.status().get("nodesReady") == [*nodes] and self.nodes.says() == dict.fromkeys(nodes, "Ready")
        )

    def gone(self, name: str = "tiny") -> bool:
        return KIND.path(name=name) not in self.server.objects


async def whole(life: Life) -> None:
    """A model comes onto two of three nodes, turns to another revision, follows a label and a restart, and goes."""
    nodes, eventually = life.nodes, life.eventually
    for name, labels in (("a", GPU), ("b", GPU), ("c", {})):
        await nodes.join(name, **labels)
    await life.create(nodeSelector=GPU)
    await eventually(lambda: life.ready("a", "b"), 60)
    assert life.model()["spec"]["modelType"] == "llama"
    await life.change(storageUri=OTHER)
    await eventually(lambda: life.ready("a", "b") and nodes.disks["a"] == nodes.disks["b"] == {PATH: OTHER}, 60)
    await nodes.change("a", gpu="no")
    await nodes.change("c", **GPU)
    await eventually(lambda: life.ready("b", "c") and not nodes.disks["a"], 60)
    nodes.disks["b"].clear()
    await nodes.change("b", boot="b2")
    await eventually(lambda: life.ready("b", "c") and nodes.disks["b"] == {PATH: OTHER}, 60)
    await nodes.leave("c")
    await eventually(lambda: life.ready("b"), 60)
    await life.delete()
    await eventually(life.gone, 60)
    assert nodes.disks == {"a": {}, "b": {}}
    assert nodes.forgot()
    await eventually(lambda: {obj["kind"] for obj in life.server.objects.values()} <= {"Node", "Event"}, 60)


async def lived(life: Life, client: Any, session: Any, start: Any, tale: Any, death: Any = None) -> None:
    process = life.process = Process(client, session, MODELS, SETTINGS)
    dies = death(life.server, process) if death else None
    if dies:
        life.server.faults.append(dies)
    start(life.nodes.run())
    process.start()
    try:
        await tale(life)
    finally:
        process.end()
    if dies:
        dies.assert_died()


@pytest.fixture
def life(server: Any, cluster: Any, eventually: Any) -> Life:
    return Life(server, cluster, eventually)


@pytest.mark.parametrize(("write", "number", "after"), moments(WRITES))
async def test_a_life_ends_well_though_the_controller_dies_around_a_write(
    life, client, session, start, write, number, after
):
    await lived(life, client, session, start, whole, partial(Death, write=write, number=number, after=after))


async def test_all_writes_of_a_life_are_tried(life, client, session, start):
    await lived(life, client, session, start, whole)
    assert_only_writes(life.server, WRITES)


async def test_a_node_that_is_deleted_while_it_loads_blocks_nothing(life, client, session, start):
    async def tale(life: Life) -> None:
        await life.nodes.join("a")
        await life.nodes.join("b")
        life.nodes.held = {"b"}
        await life.create()
        await life.eventually(lambda: life.nodes.says() == {"a": "Ready", "b": "Updating"})
        await life.nodes.leave("b")
        await life.eventually(lambda: life.ready("a"))

    await lived(life, client, session, start, tale)


async def test_a_model_goes_though_a_node_is_lost(life, client, session, start):
    async def tale(life: Life) -> None:
        await life.nodes.join("a")
        await life.nodes.join("lost")
        await life.create()
        await life.eventually(lambda: life.ready("a", "lost"))
        life.nodes.held = {"lost"}
        await life.delete()
        await life.eventually(lambda: not life.nodes.disks["a"])
        assert not life.gone()
        await life.delete(ago=601)
        await life.eventually(life.gone)
        assert life.nodes.forgot()

    await lived(life, client, session, start, tale)


async def test_files_go_as_soon_as_the_last_pod_that_read_them_is_gone(life, client, session, start, monkeypatch):
    """Not only when the model is looked at the next time."""
    monkeypatch.setattr(model_status, "TURN_SECONDS", 3600.0)

    async def tale(life: Life) -> None:
        await life.nodes.join("a")
        await life.create()
        await life.eventually(lambda: life.ready("a"))
        pods = {name: POD.path("models", name) for name in ("one", "other")}
        spec = {"containers": [], "volumes": [{"name": "x", "hostPath": {"path": PATH}}]}
        metadata = {
            "labels": {"app.kubernetes.io/managed-by": "slipway"},
            "annotations": {USES: storage.use_of(PATH)},
            "deletionTimestamp": timestamp(time.time()),
            "finalizers": ["example.com/held"],
        }
        for path in pods.values():
            await life.server.put(path, kind="Pod", metadata=metadata, spec=spec, status={"phase": "Running"})
        await life.delete()
        await life.eventually(lambda: "InUse" in str(life.status()))
        ended = {**life.server.objects[pods["one"]], "status": {"phase": "Succeeded"}}
        await life.server.store(pods["one"], ended)
        await life.server.remove(pods["other"])
        await life.eventually(life.gone)
        assert life.nodes.disks == {"a": {}}

    await lived(life, client, session, start, tale)


async def test_many_models_take_turns_on_each_node(life, client, session, start):
    async def tale(life: Life) -> None:
        life.nodes.held = {"a", "b", "c"}
        for name in ("a", "b", "c"):
            await life.nodes.join(name)
        for number in range(8):
            await life.create(f"m{number}", f"hf://acme/m{number}")
        await life.eventually(lambda: life.nodes.most == 3)
        for number in range(8):
            await life.create(f"m{number}", f"hf://acme/m{number}@v2")  # Reconciling gives no other model a turn.
        await life.eventually(
            lambda: all(life.status(f"m{number}").get("observedGeneration") == 2 for number in range(8))
        )
        life.nodes.held = set()
        await life.eventually(
            lambda: all(len(life.status(f"m{number}").get("nodesReady", ())) == 3 for number in range(8)), 60
        )
        assert life.nodes.most == 3

    await lived(life, client, session, start, tale)


async def test_a_heartbeat_of_a_node_costs_nothing(life, client, session, start):
    async def tale(life: Life) -> None:
        await life.nodes.join("a")
        await life.create()
        await life.eventually(lambda: life.ready("a"))
        await life.eventually(life.at_rest)
        before = changes(life.server)
        for _unused in range(5):
            await life.nodes.change("a")
        await life.eventually(life.at_rest)
        assert changes(life.server) == before

    await lived(life, client, session, start, tale)
