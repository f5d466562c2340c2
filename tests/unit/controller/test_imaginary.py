"""A fictional API in the real reconciler. It uses what the contract allows but no existing API does.

A Fleet is of the whole cluster. It makes an engine and a router in the namespace that its spec names, the engine from a
finished pod template that it reads from a cluster-wide Runtime. What scales is the engine's Deployment. For several
nodes it needs a LeaderGroup, a kind that need not be installed. Its status has no conditions unless it reports some.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import msgspec
import pytest

from slipway.apis.labels import RESERVED
from slipway.controller.inputs.caches import Caches
from slipway.controller.loaders.agents import LoaderClients
from slipway.controller.reconciling.reconciler import MARK, Reconciler
from slipway.controller.scaling.scaled import ScaledResources, Subject
from slipway.kube.api.client import Client
from slipway.kube.metrics import Metrics
from slipway.kube.objects import DEPLOYMENT, SERVICE, Key, Kind, Object
from slipway.kube.schemas.crd import CustomResource
from slipway.kube.writes.events import Recorder
from slipway.serving.containers.diagnosis import Limits, diagnose
from slipway.serving.containers.freedoms import Freedom, freedoms
from slipway.serving.contract.api import InvalidSpecError, Plan, Reference, Rejection, StatusResult, Watch, World
from slipway.serving.contract.settings import Settings
from slipway.serving.contract.watches import REFERENCES, by_reference, enqueue_nothing, owned_by, referenced_by
from slipway.serving.pods.server import Scale
from slipway.serving.pods.workload import Rollout, child, deployment_of
from slipway.serving.routing.scaling import ScaleTarget, Scaling
from slipway.serving.status.builder import build_status
from slipway.serving.status.report import REPORTED, Component, report

from ..kube.conftest import ApiServer, Fault, kubeconfig_of, serving
from .conftest import KEY, SETTINGS

FLEET = Kind("fleets.test", "v1", "Fleet", "fleets", namespaced=False)
RUNTIME = Kind("fleets.test", "v1", "Runtime", "runtimes", namespaced=False)
GROUP = Kind("groups.test", "v1", "LeaderGroup", "leadergroups")
FINALIZER = "fleets.test/clean"
LIMITS = Limits(startup_seconds=60, unschedulable_grace_seconds=60, container="engine")
PARTS = ("engine", "router")


class FleetSpec(msgspec.Struct):
    """Fleets are never checked against it."""


class View(msgspec.Struct, frozen=True):
    """A Fleet, and the template of its engines."""

    world: World
    spec: Object
    name: str
    template: Object | None

    def workload(self, part: str) -> Object | None:
        return self.world.children.get((DEPLOYMENT, Key(self.spec["namespace"], f"{self.name}-{part}")))


class Fleets:
    """See :class:`slipway.serving.contract.api.Api`."""

    name = "fleets"
    resource = CustomResource(kind=FLEET, spec=FleetSpec)
    finalizers = frozenset({FINALIZER})
    pod_labels: frozenset[str] = frozenset()
    condition_types = REPORTED
    readiness = None

    def watches(self, _settings: Settings) -> tuple[Watch, ...]:
        return (
            *owned_by(FLEET, SERVICE, DEPLOYMENT),
            *owned_by(FLEET, GROUP, optional="the leader group controller"),
            Watch(kind=FLEET, enqueue=enqueue_nothing, indexes={REFERENCES: by_reference(_references)}),
            Watch(kind=RUNTIME, enqueue=referenced_by(FLEET, RUNTIME)),
        )

    def resolve(self, world: World) -> View:
        (reference,) = _references(world.resource)
        runtime = world.get(reference)
        template = runtime["spec"]["template"] if runtime else None
        return View(world, world.resource["spec"], world.resource["metadata"]["name"], template)

    def plan(self, view: View) -> Plan:
        if view.template is None:
            raise InvalidSpecError("NoRuntime", "there is no such Runtime")
        namespace, children = view.spec["namespace"], []
        for part, template in zip(PARTS, (view.template, ROUTER), strict=True):
            name, selector = f"{view.name}-{part}", {"fleet": view.name, "part": part}
            scale = Scale(None if part == "engine" else 1)
            rollout = Rollout(
                name=name, namespace=namespace, labels=selector, selector=selector, scale=scale, startup_seconds=60
            )
            spec = {"selector": selector, "ports": [{"name": "http", "port": 80}]}
            children += [child(SERVICE, name, namespace, selector, spec=spec), deployment_of(template, rollout)]
        if view.spec.get("nodes", 1) > 1:
            children.append(child(GROUP, view.name, namespace, {"fleet": view.name}, spec={"size": view.spec["nodes"]}))
        return Plan(children=tuple(children), finalizer=FINALIZER)

    def granted(self, _view: View, plan: Plan) -> frozenset[Freedom]:
        """All: Runtimes are the operator's."""
        return freedoms(plan.children)

    def finalize(self, _view: View) -> Plan | None:
        return None

    def scaling(self, view: View) -> Scaling | None:
        engine = view.workload("engine")
        if engine is None:
            return None
        name = f"{view.name}-engine"
        return Scaling(
            replicas=engine["spec"].get("replicas", 1),
            min_replicas=1,
            max_replicas=9,
            target_requests=1,
            interval=10,
            window=60,
            scale_down_delay=30,
            target=ScaleTarget(DEPLOYMENT, name, view.spec["namespace"]),
            services=(name,),
        )

    def status(self, view: View, rejection: Rejection | None) -> StatusResult:
        if view.spec.get("silent"):
            return StatusResult({"policed": view.world.has_foreign_policies})
        workloads = [view.workload(part) for part in PARTS]
        diagnoses = [diagnose(one, view.world.pods, LIMITS, view.world.now, lambda _log: None) for one in workloads]
        components = list(map(Component, workloads, diagnoses, PARTS))
        fleet_report = report(components, rejection, ())
        return build_status(view.world.resource, {"phase": fleet_report.phase}, fleet_report.conditions)


