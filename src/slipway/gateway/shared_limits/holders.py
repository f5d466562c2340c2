"""The use and the reservations of a holder of limits at this gateway, and the grants for HAProxy. Pure."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from slipway.gateway.shared_limits.usage import NONE, Window


class Grant(NamedTuple):
    """The data with which limits.lua accepts or refuses a holder's requests. None: no such limit."""

    alone: int | None = None
    """Allowed requests per minute if the control process does not respond."""
    minute_until: int | None = None
    """The gateway accepts requests until its number of requests reaches this."""
    minute_zero: int | None = None
    """Number of requests at which the limit is reached if no other gateway accepts any."""
    minute_frees: int = 0
    """Unix time from which the limit allows requests again; 0 if none were used in the last minute."""
    tokens_rest: int | None = None
    tokens_free: int = 0
    day_until: int | None = None
    day_zero: int | None = None
    day_tokens_rest: int | None = None
    day_ends: int = 0
    """Unix time of midnight."""

    def encode(self) -> str:
        """Returns the grant in the format of limits.lua."""
        return ":".join("-" if field is None else str(field) for field in self)

    @property
    def until(self) -> tuple[int, int]:
        """Numbers up to which HAProxy may accept requests, for the limits per minute and per day."""
        return self.minute_until or 0, self.day_until or 0


class HolderGrant(NamedTuple):
    """A grant for HAProxy's entry of a holder."""

    holder: str
    birth: str
    grant: Grant


class OwnUse:
    """A holder whose requests or tokens this gateway counted recently."""

    def __init__(self, born: int) -> None:
        self.born = born
        """Version of the ledger when the total started at zero."""
        self.total = NONE
        self.window = Window()
        self.birth = ""
        """Birth of HAProxy's entry; empty if it has none."""
        self.requests = 0
        """HAProxy's last reported number of requests."""
        self.until = (0, 0)
        """Numbers up to which HAProxy may accept requests, for the limits per minute and per day."""
        self.last_grant: Grant | None = None
        """The grant that HAProxy has confirmed."""
        self.active = 0.0
        """Time of the last request."""
        self.eager = False
        """Whether requests arrived recently."""
        self.waiting = False
        """Whether a request waits for a grant."""
        self.planned = (0, 0)
        """Like ``until``, for the next grant, after all other gateways know the plan."""
        self.claim = 0
        """Version at which a plan was last raised."""
        self.demand = 0
        """Version at which a request arrived or waited. Others must know it before an indivisible rest is granted."""

    def reset_entry(self, birth: str) -> None:
        """Resets the state of HAProxy's entry: it has a new one, or none (empty ``birth``)."""
        self.birth, self.requests, self.last_grant, self.eager = birth, 0, None, False
        self.until = self.planned = (0, 0)

    @property
    def reserved(self) -> tuple[int, int]:
        """Requests that others must expect from this gateway, for the limits per minute and per day."""
        return (
            max(self.until[0] - self.requests, self.planned[0] - self.requests, 0),
            max(self.until[1] - self.requests, self.planned[1] - self.requests, 0),
        )


class Saved(msgspec.Struct, frozen=True):
    """The state that a restarted control process restores."""

    instance: str
    day: str
    days: dict[str, dict[str, tuple[int, int]]]
    minutes: dict[str, tuple[int, int]] = {}
    entries: dict[str, tuple[str, int]] = {}
    """Birth and counted requests of each entry in HAProxy, by holder."""
