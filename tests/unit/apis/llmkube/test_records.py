"""What is known of the folders of a cache lies on Models: who has it, who gets it, and what it costs the others."""

from __future__ import annotations

import random
import tracemalloc
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from slipway.apis.llmkube import MODELS, SERVICES, names
from slipway.apis.llmkube.models import cache
from slipway.apis.llmkube.models import spec as model_spec
from slipway.apis.llmkube.models.spec import Model
from slipway.apis.llmkube.types.model import KIND
from slipway.kube.caches.store import Change
from slipway.kube.objects import PERSISTENT_VOLUME_CLAIM, Kind, Object, deleting
from slipway.serving.contract.settings import Settings
from tests import worlds
from tests.tables import seeds

from .test_model_lifecycles import SOURCES, Cluster, annotate, complete, inventory

KEY, OTHER = (names.cache_key(source) for source in SOURCES[:2])


def holders(cluster: Cluster, key: str = KEY) -> list[str]:
    """The Models that have a record of a folder."""
    return [name for name, model in cluster.models.items() if key in cache.read_records(model)]


def as_before(cluster: Cluster) -> None:
    """All records move to the claim, where earlier versions had them."""
    assert cluster.claim is not None
    for model in cluster.models.values():
        for key, record in cache.read_records(model).items():
            text = msgspec.json.encode(msgspec.structs.replace(record, claim="")).decode()
            annotate(cluster.claim, {f"{names.LOADED}{key}": text})
            annotate(model, {f"{names.LOADED}{key}": None})


@pytest.fixture
def shared() -> Cluster:
    """Two Models of one source, of which the first has brought it."""
    cluster = Cluster()
    cluster.create("first", SOURCES[0])
    cluster.settle()
    cluster.create("second", SOURCES[0])
    cluster.settle()
    assert (holders(cluster), cluster.downloads) == (["first"], [SOURCES[0]])
    return cluster


def test_a_model_that_turns_to_another_source_hands_its_record_on(shared: Cluster) -> None:
    shared.models["first"]["spec"]["source"] = SOURCES[1]
    shared.settle()
    assert (holders(shared), holders(shared, OTHER)) == (["second"], ["first"])
    assert (shared.downloads, shared.phase("second")) == ([SOURCES[0], SOURCES[1]], "Ready")


def test_a_model_that_goes_has_handed_its_record_on_before(shared: Cluster) -> None:
    shared.delete("first")
    shared.reconcile("first")
    assert (holders(shared), "first" in shared.models) == (["first", "second"], True)
    shared.settle()
    assert (holders(shared), list(shared.models), shared.downloads) == (["second"], ["second"], [SOURCES[0]])


def test_a_folder_is_removed_only_while_no_other_model_has_a_record_of_it(shared: Cluster) -> None:
    record = shared.models["first"]["metadata"]["annotations"]
    annotate(shared.models["second"], dict(record))
    for name in ("first", "second"):
        shared.models[name]["spec"]["source"] = SOURCES[1]
    shared.reconcile("first")
    assert (holders(shared), complete(shared)) == (["first"], {KEY})
    shared.reconcile("first")
    assert complete(shared) == set()
    shared.settle()
    assert (holders(shared), shared.disk) == ([], {OTHER})


def test_a_record_of_another_claim_is_not_believed() -> None:
    cluster = Cluster()
    cluster.create("tiny", SOURCES[0])
    cluster.settle()
    assert cluster.claim is not None
    cluster.claim["metadata"]["uid"] = "another"
    cluster.disk.clear()
    assert cluster.phase("tiny") != "Ready"
    cluster.settle()
    assert (cluster.phase("tiny"), cluster.downloads) == ("Ready", [SOURCES[0]] * 2)


def test_a_record_is_there_before_the_first_byte_comes_and_with_it_the_finalizer() -> None:
    cluster = Cluster()
    cluster.create("tiny", SOURCES[0])
    cluster.now += 10
    plan = worlds.plan(MODELS, cluster.world("tiny"))
    assert list(plan.self_patch["metadata"]["annotations"]) == [f"{names.LOADED}{KEY}"]
    assert plan.finalizer == names.FINALIZER


def test_records_of_an_earlier_versions_claim_move_to_models_without_a_loss(shared: Cluster) -> None:
    shared.create("other", SOURCES[1])
    shared.settle()
    as_before(shared)
    for _unused in range(6):
        for name in shared.models:
            shared.reconcile(name)
            assert complete(shared) == {KEY, OTHER}
            assert {shared.phase(one) for one in shared.models} == {"Ready"}
    assert (holders(shared), holders(shared, OTHER)) == (["first"], ["other"])
    assert cache.read_records(shared.claim) == {}
    assert shared.downloads == [SOURCES[0], SOURCES[1]]


