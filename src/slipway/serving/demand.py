"""Demand: whether requests for a Service are under way at the gateways, and since when. Pure; the controller feeds
it."""

from __future__ import annotations

import msgspec


class Demand(msgspec.Struct, frozen=True):
    """What all gateways together say of one Service."""

    busy: bool
    """Whether requests for it are in flight or wait."""
    since: float
    """Unix seconds from which on that is so, as far as this process has looked."""


def observe(before: Demand | None, requests: float, now: float, *, complete: bool) -> Demand | None:
    """What is known after one more look; None: nothing yet.

    ``complete``: False where some gateway could not be asked, which may have the requests that the others lack.
    """
    busy = requests > 0
    if not busy and not complete:
        return before
    if before is not None and before.busy == busy:
        return before
    return Demand(busy, now)
