"""What the API server does with an object by its schema, without an API server: unknown fields, constraints, defaults;
and objects that it would take, by the dice.

Rules in CEL are beyond this.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

from jsonschema import Draft4Validator, FormatChecker

from slipway.kube.objects import Kind
from slipway.kube.schemas.crd import CustomResource
from slipway.kube.values.times import unix_time

Object = dict[str, Any]
KEEP = "x-kubernetes-preserve-unknown-fields"


TIMES = FormatChecker(formats=())


@TIMES.checks("date-time", raises=ValueError)
def is_time(value: Any) -> bool:
    """Like all texts that are no times, an empty one is refused."""
    return not isinstance(value, str) or unix_time(value) > 0


DEFINITIONS: dict[Kind, Object] = {}


def definition_of(resource: CustomResource) -> Object:
    """The CustomResourceDefinition of a resource. Do not modify it: it is cached, because creating one is slow."""
    if resource.kind not in DEFINITIONS:
        DEFINITIONS[resource.kind] = resource.manifest()
    return DEFINITIONS[resource.kind]


def schema_of(definition: Object) -> Object:
    """The schema of a CustomResourceDefinition with one version."""
    (version,) = definition["spec"]["versions"]
    schema: Object = version["schema"]["openAPIV3Schema"]
    return schema


def faults(schema: Object, value: Any) -> list[str]:
    """What is wrong with an object, each with its place: ``spec.replicas: 11 is greater than the maximum of 10``."""
    errors = Draft4Validator(closed(schema), format_checker=TIMES).iter_errors(value)
    return sorted(f"{'.'.join(map(str, error.absolute_path))}: {error.message}" for error in errors)


def closed(schema: Object) -> Object:
    """The schema with every unknown field forbidden; but for metadata, which is the API server's own."""
    if not isinstance(schema, dict):
        return schema
    strict_schema = dict(schema)
    if "properties" in schema:
        strict_schema["properties"] = {name: closed(below) for name, below in schema["properties"].items()}
        if not schema.get(KEEP):
            strict_schema["additionalProperties"] = False
    for word in ("items", "additionalProperties"):
        if isinstance(schema.get(word), dict):
            strict_schema[word] = closed(schema[word])
    return strict_schema


def filled(schema: Object, value: Any) -> Any:
    """The value with the defaults of what it leaves out, at every depth that it has."""
    if isinstance(value, list) and "items" in schema:
        return [filled(schema["items"], item) for item in value]
    if not isinstance(value, dict):
        return value
    properties = schema.get("properties", {})
    whole = {name: below["default"] for name, below in properties.items() if "default" in below} | value
    rest = schema.get("additionalProperties") or {}
    return {name: filled(properties.get(name, rest), below) for name, below in whole.items()}


class RandomObjects:
    """Objects that a schema takes, each of them another one, of fields and values as a dice throws them."""

    def __init__(self, dice: Random, texts: Mapping[str, Sequence[str]], likely: float) -> None:
        """``texts``: end of a field's place -> what is written there; ``""``: everywhere else. ``likely``: how likely
        an optional field is there."""
        self._dice, self._texts, self._likely = dice, texts, likely

    def value(self, schema: Object, place: str = "") -> Any:
        if "enum" in schema:
            return self._dice.choice(schema["enum"])
        if schema.get("x-kubernetes-int-or-string"):
            return self._dice.choice([1, "1"])
        make = {
            "object": self._object,
            "array": self._array,
            "string": self._text,
            "integer": self._whole,
            "number": self._number,
            "boolean": lambda _schema, _place: self._dice.random() < 0.5,
        }[schema["type"]]
        return make(schema, place)

    def _object(self, schema: Object, place: str) -> Object:
        required = set(schema.get("required", ()))
        fields = {
            name: self.value(below, f"{place}.{name}")
            for name, below in schema.get("properties", {}).items()
            if name in required or self._dice.random() < self._likely
        }
        rest = schema.get("additionalProperties")
        return fields | ({"app": self.value(rest, f"{place}.app")} if isinstance(rest, dict) else {})

    def _array(self, schema: Object, place: str) -> list[Any]:
        return [self.value(schema["items"], f"{place}[]") for _item in range(self._dice.randint(0, 3))]

    def _text(self, schema: Object, place: str) -> str:
        ends = [end for end in self._texts if place.endswith(end)]
        offered = [text for text in self._texts[max(ends, key=len)] if not faults(schema, text)]
        assert offered, f"no text for {place} is one that the schema takes"
        return self._dice.choice(offered)

    def _whole(self, schema: Object, _place: str) -> int:
        least, most = schema.get("minimum", -3), schema.get("maximum", 2**31 - 1)
        return self._dice.choice([least, most, self._dice.randint(least, min(most, least + 100))])

    def _number(self, schema: Object, _place: str) -> float:
        least, most = schema.get("minimum", -1.5), schema.get("maximum", 1e300)
        return self._dice.choice([least, most, (least + most) / 2])
