"""A Model of Deckhouse is published, delivered and deleted though the controller dies before or after any of its
writes."""

from __future__ import annotations

import time
from typing import Any

import pytest

from slipway.apis.deckhouse import DELIVERY, names
from slipway.apis.deckhouse.api import MODELS
from slipway.artifacts.publication import written
from slipway.kube.conditions import timestamp
from slipway.kube.objects import DEPLOYMENT, JOB, PERSISTENT_VOLUME_CLAIM, Kind
from slipway.serving.settings import Settings

from ..apis.deckhouse.cluster import DIGEST, HUB, OWN, told
from .deaths import Death, Node, Process

SETTINGS = Settings(system_namespace="system", apis={"deckhouse": OWN})
MODEL, WORKLOAD = names.MODEL.path("models", "tiny"), DEPLOYMENT.path("models", "chat")
MOST_WRITES = 24
"""More than a life takes."""


class Registry(Node):
    """A node whose loader publishes to a registry, pulls from it, and takes out of it."""

    def __init__(self, server: Any) -> None:
        super().__init__(server)
        self.repositories: set[str] = set()
        self.publications: list[str] = []
        self.pulls: list[str] = []

    def work(self, words: list[str]) -> str:
        if words[1] == "publish":
            self.publications.append(words[2])
            self.repositories.add(words[3])
            return written(told()).decode()
        if words[1] == "unpublish":
            self.repositories.discard(words[2])
        else:
            self.pulls.append(words[2])
        return ""


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """A workload that is being rolled out is looked at again at once."""
    monkeypatch.setattr("slipway.apis.deckhouse.delivery.ROLLOUT_SECONDS", 0.1)


async def life(server: Any, node: Registry, eventually: Any) -> None:
    """A Model is published, brought into a Deployment, taken out of it, and goes."""
    version = names.MODEL.api_version
    await server.put(MODEL, kind="Model", apiVersion=version, spec={"source": {"url": HUB}})
    await eventually(lambda: phase(server) == "Ready" and not found(server, JOB), 60)
    assert len(node.repositories) == 1

    template = {"metadata": {"labels": {"app": "w"}}, "spec": {"containers": [{"name": "a", "image": "i"}]}}
    await server.put(
        WORKLOAD,
        kind="Deployment",
        apiVersion="apps/v1",
        metadata={"annotations": {names.USES_MODEL: "tiny"}},
        spec={"selector": {"matchLabels": {"app": "w"}}, "template": template},
        status={"observedGeneration": 99},
    )
    await eventually(lambda: "AI_MODELS_MODELS" in str(server.objects[WORKLOAD]["spec"]), 60)
    await eventually(lambda: not found(server, JOB), 60)
    (claim,) = found(server, PERSISTENT_VOLUME_CLAIM)
    assert [one["name"] for one in claim["metadata"]["ownerReferences"]] == ["chat"]

    await change(server, MODEL, deletionTimestamp=timestamp(time.time()))
    await eventually(lambda: phase(server) == "Deleting", 60)
    assert len(node.repositories) == 1
    annotations = server.objects[WORKLOAD]["metadata"]["annotations"]
    await change(server, WORKLOAD, annotations={k: v for k, v in annotations.items() if k != names.USES_MODEL})
    await eventually(lambda: MODEL not in server.objects, 60)
    await eventually(lambda: not found(server, JOB) + found(server, PERSISTENT_VOLUME_CLAIM), 60)
    assert node.repositories == set()
    assert server.objects[WORKLOAD]["spec"]["template"] == template
    assert not server.objects[WORKLOAD]["metadata"].get("annotations")


async def change(server: Any, path: str, **metadata: Any) -> None:
    obj = server.objects[path]
    await server.store(path, {**obj, "metadata": {**obj["metadata"], **metadata}})


def phase(server: Any) -> str:
    return str((server.objects.get(MODEL, {}).get("status") or {}).get("phase", ""))


def found(server: Any, kind: Kind) -> list[dict[str, Any]]:
    return [obj for path, obj in server.objects.items() if path.startswith(f"{kind.path('models')}/")]


async def lived(server: Any, client: Any, session: Any, start: Any, eventually: Any, death: Any) -> Death:
    process = Process(client, session, MODELS, SETTINGS, [DELIVERY])
    dies: Death = death(server, process)
    server.faults.append(dies)
    node = Registry(server)
    start(node.run())
    process.start()
    try:
        await life(server, node, eventually)
    finally:
        process.end()
    assert node.publications == ["hf://acme/tiny"]
    assert [pulled.rpartition("@")[2] for pulled in node.pulls] == [DIGEST]
    return dies


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("number", range(MOST_WRITES))
async def test_a_life_ends_well_though_the_controller_dies_around_a_write(
    server, client, session, start, eventually, number, after
):
    await lived(server, client, session, start, eventually, lambda *of: Death(*of, number, after=after))


async def test_all_writes_of_a_life_are_tried(server, client, session, start, eventually):
    alive = await lived(server, client, session, start, eventually, lambda *of: Death(*of, 10**6, after=False))
    assert 10 < alive.seen <= MOST_WRITES
