"""The scripted API server, an API made for tests, and a controller's parts that work on both."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import msgspec
import pytest

from slipway.apis.kubeai.types import KIND as KUBEAI_MODEL
from slipway.apis.labels import RESERVED
from slipway.controller.inputs.caches import Caches
from slipway.controller.loaders.agents import LoaderClients
from slipway.controller.reconciling.reconciler import Reconciler
from slipway.controller.scaling.scaled import ScaledResources
from slipway.kube.api.client import Client
from slipway.kube.caches.informer import Informer
from slipway.kube.caches.store import Change
from slipway.kube.metrics import Metrics
from slipway.kube.objects import (
    CONFIG_MAP,
    DEPLOYMENT,
    JOB,
    PERSISTENT_VOLUME_CLAIM,
    SERVICE,
    Key,
    Kind,
    Object,
    labels,
)
from slipway.kube.runtime.controller import Controller
from slipway.kube.schemas.crd import CustomResource
from slipway.kube.writes.events import Recorder
from slipway.serving.containers.freedoms import Freedom
from slipway.serving.contract.api import (
    Api,
    InvalidSpecError,
    Listers,
    MetadataPatch,
    Plan,
    Reference,
    Rejection,
    StatusResult,
    Watch,
    World,
)
from slipway.serving.contract.readiness import Condition, Readiness
from slipway.serving.contract.settings import Settings
from slipway.serving.contract.watches import REFERENCES, by_reference, enqueue_nothing, owned_by, referenced_by
from slipway.serving.routing.scaling import Scaling
from slipway.serving.wire.agent import Adapter, AdapterSet
from slipway.serving.wire.proof import SigningKey

from ..kube.conftest import ApiServer, client, eventually, kubeconfig, metrics, rest, script, server, start

__all__ = ["client", "eventually", "kubeconfig", "metrics", "rest", "script", "server", "start"]

TOY = Kind("toys.test", "v1", "Toy", "toys")
FINALIZER = "toys.test/clean"
CONFIG = Reference(CONFIG_MAP, "system", "config")
SETTINGS = Settings(system_namespace="system")
KEY = SigningKey(bytes(range(32)))
"""The controller's."""
CLAIM = Reference(PERSISTENT_VOLUME_CLAIM, "models", "shared")


def build_object(kind: Kind, name: str, **fields: Any) -> Object:
    metadata = {"name": name, "namespace": "models"}
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, **fields}


def at_rest(server: ApiServer, informers: Iterable[Informer], controllers: Iterable[Controller]) -> bool:
    """Whether the informers have seen all changes and the controllers have no pending or active keys."""
    queues = [controller.queue for controller in controllers]
    return all(map(server.is_seen_by, informers)) and not any(len(queue) or queue._processing for queue in queues)


def changes(server: ApiServer) -> int:
    """The number of writes, without Events, whose timing varies."""
    return sum("/events" not in one.path for one in server.writes)


class ToySpec(msgspec.Struct):
    """Toys are never checked against it."""


