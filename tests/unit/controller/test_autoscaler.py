"""Replicas follow what the gateways say, and what is remembered survives a restart."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from slipway.controller import autoscaler as autoscaler_module
from slipway.controller import gateways as gateways_module
from slipway.controller.autoscaler import Autoscaler, Subject
from slipway.controller.gateways import Gateways, parse
from slipway.kube.metrics import Metrics
from slipway.kube.objects import CONFIG_MAP, Key

from ..kube.conftest import PATIENCE, ApiServer
from .conftest import TOY

STATE = "/api/v1/namespaces/system/configmaps/slipway-autoscaler"
EXPOSITION = """\
# HELP slipway_gateway_requests_in_flight Requests that a server works on.
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

    async def metrics(self, _unused: web.Request) -> web.Response:
        await asyncio.sleep(self.delay)
        lines = [
            f'slipway_gateway_requests_in_flight{{model="{service}",namespace="{namespace}"}} {number}'
            for (namespace, service), number in self.requests.items()
        ]
        return web.Response(status=self.status, text="\n".join(["slipway_gateway_haproxy_up 1.0", *lines, ""]))


@pytest.fixture
async def gateways():
    """Three gateways: what they say, and where."""
    runners, made, addresses = [], [], []
    for _unused in range(3):
        gateway, application = Gateway(), web.Application()
        application.router.add_get("/metrics", gateway.metrics)
        runner = web.AppRunner(application, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        runners.append(runner)
        made.append(gateway)
        addresses.append("{}:{}".format(*runner.addresses[0][:2]))
    yield made, addresses
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
    """Toy ``a`` with two Services, one of them an adapter's, and an autoscaler that looks when it is told to."""
    monkeypatch.setattr(gateways_module, "LIMIT", aiohttp.ClientTimeout(total=PATIENCE))
    await cluster.config()
    await cluster.toy(target=1, interval=10, window=30, services=["model-a", "model-a-sql"])
    await eventually(lambda: "a" in [name.name for name in parts.reconciler.scaled])
    await eventually(lambda: len(parts.reconciler.services(Key("models", "a"))) == 2)
    return Scaled(client, session, parts, gateways, server, eventually)


class Scaled:
    def __init__(
        self, client: Any, session: Any, parts: Any, gateways: Any, server: ApiServer, eventually: Any
    ) -> None:
        self.clock, self.metrics = Clock(), Metrics()
        self._reconciler, self._server, self._eventually = parts.reconciler, server, eventually
        self.gateways, addresses = gateways
        asked = Gateways(client, session, "system", addresses)
        self.autoscaler = Autoscaler(
            client, [parts.reconciler], asked, "system", parts.recorder, self.metrics, self.clock
        )

    async def look(self, seconds: float = 2.0, times: int = 1) -> None:
        for _unused in range(times):
            self.clock.now += seconds
            await self.autoscaler.look()
            if self._server.deliver.is_set():
                await self._eventually(self._told)

    def _told(self) -> bool:
        """Whether the controller knows what was written last."""
        toy, name = self._server.objects[TOY.path("models", "a")], Key("models", "a")
        stored, scaled = self._reconciler.resources.store.get(name), self._reconciler.scaled.get(name)
        known = stored and stored["metadata"]["resourceVersion"] == toy["metadata"]["resourceVersion"]
        return bool(known) and (scaled is None or scaled.generation == toy["metadata"]["generation"])


def replicas(cluster) -> int:
    return int(cluster.get(TOY)["spec"]["replicas"])


def test_in_flight_and_waiting_requests_count_by_service() -> None:
    assert parse(EXPOSITION) == {
        Key("models", "model-a"): 5.0,
        Key("models", "model-b"): 0.0,
        Key("other", "model-a"): 9.0,
    }


@pytest.mark.parametrize("text", ["", "<html>", "slipway_gateway_haproxy_up 0.0\n"])
def test_an_answer_without_numbers_is_no_zero(text: str) -> None:
    with pytest.raises(ValueError, match="knows nothing"):
        parse(text)


async def test_requests_of_all_gateways_and_of_adapters_are_summed(scaled, cluster):
    for gateway, (service, number) in zip(
        scaled.gateways, (("model-a", 1), ("model-a-sql", 2), ("model-a", 3)), strict=True
    ):
        gateway.requests = {("models", service): number, ("models", "others"): 50}
    await scaled.look(times=3)
    assert replicas(cluster) == 6
    text = scaled.metrics.text().decode()
    labels = 'kind="toys.toys.test",name="a",namespace="models"'
    assert f"slipway_autoscaler_active_requests{{{labels}}} 6.0" in text
    assert f"slipway_autoscaler_wanted_replicas{{{labels}}} 6.0" in text


async def test_the_scale_subresource_is_written_once_for_one_change(scaled, cluster, server):
    scaled.gateways[0].requests = {("models", "model-a"): 4}
    await scaled.look(times=6)
    scales = [one for one in server.writes if one.path.endswith("/scale")]
    assert [one.path for one in scales] == [cluster.path(TOY, "a") + "/scale"]


async def test_replicas_that_someone_else_changed_are_not_overwritten(scaled, cluster, server, eventually):
    """What the autoscaler knows is old news: 409. The next look goes on from there."""
    scaled.gateways[0].requests = {("models", "model-a"): 4}
    await scaled.look(times=2)
    server.deliver.clear()
    toy = cluster.get(TOY)
    await server.store(cluster.path(TOY, "a"), {**toy, "spec": {**toy["spec"], "replicas": 9}})
    await scaled.look(times=2)
    assert replicas(cluster) == 9
    server.deliver.set()
    await eventually(scaled._told)
    await scaled.look(times=2)
    assert replicas(cluster) == 9


async def test_a_gateway_that_does_not_answer_keeps_its_last_numbers_and_all_replicas(scaled, cluster):
    scaled.gateways[0].requests = {("models", "model-a"): 4}
    await scaled.look(times=3)
    scaled.gateways[0].status = 500
    await scaled.look(times=60)
    assert replicas(cluster) == 4
    assert "slipway_autoscaler_incomplete_samples_total 60.0" in scaled.metrics.text().decode()
    scaled.gateways[0].status, scaled.gateways[0].requests = 200, {}
    await scaled.look(times=60)
    assert replicas(cluster) == 1


async def test_a_slow_gateway_does_not_hold_up_the_others(scaled, cluster, monkeypatch):
    monkeypatch.setattr(gateways_module, "LIMIT", aiohttp.ClientTimeout(total=0.5))
    scaled.gateways[0].delay = 10 * PATIENCE
    for gateway in scaled.gateways[1:]:
        gateway.requests = {("models", "model-a"): 2}
    async with asyncio.timeout(PATIENCE):
        await scaled.look(times=1)


async def test_without_any_gateway_nothing_goes_down(client, session, parts, scaled, cluster, server, eventually):
    toy = cluster.get(TOY)
    await server.store(cluster.path(TOY, "a"), {**toy, "spec": {**toy["spec"], "replicas": 5}})
    await eventually(lambda: parts.reconciler.scaled[Key("models", "a")].scaling.replicas == 5)
    scaled.autoscaler._gateways = Gateways(client, session, "system")
    await scaled.look(times=120)
    assert replicas(cluster) == 5


async def test_averages_are_kept_each_interval_when_they_changed(scaled, cluster, server):
    scaled.gateways[0].requests = {("models", "model-a"): 3}
    await scaled.look(times=30)
    assert json.loads(server.objects[STATE]["data"]["toys.toys.test"]) == {"models/a": 3.0}
    written = [one for one in server.writes if one.path == STATE]
    assert 3 <= len(written) <= 6
    await scaled.look(times=30)
    assert [one for one in server.writes if one.path == STATE] == written


async def test_a_new_leader_goes_on_from_the_kept_averages(
    client, session, scaled, parts, gateways, cluster, server, eventually
):
    scaled.gateways[0].requests = {("models", "model-a"): 4}
    await scaled.look(times=30)
    scaled.gateways[0].requests = {}
    successor = Scaled(client, session, parts, gateways, server, eventually)
    await successor.look(times=10)
    assert replicas(cluster) == 4
    await successor.look(times=40)
    assert replicas(cluster) == 1


async def test_averages_of_those_that_are_not_reconciled_yet_are_kept(scaled, cluster, server):
    """A restart: the state knows of a model that comes late in the queue."""
    late = Subject("toys.toys.test", Key("models", "late"))
    await server.put(STATE, kind=CONFIG_MAP.kind, data={"toys.toys.test": '{"models/a":2,"models/late":500}'})
    scaled.gateways[0].requests = {("models", "model-a"): 4}
    await scaled.look(times=12)
    kept = json.loads(server.objects[STATE]["data"]["toys.toys.test"])
    assert kept.keys() == {"models/a", "models/late"}
    assert await scaled.autoscaler._averages.known("slipway-autoscaler", late) == 500
    scaled.autoscaler._averages.forget_unasked()
    await scaled.look(times=12)
    assert json.loads(server.objects[STATE]["data"]["toys.toys.test"]).keys() == {"models/a"}


async def test_keys_of_the_original_in_the_same_place_are_left_alone(scaled, cluster, server):
    theirs = '{"models":{"x":{"averageActiveRequests":3}},"lastCalculationTime":"now"}'
    await server.put(STATE, kind=CONFIG_MAP.kind, data={"models": theirs, "toys.toys.test": '{"models/a":5}'})
    await scaled.look()
    assert scaled.autoscaler._loads[Subject("toys.toys.test", Key("models", "a"))].average == 5
    await scaled.look(times=12)
    assert server.objects[STATE]["data"]["models"] == theirs


async def test_averages_that_cannot_be_read_begin_anew(client, session, scaled, cluster, server):
    await server.put(STATE, kind=CONFIG_MAP.kind, data={"toys.toys.test": "{"})
    scaled.gateways[0].requests = {("models", "model-a"): 4}
    await scaled.look(times=3)
    assert replicas(cluster) == 4


async def test_a_resource_that_no_longer_scales_is_left_alone_and_has_no_metrics(
    scaled, parts, cluster, server, eventually
):
    await scaled.look()
    toy = cluster.get(TOY)
    await server.store(cluster.path(TOY, "a"), {**toy, "spec": {"replicas": 7}})
    await eventually(lambda: not parts.reconciler.scaled)
    await scaled.look(times=60)
    assert replicas(cluster) == 7
    assert "slipway_autoscaler_wanted_replicas{" not in scaled.metrics.text().decode()


async def test_gateway_pods_are_found_by_their_label(client, session, server, start, eventually):
    found = Gateways(client, session, "system")
    start(found.pods.run())
    for name, namespace, ready in (("one", "system", True), ("two", "system", False), ("far", "other", True)):
        await server.put(
            f"/api/v1/namespaces/{namespace}/pods/{name}",
            metadata={"labels": {"app.kubernetes.io/name": "slipway-gateway"}},
            status={"podIP": f"10.0.0.{len(name)}{ready:d}", "conditions": [{"type": "Ready", "status": str(ready)}]},
        )
    await eventually(lambda: len(found.pods.store) == 2)
    assert found._wanted() == {"10.0.0.31:8081": True, "10.0.0.30:8081": False}


def test_the_pace_is_quick_enough_for_bursts() -> None:
    assert autoscaler_module.SECONDS <= 2
