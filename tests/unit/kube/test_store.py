"""The store holds the latest versions and reports differences, and its indexes match its objects."""

from __future__ import annotations

import asyncio
import random

from slipway.kube.caches.store import Store
from slipway.kube.objects import Key


def obj(name, version, uid="u1", **labels):
    metadata = {"namespace": "ns", "name": name, "uid": uid, "resourceVersion": str(version), "labels": labels}
    return {"metadata": metadata}


def by_color(stored):
    color = stored["metadata"]["labels"].get("color")
    return (color,) if color else ()


A = Key("ns", "a")


def test_a_new_a_changed_and_a_repeated_object():
    store = Store()
    assert [change.type for change in store.put(obj("a", 5))] == ["ADDED"]
    assert [change.type for change in store.put(obj("a", 6))] == ["MODIFIED"]
    assert store.put(obj("a", 6)) == []


def test_an_older_copy_never_replaces_a_newer_one():
    store = Store()
    store.put(obj("a", 9))
    assert store.put(obj("a", 8)) == []
    assert store.put(obj("a", 7, uid="older")) == []
    assert store.get(A)["metadata"]["resourceVersion"] == "9"


def test_a_name_that_was_made_again_is_a_deletion_and_an_addition():
    store = Store()
    store.put(obj("a", 5, uid="first"))
    changes = store.put(obj("a", 9, uid="second"))
    assert [(change.type, (change.new or change.old)["metadata"]["uid"]) for change in changes] == [
        ("DELETED", "first"),
        ("ADDED", "second"),
    ]


def test_late_news_of_a_deletion_leaves_the_successor_alone():
    store = Store()
    store.put(obj("a", 9, uid="second"))
    assert store.drop(A, "first", "7") == []
    assert store.get(A)["metadata"]["uid"] == "second"


def test_a_list_reports_vanished_objects():
    store = Store()
    store.put(obj("a", 5))
    store.put(obj("b", 6))
    changes = list(store.replace([obj("b", 6), obj("c", 7)], "8"))
    assert sorted((change.type, change.key.name) for change in changes) == [("ADDED", "c"), ("DELETED", "a")]
    assert store.revision("") == 8


def test_a_list_does_not_take_away_what_was_read_after_it():
    store = Store()
    store.put(obj("a", 12))
    assert list(store.replace([], "10")) == []
    assert store.get(A) is not None


def test_each_change_of_a_list_is_reported_while_the_store_is_as_it_left_it():
    store = Store({"color": by_color})
    store.put(obj("a", 5, color="red"))
    listed = [obj("b", 6, color="red"), obj("c", 7, color="red")]
    changes = [(change.type, change.key.name, store.count("color", "red")) for change in store.replace(listed, "8")]
    assert changes == [("ADDED", "b", 2), ("ADDED", "c", 3), ("DELETED", "a", 2)]


def test_a_list_is_taken_whole_though_its_reader_stops_at_the_first_change():
    store = Store()
    store.put(obj("a", 5))
    changes = store.replace([obj("b", 6), obj("c", 7)], "8")
    assert next(changes).key.name == "b"
    changes.close()
    assert sorted(stored["metadata"]["name"] for stored in store.all()) == ["b", "c"]
    assert store.revision("") == 8


def test_an_index_follows_every_change():
    store = Store({"color": by_color})
    store.put(obj("a", 1, color="red"))
    store.put(obj("b", 2, color="red"))
    store.put(obj("a", 3, color="blue"))
    assert [stored["metadata"]["name"] for stored in store.by_index("color", "red")] == ["b"]
    store.drop(Key("ns", "b"))
    assert store.by_index("color", "red") == []
    assert store.by_index("color", "never seen") == []


def test_random_histories_in_any_order_end_in_the_newest_state():
    """Whatever order and repetition events come in, the store ends with the newest copy, and indexes that agree."""
    for seed in range(200):
        dice = random.Random(seed)
        versions = [obj(dice.choice("abc"), n, color=dice.choice(["red", "blue", ""])) for n in range(1, 20)]
        newest = {one["metadata"]["name"]: one for one in versions}
        events = versions + dice.choices(versions, k=10)
        dice.shuffle(events)
        store = Store({"color": by_color})
        for one in events:
            store.put(one)
        assert {stored["metadata"]["name"]: stored for stored in store.all()} == newest
        for color in ("red", "blue"):
            expected = sorted(name for name, one in newest.items() if one["metadata"]["labels"]["color"] == color)
            assert [stored["metadata"]["name"] for stored in store.by_index("color", color)] == expected


def created(name, version, second, uid="u1", **labels):
    resource = obj(name, version, uid, **labels)
    resource["metadata"]["creationTimestamp"] = f"2026-11-28T09:00:{second:02}Z"
    return resource


def test_the_oldest_objects_of_an_index_follow_every_change():
    def oldest(most):
        return [stored["metadata"]["name"] for stored in store.oldest("color", "red", most)]

    store = Store({"color": by_color})
    assert oldest(5) == []
    store.put(created("a", 1, 30, color="red"))
    store.put(created("b", 2, 10, color="red"))
    assert oldest(5) == ["b", "a"]
    store.put(created("c", 3, 20, color="red"))
    assert (oldest(5), oldest(2)) == (["b", "c", "a"], ["b", "c"])
    store.put(created("b", 4, 10, color="blue"))
    store.put(created("a", 5, 5, "u2", color="red"))
    assert oldest(5) == ["a", "c"]
    assert store.values("color") == {"red", "blue"}
    for name in ("a", "c"):
        store.drop(Key("ns", name))
    assert oldest(5) == []
    store.put(created("a", 6, 1, "u3", color="red"))
    assert oldest(5) == ["a"]
    assert store.values("color") == {"red", "blue"}


def test_the_oldest_objects_agree_with_the_index_after_any_history():
    for seed in range(200):
        dice = random.Random(seed)
        store, seconds = Store({"color": by_color}), {name: dice.randrange(60) for name in "abcdef"}
        for version in range(1, 40):
            name = dice.choice("abcdef")
            color = dice.choice(["red", "blue", ""])
            if dice.random() < 0.2:
                store.drop(Key("ns", name))
            else:
                store.put(created(name, version, seconds[name], color=color))
            if dice.random() < 0.5:
                matches = store.by_index("color", "red")
                expected = sorted(
                    matches, key=lambda one: (one["metadata"]["creationTimestamp"], one["metadata"]["name"])
                )
                assert store.oldest("color", "red", 3) == expected[:3]


async def test_waiting_ends_with_the_news_or_with_the_time():
    store = Store()
    waiting = asyncio.create_task(store.until(lambda: store.revision("") >= 7, 5))
    await asyncio.sleep(0)
    store.advance("6")
    await asyncio.sleep(0)
    assert not waiting.done()
    store.advance("7")
    assert await waiting is True
    assert await store.until(lambda: store.revision("") >= 8, 0.01) is False
