"""BaseModels of one namespace leave room on the nodes for the records of all others."""

from __future__ import annotations

import pytest

from slipway.apis.ome.models import room
from slipway.kube.caches.store import Change
from slipway.kube.objects import NODE, Object
from slipway.weights import nodes
from slipway.weights.nodes import RECORDS

from .cluster import APIS, Cluster

LIMIT = 256 << 10
"""Bytes of all annotations of an object, as Kubernetes takes them."""
RECORD = 1024
"""More bytes than a record has here."""


@pytest.fixture(autouse=True)
def little(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tenth of the room, as each model of these clusters costs time."""
    for limit in ("OF_A_NAMESPACE", "OF_ALL_NAMESPACES"):
        monkeypatch.setattr(room, limit, getattr(room, limit) // 10)


def create(cluster: Cluster, namespace: str, name: str, uri: str = "vendor://x", **fields: str | None) -> str:
    """A BaseModel of this namespace. Returns its name in the cluster."""
    place = f"{namespace}-{name}"
    cluster.create(place, uri, "BaseModel", **fields)
    cluster.models[place]["metadata"] |= {"namespace": namespace, "name": name}
    return place


def used(cluster: Cluster, start: str = "") -> int:
    records = cluster.nodes["a"]["metadata"]["annotations"].items()
    return sum(len(name) + len(text.encode()) for name, text in records if name.startswith(f"{RECORDS}{start}"))


@pytest.mark.parametrize("name", ["m", "m" * 40, "m" * 200])
@pytest.mark.parametrize("namespace", ["chat", "c" * 63])
def test_models_without_files_of_one_namespace_leave_room_for_others(namespace: str, name: str) -> None:
    cluster = Cluster("a")
    flood = [create(cluster, namespace, f"{name}{number}", path=None) for number in range(40)]
    cluster.reconcile_all()
    cluster.reconcile_all()
    assert room.OF_A_NAMESPACE / 5 < used(cluster) < room.OF_A_NAMESPACE
    assert cluster.reason(flood[-1]) == "NodeFull"
    assert namespace in cluster.message(flood[-1])
    other = create(cluster, "mine", "tiny", path=None)
    cluster.create("own", "vendor://y")
    cluster.reconcile_all()
    cluster.reconcile_all()
    assert [cluster.reason(one) for one in (flood[0], other, "own")] == ["OnNodes"] * 3


def test_labels_of_folders_take_room_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model that moves may leave many."""
    cluster = Cluster("a")
    first = create(cluster, "chat", "first", "hf://a/1", path="/raid/models/chat/1")
    cluster.settle(4)
    second = create(cluster, "chat", "second", path=None)
    monkeypatch.setattr(room, "OF_A_NAMESPACE", 1100)
    cluster.reconcile(second)
    assert cluster.reason(second) == "OnNodes"
    cluster.delete(second)
    cluster.settle(2)
    mark = "chat.basemodel.first"
    cluster.label("a", **{f"{RECORDS}{number:032}": mark for number in range(8)})
    third = create(cluster, "chat", "third", path=None)
    other = create(cluster, "mine", "tiny", path=None)
    cluster.reconcile_all()
    assert [cluster.reason(one) for one in (first, third, other)] == ["OnNodes", "NodeFull", "OnNodes"]


def test_the_room_for_all_namespaces_fits_the_limit_of_a_node(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    assert room.OF_A_NAMESPACE < room.OF_ALL_NAMESPACES + nodes.RECORD_BYTES < LIMIT


def test_many_namespaces_leave_room_for_models_of_the_cluster() -> None:
    cluster = Cluster("a")
    last = [create(cluster, f"n{number % 20}", f"{'m' * 40}{number}", path=None) for number in range(160)][-1]
    cluster.create("own", "vendor://y")
    cluster.reconcile_all()
    cluster.reconcile_all()
    assert room.OF_ALL_NAMESPACES / 5 < used(cluster) < room.OF_ALL_NAMESPACES
    assert cluster.reason(last) == "NodeFull"
    assert cluster.reason("own") == "OnNodes"


def test_a_model_has_its_record_as_soon_as_others_have_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "OF_A_NAMESPACE", 400)
    cluster = Cluster("a")
    places = [create(cluster, "chat", f"m{number}", path=None) for number in range(5)]
    cluster.settle(2)
    assert cluster.reason(places[-1]) == "NodeFull"
    assert cluster.recheck(places[-1]), "it is checked again"
    for place in places[:-1]:
        cluster.delete(place)
    cluster.settle(3)
    assert cluster.reason(places[-1]) == "OnNodes"


def test_models_without_room_leave_their_turns_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "OF_A_NAMESPACE", 400)
    cluster = Cluster("a")
    for number in range(8):
        create(cluster, "chat", f"m{number}", f"hf://a/{number}", path=None)
    cluster.settle()
    assert cluster.reason("chat-m7") == "NodeFull"
    cluster.create("own", "hf://acme/own")
    other = create(cluster, "mine", "tiny", "hf://acme/tiny", path=None)
    cluster.settle(3)
    assert [cluster.reason(one) for one in ("own", other)] == ["OnNodes"] * 2


