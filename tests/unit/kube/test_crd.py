"""CustomResourceDefinitions: every word of a type that the API server can check is in the schema."""

from __future__ import annotations

import json
from typing import Annotated, Any, ClassVar, Literal

import msgspec
import pytest
from msgspec import Meta

from slipway.kube.objects import Kind, Object
from slipway.kube.schemas.crd import (
    Column,
    CustomResource,
    Rule,
    Scale,
    cel,
    list_map,
    set_fields,
    struct_schema,
    to_yaml,
)
from tests import documents


class Port(msgspec.Struct):
    """A port.

    Of a container.
    """

    name: str
    number: Annotated[int, Meta(ge=1, le=65535)] = 80


class Base(msgspec.Struct, kw_only=True):
    inherited: str = ""
    """From a base class."""


class Spec(Base, kw_only=True, rename="camel"):
    """The desired state."""

    image_name: Annotated[str, Meta(min_length=1, max_length=9, pattern="^[a-z]+$")]
    """Where from,
    over two lines."""
    mode: Literal["fast", "slow"] = "fast"
    ratio: Annotated[float, Meta(gt=0, lt=1)] | None = None
    enabled: bool = False
    disabled: bool = True
    count: Annotated[int, Meta(extra_json_schema={"format": "int32", "default": 0})] = 0
    ports: Annotated[tuple[Port, ...], Meta(max_length=5, extra_json_schema=list_map("name"))] = ()
    tags: Annotated[list[str], Meta(extra_json_schema={"x-kubernetes-list-type": "set"})] = msgspec.field(
        default_factory=lambda: ["x"]
    )
    labels: dict[str, str] = msgspec.field(default_factory=dict)
    template: dict[str, Any] | msgspec.UnsetType = msgspec.UNSET
    anything: Any = None
    raw: msgspec.Raw | None = None
    limit: int | str | None = None
    port: Port = msgspec.field(default_factory=lambda: Port("http"))
    fixed: Annotated[str, Meta(extra_json_schema=cel(Rule("self == oldSelf", "cannot change")))] = ""

    validations: ClassVar[tuple[Rule, ...]] = (Rule("self.count >= 0", "count is negative"),)


class Status(msgspec.Struct, rename="camel"):
    ready_replicas: int = 3


RESOURCE = CustomResource(
    kind=Kind("test.io", "v1", "Thing", "things"),
    spec=Spec,
    status=Status,
    short_names=("th",),
    columns=(Column("Mode", "string", ".spec.mode"), Column("More", "string", ".spec.more", priority=1)),
    scale=Scale(".spec.count", ".status.readyReplicas"),
    validations=(Rule("self.metadata.name != 'x'", "not x"),),
)


@pytest.fixture(scope="module")
def properties():
    return struct_schema(Spec, defaults=True)["properties"]


