"""Turns: namespaces load one after the other on each node, and a look costs the same however many models wait."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec
import pytest

from slipway.apis.ome.models import line, room, turns
from slipway.apis.ome.names import BASE_MODEL
from slipway.kube.caches.store import Change
from slipway.kube.objects import NODE, Key
from slipway.kube.schemas.conditions import timestamp
from slipway.serving.contract.api import Rejection, World
from slipway.serving.contract.settings import Settings
from slipway.serving.pods.job import PODLESS_SECONDS
from slipway.weights import nodes
from slipway.weights.jobs.loads import EVICTION_SECONDS, LOAD_SECONDS, RETRY_SECONDS
from tests import worlds

from .cluster import APIS, START, Cluster

API = APIS[BASE_MODEL.kind]


def settings(at_once: int, **others: Any) -> Settings:
    return Settings(apis={"ome": {"loadsAtOnce": at_once, **others}})


def create(cluster: Cluster, namespace: str, *names: str, **fields: Any) -> None:
    for name in names:
        cluster.create(
            name,
            f"hf://{namespace or 'acme'}/{name}",
            "BaseModel" if namespace else "ClusterBaseModel",
            namespace,
            **fields,
        )


def loading(cluster: Cluster) -> list[str]:
    owners = {model["metadata"]["uid"]: name for name, model in cluster.models.items()}
    return sorted(owners[cluster.jobs[place]["owner"]] for place in cluster.working())


MANY = 32


def forge(cluster: Cluster, count: int, namespace: str = "") -> None:
    """The authors of the only Job copy it, in their namespace, where only the API server's owner references count; or
    there is more of it in the operator's ``namespace``."""
    ((_place, job),) = cluster.jobs.items()
    (owner,) = job["metadata"]["ownerReferences"]
    for number in range(count):
        name, place = f"forged-{number}", namespace or owner["namespace"]
        reference = owner if namespace else {field: owner[field] for field in owner if field != "namespace"}
        metadata = job["metadata"] | {"name": name, "uid": name, "namespace": place, "ownerReferences": [reference]}
        cluster.jobs[Key(place, name)] = job | {"metadata": metadata, "owner": "a stranger"}


# Namespaces


def test_a_namespace_with_older_models_leaves_the_next_turn_to_one_with_fewer_loads() -> None:
    cluster = Cluster("a")
    create(cluster, "first", "f0", "f1", "f2", "f3")
    cluster.reconcile_all()
    assert loading(cluster) == ["f0", "f1"]
    create(cluster, "second", "s0", "s1")
    cluster.reconcile_all()
    assert loading(cluster) == ["f0", "f1", "s0"]
    cluster.run(next(place for place, job in cluster.jobs.items() if "first/f0" in str(job)))
    cluster.reconcile_all()
    cluster.reconcile("s1")
    assert loading(cluster) in (["f1", "f2", "s0"], ["f1", "s0", "s1"])


@pytest.mark.parametrize("at_once", [1, 3])
def test_a_model_of_the_cluster_is_loaded_though_namespaces_have_all_turns(at_once: int) -> None:
    cluster = Cluster("a", settings=settings(at_once))
    create(cluster, "first", "f0", "f1")
    create(cluster, "second", "s0", "s1")
    cluster.reconcile_all()
    cluster.reconcile_all()
    assert len(loading(cluster)) == at_once
    create(cluster, "", "own", "next")
    cluster.reconcile_all()
    assert "own" in loading(cluster)
    assert len(loading(cluster)) == at_once + 1


def test_namespaces_with_equally_many_loads_take_turns() -> None:
    first = set()
    for slot in range(20):
        cluster = Cluster("a", settings=settings(1))
        create(cluster, "old", "o0", "o1")
        create(cluster, "young", "y0")
        cluster.now += slot * turns.SLOT_SECONDS
        cluster.reconcile_all()
        first.update(loading(cluster))
    assert first == {"o0", "y0"}


