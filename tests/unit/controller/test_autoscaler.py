"""Replicas follow what the gateways say, and what is remembered survives a restart."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from slipway.controller.inputs import gateways as gateways_module
from slipway.controller.inputs.gateways import Gateways, parse
from slipway.controller.scaling import autoscaler as autoscaler_module
from slipway.controller.scaling.autoscaler import Autoscaler, Averages, describe_decision
from slipway.controller.scaling.scaled import Scaled as HowItScales
from slipway.controller.scaling.scaled import ScaledResources, Subject
from slipway.kube.caches.store import Store, Stores
from slipway.kube.metrics import Metrics
from slipway.kube.objects import CONFIG_MAP, DEPLOYMENT, Key, Kind
from slipway.serving.routing.scaling import Load, Scaling, begin

from ..kube.conftest import PATIENCE, ApiServer
from .conftest import TOY

A = Subject(TOY, Key("models", "a"))
STATE = "/api/v1/namespaces/system/configmaps/slipway-autoscaler"
EXPOSITION = """\
# HELP slipway_gateway_requests_in_flight Requests in flight at the servers.
slipway_gateway_haproxy_up 1.0
slipway_gateway_requests_in_flight{model="model-a",namespace="models"} 3.0
slipway_gateway_requests_in_flight{model="model-b",namespace="models"} 0.0
slipway_gateway_requests_in_flight{namespace="other",model="model-a"} 9.0
slipway_gateway_requests_waiting{model="model-a",namespace="models"} 2.0
slipway_gateway_requests_total{code="2xx",model="model-a",namespace="models"} 77.0
"""


class Gateway:
    """Metrics of one gateway."""

    def __init__(self) -> None:
        self.requests: dict[tuple[str, str], float] = {}
        self.status = 200
        self.delay = 0.0
        self.queries: list[list[str]] = []

    async def metrics(self, _unused: web.Request) -> web.Response:
        await asyncio.sleep(self.delay)
        lines = [
            f'slipway_gateway_requests_in_flight{{model="{service}",namespace="{namespace}"}} {number}'
            for (namespace, service), number in self.requests.items()
        ]
        return web.Response(status=self.status, text="\n".join(["slipway_gateway_haproxy_up 1.0", *lines, ""]))

    async def count(self, request: web.Request) -> web.Response:
        await asyncio.sleep(self.delay)
        self.queries.append(request.query.getall("service"))
        numbers = {"/".join(service): int(number) for service, number in self.requests.items()}
        answer = {service: numbers[service] for service in self.queries[-1] if service in numbers}
        return web.json_response(answer, status=self.status)


@pytest.fixture
async def gateways():
    """Three gateways: what they say, and where."""
    runners, servers, addresses = [], [], []
    for _unused in range(3):
        gateway, application = Gateway(), web.Application()
        application.router.add_get("/metrics", gateway.metrics)
        application.router.add_get("/requests", gateway.count)
        runner = web.AppRunner(application, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        runners.append(runner)
        servers.append(gateway)
        addresses.append("{}:{}".format(*runner.addresses[0][:2]))
    yield servers, addresses
    for runner in runners:
        await runner.cleanup()


class Clock:
    """Monotonic seconds as a test wants them."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
async def scaled(client, session, parts, gateways, cluster, server, eventually, monkeypatch):
    """Toy ``a`` with two Services, one of them an adapter's, and an autoscaler that samples when the test calls it."""
    monkeypatch.setattr(gateways_module, "LIMIT", aiohttp.ClientTimeout(total=PATIENCE))
    await cluster.config()
    await cluster.toy(target=1, interval=10, window=30, services=["model-a", "model-a-sql"])
    await eventually(lambda: (scaling := parts.scaled.get(A)) and len(scaling.services) == 2)
    return Scaled(client, session, parts, gateways, server, eventually)


class Scaled:
    def __init__(
        self, client: Any, session: Any, parts: Any, gateways: Any, server: ApiServer, eventually: Any
    ) -> None:
        self.clock, self.metrics = Clock(), Metrics()
        self._parts, self._server, self._eventually = parts, server, eventually
        self.gateways, addresses = gateways
        poller = Gateways(client, session, "system", addresses)
        self.autoscaler = Autoscaler(
            client, parts.caches, parts.scaled, poller, "system", parts.recorder, self.metrics, self.clock
        )

    async def sample(self, seconds: float = 2.0, times: int = 1) -> None:
        for _unused in range(times):
            self.clock.now += seconds
            await self.autoscaler.sample()
            if self._server.deliver.is_set():
                await self._eventually(self._is_observed)

    def _is_observed(self) -> bool:
        """Whether the controller knows what was written last."""
        toy = self._server.objects[TOY.path("models", "a")]
        stored, scaled = self._parts.caches.get(*A), self._parts.scaled.get(A)
        same_version = stored and stored["metadata"]["resourceVersion"] == toy["metadata"]["resourceVersion"]
        return bool(same_version) and (scaled is None or scaled.generation == toy["metadata"]["generation"])


