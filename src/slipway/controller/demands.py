"""Demands: looks at the requests of Services that plans have counted, and tells resources when these begin or end.

The autoscaler looks at the same numbers every two seconds, for averages. Here a request waits for what the resource
does next, so that looks are more frequent. Nothing is kept: a controller that starts anew knows all of it after one
look.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence, Set
from typing import NamedTuple, Protocol

from slipway.controller.gateways import Traffic
from slipway.kube.objects import Key, Kind
from slipway.serving.demand import Demand, observe

log = logging.getLogger(__name__)

SECONDS = 0.5
"""Between two looks."""
_REST = 5.0
"""The gateways rest at least so many times as long as it took to ask them."""

_Subject = tuple[Kind, Key]


class _Followed(NamedTuple):
    """Services of a resource."""

    services: frozenset[Key]
    satisfied: frozenset[Key]
    """See :class:`slipway.serving.api.Plan`."""


class Asked(Protocol):
    """See :class:`slipway.controller.gateways.Gateways`."""

    async def traffic(self) -> Traffic:
        """Requests by Service, over all gateways. Never raises."""


class Demands:
    """Counts for all resources whose plans ask for it. Looks are made by the leader only."""

    def __init__(self, gateways: Asked, clock: Callable[[], float] = time.time) -> None:
        self._gateways, self._clock = gateways, clock
        self._followed: dict[_Subject, _Followed] = {}
        self._known: dict[Key, Demand] = {}
        self._listeners: dict[Kind, Callable[[Key], None]] = {}

    @property
    def known(self) -> Mapping[Key, Demand]:
        """By Service. Those that were not looked at yet are missing."""
        return self._known

    def on_change(self, kind: Kind, listener: Callable[[Key], None]) -> None:
        """Calls ``listener`` with the key of each resource of ``kind`` when requests for one of its Services begin or
        end, where that is news to it."""
        self._listeners[kind] = listener

    def follow(self, kind: Kind, name: Key, services: Sequence[Key], satisfied: Sequence[Key] = ()) -> None:
        """Has the requests of these Services counted from now on, and of no others for this resource.

        ``satisfied``: see :class:`slipway.serving.api.Plan`.
        """
        if services:
            self._followed[kind, name] = _Followed(frozenset(services), frozenset(satisfied))
        else:
            self._followed.pop((kind, name), None)

    async def run(self) -> None:
        """Looks until cancelled."""
        while True:
            began = time.monotonic()
            try:
                await self.look()
            except Exception:  # the next look may go better
                log.exception("demands")
            took = time.monotonic() - began
            await asyncio.sleep(max(SECONDS - took, _REST * took))

    async def look(self) -> None:
        """One look at all of them."""
        if not self._followed:
            self._known = {}
            return
        traffic, now = await self._gateways.traffic(), self._clock()
        before, counted = self._known, {one for followed in self._followed.values() for one in followed.services}
        self._known = {
            service: found
            for service in counted
            if (found := observe(before.get(service), _requests(traffic, service), now, complete=traffic.complete))
        }
        changed = {service for service, found in self._known.items() if before.get(service) != found}
        for (kind, name), followed in list(self._followed.items()):
            if kind in self._listeners and self._is_news(changed, followed):
                self._listeners[kind](name)

    def _is_news(self, changed: Set[Key], followed: _Followed) -> bool:
        others = followed.services - followed.satisfied
        waits = any(one in self._known and self._known[one].busy for one in others)
        return not changed.isdisjoint(followed.services if waits else others)


def _requests(traffic: Traffic, service: Key) -> float:
    return traffic.requests.get(service, 0.0)