def test_a_load_that_failed_is_behind_the_others_of_its_namespace() -> None:
    cluster = Cluster("a", settings=settings(1))
    create(cluster, "chat", "failing", "next", "last")
    cluster.reconcile_all()
    cluster.run(cluster.working()[0], fails="the hub does not answer")
    cluster.reconcile_all()
    assert loading(cluster) == ["next"]
    cluster.now += RETRY_SECONDS
    cluster.reconcile("failing")
    cluster.run(cluster.working()[0])
    cluster.reconcile_all()
    cluster.reconcile_all()
    assert loading(cluster) == ["last"]
    assert cluster.reason("failing") == "WaitingForTurn"


def test_a_load_without_an_end_fails_after_a_day_and_is_behind_the_others_of_its_namespace() -> None:
    cluster = Cluster("a", settings=settings(1))
    create(cluster, "chat", "endless", "next")
    cluster.reconcile_all()
    ((_place, job),) = cluster.jobs.items()
    assert job["spec"]["activeDeadlineSeconds"] == LOAD_SECONDS == 86400
    over = {
        "type": "Failed",
        "status": "True",
        "reason": "DeadlineExceeded",
        "lastTransitionTime": timestamp(cluster.now),
    }
    job["status"] = {"conditions": [over]}
    cluster.reconcile_all()
    assert loading(cluster) == ["next"]
    assert "it did not finish within 1440 min" in cluster.message("endless").lower()


def test_a_model_that_failed_on_a_node_and_waits_on_another_is_in_the_queue() -> None:
    cluster = Cluster("a", settings=settings(1))
    cluster.join("b", gpu="yes")
    create(cluster, "chat", "first", nodeSelector={"gpu": "yes"})
    cluster.reconcile("first")
    create(cluster, "chat", "m")
    cluster.reconcile("m")
    cluster.run(next(place for place in cluster.working() if nodes.node_of(cluster.jobs[place]) == "a"), fails="no")
    cluster.reconcile("m")
    assert cluster.status("m")["state"] == "Failed"
    assert list(turns.ByQueue(cluster.settings)(cluster.models["m"])) == ["chat"]


@pytest.mark.parametrize(
    "change",
    [
        {"kind": "BaseModel", "uri": "pvc://claim/x"},
        {"kind": "BaseModel", "uri": "vendor://x"},
        {"kind": "BaseModel", "uri": "az://x/y"},
    ],
)
def test_a_model_that_needs_no_node_is_in_no_queue(change: dict[str, str]) -> None:
    cluster = Cluster("a")
    cluster.create("m", change["uri"], change["kind"], path=None)
    assert list(turns.ByQueue(cluster.settings)(cluster.models["m"])) == []


def test_a_model_whose_files_are_everywhere_is_in_no_queue() -> None:
    cluster = Cluster("a")
    create(cluster, "chat", "m")
    assert list(turns.ByQueue(cluster.settings)(cluster.models["m"])) == ["chat"]
    cluster.settle()
    assert list(turns.ByQueue(cluster.settings)(cluster.models["m"])) == []
    cluster.delete("m")
    assert list(turns.ByQueue(cluster.settings)(cluster.models["m"])) == []


def test_a_load_that_begins_or_ends_wakes_the_first_models_that_wait_of_each_queue() -> None:
    cluster = Cluster("a")
    create(cluster, "first", "f0", "f1", "f2", "f3", "f4")
    create(cluster, "second", "s0", "s1")
    for name in ("f0", "s0"):
        cluster.reconcile(name)
    before = nodes.trim_node(cluster.nodes["a"])
    cluster.label("a", **{"models.ome.io/first.basemodel.f0": "Ready"})
    change = Change(before, nodes.trim_node(cluster.nodes["a"]))
    watch = next(one for one in API.watches(cluster.settings) if one.kind == NODE)
    woken = {place.name for place in watch.enqueue(change, cluster.world("f0").listers)}
    assert woken == {"f0", "f1", "f2", "s1"}


def woken(cluster: Cluster, now: float) -> set[str]:
    node, listers = nodes.parse_node(nodes.trim_node(cluster.nodes["a"])), cluster.world("m").listers
    return {place.namespace for place in turns.next_on(listers, cluster.settings, BASE_MODEL, node, now)}