def test_models_that_had_no_room_for_another_folder_leave_their_turns_to_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = Cluster("a")
    places = [create(cluster, "chat", f"m{n}", f"hf://a/{n}", path=f"/raid/models/chat/{n}") for n in range(4)]
    cluster.settle()
    monkeypatch.setattr(room, "OF_A_NAMESPACE", 400)
    for place in places:
        cluster.change(place, path=f"/raid/models/chat/{place}")
    cluster.settle(2)
    assert cluster.reason(places[-1]) == "NodeFull"
    cluster.create("own", "hf://acme/own")
    cluster.settle(3)
    assert cluster.reason("own") == "OnNodes"


@pytest.mark.parametrize("limit", [1, LIMIT])
def test_models_without_room_do_not_wake_up_in_place_of_others(monkeypatch: pytest.MonkeyPatch, limit: int) -> None:
    cluster = Cluster("a")
    for number in range(3):
        create(cluster, "chat", f"m{number}", f"hf://a/{number}", path=None)
    create(cluster, "mine", "tiny", "hf://acme/tiny", path=None)
    cluster.reconcile("chat-m0")
    monkeypatch.setattr(room, "OF_A_NAMESPACE", limit)
    before = nodes.trim_node(cluster.nodes["a"])
    cluster.label("a", **{"models.ome.io/chat.basemodel.m0": "Ready"})
    change = Change(before, nodes.trim_node(cluster.nodes["a"]))
    watch = next(one for one in APIS["BaseModel"].watches(cluster.settings) if one.kind == NODE)
    woken = {place.name for place in watch.enqueue(change, cluster.world("chat-m0").listers)}
    assert woken == ({"m0", "tiny"} if limit == 1 else {"m0", "m1", "m2", "tiny"})


def test_a_model_whose_files_come_later_needs_room_for_their_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster("a")
    place = create(cluster, "chat", "m", path=None)
    cluster.settle(2)
    assert cluster.reason(place) == "OnNodes"
    monkeypatch.setattr(room, "OF_A_NAMESPACE", 1)
    cluster.change(place, storageUri="local:///raid/models/chat/m")
    cluster.settle()
    assert cluster.reason(place) == "OnNodes"
    cluster.change(place, storageUri="hf://acme/m", path=f"/raid/models/chat/{'x' * 400}")
    cluster.settle()
    assert cluster.reason(place) == "NodeFull"


@pytest.mark.parametrize("letter", ["x", "\N{CJK UNIFIED IDEOGRAPH-754C}", "\x01"])
def test_there_is_room_for_what_records_are_to_say_later(letter: str) -> None:
    cluster = Cluster("a")
    for number in range(20):
        create(cluster, "chat", f"m{number}", "local:///raid/models/chat/m", path=None)
    cluster.settle(6)
    before = used(cluster)
    cluster.fault = letter * nodes.MESSAGE_LENGTH
    cluster.restart("a")
    cluster.settle(6)
    assert before + 2 * nodes.MESSAGE_LENGTH < used(cluster) < room.OF_A_NAMESPACE


def test_folders_that_a_model_had_before_do_not_grow_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "OF_A_NAMESPACE", 2000)
    cluster = Cluster("a")
    places = [create(cluster, "chat", f"m{n}", f"hf://a/{n}", path=f"/raid/models/chat/{n}") for n in range(4)]
    cluster.settle()
    before = used(cluster)
    for turn in range(6):
        for place in places:
            cluster.change(place, path=f"/raid/models/chat/{place}{turn}{'x' * 400}")
        cluster.reconcile_all()
    assert used(cluster) < before + 2000
    assert used(cluster) > before


def test_a_node_is_counted_once_for_each_of_its_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    counted: list[str] = []
    original = room.space_of
    monkeypatch.setattr(room, "space_of", lambda mark: counted.append(mark) or original(mark))
    node_room = room.Room()

    def node(number: int) -> Object:
        records = {f"{RECORDS}chat.basemodel.m{one}": "{}" for one in range(number)}
        return nodes.trim_node({"metadata": {"name": "a", "uid": "a", "annotations": records}})

    for version in (node(20), node(30)):
        counted.clear()
        for _unused in range(5):
            assert not node_room.is_full(nodes.parse_node(version), "mine.basemodel.tiny")
        assert len(counted) == len(version["metadata"]["annotations"]) + 5
