# Copyright: (c) 2026, The slipway.inference authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Private to this collection: it may change in any release.

"""What a configuration may hold, as data; and reading one by it, so that an error names the very key. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from ansible_collections.slipway.inference.plugins.module_utils._spelling import did_you_mean
from ansible_collections.slipway.inference.plugins.plugin_utils._quantity import FORM

# How many names an error lists.
LISTED = 12


@dataclass(frozen=True)
class Leaf:
    """A single value. ``read`` gives it as it is written down; it raises ValueError or TypeError where it cannot."""

    expected: str
    read: Callable[[Any], Any]
    # Elsewhere null is the same as nothing.
    null: bool = False


@dataclass(frozen=True)
class Keys:
    """A mapping whose keys are known. ``check`` says what is wrong with the whole of it, or nothing."""

    keys: Mapping[str, Shape]
    check: Callable[[Mapping[str, Any]], str] = lambda _value: ""


@dataclass(frozen=True)
class Names:
    """A mapping whose keys are names that somebody chooses; ``name`` is what these may look like."""

    of: Shape
    name: Leaf


@dataclass(frozen=True)
class Items:
    """A list."""

    of: Shape


Shape: TypeAlias = "Leaf | Keys | Names | Items"


def read(value: Any, shape: Shape, path: str, problems: list[str]) -> Any:
    """The value in plain types, without what is null. What is wrong with it is added to the problems."""
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
    """The shape that a JSON Schema describes, as far as it is of the words that msgspec writes.

    ``description`` of a text is what an error calls it. Deprecated keys are not among those that it has.
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
    """Which keys a mapping lacks: those that are required, always or by another key; or one of several."""
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
    """``Did you mean a or b?``, or those there are when none of them is like it."""
    if meant := did_you_mean(name, choices):
        return meant
    few = sorted(choices)[:LISTED]
    return f"There are {', '.join(few)}{f' and {len(choices) - LISTED} more' if len(choices) > LISTED else ''}."


# --- leaves -----------------------------------------------------------------------------------------------------------


def matching(expected: str, pattern: str) -> Leaf:
    """A text of a certain form. Numbers are texts too: a template, or YAML, gives them as it likes."""

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
    """The value in plain types, as something that only Kubernetes understands."""
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
