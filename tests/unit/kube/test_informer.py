"""The informer under faults: whatever the server does, the store ends up equal to it, without a storm of requests.

Row numbers are those of the table in tests/faults/README.md.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from itertools import pairwise

import aiohttp
import pytest

from slipway.kube.api import client as client_module
from slipway.kube.caches import informer as informer_module
from slipway.kube.caches.informer import Informer, SetBackError
from slipway.kube.objects import POD, Key, metadata_of

from .conftest import PATIENCE

PODS = "/api/v1/namespaces/default/pods"
A, B = Key("default", "a"), Key("default", "b")


@pytest.fixture
def informer(client):
    return Informer(client, POD)


@pytest.fixture
def changes(informer):
    seen = []
    informer.add_handler(lambda change: seen.append((change.type, change.key.name)))
    return seen


def names(informer):
    return {obj["metadata"]["name"] for obj in informer.store.all()}


def rate(requests):
    """The most requests in any second."""
    return max(
        (sum(first.at <= one.at < first.at + 1 for one in requests) for first in requests),
        default=0,
    )


LEAST_GAP = 0.19
"""Minimum number of seconds between two requests to a failing server."""


def gap(requests):
    """The shortest time between two requests."""
    return min(after.at - before.at for before, after in pairwise(requests))


async def test_lists_then_follows_changes(server, informer, changes, start, eventually):
    await server.put(f"{PODS}/a", metadata={"managedFields": [{"manager": "x"}]})
    start(informer.run())
    await informer.synced.wait()
    assert "managedFields" not in informer.store.get(A)["metadata"]
    await server.put(f"{PODS}/b")
    await server.put(f"{PODS}/b", spec={"x": 1})
    await server.remove(f"{PODS}/a")
    await eventually(lambda: changes == [("ADDED", "a"), ("ADDED", "b"), ("MODIFIED", "b"), ("DELETED", "a")])
    assert len(server.lists) == len(server.watches) == 1


async def test_only_metadata_is_sent_for_a_metadata_only_kind(server, client, start, eventually):
    informer = Informer(client, metadata_of(POD))
    await server.put(f"{PODS}/a", metadata={"annotations": {"x": "1"}}, spec={"x": "y" * 1000})
    start(informer.run())
    await informer.synced.wait()
    await server.put(f"{PODS}/b", spec={"x": 1})
    await eventually(lambda: names(informer) == {"a", "b"})
    await informer.refresh(A)
    objects = informer.store.all()
    assert {(obj["apiVersion"], obj["kind"], *obj.keys()) for obj in objects} == {
        ("v1", "Pod", "apiVersion", "kind", "metadata")
    }
    assert all("as=PartialObjectMetadata" in one.accept for one in server.log)


async def test_a_late_handler_hears_of_what_is_there(server, informer, start):
    await server.put(f"{PODS}/a")
    start(informer.run())
    await informer.synced.wait()
    seen = []
    informer.add_handler(seen.append)
    assert [(change.type, change.key) for change in seen] == [("ADDED", A)]


async def test_a_handler_sees_the_store_as_the_change_of_which_it_hears_left_it(server, informer, start):
    seen = []
    informer.add_handler(lambda change: seen.append((change.key, len(informer.store))))
    for name in "ab":
        await server.put(f"{PODS}/{name}")
    start(informer.run())
    await informer.synced.wait()
    assert seen == [(A, 1), (B, 2)]


async def test_a_list_of_several_pages_is_taken_whole(server, informer, start):
    server.page = 2
    for name in "abcde":
        await server.put(f"{PODS}/{name}")
    start(informer.run())
    await informer.synced.wait()
    assert names(informer) == set("abcde")


async def test_a_selector_and_a_namespace_limit_what_is_seen(server, client, start, eventually):
    await server.put(f"{PODS}/a", metadata={"labels": {"mine": "yes"}})
    await server.put(f"{PODS}/b")
    await server.put("/api/v1/namespaces/other/pods/c", metadata={"labels": {"mine": "yes"}})
    informer = Informer(client, POD, namespace="default", labels="mine=yes")
    start(informer.run())
    await informer.synced.wait()
    assert names(informer) == {"a"}


async def test_row_6_an_unreachable_server_is_asked_rarely_and_caught_up_with(
    server, informer, start, eventually, script
):
    start(informer.run())
    await eventually(lambda: server.following)
    server.fault("GET", "pods", script.refuse(503, "ServiceUnavailable"), times=10**6)
    server.cut()
    await server.put(f"{PODS}/a")
    count = len(server.log)
    await eventually(lambda: len(server.log) >= count + 4)
    assert gap(server.log[count:]) > LEAST_GAP
    assert names(informer) == set()
    server.faults.clear()
    await eventually(lambda: names(informer) == {"a"})


async def test_row_7_a_watch_that_ends_cleanly_goes_on_without_a_new_list(server, informer, start, eventually, script):
    server.fault("GET", "watch", script.stream(), times=2)
    start(informer.run())
    await informer.synced.wait()
    await server.put(f"{PODS}/a")
    await eventually(lambda: names(informer) == {"a"})
    assert len(server.lists) == 1


async def test_row_8_an_expired_version_in_the_stream_lists_once(server, informer, start, eventually):
    server.oldest = 101
    start(informer.run())
    await eventually(lambda: server.watches)
    await server.put(f"{PODS}/a")
    await eventually(lambda: names(informer) == {"a"})
    await wait_for_watch(server, informer, eventually)
    assert len(server.lists) == 2


async def test_row_9_an_expired_version_by_http_lists_once(server, informer, start, eventually, script):
    server.fault("GET", "watch", script.refuse(410, "Expired"))
    start(informer.run())
    await eventually(lambda: len(server.watches) == 2)
    await wait_for_watch(server, informer, eventually)
    assert len(server.lists) == 2


async def wait_for_watch(server, informer, eventually):
    """Waits for two more objects, one after the other. By then, an unwanted second list would have happened."""
    for name in ("later", "last"):
        await server.put(f"{PODS}/{name}")
        await eventually(lambda name=name: name in names(informer))


async def test_row_9_an_expired_continue_token_starts_the_list_again(server, informer, start, script):
    server.page = 1
    await server.put(f"{PODS}/a")
    await server.put(f"{PODS}/b")
    server.fault("GET", "continue=1", script.refuse(410, "Expired"))
    start(informer.run())
    await asyncio.wait_for(informer.synced.wait(), PATIENCE)
    assert names(informer) == {"a", "b"}


async def test_a_server_that_always_reports_expired_is_queried_rarely(server, informer, start, eventually, script):
    server.fault("GET", "watch", script.refuse(410, "Expired"), times=10**6)
    start(informer.run())
    await eventually(lambda: len(server.lists) >= 4)
    assert gap(server.lists) > LEAST_GAP


ODD_STREAMS = {
    "row 10: error event 500": b'{"type":"ERROR","object":{"kind":"Status","code":500,"message":"etcd"}}\n',
    "row 10: error event without code": b'{"type":"ERROR","object":{}}\n',
    "row 10: unknown event type": b'{"type":"RENAMED","object":{}}\n',
    "row 11: cut in the middle of a line": b'{"type":"ADDED","object":{"metadata":{"na',
    "row 11: empty lines": b"\n\n\n",
    "row 11: not JSON": b"<html>\n",
    "row 11: not an event": b"{}\n",
    "row 11: a number": b"7\n",
}


@pytest.mark.parametrize("line", ODD_STREAMS.values(), ids=ODD_STREAMS.keys())
async def test_an_odd_stream_is_connected_again(server, informer, start, eventually, script, line):
    server.fault("GET", "watch", script.stream(line), times=2)
    start(informer.run())
    await informer.synced.wait()
    await server.put(f"{PODS}/a")
    await eventually(lambda: names(informer) == {"a"})
    assert rate(server.watches) < 5


async def test_row_12_a_silent_connection_is_given_up(server, informer, start, eventually, script, monkeypatch):
    assert client_module.IDLE_SECONDS < 90
    limit = aiohttp.ClientTimeout(total=None, sock_read=0.2)
    monkeypatch.setattr(client_module, "_WATCH_LIMIT", limit)
    server.fault("GET", "watch", script.stream(hold=60))
    start(informer.run())
    await informer.synced.wait()
    await server.put(f"{PODS}/a")
    await eventually(lambda: names(informer) == {"a"})


async def test_row_13_deletions_during_an_outage_are_reported(server, informer, changes, start, eventually, script):
    await server.put(f"{PODS}/a")
    await server.put(f"{PODS}/b")
    start(informer.run())
    await eventually(lambda: server.following)
    changes.clear()
    first = informer.store.get(B)["metadata"]["uid"]
    server.fault("GET", "pods", script.hang_up, times=10**6)
    server.cut()
    await server.remove(f"{PODS}/a")
    await server.remove(f"{PODS}/b")
    second = (await server.put(f"{PODS}/b"))["metadata"]["uid"]
    server.oldest = server.version
    server.faults.clear()
    await eventually(lambda: sorted(changes) == [("ADDED", "b"), ("DELETED", "a"), ("DELETED", "b")])
    assert informer.store.get(B)["metadata"]["uid"] == second != first


async def test_row_15_a_lagging_server_does_not_turn_time_back(
    server, informer, changes, start, eventually, monkeypatch
):
    monkeypatch.setattr(informer._backoff, "next", lambda: 0.02)
    monkeypatch.setattr(informer_module, "_STALE_LISTS", 10**6)
    await server.put(f"{PODS}/a")
    start(informer.run())
    await eventually(lambda: server.following)
    past = dict(server.objects), server.version
    await server.put(f"{PODS}/b")
    await server.remove(f"{PODS}/a")
    await eventually(lambda: names(informer) == {"b"})
    changes.clear()
    present = dict(server.objects), server.version
    server.objects, server.version = past
    server.oldest = 10**6
    server.cut()
    await eventually(lambda: len(server.lists) >= 4)
    assert names(informer) == {"b"}
    server.objects, server.version = present
    server.oldest = 0
    await server.put(f"{PODS}/c")
    await eventually(lambda: names(informer) == {"b", "c"})
    assert changes == [("ADDED", "c")]


async def test_row_15_a_server_that_stays_in_the_past_ends_the_process(server, informer, monkeypatch):
    monkeypatch.setattr(informer_module, "_STALE_LISTS", 3)
    monkeypatch.setattr(informer._backoff, "next", lambda: 0.01)
    informer.store.advance("1000")
    with pytest.raises(SetBackError):
        await asyncio.wait_for(informer.run(), PATIENCE)


async def test_row_26_a_kind_that_is_not_installed_yet_is_waited_for(server, informer, start, script):
    server.fault("GET", "limit", script.refuse(404, "NotFound"), times=3)
    start(informer.run())
    await asyncio.wait_for(informer.synced.wait(), PATIENCE)


async def test_row_18_a_swallowed_event_is_healed_by_the_next_list(
    server, informer, start, eventually, script, monkeypatch
):
    monkeypatch.setattr(informer_module, "RELIST_SECONDS", 0.2)
    monkeypatch.setattr(informer_module, "WATCH_SECONDS", 1)
    await server.put(f"{PODS}/a")

    server.fault("GET", "watch", script.stream(hold=0.3), times=10)
    start(informer.run())
    await informer.synced.wait()
    await server.remove(f"{PODS}/a", silently=True)
    await eventually(lambda: names(informer) == set())


async def test_a_direct_read_notifies_handlers_and_late_events_do_not_undo_it(
    server, informer, changes, start, eventually
):
    start(informer.run())
    await informer.synced.wait()
    await eventually(lambda: server.watches)
    server.deliver.clear()
    await server.put(f"{PODS}/a", spec={"x": 1})
    await server.put(f"{PODS}/a", spec={"x": 2})
    await informer.refresh(A)
    assert changes == [("ADDED", "a")]
    server.deliver.set()
    await eventually(lambda: informer.store.revision("") == server.version)
    assert changes == [("ADDED", "a")]
    assert informer.store.get(A)["spec"] == {"x": 2}
    await server.remove(f"{PODS}/a", silently=True)
    await informer.refresh(A)
    assert changes[-1] == ("DELETED", "a")


@pytest.mark.parametrize("part", ["limit", "watch"])
async def test_row_20_a_server_that_is_too_busy_is_asked_when_it_said(
    server, informer, start, eventually, script, part
):
    server.fault("GET", part, script.refuse(429, "TooManyRequests", headers={"Retry-After": "1"}))
    start(informer.run())
    await eventually(lambda: server.following)
    first, second = [one for one in server.log if part in one.query][:2]
    assert second.at - first.at > 0.95


async def test_a_trouble_is_logged_once(server, informer, start, script, caplog):
    server.fault("GET", "limit", script.refuse(403, "Forbidden", "not yours"), times=4)
    start(informer.run())
    await asyncio.wait_for(informer.synced.wait(), PATIENCE)
    warnings = [record for record in caplog.records if record.levelname == "WARNING"]
    assert len(warnings) == 1
    assert "not yours" in warnings[0].getMessage()
    assert all(second.at - first.at > 0.05 for first, second in itertools.pairwise(server.lists))


async def test_a_restarted_watch_is_routine(server, informer, start, eventually, script, caplog):
    with caplog.at_level(logging.INFO, logger="slipway.kube.caches.informer"):
        server.fault("GET", "watch=", script.refuse(410, "Expired", "too old resource version"))
        start(informer.run())
        await eventually(lambda: any("too old resource version" in record.getMessage() for record in caplog.records))
    assert [record.levelname for record in caplog.records if "too old" in record.getMessage()] == ["INFO"]


async def test_a_missing_optional_kind_is_logged_once_without_a_warning(
    server, client, start, script, caplog, eventually
):
    informer = Informer(client, POD, optional="the role pods")
    missing, busy = script.refuse(404, "NotFound", "page not found"), script.refuse(503, "ServiceUnavailable")
    for answer in (missing, missing, busy, missing):
        server.fault("GET", "limit", answer)
    with caplog.at_level(logging.INFO, logger="slipway.kube.caches.informer"):
        start(informer.run())
        await asyncio.wait_for(informer.synced.wait(), PATIENCE)
    messages = [(record.levelname, record.getMessage()) for record in caplog.records]
    assert messages[0] == ("INFO", "The cluster has no pods. To install them, use the role pods")
    assert [level for level, _text in messages] == ["INFO", "WARNING"]


async def test_the_informer_records_since_when_the_server_is_silent(server, informer, start, eventually, script):
    start(informer.run())
    await eventually(lambda: server.following)
    assert informer.silent_since == 0.0
    silence = server.fault("GET", "pods", script.refuse(503, "ServiceUnavailable"), times=10**6)
    server.cut()
    await eventually(lambda: informer.silent_since)
    since = informer.silent_since
    silence.times = 0
    await server.put(f"{PODS}/a")
    await eventually(lambda: informer.silent_since == 0.0)
    assert since > 0


async def test_a_server_that_lacks_a_kind_is_not_silent(server, client, start, eventually, script):
    server.fault("GET", "pods", script.refuse(404, "NotFound"), times=10**6)
    informer = Informer(client, POD, optional="the pods' API")
    start(informer.run())
    await eventually(lambda: informer.missing)
    assert informer.silent_since == 0.0
