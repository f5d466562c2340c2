"""A work queue of keys to reconcile. A key is in the queue at most once, and at most one worker processes it at a time.

Namespaces take turns, so that a namespace with ten thousand keys delays a key of another namespace by one turn. Within
a namespace, the order is first in, first out, so a key that changes a thousand times a second waits like any other.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict, deque

from slipway.kube.metrics import Metrics
from slipway.kube.objects import Key

BASE_SECONDS = 0.005
CAP_SECONDS = 60.0


class WorkQueue:
    """A queue of keys to reconcile. Add keys from anywhere in the event loop. Workers ``get`` a key, reconcile it and
    call ``done``."""

    def __init__(self, name: str, metrics: Metrics) -> None:
        self._turns: OrderedDict[str, deque[Key]] = OrderedDict()
        """Queued keys by namespace, with the next namespace first. The keys of cluster-scoped kinds have an empty
        namespace."""
        self._waiting: dict[Key, float] = {}
        """Queued keys, with the monotonic time at which each was added."""
        self._processing: set[Key] = set()
        self._again: set[Key] = set()
        """Keys that were added while a worker was processing them."""
        self._timers: dict[Key, asyncio.TimerHandle] = {}
        self._held: dict[Key, float] = {}
        """Keys that must not be processed before a monotonic time."""
        self._failures: dict[Key, int] = {}
        self._ready = asyncio.Event()
        self._depth = metrics.queue_depth.labels(name)
        self._seconds = metrics.queue_seconds.labels(name)

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, key: Key) -> None:
        """Add ``key`` unless it is already queued. A key that a worker is processing is queued when the worker is done,
        and a key that is held is queued at the end of the hold."""
        if key in self._processing:
            self._again.add(key)
        elif key not in self._waiting:
            if (delay := self._held.get(key, 0.0) - time.monotonic()) > 0:
                self.add_after(key, delay)
                return
            self._waiting[key] = time.monotonic()
            self._turns.setdefault(key.namespace, deque()).append(key)
            self._depth.set(len(self))
            self._ready.set()

    def add_after(self, key: Key, seconds: float) -> None:
        """Add ``key`` after a delay in seconds. The earliest of several delays counts. If a worker gets the key
        earlier, the delay is cancelled."""
        loop = asyncio.get_running_loop()
        timer = self._timers.get(key)
        if timer is not None:
            if timer.when() <= loop.time() + seconds:
                return
            timer.cancel()
        self._timers[key] = loop.call_later(seconds, self._due, key)

    def add_rate_limited(self, key: Key) -> float:
        """Add ``key`` after ``BASE_SECONDS * 2^n``, at most ``CAP_SECONDS``, and return this delay. n is the number of
        earlier calls since ``forget``. The delay is in seconds."""
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        delay = min(CAP_SECONDS, BASE_SECONDS * 2.0 ** min(failures, 30))
        self.add_after(key, delay)
        return delay

    def hold(self, key: Key, seconds: float) -> None:
        """Add ``key`` after a delay in seconds, such as a Retry-After. Until then, no worker gets the key, even if it
        is added again."""
        self._held[key] = time.monotonic() + seconds
        if timer := self._timers.pop(key, None):
            timer.cancel()
        self.add_after(key, seconds)

    def forget(self, key: Key) -> None:
        """Reset the delay of ``add_rate_limited`` for ``key`` after a success."""
        self._failures.pop(key, None)

    async def get(self) -> Key:
        """Wait for the next key and return it. The worker must call ``done`` with the key. A delayed addition of the
        key, or its hold, is cancelled."""
        while not self._turns:
            self._ready.clear()
            await self._ready.wait()
        key = self._next()
        self._seconds.observe(time.monotonic() - self._waiting.pop(key))
        self._depth.set(len(self))
        if timer := self._timers.pop(key, None):
            timer.cancel()
        self._held.pop(key, None)
        self._processing.add(key)
        return key

    def done(self, key: Key) -> None:
        """Record that a worker has processed ``key``. If the key was added in the meantime, it is queued again."""
        self._processing.discard(key)
        if key in self._again:
            self._again.discard(key)
            self.add(key)

    def _next(self) -> Key:
        """Remove and return the first key of the namespace whose turn it is. The namespace then moves to the end."""
        namespace, keys = self._turns.popitem(last=False)
        key = keys.popleft()
        if keys:
            self._turns[namespace] = keys
        return key

    def _due(self, key: Key) -> None:
        self._timers.pop(key, None)
        self.add(key)