ROUTER: Object = {"spec": {"containers": [{"name": "router", "image": "router:1"}]}}


def _references(fleet: Object) -> tuple[Reference, ...]:
    return (Reference(RUNTIME, "", fleet["spec"]["runtime"]),)


class Running:
    """A controller for Fleets, which may die and be started again."""

    def __init__(self, client: Client, session: Any, start: Callable[[Any], asyncio.Task[Any]]) -> None:
        self._client, self._session, self._start = client, session, start
        self._tasks: list[asyncio.Task[Any]] = []
        self.scaled = ScaledResources()
        self.deaths = 0

    def start(self) -> None:
        api, metrics = Fleets(), Metrics()
        self.agents, self.scaled = LoaderClients(self._client, self._session), ScaledResources()
        self.agents.sign_with(KEY)
        self.caches = Caches(self._client, [api], SETTINGS)
        recorder = Recorder(self._client, "test", metrics=metrics)
        reconciler = Reconciler(api, self._client, self.caches, SETTINGS, recorder, self.agents, self.scaled, RESERVED)
        runs = [informer.run() for informer in self.caches.informers]
        self._tasks = [self._start(run) for run in (*runs, reconciler.controller(2, metrics).run())]

    def stop(self) -> None:
        for task in self._tasks:
            task.cancel()

    def die(self) -> None:
        """And come back at once, knowing nothing."""
        self.deaths += 1
        self.stop()
        self.start()


@pytest.fixture
async def running(client, session, start) -> AsyncIterator[Running]:
    instance = Running(client, session, start)
    yield instance
    await instance.agents.close()


