"""An informer, which keeps a Store equal to the API server's objects of one kind and notifies handlers of changes.

It lists in pages and compares the list with the store, so that handlers also learn of deletions during an outage, even
if the object was recreated under the same name. Then it watches with bookmarks. When the watch ends, it continues from
the last version. If that version is too old (410), it lists again.

Only a cancellation ends the informer's task, regardless of the API server's responses, except for a SetBackError. If
the kind is not installed, the informer retries until it is. An object that cannot be decoded, trimmed or indexed, or
that a handler cannot process, affects no other object (:mod:`slipway.kube.caches.faults`).
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from slipway.decoding import DecodingError
from slipway.kube.api.answers import WatchEvent
from slipway.kube.api.client import WATCH_SECONDS, Client
from slipway.kube.api.errors import ApiError, GoneError, NotFoundError, ServerError
from slipway.kube.api.salvage import check, identity
from slipway.kube.caches.backoff import Backoff
from slipway.kube.caches.faults import Listener
from slipway.kube.caches.store import Change, IndexFunction, Store
from slipway.kube.objects import Key, Kind, Object, resource_version, uid, version_number

log = logging.getLogger(__name__)

Handler = Callable[[Change], None]

RELIST_SECONDS = 3600.0
"""Seconds between full lists, which recover events that a broken proxy may have dropped."""
_FAILURES_BEFORE_RELIST = 5
_STALE_LISTS = 10
_HEALTHY_SECONDS = 5.0
"""Seconds after which a watch counts as a success. The next failure then starts with a short wait again."""


class SetBackError(RuntimeError):
    """The API server keeps returning an older state than before, such as after a backup was restored. The process must
    restart."""


class Informer:
    """The list and watch of one kind, in one namespace or all of them, optionally limited by a label selector.

    ``trim`` may remove unused parts of an object before it is stored, or return None to skip the object. Managed fields
    are always removed. Handlers are called in the event loop and must return immediately.
    """

    def __init__(
        self,
        client: Client,
        kind: Kind,
        *,
        namespace: str = "",
        labels: str = "",
        indexes: Mapping[str, IndexFunction] | None = None,
        trim: Callable[[Object], Object | None] = lambda obj: obj,
        optional: str = "",
        store: Store | None = None,
    ) -> None:
        """Create an informer; :meth:`run` starts it.

        ``optional`` is what to install if the cluster lacks the kind; a missing optional kind does not block startup.
        Empty means that the kind is required. ``store`` is a store that informers of other namespaces share, with its
        own indexes.
        """
        self.kind = kind
        self.store = store if store is not None else Store(indexes)
        self.synced = asyncio.Event()
        self.answered = asyncio.Event()
        """Event that is set once the server has returned the list, or has reported that the kind does not exist."""
        self.silent_since = 0.0
        """Unix time of the first failure since the server last responded, or 0 if no request has failed since then."""
        self.optional = optional
        self._missing = False
        self._client = client
        self._namespace = namespace
        self._labels = labels
        self._trim = trim
        self._handlers: list[Handler] = []
        self._backoff = Backoff(0.4, 4.0)
        self._stale = 0
        self._last_error = ""

    @property
    def missing(self) -> bool:
        """Whether the cluster does not have the kind, according to the API server's last response."""
        return self._missing

    @property
    def ready(self) -> asyncio.Event:
        """Event that is set once the store is complete: after the first list, or once the server has reported that an
        optional kind does not exist."""
        return self.answered if self.optional else self.synced

    def add_handler(self, handler: Handler) -> None:
        """Register a handler. It is called with every future change, and immediately with the existing objects as
        additions."""
        self._handlers.append(handler)
        for obj in self.store.all():
            handler(Change(None, obj))

    def on_fault(self, listener: Listener) -> None:
        """Register a listener for objects that are faulty from now on. It is called once for each version."""
        self.store.faults.listen(listener)

    async def run(self) -> None:
        """List and watch until the task is cancelled. Raise SetBackError if the API server keeps returning old
        lists."""
        while True:
            try:
                version = await self._list()
                await self._watch(version)
            except ApiError as error:
                self._log_once(error)
                self._unlisted(error)
                await asyncio.sleep(max(self._backoff.next(), error.retry_after or 0.0))

    async def refresh(self, name: Key) -> None:
        """Read one object from the API server into the store, without waiting for the watch. If it does not exist,
        remove it from the store. Raise ApiError if the read fails."""
        before = self.store.get(name)
        try:
            self._accept(await self._client.get(self.kind, name))
        except NotFoundError:
            if before is not None:
                self._notify(self.store.drop(name, uid(before), resource_version(before)))

    async def _list(self) -> str:
        objects: list[Object] = []
        faulty: list[tuple[Object, Exception]] = []
        version = ""
        async for page in self._client.pages(self.kind, namespace=self._namespace, labels=self._labels):
            faulty += [(one.object, DecodingError(one.fault)) for one in page.unreadable]
            for item in page.items:
                try:
                    objects += filter(None, (self._prepare(item),))
                except Exception as error:  # noqa: BLE001  # reported for the object
                    faulty.append((identity(item["metadata"]), error))
            version = page.resource_version
        self._refuse_the_past(version)
        self._missing = False
        self._client.metrics.informer_lists.labels(self.kind.plural).inc()
        self._notify(self.store.replace(objects, version, self._namespace))
        noted = {self._note(obj, [error]) for obj, error in faulty}
        mine = (name for name in self.store.faults.others(noted) if self._namespace in ("", name.namespace))
        self._forget([name for name in mine if self.store.get(name) is None])
        self.synced.set()
        self.answered.set()
        self.silent_since = 0.0
        return version

    def _unlisted(self, error: ApiError) -> None:
        """Record that the kind does not exist if a list or watch failed with a 404. Its store becomes empty."""
        if isinstance(error, NotFoundError):  # a 404 for a collection: the kind does not exist, so it has no objects
            if self.optional and not self._missing:
                self._tell_missing()
            self._missing = True
            self._notify(self.store.replace((), "", self._namespace))
            self.answered.set()
            self.silent_since = 0.0

    def _tell_missing(self) -> None:
        log.info("The cluster has no %s. To install them, use %s", self.kind.plural, self.optional)

    def _refuse_the_past(self, version: str) -> None:
        """Raise ServerError if the list is older than the store, because acting on an old list would undo later
        changes. Raise SetBackError after several such lists in succession."""
        latest = self.store.revision(self._namespace)
        if not 0 < version_number(version) < latest:
            self._stale = 0
            return
        self._stale += 1
        if self._stale >= _STALE_LISTS:
            raise SetBackError(f"{self.kind.plural}: lists stay older than version {latest}")
        raise ServerError(f"the list of version {version} is older than version {latest}, seen before")

    async def _watch(self, version: str) -> None:
        """Follow changes until a new list is due, or several watches in succession have failed. Raise an error if the
        server no longer has our version or the kind."""
        relist_at = time.monotonic() + RELIST_SECONDS * random.uniform(0.8, 1.2)  # noqa: S311
        failures = 0
        retry_after = 0.0
        while failures < _FAILURES_BEFORE_RELIST and time.monotonic() < relist_at:
            began = time.monotonic()
            try:
                version = await self._follow(version)
            except (GoneError, NotFoundError):
                raise
            except ApiError as error:
                version = str(self.store.revision(self._namespace) or version)  # earlier events were processed
                failures, retry_after = failures + 1, error.retry_after or 0.0
                self._log_once(error)
            if time.monotonic() - began >= _HEALTHY_SECONDS:
                failures = 0
                self._backoff.reset()
            else:
                await asyncio.sleep(max(self._backoff.next(), retry_after))
                retry_after = 0.0

    async def _follow(self, version: str) -> str:
        """Process the events of one watch request. Return the resource version at which it ended."""
        seconds = int(WATCH_SECONDS * random.uniform(0.8, 1.2))  # noqa: S311
        stream = self._client.watch(
            self.kind, since=version, namespace=self._namespace, labels=self._labels, seconds=seconds
        )
        async for event in stream:
            self._last_error, self.silent_since = "", 0.0
            version = resource_version(event.object) or version
            self._process(event)
        return version

    def _process(self, event: WatchEvent) -> None:
        if event.type == "DELETED":
            self._drop(event.object)
        elif event.type != "BOOKMARK":
            self._accept(event.object, event.fault)
        self.store.advance(resource_version(event.object), self._namespace)

    def _accept(self, obj: Object, fault: str = "") -> None:
        """Store an object and report the change. An object that ``trim`` skips is removed from the store. An object
        that cannot be stored is also removed, and is recorded as faulty."""
        try:
            if fault:
                raise DecodingError(fault)  # noqa: TRY301
            prepared = self._prepare(obj)
        except Exception as error:  # noqa: BLE001  # reported for the object
            self._drop(obj)
            self._note(obj, [error])
            return
        if prepared is None:
            self._drop(obj)
        else:
            self._notify(self.store.put(prepared))

    def _drop(self, obj: Object) -> None:
        metadata = identity(obj.get("metadata"))["metadata"]
        name = Key(metadata.get("namespace", ""), metadata.get("name", ""))
        self._notify(self.store.drop(name, metadata.get("uid", ""), metadata.get("resourceVersion", "")))
        self._forget([name])

    def _prepare(self, obj: Object) -> Object | None:
        check(self.kind, obj)
        obj["metadata"].pop("managedFields", None)
        if self.kind.metadata_only:  # a watch returns them as PartialObjectMetadata
            obj["apiVersion"], obj["kind"] = self.kind.api_version, self.kind.kind
        return self._trim(obj)

    def _notify(self, changes: Iterable[Change]) -> None:
        """Call the handlers with one change at a time. If a handler fails, the others still get the change, and the
        object is recorded as faulty."""
        for change in changes:
            if self.store.faults:
                self._forget([change.key])
            faults: list[Exception] = list(change.faults)
            for handler in self._handlers:
                try:
                    handler(change)
                except Exception as error:  # noqa: BLE001  # reported for the object
                    faults.append(error)
            if faults:
                self._note(change.new or change.old or {}, faults)
                if change.new is None:
                    self._forget([change.key])

    def _note(self, obj: Object, errors: Sequence[BaseException]) -> Key:
        return self.store.faults.note(self._client.metrics, self.kind, obj, errors)

    def _forget(self, names: Collection[Key]) -> None:
        self.store.faults.forget(self._client.metrics, self.kind, names)

    def _log_once(self, error: ApiError) -> None:
        """Log a failure with its full level only the first time. Restarting a watch is routine."""
        description = f"{type(error).__name__}: {error}"
        repeated = description == self._last_error or (self.optional and isinstance(error, NotFoundError))
        routine = isinstance(error, GoneError)
        level = logging.DEBUG if repeated else logging.INFO if routine else logging.WARNING
        log.log(level, "watching %s: %s", self.kind.plural, description)
        self._last_error = description
        if not isinstance(error, GoneError):  # a GoneError is a response
            self.silent_since = self.silent_since or time.time()