def replicas(cluster) -> int:
    return int(cluster.get(TOY)["spec"]["replicas"])


def test_in_flight_and_waiting_requests_count_by_service() -> None:
    assert parse(EXPOSITION) == {
        Key("models", "model-a"): 5.0,
        Key("models", "model-b"): 0.0,
        Key("other", "model-a"): 9.0,
    }


def test_labels_are_read_as_prometheus_writes_them() -> None:
    line = 'slipway_gateway_requests_waiting{model="a\\"}b\\n",namespace="models"} 1e0 1395066363000\n'
    assert parse(line) == {Key("models", 'a"}b\n'): 1.0}


@pytest.mark.parametrize("text", ["slipway_gateway_requests_waiting{model=", "slipway_gateway_requests_waiting{} x\n"])
def test_an_answer_that_is_cut_off_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse(text)


async def test_an_answer_that_is_too_long_is_none(scaled, monkeypatch, cluster) -> None:
    monkeypatch.setattr(gateways_module, "METRICS_BYTES", 100)
    scaled.gateways[0].requests = {("models", "model-a"): 4}
    await scaled.sample(times=12)
    assert replicas(cluster) == 1


@pytest.mark.parametrize("text", ["", "<html>", "slipway_gateway_haproxy_up 0.0\n"])
def test_an_answer_without_numbers_is_no_zero(text: str) -> None:
    with pytest.raises(ValueError, match="does not report its requests"):
        parse(text)


async def test_requests_of_all_gateways_and_of_adapters_are_summed(scaled, cluster):
    for gateway, (service, number) in zip(
        scaled.gateways, (("model-a", 1), ("model-a-sql", 2), ("model-a", 3)), strict=True
    ):
        gateway.requests = {("models", service): number, ("models", "others"): 50}
    await scaled.sample(times=3)
    assert replicas(cluster) == 6
    text = scaled.metrics.text().decode()
    labels = 'kind="toys.toys.test",name="a",namespace="models"'
    assert f"slipway_autoscaler_active_requests{{{labels}}} 6.0" in text
    assert f"slipway_autoscaler_wanted_replicas{{{labels}}} 6.0" in text


async def test_the_scale_subresource_is_written_once_for_one_change(scaled, cluster, server):
    scaled.gateways[0].requests = {("models", "model-a"): 4}
    await scaled.sample(times=6)
    scales = [one for one in server.writes if one.path.endswith("/scale")]
    assert [one.path for one in scales] == [cluster.path(TOY, "a") + "/scale"]


async def test_the_autoscaler_does_not_overwrite_foreign_changes_of_replicas(scaled, cluster, server, eventually):
    """What the autoscaler knows is old news: 409. The next look goes on from there."""
    scaled.gateways[0].requests = {("models", "model-a"): 4}
    await scaled.sample(times=2)
    server.deliver.clear()
    toy = cluster.get(TOY)
    await server.store(cluster.path(TOY, "a"), {**toy, "spec": {**toy["spec"], "replicas": 9}})
    await scaled.sample(times=2)
    assert replicas(cluster) == 9
    server.deliver.set()
    await eventually(scaled._is_observed)
    await scaled.sample(times=2)
    assert replicas(cluster) == 9


async def test_a_gateway_that_does_not_answer_keeps_its_last_numbers_and_all_replicas(scaled, cluster):
    scaled.gateways[0].requests = {("models", "model-a"): 4}
    await scaled.sample(times=3)
    scaled.gateways[0].status = 500
    await scaled.sample(times=60)
    assert replicas(cluster) == 4
    assert "slipway_autoscaler_incomplete_samples_total 60.0" in scaled.metrics.text().decode()
    scaled.gateways[0].status, scaled.gateways[0].requests = 200, {}
    await scaled.sample(times=60)
    assert replicas(cluster) == 1


async def test_a_slow_gateway_does_not_hold_up_the_others(scaled, cluster, monkeypatch):
    monkeypatch.setattr(gateways_module, "LIMIT", aiohttp.ClientTimeout(total=0.5))
    scaled.gateways[0].delay = 10 * PATIENCE
    for gateway in scaled.gateways[1:]:
        gateway.requests = {("models", "model-a"): 2}
    async with asyncio.timeout(PATIENCE):
        await scaled.sample(times=1)


async def test_without_any_gateway_nothing_goes_down(client, session, parts, scaled, cluster, server, eventually):
    toy = cluster.get(TOY)
    await server.store(cluster.path(TOY, "a"), {**toy, "spec": {**toy["spec"], "replicas": 5}})
    await eventually(lambda: parts.scaled.get(A).scaling.replicas == 5)
    scaled.autoscaler._gateways = Gateways(client, session, "system")
    await scaled.sample(times=120)
    assert replicas(cluster) == 5


