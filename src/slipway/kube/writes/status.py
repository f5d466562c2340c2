"""A writer that replaces an object's status if it differs and the object has not changed since the status was
computed."""

from __future__ import annotations

from slipway.kube.api.client import Client
from slipway.kube.api.errors import NotFoundError
from slipway.kube.caches.expectations import Expectations
from slipway.kube.caches.informer import Informer
from slipway.kube.caches.store import Change
from slipway.kube.objects import Object, key, resource_version, uid


class StatusWriter:
    """A writer of the ``/status`` subresource of one kind.

    The patch contains the resourceVersion of the object from which the status was computed, so the server rejects it
    with a 409 if the object has changed since. Fields that the CRD does not declare are not sent repeatedly.
    """

    def __init__(self, client: Client, informer: Informer, expectations: Expectations, *, field_manager: str) -> None:
        self._client = client
        self._informer = informer
        self._expectations = expectations
        self._field_manager = field_manager
        self._written: dict[str, tuple[Object, Object]] = {}
        """Map of an object's UID to the status last sent, and the status that the API server returned."""
        informer.add_handler(self._forget)

    async def write(self, resource: Object, status: Object) -> bool:
        """Write the status if it differs. Return whether it was written.

        Raise ConflictError if ``resource`` is old; the caller must then reconcile again. If the resource no longer
        exists, return False.
        """
        current = resource.get("status") or {}
        if current == status or self._written.get(uid(resource)) == (status, current):
            return False
        operations: list[Object] = [
            {"op": "replace", "path": "/metadata/resourceVersion", "value": resource_version(resource)},
            {"op": "add", "path": "/status", "value": status},
        ]
        try:
            answer = await self._client.json_patch(
                self._informer.kind,
                key(resource),
                operations,
                subresource="status",
                field_manager=self._field_manager,
            )
        except NotFoundError:
            return False
        self._written[uid(resource)] = (status, answer.get("status") or {})
        self._expectations.wrote(uid(resource), self._informer, answer)
        return True

    def _forget(self, change: Change) -> None:
        if change.new is None and change.old is not None:
            self._written.pop(uid(change.old), None)
