"""Resources are enqueued when requests for their Services begin and end."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
import pytest

from slipway.apis.labels import RESERVED
from slipway.controller.inputs.caches import Caches
from slipway.controller.inputs.demands import Demands
from slipway.controller.inputs.gateways import Traffic
from slipway.controller.loaders.agents import LoaderClients
from slipway.controller.reconciling.reconciler import Reconciler
from slipway.controller.scaling.scaled import ScaledResources
from slipway.kube.metrics import Metrics
from slipway.kube.objects import Key
from slipway.kube.writes.events import Recorder
from slipway.serving.contract.api import Plan, Rejection, StatusResult, World
from slipway.serving.routing.demand import Demand

from .conftest import KEY, SETTINGS, TOY, Toys

A, B = Key("models", "a"), Key("models", "b")
POOL, OTHER = Key("models", "pool"), Key("models", "other")


class Gateways:
    """Requests at the gateways."""

    def __init__(self) -> None:
        self.numbers: dict[Key, float] = {}
        self.complete = True
        self.queries: list[set[Key]] = []

    async def requests(self, services: Iterable[Key]) -> Traffic:
        self.queries.append(set(services))
        return Traffic({one: self.numbers[one] for one in self.queries[-1] if one in self.numbers}, self.complete)


@pytest.fixture
def gateways():
    return Gateways()


@pytest.fixture
def enqueued():
    return []


@pytest.fixture
def demands(gateways, enqueued):
    demands = Demands(gateways, clock=lambda: 100.0)
    demands.on_change(TOY, enqueued.append)
    return demands


async def test_the_gateways_get_no_query_without_counted_services(demands, gateways):
    await demands.refresh()
    assert gateways.queries == []


async def test_the_gateways_count_for_counted_services_only(demands, gateways):
    """However many models others have."""
    demands.follow(TOY, POOL, [A])
    await demands.refresh()
    assert gateways.queries == [{A}]


async def test_a_resource_is_enqueued_once_when_requests_begin_and_once_when_they_end(demands, gateways, enqueued):
    demands.follow(TOY, POOL, [A, B])
    await demands.refresh()
    enqueued.clear()
    for number in (1, 3, 2, 0, 0):
        gateways.numbers = {B: number}
        await demands.refresh()
    assert enqueued == [POOL, POOL]
    assert demands.latest[B] == Demand(busy=False, since=100.0)


async def test_requests_of_a_satisfied_service_are_news_only_while_others_wait(demands, gateways, enqueued):
    demands.follow(TOY, POOL, [A, B], satisfied=[A])
    await demands.refresh()
    enqueued.clear()
    for requests in ({A: 1}, {}, {A: 1}):
        gateways.numbers = requests
        await demands.refresh()
    assert enqueued == []
    gateways.numbers = {A: 1, B: 1}
    await demands.refresh()
    assert enqueued == [POOL]
    gateways.numbers = {B: 1}
    await demands.refresh()
    assert enqueued == [POOL, POOL]
    assert not demands.latest[A].busy


async def test_requests_for_other_services_enqueue_nothing(demands, gateways, enqueued):
    demands.follow(TOY, POOL, [A])
    demands.follow(TOY, OTHER, [B])
    await demands.refresh()
    enqueued.clear()
    gateways.numbers = {B: 1}
    await demands.refresh()
    assert enqueued == [OTHER]


async def test_the_demand_of_a_service_is_dropped_when_it_is_no_longer_counted(demands, gateways, enqueued):
    demands.follow(TOY, POOL, [A, B])
    await demands.refresh()
    demands.follow(TOY, POOL, [B])
    await demands.refresh()
    assert set(demands.latest) == {B}
    demands.follow(TOY, POOL, ())
    await demands.refresh()
    assert not demands.latest


async def test_without_an_answer_from_every_gateway_no_service_becomes_idle(demands, gateways, enqueued):
    demands.follow(TOY, POOL, [A])
    gateways.numbers = {A: 1}
    await demands.refresh()
    gateways.numbers, gateways.complete = {}, False
    await demands.refresh()
    assert demands.latest[A].busy


class Counting(Toys):
    """Toys that count the requests of a Service, and say in their status whether there are any."""

    def plan(self, world: World) -> Plan:
        return msgspec.structs.replace(super().plan(world), counted=(A,))

    def status(self, world: World, rejection: Rejection | None) -> StatusResult:
        enqueued = super().status(world, rejection)
        busy = A in world.demand and world.demand[A].busy
        return msgspec.structs.replace(enqueued, status={**enqueued.status, "busy": busy})


async def test_a_resource_is_reconciled_when_requests_begin(
    client: Any, session: Any, start: Any, cluster: Any, gateways: Gateways, eventually: Any
) -> None:
    api, metrics, demands = Counting(), Metrics(), Demands(gateways)
    caches = Caches(client, [api], SETTINGS, pod_managers=("kubeai",))
    agents, recorder = LoaderClients(client, session), Recorder(client, "test", metrics=metrics)
    agents.sign_with(KEY)
    controller = Reconciler(
        api, client, caches, SETTINGS, recorder, agents, ScaledResources(), RESERVED, demands=demands
    ).controller(2, metrics)
    for informer in caches.informers:
        start(informer.run())
    start(controller.run())
    await cluster.config()
    await cluster.toy()
    await eventually(lambda: cluster.get_status().get("busy") is False)
    gateways.numbers = {A: 1}
    await demands.refresh()
    await eventually(lambda: cluster.get_status()["busy"])
    await agents.close()
