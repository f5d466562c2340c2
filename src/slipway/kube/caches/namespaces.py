"""Informers of selected namespaces: one store, with a list and a watch for each namespace.

An account with permissions in some namespaces cannot list all namespaces in one request. The namespaces are
independent: an expired version or a missing permission in one does not affect the others.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence

from slipway.kube.api.client import Client
from slipway.kube.api.errors import ApiError, ForbiddenError
from slipway.kube.caches.informer import Informer
from slipway.kube.caches.store import IndexFunction
from slipway.kube.objects import Kind, Object

log = logging.getLogger(__name__)

REFUSALS = 5
"""Number of consecutive forbidden lists after which a namespace counts as closed, about six seconds. An API server that
has just started forbids everything for a moment."""


class ChosenNamespaces(Informer):
    """An informer of one kind in several namespaces. Callers use it like an :class:`Informer` of the whole cluster.

    Deleting a namespace also removes the permission to list objects in it. The namespace then counts as empty and does
    not block startup. Its objects reappear once the permission is restored.
    """

    def __init__(
        self,
        client: Client,
        kind: Kind,
        namespaces: Sequence[str],
        *,
        labels: str = "",
        indexes: Mapping[str, IndexFunction] | None = None,
        trim: Callable[[Object], Object | None] = lambda obj: obj,
        optional: str = "",
    ) -> None:
        super().__init__(client, kind, labels=labels, indexes=indexes, trim=trim, optional=optional)
        self._parts = [_Part(self, client, name, labels=labels, trim=trim) for name in namespaces]

    @property
    def missing(self) -> bool:
        return any(part.missing for part in self._parts)

    async def run(self) -> None:
        """List and watch every namespace until the task is cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for part in self._parts:
                tasks.create_task(part.run())
            for part in self._parts:
                await part.answered.wait()
            self.answered.set()
            for part in self._parts:
                await part.synced.wait()
            self.synced.set()


class _Part(Informer):
    """The informer of one namespace, which shares the store of all selected namespaces."""

    def __init__(
        self,
        whole: Informer,
        client: Client,
        namespace: str,
        *,
        labels: str,
        trim: Callable[[Object], Object | None],
    ) -> None:
        """Create an informer that shares the store and the handlers of ``whole``."""
        super().__init__(
            client,
            whole.kind,
            namespace=namespace,
            labels=labels,
            trim=trim,
            optional=whole.optional,
            store=whole.store,
        )
        self._whole = whole
        self._handlers = whole._handlers  # noqa: SLF001  # same class
        self._refusals = 0

    async def _list(self) -> str:
        version = await super()._list()
        self._refusals = 0
        return version

    def _tell_missing(self) -> None:
        if not self._whole.missing:  # no other namespace has logged it
            super()._tell_missing()

    def _unlisted(self, error: ApiError) -> None:
        super()._unlisted(error)
        self._refusals = self._refusals + 1 if isinstance(error, ForbiddenError) else 0
        if self._refusals == REFUSALS:
            log.warning("Cannot list %s in namespace %s; ignoring them", self.kind.plural, self._namespace)
            self._notify(self.store.replace((), "", self._namespace))
            self.answered.set()
            self.synced.set()
