"""How a change of an object leads to the resources that it concerns."""

from __future__ import annotations

from typing import Any

import pytest

from slipway.kube.caches.store import Change, Store, Stores
from slipway.kube.objects import Key, Kind
from slipway.serving.contract.api import Reference
from slipway.serving.contract.watches import REFERENCES, all_of, by_reference, first_or_last, of_owner, referenced_by

TOY = Kind("toys.test", "v1", "Toy", "toys")
WIDE = Kind("toys.test", "v1", "ClusterToy", "clustertoys", namespaced=False)
MODEL, OTHER = (Kind(group, "v1", "Model", "models") for group in ("one.test", "two.test"))


class Known(Stores):
    def pods_of(self, _owner: Kind, _index: str, _value: str) -> list[Any]:
        return []


def build_object(name: str, namespace: str = "models", **metadata: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": namespace, "uid": f"{namespace}-{name}", **metadata}}


def child(owner: Kind, name: str, namespace: str = "models", version: str = "v1") -> dict[str, Any]:
    api_version = f"{owner.group}/{version}"
    reference = {"apiVersion": api_version, "kind": owner.kind, "name": name, "uid": "u", "controller": True}
    return build_object("child", namespace, ownerReferences=[reference])


def test_a_child_leads_to_its_owner_in_its_own_namespace_and_to_one_of_the_whole_cluster() -> None:
    seen = Known({})
    assert list(of_owner(TOY)(Change(None, child(TOY, "a")), seen)) == [Key("models", "a")]
    assert list(of_owner(WIDE)(Change(None, child(WIDE, "a")), seen)) == [Key("", "a")]
    assert list(of_owner(TOY)(Change(child(TOY, "a"), child(TOY, "b")), seen)) == [
        Key("models", "a"),
        Key("models", "b"),
    ]
    assert list(of_owner(TOY)(Change(None, child(WIDE, "a")), seen)) == []
    assert list(of_owner(OTHER)(Change(None, child(MODEL, "a")), seen)) == [], "of another group"


def test_a_state_that_cannot_be_read_does_not_cost_the_other_one_its_keys() -> None:
    broken = build_object("x", ownerReferences=[{"controller": True}])
    enqueued = iter(of_owner(TOY)(Change(broken, child(TOY, "b")), Known({})))
    assert next(enqueued) == Key("models", "b")
    with pytest.raises(KeyError):
        next(enqueued)


def test_a_changed_reference_enqueues_resources_of_any_namespace_by_group_version_and_kind() -> None:
    def references(toy: dict[str, Any]) -> list[Reference]:
        return (
            [Reference(MODEL, "shared", "m")] if toy["metadata"]["name"] != "c" else [Reference(OTHER, "shared", "m")]
        )

    store = Store({REFERENCES: by_reference(references)})
    for toy in (build_object("a"), build_object("b", "others"), build_object("c")):
        store.put(toy)
    seen, change = Known({TOY: store}), Change(None, build_object("m", "shared"))
    assert set(referenced_by(TOY, MODEL)(change, seen)) == {Key("models", "a"), Key("others", "b")}
    assert set(referenced_by(TOY, OTHER)(change, seen)) == {Key("models", "c")}
    assert set(all_of(TOY)(change, seen)) == {Key("models", "a"), Key("others", "b"), Key("models", "c")}


def test_only_the_first_and_the_last_object_with_a_value_are_news() -> None:
    def colours(obj: dict[str, Any]) -> list[str]:
        return list(obj.get("colours", ()))

    store = Store({"colour": colours})
    seen = Known({TOY: store})

    def news(obj: dict[str, Any]) -> list[bool]:
        return [first_or_last(change, seen, TOY, "colour", colours) for change in store.put(obj)]

    assert news({**build_object("a", resourceVersion="1"), "colours": ["red"]}) == [True]
    assert news({**build_object("b", resourceVersion="2"), "colours": ["red"]}) == [False]
    assert news({**build_object("a", resourceVersion="3"), "colours": []}) == [False]
    assert news({**build_object("b", resourceVersion="4"), "colours": ["blue"]}) == [True]


def test_of_two_objects_that_one_list_brings_one_is_the_first_and_of_two_that_it_lacks_one_is_the_last() -> None:
    def colours(obj: dict[str, Any]) -> list[str]:
        return list(obj.get("colours", ()))

    store = Store({"colour": colours})
    seen = Known({TOY: store})

    def news(*objects: dict[str, Any]) -> list[bool]:
        changes = store.replace(objects, "")
        return [first_or_last(change, seen, TOY, "colour", colours) for change in changes]

    assert news(*({**build_object(name), "colours": ["red"]} for name in "ab")) == [True, False]
    assert news() == [False, True]
