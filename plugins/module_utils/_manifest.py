# Copyright: (c) 2026, The slipway.inference authors
# Simplified BSD License (see LICENSES/BSD-2-Clause.txt or https://opensource.org/licenses/BSD-2-Clause)
# SPDX-License-Identifier: BSD-2-Clause

# Private to this collection: it may change in any release.

"""Manifests: from what a play says to what is sent to the API server. Pure.

An item is either short (name, namespace, labels, annotations, spec) or a whole manifest (apiVersion, kind, metadata,
spec), also one that was read from a cluster.
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
# What a manifest may say of its metadata; the rest of what a live object has there is the server's.
_METADATA = ("labels", "annotations", "finalizers", "ownerReferences")
# In a label selector: what says that an object lacks something, and the commas between its requirements.
_LACKS = re.compile(r"^\s*!|!=|\snotin\s*\(")
_OUTER_COMMA = re.compile(r",(?![^(]*\))")
_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


class Key(NamedTuple):
    """Which object. The namespace is empty for those of the whole cluster."""

    kind: Kind
    namespace: str
    name: str

    @property
    def label(self) -> str:
        """``namespace/name``."""
        return "/".join(part for part in (self.namespace, self.name) if part)


class Place(NamedTuple):
    """Where objects of a kind are read and followed together."""

    kind: Kind
    namespace: str


@dataclass(frozen=True)
class Wanted:
    """An object that a play names. ``manifest`` is complete, with metadata.name and metadata.namespace."""

    key: Key
    manifest: dict[str, Any]


def parse(
    items: Iterable[tuple[Sequence[Kind], Mapping[str, Any]]], namespace: str | None, need_spec: bool
) -> list[Wanted]:
    """The objects that the items name, or one error that lists everything that is wrong with them.

    Each comes with the kinds that it may be of, one an API, and may be of another one that belongs to one of those: see
    ``Kind.meant``. ``namespace`` is that of the items that name none; ``need_spec`` is False where objects are only to
    be deleted or patched.
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
    """The label selector of what carries all that is required. Raises InferenceError where nothing is named that it has
    to carry: that would be everything, or all that is somebody else's."""
    text = ",".join(requirement.strip() for requirement in requirements if requirement.strip())
    if not any(not _LACKS.search(requirement) for requirement in _OUTER_COMMA.split(text) if requirement.strip()):
        raise InferenceError(
            "invalid_input",
            "Nothing was changed. prune must require a label, such as team=search. An empty selector, or one that only"
            " excludes labels, would delete unrelated objects.",
        )
    return text


def _kind(kinds: Sequence[Kind], item: Mapping[str, Any], namespace: str | None) -> Kind:
    """The kind of an item: by its apiVersion, else by its kind, else the first that it may be of."""
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
    """What an item says of its metadata, short or in a manifest."""
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
