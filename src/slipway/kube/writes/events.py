"""A recorder of Kubernetes Events about objects, for ``kubectl describe``.

There is one Event for each (object, type, reason, message), with a count of its occurrences. Recording never waits and
never fails: events are written in the background. Namespaces take turns. If too many events are pending, the namespace
with the most events loses its oldest, so no namespace can displace the events of others.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
from collections import OrderedDict
from collections.abc import Iterator

import msgspec

from slipway.kube.api.client import Client
from slipway.kube.api.errors import ApiError, ConflictError, NotFoundError, UnreachableError
from slipway.kube.metrics import Metrics
from slipway.kube.objects import EVENT, Key, Kind, Object, key, resource_version, uid
from slipway.kube.schemas.conditions import timestamp

log = logging.getLogger(__name__)

MESSAGE_BYTES = 1024
"""Maximum length of a message in bytes. The API server rejects longer messages."""
FAULT_REASON = "InvalidObject"
_NAME_LENGTH = 230
"""Maximum number of characters of an object's name in the name of an Event."""
_WAITING = 1000
_REMEMBERED = 4000
_PAUSE_SECONDS = 1.0


class _Occurrence(msgspec.Struct):
    """An event to write, and the number of times that it has occurred since the last write."""

    event: Object
    times: int = 1

    @property
    def namespace(self) -> str:
        """The object's namespace. The value is empty for a cluster-scoped object, whose Events are in the namespace
        ``default``."""
        namespace: str = self.event["involvedObject"]["namespace"]
        return namespace


class _Queue:
    """Pending events by namespace."""

    def __init__(self) -> None:
        self._namespaces: OrderedDict[str, OrderedDict[Key, _Occurrence]] = OrderedDict()
        """Pending events of each namespace. The first namespace has the next turn."""
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[_Occurrence]:
        return (happened for events in self._namespaces.values() for happened in events.values())

    def find(self, happened: _Occurrence) -> _Occurrence | None:
        """Return the pending event with the same name, or None if it is not pending."""
        events = self._namespaces.get(happened.namespace)
        return events.get(key(happened.event)) if events else None

    def put(self, happened: _Occurrence, *, first: bool = False) -> None:
        """Add an event after the other events of its namespace, or before them if ``first`` is true."""
        events = self._namespaces.setdefault(happened.namespace, OrderedDict())
        events[key(happened.event)] = happened
        if first:
            events.move_to_end(key(happened.event), last=False)
        self._length += 1

    def take(self) -> _Occurrence:
        """Remove and return the oldest event of the namespace whose turn it is."""
        return self._remove(next(iter(self._namespaces)))

    def drop(self) -> None:
        """Remove the oldest event of the namespace with the most events."""
        self._remove(max(self._namespaces, key=lambda name: len(self._namespaces[name])))

    def _remove(self, namespace: str) -> _Occurrence:
        events = self._namespaces[namespace]
        _name, happened = events.popitem(last=False)
        self._namespaces.move_to_end(namespace)
        if not events:
            del self._namespaces[namespace]
        self._length -= 1
        return happened


class Recorder:
    """A recorder that collects events and writes them while :meth:`run` runs. Its memory is always bounded."""

    def __init__(self, client: Client, component: str, *, metrics: Metrics) -> None:
        """Create a recorder. ``component`` is the source that its Events show."""
        self._client = client
        self._component = component
        self._metrics = metrics
        self._waiting = _Queue()
        self._counts: OrderedDict[Key, int] = OrderedDict()
        self._ready = asyncio.Event()

    def record(self, kind: Kind, obj: Object, type_: str, reason: str, message: str) -> None:
        """Record an event about ``obj``. ``type_`` is ``Normal`` or ``Warning``. Call this only when something changes,
        because every call counts as an occurrence."""
        happened = _Occurrence(self._event(kind, obj, type_, reason, _cut(message)))
        if (waiting := self._waiting.find(happened)) is not None:
            waiting.times += 1
            return
        self._waiting.put(happened)
        if len(self._waiting) > _WAITING:
            self._waiting.drop()
            self._metrics.events_dropped.inc()
        self._ready.set()

    def record_fault(self, kind: Kind, obj: Object, message: str) -> None:
        """Record an Event about an object that cannot be processed. Use this method as a listener for
        :meth:`Informer.on_fault`."""
        self.record(kind, obj, "Warning", FAULT_REASON, message)

    async def run(self) -> None:
        """Write events until the task is cancelled. If there is no response, an event is written again; if the API
        server rejects it, it is dropped."""
        while True:
            while not self._waiting:
                self._ready.clear()
                await self._ready.wait()
            happened = self._waiting.take()
            name = key(happened.event)
            try:
                await self._write(name, happened)
            except UnreachableError:
                if (waiting := self._waiting.find(happened)) is not None:
                    waiting.times += happened.times
                else:
                    self._waiting.put(happened, first=True)
                await asyncio.sleep(_PAUSE_SECONDS)
            except ApiError as error:
                self._metrics.events_dropped.inc()
                log.debug("event %s: %s", name, error)
                await asyncio.sleep(min(error.retry_after or 0.0, 30.0))

    async def _write(self, name: Key, happened: _Occurrence) -> None:
        if name in self._counts:
            try:
                await self._count_up(name, happened, self._counts[name])
            except NotFoundError:  # events expire
                await self._create(name, happened)
            return
        try:
            await self._create(name, happened)
        except ConflictError:  # written before this process started
            event = await self._client.get(EVENT, name)
            await self._count_up(name, happened, int(event.get("count") or 1))

    async def _create(self, name: Key, happened: _Occurrence) -> None:
        await self._client.create(EVENT, {**happened.event, "count": happened.times})
        self._remember(name, happened.times)

    async def _count_up(self, name: Key, happened: _Occurrence, before: int) -> None:
        count = before + happened.times
        patch = {"count": count, "lastTimestamp": happened.event["lastTimestamp"]}
        await self._client.merge_patch(EVENT, name, patch)
        self._remember(name, count)

    def _remember(self, name: Key, count: int) -> None:
        self._counts[name] = count
        self._counts.move_to_end(name)
        while len(self._counts) > _REMEMBERED:
            self._counts.popitem(last=False)

    def _event(self, kind: Kind, obj: Object, type_: str, reason: str, message: str) -> Object:
        about, now = key(obj), timestamp(time.time())
        identity = hashlib.blake2b("\0".join((uid(obj), type_, reason, message)).encode(), digest_size=8).hexdigest()
        return {
            "apiVersion": EVENT.api_version,
            "kind": EVENT.kind,
            "metadata": {"namespace": about.namespace or "default", "name": f"{_start(about.name)}.{identity}"},
            "involvedObject": {
                "apiVersion": kind.api_version,
                "kind": kind.kind,
                "namespace": about.namespace,
                "name": about.name,
                "uid": uid(obj),
                "resourceVersion": resource_version(obj),
            },
            "type": type_,
            "reason": reason,
            "message": message,
            "source": {"component": self._component},
            "reportingComponent": self._component,
            "firstTimestamp": now,
            "lastTimestamp": now,
        }


def _start(name: str) -> str:
    """Return the part of an object's name with which the name of an Event begins. This part must not end with a dash or
    dot."""
    return name[:_NAME_LENGTH].rstrip("-.")


def _cut(message: str) -> str:
    data = message.encode()
    if len(data) <= MESSAGE_BYTES:
        return message
    return data[: MESSAGE_BYTES - 3].decode(errors="ignore") + "..."
