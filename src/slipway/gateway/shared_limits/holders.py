"""What a gateway knows of a holder of limits whose requests or tokens it counted, and what it grants to one. Pure."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from slipway.gateway.shared_limits.usage import NONE, Window


class Grant(NamedTuple):
    """What limits.lua needs to decide about a holder's requests. None: there is no such limit."""

    alone: int | None = None
    """Requests per minute if the control process does not answer."""
    minute_until: int | None = None
    """The gateway's number of requests up to which it may accept more."""
    minute_zero: int | None = None
    """The number at which the limit is reached, if no other gateway accepts any."""
    minute_frees: int = 0
    """Unix time at which the last minute has room after the limit was reached; 0 if nothing was used in it."""
    tokens_rest: int | None = None
    tokens_free: int = 0
    day_until: int | None = None
    day_zero: int | None = None
    day_tokens_rest: int | None = None
    day_ends: int = 0
    """Unix time of midnight."""

    def encode(self) -> str:
        """As limits.lua reads it."""
        return ":".join("-" if field is None else str(field) for field in self)

    @property
    def until(self) -> tuple[int, int]:
        """What HAProxy may accept, by the limits per minute and per day."""
        return self.minute_until or 0, self.day_until or 0


class HolderGrant(NamedTuple):
    """A grant for an entry of HAProxy's."""

    holder: str
    birth: str
    grant: Grant


class OwnUse:
    """A holder whose requests or tokens this gateway counted a moment ago."""

    def __init__(self, born: int) -> None:
        self.born = born
        """The ledger's version when the total began at zero."""
        self.total = NONE
        self.window = Window()
        self.birth = ""
        """Of HAProxy's entry; empty if it has none."""
        self.requests = 0
        """HAProxy's number of requests, as counted."""
        self.until = (0, 0)
        """The numbers that HAProxy may accept, by the limits per minute and per day."""
        self.sent: Grant | None = None
        """What HAProxy certainly has."""
        self.active = 0.0
        """When a request came last."""
        self.eager = False
        """Whether requests arrived a moment ago."""
        self.waiting = False
        """Whether one waits for a grant."""
        self.planned = (0, 0)
        """The numbers that HAProxy is to accept once all other gateways know them."""
        self.claim = 0
        """Version of the last raise of a plan."""
        self.demand = 0
        """Version when a request came or waited that others have to know of before a last rest is given away."""

    def reset_entry(self, birth: str) -> None:
        """HAProxy has a new entry, or none (an empty birth). Its number of requests begins at zero."""
        self.birth, self.requests, self.sent, self.eager = birth, 0, None, False
        self.until = self.planned = (0, 0)

    @property
    def reserved(self) -> tuple[int, int]:
        """Requests that others must expect, by the limits per minute and per day."""
        return (
            max(self.until[0] - self.requests, self.planned[0] - self.requests, 0),
            max(self.until[1] - self.requests, self.planned[1] - self.requests, 0),
        )


class Saved(msgspec.Struct, frozen=True):
    """What a restarted control process continues with."""

    instance: str
    day: str
    days: dict[str, dict[str, tuple[int, int]]]
    minutes: dict[str, tuple[int, int]] = {}
    entries: dict[str, tuple[str, int]] = {}
    """Birth and requests of HAProxy's entries, as counted."""
