"""A faulty object affects only itself: its fault is reported, the others continue, and it recovers."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest
from aiohttp import web

from slipway.decoding import DecodingError
from slipway.kube.api import answers
from slipway.kube.api import client as client_module
from slipway.kube.api.answers import Lines
from slipway.kube.api.errors import ServerError
from slipway.kube.api.salvage import salvage_event, salvage_list
from slipway.kube.caches.informer import Informer
from slipway.kube.objects import POD, Key
from slipway.kube.runtime.controller import Controller, Result

from .conftest import nested

PODS = "/api/v1/namespaces/default/pods"


def pod(name: str, version: int = 1, **fields: Any) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "default", "uid": f"uid-{name}", "resourceVersion": str(version)}
    return {"metadata": metadata, **fields}


def page(*items: bytes, version: str = "100") -> bytes:
    return b'{"metadata":{"resourceVersion":"%s"},"items":[%s]}' % (version.encode(), b",".join(items))


def names(informer: Informer) -> set[str]:
    return {obj["metadata"]["name"] for obj in informer.store.all()}


def at_fault(metrics: Any, kind: str = "pods") -> float:
    return metrics.registry.get_sample_value("slipway_object_faults", {"kind": kind}) or 0.0


def answering(body: bytes) -> Any:
    async def answer(_unused: web.Request) -> web.Response:
        return web.Response(body=body, content_type="application/json")

    return answer


class Faults:
    """Listens for faults."""

    def __init__(self, informer: Informer) -> None:
        self.faults: list[tuple[str, str]] = []
        informer.on_fault(lambda _kind, obj, text: self.faults.append((obj["metadata"]["name"], text)))


# Decoding


def test_an_object_that_is_nested_too_deep_does_not_stop_the_list() -> None:
    items = (json.dumps(pod("a")).encode(), nested(pod("bad", 7)), json.dumps(pod("b", x='[{"}\\')).encode())
    listing = salvage_list(page(*items, version="9"))
    assert listing.metadata == {"resourceVersion": "9"}
    assert [item["metadata"]["name"] for item in listing.items] == ["a", "b"]
    assert listing.items[1]["x"] == '[{"}\\'
    assert [(one.object, one.fault) for one in listing.unreadable] == [
        ({"metadata": pod("bad", 7)["metadata"]}, "it is nested too deep")
    ]


def test_the_type_and_identity_of_an_event_with_an_unreadable_object_are_read() -> None:
    line = b'{"type":"MODIFIED","object":%s}' % nested(pod("bad", 7))
    assert salvage_event(line) == ("MODIFIED", {"metadata": pod("bad", 7)["metadata"]})


@pytest.mark.parametrize("text", [b"", b"[", b'{"items":[', b"7", b'{"items":7}', b'{"items":[{}', b"]" * 50])
def test_a_value_that_is_not_a_list_is_one_error(text: bytes) -> None:
    with pytest.raises(DecodingError):
        salvage_list(text + b"\xff")


def test_an_answer_that_is_no_list_names_the_kind() -> None:
    for body in (b"[", b"7", b'{"items":7}', b'{"metadata":[1],"items":[]}'):
        with pytest.raises(ServerError, match="Pod"):
            answers.read_page(POD, body)
    for line in (b"[", b"7", b'{"type":"ADDED"}', b'{"type":"RENAMED","object":{}}'):
        with pytest.raises(ServerError, match="Pod"):
            answers.read_event(POD, line)


def test_a_long_line_costs_no_more_for_coming_in_small_pieces() -> None:
    """Its pieces are appended to one buffer. Joining them again for each piece would create a new object every time."""
    lines = Lines(1 << 20)
    buffers = set()
    for _unused in range(1000):
        assert lines.feed(b"x" * 100) == []
        buffers.add(id(lines.rest))
    assert len(buffers) == 1
    assert lines.feed(b"y\n\nz\nw") == [b"x" * 100_000 + b"y", b"z"]
    assert bytes(lines.rest) == b"w"


def test_a_line_without_an_end_is_given_up() -> None:
    lines = Lines(1000)
    for _unused in range(10):
        lines.feed(b"x" * 100)
    with pytest.raises(ServerError, match="longer than 1000 bytes"):
        lines.feed(b"x")


# Lists


async def test_pages_are_asked_for_with_fewer_objects_where_these_are_large(server, client):
    for number in range(40):
        await server.put(f"{PODS}/p{number:02d}", payload="x" * 200_000)
    pages = [page async for page in client.pages(POD)]
    assert sum(len(page.items) for page in pages) == 40
    assert max(len(page.items) for page in pages) * 200_000 <= client_module.MOST_PAGE_BYTES
    assert len(server.lists) < 15


async def test_an_object_that_is_larger_than_a_page_is_still_listed(server, client):
    await server.put(f"{PODS}/large", payload="x" * (client_module.MOST_PAGE_BYTES + 1))
    await server.put(f"{PODS}/small")
    assert [item["metadata"]["name"] async for page in client.pages(POD) for item in page.items] == ["large", "small"]


# Informers


async def test_a_nested_object_in_a_list_costs_itself_alone_and_heals(server, client, metrics, start, eventually):
    body = page(json.dumps(pod("a")).encode(), nested(pod("bad", 7)))
    server.fault("GET", "limit", answering(body), times=1)
    informer = Informer(client, POD)
    recorder = Faults(informer)
    start(informer.run())
    await eventually(informer.synced.is_set)
    assert names(informer) == {"a"}
    assert [name for name, _unused in recorder.faults] == ["bad"]
    assert "nested too deep" in recorder.faults[0][1]
    assert at_fault(metrics) == 1
    await server.put(f"{PODS}/good")
    await server.put(f"{PODS}/bad")
    await eventually(lambda: names(informer) == {"a", "good", "bad"})
    assert at_fault(metrics) == 0


async def test_a_nested_object_in_a_watch_costs_itself_alone(server, client, metrics, start, eventually, script):
    await server.put(f"{PODS}/bad", metadata={"uid": "uid-bad"})
    lines = [
        b'{"type":"MODIFIED","object":%s}\n' % nested(pod("bad", 150)),
        b'{"type":"ADDED","object":%s}\n' % json.dumps(pod("good", 151)).encode(),
    ]
    server.fault("GET", "watch", script.stream(*lines, hold=60))
    informer = Informer(client, POD)
    recorder = Faults(informer)
    start(informer.run())
    await eventually(lambda: names(informer) == {"good"})
    assert [name for name, _unused in recorder.faults] == ["bad"]
    assert at_fault(metrics) == 1
    assert len(server.watches) == 1


async def test_a_fault_is_over_when_its_object_is_gone(server, client, metrics, start, eventually, script):
    lines = [
        b'{"type":"ADDED","object":%s}\n' % nested(pod("bad", 150)),
        b'{"type":"DELETED","object":%s}\n' % nested(pod("bad", 151)),
        b'{"type":"ADDED","object":%s}\n' % json.dumps(pod("good", 152)).encode(),
    ]
    server.fault("GET", "watch", script.stream(*lines, hold=60))
    informer = Informer(client, POD)
    recorder = Faults(informer)
    start(informer.run())
    await eventually(lambda: names(informer) == {"good"})
    assert len(recorder.faults) == 1
    assert at_fault(metrics) == 0


ODD = {
    "no name": {"metadata": {"uid": "1"}},
    "no uid": {"metadata": {"name": "bad", "namespace": "default"}},
    "a name that is a list": {"metadata": {"name": [], "uid": "1"}},
    "metadata that are a list": {"metadata": []},
    "a number": 7,
    "labels that are a number": {"metadata": {"name": "bad", "uid": "1", "labels": 7}},
}


@pytest.mark.parametrize("odd", ODD.values(), ids=ODD.keys())
async def test_an_object_of_another_shape_costs_itself_alone(server, client, start, eventually, script, odd):
    body = page(json.dumps(odd).encode(), json.dumps(pod("a")).encode())
    server.fault("GET", "limit", answering(body), times=1)
    line = b'{"type":"ADDED","object":%s}\n' % json.dumps(odd).encode()
    server.fault(
        "GET", "watch", script.stream(line, b'{"type":"ADDED","object":%s}\n' % json.dumps(pod("b", 150)).encode())
    )
    informer = Informer(client, POD, indexes={"labels": lambda obj: obj["metadata"].get("labels", {}).keys()})
    start(informer.run())
    await eventually(lambda: names(informer) >= {"a", "b"})


@pytest.mark.parametrize("part", ["trim", "index", "handler"])
async def test_a_function_that_fails_costs_its_object_alone(server, client, metrics, start, eventually, caplog, part):
    def strict(obj: dict[str, Any]) -> str:
        return str(obj["spec"]["word"])

    def trim(obj: dict[str, Any]) -> dict[str, Any]:
        strict(obj)
        return obj

    heard: list[str] = []
    informer = Informer(
        client,
        POD,
        indexes={"all": lambda _unused: ["x"]} | ({"word": lambda obj: [strict(obj)]} if part == "index" else {}),
        **({"trim": trim} if part == "trim" else {}),
    )
    if part == "handler":
        informer.add_handler(lambda change: heard.append(strict(change.new)))
    informer.add_handler(lambda change: heard.append(change.type))
    recorder = Faults(informer)
    await server.put(f"{PODS}/bad")
    await server.put(f"{PODS}/good", spec={"word": "w"})
    with caplog.at_level(logging.WARNING):
        start(informer.run())
        await eventually(lambda: "good" in names(informer))
        await eventually(lambda: recorder.faults)
    assert names(informer) == ({"good"} if part == "trim" else {"good", "bad"})
    assert [name for name, _unused in recorder.faults] == ["bad"]
    assert "KeyError: 'spec'" in recorder.faults[0][1]
    assert sum("default/bad" in record.getMessage() for record in caplog.records) == 1
    assert heard.count("ADDED") == len(names(informer))
    assert at_fault(metrics) == 1
    await server.put(f"{PODS}/bad", spec={"word": "w"})
    await eventually(lambda: at_fault(metrics) == 0)
    assert len(recorder.faults) == 1
    assert {obj["metadata"]["name"] for obj in informer.store.by_index("all", "x")} == {"good", "bad"}
    if part == "index":
        assert {obj["metadata"]["name"] for obj in informer.store.by_index("word", "w")} == {"good", "bad"}
    await server.put(f"{PODS}/bad")
    await eventually(lambda: at_fault(metrics) == 1)
    await server.remove(f"{PODS}/bad")
    await eventually(lambda: at_fault(metrics) == 0)


async def test_a_fault_that_is_listed_again_is_not_reported_again(server, client, metrics, start, eventually):
    def strict(obj: dict[str, Any]) -> dict[str, Any]:
        return {**obj, "spec": obj["spec"]}

    informer = Informer(client, POD, trim=strict)
    recorder = Faults(informer)
    await server.put(f"{PODS}/bad")
    start(informer.run())
    await eventually(lambda: server.following)
    server.oldest = server.version + 1
    server.cut()
    await eventually(lambda: len(server.lists) >= 2)
    await server.put(f"{PODS}/later")
    await eventually(lambda: at_fault(metrics) == 2)
    assert [name for name, _unused in recorder.faults] == ["bad", "later"]


async def test_the_informer_drops_objects_that_trim_rejects(server, client, start, eventually):
    informer = Informer(client, POD, trim=lambda obj: obj if obj.get("mine") else None)
    gone: list[str] = []
    informer.add_handler(lambda change: gone.append(change.key.name) if change.new is None else None)
    await server.put(f"{PODS}/other")
    await server.put(f"{PODS}/a", mine=True)
    start(informer.run())
    await eventually(lambda: names(informer) == {"a"})
    await server.put(f"{PODS}/a")
    await eventually(lambda: not names(informer))
    assert gone == ["a"]


async def test_a_state_that_names_no_key_does_not_keep_the_other_one_from_naming_its(
    server, client, metrics, start, eventually
):
    async def reconcile(name: Key) -> Result:
        seen.append(name.name)
        return Result()

    seen: list[str] = []
    informer = Informer(client, POD)
    controller = Controller("test", reconcile, metrics=metrics)
    controller.watch(informer, keys=lambda obj: [Key("", obj["spec"]["owner"])])
    start(informer.run())
    start(controller.run())
    await server.put(f"{PODS}/a")
    await server.put(f"{PODS}/a", spec={"owner": "first"})
    await eventually(lambda: seen == ["first"])
    await server.put(f"{PODS}/a")
    await eventually(lambda: seen == ["first", "first"])
