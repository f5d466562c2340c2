# Copyright: (c) 2026, The slipway.inference authors
# Simplified BSD License (see LICENSES/BSD-2-Clause.txt or https://opensource.org/licenses/BSD-2-Clause)
# SPDX-License-Identifier: BSD-2-Clause

# Private to this collection: it may change in any release.

"""Reading, applying and deleting many objects concurrently, in a few threads.

One request reads all objects of a kind and namespace. Objects that already match are not sent. Kinds are written in the
given order, those that others need first, and deleted in the opposite order. After an error, later kinds are not
processed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor
from concurrent.futures import wait as wait_for
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias, TypeVar

from ansible_collections.slipway.inference.plugins.module_utils._apis import Kind
from ansible_collections.slipway.inference.plugins.module_utils._client import (
    FIELD_MANAGER,
    Client,
    Object,
    Request,
)
from ansible_collections.slipway.inference.plugins.module_utils._errors import InferenceError
from ansible_collections.slipway.inference.plugins.module_utils._fields import meant, undeclared
from ansible_collections.slipway.inference.plugins.module_utils._manifest import Key, Place, Wanted

WORKERS = 16
# Codes of errors after which the other objects are not tried, because each request would fail in the same way.
FATAL = frozenset({"unreachable", "certificate", "unauthorized"})

Item = TypeVar("Item")
Result = TypeVar("Result")
Outcome: TypeAlias = "Object | InferenceError"


@dataclass
class Found:
    """Objects in the cluster by key, and for each kind and namespace the resource version from which a watch
    continues."""

    objects: dict[Key, Object] = field(default_factory=dict)
    versions: dict[Place, str] = field(default_factory=dict)


def read(client: Client, keys: Iterable[Key], until: float, *, predict: bool) -> Found:
    """Return the objects with these keys that exist. With ``predict``, a missing resource definition means that no
    object of the kind exists; otherwise it is an error."""
    requested = set(keys)
    names = Counter(Place(key.kind, key.namespace) for key in requested)

    def one(place: Place) -> tuple[Place, list[Object], str]:
        kind, namespace = place
        try:
            if names[place] > 1:
                return place, *client.pages(Request("list", kind, namespace), until)
            name = next(key.name for key in requested if (key.kind, key.namespace) == place)
            return place, [client.call(Request("get", kind, namespace, name), until)], ""
        except InferenceError as error:
            if error.code in ("not_found", "namespace_missing") or (predict and error.code == "definition_missing"):
                return place, [], ""
            raise

    snapshot = Found()
    for place, objects, version in concurrently(one, list(names)):
        snapshot.versions[place] = version
        for resource in objects:
            key = key_of(place.kind, resource)
            if key in requested:
                snapshot.objects[key] = resource
    return snapshot


@dataclass
class Listed(Found):
    """Objects of some kinds. ``api_found`` is whether the cluster has a definition for at least one of the kinds."""

    api_found: bool = True


def listed(client: Client, kinds: Sequence[Kind], namespace: str, query: Mapping[str, str], until: float) -> Listed:
    """Return the objects of these kinds that a query selects in a namespace, or in the whole cluster if ``namespace``
    is empty."""
    listing = Listed(api_found=not kinds)
    for kind in kinds:
        try:
            resources, version = client.pages(Request("list", kind, namespace, query=query), until)
        except InferenceError as error:
            if error.code == "definition_missing":
                continue
            raise
        listing.api_found = True
        for resource in resources:
            key = key_of(kind, resource)
            listing.objects[key] = resource
            listing.versions[Place(kind, key.namespace)] = version
    return listing


def key_of(kind: Kind, resource: Mapping[str, Any]) -> Key:
    return Key(kind, resource["metadata"].get("namespace", ""), resource["metadata"]["name"])


def apply(client: Client, desired: Sequence[Wanted], until: float, *, force: bool, dry_run: bool) -> dict[Key, Outcome]:
    """Apply each object. Return the object as the server returned it, or the error, by key.

    Objects that were not sent, because a kind before theirs had an error, are missing.
    """
    query = {
        "fieldManager": FIELD_MANAGER,
        "force": force,
        # As kubectl does: a field that the definition does not know is an error, not silently dropped.
        "fieldValidation": "Strict",
        "dryRun": "All" if dry_run else "",
    }

    def one(item: Wanted) -> Object:
        return client.call(Request("apply", *item.key, query, item.manifest), until)

    return _with_fields_meant(client, _outcomes(one, [desired] if dry_run else by_kind(desired)), until)


def _with_fields_meant(client: Client, outcomes: dict[Key, Outcome], until: float) -> dict[Key, Outcome]:
    """Add suggestions for the right field to errors about fields that a definition does not have.

    This needs one request for each kind with such errors. If the request fails, there are no suggestions.
    """
    documents: dict[Kind, Object] = {}
    for key, error in outcomes.items():
        paths = undeclared(error.message) if isinstance(error, InferenceError) and error.code == "invalid" else []
        if not paths:
            continue
        if key.kind not in documents:
            try:
                documents[key.kind] = client.call(Request("openapi", key.kind), until)
            except InferenceError:
                documents[key.kind] = {}
        hint = meant(paths, documents[key.kind], key.kind)
        outcomes[key] = replace(error, message=f"{error.message} {hint}".rstrip())
    return outcomes


def delete(
    client: Client, existing: Mapping[Key, Object], targets: Sequence[Wanted], until: float, *, dry_run: bool
) -> dict[Key, Outcome]:
    """Delete each object, children first. Return the server's response, or the error, by key. An object that no longer
    exists is not an error."""

    def one(item: Wanted) -> Object:
        body = {
            "kind": "DeleteOptions",
            "apiVersion": "v1",
            "propagationPolicy": "Foreground",
            "preconditions": {"uid": existing[item.key]["metadata"]["uid"]},
            # The API server reads the options of a deletion from the body alone where there is one, not from the query.
            "dryRun": ["All"] if dry_run else [],
        }
        try:
            return client.call(Request("delete", *item.key, {}, body), until)
        except InferenceError as error:
            if error.code == "not_found":
                return {}
            if error.code == "conflict":
                # The precondition failed: the object with this name is no longer the one that was read.
                text = f"It has changed in the meantime: {error.message}"
                raise InferenceError("replaced", text, error.status) from error
            raise

    return _outcomes(one, by_kind(targets)[::-1])


def by_kind(objects: Iterable[Wanted]) -> list[list[Wanted]]:
    """Return the objects grouped by kind, in the order in which each kind first appears."""
    groups: dict[Kind, list[Wanted]] = {}
    for item in objects:
        groups.setdefault(item.key.kind, []).append(item)
    return list(groups.values())


def _outcomes(act: Callable[[Wanted], Object], stages: Iterable[Sequence[Wanted]]) -> dict[Key, Outcome]:
    """Call ``act`` for all objects, one stage after the other, and return the results or errors. After an error, later
    stages are skipped."""
    fatal: list[InferenceError] = []
    outcomes: dict[Key, Outcome] = {}

    def caught(item: Wanted) -> Outcome:
        if fatal:
            return fatal[0]
        try:
            return act(item)
        except InferenceError as error:
            if error.code in FATAL:
                fatal.append(error)
            return error

    for stage in stages:
        outcomes |= zip((item.key for item in stage), concurrently(caught, stage), strict=True)
        if any(isinstance(outcome, InferenceError) for outcome in outcomes.values()):
            break
    return outcomes


def concurrently(act: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
    """Call ``act`` for every item in a few threads, and return the results in order. If one call raises, calls that
    have not begun are cancelled."""
    if len(items) <= 1:
        return [act(item) for item in items]
    with ThreadPoolExecutor(min(WORKERS, len(items))) as threads:
        futures = [threads.submit(act, item) for item in items]
        done, pending = wait_for(futures, return_when=FIRST_EXCEPTION)
        for future in pending:
            future.cancel()
        for future in done:
            future.result()
        return [future.result() for future in futures]
