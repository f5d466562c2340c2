"""Sharing the limits of keys out among the gateways, so that all of them together keep to them. Pure.

Each gateway has a share of each limit: what it may have used of it. One of them, the leader, hands shares out. It
raises one only once others have said that they keep to less, so at no time are the shares together more than the limit.
Whoever is asked more gets more of what is left. Of a gateway that is silent the leader takes for granted that it uses
an equal part, which is also all that one gets which leads itself alone.

There may be very many owners of tokens whom no record names. For all of them each gateway has one share, that of ALL,
and of each owner it may use so much. Only of one who needs more the gateways tell each other: then he has shares of his
own, until nobody asks for him and they have become as those of all.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from slipway.gateway.keys import ALL, Limited, Limits

LEASE_SECONDS = 3.0
"""Whoever has not been heard for so long is silent. So long a new leader raises no share, too."""
MINUTE_SECONDS = 60.0
"""So long the use of a gateway that is gone counts."""
ACTIVE_SECONDS = 10.0
"""So long after a key was used, or its shares changed, all gateways are told of it."""
MOST_GATEWAYS = 64
_DAILY = (3, 4)
"""Of Limits, those that are counted from midnight to midnight, and so never become less."""
_WEIGHT = 4.0
"""How much the requests that a gateway had of late weigh beside the share that it has without any."""
LAST = len(Limits._fields)
"""Index of the right to take more than is left, in a share: of each key one gateway has it."""
_WIDTH = LAST + 1


class Standing(NamedTuple):
    """Where a gateway stands with one key."""

    used: tuple[int, ...]
    """Of each limit, in the order of Limits, and 0. Tokens that are reserved count."""
    share: tuple[int, ...]
    """That it keeps to, in the same order, and whether it may take more than is left (1)."""
    spent: tuple[int, ...]
    """Requests and tokens that it counted of the day, without those that are reserved."""
    demand: float
    """Requests that it had of late."""


class Share(NamedTuple):
    """What a gateway is told for one key."""

    share: tuple[int, ...]
    """See Standing."""
    rest: tuple[int, ...]
    """What the others have left of each limit."""
    spent: tuple[int, ...] = (0, 0)
    """Requests and tokens of the day, of all gateways together."""

    @property
    def text(self) -> str:
        """As limits.lua reads it."""
        return ":".join(map(str, (*self.share, *self.rest)))


NOTHING = (0,) * _WIDTH


class _Member:
    """What the leader knows of a gateway."""

    def __init__(self) -> None:
        self.heard = -math.inf
        self.standings: dict[str, Standing] = {}
        self.granted: dict[str, tuple[int, ...]] = {}

    def of(self, key: str, record: str) -> Standing:
        """Where it stood with a key when it was heard last. `record`: see Limited."""
        if found := self.standings.get(key):
            return found
        share = self.granted.get(key, NOTHING) if record == key else self.of(record, record).share
        return Standing(NOTHING, share, (0, 0), 0.0)

    def held(self, key: str, record: str) -> tuple[int, ...]:
        """The most that it can have used of each limit until it is heard again."""
        granted = self.granted.get(key, NOTHING)
        if record != key and key not in self.standings:
            return _most(granted, self.held(record, record))
        standing = self.of(key, record)
        return _most(granted, standing.share, standing.used)

    def forget(self, keys: Iterable[str]) -> None:
        """Of these it keeps to no share of their own."""
        for key in keys:
            self.granted.pop(key, None)


class Leader:
    """Hands out shares. Every gateway has one; that of the gateway which leads is asked."""

    def __init__(self, now: float) -> None:
        self._began = now
        self._members: dict[str, _Member] = {}
        self._gone: dict[str, _Member] = {}
        self._limits = Limited({})
        self._active: dict[str, float] = {}
        self._asked: dict[str, float] = {}
        """When each owner without a record had requests last."""
        self._day = ""
        self._spent: dict[str, tuple[int, ...]] = {}

    def spent(self) -> tuple[str, dict[str, tuple[int, ...]]]:
        """The day, and requests and tokens of each key on it, of all gateways together."""
        return self._day, dict(self._spent)

    def remember(self, day: str, spent: Mapping[str, Sequence[int]]) -> None:
        """Takes over what somebody knows to be spent on a day (``YYYYMMDD``), where it is more. Older days are over."""
        if day > self._day:
            self._day, self._spent = day, {}
        if day == self._day:
            for key, told in spent.items():
                self._spent[key] = _most(tuple(told), self._spent.get(key, (0, 0)))

    def hear(
        self,
        now: float,
        name: str,
        standings: Mapping[str, Standing],
        limits: Limited,
        gateways: Sequence[str],
    ) -> dict[str, Share]:
        """Takes a gateway's standings and returns its shares: of its keys, and of those that others use.

        `now`: seconds. `gateways`: all that there are, by name. Keys that have no limits are passed over. An owner of a
        token who is not in the answer has the gateway's share of ALL.
        """
        self._forget(now, {*gateways, name}, limits)
        member = self._members.setdefault(name, _Member())
        member.heard = now
        member.standings = {key: one for key, one in standings.items() if limits.of(key)}
        asked = [key for key, one in member.standings.items() if one.demand > 0]
        self._active.update((key, now) for key in asked)
        self._asked.update((key, now) for key in asked if limits.borrows(key))
        concerned = {**member.standings, **self._active}
        member.forget([key for key in member.granted.keys() - concerned.keys() if limits.borrows(key)])
        shares = {key: self._share(now, name, key, own, gateways) for key in concerned if (own := limits.of(key))}
        return {key: one for key, one in shares.items() if not self._is_common(member, key)}

    def _is_common(self, member: _Member, key: str) -> bool:
        """Whether an owner needs no share of his own any more."""
        return self._limits.borrows(key) and key not in self._active and member.granted[key] == member.granted.get(ALL)

    def _forget(self, now: float, gateways: set[str], limits: Limited) -> None:
        for name in self._members.keys() - gateways:
            # One that starts or ends is heard though it is not among them.
            if now - self._members[name].heard > LEASE_SECONDS:
                self._gone[name] = self._members.pop(name)
        for name in [name for name, one in self._gone.items() if now - one.heard > MINUTE_SECONDS or name in gateways]:
            del self._gone[name]
        self._active = {
            key: then for key, then in self._active.items() if now - then <= ACTIVE_SECONDS and limits.of(key)
        }
        self._asked = {key: then for key, then in self._asked.items() if key in self._active}
        if limits != self._limits:
            self._limits = limits
            for known in (self._spent, *(one.granted for one in self._members.values())):
                for key in [key for key in known if not limits.of(key)]:
                    del known[key]

    def _share(self, now: float, name: str, key: str, limits: Limits, gateways: Sequence[str]) -> Share:
        heard = {other: one for other, one in self._members.items() if now - one.heard <= LEASE_SECONDS}
        record = self._limits.record(key)
        standings = {other: one.of(key, record) for other, one in heard.items()}
        others = [one for other, one in heard.items() if other != name]
        unsure = now - self._began < LEASE_SECONDS and not heard.keys() >= set(gateways)
        most = (*(limit or 0 for limit in limits), 1)
        spent = self._spend(key)
        lost = self._lost(key, most, heard, spent, gateways)
        weights = {other: 1 + _WEIGHT * max(one.demand, 0.0) for other, one in standings.items()}
        own, share = heard[name], []
        common = own.granted.get(ALL, NOTHING) if record != key else None
        held = _sum([NOTHING, *(one.held(key, record) for one in others)])
        for index, limit in enumerate(most):
            used, current = standings[name].used[index], standings[name].share[index]
            there = limit - lost[index]
            wanted = used + _part(there - sum(one.used[index] for one in standings.values()), weights, name)
            if common and now - self._asked.get(key, -math.inf) > ACTIVE_SECONDS:
                wanted = max(common[index], used)
            free = 0 if unsure else there - held[index]
            share.append(max(wanted if wanted <= current else max(current, min(wanted, free)), 0))
        if own.granted.get(key) != tuple(share):
            self._active[key] = now  # what others are told to be left elsewhere changes with it
        own.granted[key] = tuple(share)
        left = [
            [max(mine - used, 0) for mine, used in zip(one.share, one.used, strict=True)]
            for other, one in standings.items()
            if other != name
        ]
        rest = tuple(max(sum(one[index] for one in left), int(unsure)) for index in range(LAST))
        return Share(tuple(share), rest, spent)

    def _spend(self, key: str) -> tuple[int, ...]:
        """What is spent of the day: what is known, or what the gateways have counted since, where that is more."""
        known = _most(self._counted(key), self._spent.get(key, (0, 0)))
        if any(known):
            self._spent[key] = known
        return known

    def _counted(self, key: str) -> tuple[int, ...]:
        record, everybody = self._limits.record(key), (*self._members.values(), *self._gone.values())
        return _sum(one.of(key, record).spent for one in everybody)

    def _lost(
        self, key: str, most: Sequence[int], heard: Mapping[str, _Member], spent: Sequence[int], gateways: Sequence[str]
    ) -> tuple[int, ...]:
        """What is not to be shared out: an equal part for each that is silent or, where that is more, what it had used;
        what was used by those that went a moment ago; and of a day what nobody counts any more."""
        part = tuple(limit // max(len(gateways), 1) for limit in most)
        silent = {*gateways, *self._members} - heard.keys()
        record = self._limits.record(key)
        known_of = {name: one.of(key, record).used for name, one in self._members.items()}
        taken = [_most(part, known_of.get(name, NOTHING)) for name in silent]
        taken += [one.of(key, record).used for one in self._gone.values()]
        forgotten = [0] * _WIDTH
        for index, known, told in zip(_DAILY, spent, self._counted(key) or (0, 0), strict=True):
            forgotten[index] = max(known - told, 0)
        return _sum([forgotten, *taken])


def _part(whole: int, weights: Mapping[str, float], name: str) -> int:
    """The part of a number that one gets: whole, and together the number, or less where that is negative."""
    if whole <= 0:
        return math.floor(whole / len(weights))
    total = sum(weights.values())
    parts = {one: whole * weight / total for one, weight in weights.items()}
    over = whole - sum(math.floor(part) for part in parts.values())
    first = sorted(parts, key=lambda one: (math.floor(parts[one]) - parts[one], -weights[one], one))[:over]
    return math.floor(parts[name]) + (name in first)


def _most(*rows: Sequence[int]) -> tuple[int, ...]:
    return tuple(max(column) for column in zip(*rows, strict=True))


def _sum(rows: Iterable[Sequence[int]]) -> tuple[int, ...]:
    return tuple(sum(column) for column in zip(*rows, strict=True))
