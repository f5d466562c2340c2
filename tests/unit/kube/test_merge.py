"""One of Kubernetes' own objects laid over another: what ``kubectl apply`` and a strategic merge patch make of them."""

from __future__ import annotations

from copy import deepcopy
from random import Random
from typing import Any

import pytest

from slipway.kube.objects import Object
from slipway.kube.schemas.core import core_schema
from slipway.kube.schemas.merge import merged
from tests.schemas import RandomObjects, faults
from tests.tables import each, seeds


def container(**fields: Any) -> Object:
    return {"name": "engine", **fields}


def test_fields_of_the_patch_win_and_others_stay() -> None:
    base = container(image="a:1", resources={"limits": {"cpu": "1", "memory": "1Gi"}})
    patch = container(image="a:2", resources={"limits": {"cpu": "2"}})
    expected = container(image="a:2", resources={"limits": {"cpu": "2", "memory": "1Gi"}})
    assert merged(base, patch, "Container") == expected


def test_containers_are_merged_by_name() -> None:
    base = {"containers": [{"name": "engine", "image": "a"}, {"name": "logger", "image": "b"}]}
    patch = {"containers": [{"name": "logger", "args": ["-v"]}]}
    assert merged(base, patch, "PodSpec")["containers"] == [
        {"name": "engine", "image": "a"},
        {"name": "logger", "image": "b", "args": ["-v"]},
    ]


@pytest.mark.parametrize(
    ("field", "base", "patch", "expected"),
    [
        (
            "env",
            [{"name": "A", "value": "1"}, {"name": "B", "value": "1"}],
            [{"name": "B", "value": "2"}, {"name": "C", "value": "2"}],
            [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}, {"name": "C", "value": "2"}],
        ),
        (
            "volumeMounts",
            [{"mountPath": "/models", "name": "models"}],
            [{"mountPath": "/cache", "name": "cache"}, {"mountPath": "/models", "name": "others"}],
            [{"mountPath": "/cache", "name": "cache"}, {"mountPath": "/models", "name": "others"}],
        ),
        (
            "ports",
            [{"containerPort": 53, "protocol": "UDP", "name": "dns"}, {"containerPort": 8080, "name": "http"}],
            [{"containerPort": 53, "name": "dns-tcp"}, {"containerPort": 8080, "protocol": "TCP", "hostPort": 80}],
            [
                {"containerPort": 53, "name": "dns-tcp"},
                {"containerPort": 53, "protocol": "UDP", "name": "dns"},
                {"containerPort": 8080, "name": "http", "protocol": "TCP", "hostPort": 80},
            ],
        ),
        ("command", ["python3", "-m", "vllm"], ["sglang"], ["sglang"]),
        ("args", ["--a", "--b"], ["--c"], ["--c"]),
        (
            "envFrom",
            [{"configMapRef": {"name": "a"}}],
            [{"secretRef": {"name": "b"}}],
            [{"secretRef": {"name": "b"}}],
        ),
    ],
)
def test_lists_are_merged_by_their_keys_or_replaced(field: str, base: Any, patch: Any, expected: Any) -> None:
    assert merged({field: base}, {field: patch}, "Container") == {field: expected}


def test_tolerations_have_no_key() -> None:
    base, patch = {"tolerations": [{"key": "gpu"}]}, {"tolerations": [{"key": "spot"}]}
    assert merged(base, patch, "PodSpec") == patch


def test_items_of_the_base_stay_before_those_that_they_stood_before() -> None:
    """As the API server does it: the patch's order counts, and the base's where that says nothing."""
    base = [{"name": name} for name in "abcd"]
    patch = [{"name": name} for name in ("x", "c", "b")]
    env = merged({"env": base}, {"env": patch}, "Container")["env"]
    assert [item["name"] for item in env] == ["x", "a", "c", "b", "d"]