async def test_averages_are_kept_each_interval_when_they_changed(scaled, cluster, server):
    scaled.gateways[0].requests = {("models", "model-a"): 3}
    await scaled.sample(times=30)
    assert json.loads(server.objects[STATE]["data"]["toys.toys.test"]) == {"models/a": 3.0}
    written = [one for one in server.writes if one.path == STATE]
    assert 3 <= len(written) <= 6
    await scaled.sample(times=30)
    assert [one for one in server.writes if one.path == STATE] == written


async def test_why_nothing_is_scaled_is_logged_though_the_averages_cannot_be_written_either(
    scaled, cluster, server, script, caplog
):
    server.fault("PATCH", "/scale", script.refuse(403, "Forbidden", "no scaling"), times=99)
    server.fault("PATCH", STATE, script.refuse(403, "Forbidden", "no averages"), times=99)
    scaled.gateways[0].requests = {("models", "model-a"): 4}
    await scaled.sample(times=8)
    assert "Could not scale Toy models/a; retrying with the next sample" in caplog.text
    assert "no scaling" in caplog.text
    assert "no averages" in caplog.text


async def test_averages_that_cannot_be_written_do_not_block_others(client, server, script):
    averages, scalings = Averages(client, "system"), {}
    for state, name in (("one", "a"), ("two", "b")):
        subject = Subject(TOY, Key("models", name))
        scalings[subject] = Scaling(
            replicas=1,
            min_replicas=1,
            max_replicas=9,
            target_requests=1,
            interval=10,
            window=30,
            scale_down_delay=30,
            state=state,
        )
        await averages.restore(state, subject)
    loads = {subject: begin(scaling, 4.0, 0.0) for subject, scaling in scalings.items()}
    server.fault("PATCH", "/one", script.refuse(403, "Forbidden"))
    await averages.save(scalings, loads, 0.0)
    written = "/api/v1/namespaces/system/configmaps/"
    assert json.loads(server.objects[f"{written}two"]["data"]["toys.toys.test"]) == {"models/b": 4.0}
    await averages.save(scalings, loads, 10.0)
    assert json.loads(server.objects[f"{written}one"]["data"]["toys.toys.test"]) == {"models/a": 4.0}


async def test_a_new_leader_goes_on_from_the_kept_averages(
    client, session, scaled, parts, gateways, cluster, server, eventually
):
    scaled.gateways[0].requests = {("models", "model-a"): 4}
    await scaled.sample(times=30)
    scaled.gateways[0].requests = {}
    successor = Scaled(client, session, parts, gateways, server, eventually)
    await successor.sample(times=10)
    assert replicas(cluster) == 4
    await successor.sample(times=40)
    assert replicas(cluster) == 1


async def test_averages_of_those_that_are_not_reconciled_yet_are_kept(scaled, cluster, server):
    """A restart: the state knows of a model that comes late in the queue."""
    late = Subject(TOY, Key("models", "late"))
    await server.put(STATE, kind=CONFIG_MAP.kind, data={"toys.toys.test": '{"models/a":2,"models/late":500}'})
    scaled.gateways[0].requests = {("models", "model-a"): 4}
    await scaled.sample(times=12)
    kept = json.loads(server.objects[STATE]["data"]["toys.toys.test"])
    assert kept.keys() == {"models/a", "models/late"}
    assert await scaled.autoscaler._averages.restore("slipway-autoscaler", late) == 500
    scaled.autoscaler._averages.forget_unclaimed()
    await scaled.sample(times=12)
    assert json.loads(server.objects[STATE]["data"]["toys.toys.test"]).keys() == {"models/a"}


async def test_keys_of_the_original_in_the_same_place_are_left_alone(scaled, cluster, server):
    theirs = '{"models":{"x":{"averageActiveRequests":3}},"lastCalculationTime":"now"}'
    await server.put(STATE, kind=CONFIG_MAP.kind, data={"models": theirs, "toys.toys.test": '{"models/a":5}'})
    await scaled.sample()
    assert scaled.autoscaler._loads[A].average == 5
    await scaled.sample(times=12)
    assert server.objects[STATE]["data"]["models"] == theirs


async def test_averages_that_cannot_be_read_begin_again(client, session, scaled, cluster, server):
    await server.put(STATE, kind=CONFIG_MAP.kind, data={"toys.toys.test": "{"})
    scaled.gateways[0].requests = {("models", "model-a"): 4}
    await scaled.sample(times=3)
    assert replicas(cluster) == 4