class Toys:
    """See :class:`slipway.serving.contract.api.Api`. What a Toy's plan holds stands in its spec."""

    name = "toys"
    resource = CustomResource(kind=TOY, spec=ToySpec)
    finalizers = frozenset({FINALIZER})
    pod_labels: frozenset[str] = frozenset()
    condition_types = frozenset({"Accepted"})
    readiness: Readiness | None = Readiness(
        ready=Condition("Accepted"), failed=Condition("Accepted", "False"), telling=(Condition("Accepted"),)
    )

    def __init__(self) -> None:
        self.planned: Counter[str] = Counter()
        """How often each Toy was planned."""

    def watches(self, settings: Settings) -> tuple[Watch, ...]:
        system = settings.system_namespace
        return (
            *owned_by(TOY, SERVICE, DEPLOYMENT, JOB),
            *owned_by(TOY, CONFIG_MAP, listed=False),
            Watch(kind=TOY, enqueue=enqueue_nothing, indexes={REFERENCES: by_reference(self.references)}),
            Watch(kind=CONFIG_MAP, enqueue=referenced_by(TOY, CONFIG_MAP), namespace=system),
            Watch(kind=PERSISTENT_VOLUME_CLAIM, enqueue=self.noted),
        )

    def references(self, resource: Object) -> tuple[Reference, ...]:
        if resource["spec"].get("poison"):
            raise ValueError("a bug")
        return (CONFIG, CLAIM) if resource["spec"].get("cached") else (CONFIG,)

    def noted(self, change: Change, listers: Listers) -> Iterable[Key]:
        if change.old is None or change.new is None:
            return referenced_by(TOY, PERSISTENT_VOLUME_CLAIM)(change, listers)
        before, after = (set(obj["metadata"].get("annotations", {}).items()) for obj in (change.old, change.new))
        return {Key(change.key.namespace, note.removeprefix("loaded/")) for note, _unused in before ^ after}

    def resolve(self, world: World) -> World:
        return world

    def plan(self, world: World) -> Plan:
        self.planned[world.resource["metadata"]["name"]] += 1
        name, spec = world.resource["metadata"]["name"], world.resource["spec"]
        config = world.get(CONFIG)
        if config is None:
            raise InvalidSpecError("NoConfig", "there is no configuration")
        own = {"metadata": {"labels": {"sort": "toy"}}, "spec": {"replicas": max(spec.get("replicas", 0), 1)}}
        cached = spec.get("cached")
        notes = (name, *spec.get("notes", ())) if cached else ()
        deployment = build_object(
            DEPLOYMENT, name, spec={"replicas": spec.get("replicas"), "image": config["data"]["image"]}
        )
        services = (build_object(SERVICE, service, spec={"ports": []}) for service in spec.get("services", ()))
        return Plan(
            children=(deployment, *services),
            self_patch=own,
            finalizer=FINALIZER if cached else "",
            shared=(build_object(PERSISTENT_VOLUME_CLAIM, "shared", spec={"size": spec["cached"]}),) if cached else (),
            metadata_patches=(
                *(MetadataPatch(CLAIM, {f"loaded/{note}": "yes"}) for note in notes),
                *([MetadataPatch(CLAIM, labels=spec["marks"])] if "marks" in spec else []),
            ),
            adapters=AdapterSet(
                adapters=tuple(Adapter(f"{name}_{one}", f"hf://acme/{one}@{state}") for one, state in _adapters(spec)),
                prefix=f"{name}_",
                label="adapter.kubeai.org/",
                container="server",
            ),
        )

    def granted(self, _world: World, _plan: Plan) -> frozenset[Freedom]:
        return frozenset()

    def finalize(self, world: World) -> Plan | None:
        name, claim = world.resource["metadata"]["name"], world.get(CLAIM)
        if claim is None or f"loaded/{name}" not in claim["metadata"].get("annotations", {}):
            return None
        job = world.child(JOB, f"clean-{name}")
        done = job is not None and bool(job.get("status", {}).get("succeeded"))
        notes = (MetadataPatch(CLAIM, {f"loaded/{name}": None}),) if done else ()
        return Plan(children=(build_object(JOB, f"clean-{name}", spec={"do": "clean"}),), metadata_patches=notes)

    def scaling(self, world: World) -> Scaling | None:
        spec = world.resource["spec"]
        if "target" not in spec:
            return None
        return Scaling(
            replicas=spec.get("replicas", 0),
            min_replicas=1,
            max_replicas=10,
            target_requests=spec["target"],
            interval=spec.get("interval", 10),
            window=spec.get("window", 60),
            scale_down_delay=30,
        )

    def status(self, world: World, rejection: Rejection | None) -> StatusResult:
        reason = rejection.reason if rejection else "Valid"
        condition = {"type": "Accepted", "status": "False" if rejection else "True", "reason": reason}
        done_bytes = sorted(report.progress.done_bytes for report in world.agents.values() if report.progress)
        return StatusResult(
            {
                "conditions": [condition],
                "pods": len(world.pods),
                "told": done_bytes,
                "policed": world.has_foreign_policies,
            }
        )


def _adapters(spec: Object) -> list[tuple[str, str]]:
    return sorted(spec.get("adapters", {}).items())


