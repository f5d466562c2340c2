"""A run: a namespace, a controller process behind a proxy, a scenario, and the invariants that hold whatever happens.

No node has the processors that the models of these tests ask for, so their pods stay pending: the tests cover
the controller's writes, not engines.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest
import yaml

from slipway.apis.krypton.api import KRYPTON
from slipway.kube.api.credentials import Credentials
from slipway.serving.contract.api import World
from slipway.serving.contract.settings import Settings
from tests import worlds

from .preloaded import Forked, preloaded
from .proxy import Action, Exchange, Object, Proxy, drop

MODELS = "/apis/krypton.ai/v1alpha1"
CHILDREN = {
    "ServiceAccount": "/api/v1",
    "Service": "/api/v1",
    "Deployment": "/apis/apps/v1",
    "PodDisruptionBudget": "/apis/policy/v1",
}
PLURALS = {
    "ServiceAccount": "serviceaccounts",
    "Service": "services",
    "Deployment": "deployments",
    "PodDisruptionBudget": "poddisruptionbudgets",
    "Model": "models",
    "ResourceQuota": "resourcequotas",
}
PREFIXES = {**CHILDREN, "Model": MODELS, "ResourceQuota": "/api/v1"}
QUIET_SECONDS = 0.5
PATIENCE = 120.0
"""Seconds that a wait may take on a busy machine; most take one or two."""
FINALIZER = "krypton.ai/cleanup"
"""Of the original system: taken off on deletion, which is the controller's one write in that stage."""
NO_NODE = {"requests": {"cpu": "1M"}}
Case = tuple[Any, ...]
OF_THE_SERVER = {"uid", "resourceVersion", "creationTimestamp", "managedFields", "generation", "lastTransitionTime"}


def model(name: str = "m", **spec: Any) -> Object:
    spec = {"source": {"huggingface": "acme/tiny", "file": "tiny.gguf"}, "resources": NO_NODE, **spec}
    metadata = {"name": name, "finalizers": [FINALIZER]}
    return {"apiVersion": "krypton.ai/v1alpha1", "kind": "Model", "metadata": metadata, "spec": spec}


class Api:
    """A direct connection to the API server, which bypasses the controller's proxy."""

    def __init__(self, credentials: Credentials, session: aiohttp.ClientSession) -> None:
        self.credentials, self.session = credentials, session

    async def call(self, method: str, path: str, body: Any = None, kind: str = "application/json") -> Object | None:
        """None for 404; other refusals fail the test."""
        headers = {"Content-Type": kind}
        if authorization := await self.credentials.authorization():
            headers["Authorization"] = authorization
        data = json.dumps(body).encode() if body is not None else None
        url = self.credentials.host + path
        async with self.session.request(method, url, data=data, headers=headers) as response:
            answer: Object = await response.json()
        if response.status == 404:
            return None
        assert response.status < 300, f"{method} {path}: {answer}"
        return answer


class Controller:
    """A controller process that is started again when it dies, as a kubelet does it."""

    def __init__(self, folder: Path, namespace: str, url: str, identity: str, restart: bool, further: Object) -> None:
        """``further`` are settings beyond those that every run has."""
        self._folder, self._identity, self._restart = folder, identity, restart
        folder.mkdir(parents=True)
        lease = {"namespace": namespace, "name": "controller"}
        settings = {
            "apis": ["krypton"],
            "listen": "127.0.0.1:0",
            "leaderElection": lease,
            # Each run has one namespace for everything.
            "authors": {"systemNamespace": True},
            "unschedulableGraceSeconds": 3600,
            **further,
        }
        self.token = folder / "token"
        self.token.write_text("first")
        config = {
            "current-context": "c",
            "clusters": [{"name": "c", "cluster": {"server": url}}],
            "users": [{"name": "c", "user": {"tokenFile": str(self.token)}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "c"}}],
        }
        (folder / "controller.yaml").write_text(yaml.safe_dump(settings))
        (folder / "kubeconfig").write_text(yaml.safe_dump(config))
        self.log = folder / "log"
        self.exits: list[int] = []
        self.process: asyncio.subprocess.Process | Forked | None = None
        self._supervisor: asyncio.Task[None] | None = None

    async def start(self, program: tuple[str, ...] = ()) -> None:
        """``program``: what Python is to run in place of the controller."""
        await self._spawn(program)
        self._supervisor = asyncio.create_task(self._supervise(program))

    async def _spawn(self, program: tuple[str, ...]) -> None:
        settings = [f"--config={self._folder / 'controller.yaml'}", f"--kubeconfig={self._folder / 'kubeconfig'}"]
        if not program:
            self.process = preloaded().start(settings, self.log, POD_NAME=self._identity)
            return
        environment = {**os.environ, "POD_NAME": self._identity, "PYTHONPATH": "src"}
        with self.log.open("ab") as log:
            self.process = await asyncio.create_subprocess_exec(
                sys.executable, *program, "controller", *settings, stderr=log, env=environment
            )

    async def _supervise(self, program: tuple[str, ...]) -> None:
        while True:
            assert self.process is not None
            self.exits.append(await self.process.wait())
            if not self._restart:
                return
            await self._spawn(program)

    def signal(self, number: signal.Signals) -> None:
        if self.process is not None and self.process.returncode is None:
            self.process.send_signal(number)

    async def ended(self, seconds: float) -> int:
        """The exit status of a process that is not started again."""
        assert self._supervisor is not None
        await asyncio.wait_for(asyncio.shield(self._supervisor), seconds)
        return self.exits[-1]

    async def close(self) -> None:
        if self._supervisor is not None:
            self._supervisor.cancel()
        self.signal(signal.SIGCONT)
        self.signal(signal.SIGKILL)
        if self.process is not None:
            await self.process.wait()

    @property
    def resident_bytes(self) -> int:
        assert self.process is not None
        return int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def complaints(self) -> list[str]:
        """What it logged as warning or error."""
        return [text for text in self.log.read_text().splitlines() if " WARNING " in text or " ERROR " in text]


