"""Numbers of requests for the Services that plans name. A resource is enqueued when its requests begin or end.

The autoscaler reads the metrics of all models every two seconds to average them. Here, a request waits for the next
step of its resource, so the gateways are queried more often, but only about the given Services. The cost does not grow
with other models. Nothing is stored: after a restart, a single sample is enough.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from typing import NamedTuple, Protocol

from slipway.controller.inputs.gateways import Traffic
from slipway.kube.objects import Key, Kind
from slipway.serving.routing.demand import Demand, observe

log = logging.getLogger(__name__)

SECONDS = 0.5
"""Seconds between two samples."""
_REST = 5.0
"""Minimum ratio of the pause after a sample to the sample's duration, so that the gateways are not busy all the
time."""

_Subject = tuple[Kind, Key]


class _Followed(NamedTuple):
    """The Services of a resource whose requests are counted. See :class:`slipway.serving.contract.api.Plan`."""

    counted: frozenset[Key]
    satisfied: frozenset[Key]


class Gateways(Protocol):
    """The part of :class:`slipway.controller.inputs.gateways.Gateways` that this module uses."""

    async def requests(self, services: Iterable[Key]) -> Traffic:
        """Return the number of requests in flight or waiting for each of ``services``, summed over all gateways. This
        method never raises an error."""


class Demands:
    """The demand of all Services that plans name. Only the leader samples it."""

    def __init__(self, gateways: Gateways, clock: Callable[[], float] = time.time) -> None:
        self._gateways, self._clock = gateways, clock
        self._followed: dict[_Subject, _Followed] = {}
        self._latest: dict[Key, Demand] = {}
        self._listeners: dict[Kind, Callable[[Key], None]] = {}

    @property
    def latest(self) -> Mapping[Key, Demand]:
        """The demand by Service. A Service is missing until its demand is known."""
        return self._latest

    def on_change(self, kind: Kind, listener: Callable[[Key], None]) -> None:
        """Register a listener that is called with the key of a resource of ``kind`` when requests for its Services
        begin or end."""
        self._listeners[kind] = listener

    def follow(self, kind: Kind, name: Key, counted: Sequence[Key], satisfied: Sequence[Key] = ()) -> None:
        """Set the Services whose requests are counted for this resource. If ``counted`` is empty, stop counting.
        ``satisfied`` are the Services among them that need no further step (see
        :class:`slipway.serving.contract.api.Plan`)."""
        if counted:
            self._followed[kind, name] = _Followed(frozenset(counted), frozenset(satisfied))
        else:
            self._followed.pop((kind, name), None)

    async def run(self) -> None:
        """Take samples until the task is cancelled."""
        while True:
            began = time.monotonic()
            try:
                await self.refresh()
            except Exception:  # the next sample may succeed
                log.exception("Could not count requests; trying again")
            took = time.monotonic() - began
            await asyncio.sleep(max(SECONDS - took, _REST * took))

    async def refresh(self) -> None:
        """Take one sample of all counted Services, and notify the listeners of changes."""
        counted = {service for followed in self._followed.values() for service in followed.counted}
        if not counted:
            self._latest = {}
            return
        traffic, now = await self._gateways.requests(counted), self._clock()
        before = self._latest
        self._latest = {
            service: demand
            for service in counted
            if (demand := _observe(before.get(service), traffic, service, now)) is not None
        }
        changed = {service for service, demand in self._latest.items() if before.get(service) != demand}
        for (kind, name), followed in list(self._followed.items()):
            if kind in self._listeners and self._is_news(changed, followed):
                self._listeners[kind](name)

    def _is_news(self, changed: Set[Key], followed: _Followed) -> bool:
        others = followed.counted - followed.satisfied
        waits = any(service in self._latest and self._latest[service].busy for service in others)
        return not changed.isdisjoint(followed.counted if waits else others)


def _observe(before: Demand | None, traffic: Traffic, service: Key, now: float) -> Demand | None:
    return observe(before, int(traffic.requests.get(service, 0)), now, complete=traffic.complete)