@pytest.mark.parametrize(
    ("part", "base", "patch", "expected"),
    [
        (
            "Container",
            {"env": [{"name": "T", "value": "plain"}]},
            {"env": [{"name": "T", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]},
            {"env": [{"name": "T", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]},
        ),
        (
            "PodSpec",
            {"volumes": [{"name": "shm", "emptyDir": {"medium": "Memory"}}]},
            {"volumes": [{"name": "shm", "hostPath": {"path": "/dev/shm"}}]},
            {"volumes": [{"name": "shm", "hostPath": {"path": "/dev/shm"}}]},
        ),
        (
            "PodSpec",
            {"volumes": [{"name": "shm", "emptyDir": {"medium": "Memory"}}]},
            {"volumes": [{"name": "shm", "emptyDir": {"sizeLimit": "1Gi"}}]},
            {"volumes": [{"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "1Gi"}}]},
        ),
        (
            "Probe",
            {"httpGet": {"path": "/health", "port": 80}, "periodSeconds": 5},
            {"tcpSocket": {"port": 80}},
            {"tcpSocket": {"port": 80}, "periodSeconds": 5},
        ),
        (
            "Container",
            {"lifecycle": {"preStop": {"exec": {"command": ["a"]}}}},
            {"lifecycle": {"preStop": {"sleep": {"seconds": 5}}}},
            {"lifecycle": {"preStop": {"sleep": {"seconds": 5}}}},
        ),
    ],
)
def test_the_patch_wins_between_mutually_exclusive_fields(
    part: str, base: Object, patch: Object, expected: Object
) -> None:
    """Two of them are what the API server refuses."""
    assert merged(base, patch, part) == expected


@pytest.mark.parametrize(
    ("patch", "expected"),
    [
        ({"image": None}, {"name": "engine", "env": [{"name": "A"}, {"name": "B"}], "resources": {"limits": {}}}),
        (
            {"image": "b", "env": [{"name": "A", "$patch": "delete"}]},
            {"name": "engine", "image": "b", "env": [{"name": "B"}], "resources": {"limits": {}}},
        ),
        (
            {"env": [{"$patch": "replace"}, {"name": "C"}]},
            {"name": "engine", "image": "a", "env": [{"name": "C"}], "resources": {"limits": {}}},
        ),
        (
            {"resources": {"$patch": "replace", "requests": {}}},
            {"name": "engine", "image": "a", "env": [{"name": "A"}, {"name": "B"}], "resources": {"requests": {}}},
        ),
        (
            {"resources": {"$patch": "delete"}},
            {"name": "engine", "image": "a", "env": [{"name": "A"}, {"name": "B"}]},
        ),
    ],
)
def test_a_patch_can_remove_existing_fields(patch: Object, expected: Object) -> None:
    base = container(image="a", env=[{"name": "A"}, {"name": "B"}], resources={"limits": {}})
    assert merged(base, patch, "Container") == expected


def test_an_object_that_is_no_part_is_merged_without_keys() -> None:
    base, patch = {"labels": {"a": "1"}, "items": [{"name": "a"}]}, {"labels": {"b": "2"}, "items": [{"name": "b"}]}
    assert merged(base, patch) == {"labels": {"a": "1", "b": "2"}, "items": [{"name": "b"}]}


def test_items_without_their_key_are_not_duplicates() -> None:
    base: Object = {"env": [{"value": "1"}, "text"]}
    patch: Object = {"env": [{"value": "2"}, 7, {"name": "A"}]}
    env = merged(base, patch, "Container")["env"]
    assert sorted(map(str, env)) == sorted(map(str, [{"value": "1"}, "text", {"value": "2"}, 7, {"name": "A"}]))


def test_an_unknown_part_is_reported_at_once() -> None:
    with pytest.raises(KeyError, match="Containr"):
        merged({}, {}, "Containr")


def pods(seed: int) -> tuple[Object, Object]:
    schema = core_schema("PodSpec")
    generator = RandomObjects(Random(seed), {"": ("", "a", "b", "c"), ".name": ("a", "b", "c")}, 0.05)
    return generator.value(schema), generator.value(schema)


@each(seeds(20))
def test_any_two_pods_make_a_third_and_stay_as_they_are(seed: int) -> None:
    base, patch = pods(seed)
    before = deepcopy((base, patch))
    outcome = merged(base, patch, "PodSpec")
    assert (base, patch) == before
    assert faults(core_schema("PodSpec"), outcome) == []
    assert merged(outcome, patch, "PodSpec") == outcome
    assert merged({}, patch, "PodSpec") == merged(patch, patch, "PodSpec")
