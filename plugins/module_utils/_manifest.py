# Copyright: (c) 2026, The slipway.inference authors
# Simplified BSD License (see LICENSES/BSD-2-Clause.txt or https://opensource.org/licenses/BSD-2-Clause)
# SPDX-License-Identifier: BSD-2-Clause

# Private to this collection: it may change in any release.

"""Manifests to send to the API server, built from the items in a task. All functions are pure.

An item is either short (name, namespace, labels, annotations, spec) or a whole manifest (apiVersion, kind, metadata,
spec), which may come from a cluster.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from ansible_collections.slipway.inference.plugins.module_utils._apis import Kind
from ansible_collections.slipway.inference.plugins.module_utils._errors import InferenceError

_NAME = re.compile(r"^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$")
_NAMESPACE = re.compile(r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$")
# Metadata fields that a manifest may set. The server sets the others.
_METADATA = ("labels", "annotations", "finalizers", "ownerReferences")
# In a label selector: requirements that exclude a label, and the commas between requirements.
_LACKS = re.compile(r"^\s*!|!=|\snotin\s*\(")
_OUTER_COMMA = re.compile(r",(?![^(]*\))")
_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


class Key(NamedTuple):
    """Kind, namespace and name of an object. The namespace is empty for cluster-scoped kinds."""

    kind: Kind
    namespace: str
    name: str

    @property
    def label(self) -> str:
        """The object's name for messages: ``namespace/name``, or ``name`` if it is cluster-scoped."""
        return "/".join(part for part in (self.namespace, self.name) if part)


class Place(NamedTuple):
    """A kind and a namespace, whose objects are listed and watched together."""

    kind: Kind
    namespace: str


@dataclass(frozen=True)
class Wanted:
    """An object that a task names. ``manifest`` is complete, with metadata.name and metadata.namespace."""

    key: Key
    manifest: dict[str, Any]


def parse(
    items: Iterable[tuple[Sequence[Kind], Mapping[str, Any]]], namespace: str | None, need_spec: bool
) -> list[Wanted]:
    """Return the objects that the items name. Raise InferenceError with a list of all problems if an item is invalid.

    Each item comes with the kinds that it may have, one for each API. It may also have another kind that belongs to one
    of them: see ``Kind.meant``. ``namespace`` is for items that set none. ``need_spec`` is False if objects are only
    deleted or patched.
    """
    desired: list[Wanted] = []
    problems: list[str] = []
    seen: set[Key] = set()
    numbers: Counter[Kind] = Counter()
    typed = [(kinds, _kind(kinds, item, namespace), item) for kinds, item in items]
    several = len({kind for _kinds, kind, _item in typed}) > 1
    for kinds, kind, item in typed:
        numbers[kind] += 1
        parsed = _parse(item, kind, namespace)
        name = parsed.key.label if parsed.key.name else f"item {numbers[kind]}"
        name = f"{kind.kind} {name}" if several else name
        problems += [f"{name}: {problem}" for problem in _problems(item, parsed, kinds, need_spec)]
        if parsed.key in seen:
            problems.append(f"{name}: it is listed twice")
        seen.add(parsed.key)
        desired.append(parsed)
    if problems:
        raise InferenceError("invalid_input", "Nothing was changed. " + "\n".join(f"{text}." for text in problems))
    return desired


def selector(requirements: Iterable[str]) -> str:
    """Return the label selector for objects that meet all requirements.

    Raise InferenceError if no requirement asks for an existing label, because the selector would then match unrelated
    objects.
    """
    text = ",".join(requirement.strip() for requirement in requirements if requirement.strip())
    if not any(not _LACKS.search(requirement) for requirement in _OUTER_COMMA.split(text) if requirement.strip()):
        raise InferenceError(
            "invalid_input",
            "Nothing was changed. prune must require a label, such as team=search. An empty selector, or one that only"
            " excludes labels, would delete unrelated objects.",
        )
    return text


def _kind(kinds: Sequence[Kind], item: Mapping[str, Any], namespace: str | None) -> Kind:
    """Return the kind of an item: by its apiVersion, or else by its kind, or else the first kind that it may have."""
    version, name = item.get("api_version"), item.get("kind")
    fit = [
        kind for kind in kinds if (kind.api_version == version if version else name in {one.kind for one in kind.all})
    ]
    return (fit or kinds)[0].meant(name, _given(item).get("namespace") or namespace)


def _parse(item: Mapping[str, Any], kind: Kind, namespace: str | None) -> Wanted:
    given = _given(item)
    metadata: dict[str, Any] = {"name": str(given.get("name") or "")}
    if kind.namespaced:
        metadata["namespace"] = str(given.get("namespace") or namespace or "")
    metadata.update({field: given[field] for field in _METADATA if given.get(field)})
    for field in ("labels", "annotations"):
        texts = {str(key): _text(value) for key, value in (metadata.pop(field, None) or {}).items()}
        texts.pop(_LAST_APPLIED, None)
        if texts:
            metadata[field] = texts
    manifest = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, "spec": item.get("spec")}
    return Wanted(Key(kind, metadata.get("namespace", ""), metadata["name"]), manifest)


def _given(item: Mapping[str, Any]) -> dict[str, Any]:
    """Return the metadata of an item, whether the item is short or a manifest."""
    short = {
        field: item[field] for field in ("name", "namespace", "labels", "annotations") if item.get(field) is not None
    }
    return {**(item.get("metadata") or {}), **short}


def _problems(item: Mapping[str, Any], parsed: Wanted, kinds: Sequence[Kind], need_spec: bool) -> Iterable[str]:
    kind, namespace, name = parsed.key
    if not name:
        yield "name is missing"
    elif not _NAME.match(name):
        yield "name must consist of lower case letters, digits, '-' and '.'"
    if kind.namespaced and not namespace:
        yield "namespace is missing: set it in the item or for the task"
    elif namespace and not _NAMESPACE.match(namespace):
        yield f"namespace {namespace} must consist of lower case letters, digits and '-'"
    if need_spec and not isinstance(item.get("spec"), Mapping):
        yield "spec is missing"
    versions = [one.api_version for one in kinds]
    if item.get("api_version") not in (None, *versions):
        yield f"apiVersion is {item['api_version']}, not {' or '.join(versions)}"
    if item.get("kind") not in (None, kind.kind):
        meant = [one for one in kinds if one.api_version == item.get("api_version")] or kinds
        names = dict.fromkeys(one.kind for main in meant for one in main.all)
        yield f"kind is {item['kind']}, not {' or '.join(names)}"


def _text(value: Any) -> str:
    # Labels and annotations are strings, but templates and YAML give numbers and booleans.
    return value if isinstance(value, str) else json.dumps(value)
