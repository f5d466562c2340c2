"""The cluster as a source: objects of the API server become table, keys and Events."""

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

from slipway.gateway.control.wake import Waker
from slipway.gateway.routing.keys import RIGHTS
from slipway.gateway.routing.table import EMPTY, RoutingTable, Snapshot, build
from slipway.gateway.settings import Settings
from slipway.gateway.sources.kubernetes import AnnotationBudget, KubernetesSource, pod_hosts
from slipway.kube.api.client import Page, WatchEvent
from slipway.kube.api.errors import NotFoundError
from slipway.kube.caches.store import Change
from slipway.kube.metrics import Metrics
from slipway.kube.objects import EVENT, SECRET, Key, Kind

ROUTE = "slipway.inference/route"


class Api:
    """The part of a Client that the source uses. Watches return the events of `send_event`."""

    def __init__(self, metrics: Metrics, *objects: dict[str, Any]) -> None:
        self.metrics = metrics
        self.objects = list(objects)
        self.written: list[dict[str, Any]] = []
        self.requested: list[tuple[str, str]] = []
        self._news: dict[str, asyncio.Queue[WatchEvent]] = {}

    def send_event(self, kind: str, type_: str, obj: dict[str, Any]) -> None:
        self._queue(kind).put_nowait(WatchEvent(type_, obj))

    def _queue(self, plural: str) -> asyncio.Queue[WatchEvent]:
        return self._news.setdefault(plural, asyncio.Queue())

    async def pages(self, kind: Kind, *, namespace: str = "", labels: str = "") -> AsyncIterator[Page]:
        self.requested.append((kind.plural, labels))
        yield Page([obj for obj in self.objects if obj["kind"] == kind.kind], "1")

    async def watch(self, kind: Kind, **_unused: Any) -> AsyncIterator[WatchEvent]:
        while True:
            yield await self._queue(kind.plural).get()

    async def get(self, kind: Kind, name: Key, *, subresource: str = "") -> dict[str, Any]:
        for obj in self.objects:
            if obj["kind"] == kind.kind and obj["metadata"]["name"] == name.name:
                return obj
        raise NotFoundError("not found")

    async def create(self, kind: Kind, obj: dict[str, Any], **_unused: Any) -> dict[str, Any]:
        assert kind == EVENT
        self.written.append(obj)
        return obj

    async def replace(self, kind: Kind, obj: dict[str, Any], **_unused: Any) -> dict[str, Any]:
        self.objects = [one for one in self.objects if one["kind"] != kind.kind] + [obj]
        return obj

    async def merge_patch(self, kind: Kind, name: Key, patch: dict[str, Any], **_unused: Any) -> dict[str, Any]:
        assert kind == EVENT
        return next(event for event in self.written if event["metadata"]["name"] == name.name) | patch


class Published:
    """Replaces ReconcileLoop."""

    def __init__(self) -> None:
        self.snapshots: list[Snapshot] = []

    def publish(self, snapshot: Snapshot) -> None:
        self.snapshots.append(snapshot)

    @property
    def table(self) -> RoutingTable:
        return self.snapshots[-1].table if self.snapshots else EMPTY


