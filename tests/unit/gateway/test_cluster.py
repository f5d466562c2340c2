"""The cluster as a source: what the API server tells becomes table, keys and Events."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import logging
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import pytest

from slipway.gateway.cluster import Cluster
from slipway.gateway.table import EMPTY, RoutingTable
from slipway.kube.client import Page, WatchEvent
from slipway.kube.errors import NotFound
from slipway.kube.metrics import Metrics
from slipway.kube.objects import EVENT, SECRET, Key, Kind

ROUTE = "slipway.inference/route"


class Api:
    """As much of a Client as the source uses. Watches show what `tell` is given."""

    def __init__(self, metrics: Metrics, *objects: dict[str, Any]) -> None:
        self.metrics = metrics
        self.objects = list(objects)
        self.written: list[dict[str, Any]] = []
        self.asked: list[tuple[str, str]] = []
        self._news: dict[str, asyncio.Queue[WatchEvent]] = {}

    def tell(self, kind: str, type_: str, obj: dict[str, Any]) -> None:
        self._queue(kind).put_nowait(WatchEvent(type_, obj))

    def _queue(self, plural: str) -> asyncio.Queue[WatchEvent]:
        return self._news.setdefault(plural, asyncio.Queue())

    async def pages(self, kind: Kind, *, namespace: str = "", labels: str = "") -> AsyncIterator[Page]:
        self.asked.append((kind.plural, labels))
        yield Page([obj for obj in self.objects if obj["kind"] == kind.kind], "1")

    async def watch(self, kind: Kind, **_unused: Any) -> AsyncIterator[WatchEvent]:
        while True:
            yield await self._queue(kind.plural).get()

    async def get(self, kind: Kind, name: Key, *, subresource: str = "") -> dict[str, Any]:
        for obj in self.objects:
            if obj["kind"] == kind.kind and obj["metadata"]["name"] == name.name:
                return obj
        raise NotFound("not found")

    async def create(self, kind: Kind, obj: dict[str, Any], **_unused: Any) -> dict[str, Any]:
        assert kind == EVENT
        self.written.append(obj)
        return obj


class Seen:
    """Stands for Control."""

    def __init__(self) -> None:
        self.table: RoutingTable = EMPTY
        self.keys: tuple[tuple[str, str], ...] | None = None
        self.order: list[str] = []

    def route(self, table: RoutingTable) -> None:
        self.order.append("route")
        self.table = table

    def admit(self, keys: tuple[tuple[str, str], ...]) -> None:
        self.order.append("admit")
        self.keys = keys

    async def run(self) -> None:
        self.order.append("run")
        await asyncio.Event().wait()


def service(name: str, annotation: str = "{}", version: str = "1") -> dict[str, Any]:
    return {
        "kind": "Service",
        "metadata": {
            "namespace": "ns",
            "name": name,
            "uid": name,
            "resourceVersion": version,
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "annotations": {ROUTE: annotation, "other": "x"},
        },
        "spec": {"ports": [{"name": "http", "port": 80}], "clusterIP": "10.9.9.9"},
    }


def piece(name: str, address: str, version: str = "1") -> dict[str, Any]:
    return {
        "kind": "EndpointSlice",
        "metadata": {
            "namespace": "ns",
            "name": f"{name}-1",
            "uid": f"{name}-1",
            "resourceVersion": version,
            "labels": {"kubernetes.io/service-name": name},
        },
        "addressType": "IPv4",
        "ports": [{"name": "http", "port": 8080}],
        "endpoints": [{"addresses": [address], "conditions": {"ready": True}}],
    }


async def until(condition: Any) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110  # the condition is in another task
            await asyncio.sleep(0.01)


async def follow(
    api: Api, secret: Key | None = None, waiting: dict[str, int] | None = None
) -> tuple[Seen, asyncio.Task[None]]:
    async def asked() -> dict[str, int]:
        return waiting or {}

    seen = Seen()
    cluster = Cluster(api, api.metrics, secret, asked)  # type: ignore[arg-type]
    task = asyncio.create_task(cluster.run(seen))  # type: ignore[arg-type]
    await until(lambda: "run" in seen.order)
    return seen, task


async def stop(task: asyncio.Task[None]) -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


async def test_services_and_slices_become_a_table_that_follows_them() -> None:
    api = Api(Metrics(), service("m1"), piece("m1", "10.0.0.1"))
    seen, task = await follow(api)
    assert seen.table
    assert seen.table.backends["ns:m1"].endpoints == ("10.0.0.1:8080",)
    api.tell("endpointslices", "MODIFIED", piece("m1", "10.0.0.2", "2"))
    await until(lambda: seen.table and seen.table.backends["ns:m1"].endpoints == ("10.0.0.2:8080",))
    api.tell("services", "DELETED", service("m1", version="3"))
    await until(lambda: seen.table and not seen.table.models)
    assert {labels for _unused, labels in api.asked} == {f"{ROUTE}=true"}
    await stop(task)


async def test_an_invalid_route_is_logged_counted_and_told_to_its_service_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    metrics = Metrics()
    api = Api(metrics, service("bad", "{nonsense"), service("good"))
    with caplog.at_level(logging.WARNING):
        seen, task = await follow(api)
        api.tell("services", "MODIFIED", service("good", version="2"))
        await until(lambda: len(api.written) >= 1)
        await asyncio.sleep(0.1)
    assert seen.table
    assert set(seen.table.models) == {"good", "ns/good"}
    assert [event["involvedObject"]["name"] for event in api.written] == ["bad"]
    assert api.written[0]["reason"] == "InvalidRoute"
    assert b"slipway_gateway_route_faults 1.0" in metrics.text()
    assert sum("bad" in record.getMessage() for record in caplog.records) == 1
    await stop(task)


async def test_a_model_that_cannot_be_woken_is_told_to_its_service() -> None:
    target = {"group": "kubeai.org", "version": "v1", "plural": "models", "name": "cold"}
    api = Api(Metrics(), service("cold", json.dumps({"scale": target})))
    seen, task = await follow(api, waiting={"ns:cold": 1})
    await until(lambda: api.written)
    assert seen.table.models["cold"] == "ns:cold"
    event = api.written[0]
    assert (event["involvedObject"]["name"], event["type"], event["reason"]) == ("cold", "Warning", "NotWoken")
    assert "models cold cannot be scaled from zero: not found" in event["message"]
    await stop(task)


async def test_keys_are_known_before_haproxy_is_ready() -> None:
    secret = {
        "kind": SECRET.kind,
        "metadata": {"namespace": "system", "name": "keys"},
        "data": {"alice": base64.b64encode(b"sk-1").decode()},
    }
    seen, task = await follow(Api(Metrics(), secret), Key("system", "keys"))
    assert seen.keys == ((hashlib.sha256(b"sk-1").hexdigest().upper(), "alice"),)
    assert seen.order == ["admit", "route", "run"]
    await stop(task)


async def test_a_missing_secret_means_no_keys() -> None:
    seen, task = await follow(Api(Metrics()), Key("system", "keys"))
    assert seen.keys == ()
    await stop(task)