def test_the_queues_with_the_fewest_loads_are_woken_in_the_order_of_their_turns() -> None:
    cluster = Cluster("a")
    create(cluster, "a-busy", "m")
    cluster.reconcile("m")
    forge(cluster, MANY)
    cluster.jobs = {place: job | {"status": {"active": 1}} for place, job in cluster.jobs.items()}
    create(cluster, "a-busy", "next")
    names = {f"q{number:02}" for number in range(turns.MOST_WOKEN)}
    for name in names:
        create(cluster, name, f"m-{name}")
    assert woken(cluster, cluster.now) == names
    later = {f"r{number:02}" for number in range(turns.MOST_WOKEN)}
    for name in later:
        create(cluster, name, f"m-{name}")
    slots = [woken(cluster, cluster.now + slot * turns.SLOT_SECONDS) for slot in range(20)]
    assert all(len(slot) == turns.MOST_WOKEN for slot in slots)
    assert set().union(*slots) == names | later


@pytest.mark.parametrize("retryable", [False, True])
def test_a_model_whose_jobs_a_quota_rejects_keeps_no_other_waiting(*, retryable: bool) -> None:
    cluster = Cluster("a")
    create(cluster, "chat", "m")
    rejection = Rejection("ExceededQuota", "The quota has no room for Jobs.", retryable=retryable)
    cluster.models["m"]["status"] = worlds.status(API, cluster.world("m"), rejection).status
    assert list(turns.ByQueue(cluster.settings)(cluster.models["m"])) == []


def test_the_models_of_a_long_queue_are_examined_no_more_often_than_those_of_a_short_one() -> None:
    cluster, names = Cluster("a"), [f"m{number}" for number in range(208)]
    create(cluster, "chat", *names)
    for _unused in range(2):
        cluster.reconcile("m0")
    assert [cluster.recheck(name) for name in ("m3", "m15")] == [30, 30]
    behind = [cluster.recheck(name) for name in names[turns.MOST_EXAMINED :: turns.MOST_EXAMINED]]
    assert sorted(filter(None, behind)) == [30 * number for number in range(1, 13)]


@pytest.mark.parametrize("kind", ["BaseModel", "FineTunedWeight"])
@pytest.mark.parametrize("others", [16, 64])
def test_models_behind_those_of_other_nodes_load_in_turn(kind: str, others: int) -> None:
    cluster = Cluster("a")
    names = [f"m{number}" for number in range(others + 20)]
    for name in names[:others]:
        cluster.create(name, f"hf://acme/{name}", kind, nodeSelector={"pool": "other"})
    for name in names[others:]:
        cluster.create(name, f"hf://acme/{name}", kind)
    backlog, rounds = set(names[others:]), 0
    while backlog:
        world, node = cluster.world(names[0]), nodes.parse_node(nodes.trim_node(cluster.nodes["a"]))
        worlds_of = {name: msgspec.structs.replace(world, resource=cluster.models[name]) for name in backlog}
        can = {name for name, one in worlds_of.items() if turns.has_turn(one, node, desired(one, node))}
        assert len(can) <= 3
        next_ones = turns.next_on(world.listers, cluster.settings, APIS[kind].resource.kind, node, cluster.now)
        assert can & {place.name for place in next_ones} or not can
        for name in can:  # it is loaded at once
            del cluster.models[name]
        backlog, rounds, cluster.now = backlog - can, rounds + 1, cluster.now + turns.RECHECK_SECONDS
    assert rounds <= 20 * math.ceil(others / turns.MOST_EXAMINED)


def desired(world: World, node: nodes.Node) -> turns.Desired:
    desired_state = turns.desired_of(world.resource, node, world.settings)
    assert desired_state is not None
    return desired_state