@pytest.mark.parametrize(
    ("field", "schema"),
    [
        ("inherited", {"type": "string", "description": "From a base class."}),
        (
            "imageName",
            {
                "type": "string",
                "description": "Where from, over two lines.",
                "minLength": 1,
                "maxLength": 9,
                "pattern": "^[a-z]+$",
            },
        ),
        ("mode", {"type": "string", "enum": ["fast", "slow"], "default": "fast"}),
        (
            "ratio",
            {"type": "number", "minimum": 0, "exclusiveMinimum": True, "maximum": 1, "exclusiveMaximum": True},
        ),
        ("enabled", {"type": "boolean"}),
        ("disabled", {"type": "boolean", "default": True}),
        ("count", {"type": "integer", "format": "int32", "default": 0}),
        (
            "tags",
            {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set", "default": ["x"]},
        ),
        ("labels", {"type": "object", "additionalProperties": {"type": "string"}}),
        ("template", {"type": "object", "x-kubernetes-preserve-unknown-fields": True}),
        ("anything", {"x-kubernetes-preserve-unknown-fields": True}),
        ("raw", {"x-kubernetes-preserve-unknown-fields": True}),
        (
            "limit",
            {"anyOf": [{"type": "integer"}, {"type": "string"}], "x-kubernetes-int-or-string": True},
        ),
        (
            "fixed",
            {"type": "string", "x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "cannot change"}]},
        ),
    ],
)
def test_a_field(properties, field, schema):
    assert properties[field] == schema


def test_a_list_of_structs_with_keys(properties):
    ports = properties["ports"]
    assert (ports["maxItems"], ports["x-kubernetes-list-type"], ports["x-kubernetes-list-map-keys"]) == (
        5,
        "map",
        ["name"],
    )
    assert ports["items"]["required"] == ["name"]
    assert ports["items"]["description"] == "A port.\nOf a container."
    assert ports["items"]["properties"]["number"]["default"] == 80


def test_only_fields_without_a_default_are_required_and_structs_carry_rules():
    schema = struct_schema(Spec, defaults=True)
    assert schema["required"] == ["imageName"]
    assert schema["description"] == "The desired state."
    assert schema["x-kubernetes-validations"] == [{"rule": "self.count >= 0", "message": "count is negative"}]


def test_the_definition_as_a_whole():
    manifest = RESOURCE.manifest()
    assert manifest["metadata"]["name"] == "things.test.io"
    assert manifest["spec"]["names"] == {
        "kind": "Thing",
        "listKind": "ThingList",
        "plural": "things",
        "singular": "thing",
        "shortNames": ["th"],
    }
    (version,) = manifest["spec"]["versions"]
    assert version["additionalPrinterColumns"] == [
        {"name": "Mode", "type": "string", "jsonPath": ".spec.mode"},
        {"name": "More", "type": "string", "jsonPath": ".spec.more", "priority": 1},
    ]
    paths = {"specReplicasPath": ".spec.count", "statusReplicasPath": ".status.readyReplicas"}
    assert version["subresources"] == {"status": {}, "scale": paths}
    root = version["schema"]["openAPIV3Schema"]
    assert root["required"] == ["spec"]
    assert root["x-kubernetes-validations"] == [{"rule": "self.metadata.name != 'x'", "message": "not x"}]
    assert "default" not in root["properties"]["status"]["properties"]["readyReplicas"]


def test_fields_without_effect_are_kept_by_the_definition_at_any_depth():
    kept = {"later": {"type": "string"}, "port.later": {"type": "object"}, "ports[].later": {"type": "integer"}}
    spec = unsupporting(kept).manifest()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    fields = spec["properties"]
    assert fields["later"]["type"] == "string"
    assert fields["port"]["properties"]["later"]["type"] == "object"
    assert fields["ports"]["items"]["properties"]["later"]["type"] == "integer"
    assert "FieldsIgnored" in fields["later"]["description"]


@pytest.mark.parametrize(
    ("path", "complaint"),
    [("mode", "mode is supported"), ("port.name", "port.name is supported"), ("gate.name", "gate does not exist")],
)
def test_a_field_that_gets_supported_has_to_leave_the_list(path, complaint):
    with pytest.raises(ValueError, match=complaint):
        unsupporting({path: {"type": "string"}}).manifest()


def unsupporting(fields):
    return msgspec.structs.replace(RESOURCE, unsupported=fields)


def test_fields_that_a_spec_sets_are_found_and_what_is_empty_sets_nothing():
    spec = {"a": 0, "b": {"c": False, "d": {}}, "e": [{"f": "x"}, {}], "g": None, "h": "", "i": "text", "j": [None]}
    paths = ("a", "b.c", "b.d", "e[].f", "e[].g", "g", "h", "i.j", "j[].k", "nowhere.at.all")
    assert set_fields(spec, paths) == ["a", "b.c", "e[].f"]


def test_the_text_is_always_the_same_and_reads_back():
    text = to_yaml(RESOURCE.manifest())
    assert text == to_yaml(RESOURCE.manifest())
    assert documents.load(text) == RESOURCE.manifest()


def test_a_type_that_no_schema_can_say_is_refused():
    class Odd(msgspec.Struct):
        field: set[int]

    class Either(msgspec.Struct):
        field: bool | str

    for struct in (Odd, Either):
        with pytest.raises(TypeError):
            struct_schema(struct, defaults=True)


class Tagged(msgspec.Struct, rename="camel"):
    """A volume with a tag."""

    tag_name: str
    """Its tag."""
    name: int | None = None
    """Its number."""

    inlined: ClassVar[Object] = {
        "type": "object",
        "required": ["name", "path"],
        "properties": {"name": {"type": "string"}, "path": {"type": "string"}},
        "x-kubernetes-map-type": "atomic",
    }


def test_fields_of_an_inlined_object_stand_beside_own_ones_which_count():
    assert struct_schema(Tagged, defaults=True) == {
        "type": "object",
        "description": "A volume with a tag.",
        "required": ["tagName", "path"],
        "properties": {
            "name": {"type": "integer", "description": "Its number."},
            "path": {"type": "string"},
            "tagName": {"type": "string", "description": "Its tag."},
        },
        "x-kubernetes-map-type": "atomic",
    }


def test_an_inlined_object_is_left_as_it_is():
    before = json.dumps(Tagged.inlined)
    struct_schema(Tagged, defaults=True)["properties"]["more"] = {}
    assert json.dumps(Tagged.inlined) == before


def test_a_struct_reads_its_own_fields_of_an_object_with_inlined_ones():
    assert msgspec.convert({"tagName": "a", "path": "/x"}, Tagged) == Tagged(tag_name="a")


class Plain(msgspec.Struct):
    place: Annotated[Object, Meta(extra={"schema": {"type": "object", "properties": {"x": {"type": "integer"}}}})]
    """Where it is."""


def test_a_plain_object_has_the_schema_that_it_is_given():
    place = struct_schema(Plain, defaults=True)["properties"]["place"]
    assert place == {"type": "object", "description": "Where it is.", "properties": {"x": {"type": "integer"}}}
