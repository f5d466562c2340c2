# Copyright: (c) 2026, The slipway.inference authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Private to this collection: it may change in any release.

"""Shapes, which describe as data what a configuration may contain, and a reader whose errors name the exact key. All
functions are pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from ansible_collections.slipway.inference.plugins.module_utils._spelling import did_you_mean
from ansible_collections.slipway.inference.plugins.plugin_utils._quantity import FORM

# Number of names that an error message lists.
LISTED = 12


@dataclass(frozen=True)
class Leaf:
    """A single value. ``read`` returns the value in plain types, and raises ValueError or TypeError if it is
    invalid."""

    expected: str
    read: Callable[[Any], Any]
    # Whether null is a value. For other leaves, null means that the key is missing.
    null: bool = False


@dataclass(frozen=True)
class Keys:
    """A mapping with known keys. ``check`` returns a problem of the whole mapping, or an empty string."""

    keys: Mapping[str, Shape]
    check: Callable[[Mapping[str, Any]], str] = lambda _value: ""


@dataclass(frozen=True)
class Names:
    """A mapping whose keys are names that the user chooses. ``name`` is the shape of these names."""

    of: Shape
    name: Leaf


@dataclass(frozen=True)
class Items:
    """A list whose items have the shape ``of``."""

    of: Shape


Shape: TypeAlias = "Leaf | Keys | Names | Items"


def read(value: Any, shape: Shape, path: str, problems: list[str]) -> Any:
    """Return the value in plain types, without keys that are null. Add its problems to ``problems``."""
    if isinstance(shape, Leaf):
        try:
            return shape.read(value)
        except (TypeError, ValueError):
            problems.append(f"{path} must be {shape.expected}, not {value!r}.")
            return value
    if isinstance(shape, Items):
        if not isinstance(value, Sequence) or isinstance(value, str):
            problems.append(f"{path} must be a list, not {value!r}.")
            return value
        return [read(item, shape.of, f"{path}[{index}]", problems) for index, item in enumerate(value)]
    if not isinstance(value, Mapping):
        problems.append(f"{path} must be a mapping, not {value!r}.")
        return value
    if isinstance(shape, Keys):
        return _keys(value, shape, path, problems)
    for name in value:
        read(name, shape.name, f"The name {name!r} in {path}", problems)
    return {str(name): read(part, shape.of, f"{path}.{name}", problems) for name, part in value.items()}


def _keys(value: Mapping[str, Any], shape: Keys, path: str, problems: list[str]) -> dict[str, Any]:
    parsed: dict[str, Any] = {}
    for key, part in value.items():
        if key not in shape.keys:
            problems.append(f"{path} has no key {key}. {near(str(key), shape.keys)}")
        elif part is not None or getattr(shape.keys[key], "null", False):
            parsed[str(key)] = read(part, shape.keys[key], f"{path}.{key}", problems)
    fault = shape.check(parsed)
    if fault:
        problems.append(f"{path} {fault}.")
    return parsed


# --- JSON Schema ------------------------------------------------------------------------------------------------------


def of_schema(schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> Shape:
    """Return the shape that a JSON Schema describes. Only keywords that msgspec writes are supported.

    The ``description`` of a text is used in errors. Deprecated keys are not part of the shape.
    """
    if "$ref" in schema:
        target = definitions[schema["$ref"].rpartition("/")[2]]
        return of_schema({**target, **{key: part for key, part in schema.items() if key != "$ref"}}, definitions)
    if schema.get("type") == "object":
        return _mapping_of_schema(schema, definitions)
    if schema.get("type") == "array":
        return Items(of_schema(schema["items"], definitions))
    if "enum" in schema:
        return one_of(*schema["enum"])
    if schema.get("type") == "string":
        return matching(schema.get("description", TEXT.expected), schema["pattern"]) if "pattern" in schema else TEXT
    return WHOLE if schema.get("type") == "integer" else ANYTHING


def _mapping_of_schema(schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> Shape:
    if "properties" in schema:
        properties = {name: part for name, part in schema["properties"].items() if not part.get("deprecated")}
        return Keys(
            {name: of_schema(part, definitions) for name, part in properties.items()},
            lambda value: _missing(schema, value),
        )
    if not schema.get("additionalProperties"):
        return MAPPING
    of, names = of_schema(schema["additionalProperties"], definitions), schema.get("propertyNames", {})
    if "enum" in names:
        return Keys(dict.fromkeys(names["enum"], of))
    return Names(of, matching(names["description"], names["pattern"]))


def _missing(schema: Mapping[str, Any], value: Mapping[str, Any]) -> str:
    """Return the keys that a mapping lacks, as the end of a sentence: keys that are required always, because of another
    key, or as one of several. The result is empty if none is missing."""
    needed = list(schema.get("required", ()))
    for rule in schema.get("allOf", ()):
        if all(value.get(key) in part["enum"] for key, part in rule["if"]["properties"].items()):
            needed += rule["then"]["required"]
    missing = [key for key in needed if key not in value]
    choices = [option["required"][0] for option in schema.get("anyOf", ())]
    if choices and not any(value.get(key) for key in choices):
        missing.append(" or ".join(choices))
    return f"needs {' and '.join(missing)}" if missing else ""


def near(name: str, choices: Mapping[str, Any]) -> str:
    """Return ``Did you mean a or b?``, or the possible names if none is similar."""
    if meant := did_you_mean(name, choices):
        return meant
    few = sorted(choices)[:LISTED]
    return f"There are {', '.join(few)}{f' and {len(choices) - LISTED} more' if len(choices) > LISTED else ''}."


# --- leaves -----------------------------------------------------------------------------------------------------------


def matching(expected: str, pattern: str) -> Leaf:
    """Return the shape of a text that matches a pattern. Numbers count as texts, because templates and YAML may return
    them."""

    def text(value: Any) -> str:
        if isinstance(value, bool) or not isinstance(value, (str, int, float)):
            raise TypeError
        if not re.fullmatch(pattern, str(value)):
            raise ValueError
        return str(value)

    return Leaf(expected, text)


def one_of(*choices: str) -> Leaf:
    return matching(" or ".join(choices), "|".join(map(re.escape, choices)))


def _whole(value: Any) -> int:
    if isinstance(value, bool) or not re.fullmatch(r"\d+", str(value)):
        raise ValueError
    return int(value)


def plain(value: Any) -> Any:
    """Return a value in plain types, without any other check."""
    if isinstance(value, Mapping):
        return {str(key): plain(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(part) for part in value]
    if value is None or isinstance(value, bool):
        return value
    return next((kind(value) for kind in (int, float) if isinstance(value, kind)), str(value))


def _mapping(value: Any) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise TypeError
    return {str(key): plain(part) for key, part in value.items()}


TEXT = matching("a text", r"(?s).*")
WHOLE = Leaf("a whole number", _whole)
QUANTITY = matching("a quantity such as 2, 500m or 24Gi", FORM)
DURATION = matching("a duration such as 90s, 10m or 1h30m", r"(?=.*[1-9])(\d+(\.\d+)?(ns|us|µs|ms|s|m|h))+")
MAPPING = Leaf("a mapping", _mapping)
ANYTHING = Leaf("anything", plain, null=True)
