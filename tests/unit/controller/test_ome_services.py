"""InferenceServices of OME through the real reconciler: a life with a canary, deaths around every write, edits of
runtimes that concern many, and replicas that an autoscaler has set."""

from __future__ import annotations

import asyncio
import time
from functools import partial
from typing import Any

import pytest

from slipway.apis.ome import names
from slipway.apis.ome.services.table import SERVICES
from slipway.kube.objects import DEPLOYMENT, PERSISTENT_VOLUME_CLAIM, SERVICE, Kind
from slipway.kube.schemas.conditions import timestamp
from slipway.serving.contract.settings import Settings
from slipway.serving.pods.groups import LEADER_WORKER_SET
from slipway.serving.routing.route import ROUTE

from .deaths import Death, Process, assert_only_writes, moments

SETTINGS = Settings(system_namespace="system")
KIND, MODEL, RUNTIME = names.INFERENCE_SERVICE, names.CLUSTER_BASE_MODEL, names.CLUSTER_SERVING_RUNTIME
WRITES = {
    "PATCH inferenceservices/status": 10,
    "PATCH services": 8,
    "PATCH deployments": 4,
    "POST persistentvolumeclaims": 1,
    "PATCH serviceaccounts": 1,
    "PATCH roles": 1,
    "PATCH rolebindings": 1,
    "DELETE services": 1,
    "DELETE deployments": 1,
}
FORMAT = {
    "modelFormat": {"name": "safetensors", "weight": 1},
    "modelFramework": {"name": "transformers", "weight": 1},
    "modelArchitecture": "LlamaForCausalLM",
}
ONE = {"minReplicas": 1, "maxReplicas": 1}


def runner(image: str) -> dict[str, Any]:
    command = ["python3", "-m", "sglang.launch_server", "--model-path", "$(MODEL_PATH)", "--port", "8080"]
    return {"name": "ome-container", "image": image, "command": command}


class Kube:
    """Simulates Kubernetes: pods of Deployments answer, and objects without an owner are deleted."""

    def __init__(self, server: Any) -> None:
        self.server = server

    async def run(self) -> None:
        while True:
            await asyncio.sleep(0.02)
            uids = {obj["metadata"]["uid"] for obj in self.server.objects.values()}
            for path, obj in list(self.server.objects.items()):
                metadata = obj["metadata"]
                owners = {owner["uid"] for owner in metadata.get("ownerReferences") or ()}
                gone = "deletionTimestamp" in metadata and not metadata.get("finalizers")
                if gone or (owners and not uids & owners):
                    await self.server.remove(path)
                elif obj["kind"] == "Deployment":
                    await self._rolled_out(path, obj)

    async def _rolled_out(self, path: str, obj: dict[str, Any]) -> None:
        replicas = obj["spec"].get("replicas", 1)
        counts = dict.fromkeys(("replicas", "readyReplicas", "updatedReplicas"), replicas)
        status = {"observedGeneration": obj["metadata"]["generation"], **counts}
        if obj.get("status") != status and path in self.server.objects:
            await self.server.store(path, {**obj, "status": status})


