"""The scripted API server, an API made for tests, and a controller's parts that work on both."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import msgspec
import pytest

from slipway.controller.agents import Agents
from slipway.controller.observed import Observed
from slipway.controller.reconciler import Reconciler
from slipway.kube.client import Client
from slipway.kube.crd import CustomResource
from slipway.kube.events import Recorder
from slipway.kube.metrics import Metrics
from slipway.kube.objects import CONFIG_MAP, DEPLOYMENT, JOB, PERSISTENT_VOLUME_CLAIM, SERVICE, Kind, Object, labels
from slipway.serving.agent import Adapter
from slipway.serving.freedoms import Freedom
from slipway.serving.plan import Api, Invalid, Note, Plan, Reference, Refusal, Verdict, World
from slipway.serving.proof import SigningKey
from slipway.serving.scaling import Scaling
from slipway.serving.settings import Settings

from ..kube.conftest import ApiServer, client, eventually, kubeconfig, metrics, rest, script, server, start

__all__ = ["client", "eventually", "kubeconfig", "metrics", "rest", "script", "server", "start"]

TOY = Kind("toys.test", "v1", "Toy", "toys")
FINALIZER = "toys.test/clean"
CONFIG = Reference(CONFIG_MAP, "system", "config")
KEY = SigningKey(bytes(range(32)))
"""The controller's."""
CLAIM = Reference(PERSISTENT_VOLUME_CLAIM, "models", "shared")


def made(kind: Kind, name: str, **fields: Any) -> Object:
    metadata = {"name": name, "namespace": "models"}
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, **fields}


class ToySpec(msgspec.Struct):
    """Toys are never checked against it."""


class Toys:
    """See :class:`slipway.serving.plan.Api`. What a Toy's plan holds stands in its spec."""

    name = "toys"
    resources = (CustomResource(kind=TOY, spec=ToySpec),)
    child_kinds = (SERVICE, DEPLOYMENT, CONFIG_MAP, JOB)
    shared_kinds = (CONFIG_MAP, PERSISTENT_VOLUME_CLAIM)
    user_kinds: tuple[Kind, ...] = ()
    foreign_finalizers = frozenset({FINALIZER})
    pod_labels: frozenset[str] = frozenset()

    def __init__(self) -> None:
        self.planned: Counter[str] = Counter()
        """How often each Toy was planned."""

    def references(self, resource: Object, _settings: Settings) -> tuple[Reference, ...]:
        if resource["spec"].get("poison"):
            raise ValueError("a bug")
        return (CONFIG, CLAIM) if resource["spec"].get("cached") else (CONFIG,)

    def concerned(self, old: Object | None, new: Object | None) -> Collection[str] | None:
        if old is None or new is None or new["kind"] != "PersistentVolumeClaim":
            return None
        before, after = (set(obj["metadata"].get("annotations", {}).items()) for obj in (old, new))
        return {note.removeprefix("loaded/") for note, _unused in before ^ after}

    def plan(self, world: World) -> Plan:
        self.planned[world.resource["metadata"]["name"]] += 1
        name, spec = world.resource["metadata"]["name"], world.resource["spec"]
        config = world.referenced.get(CONFIG)
        if config is None:
            raise Invalid("NoConfig", "there is no configuration")
        own = {"metadata": {"labels": {"sort": "toy"}}, "spec": {"replicas": max(spec.get("replicas", 0), 1)}}
        cached = spec.get("cached")
        deployment = made(DEPLOYMENT, name, spec={"replicas": spec.get("replicas"), "image": config["data"]["image"]})
        services = (made(SERVICE, service, spec={"ports": []}) for service in spec.get("services", ()))
        return Plan(
            children=(deployment, *services),
            own=own,
            finalizer=FINALIZER if cached else "",
            shared=(made(PERSISTENT_VOLUME_CLAIM, "shared", spec={"size": spec["cached"]}),) if cached else (),
            notes=(Note(CLAIM, {f"loaded/{name}": "yes"}),) if cached else (),
            adapters=tuple(Adapter(f"{name}_{one}", f"hf://acme/{one}@{state}") for one, state in _adapters(spec)),
        )

    def granted(self, _world: World, _plan: Plan) -> frozenset[Freedom]:
        return frozenset()

    def finish(self, world: World) -> Plan | None:
        name, claim = world.resource["metadata"]["name"], world.referenced.get(CLAIM)
        if claim is None or f"loaded/{name}" not in claim["metadata"].get("annotations", {}):
            return None
        job = world.children.get(("Job", f"clean-{name}"))
        done = job is not None and bool(job.get("status", {}).get("succeeded"))
        notes = (Note(CLAIM, {f"loaded/{name}": None}),) if done else ()
        return Plan(children=(made(JOB, f"clean-{name}", spec={"do": "clean"}),), notes=notes)

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

    def status(self, world: World, refusal: Refusal | None) -> Verdict:
        reason = refusal.reason if refusal else "Valid"
        condition = {"type": "Accepted", "status": "False" if refusal else "True", "reason": reason}
        told = sorted(report.progress.done_bytes for report in world.agents.values() if report.progress)
        return Verdict({"conditions": [condition], "pods": len(world.pods), "told": told, "policed": world.policed})


def _adapters(spec: Object) -> list[tuple[str, str]]:
    return sorted(spec.get("adapters", {}).items())


class Parts:
    """A controller's parts for Toys, running."""

    def __init__(self, client: Client, session: aiohttp.ClientSession, address: Callable[[Object], str]) -> None:
        self.metrics, self.api = Metrics(), Toys()
        self.observed = Observed(client, [self.api], "system")
        self.agents = Agents(client, session, address)
        self.agents.sign_with(KEY)
        self.recorder = Recorder(client, "test", metrics=self.metrics)
        self.reconciler = Reconciler(self.api, TOY, client, self.observed, Settings(), self.recorder, self.agents)
        self.controller = self.reconciler.controller(2, self.metrics)
        self.informers = [*self.observed.informers, self.reconciler.resources]


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
    made = Parts(client, session, lambda pod: loaders[pod["metadata"]["name"]])
    for informer in made.informers:
        start(informer.run())
    start(made.controller.run())
    yield made
    await made.agents.close()


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
        found: Object = self.get(TOY, name).get("status", {})
        return found

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
    api: Api, kind: Kind, client: Client, session: Any, start: Any, settings: Settings
) -> AsyncIterator[None]:
    """A controller for the resources of one kind. Its own namespace is the settings', or else ``system``."""
    system = settings.system_namespace or "system"
    observed, agents, metrics = Observed(client, [api], system), Agents(client, session), Metrics()
    agents.sign_with(KEY)
    recorder = Recorder(client, "test", metrics=metrics)
    reconciler = Reconciler(api, kind, client, observed, settings, recorder, agents)
    for informer in (*observed.informers, reconciler.resources):
        start(informer.run())
    start(reconciler.controller(2, metrics).run())
    yield
    await agents.close()