def service(
    name: str, annotation: str = "{}", version: str = "1", namespace: str = "ns", uid: str = ""
) -> dict[str, Any]:
    return {
        "kind": "Service",
        "metadata": {
            "namespace": namespace,
            "name": name,
            "uid": uid or name,
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
        "endpoints": [
            {"addresses": [address], "conditions": {"ready": True}, "targetRef": {"kind": "Pod", "namespace": "ns"}}
        ],
    }


async def until(condition: Any) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110  # the condition is in another task
            await asyncio.sleep(0.01)


async def follow(
    api: Api, secret: Key | None = None, waiting: dict[str, int] | None = None, settings: Settings | None = None
) -> tuple[Published, asyncio.Task[None]]:
    async def count_waiting() -> dict[str, int]:
        return waiting or {}

    published = Published()
    source = KubernetesSource(api, api.metrics, secret, settings or Settings())  # type: ignore[arg-type]
    waker = Waker(api, count_waiting, source.report_not_woken, source.report_woken)  # type: ignore[arg-type]

    async def run() -> None:
        await asyncio.gather(source.run(published.publish), waker.run(lambda: published.table))

    task = asyncio.create_task(run())
    await until(lambda: published.snapshots)
    return published, task


async def stop(task: asyncio.Task[None]) -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


async def test_services_and_slices_become_a_table_that_follows_them() -> None:
    api = Api(Metrics(), service("m1"), piece("m1", "10.0.0.1"))
    published, task = await follow(api)
    assert published.table
    assert published.table.backends["ns:m1"].endpoints == ("10.0.0.1:8080",)
    api.send_event("endpointslices", "MODIFIED", piece("m1", "10.0.0.2", "2"))
    await until(lambda: published.table and published.table.backends["ns:m1"].endpoints == ("10.0.0.2:8080",))
    api.send_event("services", "DELETED", service("m1", version="3"))
    await until(lambda: published.table and not published.table.models)
    assert {labels for _unused, labels in api.requested} == {f"{ROUTE}=true"}
    await stop(task)


async def test_an_invalid_route_is_logged_counted_and_recorded_for_its_service_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    metrics = Metrics()
    api = Api(metrics, service("bad", "{nonsense"), service("good"))
    with caplog.at_level(logging.WARNING):
        published, task = await follow(api)
        api.send_event("services", "MODIFIED", service("good", version="2"))
        await until(lambda: len(api.written) >= 1)
        api.send_event("services", "ADDED", service("worse", "{nonsense"))
        await until(lambda: len(api.written) >= 2)
    assert published.table
    assert set(published.table.models) == {"good", "ns/good"}
    assert [event["involvedObject"]["name"] for event in api.written] == ["bad", "worse"]
    assert api.written[0]["reason"] == "InvalidRoute"
    assert b"slipway_gateway_route_faults 2.0" in metrics.text()
    assert sum("bad" in record.getMessage() for record in caplog.records) == 1
    await stop(task)


@pytest.mark.parametrize(
    ("first", "second", "lost"),
    [
        ({}, {}, ["m1"]),
        ({"models": ["a", "b"]}, {"models": ["b", "c"]}, ["b"]),
        ({"models": ["a", "b"]}, {"models": ["a", "b"]}, ["a", "b"]),
        ({"models": ["m1"]}, {"models": ["m2"], "aliases": ["m1"]}, []),
        ({"models": ["a"]}, {"models": ["b"]}, []),
    ],
)
@pytest.mark.parametrize("namespace", ["ns", "other"])
async def test_each_name_that_two_models_give_is_logged_once_with_the_model_that_answers(
    namespace: str, first: Any, second: Any, lost: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    older = service("m1", json.dumps(first))
    younger = service("m2" if namespace == "ns" else "m1", json.dumps(second or {"models": ["m1"]}))
    older["metadata"] |= {"creationTimestamp": "2026-01-01T00:00:00Z"}
    younger["metadata"] |= {"creationTimestamp": "2026-01-02T00:00:00Z", "namespace": namespace, "uid": "younger"}
    metrics = Metrics()
    with caplog.at_level(logging.WARNING):
        published, task = await follow(Api(metrics, older, younger))
        await until(lambda: published.table and len(published.table.backends) == 2)
    lines = [record.getMessage() for record in caplog.records if "belongs to" in record.getMessage()]
    own = f"Service {namespace}/{younger['metadata']['name']}"
    assert sorted(lines) == [f"{own}: the ID {name!r} belongs to Service ns/m1, which is older" for name in lost]
    assert b"slipway_gateway_route_faults 0.0" in metrics.text()
    await stop(task)


async def test_a_model_that_cannot_be_woken_gets_an_event_for_its_service() -> None:
    target = {"group": "kubeai.org", "version": "v1", "plural": "models", "name": "cold"}
    api = Api(Metrics(), service("cold", json.dumps({"scale": target})))
    published, task = await follow(api, waiting={"ns:cold": 1})
    await until(lambda: api.written)
    assert published.table.models["cold"] == "ns:cold"
    event = api.written[0]
    assert (event["involvedObject"]["name"], event["type"], event["reason"]) == ("cold", "Warning", "NotWoken")
    assert "models cold cannot be scaled from zero: not found" in event["message"]
    await stop(task)


async def test_a_wake_up_is_an_event_of_the_services_owner() -> None:
    target = {"group": "kubeai.org", "version": "v1", "plural": "models", "name": "cold"}
    cold = service("model-cold", json.dumps({"scale": target}))
    owner = {"apiVersion": "kubeai.org/v1", "kind": "Model", "name": "cold", "uid": "u-cold", "controller": True}
    cold["metadata"]["ownerReferences"] = [owner]
    api = Api(Metrics(), cold)
    api.objects.append({"kind": "Scale", "metadata": {"name": "cold", "resourceVersion": "1"}, "spec": {}})
    _seen, task = await follow(api, waiting={"ns:model-cold": 2})
    await until(lambda: api.written)

    event = api.written[0]
    subject = event["involvedObject"]
    assert subject | {"apiVersion": "kubeai.org/v1", "kind": "Model", "name": "cold", "uid": "u-cold"} == subject
    assert (event["type"], event["reason"]) == ("Normal", "Scaled")
    assert event["message"] == "Scaled from 0 to 1 replica: 2 waiting requests."
    await stop(task)


async def test_keys_are_known_before_haproxy_is_ready() -> None:
    secret = {
        "kind": SECRET.kind,
        "metadata": {"namespace": "system", "name": "keys"},
        "data": {"alice": base64.b64encode(b"sk-1").decode()},
    }
    published, task = await follow(Api(Metrics(), secret), Key("system", "keys"))
    assert published.snapshots[0].keys == ((hashlib.sha256(b"sk-1").hexdigest().upper(), "alice"),)
    await stop(task)


async def test_unreadable_rights_get_an_event_for_the_secret_without_its_text() -> None:
    secret = {
        "kind": SECRET.kind,
        "metadata": {
            "namespace": "system",
            "name": "keys",
            "uid": "u-1",
            "resourceVersion": "1",
            "annotations": {RIGHTS: '{"alice": {"requestsPerMinute": -1}}'},
        },
        "data": {"alice": base64.b64encode(b"sk-1").decode()},
    }
    api = Api(Metrics(), secret)
    published, task = await follow(api, Key("system", "keys"))
    await until(lambda: api.written)
    event = api.written[0]
    assert (event["involvedObject"]["name"], event["type"], event["reason"]) == ("keys", "Warning", "InvalidKeyRights")
    assert "requestsPerMinute" in event["message"]
    assert "sk-1" not in json.dumps(event)
    assert published.snapshots[0].keys == ()
    await stop(task)


async def test_a_missing_secret_means_no_keys() -> None:
    published, task = await follow(Api(Metrics()), Key("system", "keys"))
    assert published.snapshots[0].keys == ()
    await stop(task)


def namespace(name: str) -> dict[str, Any]:
    labels = {"slipway": "yes"}
    return {"kind": "Namespace", "metadata": {"name": name, "uid": name, "resourceVersion": "1", "labels": labels}}


def events(api: Api) -> set[tuple[str, str, str]]:
    """Returns Service, UID and reason of each Event."""
    about = [(event["involvedObject"], event["reason"]) for event in api.written]
    return {(f"{of['namespace']}/{of['name']}", of["uid"], reason) for of, reason in about}


async def test_while_a_service_is_recreated_its_qualified_id_is_free_and_its_plain_id_is_handed_over() -> None:
    route = json.dumps({"models": ["advisor", "bank/advisor", "gpt-4o"]})
    victim, thief = service("advisor", namespace="bank"), service("thief", route, namespace="tenant")
    thief["metadata"]["creationTimestamp"] = "2026-01-02T00:00:00Z"
    api = Api(Metrics(), victim, thief)
    published, task = await follow(api)
    assert (published.table.models["advisor"], published.table.models["bank/advisor"]) == (
        "bank:advisor",
        "bank:advisor",
    )
    api.send_event("services", "DELETED", service("advisor", namespace="bank", version="3"))
    await until(lambda: published.table.models.get("advisor") == "tenant:thief")
    assert "bank/advisor" not in published.table.models
    lost, taken = ("bank/advisor", "advisor", "IdLost"), ("tenant/thief", "thief", "IdTaken")
    await until(lambda: {lost, taken} <= events(api))
    again = service("advisor", namespace="bank", version="4", uid="again")
    again["metadata"]["creationTimestamp"] = "2026-01-03T00:00:00Z"
    api.send_event("services", "ADDED", again)
    await until(lambda: ("bank/advisor", "again", "IdLost") in events(api))
    assert published.table.models["bank/advisor"] == "bank:advisor"
    await stop(task)


async def test_many_faulty_services_do_not_hide_a_lost_id() -> None:
    victim, thief = (
        service("advisor", namespace="bank"),
        service("thief", '{"models": ["advisor"]}', namespace="tenant"),
    )
    noise = [service(f"bad{number}", "{", namespace="tenant") for number in range(100)]
    thief["metadata"]["creationTimestamp"] = "2026-01-02T00:00:00Z"
    api = Api(Metrics(), victim, thief, *noise)
    _unused, task = await follow(api)
    api.send_event("services", "DELETED", service("advisor", namespace="bank", version="3"))
    await until(lambda: ("bank/advisor", "advisor", "IdLost") in events(api))
    await stop(task)


async def test_an_id_with_an_owner_waits_for_its_owner() -> None:
    settings = Settings(id_owners={"advisor": "bank"})
    api = Api(Metrics(), service("advisor", namespace="tenant"))
    published, task = await follow(api, settings=settings)
    assert set(published.table.models) == {"tenant/advisor"}
    api.send_event("services", "ADDED", service("advisor", version="2", namespace="bank"))
    await until(lambda: published.table.models.get("advisor") == "bank:advisor")
    await stop(task)


async def test_services_of_namespaces_that_match_the_selector_are_served_and_those_of_others_are_not() -> None:
    api = Api(Metrics(), service("a", namespace="one"), service("b", namespace="two"), namespace("one"))
    published, task = await follow(api, settings=Settings(routed_namespaces="slipway=yes"))
    assert set(published.table.backends) == {"one:a"}
    assert ("namespaces", "slipway=yes") in api.requested
    api.send_event("namespaces", "ADDED", namespace("two"))
    await until(lambda: "two:b" in published.table.backends)
    api.send_event("namespaces", "DELETED", namespace("two"))
    await until(lambda: "two:b" not in published.table.backends)
    await stop(task)


async def test_namespaces_are_not_read_where_none_are_chosen() -> None:
    api = Api(Metrics(), service("a"))
    _unused, task = await follow(api)
    assert {plural for plural, _labels in api.requested} == {"services", "endpointslices"}
    await stop(task)


async def test_foreign_endpoints_are_used_if_the_setting_allows_it() -> None:
    foreign = piece("m1", "10.96.0.1")
    del foreign["endpoints"][0]["targetRef"]
    for allowed, expected in ((False, ()), (True, ("10.96.0.1:8080",))):
        published, task = await follow(
            Api(Metrics(), service("m1"), foreign), settings=Settings(foreign_endpoints=allowed)
        )
        assert published.table.backends["ns:m1"].endpoints == expected
        await stop(task)


@pytest.mark.parametrize(
    "annotation",
    ['{"x":' + "[" * 8000 + "]" * 8000 + "}", json.dumps({"models": ["m"] * 99999})],
    ids=["nested", "large"],
)
async def test_a_hostile_annotation_takes_its_service_out_and_nothing_else_and_heals(annotation: str) -> None:
    api = Api(Metrics(), service("bad", annotation), service("good"))
    published, task = await follow(api)
    assert set(published.table.models) == {"good", "ns/good"}
    api.send_event("services", "MODIFIED", service("bad", version="2"))
    await until(lambda: "bad" in published.table.models)
    assert not task.done()
    await stop(task)


async def test_a_large_annotation_is_cached_only_as_far_as_it_shows_its_excess() -> None:
    assert len(AnnotationBudget().trim(service("bad", "x" * 250_000))["metadata"]["annotations"][ROUTE]) == 16385


async def test_annotations_of_one_namespace_take_a_bounded_part_of_memory_and_room_comes_back() -> None:
    budget = AnnotationBudget()
    held = [budget.trim(service(f"s{number}", "x" * 16_000, namespace="tenant")) for number in range(2000)]
    assert sum(len(obj["metadata"]["annotations"][ROUTE]) for obj in held) < 5 << 20
    good = budget.trim(service("m1", '{"models": ["m1"]}'))
    assert good["metadata"]["annotations"][ROUTE] == '{"models": ["m1"]}'
    late = service("late", '{"models": ["late"]}', namespace="tenant")
    budget.release(Change(held[0], None))
    assert budget.trim(late)["metadata"]["annotations"][ROUTE] == '{"models": ["late"]}'
    _unused, (fault,) = build([held[-1]], [])
    assert "too large in total" in fault.message


async def test_reports_about_a_namespace_with_many_broken_routes_are_limited(
    caplog: pytest.LogCaptureFixture,
) -> None:
    api = Api(Metrics(), *(service(f"bad{number}", "{") for number in range(300)), service("other", "{", namespace="b"))
    with caplog.at_level(logging.WARNING):
        _unused, task = await follow(api)
        await until(lambda: ("b/other", "other", "InvalidRoute") in events(api))
    records = [record for record in caplog.records if "bad" in record.getMessage()]
    assert len(records) <= 100  # of at most two minutes
    assert len(api.written) <= 101
    assert "slipway_gateway_route_faults 301.0" in api.metrics.text().decode()
    await stop(task)


async def test_owners_and_faults_of_services_are_known_for_the_page() -> None:
    owned, bad = service("m1"), service("bad", "{nonsense")
    owner = {"apiVersion": "kubeai.org/v1", "kind": "Model", "name": "m1", "uid": "model-m1", "controller": True}
    owned["metadata"]["ownerReferences"] = [{"kind": "Other", "uid": "other"}, owner]
    api = Api(Metrics(), owned, bad)
    source = KubernetesSource(api, api.metrics, None)  # type: ignore[arg-type]
    task = asyncio.create_task(source.run(Published().publish))
    await until(lambda: source.faults)
    assert source.owners() == {"ns:m1": "model-m1"}
    assert [fault.service for fault in source.faults] == ["bad"]
    assert source.away_since == 0.0
    await stop(task)


async def test_namespaces_that_are_not_chosen_are_not_for_the_page() -> None:
    api = Api(Metrics(), namespace("chosen"))
    source = KubernetesSource(api, api.metrics, None, Settings(routed_namespaces="slipway=yes"))  # type: ignore[arg-type]
    task = asyncio.create_task(source.run(Published().publish))
    await until(lambda: source.serves()("chosen"))
    assert not source.serves()("other")
    assert not source.serves()("")
    await stop(task)


def test_gateways_are_the_pods_of_their_own_namespace_and_those_that_end_are_not_ready() -> None:
    def one(host: str, kind: str = "Pod", namespace: str = "slipway", **conditions: bool | None) -> dict[str, object]:
        return {"addresses": [host], "targetRef": {"kind": kind, "namespace": namespace}, "conditions": conditions}

    endpoints = [
        one("10.0.0.1", ready=True),
        one("10.0.0.2", ready=False),
        one("10.0.0.3", ready=False, serving=True, terminating=True),
        one("10.0.0.4"),
        one("10.0.0.5", ready=None),
        one("6.6.6.6", "Node", ready=True),
        one("6.6.6.7", namespace="x", ready=True),
        {"addresses": ["6.6.6.8"], "targetRef": {}, "conditions": {}},
    ]
    piece = {"metadata": {"namespace": "slipway", "name": "s"}, "endpoints": endpoints}
    assert pod_hosts(piece) == {
        "10.0.0.1": True,
        "10.0.0.2": False,
        "10.0.0.3": False,
        "10.0.0.4": True,
        "10.0.0.5": True,
    }


@pytest.mark.parametrize(("own", "expected"), [("10.0.0.9", "10.0.0.1:8082"), ("fd00::9", "[fd00::1]:8082")])
def test_a_gateway_with_two_addresses_is_one_gateway(monkeypatch: pytest.MonkeyPatch, own: str, expected: str) -> None:
    monkeypatch.setenv("POD_IP", own)
    settings = Settings(api_keys_secret="keys", exchange_key_file="key")
    api = Api(Metrics())
    source = KubernetesSource(api, api.metrics, Key("slipway", "keys"), settings)  # type: ignore[arg-type]
    target = {"kind": "Pod", "namespace": "slipway"}
    assert source._gateways
    for family, host in (("IPv4", "10.0.0.1"), ("IPv6", "fd00::1")):
        piece = {
            "metadata": {"namespace": "slipway", "name": family.lower(), "uid": family, "resourceVersion": "1"},
            "addressType": family,
            "endpoints": [{"addresses": [host], "targetRef": target, "conditions": {"ready": True}}],
        }
        source._gateways.store.put(piece)
    assert source._exchange_addresses() == {expected: True}
