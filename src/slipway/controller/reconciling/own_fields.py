"""Fields of the resource itself that a plan sets, and finalizers to remove."""

from __future__ import annotations

import time
from collections.abc import Set
from typing import NamedTuple

from slipway.controller.reconciling.patches import own_patch
from slipway.kube.api.client import Client
from slipway.kube.api.errors import ConflictError, ForbiddenError, InvalidObjectError, NotFoundError
from slipway.kube.caches.expectations import Expectations
from slipway.kube.caches.informer import Informer
from slipway.kube.objects import Key, Object, generation, key, resource_version, uid
from slipway.kube.writes.outcomes import Failure, RefusedError
from slipway.serving.contract.api import Plan

FIELD_MANAGER = "slipway-controller"
REFUSED_SECONDS = 59.0
"""Seconds before a rejected patch is sent again. Slightly less than the applier's slow retry."""


class _Refusal(NamedTuple):
    """A patch that the API server rejected, and the monotonic time until which it is not sent again."""

    generation: int
    patch: Object
    failure: Failure
    until: float


class OwnFields:
    """A writer of the fields that Slipway sets in resources of one kind."""

    def __init__(self, client: Client, resources: Informer, expectations: Expectations, finalizers: Set[str]) -> None:
        """Create a writer. ``finalizers`` are those that the API's plans or the original system write."""
        self._client, self._resources, self._expectations = client, resources, expectations
        self._kind, self._finalizers = resources.kind, finalizers
        self._refusals: dict[Key, _Refusal] = {}

    def forget(self, name: Key) -> None:
        self._refusals.pop(name, None)

    async def apply(self, resource: Object, plan: Plan) -> Object | None:
        """Write the plan's finalizer and fields into the resource, in one patch. Return the new resource, or None if
        nothing had to change.

        Raise RefusedError if the API server rejects the patch, or recently rejected the same patch for the same spec.
        Raise ConflictError if the resource is old or gone.
        """
        patch, name = own_patch(resource, plan), key(resource)
        refusal = self._refusals.pop(name, None)
        if not patch:
            return None
        if refusal and refusal[:2] == (generation(resource), patch) and time.monotonic() < refusal.until:
            self._refusals[name] = refusal
            raise RefusedError(refusal.failure)
        body = {**patch, "metadata": {**patch.get("metadata", {}), "resourceVersion": resource_version(resource)}}
        try:
            answer = await self._client.merge_patch(self._kind, name, body, field_manager=FIELD_MANAGER)
        except NotFoundError as error:
            raise ConflictError("gone meanwhile") from error
        except (InvalidObjectError, ForbiddenError) as error:
            failure = Failure(self._kind.kind, name.name, error.reason, error.message)
            until = time.monotonic() + REFUSED_SECONDS
            self._refusals[name] = _Refusal(generation(resource), patch, failure, until)
            raise RefusedError(failure) from error
        self._expectations.wrote(uid(resource), self._resources, answer)
        answer["metadata"].pop("managedFields", None)
        return answer

    async def release_finalizers(self, resource: Object) -> None:
        """Remove the API's finalizers, so that the resource can be deleted. Raise InvalidObjectError if another client
        changed the finalizers in the meantime."""
        finalizers = resource["metadata"].get("finalizers", [])
        remaining = [finalizer for finalizer in finalizers if finalizer not in self._finalizers]
        if remaining == finalizers:
            return
        path = "/metadata/finalizers"
        operations = [
            {"op": "test", "path": path, "value": finalizers},
            {"op": "replace", "path": path, "value": remaining},
        ]
        try:
            answer = await self._client.json_patch(self._kind, key(resource), operations)
        except NotFoundError:
            return
        self._expectations.wrote(uid(resource), self._resources, answer)
