# Copyright: (c) 2026, The slipway.inference authors
# Simplified BSD License (see LICENSES/BSD-2-Clause.txt or https://opensource.org/licenses/BSD-2-Clause)
# SPDX-License-Identifier: BSD-2-Clause

# Private to this collection: it may change in any release.

"""Reading, applying and deleting many objects at once, by a few threads.

What is there is read by one request a namespace. Objects that already are as wanted are not sent at all. When several
are, the server checks all of them first, so that a mistake in one is found before the first is written.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor
from concurrent.futures import wait as wait_for
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar

from ansible_collections.slipway.inference.plugins.module_utils._apis import Kind
from ansible_collections.slipway.inference.plugins.module_utils._client import (
    FIELD_MANAGER,
    Client,
    Object,
    Request,
)
from ansible_collections.slipway.inference.plugins.module_utils._errors import InferenceError
from ansible_collections.slipway.inference.plugins.module_utils._manifest import Key, Wanted

WORKERS = 16
# After these, the other objects are not even tried: each would wait for the same.
FATAL = frozenset({"unreachable", "certificate", "unauthorized"})

Item = TypeVar("Item")
Result = TypeVar("Result")
Outcome: TypeAlias = "Object | InferenceError"


@dataclass
class Found:
    """What is in the cluster: objects by key, and for each namespace the version that a watch continues from."""

    objects: dict[Key, Object] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)


def read(client: Client, kind: Kind, keys: Iterable[Key], until: float) -> Found:
    """The objects of these keys that exist."""
    wanted = set(keys)
    names = Counter(namespace for namespace, _name in wanted)

    def one(namespace: str) -> tuple[str, list[Object], str]:
        if names[namespace] > 1:
            return namespace, *client.pages(Request("list", kind, namespace), until)
        name = next(name for there, name in wanted if there == namespace)
        try:
            return namespace, [client.call(Request("get", kind, namespace, name), until)], ""
        except InferenceError as error:
            if error.code in ("not_found", "namespace_missing"):
                return namespace, [], ""
            raise

    found = Found()
    for namespace, objects, version in concurrently(one, list(names)):
        found.versions[namespace] = version
        for resource in objects:
            key = key_of(resource)
            if key in wanted:
                found.objects[key] = resource
    return found


def key_of(resource: Mapping[str, Any]) -> Key:
    return resource["metadata"].get("namespace", ""), resource["metadata"]["name"]


def apply(
    client: Client, kind: Kind, wanted: Sequence[Wanted], until: float, *, force: bool, dry_run: bool
) -> dict[Key, Outcome]:
    """What the server made of each object, or the error that it answered with."""
    query = {
        "fieldManager": FIELD_MANAGER,
        "force": force,
        # As kubectl does: a field that the definition does not know is an error, not silently dropped.
        "fieldValidation": "Strict",
        "dryRun": "All" if dry_run else "",
    }

    def one(item: Wanted) -> Object:
        namespace, name = item.key
        return client.call(Request("apply", kind, namespace, name, query, item.manifest), until)

    return _outcomes(one, wanted)


def delete(
    client: Client, kind: Kind, found: Mapping[Key, Object], wanted: Sequence[Wanted], until: float, *, dry_run: bool
) -> dict[Key, Outcome]:
    """Asks for the deletion of each object, its children first. One that has gone meanwhile is no error."""

    def one(item: Wanted) -> Object:
        namespace, name = item.key
        body = {
            "kind": "DeleteOptions",
            "apiVersion": "v1",
            "propagationPolicy": "Foreground",
            "preconditions": {"uid": found[item.key]["metadata"]["uid"]},
            # The API server reads the options of a deletion from the body alone where there is one, not from the query.
            "dryRun": ["All"] if dry_run else [],
        }
        try:
            return client.call(Request("delete", kind, namespace, name, {}, body), until)
        except InferenceError as error:
            if error.code == "not_found":
                return {}
            if error.code == "conflict":
                # The precondition: under the name there is no longer what was read.
                raise InferenceError("replaced", f"It is not as it was read: {error.message}", error.status) from error
            raise

    return _outcomes(one, wanted)


def _outcomes(act: Callable[[Wanted], Object], wanted: Sequence[Wanted]) -> dict[Key, Outcome]:
    fatal: list[InferenceError] = []

    def caught(item: Wanted) -> Outcome:
        if fatal:
            return fatal[0]
        try:
            return act(item)
        except InferenceError as error:
            if error.code in FATAL:
                fatal.append(error)
            return error

    return dict(zip((item.key for item in wanted), concurrently(caught, wanted), strict=True))


def concurrently(act: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
    """``act`` of every item, in order. An error is raised soon: what has not begun by then is not done."""
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
