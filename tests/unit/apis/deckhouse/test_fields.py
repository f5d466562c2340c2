"""Every field of Deckhouse's reference of its API is one of our definitions, with the same limits and no others.

``fields.tsv`` has them all. Where the reference itself lies beside this checkout, the table is compared with it.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from slipway.apis.deckhouse.types import CATALOG_SOURCE, CLUSTER_MODEL, MODEL
from slipway.kube.schemas.crd import CustomResource
from tests.tables import each

TABLE = Path(__file__).parent / "fields.tsv"
REFERENCE = Path(__file__).parents[5] / "shared" / "reference" / "seeds" / "deckhouse.txt"
KINDS: dict[str, CustomResource] = {one.kind.kind: one for one in (CLUSTER_MODEL, CATALOG_SOURCE, MODEL)}
TYPES = {"array of objects": "array", "array of strings": "array"}


class Field(msgspec.Struct, frozen=True, kw_only=True):
    """A line of the table."""

    kind: str
    path: str
    """``a.b``; elements of a list of texts are ``a.b[]``, fields of those of a list of objects ``a.b.c``."""
    type: str
    required: bool = False
    shortest: int | None = None
    longest: int | None = None
    least: int | None = None
    pattern: str = ""
    values: tuple[str, ...] = ()

    def line(self) -> str:
        parts = [self.kind, self.path, self.type, "required" if self.required else ""]
        parts += ["" if value is None else str(value) for value in (self.shortest, self.longest, self.least)]
        return "\t".join([*parts, " ".join(self.values), self.pattern]).rstrip("\t")


def table() -> list[Field]:
    return [_read(line) for line in TABLE.read_text().splitlines()]


def _read(line: str) -> Field:
    kind, path, type_, required, shortest, longest, least, values, pattern = [*line.split("\t"), *[""] * 9][:9]
    numbers = [int(text) if text else None for text in (shortest, longest, least)]
    return Field(
        kind=kind,
        path=path,
        type=type_,
        required=required == "required",
        shortest=numbers[0],
        longest=numbers[1],
        least=numbers[2],
        pattern=pattern,
        values=tuple(values.split()),
    )


@functools.cache
def root(kind: str) -> dict[str, Any]:
    schema: dict[str, Any] = KINDS[kind].manifest()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return schema


def schema_at(kind: str, path: str) -> tuple[dict[str, Any], bool]:
    """Of a field, and whether it is required."""
    schema, required = root(kind), False
    for name in path.split("."):
        schema = schema.get("items", schema)
        required = name.removesuffix("[]") in schema.get("required", ())
        schema = schema["properties"][name.removesuffix("[]")]
    return (schema["items"], False) if path.endswith("[]") else (schema, required)


@each(table(), ids=lambda field: f"{field.kind}-{field.path}")
def test_the_definition_has_the_field_as_the_reference_does(field: Field) -> None:
    schema, required = schema_at(field.kind, field.path)
    actual = Field(
        kind=field.kind,
        path=field.path,
        type=schema["type"],
        required=required,
        shortest=schema.get("minLength"),
        longest=schema.get("maxLength"),
        least=schema.get("minimum"),
        pattern=schema.get("pattern", ""),
        values=tuple(sorted(schema.get("enum", ()))),
    )
    expected = msgspec.structs.replace(field, values=tuple(sorted(field.values)))
    if not field.path.startswith("spec."):  # where there are none there is no model; of a status it says nothing
        expected = msgspec.structs.replace(expected, required=required)
    assert actual == expected


def paths(schema: dict[str, Any], at: str) -> Iterator[str]:
    for name, below in schema.get("properties", {}).items():
        yield f"{at}{name}"
        yield from paths(below.get("items", below), f"{at}{name}.")
        if below.get("items", {}).get("type") == "string":
            yield f"{at}{name}[]"


@pytest.mark.parametrize("kind", KINDS)
def test_the_definition_has_no_other_fields(kind: str) -> None:
    parts = {part: root(kind)["properties"][part] for part in ("spec", "status")}
    actual = {one for part, schema in parts.items() for one in (part, *paths(schema, f"{part}."))}
    assert actual == {field.path for field in table() if field.kind == kind}


@pytest.mark.skipif(not REFERENCE.exists(), reason="the reference does not lie beside this checkout")
def test_the_table_has_every_line_of_the_reference() -> None:
    assert sorted(one.line() for one in referred()) == sorted(one.line() for one in table())


def referred() -> list[Field]:
    """The fields of the reference: bullets with a path, a type below it, and limits further below."""
    fields: list[Field] = []
    kind, lines = "", [line.strip() for line in REFERENCE.read_text().splitlines()]
    for at, line in enumerate(lines):
        if line in KINDS and lines[at + 2].startswith("Scope:"):
            kind = line
        elif line.startswith("•"):
            path = line.removeprefix("•").strip().replace(".Element of the array", "[]")
            type_ = TYPES.get(lines[at + 1], lines[at + 1])
            fields.append(Field(kind=kind, path=path, type=type_))
        elif fields:
            fields[-1] = _limited(fields[-1], line)
    return fields


def _limited(field: Field, line: str) -> Field:
    changes: dict[str, Any] = {}
    if line == "Required value":
        changes["required"] = True
    elif match := re.fullmatch(r"Length: (\d+)\.\.(\d+)", line):
        changes |= {"shortest": int(match[1]), "longest": int(match[2])}
    elif match := re.fullmatch(r"Minimal length: (\d+)", line):
        changes["shortest"] = int(match[1])
    elif match := re.fullmatch(r"Maximum length: (\d+)", line):
        changes["longest"] = int(match[1])
    elif match := re.fullmatch(r"Allowed values: (\d+) <= X", line):
        changes["least"] = int(match[1])
    elif match := re.fullmatch(r"Allowed values: (.+)", line):
        changes["values"] = tuple(match[1].split(", "))
    elif match := re.fullmatch(r"Pattern: (.+)", line):
        changes["pattern"] = match[1]
    return msgspec.structs.replace(field, **changes)
