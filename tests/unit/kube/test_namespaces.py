"""Informers of chosen namespaces: one store, and what happens to one namespace is nothing to the others."""

from __future__ import annotations

import logging

import pytest

from slipway.kube.caches import expectations as expectations_module
from slipway.kube.caches import informer as informer_module
from slipway.kube.caches import namespaces as namespaces_module
from slipway.kube.caches.expectations import Expectations
from slipway.kube.caches.namespaces import ChosenNamespaces
from slipway.kube.objects import POD, Key
from slipway.kube.runtime.manager import Manager

A, B, C = (f"/api/v1/namespaces/{name}/pods" for name in "abc")


@pytest.fixture
def informer(client):
    return ChosenNamespaces(client, POD, ("a", "b"), labels="mine=yes", indexes={"node": lambda obj: [obj.get("node")]})


@pytest.fixture
def changes(informer):
    seen = []
    informer.add_handler(lambda change: seen.append((change.type, str(change.key))))
    return seen


async def pod(server, path, **fields):
    return await server.put(path, metadata={"labels": {"mine": "yes"}}, **fields)


def names(informer):
    return {f"{obj['metadata']['namespace']}/{obj['metadata']['name']}" for obj in informer.store.all()}


def paths_of(requests):
    return sorted(one.path for one in requests)


async def test_only_the_chosen_namespaces_are_asked_for_and_seen(server, informer, changes, start, eventually):
    for place in (A, B, C):
        await pod(server, f"{place}/x", node="one")
    await server.put(f"{A}/unlabelled")
    start(informer.run())
    await informer.synced.wait()
    assert informer.answered.is_set()
    assert names(informer) == {"a/x", "b/x"}
    await pod(server, f"{C}/y")
    await pod(server, f"{B}/y")
    await server.remove(f"{A}/x")
    await eventually(lambda: sorted(changes[2:]) == [("ADDED", "b/y"), ("DELETED", "a/x")])
    assert sorted(changes[:2]) == [("ADDED", "a/x"), ("ADDED", "b/x")]
    assert [str(Key("b", obj["metadata"]["name"])) for obj in informer.store.by_index("node", "one")] == ["b/x"]
    assert paths_of(server.lists) == paths_of(server.watches) == [A, B]


async def test_a_late_handler_hears_once_of_what_is_there_and_of_what_comes(server, informer, start, eventually):
    await pod(server, f"{A}/x")
    start(informer.run())
    await informer.synced.wait()
    seen = []
    informer.add_handler(lambda change: seen.append(str(change.key)))
    await pod(server, f"{B}/y")
    await eventually(lambda: len(seen) > 1)
    await informer.refresh(Key("b", "y"))
    assert seen == ["a/x", "b/y"]


async def test_an_object_is_refreshed_for_who_cannot_wait_for_the_watch(server, informer, changes, start, eventually):
    start(informer.run())
    await eventually(lambda: len(server.following) == 2)
    server.deliver.clear()
    await pod(server, f"{A}/x")
    await informer.refresh(Key("a", "x"))
    assert names(informer) == {"a/x"}
    server.deliver.set()
    await pod(server, f"{B}/y")
    await eventually(lambda: changes == [("ADDED", "a/x"), ("ADDED", "b/y")])


async def test_row_8_an_expired_version_of_one_namespace_lists_that_one_again(
    server, informer, changes, start, eventually, script
):
    await pod(server, f"{A}/x")
    await pod(server, f"{B}/x")
    gone = script.stream(script.event("ERROR", script.status(410, "Expired")))
    server.fault("GET", f"{A}?watch", gone)
    start(informer.run())
    await eventually(lambda: paths_of(server.lists) == [A, A, B])
    await pod(server, f"{A}/y")
    await pod(server, f"{B}/y")
    await eventually(lambda: names(informer) == {"a/x", "a/y", "b/x", "b/y"})
    assert paths_of(server.lists) == [A, A, B]
    assert "DELETED" not in {kind for kind, _unused in changes}


async def test_a_deletion_without_a_watch_event_is_found_in_its_own_namespace(
    server, informer, changes, start, eventually, script
):
    for name in ("x", "y"):
        await pod(server, f"{A}/{name}")
        await pod(server, f"{B}/{name}")
    server.fault("GET", f"{A}?watch", script.stream(script.event("ERROR", script.status(410, "Expired")), hold=0.2))
    start(informer.run())
    await informer.synced.wait()
    await server.remove(f"{A}/x", silently=True)
    await eventually(lambda: ("DELETED", "a/x") in changes)
    assert names(informer) == {"a/y", "b/x", "b/y"}


