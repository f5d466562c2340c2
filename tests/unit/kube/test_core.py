"""Parts of Kubernetes' own objects in our definitions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

import msgspec
import pytest

from slipway.kube.objects import Object
from slipway.kube.schemas.core import core, core_schema, inlined
from slipway.kube.schemas.crd import struct_schema

ALLOWED = {
    "additionalProperties",
    "anyOf",
    "default",
    "format",
    "items",
    "pattern",
    "properties",
    "required",
    "type",
    "x-kubernetes-int-or-string",
    "x-kubernetes-list-map-keys",
    "x-kubernetes-list-type",
    "x-kubernetes-map-type",
}


class Spec(msgspec.Struct, rename="camel"):
    liveness_probe: Annotated[Object, core("Probe")] | None = None
    """Whether it lives."""
    tolerations: tuple[Annotated[Object, core("Toleration")], ...] = ()


def schemas(schema: Object, place: str = "") -> Iterator[tuple[str, Object]]:
    """The schema and all that are in it, each with its place."""
    yield place, schema
    for name, below in schema.get("properties", {}).items():
        yield from schemas(below, f"{place}.{name}")
    for word in ("items", "additionalProperties"):
        if isinstance(schema.get(word), dict):
            yield from schemas(schema[word], f"{place}[]")


@pytest.fixture(scope="module")
def pod() -> list[tuple[str, Object]]:
    return list(schemas(core_schema("PodSpec")))


def test_a_field_has_the_schema_of_its_part_and_a_text_of_its_own() -> None:
    properties = struct_schema(Spec, defaults=True)["properties"]
    assert properties["livenessProbe"] == {"description": "Whether it lives."} | core_schema("Probe")
    assert properties["tolerations"] == {"type": "array", "items": core_schema("Toleration")}


def test_a_part_is_complete_in_itself() -> None:
    port = core_schema("Probe")["properties"]["httpGet"]["properties"]["port"]
    assert port == {"anyOf": [{"type": "integer"}, {"type": "string"}], "x-kubernetes-int-or-string": True}
    assert core_schema("SecretKeySelector") == {
        "type": "object",
        "required": ["key"],
        "properties": {
            "key": {"type": "string"},
            "name": {"type": "string", "default": ""},
            "optional": {"type": "boolean"},
        },
        "x-kubernetes-map-type": "atomic",
    }


def test_the_pod_schema_uses_only_keywords_that_a_definition_allows(pod: list[tuple[str, Object]]) -> None:
    assert len(pod) > 500
    assert [place for place, schema in pod if not schema.keys() <= ALLOWED] == []


def test_every_part_has_a_type(pod: list[tuple[str, Object]]) -> None:
    untyped = [place for place, schema in pod if "type" not in schema and "x-kubernetes-int-or-string" not in schema]
    assert untyped == []


def test_nothing_that_is_required_has_a_default(pod: list[tuple[str, Object]]) -> None:
    """A default of nothing would let through what is missing."""
    both = [
        f"{place}.{name}"
        for place, schema in pod
        for name in schema.get("required", ())
        if "default" in schema["properties"][name]
    ]
    assert both == []


def test_the_keys_of_a_list_are_always_there(pod: list[tuple[str, Object]]) -> None:
    """The API server refuses a definition with other ones."""
    for place, schema in pod:
        for key in schema.get("x-kubernetes-list-map-keys", ()):
            item = schema["items"]
            assert key in item.get("required", ()) or "default" in item["properties"][key], place


def test_an_unknown_part_is_reported_at_once() -> None:
    with pytest.raises(KeyError, match="no Prob"):
        core("Prob")


def test_a_part_can_be_changed_without_changing_the_next_one() -> None:
    changed: Any = core_schema("Probe")
    changed["properties"].clear()
    assert core_schema("Probe")["properties"]


def test_fields_that_may_be_left_out_are_not_required() -> None:
    optional = ("containers", "containers[].livenessProbe.httpGet.port")
    lenient = inlined("PodSpec", optional)
    probes = lenient["properties"]["containers"]["items"]["properties"]
    assert "required" not in lenient
    assert "required" not in probes["livenessProbe"]["properties"]["httpGet"]
    assert "port" in probes["readinessProbe"]["properties"]["httpGet"]["required"]
    assert "containers" in core_schema("PodSpec")["required"]


@pytest.mark.parametrize("path", ["nothing", "nothing.name", "containers.name"])
def test_a_path_that_a_part_does_not_have_is_refused(path: str) -> None:
    with pytest.raises(KeyError):
        inlined("PodSpec", (path,))


class Lenient(msgspec.Struct):
    runner: Annotated[Object, core("Container", optional=("name",))] | None = None


def test_a_field_may_ask_for_less_than_its_part() -> None:
    runner = struct_schema(Lenient, defaults=True)["properties"]["runner"]
    assert "name" in runner["properties"]
    assert "name" not in runner.get("required", ())
