# Copyright: (c) 2026, The slipway.inference authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The documentation of the modules as data, and how results are compared with it."""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

Object = dict[str, Any]

PLUGINS = "ansible_collections.slipway.inference.plugins"
COLLECTION = Path(__file__).resolve().parents[3]
MODULES = sorted(path.stem for path in (COLLECTION / "plugins" / "modules").glob("[a-z]*.py"))
OF_KUBERNETES = ["k8s", "k8s_info"]
"""Modules with the options and results of kubernetes.core, which documents them."""
OWN = [module for module in MODULES if module not in OF_KUBERNETES]
"""Modules that document their options and results."""
# What Ansible adds to every result.
COMMON = {"changed", "failed", "msg", "diff", "invocation", "warnings", "deprecations", "exception"}
TYPES: dict[str, tuple[type, ...]] = {
    "str": (str,), "int": (int,), "float": (int, float), "bool": (bool,), "list": (list,), "dict": (dict,),
    "raw": (object,),
}  # fmt: skip
AS = re.compile(r"\bas rv\(slipway\.inference\.(?P<module>\w+)#module:(?P<path>[\w.\[\]]+)\)")


def load(module: str) -> Any:
    return importlib.import_module(f"{PLUGINS}.modules.{module}")


def documentation(module: str) -> Object:
    document: Object = yaml.safe_load(load(module).DOCUMENTATION)
    return document


def fragments(module: str) -> list[str]:
    """Names of the documentation fragments that a module extends."""
    names = documentation(module).get("extends_documentation_fragment") or ()
    return [name.removeprefix("slipway.inference.") for name in names]


def options(module: str) -> Object:
    """Documented options, with those of the fragments."""
    specs = dict(documentation(module).get("options") or {})
    for name in fragments(module):
        file, _dot, part = name.partition(".")
        fragment = importlib.import_module(f"{PLUGINS}.doc_fragments.{file}").ModuleDocFragment
        specs.update(yaml.safe_load(getattr(fragment, part.upper() or "DOCUMENTATION")).get("options") or {})
    return specs


def returned(module: str) -> Object:
    document: Object = yaml.safe_load(load(module).RETURN)
    return document


def words(value: Object) -> str:
    """The description of a documented value, in lower case."""
    description = value["description"]
    return (description if isinstance(description, str) else " ".join(description)).lower()


def inside(value: Object) -> Object | None:
    """What a documented value contains. One that is ``as RV(...)`` of a module contains what is documented there."""
    if "contains" in value:
        contents: Object = value["contains"]
        return contents
    like = AS.search(words(value))
    if like is None:
        return None
    keys = like["path"].replace("[]", "").split(".")
    other = returned(like["module"])[keys[0]]
    for key in keys[1:]:
        other = (inside(other) or {})[key]
    return inside(other)


def differences(data: Object, documented: Object, at: str = "") -> Iterator[str]:
    """Returns the deviations of a result from its documentation: keys and types, at every depth."""
    for key, value in data.items():
        if key not in documented:
            yield f"{at}{key} is not documented"
        else:
            yield from _value_differences(value, documented[key], f"{at}{key}")


def _value_differences(value: Any, spec: Object, at: str) -> Iterator[str]:
    if value is None and "null " in words(spec):
        return
    if not _is_a(value, spec["type"]):
        yield f"{at} is {value!r}, and no {spec['type']}"
        return
    within = inside(spec)
    for part in value if isinstance(value, list) else [value]:
        if isinstance(value, list) and not _is_a(part, spec["elements"]):
            yield f"{at}[] is {part!r}, and no {spec['elements']}"
        elif isinstance(part, dict) and within is not None:
            yield from differences(part, within, f"{at}[]." if isinstance(value, list) else f"{at}.")


def _is_a(value: Any, kind: str) -> bool:
    # A truth value is a number only to Python.
    return isinstance(value, TYPES[kind]) and (kind in ("bool", "raw") or not isinstance(value, bool))


def keys(data: Object, at: str = "") -> set[str]:
    """Every key of a result, at every depth."""
    paths = set()
    for key, value in data.items():
        paths.add(f"{at}{key}")
        for part in value if isinstance(value, list) else [value]:
            if isinstance(part, dict):
                paths |= keys(part, f"{at}{key}.")
    return paths


def documented_keys(documented: Object, at: str = "") -> set[str]:
    """Every key that is documented, at every depth."""
    paths = set()
    for key, value in documented.items():
        paths |= {f"{at}{key}"} | documented_keys(inside(value) or {}, f"{at}{key}.")
    return paths