async def test_a_resource_that_no_longer_scales_is_left_alone_and_has_no_metrics(
    scaled, parts, cluster, server, eventually
):
    await scaled.sample()
    toy = cluster.get(TOY)
    await server.store(cluster.path(TOY, "a"), {**toy, "spec": {"replicas": 7}})
    await eventually(lambda: parts.scaled.get(A) is None)
    await scaled.sample(times=60)
    assert replicas(cluster) == 7
    assert "slipway_autoscaler_wanted_replicas{" not in scaled.metrics.text().decode()


async def test_gateway_pods_are_found_by_their_label(client, session, server, start, eventually):
    poller = Gateways(client, session, "system")
    start(poller.pods.run())
    for name, namespace, ready in (("one", "system", True), ("two", "system", False), ("far", "other", True)):
        await server.put(
            f"/api/v1/namespaces/{namespace}/pods/{name}",
            metadata={"labels": {"app.kubernetes.io/name": "slipway-gateway"}},
            status={"podIP": f"10.0.0.{len(name)}{ready:d}", "conditions": [{"type": "Ready", "status": str(ready)}]},
        )
    await eventually(lambda: len(poller.pods.store) == 2)
    assert poller._list_addresses() == {"10.0.0.31:8081": True, "10.0.0.30:8081": False}


def test_the_pace_is_quick_enough_for_bursts() -> None:
    assert autoscaler_module.SECONDS <= 2


WIDE = Kind("toys.test", "v1", "ClusterToy", "clustertoys", namespaced=False)


async def test_a_child_of_a_cluster_scoped_resource_is_scaled_by_its_services(client, session, parts, gateways, server):
    """And its average is kept over a restart though it has no namespace."""
    wide, target = Subject(WIDE, Key("", "w")), Subject(DEPLOYMENT, Key("models", "engine"))
    place = DEPLOYMENT.path("models", "engine")
    deployment = await server.put(place, kind="Deployment", apiVersion="apps/v1", spec={"replicas": 1})
    stores = {WIDE: Store(), DEPLOYMENT: Store()}
    stores[WIDE].put({"metadata": {"name": "w", "uid": "w"}})
    stores[DEPLOYMENT].put(deployment)
    scaling = Scaling(
        replicas=1, min_replicas=1, max_replicas=9, target_requests=1, interval=10, window=30, scale_down_delay=30
    )
    resources, clock, autoscalers = ScaledResources(), Clock(), []
    counting = [Key("models", "engine")]
    resources.put(wide, HowItScales(scaling=scaling, target=target, generation=1, services=counting))
    servers, addresses = gateways
    servers[0].requests = {("models", "engine"): 4, ("models", "router"): 9}
    for _unused in range(2):
        poller, caches = Gateways(client, session, "system", addresses), Stores(stores)
        autoscalers.append(Autoscaler(client, caches, resources, poller, "system", parts.recorder, Metrics(), clock))  # type: ignore[arg-type]
    for _unused in range(40):
        clock.now += 2.0
        await autoscalers[0].sample()
    assert server.objects[place]["spec"]["replicas"] == 4
    assert json.loads(server.objects[STATE]["data"]["clustertoys.toys.test"]) == {"w": 4.0}
    assert await autoscalers[1]._averages.restore("slipway-autoscaler", wide) == 4.0


def test_an_event_contains_the_figures_behind_the_decision() -> None:
    scaling = Scaling(
        replicas=0, min_replicas=0, max_replicas=4, target_requests=8, interval=10, window=60, scale_down_delay=30
    )
    assert describe_decision(scaling, 1, 0, Load(window=(3.0, 0.0), began=0)) == (
        "Scaled from 0 to 1 replica: 0 requests in flight or waiting now, 1.5 on average over 60 s;"
        " target: 8 per replica."
    )


async def test_requests_for_some_services_are_added_over_all_gateways(client: Any, session: Any, gateways: Any) -> None:
    (first, second, third), addresses = gateways
    counter = Gateways(client, session, "system", addresses)
    first.requests, second.requests = {("models", "a"): 2, ("models", "other"): 9}, {("models", "a"): 3}
    traffic = await counter.requests([Key("models", "a")])
    assert traffic == ({Key("models", "a"): 5.0}, True)
    third.status = 404  # a gateway of an earlier version
    traffic = await counter.requests([Key("models", "a")])
    assert traffic == ({Key("models", "a"): 5.0}, False)


async def test_requests_for_many_services_are_counted_in_parts(client: Any, session: Any, gateways: Any) -> None:
    (first, *_others), addresses = gateways
    services = [Key("models", f"a-{number}") for number in range(gateways_module.AT_ONCE + 1)]
    traffic = await Gateways(client, session, "system", addresses).requests(services)
    assert traffic.complete
    assert sorted(map(len, first.queries)) == [1, gateways_module.AT_ONCE]