class Life:
    """Short words for what people do, and for what they see."""

    process: Process

    def __init__(self, server: Any, cluster: Any, eventually: Any) -> None:
        self.server, self.cluster, self.eventually = server, cluster, eventually

    def at_rest(self) -> bool:
        return self.process.at_rest(self.server)

    async def prepare(self, image: str = "engine:1", **spec: Any) -> None:
        storage = {"storageUri": "hf://meta/tiny", "path": "/raid/models/tiny"}
        await self._put(MODEL, "tiny", {"storage": storage, **FORMAT}, status={"state": "Ready"})
        await self.runtime("rt", image, **spec)

    async def runtime(self, name: str, image: str = "engine:1", priority: int = 1, **spec: Any) -> None:
        formats = [{**FORMAT, "autoSelect": True, "priority": priority}]
        router = {"name": "router", "image": "router:1", "command": ["python3", "-m", "sglang_router.launch_router"]}
        parts = {"engineConfig": {"runner": runner(image)}, "routerConfig": {"runner": router}}
        await self._put(RUNTIME, name, {"supportedModelFormats": formats, **parts} | spec)

    async def serve(self, name: str = "chat", **spec: Any) -> None:
        spec = {"model": {"name": "tiny"}, "engine": ONE} | spec
        service = self.find(KIND, name)
        if service is None:
            await self._put(KIND, name, spec)
        else:
            await self.server.store(KIND.path("models", name), {**service, "spec": spec})

    async def delete(self, name: str = "chat") -> None:
        service = self.find(KIND, name)
        metadata = {**service["metadata"], "deletionTimestamp": timestamp(time.time())}
        await self.server.store(KIND.path("models", name), {**service, "metadata": metadata})

    async def _put(self, kind: Kind, name: str, spec: Any, **fields: Any) -> None:
        path = kind.path("models" if kind.namespaced else "", name)
        if path in self.server.objects:
            await self.server.store(path, {**self.server.objects[path], "spec": spec})
        else:
            await self.server.put(path, kind=kind.kind, apiVersion=kind.api_version, spec=spec, **fields)

    def find(self, kind: Kind, name: str) -> Any:
        return self.server.objects.get(kind.path("models", name))

    def image(self, name: str) -> str:
        deployment = self.find(DEPLOYMENT, name)
        return str(deployment["spec"]["template"]["spec"]["containers"][0]["image"]) if deployment else ""

    def condition(self, kind: str, name: str = "chat") -> tuple[str, str]:
        conditions = ((self.find(KIND, name) or {}).get("status") or {}).get("conditions") or ()
        return next(((one["status"], one["reason"]) for one in conditions if one["type"] == kind), ("", ""))

    def ready(self, name: str = "chat") -> bool:
        return self.condition("Ready", name)[0] == "True" and self.condition("Progressing", name) == (
            "False",
            "Complete",
        )

    def share(self) -> str:
        service = self.find(SERVICE, "chat")
        return str(service["metadata"]["annotations"][ROUTE]) if service else ""

    def gone(self) -> bool:
        """The namespace's claim for the model stays for the next service."""
        kept = {MODEL.kind, RUNTIME.kind, PERSISTENT_VOLUME_CLAIM.kind, "Event"}
        return {obj["kind"] for obj in self.server.objects.values()} <= kept


@pytest.fixture
def life(server: Any, cluster: Any, eventually: Any) -> Life:
    return Life(server, cluster, eventually)


async def whole(life: Life) -> None:
    """A service gets a runtime, tries another image on a tenth of its requests, rolls it out, and goes."""
    eventually = life.eventually
    await life.prepare()
    await life.serve()
    await eventually(life.ready, 60)
    assert life.image("chat-engine") == "engine:1"
    tried = {"runner": {"name": "ome-container", "image": "engine:2"}, **ONE}
    await life.serve(engine={**tried, "canaryTrafficPercent": 10})
    await eventually(lambda: '"weight":10' in life.share(), 60)
    assert (life.image("chat-engine"), life.image("chat-engine-canary")) == ("engine:1", "engine:2")
    await life.serve(engine={**tried, "canaryTrafficPercent": 100})
    await eventually(
        lambda: life.image("chat-engine") == "engine:2" and not life.find(DEPLOYMENT, "chat-engine-canary"), 60
    )
    await eventually(
        lambda: life.ready() and "canary" not in life.share() and not life.find(SERVICE, "chat-engine-canary"), 60
    )
    await life.serve(engine=tried, router=ONE)
    await eventually(lambda: life.ready() and life.find(DEPLOYMENT, "chat-router"), 60)
    await life.delete()
    await eventually(life.gone, 60)


