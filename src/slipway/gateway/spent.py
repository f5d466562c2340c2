"""What keys have spent of a day, in a ConfigMap, so that their budgets outlive all gateways. Pure but for SpentMap.

While one gateway runs, the others know from it what is spent. So this is written rarely, by the one that leads: when a
key has spent a good part more of a budget, and when it ends. Nothing is written while nothing is spent.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Protocol

import msgspec

from slipway.gateway.keys import Limits
from slipway.kube.client import Client
from slipway.kube.errors import ApiError, NotFoundError
from slipway.kube.objects import CONFIG_MAP, Key

log = logging.getLogger(__name__)

NAME = "slipway-gateway-spent"
WRITE_SECONDS = 30.0
"""Between two writes, at least."""
_PART = 100
"""So many times it is written while a budget is used up, at most."""
_FIELD = "spent.json"
_MOST_BYTES = 900_000
Spent = Mapping[str, tuple[int, ...]]
"""Requests and tokens by key."""


class Day(msgspec.Struct, frozen=True):
    """What was spent on a day (``YYYYMMDD``)."""

    day: str = ""
    spent: dict[str, tuple[int, int]] = {}


class Store(Protocol):
    """Where it is kept."""

    async def read(self) -> Day | None:
        """What was written last; None where that cannot be read now."""

    async def write(self, day: Day) -> bool:
        """Writes; says whether that went well."""


def budgets(spent: Spent, limits: Mapping[str, Limits]) -> dict[str, tuple[int, int]]:
    """The part of it that belongs to keys with a limit for a day."""
    return {
        key: (told[0], told[1])
        for key, told in spent.items()
        if key in limits and (limits[key].requests_day or limits[key].tokens_day) and any(told)
    }


def is_news(written: Day, new: Day, limits: Mapping[str, Limits], *, all_of_it: bool = False) -> bool:
    """Whether a good part of some key's budget was spent since it was written; with `all_of_it` any part."""
    if new.day != written.day:
        return bool(new.spent)
    return any(
        now - before >= (1 if all_of_it else max(limit // _PART, 1)) or before < limit <= now
        for key, told in new.spent.items()
        for now, before, limit in zip(told, written.spent.get(key, (0, 0)), limits[key][3:], strict=True)
        if limit
    )


def most(spent: Spent, other: Spent) -> dict[str, tuple[int, ...]]:
    """Of each key what is more."""
    nothing = (0, 0)
    return {key: tuple(map(max, spent.get(key, nothing), other.get(key, nothing))) for key in {**other, **spent}}


class SpentMap:
    """A ConfigMap as the store. It has to be there: the gateway may not make any."""

    def __init__(self, client: Client, namespace: str) -> None:
        self._client = client
        self._name = Key(namespace, NAME)

    async def read(self) -> Day | None:
        """What was written last; None where that cannot be read now. What is no such text is nothing."""
        try:
            found = await self._client.get(CONFIG_MAP, self._name)
            return msgspec.json.decode(str((found.get("data") or {}).get(_FIELD, "{}")), type=Day)
        except NotFoundError:
            return Day()
        except msgspec.DecodeError as error:
            log.warning("ConfigMap %s does not say what keys have spent today: %s", self._name, error)
            return Day()
        except ApiError as error:
            log.warning("Could not read what keys have spent today from ConfigMap %s: %s", self._name, error)
            return None

    async def write(self, day: Day) -> bool:
        """Writes; says whether that went well."""
        text = msgspec.json.encode(day).decode()
        if len(text) > _MOST_BYTES:
            log.warning("ConfigMap %s cannot hold what so many keys have spent", self._name)
            return False
        try:
            await self._client.merge_patch(CONFIG_MAP, self._name, {"data": {_FIELD: text}}, field_manager=NAME)
        except ApiError as error:
            log.warning("Could not write what keys have spent today into ConfigMap %s: %s", self._name, error)
            return False
        return True
