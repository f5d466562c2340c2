"""Loaders in pods are asked and told, and what they say shows in labels and status."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from aiohttp import web

from slipway.controller.loaders import agents as agents_module
from slipway.controller.loaders.agents import LoaderClients
from slipway.kube.objects import DEPLOYMENT, POD, Key, Object, labels, uid
from slipway.loader.agent.gate import Gate
from slipway.serving.wire import agent
from slipway.serving.wire.agent import Adapter, AdapterSet, AdapterState, AgentReport, Progress
from slipway.serving.wire.proof import SigningKey, public_key

from .conftest import KEY, TOY

A = Key("models", "a")


V1, V2 = (f"hf://acme/sql@{state}" for state in ("v1", "v2"))


class Loader:
    """A loader that fetches at once, and holds back another version until it may replace the old one. What does not
    come from the controller, and for its pod, it refuses."""

    def __init__(self, pod: Callable[[], str], key: SigningKey = KEY) -> None:
        self.pod, self.key = pod, public_key(key.public)
        self.urls: dict[str, str] = {}
        self.loaded: dict[str, str] = {}
        self.desired_lists: list[tuple[Adapter, ...]] = []
        self.requests = 0
        self.answers = asyncio.Event()
        self.answers.set()
        self.broken = False
        self.progress: Progress | None = None
        self.elsewhere = ""
        self.visited = False
        self.fetched: dict[str, str] = {}

    def application(self) -> web.Application:
        app = web.Application()
        app.router.add_get("/v1/state", self.state)
        app.router.add_put("/v1/adapters", self.adapters)
        app.router.add_get("/elsewhere", self.visit)
        return app

    async def visit(self, _unused: web.Request) -> web.Response:
        self.visited = True
        return self.report()

    def report(self) -> web.Response:
        states = tuple(self.one(name, digest) for name, digest in self.fetched.items())
        return web.Response(body=msgspec.json.encode(AgentReport(states, self.progress)))

    def one(self, name: str, digest: str) -> AdapterState:
        loaded = self.loaded.get(name, "")
        shown = agent.label(self.urls[loaded]) if loaded else ""
        return AdapterState(
            name, digest, "Loaded" if loaded == digest else "Fetched", loaded=loaded, loaded_label=shown
        )

    async def state(self, request: web.Request) -> web.Response:
        self.requests += 1
        await self.answers.wait()
        Gate(self.key, self.pod()).verify(request)
        if self.elsewhere:
            raise web.HTTPTemporaryRedirect(self.elsewhere + "/elsewhere")
        return web.Response(status=500) if self.broken else self.report()

    async def adapters(self, request: web.Request) -> web.Response:
        gate = Gate(self.key, self.pod())
        desired = msgspec.json.decode(await gate.body(request, gate.verify(request)), type=tuple[Adapter, ...])
        self.desired_lists.append(desired)
        self.fetched = {one.name: one.digest for one in desired}
        self.urls |= {one.digest: one.url for one in desired}
        for one in desired:
            if one.replace or one.name not in self.loaded:
                self.loaded[one.name] = one.digest
        self.loaded = {name: digest for name, digest in self.loaded.items() if name in self.fetched}
        return self.report()


class Pods:
    """Pods of Toy ``a`` in the cluster, each with a loader that answers on this machine."""

    def __init__(self, server: Any, cluster: Any, loaders: dict[str, str]) -> None:
        self.server, self.cluster, self.loaders = server, cluster, loaders
        self.runners: list[web.AppRunner] = []

    async def add(self, name: str, key: SigningKey = KEY) -> Loader:
        loader = Loader(lambda: uid(self.cluster.get(POD, name)), key)
        runner = web.AppRunner(loader.application(), shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        self.runners.append(runner)
        self.loaders[name] = "http://{}:{}".format(*runner.addresses[0][:2])
        await self.put(name, started=True)
        return loader

    async def put(self, name: str, *, started: bool) -> None:
        references = [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "a-1", "uid": "1", "controller": True}]
        containers = [
            {"name": "server", "started": started, "state": {"running": {}}},
            {"name": "loader", "state": {"running": {}}},
        ]
        given = {"app.kubernetes.io/managed-by": "kubeai", "pod-template-hash": "1"}
        pod = self.cluster.find(POD, name)
        metadata = pod["metadata"] if pod else {"labels": given, "ownerReferences": references}
        status = {"podIP": "10.0.0.1", "containerStatuses": containers}
        await self.server.put(self.cluster.path(POD, name), kind="Pod", metadata=metadata, status=status)

    def serves(self, name: str) -> str:
        """The version that requests reach in the pod."""
        return version_of(self.cluster.labels(POD, name))


def version_of(observed: dict[str, str]) -> str:
    label = observed.get("adapter.kubeai.org/sql", "") if "adapter.slipway.inference/sql" in observed else ""
    return {agent.label(V1): "v1", agent.label(V2): "v2", "": ""}[label]


@pytest.fixture
async def pods(server, cluster, loaders, parts, monkeypatch, eventually):
    monkeypatch.setattr(agents_module, "QUICK_SECONDS", 0.05)
    monkeypatch.setattr("slipway.controller.loaders.adapters.DRAIN_SECONDS", 0.3)
    cluster_pods = Pods(server, cluster, loaders)
    await cluster.config()
    await cluster.toy(adapters={"sql": "v1"})
    await eventually(lambda: cluster.find(DEPLOYMENT))
    yield cluster_pods
    for runner in cluster_pods.runners:
        await runner.cleanup()


async def test_an_adapter_is_loaded_and_the_pod_labelled_then_there_is_rest(pods, cluster, eventually, rest):
    loader = await pods.add("a-1-x")
    await eventually(lambda: pods.serves("a-1-x") == "v1")
    assert loader.desired_lists[0] == (Adapter("a_sql", V1),)
    await rest(lambda: loader.requests + len(loader.desired_lists), 0.4)


async def test_an_engine_that_was_restarted_loses_its_label_until_it_has_the_adapter_again(pods, cluster, eventually):
    loader = await pods.add("a-1-x")
    await eventually(lambda: pods.serves("a-1-x") == "v1")
    loader.loaded.clear()
    loader.broken = True
    await pods.put("a-1-x", started=False)
    await eventually(lambda: pods.serves("a-1-x") == "")
    loader.broken = False
    await pods.put("a-1-x", started=True)
    await eventually(lambda: pods.serves("a-1-x") == "v1")
    assert loader.loaded == {"a_sql": agent.version(V1)}


async def test_another_version_goes_from_pod_to_pod_and_some_pod_serves_at_every_moment(
    server, pods, cluster, eventually
):
    names = ("a-1-x", "a-1-y", "a-1-z")
    for name in names:
        await pods.add(name)
    await eventually(lambda: [pods.serves(name) for name in names] == ["v1"] * 3)
    offset, now = len(server.history), dict.fromkeys(names, "v1")
    toy = cluster.get(TOY)
    await server.store(cluster.path(TOY, "a"), {**toy, "spec": {**toy["spec"], "adapters": {"sql": "v2"}}})
    await eventually(lambda: [pods.serves(name) for name in names] == ["v2"] * 3)
    serving = []
    for _version, _change, path, obj in server.history[offset:]:
        if obj["kind"] == "Pod":
            now[path.rpartition("/")[2]] = version_of(labels(obj))
            serving.append(sum(map(bool, now.values())))
    assert min(serving) == 2


async def test_a_new_pod_gets_its_adapters_though_the_spec_became_invalid(server, pods, cluster, eventually):
    await pods.add("a-1-x")
    await eventually(lambda: pods.serves("a-1-x") == "v1")
    await server.remove("/api/v1/namespaces/system/configmaps/config")
    await eventually(lambda: cluster.reason() == "NoConfig")
    await pods.add("a-1-y")
    await eventually(lambda: pods.serves("a-1-y") == "v1")


async def test_a_silent_loader_keeps_its_labels_and_does_not_hold_up_the_others(pods, cluster, eventually):
    first = await pods.add("a-1-x")
    await eventually(lambda: pods.serves("a-1-x") == "v1")
    first.broken = True
    await pods.add("a-1-y")
    await eventually(lambda: pods.serves("a-1-y") == "v1")
    assert pods.serves("a-1-x") == "v1"


async def test_a_loader_of_another_controller_gets_no_orders_and_its_reason_is_logged(
    pods, cluster, eventually, caplog
):
    first = await pods.add("a-1-x")
    await eventually(lambda: pods.serves("a-1-x") == "v1")
    other = await pods.add("a-1-y", SigningKey.generate())
    with caplog.at_level(logging.WARNING, logger="slipway.controller.loaders.agents"):
        await eventually(lambda: "the signature is not the controller's" in caplog.text)
    assert (other.desired_lists, other.loaded, pods.serves("a-1-y")) == ([], {}, "")
    assert len(first.desired_lists) == 1


async def test_a_pod_cannot_send_the_controller_elsewhere(pods, cluster, eventually):
    target, first = await pods.add("a-1-y"), await pods.add("a-1-x")
    await eventually(lambda: pods.serves("a-1-x") == pods.serves("a-1-y") == "v1")
    request_count = first.requests
    first.elsewhere = pods.loaders["a-1-y"]
    await pods.put("a-1-x", started=False)
    # By the second request, the controller has processed the first answer.
    await eventually(lambda: first.requests > request_count + 1)
    assert not target.visited


async def test_progress_shows_in_the_status(server, pods, cluster, eventually):
    loader = await pods.add("a-1-x")
    await eventually(lambda: pods.serves("a-1-x") == "v1")
    loader.progress = Progress(done_bytes=7)
    await pods.put("a-1-x", started=False)
    await eventually(lambda: cluster.get(TOY)["status"]["told"] == [7])


def engine_pod(identity: str) -> Object:
    status = {"podIP": "10.0.0.1", "containerStatuses": [{"name": "loader", "state": {"running": {}}}]}
    return {"metadata": {"name": identity, "namespace": "models", "uid": identity}, "status": status}


@pytest.fixture
async def two(client, session, monkeypatch):
    """Agents, and the loaders of two pods, ``x`` and ``y``, that are not polled yet."""
    monkeypatch.setattr(agents_module, "QUICK_SECONDS", 0.02)
    monkeypatch.setattr(agents_module, "SLOW_SECONDS", 0.02)
    loaders, runners = {name: Loader(lambda name=name: name) for name in "xy"}, {}
    for name, loader in loaders.items():
        runners[name] = web.AppRunner(loader.application(), shutdown_timeout=0.1)
        await runners[name].setup()
        await web.TCPSite(runners[name], "127.0.0.1", 0).start()
    agents = LoaderClients(client, session, lambda pod: "http://{}:{}".format(*runners[uid(pod)].addresses[0][:2]))
    agents.sign_with(KEY)
    yield agents, loaders
    await agents.close()
    for runner in runners.values():
        await runner.cleanup()


class Uncopied(dict[str, AgentReport]):
    def keys(self) -> Any:
        raise AssertionError("the reports of all pods were read")

    __iter__ = keys


async def test_a_look_reads_the_reports_of_its_own_pods_only(two, eventually):
    agents, _unused = two
    agents._reports = Uncopied()
    keys: list[Key] = []
    agents.on_change(TOY, keys.append)
    agents.follow(TOY, A, [engine_pod("x")], AdapterSet())
    await eventually(lambda: keys)
    assert agents.reports([engine_pod("x")]) == {"x": AgentReport((), None)}


@pytest.mark.parametrize("broken", [False, True])
async def test_nothing_is_kept_of_a_pod_that_goes_while_it_is_asked(two, eventually, broken):
    agents, loaders = two
    loaders["x"].answers.clear()
    loaders["x"].broken = broken
    agents.follow(TOY, A, [engine_pod("x"), engine_pod("y")], AdapterSet())
    await eventually(lambda: loaders["x"].requests)
    agents.follow(TOY, A, [engine_pod("y")], AdapterSet())
    loaders["x"].answers.set()
    await eventually(lambda: loaders["y"].requests > 2)
    assert {*agents._reports, *agents._silent} == {"y"}


async def test_progress_of_a_cache_is_asked_for_in_no_hurry_once_there_is_some(
    client, session, monkeypatch, eventually
):
    monkeypatch.setattr(agents_module, "QUICK_SECONDS", 0.02)
    monkeypatch.setattr(agents_module, "PROGRESS_SECONDS", 0.5)
    loader = Loader(lambda: "2")
    loader.broken = True
    runner = web.AppRunner(loader.application(), shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    agents = LoaderClients(client, session, lambda _pod: "http://{}:{}".format(*runner.addresses[0][:2]))
    agents.sign_with(KEY)
    job = {"apiVersion": "batch/v1", "kind": "Job", "name": "load-cache-a", "uid": "1", "controller": True}
    status = {"podIP": "10.0.0.1", "containerStatuses": [{"name": "loader", "state": {"running": {}}}]}
    pod = {"metadata": {"name": "x", "namespace": "models", "uid": "2", "ownerReferences": [job]}, "status": status}
    times: list[float] = []

    def listen(_name: Key) -> None:
        report = agents.reports([pod])["2"]
        assert report.progress is not None
        times.append(time.monotonic())

    agents.on_change(TOY, listen)
    agents.follow(TOY, A, [pod], AdapterSet())
    await eventually(lambda: loader.requests > 1)
    loader.broken = False

    def has_three_reports() -> bool:
        loader.progress = Progress(done_bytes=loader.requests)
        return len(times) == 3

    await eventually(has_three_reports)
    await agents.close()
    await runner.cleanup()
    assert times[2] - times[0] > 0.9


async def test_a_resource_that_is_gone_is_not_asked_for_any_more(server, pods, parts, cluster, eventually, rest):
    loader = await pods.add("a-1-x")
    await eventually(lambda: pods.serves("a-1-x") == "v1")
    await server.remove(cluster.path(TOY, "a"))
    await eventually(lambda: parts.reconciler.resources.store.get(A) is None)
    await rest(lambda: loader.requests)
    assert parts.agents.reports([cluster.get(POD, "a-1-x")]) == {}