class Bench:
    """Short words for what tests do to the server."""

    def __init__(self, server: ApiServer) -> None:
        self.server = server

    async def runtime(self, image: str = "engine:1") -> None:
        spec = {"template": {"spec": {"containers": [{"name": "engine", "image": image}]}}}
        await self.server.put(RUNTIME.path(name="gpu"), kind=RUNTIME.kind, apiVersion=RUNTIME.api_version, spec=spec)

    async def fleet(self, **spec: Any) -> None:
        spec = {"runtime": "gpu", "namespace": "models"} | spec
        fleet = self.server.objects.get(FLEET.path(name="f"))
        if fleet is None:
            await self.server.put(FLEET.path(name="f"), kind=FLEET.kind, apiVersion=FLEET.api_version, spec=spec)
        else:
            await self.server.store(FLEET.path(name="f"), {**fleet, "spec": spec})

    async def delete(self) -> None:
        fleet = self.server.objects[FLEET.path(name="f")]
        metadata = {**fleet["metadata"], "deletionTimestamp": "2026-11-22T09:00:00Z"}
        await self.server.store(FLEET.path(name="f"), {**fleet, "metadata": metadata})

    def find(self, kind: Kind, name: str, namespace: str = "models") -> Object | None:
        return self.server.objects.get(kind.path(namespace, name))

    @property
    def status(self) -> Object:
        status: Object = self.server.objects[FLEET.path(name="f")].get("status", {})
        return status

    def reason(self, kind: str = "Accepted") -> str:
        return next((str(one["reason"]) for one in self.status.get("conditions", ()) if one["type"] == kind), "")

    def image(self) -> str:
        engine = self.find(DEPLOYMENT, "f-engine") or {"spec": {"template": {"spec": {"containers": [{}]}}}}
        return str(engine["spec"]["template"]["spec"]["containers"][0].get("image", ""))


@pytest.fixture
def bench(server: ApiServer) -> Bench:
    return Bench(server)


async def test_a_resource_of_the_whole_cluster_has_its_children_in_the_namespace_that_it_names(
    running, bench, eventually
) -> None:
    running.start()
    await bench.runtime()
    await bench.fleet()
    await eventually(lambda: bench.reason("Available") == "WaitingForPods")
    names = {(kind, name) for kind in (SERVICE, DEPLOYMENT) for name in ("f-engine", "f-router")}
    assert all(bench.find(kind, name) for kind, name in names)
    owner = bench.find(DEPLOYMENT, "f-engine")["metadata"]["ownerReferences"][0]
    assert (owner["kind"], owner["name"]) == ("Fleet", "f")
    await bench.runtime("engine:2")
    await eventually(lambda: bench.image() == "engine:2")
    await bench.server.remove(SERVICE.path("models", "f-router"))
    await eventually(lambda: bench.find(SERVICE, "f-router"))
    await bench.fleet(namespace="others")
    await eventually(lambda: bench.find(DEPLOYMENT, "f-engine", "others") and not bench.find(DEPLOYMENT, "f-engine"))


async def test_all_workloads_have_to_answer(running, bench, server, eventually) -> None:
    running.start()
    await bench.runtime()
    await bench.fleet()
    await eventually(lambda: bench.reason("Available") == "WaitingForPods")
    ready = {"replicas": 1, "readyReplicas": 1, "updatedReplicas": 1, "observedGeneration": 9}
    for part, reason in zip(PARTS, ("WaitingForPods", "Ready"), strict=True):
        path = DEPLOYMENT.path("models", f"f-{part}")
        await server.store(path, {**server.objects[path], "status": ready})
        await eventually(lambda reason=reason: bench.reason("Available") == reason)
    assert bench.status["phase"] == "Ready"


async def test_a_fleet_scales_its_deployment_by_its_own_service(running, bench, eventually) -> None:
    running.start()
    await bench.runtime()
    await bench.fleet()
    subject = Subject(FLEET, Key("", "f"))
    await eventually(lambda: running.scaled.get(subject))
    scaled = running.scaled.get(subject)
    assert scaled.target == Subject(DEPLOYMENT, Key("models", "f-engine"))
    assert list(scaled.services) == [Key("models", "f-engine")]
    assert scaled.generation == bench.find(DEPLOYMENT, "f-engine")["metadata"]["generation"]