def crash(controller: Controller, *, after: bool) -> Action:
    """The controller dies before a write reaches the API server, or ``after`` it, before its answer comes back."""

    async def act(exchange: Exchange):
        if after:
            await exchange.forward()
        controller.signal(signal.SIGKILL)
        return await drop(exchange)

    return act


@asynccontextmanager
async def a_few_at_a_time(
    cases: Iterable[Case], work: Callable[[Any], Awaitable[None]]
) -> AsyncIterator[dict[Case, asyncio.Task[None]]]:
    """Starts the work on all cases, four of them at a time: most of their time is waiting. What still runs at the end
    is cancelled."""
    few = asyncio.Semaphore(4)

    async def one(case: Case) -> None:
        async with few:
            await work(case)

    running = {case: asyncio.create_task(one(case)) for case in cases}
    try:
        yield running
    finally:
        for task in running.values():
            task.cancel()
        await asyncio.gather(*running.values(), return_exceptions=True)


def parameters(items: Iterable[pytest.Item], *names: str) -> list[Case]:
    """The values that tests which were chosen to run have for these parameters."""
    chosen = [item.callspec.params for item in items if isinstance(item, pytest.Function) and hasattr(item, "callspec")]
    return [tuple(params[name] for name in names) for params in chosen if params.keys() >= set(names)]


