"""Turns: namespaces are published one after the other, and nothing that a tenant may write changes that."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from slipway.apis.deckhouse import names
from slipway.apis.deckhouse.api import MODELS
from slipway.kube.caches.store import Change
from slipway.kube.objects import Key, Kind, Object, key
from slipway.kube.schemas.conditions import find, timestamp
from slipway.serving.contract.api import Rejection
from slipway.weights.jobs import publications, turns
from tests import worlds

from .cluster import DIGEST, Cluster, publication


def turn(cluster: Cluster, name: str) -> str:
    return str((find(cluster.models[name], turns.TURN) or {}).get("status"))


def publish(cluster: Cluster, name: str) -> None:
    """Ends a publication, after which all models are looked at."""
    cluster.now += 1
    cluster.ends(name, publication())
    cluster.reconcile(name)
    cluster.reconcile_all()
    cluster.reconcile_all()


# Namespaces


def test_a_namespace_leaves_a_turn_to_the_others() -> None:
    cluster = Cluster()
    for number in range(6):
        cluster.create(f"m{number}", namespace="first")
    cluster.reconcile_all(2)
    assert cluster.busy() == ["m0", "m1", "m2"]
    cluster.create("tiny", namespace="second")
    cluster.reconcile("tiny")
    assert cluster.busy() == ["m0", "m1", "m2", "tiny"]


def test_a_namespace_whose_publishers_report_no_size_delays_others_once() -> None:
    """Its authors suspend the publishers, and have its next model examined first."""
    cluster = Cluster(capacityLimit="1000")
    for number in range(3):
        cluster.create(f"m{number}", namespace="first")
    cluster.reconcile_all(2)
    assert cluster.busy() == ["m0"]
    cluster.create("tiny", namespace="second")
    cluster.reconcile("tiny")
    cluster.reconcile("tiny")
    assert cluster.busy() == ["m0"]
    cluster.now += turns.UNKNOWN_SECONDS
    cluster.reconcile("m1")
    cluster.reconcile("m1")
    cluster.reconcile("tiny")
    assert cluster.busy() == ["m0", "tiny"]


def test_models_of_the_cluster_are_one_namespace() -> None:
    cluster = Cluster(publicationsAtOnce=2)
    for number in range(3):
        cluster.create(f"c{number}", kind="ClusterModel")
    cluster.reconcile_all(2)
    cluster.create("tiny")
    cluster.reconcile("tiny")
    assert cluster.busy() == ["c0", "tiny"]


def test_namespaces_have_turns_one_after_the_other_however_old_the_models_of_one_are() -> None:
    cluster = Cluster(publicationsAtOnce=1)
    for number in range(3):
        cluster.create(f"a{number}", namespace="a")
    cluster.reconcile_all(2)
    cluster.create("b0", namespace="b")
    cluster.create("c0", namespace="c")
    cluster.create("b1", namespace="b")
    cluster.now += 1
    cluster.reconcile_all(2)
    order = []
    for _unused in range(6):
        order += cluster.busy()
        publish(cluster, cluster.busy()[0])
    assert order == ["a0", "a1", "b0", "c0", "a2", "b1"]


def test_a_namespace_that_deletes_its_published_models_has_no_more_turns() -> None:
    cluster = Cluster(publicationsAtOnce=1)
    for number in range(4):
        cluster.create(f"a{number}", namespace="a")
    cluster.reconcile_all(2)
    cluster.create("b0", namespace="b")
    cluster.reconcile("b0")
    for name in ("a0", "a1"):
        assert cluster.busy() == [name]
        cluster.now += 1
        cluster.ends(name, publication())
        cluster.reconcile(name)
        del cluster.models[name]
        cluster.jobs.clear()
        cluster.reconcile_all(2)
    assert cluster.busy() == ["b0"]


def test_one_model_of_a_namespace_is_next_and_the_others_wait_behind_it() -> None:
    cluster = Cluster(publicationsAtOnce=1)
    for number in range(4):
        cluster.create(f"m{number}")
    cluster.reconcile_all(2)
    assert [turn(cluster, f"m{number}") for number in range(4)] == ["True", "Unknown", "False", "False"]
    assert [cluster.recheck(f"m{number}") for number in (1, 2)] == [30, 300]
    assert cluster.condition("m1", turns.TURN) == ("Unknown", "NextInNamespace")
    assert cluster.condition("m2", turns.TURN) == ("False", "WaitingInNamespace")
    publish(cluster, "m0")
    assert [turn(cluster, f"m{number}") for number in range(4)] == ["None", "True", "Unknown", "False"]


def test_two_models_of_one_name_have_turns_of_their_own() -> None:
    cluster = Cluster(publicationsAtOnce=1)
    cluster.create("one", namespace="a")
    cluster.create("two", namespace="b")
    for name in ("one", "two"):
        cluster.models[name]["metadata"]["name"] = "tiny"
    cluster.reconcile_all(2)
    assert (cluster.busy(), turn(cluster, "two")) == (["one"], "Unknown")
    publish(cluster, "one")
    assert cluster.busy() == ["two"]


def test_a_model_that_is_deleted_in_its_turn_gives_it_to_the_next_one() -> None:
    cluster = Cluster(publicationsAtOnce=1)
    cluster.create("old")
    cluster.create("new")
    cluster.reconcile_all(2)
    assert cluster.busy() == ["old"]
    cluster.delete("old")
    cluster.reconcile_all(2)
    assert turn(cluster, "new") == "True"


def test_a_deleted_model_that_a_foreign_finalizer_keeps_holds_no_turn() -> None:
    cluster = Cluster(publicationsAtOnce=1)
    cluster.create("kept", namespace="a")
    cluster.reconcile("kept")
    cluster.delete("kept")
    cluster.create("tiny", namespace="b")
    cluster.reconcile("tiny")
    assert (cluster.models["kept"]["status"]["phase"], turn(cluster, "tiny")) == ("Publishing", "True")


def test_a_restarted_controller_goes_on_with_the_same_turns() -> None:
    """It has nothing but what is stored: objects that it reads for the first time."""
    cluster = Cluster(publicationsAtOnce=2)
    for number in range(6):
        cluster.create(f"m{number}", namespace=f"n{number % 3}")
    cluster.reconcile_all(2)
    before = copy.deepcopy((cluster.busy(), cluster.models))
    cluster.reconcile_all(2)
    assert (cluster.busy(), cluster.models) == before


@pytest.mark.parametrize("seconds", [-3600, 3600])
def test_a_controller_whose_clock_differs_takes_no_turn_and_starves_no_namespace(seconds: int) -> None:
    cluster = Cluster(publicationsAtOnce=2)
    for number in range(4):
        cluster.create(f"a{number}", namespace="a")
    cluster.reconcile_all(2)
    cluster.now += seconds
    cluster.create("b0", namespace="b")
    cluster.reconcile_all(2)
    assert cluster.busy() == ["a0", "b0"]


# Deadline


def test_a_model_makes_way_for_another_namespace_after_an_hour_and_continues_later() -> None:
    cluster = Cluster(publicationsAtOnce=1)
    cluster.create("endless", namespace="a")
    cluster.reconcile("endless")
    cluster.tells("endless", 1, 100, "the same upload")
    cluster.reconcile("endless")
    cluster.create("tiny", namespace="b")
    cluster.reconcile_all(2)
    assert cluster.recheck("endless") == 3600
    cluster.now += 3599
    cluster.reconcile_all(2)
    assert cluster.busy() == ["endless"]
    cluster.now += 1
    cluster.reconcile_all(3)
    assert (cluster.busy(), cluster.phase("endless"), turn(cluster, "endless")) == (["tiny"], "Pending", "Unknown")
    publish(cluster, "tiny")
    assert cluster.busy() == ["endless"]
    assert publications.parse_record(cluster.annotations("endless")[names.PUBLICATION]).resume == "the same upload"
    assert cluster.models["endless"]["status"]["progress"] == "1%"


def test_a_model_keeps_its_turn_while_no_other_namespace_waits_for_it() -> None:
    cluster = Cluster(publicationsAtOnce=1)
    cluster.create("endless")
    cluster.create("behind")
    cluster.reconcile_all(2)
    cluster.now += 100_000
    cluster.reconcile_all(3)
    assert (cluster.busy(), cluster.recheck("endless")) == (["endless"], 30)


def test_as_many_models_make_way_as_namespaces_wait() -> None:
    cluster = Cluster(publicationsAtOnce=3)
    for number in range(2):
        cluster.create(f"a{number}", namespace="a")
        cluster.reconcile_all(2)
        cluster.now += 1
    cluster.create("b0", namespace="b")
    cluster.reconcile_all(2)
    assert cluster.busy() == ["a0", "a1", "b0"]
    cluster.now += 4000
    cluster.create("c0", namespace="c")
    cluster.reconcile_all(4)
    assert cluster.busy() == ["a1", "b0", "c0"]


# What tenants may write


def forge(cluster: Cluster, name: str, namespace: str, of: str, done: bool = False) -> Key:
    """A Job with our labels that names a model as its owner."""
    cluster._made += 1
    uid, place = f"forged-{cluster._made}", Key(namespace, name)
    reference = {"apiVersion": "ai.deckhouse.io/v1alpha1", "kind": "Model", "name": of, "uid": f"uid-{of}"}
    metadata = {"name": name, "namespace": namespace, "uid": uid, "creationTimestamp": timestamp(cluster.now)}
    metadata |= {"labels": {"app.kubernetes.io/managed-by": "slipway"}, "ownerReferences": [reference]}
    container = {"name": "loader", "args": ["loader", "publish", "hf://acme/tiny", "registry/x"]}
    job = {"metadata": metadata, "spec": {"template": {"spec": {"containers": [container]}}}, "owner": f"uid-{of}"}
    if done:
        job["status"] = {"conditions": [{"type": "Complete", "status": "True", "lastTransitionTime": timestamp(1)}]}
    cluster.jobs[place] = job
    return place


@pytest.mark.parametrize("owner", ["tiny", "other", "nothing"])
def test_forged_jobs_take_no_turn(owner: str) -> None:
    cluster = Cluster(publicationsAtOnce=1)
    cluster.create("other", namespace="tenant", upload={})
    cluster.reconcile("other")
    cluster.create("tiny")
    for number in range(20):
        forge(cluster, f"forged-{number}", "tenant", owner)
    cluster.reconcile("tiny")
    assert turn(cluster, "tiny") == "True"


@pytest.mark.parametrize("done", [False, True])
def test_a_forged_job_of_the_right_name_gives_a_model_no_turn_and_no_result(done: bool) -> None:
    cluster = Cluster(publicationsAtOnce=1)
    cluster.create("honest", namespace="a")
    cluster.reconcile("honest")
    cluster.create("eager", namespace="tenant")
    cluster.annotations("eager")  # there are none
    cluster.models["eager"]["metadata"]["annotations"] = {names.PUBLICATION: publications.FIRST.text()}
    place = forge(cluster, publications.name(cluster.models["eager"], "publish", 1), "tenant", "eager", done)
    assert cluster.phase("eager") == "Pending"
    cluster.reconcile("eager")
    assert (place in cluster.jobs, cluster.phase("eager"), turn(cluster, "honest")) == (False, "Pending", "True")


def test_a_model_whose_job_is_rejected_blocks_no_other_model() -> None:
    """Such as by a quota of its namespace, which a tenant may use up."""
    cluster = Cluster(publicationsAtOnce=1)
    cluster.create("refused", namespace="a")
    cluster.status("refused")
    assert turn(cluster, "refused") == "Unknown"
    cluster.status("refused", Rejection("QuotaExceeded", "The quota allows no Job.", retryable=True))
    assert turn(cluster, "refused") == "None"
    cluster.create("tiny", namespace="b")
    cluster.reconcile("tiny")
    assert cluster.busy() == ["tiny"]


def test_annotations_of_an_author_give_no_turn() -> None:
    cluster = Cluster(publicationsAtOnce=1)
    cluster.create("old", namespace="a")
    cluster.reconcile("old")
    cluster.create("tiny", namespace="b")
    cluster.models["tiny"]["metadata"]["annotations"] = {
        names.PUBLICATION: publications.Record(attempt=9, failures=4).text(),
        names.IMAGE_DIGEST: DIGEST,
    }
    cluster.reconcile_all(2)
    assert cluster.busy() == ["old"]


# Cost


class Counting:
    """Listers that count the objects that they give."""

    def __init__(self, listers: Any) -> None:
        self.listers, self.objects = listers, 0

    def list(self, kind: Kind, index: str = "", value: str = "") -> Sequence[Object]:
        objects: Sequence[Object] = self.listers.list(kind, index, value)
        self.objects += len(objects)
        return objects

    def count(self, kind: Kind, index: str, value: str) -> int:
        return int(self.listers.count(kind, index, value))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.listers, name)


def crowded(others: int, source: dict[str, Any]) -> Cluster:
    cluster = Cluster(publicationsAtOnce=2)
    cluster.create("first", namespace="crowd")
    cluster.create("mine", namespace="b")
    for number in range(others):
        cluster.create(f"m{number}", namespace="crowd", **source)
    for name in ("first", *(f"m{number}" for number in range(2))):
        cluster.reconcile(name)
    for number in range(2, others):
        cluster.models[f"m{number}"]["status"] = copy.deepcopy(cluster.models["m1"]["status"])
    return cluster


@pytest.mark.parametrize("source", [{}, {"catalog": {"name": "a"}}, {"upload": {}}], ids=["hub", "catalog", "upload"])
def test_a_look_costs_the_same_however_many_models_of_another_author_wait(source: dict[str, Any]) -> None:
    read = []
    for others in (10, 2000):
        world = crowded(others, source).world("mine")
        counting = Counting(world.listers)
        counted = msgspec.structs.replace(world, listers=counting)
        worlds.plan(MODELS[0], counted)
        worlds.status(MODELS[0], counted)
        read.append(counting.objects)
    assert read[0] == read[1] < 20


def test_a_model_behind_the_next_one_of_its_own_namespace_reads_no_other() -> None:
    cluster = crowded(2000, {})
    world = cluster.world("m1999")
    counting = Counting(world.listers)
    assert turns.place(msgspec.structs.replace(world, listers=counting), queue_of(world)) == "waits"
    assert counting.objects == 0


def queue_of(world: Any) -> turns.Queue:
    from slipway.apis.deckhouse.models import plan as models

    return models.queue(models.resolve(world))


# Who is woken


@pytest.mark.parametrize("api", MODELS)
def test_the_next_models_are_woken_when_a_turn_is_free(api: Any) -> None:
    kind = api.resource.kind
    cluster = Cluster(publicationsAtOnce=1)
    cluster.create("m0", kind=kind.kind)
    for number in range(1, 8):
        cluster.create(f"m{number}", kind=kind.kind, namespace=f"n{number}")
    cluster.reconcile_all(2)
    (before,) = (one for one in cluster.models.values() if turns.HAS in turns.by_turn(one))
    after = before | {"status": {"phase": "Ready", "conditions": [{"type": "Ready", "status": "True"}]}}
    cluster.models["m0"] = after
    watch = next(one for one in api.watches(cluster.settings) if one.kind == kind and turns.TURN in one.indexes)
    woken = [one.name for one in watch.enqueue(Change(old=before, new=after), cluster.world("m1").listers)]
    assert woken
    assert set(woken) <= {"m1", "m2", "m3", "m4", "m5", "m6", "m7"}
    assert list(watch.enqueue(Change(old=before, new=before), cluster.world("m1").listers)) == []
    del cluster.models["m0"]
    assert [one.name for one in watch.enqueue(Change(old=before, new=None), cluster.world("m1").listers)] == woken


def test_the_oldest_model_of_a_namespace_is_woken_when_the_next_one_goes() -> None:
    cluster = Cluster(publicationsAtOnce=1)
    for number in range(4):
        cluster.create(f"m{number}")
    cluster.reconcile_all(2)
    gone = cluster.models.pop("m1")
    watch = next(one for one in MODELS[0].watches(cluster.settings) if turns.TURN in one.indexes)
    assert list(watch.enqueue(Change(old=gone, new=None), cluster.world("m2").listers)) == [key(cluster.models["m2"])]


def test_many_models_that_come_at_once_read_no_other_and_the_oldest_is_the_next_one() -> None:
    cluster = Cluster()
    for number in range(500):
        cluster.create(f"m{number:03}", namespace="crowd")
    watch = next(one for one in MODELS[0].watches(cluster.settings) if turns.TURN in one.indexes)
    counting = Counting(cluster.world("m000").listers)
    for model in cluster.models.values():
        assert list(watch.enqueue(Change(old=None, new=model), counting)) == []
    assert counting.objects == 0
    for name in ("m499", "m498", "m000"):
        cluster.reconcile(name)
    assert [turn(cluster, name) for name in ("m499", "m498", "m000")] == ["False", "False", "True"]


def test_a_model_that_goes_from_behind_the_next_one_of_its_namespace_reads_no_other() -> None:
    cluster = crowded(500, {})
    watch = next(one for one in MODELS[0].watches(cluster.settings) if turns.TURN in one.indexes)
    gone = cluster.models.pop("m300")
    counting = Counting(cluster.world("mine").listers)
    assert list(watch.enqueue(Change(old=gone, new=None), counting)) == []
    assert counting.objects == 0


def test_models_that_may_make_way_are_woken_by_one_that_waits() -> None:
    cluster = Cluster(publicationsAtOnce=1)
    cluster.create("old", namespace="a")
    cluster.reconcile("old")
    cluster.create("tiny", namespace="b")
    before = copy.deepcopy(cluster.models["tiny"])
    cluster.reconcile("tiny")
    watch = next(one for one in MODELS[0].watches(cluster.settings) if turns.TURN in one.indexes)
    listers = cluster.world("tiny").listers
    woken = watch.enqueue(Change(old=before, new=cluster.models["tiny"]), listers)
    assert {one.name for one in woken} == {"old", "tiny"}