async def test_a_kind_that_is_not_installed_is_named_and_holds_up_nothing_else(
    running, bench, server, script, eventually, monkeypatch
) -> None:
    monkeypatch.setattr("slipway.kube.writes.outcomes._MISSING_SECONDS", 0.2)
    missing = server.fault("GET", "leadergroups", script.refuse(404, "NotFound"), times=10**6)
    running.start()
    await bench.runtime()
    await bench.fleet()
    await eventually(lambda: bench.reason() == "Valid")
    await bench.fleet(nodes=2, namespace="others")
    await eventually(lambda: bench.reason() == "MissingKind")
    (message,) = (one["message"] for one in bench.status["conditions"] if one["type"] == "Accepted")
    assert message.endswith("The cluster has no leadergroups of groups.test/v1; install the leader group controller.")
    await eventually(lambda: bench.find(DEPLOYMENT, "f-router", "others") and not bench.find(DEPLOYMENT, "f-router"))
    assert not [one for one in server.writes if "leadergroups" in one.path]
    missing.times = 0
    await eventually(lambda: bench.find(GROUP, "f", "others"))
    await eventually(lambda: bench.reason() == "Valid")


async def test_a_status_needs_no_conditions_and_those_of_other_writers_stay(running, bench, server, eventually) -> None:
    running.start()
    await bench.runtime()
    await bench.fleet(silent=True)
    await eventually(lambda: bench.status == {"policed": False})
    theirs = {"type": "Audited", "status": "True", "reason": "Yes", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    path = FLEET.path(name="f")
    await server.store(path, {**server.objects[path], "status": {"policed": True, "conditions": [theirs]}})
    await eventually(lambda: bench.status == {"policed": False, "conditions": [theirs]})
    await bench.fleet()
    await eventually(lambda: bench.reason() == "Valid")
    assert bench.reason("Audited") == "Yes"


async def test_policies_of_others_count_where_the_children_are(running, bench, server, eventually) -> None:
    running.start()
    await bench.runtime()
    await bench.fleet(silent=True)
    await eventually(lambda: bench.find(DEPLOYMENT, "f-router") and bench.status == {"policed": False})
    await server.put("/apis/networking.k8s.io/v1/namespaces/elsewhere/networkpolicies/x", kind="NetworkPolicy")
    await server.put("/apis/networking.k8s.io/v1/namespaces/models/networkpolicies/x", kind="NetworkPolicy")
    await eventually(lambda: bench.status == {"policed": True})


async def test_nothing_is_served_in_the_namespace_of_slipway_itself(running, bench, eventually) -> None:
    running.start()
    await bench.runtime()
    await bench.fleet(namespace="system")
    await eventually(lambda: bench.reason() == "NotAllowed")
    assert bench.find(DEPLOYMENT, "f-engine", "system") is None


# Every write of a life fails in every way, as tests/faults does it to processes and a real API server.

WRITES = (
    "PATCH fleets/f",
    "PATCH services/f-engine",
    "PATCH services/f-router",
    "PATCH deployments/f-engine",
    "PATCH deployments/f-router",
    "PATCH leadergroups/f",
    "PATCH fleets/f/status",
)
FAULTS = ("crash before", "crash after", "answer lost", "connection lost", "409", "429", "500")
OF_THE_SERVER = {
    "uid",
    "creationTimestamp",
    "resourceVersion",
    "generation",
    "lastTransitionTime",
    "observedGeneration",
    MARK,
}


Reached = Callable[[int], Awaitable[Any]]
"""Waits for the expected state after a step of a lifecycle. Returns the state."""


async def life(bench: Bench, reached: Reached) -> list[Any]:
    """Create, change, delete; what the world looks like after each step."""
    await bench.runtime()
    await bench.fleet(nodes=2)
    seen = [await reached(0)]
    await bench.runtime("engine:2")
    seen.append(await reached(1))
    await bench.delete()
    return [*seen, await reached(2)]


def _lasting(value: Any) -> Any:
    """Without what differs from run to run by its nature."""
    if isinstance(value, dict):
        return {name: _lasting(one) for name, one in value.items() if name not in OF_THE_SERVER}
    return [_lasting(one) for one in value] if isinstance(value, list) else value


def label(method: str, path: str) -> str:
    collection, rest = next((kind, path.split(f"/{kind}/", 1)[1]) for kind in path.split("/") if kind in KINDS)
    return f"{method} {collection}/{rest}"


KINDS = {kind.plural for kind in (FLEET, SERVICE, DEPLOYMENT, GROUP)}


@pytest.fixture(scope="module")
def clean() -> Clean:
    return Clean()


class Clean:
    """A lifecycle without faults on a separate server, run once."""

    def __init__(self) -> None:
        self.seen: list[Any] = []
        self.writes: list[str] = []

    async def lived(self, folder: Any, session: Any, start: Any, rest: Any) -> list[Any]:
        if not self.seen:
            async with serving() as server:
                client = await Client.connect(kubeconfig_of(server, folder), metrics=Metrics())
                running = Running(client, session, start)
                running.start()

                async def reached(_step: int) -> Any:
                    await rest(lambda: len(server.log))
                    return _lasting(server.objects)

                self.seen = await life(Bench(server), reached)
                self.writes = [label(one.method, one.path) for one in server.writes]
                running.stop()
                await client.close()
        return self.seen


async def test_the_writes_of_a_life_are_these_and_no_more(clean, tmp_path, session, start, rest) -> None:
    seen = await clean.lived(tmp_path, session, start, rest)
    counted = Counter(clean.writes)
    assert set(counted) == set(WRITES)
    assert max(number for name, number in counted.items() if "fleets" not in name) == 2
    deleted = seen[2][FLEET.path(name="f")]
    assert (deleted["metadata"]["finalizers"], seen[0].keys()) == ([], seen[1].keys())


FAILURES = [
    # CI covers every fault and every write once; the lane runs all combinations.
    pytest.param(name, fault, id=f"{name}-{fault}", marks=[] if place == len(FAULTS) - 1 - row else [pytest.mark.full])
    for row, name in enumerate(WRITES)
    for place, fault in enumerate(FAULTS)
]


@pytest.mark.parametrize(("name", "fault"), FAILURES)
async def test_the_world_ends_as_without_the_fault(
    running, bench, server, script, eventually, clean, tmp_path, session, start, rest, name: str, fault: str
) -> None:
    (tmp_path / "clean").mkdir()
    expected = await clean.lived(tmp_path / "clean", session, start, rest)
    path, fired = f"/{name.removeprefix('PATCH ')}", []

    async def answer(request: Any) -> Any:
        fired.append(request.path)
        if fault in ("crash after", "answer lost"):
            await server.handle(request)
        if fault.startswith("crash"):
            running.die()
        if fault.isdigit():
            return await script.refuse(int(fault), "Fault")(request)
        return await script.hang_up(request)

    async def reached(step: int) -> Any:
        await eventually(lambda: _lasting(server.objects) == expected[step])
        return _lasting(server.objects)

    server.faults.append(At(path, answer))
    running.start()
    assert await life(bench, reached) == expected
    assert len(fired) == 1
    assert running.deaths == fault.startswith("crash")
    assert not [one for one in server.writes if one.method == "DELETE"], "what the spec wants is never deleted"


class At(Fault):
    """Takes the first patch of one object."""

    def __init__(self, path: str, answer: Any) -> None:
        super().__init__("PATCH", path, answer, 1)

    def takes(self, request: Any) -> bool:
        return super().takes(request) and request.path.endswith(self.text)