class Run:
    """One namespace with one controller (more where a test adds them)."""

    prefixes, plurals = PREFIXES, PLURALS

    def __init__(self, api: Api, folder: Path) -> None:
        self.api, self._folder = api, folder
        self.namespace = f"faults-{uuid.uuid4().hex[:8]}"
        self.proxy = Proxy(api.credentials, api.session, self.namespace)
        self.settings: Object = {}
        """Of the controller, beyond those that every run has."""
        self.snapshots: list[list[str]] = []
        self._controllers: list[Controller] = []
        self._proxies = [self.proxy]

    async def __aenter__(self) -> Run:
        await self.api.call("POST", "/api/v1/namespaces", {"metadata": {"name": self.namespace}})
        await self.proxy.start()
        self.controller = self.new_controller(self.proxy)
        return self

    async def __aexit__(self, *_unused: object) -> None:
        for controller in self._controllers:
            await controller.close()
        for proxy in self._proxies:
            await proxy.close()
        for one in await self.all("Model"):
            await self.patch("Model", one["metadata"]["name"], {"metadata": {"finalizers": None}})
        await self.api.call("DELETE", f"/api/v1/namespaces/{self.namespace}")

    async def new_proxy(self) -> Proxy:
        proxy = Proxy(self.api.credentials, self.api.session, self.namespace)
        await proxy.start()
        self._proxies.append(proxy)
        return proxy

    def new_controller(self, proxy: Proxy, identity: str = "one", *, restart: bool = True) -> Controller:
        folder = self._folder / self.namespace / identity
        self._controllers.append(Controller(folder, self.namespace, proxy.url, identity, restart, self.settings))
        return self._controllers[-1]

    # What a person or another program does

    def path(self, kind: str, name: str = "") -> str:
        path = f"{self.prefixes[kind]}/namespaces/{self.namespace}/{self.plurals[kind]}"
        return f"{path}/{name}" if name else path

    async def get(self, kind: str, name: str = "m") -> Object | None:
        return await self.api.call("GET", self.path(kind, name))

    async def all(self, kind: str) -> list[Object]:
        answer = await self.api.call("GET", self.path(kind)) or {"items": []}
        version = self.prefixes[kind].removeprefix("/apis/").removeprefix("/api/")
        return [{**item, "kind": kind, "apiVersion": version} for item in answer["items"]]

    async def create(self, kind: str, obj: Object) -> Object:
        instance = await self.api.call("POST", self.path(kind), obj)
        assert instance is not None
        return instance

    async def patch(self, kind: str, name: str, change: Object) -> Object | None:
        return await self.api.call("PATCH", self.path(kind, name), change, "application/merge-patch+json")

    async def delete(self, kind: str, name: str = "m", propagation: str = "Background") -> None:
        await self.api.call("DELETE", self.path(kind, name), {"propagationPolicy": propagation})

    # Waiting and invariants

    async def leads(self, proxy: Proxy | None = None, since: float = 0.0) -> None:
        """Waits until a controller behind the proxy has taken or renewed the lease after this time."""
        log = (proxy or self.proxy).log
        await self.until(
            self.always(
                lambda: any(
                    one.resource == "leases" and one.at >= since and one.status in (200, 201) and one.method != "GET"
                    for one in log
                )
            ),
            what="no controller leads",
        )

    async def replace_leader(self) -> None:
        """Kills the controller, and waits until its successor leads."""
        before = len(self.controller.exits)
        self.controller.signal(signal.SIGKILL)
        await self.until(self.always(lambda: len(self.controller.exits) > before), what="it still runs")
        await self.leads(since=time.monotonic())

    async def follows(self, proxy: Proxy) -> None:
        """Waits until a controller behind the proxy looks at the lease."""
        await self.until(
            self.always(lambda: any(one.resource == "leases" for one in proxy.log)), what="no controller follows"
        )

    @staticmethod
    def always(test: Callable[[], Any]) -> Callable[[], Awaitable[Any]]:
        """A plain test as one that can be awaited."""

        async def ask() -> Any:
            return test()

        return ask

    async def until(self, test: Callable[[], Awaitable[Any]], seconds: float = PATIENCE, what: str = "") -> Any:
        deadline, last = time.monotonic() + seconds, ""
        while True:
            try:
                if outcome := await test():
                    return outcome
            except AssertionError as error:
                last = str(error)
            assert time.monotonic() < deadline, f"{what or 'did not happen in time'}: {last}\n{self.describe()}"
            await asyncio.sleep(0.05)

    async def settled(self, *names: str, seconds: float = PATIENCE) -> None:
        """I1, I2, I3: children and status are as planned, and nothing is written any more."""

        async def quiet() -> bool:
            for name in names or ("m",):
                await self.converged(name)
            writes = [write for proxy in self._proxies for write in proxy.writes]
            return not writes or time.monotonic() - max(write.at for write in writes) > QUIET_SECONDS

        await self.until(quiet, seconds, "did not settle")

    async def rests(self, seconds: float = 2.0) -> None:
        """Nothing has been written for so long: Kubernetes' own controllers have told what they had to tell."""

        def silent() -> bool:
            writes = [write for proxy in self._proxies for write in proxy.writes]
            return not writes or time.monotonic() - max(write.at for write in writes) > seconds

        await self.until(self.always(silent), what="does not come to rest")

    async def converged(self, name: str) -> None:
        """I1, I6: the planned children, each once. I2: the status speaks of this generation and says the truth."""
        resource = await self.get("Model", name)
        assert resource is not None
        expected = planned(resource)
        owned = await self.owned(resource["metadata"]["uid"])
        assert set(owned) == set(expected), f"children {sorted(owned)}"
        for role, child in expected.items():
            assert includes(owned[role], child), f"{role} is not as planned"
            assert "deletionTimestamp" not in owned[role]["metadata"], f"{role} is being deleted"
        status, deployed = resource.get("status", {}), owned["Deployment", name]
        assert status.get("observedGeneration") == resource["metadata"]["generation"], "status is of an old generation"
        assert deployed["status"].get("observedGeneration") == deployed["metadata"]["generation"], "rollout not begun"
        assert deployed["status"].get("updatedReplicas") == deployed["spec"]["replicas"], "pods are still being made"
        assert status["replicas"] == deployed["status"].get("replicas", 0) > 0
        reasons = {one["type"]: one["reason"] for one in status["conditions"]}
        assert (status["phase"], reasons["Available"], reasons["Accepted"]) == ("Pending", "WaitingForPods", "Valid")

    async def owned(self, uid: str) -> dict[tuple[str, str], Object]:
        children = {}
        for kind in CHILDREN:
            for obj in await self.all(kind):
                if any(one["uid"] == uid for one in obj["metadata"].get("ownerReferences", [])):
                    children[kind, obj["metadata"]["name"]] = obj
        return children

    async def has_children(self, name: str = "m") -> bool:
        """Whether the model's children are there, whatever they look like."""
        resource = await self.get("Model", name)
        return resource is not None and set(await self.owned(resource["metadata"]["uid"])) == set(planned(resource))

    async def gone(self, name: str = "m", seconds: float = PATIENCE) -> None:
        """I5: neither the resource nor anything of it is left."""

        async def nothing() -> bool:
            if await self.get("Model", name) is not None:
                return False
            orphans = [kind for kind in CHILDREN for obj in await self.all(kind) if obj["metadata"]["name"] == name]
            assert not orphans, f"orphans: {orphans}"
            return True

        await self.until(nothing, seconds, "deletion did not end")

    async def scenario(self) -> None:
        """Create, change, delete one Model; keeps what the world looked like after each step."""
        self.proxy.stage = "create"
        await self.create("Model", model())
        await self.settled()
        self.snapshots.append(await self.snapshot())
        self.proxy.stage = "change"
        await self.patch("Model", "m", {"spec": {"args": ["--ctx-size", "512"], "port": 9090}})
        await self.settled()
        self.snapshots.append(await self.snapshot())
        self.proxy.stage = "delete"
        await self.delete("Model")
        await self.gone()

    async def snapshot(self) -> list[str]:
        """The world as lines of text without what differs from run to run by its nature."""
        resource = await self.get("Model")
        assert resource is not None
        owned = await self.owned(resource["metadata"]["uid"])
        world = [without(resource), *(without(owned[role]) for role in sorted(owned))]
        return yaml.safe_dump(world).replace(self.namespace, "NAMESPACE").splitlines()

    def describe(self) -> str:
        """For a failed test: what was written and logged."""
        writes = "\n".join(repr(write) for proxy in self._proxies for write in proxy.writes[-30:])
        logs = "\n".join(
            controller.log.read_text()[-3000:] for controller in self._controllers if controller.log.exists()
        )
        return f"writes:\n{writes}\nlog:\n{logs}"

    async def started_with(self, *names: str) -> None:
        """Models made by a controller that runs, everything settled."""
        await self.controller.start()
        for name in names or ("m",):
            await self.create("Model", model(name))
        await self.settled(*names)

    def lists(self, resource: str = "") -> list[Exchange]:
        return [one for one in self.proxy.log if one.list and resource in one.resource]

    def watches(self, resource: str = "") -> list[Exchange]:
        return [one for one in self.proxy.log if one.watch and resource in one.resource]

    def no_child_was_deleted(self) -> None:
        """I7: desired objects are never deleted. A budget is desired from the second replica on."""
        deletions = [write for proxy in self._proxies for write in proxy.writes if write.method == "DELETE"]
        assert [write for write in deletions if write.resource != "poddisruptionbudgets"] == []