async def lived(life: Life, client: Any, session: Any, start: Any, tale: Any, death: Any = None) -> None:
    process = life.process = Process(client, session, [SERVICES], SETTINGS)
    dies = death(life.server, process) if death else None
    if dies:
        life.server.faults.append(dies)
    start(Kube(life.server).run())
    process.start()
    try:
        await tale(life)
    finally:
        process.end()
    if dies:
        dies.assert_died()


@pytest.mark.parametrize(("write", "number", "after"), moments(WRITES))
async def test_a_life_ends_well_though_the_controller_dies_around_a_write(
    life, client, session, start, write, number, after
):
    await lived(life, client, session, start, whole, partial(Death, write=write, number=number, after=after))


async def test_all_writes_of_a_life_are_tried(life, client, session, start):
    await lived(life, client, session, start, whole)
    assert_only_writes(life.server, WRITES)


async def test_an_edited_runtime_rolls_only_the_services_that_use_it(life, client, session, start):
    async def tale(life: Life) -> None:
        await life.prepare()
        for number in range(5):
            await life.serve(f"chat-{number}")
        await life.eventually(lambda: all(life.ready(f"chat-{number}") for number in range(5)))
        await life.eventually(life.at_rest)
        before = len(life.server.writes)
        await life.runtime("narrow", modelSizeRange={"min": "1B", "max": "2B"}, disabled=True)
        await life.runtime("narrow", modelSizeRange={"min": "1B", "max": "3B"}, disabled=True)
        await life.eventually(life.at_rest)
        assert [one.path for one in life.server.writes[before:] if "/events" not in one.path] == []
        await life.runtime("rt", "engine:2")
        await life.eventually(lambda: {life.image(f"chat-{number}-engine") for number in range(5)} == {"engine:2"})

    await lived(life, client, session, start, tale)


async def test_a_better_runtime_is_reported_and_restarts_no_pods(life, client, session, start):
    async def tale(life: Life) -> None:
        await life.prepare()
        await life.serve()
        await life.eventually(life.ready)
        await life.runtime("better", "engine:9", priority=9)

        def better() -> Any:
            return life.find(KIND, "chat")["status"]["runtime"].get("better")

        await life.eventually(lambda: better() and better()["name"] == "better")
        assert life.image("chat-engine") == "engine:1"
        await life.serve("later")
        await life.eventually(lambda: life.image("later-engine") == "engine:9")

    await lived(life, client, session, start, tale)


async def test_replicas_of_an_autoscaler_outlive_an_edit_of_the_runtime(life, client, session, start):
    async def tale(life: Life) -> None:
        await life.prepare()
        await life.serve(engine={"minReplicas": 1, "maxReplicas": 5})
        await life.eventually(life.ready)
        deployment = life.find(DEPLOYMENT, "chat-engine")
        await life.server.store(
            DEPLOYMENT.path("models", "chat-engine"), {**deployment, "spec": {**deployment["spec"], "replicas": 4}}
        )
        await life.runtime("rt", "engine:2")
        await life.eventually(lambda: life.image("chat-engine") == "engine:2")
        assert life.find(DEPLOYMENT, "chat-engine")["spec"]["replicas"] == 4

    await lived(life, client, session, start, tale)


async def test_groups_of_nodes_wait_for_their_kind_and_say_what_to_install(life, client, session, start, script):
    async def tale(life: Life) -> None:
        await life.prepare(
            engineConfig={"leader": {"runner": runner("engine:1")}, "worker": {"runner": runner("e:1"), "size": 1}}
        )
        await life.serve()
        await life.eventually(lambda: life.condition("Accepted") == ("False", "MissingKind"))
        [condition] = [one for one in life.find(KIND, "chat")["status"]["conditions"] if one["type"] == "Accepted"]
        assert "the role leader_worker_set" in condition["message"]

    life.server.fault("GET", LEADER_WORKER_SET.plural, script.refuse(404, "NotFound"), times=10**6)
    await lived(life, client, session, start, tale)
