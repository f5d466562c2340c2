"""Changes of annotations and labels, mostly of objects that Slipway does not own."""

from __future__ import annotations

from collections.abc import Iterable

from slipway.controller.inputs.caches import Caches
from slipway.controller.reconciling.own_fields import FIELD_MANAGER
from slipway.controller.reconciling.patches import difference
from slipway.kube.api.client import Client
from slipway.kube.api.errors import ForbiddenError, InvalidObjectError, NotFoundError
from slipway.kube.caches.expectations import Expectations
from slipway.kube.objects import Key, Object, uid
from slipway.kube.writes.outcomes import Failure
from slipway.serving.contract.api import MetadataPatch, Reference


class MetadataPatcher:
    """A writer of annotations and labels of any cached objects, on behalf of the resources of one kind."""

    def __init__(self, client: Client, caches: Caches, expectations: Expectations) -> None:
        self._client, self._caches, self._expectations = client, caches, expectations

    async def patch_all(self, resource: Object, patches: Iterable[MetadataPatch]) -> tuple[Failure, ...]:
        """Send all patches of one object in one request. Return the failures. Objects that do not exist or already have
        the values are skipped.

        If the API server rejects the request, each patch is sent separately, because perhaps only one of them is too
        large.
        """
        grouped: dict[Reference, list[MetadataPatch]] = {}
        for patch in patches:
            grouped.setdefault(patch.reference, []).append(patch)
        failures: list[Failure | None] = []
        for reference, group in grouped.items():
            annotations = {name: text for patch in group for name, text in patch.annotations.items()}
            labels = {name: text for patch in group for name, text in patch.labels.items()}
            failure = await self._patch(resource, MetadataPatch(reference, annotations, labels))
            if failure is not None and len(group) > 1:
                failures += [await self._patch(resource, patch) for patch in group]
            else:
                failures.append(failure)
        return tuple(failure for failure in failures if failure)

    async def _patch(self, resource: Object, patch: MetadataPatch) -> Failure | None:
        """Write annotations and labels of an object if it exists and they differ. Return the failure if the API server
        rejects them, such as for their size, and None otherwise."""
        kind, name = patch.reference.kind, Key(patch.reference.namespace, patch.reference.name)
        observed = self._caches.get(kind, name)
        desired = {"annotations": patch.annotations, "labels": patch.labels}
        changes = difference(observed["metadata"], desired) if observed else {}
        if observed is None or not changes:
            return None
        body = {"metadata": {"uid": uid(observed), **changes}}
        try:
            answer = await self._client.merge_patch(kind, name, body, field_manager=FIELD_MANAGER)
        except NotFoundError:
            return None
        except (InvalidObjectError, ForbiddenError) as error:
            return Failure(kind.kind, name.name, error.reason, error.message)
        self._expectations.wrote(uid(resource), self._caches.informer(kind), answer)
        return None
