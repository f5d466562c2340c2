"""StatusWriter: replaces an object's status if it differs and the object has not changed since it was evaluated."""

from __future__ import annotations

from slipway.kube.api.client import Client
from slipway.kube.api.errors import NotFoundError
from slipway.kube.caches.expectations import Expectations
from slipway.kube.caches.informer import Informer
from slipway.kube.caches.store import Change
from slipway.kube.objects import Object, key, resource_version, uid


class StatusWriter:
    """Writes ``/status`` of one kind.

    The patch carries the resourceVersion of the object from which the status was computed, so the server rejects it
    with 409 if the object has changed since. Fields unknown to the CRD are not sent repeatedly.
    """

    def __init__(self, client: Client, informer: Informer, expectations: Expectations, *, field_manager: str) -> None:
        self._client = client
        self._informer = informer
        self._expectations = expectations
        self._field_manager = field_manager
        self._written: dict[str, tuple[Object, Object]] = {}
        """uid -> the status last sent, and the server's version of it."""
        informer.add_handler(self._forget)

    async def write(self, resource: Object, status: Object) -> bool:
        """Writes the status. Returns whether it differed. Raises ConflictError if ``resource`` is old: reconcile again.

        A resource that no longer exists needs no status.
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