def test_a_model_without_room_is_in_the_queue_and_wakes_when_there_is_some(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster("a")
    create(cluster, "chat", "m0", "m1")
    cluster.reconcile("m0")
    with monkeypatch.context() as narrow:
        narrow.setattr(room, "OF_A_NAMESPACE", 1)
        assert cluster.reason("m1") == "NodeFull"
    before = nodes.trim_node(cluster.nodes["a"])
    cluster.label("a", **{"models.ome.io/chat.basemodel.m0": "Ready"})
    change = Change(before, nodes.trim_node(cluster.nodes["a"]))
    watch = next(one for one in API.watches(cluster.settings) if one.kind == NODE)
    assert "m1" in {place.name for place in watch.enqueue(change, cluster.world("m0").listers)}


# Jobs of authors


def test_forged_jobs_delay_no_model() -> None:
    cluster = Cluster("a")
    create(cluster, "chat", "m")
    cluster.reconcile("m")
    forge(cluster, MANY)
    create(cluster, "chat", "next")
    create(cluster, "second", "s0")
    cluster.reconcile("next")
    cluster.reconcile("s0")
    assert len([place for place in cluster.jobs if place.namespace == "ome"]) == 3


@pytest.mark.parametrize(
    "state",
    [
        {"status": {"conditions": [{"type": "Failed", "status": "True", "lastTransitionTime": timestamp(START)}]}},
        {"suspend": True},
        {"suspend": True, "status": {"failed": 1}},
    ],
)
def test_jobs_that_have_ended_or_are_suspended_take_no_turn(state: dict[str, Any]) -> None:
    cluster = Cluster("a")
    create(cluster, "chat", "m")
    cluster.reconcile("m")
    forge(cluster, MANY, "ome")
    for place, job in cluster.jobs.items():
        spec = job["spec"] | {"suspend": state.get("suspend", False)}
        cluster.jobs[place] = {**job, "spec": spec, "status": state.get("status", {})}
    create(cluster, "chat", "next")
    create(cluster, "second", *(f"s{number}" for number in range(3)))
    cluster.reconcile_all()
    jobs = [job for job in cluster.jobs.values() if job["owner"] != "a stranger"]
    assert sorted(job["metadata"]["ownerReferences"][0]["namespace"] for job in jobs) == [
        "chat",
        "chat",
        "second",
        "second",
    ]


def test_jobs_without_pods_hold_turns_only_while_they_are_new() -> None:
    cluster = Cluster("a")
    create(cluster, "chat", "m", "next")
    cluster.reconcile("m")
    forge(cluster, MANY, "ome")
    cluster.now += PODLESS_SECONDS - 1
    cluster.reconcile("next")
    assert cluster.reason("next") == "WaitingForTurn"
    cluster.now += 1
    cluster.reconcile("next")
    assert cluster.reason("next") != "WaitingForTurn"


def test_a_model_whose_load_failed_for_good_does_not_delay_the_others_of_its_namespace() -> None:
    cluster = Cluster("a", settings=settings(1))
    create(cluster, "chat", "unsound", "next")
    cluster.reconcile("unsound")
    cluster.run(cluster.working()[0], fails="slipway: IntegrityCheckFailed: no")
    cluster.reconcile_all()
    assert loading(cluster) == ["next"]


def test_a_load_that_does_not_go_is_waited_for_as_long_as_it_may_write() -> None:
    cluster = Cluster("a", settings=settings(3, sharedRoots=["/mnt/shared"]))
    create(cluster, "chat", "m", path="/mnt/shared/x")
    cluster.reconcile("m")
    cluster.create("own", "hf://acme/own", path="/mnt/shared/x")
    cluster.reconcile("own")
    assert cluster.reason("own") == "WaitingForTurn"
    for place in list(cluster.jobs):
        stamp = {"deletionTimestamp": "2027-01-15T07:59:00Z"}
        cluster.jobs[place] = {**cluster.jobs[place], "metadata": cluster.jobs[place]["metadata"] | stamp}
    cluster.now += EVICTION_SECONDS
    cluster.reconcile("own")
    assert cluster.reason("own") != "WaitingForTurn"


# The cost of a look


def calls(work: Callable[[], object]) -> int:
    """How many functions it calls, built-in ones included."""
    counted = 0

    def count(_frame: Any, event: str, _argument: Any) -> None:
        nonlocal counted
        counted += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(None)
    return counted


def on_claims(cluster: Cluster, count: int) -> None:
    for number in range(count):
        cluster.create(f"m{number}", f"pvc://claim/{number}", "BaseModel", "crowd", path=None)


def waiting(cluster: Cluster, count: int) -> None:
    create(cluster, "crowd", *(f"m{number}" for number in range(count)))


def elsewhere(cluster: Cluster, count: int) -> None:
    create(cluster, "crowd", *(f"m{number}" for number in range(count)), nodeSelector={"gpu": "other"})


def failed(cluster: Cluster, count: int) -> None:
    waiting(cluster, count)
    for number in range(count):
        condition = {"type": "Progressing", "status": "False"}
        cluster.models[f"m{number}"]["status"] = {"conditions": [condition]}


def forging(cluster: Cluster, count: int) -> None:
    create(cluster, "crowd", "m0")
    cluster.reconcile("m0")
    forge(cluster, count)


@pytest.mark.parametrize("others", [on_claims, waiting, elsewhere, failed, forging])
def test_a_look_costs_the_same_however_many_models_and_jobs_another_author_has(
    others: Callable[[Cluster, int], None],
) -> None:
    counted = []
    for count in (48, 1008):
        cluster = Cluster("a", settings=settings(2))
        others(cluster, count)
        create(cluster, "chat", "mine")
        world = cluster.world("mine")
        slots = [msgspec.structs.replace(world, now=world.now + slot * turns.SLOT_SECONDS) for slot in range(8)]

        def look(slots: list[World] = slots) -> None:
            for one in slots:  # in some of them the other namespace is first
                view = API.resolve(one)
                API.plan(view)
                API.status(view, None)

        look()  # sorts what is read for the first time
        counted.append(calls(look))
    assert abs(counted[1] - counted[0]) <= 0.02 * counted[0]


def of_many_namespaces(cluster: Cluster, count: int) -> None:
    """The models of most namespaces wait for other nodes."""
    for number in range(count):
        create(cluster, f"crowd-{number}", f"m{number}", nodeSelector={"gpu": "other"} if number % 8 else None)


def test_a_look_at_a_model_that_waits_costs_the_same_however_many_namespaces_wait() -> None:
    counted = []
    for count in (48, 480):
        cluster = Cluster("a", settings=settings(2))
        of_many_namespaces(cluster, count)
        create(cluster, "chat", "mine")
        world, node = cluster.world("mine"), nodes.parse_node(nodes.trim_node(cluster.nodes["a"]))
        slots = [msgspec.structs.replace(world, now=world.now + slot * turns.SLOT_SECONDS) for slot in range(8)]
        looks = [partial(turns.has_turn, one, node, desired(one, node)) for one in slots]
        waits = [look for look in looks if not look()]  # the first look also sorts what is read for the first time
        assert len(waits) > 3
        counted.append(sorted(calls(look) for look in waits for _again in range(2))[len(waits)])
    assert counted[1] <= 1.1 * counted[0]  # a few calls more or fewer, by the order of sets


def test_queues_that_were_ahead_change_no_result(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster("a", settings=settings(2))
    of_many_namespaces(cluster, 24)
    world, node = cluster.world("m0"), nodes.parse_node(nodes.trim_node(cluster.nodes["a"]))
    models = [one for name, one in cluster.models.items() if "nodeSelector" not in one["spec"]["storage"]]
    looks = [
        msgspec.structs.replace(world, resource=model, now=world.now + slot * turns.SLOT_SECONDS)
        for slot in range(6)
        for model in models
    ]
    remembered = [turns.has_turn(one, node, desired(one, node)) for one in looks]
    fresh = []
    for one in looks:
        monkeypatch.setattr(turns, "HEADS", line.QueueHeads())
        fresh.append(turns.has_turn(one, node, desired(one, node)))
    assert remembered == fresh
    assert sum(fresh) == 6 * 2