class Parts:
    """A controller's parts for Toys, running."""

    def __init__(self, client: Client, session: aiohttp.ClientSession, address: Callable[[Object], str]) -> None:
        self.metrics, self.api = Metrics(), Toys()
        self.caches = Caches(client, [self.api], SETTINGS, pod_managers=("kubeai",))
        self.agents = LoaderClients(client, session, address)
        self.agents.sign_with(KEY)
        self.recorder = Recorder(client, "test", metrics=self.metrics)
        self.scaled = ScaledResources()
        self.reconciler = Reconciler(
            self.api, client, self.caches, SETTINGS, self.recorder, self.agents, self.scaled, RESERVED
        )
        self.controller = self.reconciler.controller(2, self.metrics)
        self.informers = self.caches.informers

    def at_rest(self, server: ApiServer) -> bool:
        return at_rest(server, self.informers, [self.controller])


@pytest.fixture
def loaders() -> dict[str, str]:
    """Name of a pod -> where its loader answers."""
    return {}


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as opened:
        yield opened


@pytest.fixture
async def parts(client, session, loaders, start) -> AsyncIterator[Parts]:
    controller_parts = Parts(client, session, lambda pod: loaders[pod["metadata"]["name"]])
    for informer in controller_parts.informers:
        start(informer.run())
    start(controller_parts.controller.run())
    yield controller_parts
    await controller_parts.agents.close()


class Cluster:
    """Short words for what tests do to the server."""

    def __init__(self, server: ApiServer) -> None:
        self.server = server

    def path(self, kind: Kind, name: str, namespace: str = "models") -> str:
        return kind.path(namespace, name)

    async def toy(self, name: str = "a", **spec: Any) -> Object:
        return await self.server.put(self.path(TOY, name), kind="Toy", apiVersion=TOY.api_version, spec=spec)

    async def config(self, image: str = "one") -> None:
        await self.server.put(self.path(CONFIG_MAP, "config", "system"), kind="ConfigMap", data={"image": image})

    async def claim(self, name: str = "shared", **fields: Any) -> None:
        await self.server.put(self.path(PERSISTENT_VOLUME_CLAIM, name), kind="PersistentVolumeClaim", **fields)

    def find(self, kind: Kind, name: str = "a") -> Object | None:
        return self.server.objects.get(self.path(kind, name))

    def get(self, kind: Kind, name: str = "a") -> Object:
        return self.server.objects[self.path(kind, name)]

    def get_status(self, name: str = "a") -> Object:
        status: Object = self.get(TOY, name).get("status", {})
        return status

    def reason(self, name: str = "a") -> str:
        conditions = self.get(TOY, name).get("status", {}).get("conditions", [{}])
        return str(conditions[0].get("reason", ""))

    def labels(self, kind: Kind, name: str) -> dict[str, str]:
        return labels(self.get(kind, name))


@pytest.fixture
def cluster(server: ApiServer) -> Cluster:
    return Cluster(server)


@asynccontextmanager
async def controlled(
    api: Api[Any], client: Client, session: Any, start: Any, settings: Settings
) -> AsyncIterator[None]:
    """A controller for the resources of one API. Its own namespace is the settings', or else ``system``."""
    settings = msgspec.structs.replace(settings, system_namespace=settings.system_namespace or "system")
    caches, agents, metrics = (
        Caches(client, [api], settings, pod_managers=("kubeai",)),
        LoaderClients(client, session),
        Metrics(),
    )
    agents.sign_with(KEY)
    recorder = Recorder(client, "test", metrics=metrics)
    reconciler = Reconciler(api, client, caches, settings, recorder, agents, ScaledResources(), RESERVED)
    for informer in caches.informers:
        start(informer.run())
    start(reconciler.controller(2, metrics).run())
    yield
    await agents.close()


async def apply_kubeai_model(server: Any, cluster: Any, **spec: Any) -> None:
    """Makes Model ``a`` of KubeAI, or changes it, to a sound spec with these fields."""
    sound = {"url": "hf://acme/tiny", "engine": "VLLM", "features": [], "resourceProfile": "cpu:1", "minReplicas": 1}
    path, manifest = cluster.path(KUBEAI_MODEL, "a"), {"spec": sound | spec}
    if model := cluster.find(KUBEAI_MODEL):
        await server.store(path, model | manifest)
    else:
        await server.put(path, kind=KUBEAI_MODEL.kind, apiVersion=KUBEAI_MODEL.api_version, **manifest)