def planned(resource: Object) -> dict[tuple[str, str], Object]:
    """What the API's plan says, by kind and name, without what the applier adds."""
    world = World(
        resource=resource,
        children={},
        pods=(),
        routed=(),
        settings=Settings(),
        now=0,
        listers=worlds.known_world(KRYPTON),
    )
    return {(child["kind"], child["metadata"]["name"]): child for child in worlds.plan(KRYPTON, world).children}


def includes(live: Any, expected: Any) -> bool:
    """Whether every field of ``expected`` is in ``live`` with its value."""
    if isinstance(expected, dict) and isinstance(live, dict):
        return all(includes(live.get(field), value) for field, value in expected.items())
    if isinstance(expected, list) and isinstance(live, list):
        return len(expected) == len(live) and all(map(includes, live, expected))
    return bool(live == msgspec.to_builtins(expected))


def without(obj: Any) -> Any:
    """An object without identities, versions, times and addresses, and without a child's status."""
    if isinstance(obj, list):
        return [without(one) for one in obj]
    if not isinstance(obj, dict):
        return obj
    child = obj.get("kind") in CHILDREN
    dropped = OF_THE_SERVER | {"clusterIP", "clusterIPs", "annotations"} | ({"status"} if child else set())
    if obj.get("apiVersion", "").startswith("krypton.ai") and "observedGeneration" in obj:
        dropped = OF_THE_SERVER
    return {field: without(value) for field, value in obj.items() if field not in dropped}


def rate(exchanges: list[Exchange]) -> int:
    """The most requests in any second."""
    return max((sum(one.at <= other.at < one.at + 1 for other in exchanges) for one in exchanges), default=0)
