"""Demand: whether requests for a Service are in flight or waiting at the gateways, and since when. Pure."""

from __future__ import annotations

import msgspec


class Demand(msgspec.Struct, frozen=True):
    """The combined report of all gateways about one Service."""

    busy: bool
    """Whether requests for the Service are in flight or waiting."""
    since: float
    """Unix time since which ``busy`` has had this value, as far as this process has observed it."""


def observe(before: Demand | None, requests: int, now: float, *, complete: bool) -> Demand | None:
    """Returns the demand after another observation; None: unknown yet.

    ``complete``: whether all gateways answered. A silent gateway may have requests, so without it no Service becomes
    idle.
    """
    busy = requests > 0
    if not busy and not complete:
        return before
    if before is not None and before.busy == busy:
        return before
    return Demand(busy, now)
