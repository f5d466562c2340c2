"""What the API server does with an object by its schema, without an API server: unknown fields, constraints, defaults.

Rules in CEL are beyond this.
"""

from __future__ import annotations

from typing import Any

from jsonschema import Draft4Validator, FormatChecker

from slipway.serving.times import unix_time

Object = dict[str, Any]
KEEP = "x-kubernetes-preserve-unknown-fields"


TIMES = FormatChecker(formats=())


@TIMES.checks("date-time", raises=ValueError)
def is_time(value: Any) -> bool:
    """Like all texts that are no times, an empty one is refused."""
    return not isinstance(value, str) or unix_time(value) > 0


def schema_of(definition: Object) -> Object:
    """The schema of a CustomResourceDefinition with one version."""
    (version,) = definition["spec"]["versions"]
    schema: Object = version["schema"]["openAPIV3Schema"]
    return schema


def faults(schema: Object, value: Any) -> list[str]:
    """What is wrong with an object, each with its place: ``spec.replicas: 11 is greater than the maximum of 10``."""
    found = Draft4Validator(closed(schema), format_checker=TIMES).iter_errors(value)
    return sorted(f"{'.'.join(map(str, error.absolute_path))}: {error.message}" for error in found)


def closed(schema: Object) -> Object:
    """The schema with every unknown field forbidden; but for metadata, which is the API server's own."""
    if not isinstance(schema, dict):
        return schema
    found = dict(schema)
    if "properties" in schema:
        found["properties"] = {name: closed(below) for name, below in schema["properties"].items()}
        if not schema.get(KEEP):
            found["additionalProperties"] = False
    for word in ("items", "additionalProperties"):
        if isinstance(schema.get(word), dict):
            found[word] = closed(schema[word])
    return found


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
