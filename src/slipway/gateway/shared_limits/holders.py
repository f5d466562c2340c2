"""The use and the reservations of a holder at this gateway, and the grants for HAProxy. A holder is an API key or the
subject of a token. Pure."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from slipway.gateway.shared_limits.usage import NONE, Window


class Grant(NamedTuple):
    """The data with which ``limits.lua`` accepts or rejects a holder's requests. If the holder has no such limit, a
    number is None, and a time is 0. Total numbers of requests count from the birth of the holder's entry in HAProxy."""

    alone: int | None = None
    """Number of requests per minute that are allowed while the control process does not respond."""
    minute_until: int | None = None
    """Total number of requests at which the gateway stops accepting requests, for the limit per minute."""
    minute_zero: int | None = None
    """Total number of requests at which the limit per minute is reached if no other gateway accepts any."""
    minute_frees: int = 0
    """Unix time from which the limit per minute allows requests again; 0 if none were used in the last minute."""
    tokens_rest: int | None = None
    """Number of tokens that the limit per minute still allows; negative if the limit is exceeded."""
    tokens_free: int = 0
    """Unix time from which the limit of tokens per minute allows requests again; 0 if it allows them now."""
    day_until: int | None = None
    day_zero: int | None = None
    """As ``minute_until`` and ``minute_zero``, for the limit per day."""
    day_tokens_rest: int | None = None
    """As ``tokens_rest``, for the limit per day."""
    day_ends: int = 0
    """Unix time at which the day ends, which is midnight in UTC."""

    def encode(self) -> str:
        """Return the grant in the format of ``limits.lua``: its fields separated by colons, with ``-`` for None."""
        return ":".join("-" if field is None else str(field) for field in self)

    @property
    def until(self) -> tuple[int, int]:
        """Total numbers of requests at which HAProxy stops accepting them, for the limits per minute and per day."""
        return self.minute_until or 0, self.day_until or 0


class HolderGrant(NamedTuple):
    """A grant for a holder. It applies only to the entry in HAProxy with the ID ``birth``."""

    holder: str
    birth: str
    grant: Grant


class OwnUse:
    """The use and the reservation of a holder whose requests or tokens this gateway counted recently."""

    def __init__(self, born: int) -> None:
        self.born = born
        """Version of the ledger at which the total started at zero."""
        self.total = NONE
        self.window = Window()
        self.birth = ""
        """Birth of the holder's entry in HAProxy; empty if HAProxy has no entry."""
        self.requests = 0
        """Number of requests that HAProxy last reported."""
        self.until = (0, 0)
        """Total numbers of requests at which HAProxy stops accepting them, for the limits per minute and per day."""
        self.last_grant: Grant | None = None
        """Last grant that HAProxy has confirmed; None while a new grant is not confirmed."""
        self.active = 0.0
        """Time of the last request, in seconds of the steady clock."""
        self.eager = False
        """Whether requests arrived recently."""
        self.waiting = False
        """Whether a request waits for a grant."""
        self.planned = (0, 0)
        """Planned value of ``until``, which takes effect once all other gateways know it."""
        self.claim = 0
        """Version of the ledger at which ``planned`` last increased."""
        self.demand = 0
        """Version of the ledger at which a request last arrived after a pause, or began to wait. If fewer requests than
        gateways remain, this gateway plans no more of them before all other gateways know this version."""

    def reset_entry(self, birth: str) -> None:
        """Reset the state for a new entry in HAProxy with the given ``birth``, or for no entry if ``birth`` is
        empty."""
        self.birth, self.requests, self.last_grant, self.eager = birth, 0, None, False
        self.until = self.planned = (0, 0)

    @property
    def reserved(self) -> tuple[int, int]:
        """Numbers of requests that this gateway may still accept, for the limits per minute and per day. Other gateways
        must not use them."""
        return (
            max(self.until[0] - self.requests, self.planned[0] - self.requests, 0),
            max(self.until[1] - self.requests, self.planned[1] - self.requests, 0),
        )


class Saved(msgspec.Struct, frozen=True):
    """The state of the ledger that a restarted control process restores."""

    instance: str
    day: str
    days: dict[str, dict[str, tuple[int, int]]]
    """Instance ID of a gateway -> holder -> requests and tokens on ``day``."""
    minutes: dict[str, tuple[int, int]] = {}
    """Holder -> requests and tokens at this gateway in the last minute."""
    entries: dict[str, tuple[str, int]] = {}
    """Holder -> birth and counted requests of the holder's entry in HAProxy."""
