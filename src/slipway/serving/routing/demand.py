"""Whether a Service has requests in flight or waiting at the gateways, and since when. Pure."""

from __future__ import annotations

import msgspec


class Demand(msgspec.Struct, frozen=True):
    """The combined reports of all gateways about one Service."""

    busy: bool
    """Whether the Service has requests in flight or waiting at a gateway."""
    since: float
    """Unix time since which ``busy`` has had its current value, as observed by this process."""


def observe(before: Demand | None, requests: int, now: float, *, complete: bool) -> Demand | None:
    """Return the demand after another observation, or None if it is still unknown. ``before`` is the previous demand,
    or None if it was unknown.

    ``requests`` is the number of requests in flight or waiting at the gateways that answered, and ``now`` the Unix
    time. ``complete`` is whether all gateways answered. A Service becomes idle only if they did, because a silent
    gateway may have requests for it.
    """
    busy = requests > 0
    if not busy and not complete:
        return before
    if before is not None and before.busy == busy:
        return before
    return Demand(busy, now)
