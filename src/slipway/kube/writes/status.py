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

    The patch carries the resourceVersion of the object that the status was computed from: news that came between are
    never overwritten, the server answers 409. Fields that the CRD does not know are not sent again and again.
    """

    def __init__(self, client: Client, informer: Informer, expectations: Expectations, *, field_manager: str) -> None:
        self._client = client
        self._informer = informer
        self._expectations = expectations
        self._field_manager = field_manager
        self._written: dict[str, tuple[Object, Object]] = {}
        """uid -> the status that was sent last, and what the server made of it."""
        informer.add_handler(self._forget)

    async def write(self, resource: Object, status: Object) -> bool:
        """Returns whether there was something to write. Raises ConflictError when ``resource`` is old: reconcile again.

        A resource that is gone needs no status.
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