async def test_a_namespace_that_is_deleted_and_made_again_is_followed_again(
    server, informer, changes, start, eventually, script, monkeypatch
):
    monkeypatch.setattr(informer_module, "_FAILURES_BEFORE_RELIST", 1)
    monkeypatch.setattr(namespaces_module, "REFUSALS", 2)
    before = await pod(server, f"{A}/x")
    await pod(server, f"{B}/x")
    start(informer.run())
    await eventually(lambda: len(server.following) == 2)
    # The Role is deleted with the namespace, and the watch may break before it has reported everything.
    server.fault("GET", A, script.refuse(403, "Forbidden"), times=10**6)
    await server.remove(f"{A}/x", silently=True)
    server.cut()
    await eventually(lambda: names(informer) == {"b/x"})
    await pod(server, f"{B}/y")
    await eventually(lambda: names(informer) == {"b/x", "b/y"})
    server.faults.clear()
    after = await pod(server, f"{A}/x")
    await eventually(lambda: "a/x" in names(informer))
    assert informer.store.get(Key("a", "x"))["metadata"]["uid"] == after["metadata"]["uid"] != before["metadata"]["uid"]
    assert [change for change in changes if change[1] == "a/x"] == [
        ("ADDED", "a/x"),
        ("DELETED", "a/x"),
        ("ADDED", "a/x"),
    ]


async def test_objects_that_are_briefly_forbidden_stay_in_the_caches(server, informer, start, eventually, script):
    await pod(server, f"{A}/x")
    start(informer.run())
    await eventually(lambda: len(server.following) == 2)
    server.fault("GET", A, script.refuse(403, "Forbidden"), times=3)
    server.cut()
    await pod(server, f"{A}/y")
    await eventually(lambda: names(informer) == {"a/x", "a/y"})


async def test_a_namespace_that_may_not_be_listed_keeps_no_other_one_waiting(
    server, informer, metrics, start, eventually, script, monkeypatch
):
    """Otherwise a tenant who deletes a namespace would block the controller's next start for everyone."""
    monkeypatch.setattr(namespaces_module, "REFUSALS", 2)
    server.fault("GET", A, script.refuse(403, "Forbidden"), times=10**6)
    await pod(server, f"{B}/x")
    manager = Manager(informers=[informer], controllers=[], metrics=metrics, listen="127.0.0.1:0")
    start(manager.run())
    await eventually(manager.ready)
    await informer.synced.wait()
    assert names(informer) == {"b/x"}


async def test_a_missing_kind_blocks_nothing_and_is_found_once_it_is_installed(
    server, informer, start, eventually, script
):
    server.fault("GET", "/pods", script.refuse(404, "NotFound"), times=10**6)
    start(informer.run())
    await informer.answered.wait()
    assert not informer.synced.is_set()
    server.faults.clear()
    await pod(server, f"{A}/x")
    await eventually(lambda: names(informer) == {"a/x"} and informer.synced.is_set())


async def test_news_of_one_namespace_do_not_stand_for_what_was_written_in_another(
    server, informer, start, eventually, script, monkeypatch
):
    """A lags behind: that B's watch is further does not mean that A's shows what was written there."""
    monkeypatch.setattr(expectations_module, "WAIT_SECONDS", 0.05)
    server.fault("GET", f"{A}?watch", script.stream(hold=60), times=9)
    start(informer.run())
    await eventually(lambda: len(server.watches) == 2 and informer.synced.is_set())
    expectations, written = Expectations(), await pod(server, f"{A}/x")
    later = await pod(server, f"{B}/y")
    await eventually(lambda: informer.store.revision("b") == int(later["metadata"]["resourceVersion"]))
    assert informer.store.revision("a") < int(written["metadata"]["resourceVersion"])
    expectations.wrote("owner", informer, written)
    await expectations.wait_until_observed("owner")
    assert informer.store.get(Key("a", "x")) is not None, "read directly, as the watch does not show it"
    assert [one.path for one in server.log if one.path == f"{A}/x"] == [f"{A}/x"]


async def test_an_optional_kind_that_the_cluster_lacks_is_reported_once_for_all_namespaces(
    server, client, start, script, caplog, eventually
):
    server.fault("GET", "limit", script.refuse(404, "NotFound", "page not found"), times=4)
    informer = ChosenNamespaces(client, POD, ("a", "b"), optional="the role pods")
    with caplog.at_level(logging.INFO, logger="slipway.kube.caches.informer"):
        start(informer.run())
        await informer.synced.wait()
    messages = [record.getMessage() for record in caplog.records if "pods" in record.getMessage()]
    assert messages == ["The cluster has no pods. To install them, use the role pods"]
