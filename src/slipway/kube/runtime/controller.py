"""A controller: workers that reconcile keys from a queue, level-triggered.

Informers put keys into the queue. ``reconcile(key)`` reads the current state and moves it towards the desired state. It
does not know what changed, may be called at any time, and never runs twice at the same time for one key.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import NamedTuple

from slipway.kube.api.errors import ApiError, ConflictError, NotLeaderError, UnreachableError
from slipway.kube.caches.informer import Informer
from slipway.kube.caches.store import Change
from slipway.kube.metrics import Metrics
from slipway.kube.objects import Key, Kind, Object, controller_owner, key
from slipway.kube.runtime.workqueue import WorkQueue

log = logging.getLogger(__name__)

Keys = Callable[[Object], Iterable[Key]]

_OUTAGE_SECONDS = 1.0
"""Seconds that a worker pauses if the API server is unreachable, so that a full queue does not cause a storm of
connections."""


class Result(NamedTuple):
    """The result of a reconciliation: the seconds after which to reconcile again, or None to reconcile only after a
    change."""

    requeue_after: float | None = None


def own_key(obj: Object) -> Iterable[Key]:
    """Return the key of the object itself. Use this function for informers of the reconciled kind."""
    return (key(obj),)


def owner_keys(owner: Kind) -> Keys:
    """Return a function that maps an object to the key of its controlling owner. It returns no key if the owner is not
    of the kind ``owner``."""

    def keys(obj: Object) -> Iterable[Key]:
        reference = controller_owner(obj)
        if reference is None or reference.kind != owner.kind:
            return ()
        if reference.api_version.partition("/")[0] != owner.api_version.partition("/")[0]:
            return ()
        return (Key(reference.namespace if owner.namespaced else "", reference.name),)

    return keys


class Controller:
    """Workers that call ``reconcile`` for each key from their informers.

    An exception only delays its own key: by 5 ms, doubled each time up to a minute, or by the server's Retry-After if
    that is longer. If the API server is unreachable, the worker also pauses for a second. A ConflictError is retried
    without a warning, because it only means that the cache was stale. So is a NotLeaderError.
    """

    def __init__(
        self, name: str, reconcile: Callable[[Key], Awaitable[Result]], *, metrics: Metrics, workers: int = 8
    ) -> None:
        self.name = name
        self.queue = WorkQueue(name, metrics)
        self.informers: list[Informer] = []
        """All watched informers. Their stores must be filled before the first reconciliation."""
        self._reconcile = reconcile
        self._workers = workers
        self._metrics = metrics
        self._seconds = metrics.reconcile_seconds.labels(name)

    def watch(self, informer: Informer, keys: Keys = own_key) -> None:
        """Reconcile the keys that ``keys`` returns for the old and the new state of each changed object."""

        # Two separate feeds, so that a state for which ``keys`` fails does not lose the keys of the other state.
        self._feed(informer, lambda change: keys(change.old) if change.old is not None else ())
        self.watch_changes(informer, lambda change: keys(change.new) if change.new is not None else ())

    def watch_changes(self, informer: Informer, keys: Callable[[Change], Iterable[Key]]) -> None:
        """Reconcile the keys that ``keys`` returns for each change, which contains both the old and the new state."""
        self._feed(informer, keys)
        self.informers.append(informer)

    def _feed(self, informer: Informer, keys: Callable[[Change], Iterable[Key]]) -> None:
        def handler(change: Change) -> None:
            for request in keys(change):
                self.queue.add(request)

        informer.add_handler(handler)

    async def run(self) -> None:
        """Wait until every store is filled, then reconcile until the task is cancelled."""
        for informer in self.informers:
            await informer.ready.wait()
        async with asyncio.TaskGroup() as tasks:
            for _unused in range(self._workers):
                tasks.create_task(self._work())

    async def _work(self) -> None:
        while True:
            name = await self.queue.get()
            began = time.monotonic()
            try:
                outcome = await self._one(name)
            finally:
                self.queue.done(name)
            self._seconds.observe(time.monotonic() - began)
            self._metrics.reconciles.labels(self.name, outcome).inc()
            if outcome == "unreachable":
                await asyncio.sleep(_OUTAGE_SECONDS)

    async def _one(self, name: Key) -> str:
        """Reconcile one key, and requeue it if necessary. Return the label of the result for the metrics."""
        try:
            result = await self._reconcile(name)
        except (ConflictError, NotLeaderError) as error:
            self.queue.add_rate_limited(name)
            log.debug("%s %s: %s", self.name, name, error)
            return "conflict"
        except ApiError as error:
            delay = self.queue.add_rate_limited(name)
            if error.retry_after is not None and error.retry_after > delay:
                delay = error.retry_after
                self.queue.hold(name, delay)
            log.warning("%s %s: %s; again in %.3g s", self.name, name, error, delay)
            return "unreachable" if isinstance(error, UnreachableError) else "error"
        except Exception:  # a bug must only affect this key
            delay = self.queue.add_rate_limited(name)
            log.exception("%s %s: again in %.3g s", self.name, name, delay)
            return "error"
        self.queue.forget(name)
        if result.requeue_after is None:
            return "success"
        self.queue.add_after(name, result.requeue_after)
        return "requeue_after"