def test_a_folder_that_only_a_claim_of_an_earlier_version_knows_is_removed_by_the_oldest_model(shared: Cluster) -> None:
    assert shared.claim is not None
    shared.disk.add("0" * 16)
    annotate(shared.claim, {f"{names.LOADED}{'0' * 16}": '{"loaded":"2026-11-21T08:00:00Z","by":"gone"}'})
    shared.reconcile("second")
    assert holders(shared, "0" * 16) == []
    shared.reconcile("first")
    assert holders(shared, "0" * 16) == ["first"]
    shared.settle()
    assert (shared.disk, inventory(shared).keys()) == ({KEY}, {KEY})


def forged(cluster: Cluster, number: int, text: str = "{}") -> None:
    """The claim has records of this many folders that no Model has."""
    assert cluster.claim is not None
    annotate(cluster.claim, {f"{names.LOADED}{one:016x}": text for one in range(number)})


def test_forged_records_on_the_claim_do_not_make_models_read_all_others(
    shared: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    for one in range(50):
        shared.create(f"idle-{one:02}", f"https://files.example/{one}.gguf")
    forged(shared, 1000)
    reads: list[str] = []

    def read(model: Object, settings: Settings) -> Model:
        reads.append(model["metadata"]["name"])
        return model_spec.parse_model(model, settings)

    monkeypatch.setattr(cache, "parse_model", read)
    for name, taken in (("first", 16), ("second", 0), ("idle-49", 0)):
        reads.clear()
        assert len(MODELS.resolve(shared.world(name)).orphaned) == taken
        assert len(reads) <= 10


def test_more_records_than_are_taken_over_at_once_follow_each_other(shared: Cluster) -> None:
    assert shared.claim is not None
    forged(shared, 40)
    for _unused in range(4):
        shared.reconcile("first")
    assert len(cache.read_records(shared.claim)) == 0
    assert len(cache.read_records(shared.models["first"])) == 41


def test_forged_records_block_none_that_a_model_needs(shared: Cluster) -> None:
    as_before(shared)
    forged(shared, 40)
    shared.reconcile("first")
    assert holders(shared) == ["first"]


def test_a_record_that_names_a_model_of_another_namespace_falls_to_one_of_its_own(shared: Cluster) -> None:
    shared.create("stranger", SOURCES[1])
    shared.models["stranger"]["metadata"]["namespace"] = "elsewhere"
    stranger = shared.models["stranger"]["metadata"]["uid"]
    forged(shared, 1, f'{{"evictedBy":"{stranger}"}}')
    shared.reconcile("first")
    assert holders(shared, f"{0:016x}") == ["first"]


def test_long_records_that_are_written_repeatedly_take_no_memory() -> None:
    tracemalloc.start()
    before, _peak = tracemalloc.get_traced_memory()
    for number in range(200):
        cache.read_records(
            {"metadata": {"annotations": {f"{names.LOADED}{KEY}": f'{{"by":"{number}{"x" * 15_000}"}}'}}}
        )
    after, _peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert after - before < 500_000


@pytest.mark.parametrize("seed", seeds(8))
def test_in_any_order_an_upgrade_in_between_loses_nothing_and_leaves_nothing(seed: int) -> None:
    cluster, dice = Cluster(), random.Random(seed)
    for step in range(200):
        act, name = dice.random(), dice.choice("abc")
        if step == 100 and cluster.claim:
            as_before(cluster)
        if name not in cluster.models:
            if act < 0.3:
                cluster.create(name, dice.choice(SOURCES[:2]))
        elif act < 0.06:
            cluster.delete(name)
        elif act < 0.12:
            cluster.models[name]["spec"]["source"] = dice.choice(SOURCES)
        elif act < 0.3 and cluster.working():
            cluster.run(dice.choice(cluster.working()))
        else:
            cluster.reconcile(name)
        # A Model that goes waits for ten minutes, and leaves its weights behind then.
        cluster.now += 1
        assert complete(cluster) <= cluster.disk
    cluster.create("last", SOURCES[2])
    cluster.settle()
    expected = {names.cache_key(model["spec"]["source"]) for model in cluster.models.values() if not deleting(model)}
    assert cluster.disk <= expected
    for name in list(cluster.models):
        cluster.delete(name)
    cluster.settle()
    assert (cluster.models, inventory(cluster), cluster.disk) == ({}, {}, set())


class Counting:
    """Listers that count what they give."""

    def __init__(self, listers: Any) -> None:
        self.listers, self.given = listers, 0

    def get(self, kind: Kind, name: Any) -> Object | None:
        self.given += 1
        resource: Object | None = self.listers.get(kind, name)
        return resource

    def list(self, kind: Kind, index: str = "", value: str = "") -> Sequence[Object]:
        objects: Sequence[Object] = self.listers.list(kind, index, value)
        self.given += len(objects)
        return objects

    def count(self, kind: Kind, index: str, value: str) -> int:
        return int(self.listers.count(kind, index, value))

    def pods_of(self, owner: Kind, index: str, value: str) -> Sequence[Object]:
        pods: Sequence[Object] = self.listers.pods_of(owner, index, value)
        self.given += len(pods)
        return pods


@pytest.mark.parametrize("leaving", [False, True])
def test_a_model_looks_at_no_more_objects_among_many_than_alone(*, leaving: bool) -> None:
    looked_at = []
    for number in (1, 60):
        cluster = Cluster()
        for one in range(number):
            cluster.create(f"m{one}", f"https://files.example/{one}.gguf")
            service = {"name": f"s{one}", "namespace": "models", "uid": f"s{one}", "generation": 1}
            cluster.users.append({"kind": "InferenceService", "metadata": service, "spec": {"modelRef": f"m{one}"}})
        for _unused in range(2):
            for name in cluster.models:
                cluster.reconcile(name)
            for place in cluster.working():
                cluster.run(place)
        for name in cluster.models:
            cluster.reconcile(name)
        if leaving:
            cluster.delete("m0")
        world = cluster.world("m0")
        counting = Counting(world.listers)
        view = MODELS.resolve(msgspec.structs.replace(world, listers=counting))
        assert (MODELS.finalize(view) if leaving else MODELS.plan(view)) is not None
        assert MODELS.status(view, None).status["phase"] == ("Pending" if leaving else "Ready")
        looked_at.append(counting.given)
    assert looked_at[0] == looked_at[1] < 20


def test_a_service_sees_its_model_but_not_the_models_records() -> None:
    served = {"metadata": {"name": "chat", "namespace": "models", "uid": "s", "generation": 1}}
    listers = worlds.known_world(SERVICES, others=[served | {"kind": "InferenceService", "spec": {"modelRef": "tiny"}}])
    (watch,) = (one for one in SERVICES.watches(Settings()) if one.kind == KIND)
    metadata = {"name": "tiny", "namespace": "models", "uid": "m", "generation": 1}
    model = {"kind": "Model", "metadata": metadata, "spec": {"source": SOURCES[0]}}
    noted = model | {"metadata": metadata | {"annotations": {f"{names.LOADED}{KEY}": "{}"}}}
    going = model | {"metadata": metadata | {"deletionTimestamp": "2026-11-21T09:00:00Z"}}
    counts = [
        len(list(watch.enqueue(Change(model, new), listers))) for new in (noted, model | {"status": {}}, going, None)
    ]
    assert counts == [0, 1, 1, 1]


def enqueued_by(cluster: Cluster, kind: Kind, old: Object | None, new: Object | None) -> set[str]:
    (watch,) = (one for one in MODELS.watches(Settings()) if one.kind == kind and not one.owned)
    return {key.name for key in watch.enqueue(Change(old, new), cluster.world("first").listers)}


def test_a_record_on_a_claim_enqueues_its_models_and_a_new_or_deleted_claim_all(
    shared: Cluster,
) -> None:
    shared.create("other", SOURCES[1])
    assert shared.claim is not None
    bare = {**shared.claim, "metadata": {**shared.claim["metadata"], "annotations": {}}}
    noted = {**bare, "metadata": {**bare["metadata"], "annotations": {f"{names.LOADED}{KEY}": "{}", "of": "others"}}}
    going = {**bare, "metadata": {**bare["metadata"], "deletionTimestamp": "2026-11-21T09:00:00Z"}}
    assert enqueued_by(shared, PERSISTENT_VOLUME_CLAIM, bare, noted) == {"first", "second"}
    assert enqueued_by(shared, PERSISTENT_VOLUME_CLAIM, bare, bare | {"status": {}}) == set()
    assert enqueued_by(shared, PERSISTENT_VOLUME_CLAIM, bare, going) == {"first", "second", "other"}
    assert enqueued_by(shared, PERSISTENT_VOLUME_CLAIM, None, bare) == {"first", "second", "other"}


def test_a_change_of_a_model_enqueues_those_that_share_its_folders_and_its_status_none(shared: Cluster) -> None:
    shared.create("other", SOURCES[1])
    model = shared.models["first"]
    bare = {**model, "metadata": {**model["metadata"], "annotations": {}}}
    turned = {**model, "metadata": {**model["metadata"], "generation": 2}, "spec": {"source": SOURCES[1]}}
    assert enqueued_by(shared, KIND, bare, model) == {"first", "second"}
    assert enqueued_by(shared, KIND, model, turned) == {"first", "second", "other"}
    assert enqueued_by(shared, KIND, model, model | {"status": {"phase": "Ready"}}) == set()
    assert enqueued_by(shared, KIND, model, None) == {"first", "second"}
