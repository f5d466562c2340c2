"""Sharing the limits of keys out among the gateways, so that all of them together keep to them. Pure.

Each gateway has a share of each limit: what it may have used of it. One of them, the leader, hands shares out. It
raises one only once others have said that they keep to less, so at no time are the shares together more than the limit.
Whoever is asked more gets more of what is left. Of a gateway that is silent the leader takes for granted that it uses
an equal part, which is also all that one gets which leads itself alone.

There may be very many owners of tokens whom no record names. For all of them each gateway has one share, by the name
of the record for all (keys.common), and of each owner it may use so much. Only of one who needs more the gateways tell
each other: then he has shares of his own, until nobody asks for him and they have become as those of all.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from slipway.gateway.keys import Limited, Limits

LEASE_SECONDS = 3.0
"""Whoever has not been heard for so long is silent. So long no share is raised, too, for one that is new
and may have shares of another leader."""
MINUTE_SECONDS = 60.0
"""So long the use of a gateway that is gone counts."""
ACTIVE_SECONDS = 10.0
"""So long after a key was used, or its shares changed, all gateways are told of it."""
MOST_GATEWAYS = 64
MOST_OWNERS = 1000
"""Of tokens, whom no record names and who have shares of their own. More of them have that of all."""
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
        return ":".join("-" if one == UNSET else str(one) for one in (*self.share, *self.rest))

    def knows(self, limits: Limits) -> bool:
        """Whether it says something of each of these limits."""
        return all(one != UNSET for one, limit in zip(self.share, limits, strict=False) if limit)


UNSET = -1
"""In a Share: the key had no such limit when it was told. If it has now, nobody knows yet what is left."""
NOTHING = (0,) * _WIDTH


class Told(NamedTuple):
    """What a gateway tells the one that leads."""

    day: str
    """In UTC, ``YYYYMMDD``: what the standings count of a day is of this one."""
    standings: Mapping[str, Standing]
    """By name of the key."""
    spent: Mapping[str, Sequence[int]] = {}
    """Requests and tokens of the day of all gateways together, as it knows them."""
    whole: bool = True
    """Whether the standings are all that it has, or those alone that changed since it told last."""


class _Member:
    """What the leader knows of a gateway."""

    def __init__(self) -> None:
        self.heard = -math.inf
        self.known = False
        """Whether it has told where it stands with all keys."""
        self.standings: dict[str, Standing] = {}
        self.counted: dict[str, tuple[int, ...]] = {}
        """Where its counters of the day stood when it told of a key last."""
        self.granted: dict[str, tuple[int, ...]] = {}

    def of(self, key: str, record: str) -> Standing:
        """Where it stood with a key when it was heard last. `record`: see Limited."""
        if found := self.standings.get(key):
            return found
        share = self.granted.get(key, NOTHING) if record == key else self.of(record, record).share
        return Standing(NOTHING, share, (0, 0), 0.0)

    def begin_day(self) -> None:
        """What it counted was of a day that is over."""
        self.counted = {}
        self.standings = {key: _of_no_day(one) for key, one in self.standings.items()}

    def hear(self, standings: Mapping[str, Standing], *, whole: bool) -> bool:
        """Takes its standings. Says whether it is known now where it stands with all keys."""
        if whole:
            self.known, self.standings = True, {}
        if self.known:
            self.standings.update(standings)
        return self.known

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

    def __init__(self) -> None:
        self._appeared: dict[str, float] = {}
        """Since when each gateway is known."""
        self._members: dict[str, _Member] = {}
        self._gone: dict[str, _Member] = {}
        self._limits = Limited({})
        self._active: dict[str, float] = {}
        self._asked: dict[str, float] = {}
        """When each owner without a record had requests last."""
        self._owners: dict[str, float] = {}
        """When a gateway told last of each of those that have shares of their own."""
        self._day = ""
        self._spent: dict[str, tuple[int, ...]] = {}

    def spent(self) -> tuple[str, dict[str, tuple[int, ...]]]:
        """The day, and requests and tokens of each key on it, of all gateways together."""
        return self._day, dict(self._spent)

    def remember(self, day: str, spent: Mapping[str, Sequence[int]]) -> None:
        """Takes over what somebody knows to be spent on a day (``YYYYMMDD``), where it is more. Older days are over."""
        if day > self._day:
            self._day, self._spent = day, {}
            for member in (*self._members.values(), *self._gone.values()):
                member.begin_day()
        if day == self._day:
            for key, told in spent.items():
                self._spent[key] = _most(tuple(told), self._spent.get(key, (0, 0)))

    def used_by(self, name: str, keys: Iterable[str]) -> dict[str, tuple[int, ...]]:
        """What a gateway had used of these keys when it was heard last, where it had used anything."""
        member = self._members.get(name) or _Member()
        return {key: one.used for key in keys if (one := member.standings.get(key)) and any(one.used)}

    def mourn(self, now: float, name: str, used: Mapping[str, tuple[int, ...]]) -> None:
        """Counts on for a minute what the gateway that led before had used. Of the day that is known besides."""
        lost = self._members[name] = _Member()
        lost.heard = now - 2 * LEASE_SECONDS
        lost.standings = {key: _of_no_day(Standing(one, NOTHING, (0, 0), 0.0)) for key, one in used.items()}

    def hear(
        self,
        now: float,
        name: str,
        told: Told,
        limits: Limited,
        gateways: Sequence[str],
    ) -> dict[str, Share]:
        """Takes what a gateway tells and returns its shares: of its keys, and of those that others use.

        `now`: seconds. `gateways`: all that there are, by name. Keys that have no limits are passed over. Of a day that
        is over nothing is taken. An owner of a token of whom the gateway tells and who is not in the answer has the
        gateway's share of all owners. Until a gateway has told where it stands with all keys, it gets no shares.
        """
        self.remember(told.day, {})
        self._owners = {key: then for key, then in self._owners.items() if now - then <= ACTIVE_SECONDS}
        standings = {key: one for key, one in told.standings.items() if self._admits(now, key, limits)}
        if told.day != self._day:
            standings = {key: _of_no_day(one) for key, one in standings.items()}
        self._appeared = {one: self._appeared.get(one, now) for one in gateways}
        self._forget(now, {*gateways, name}, limits)
        member = self._members.setdefault(name, _Member())
        if not member.hear(standings, whole=told.whole):
            return {}
        self._count(member, standings)
        # Afterwards, as what it knows to be spent may be what it counted itself.
        self.remember(told.day, {key: one for key, one in told.spent.items() if limits.of(key)})
        member.heard = now
        asked = [key for key, one in standings.items() if one.demand > 0]
        self._active.update((key, now) for key in asked)
        self._asked.update((key, now) for key in asked if limits.borrows(key))
        kept = member.standings.keys() | self._active.keys()
        member.forget([key for key in member.granted.keys() - kept if limits.borrows(key)])
        concerned = {**standings, **self._active}
        shares = {key: self._share(now, name, key, own, gateways) for key in concerned if (own := limits.of(key))}
        return {key: one for key, one in shares.items() if not self._is_common(member, key)}

    def _count(self, member: _Member, standings: Mapping[str, Standing]) -> None:
        """Adds what a gateway counted of the day since it was heard last. Counters that became less began anew."""
        for key, one in standings.items():
            before, member.counted[key] = member.counted.get(key), one.spent
            if before is None:
                continue  # where its counters stand: others may have said already what they hold
            if any(now < then for now, then in zip(one.spent, before, strict=True)):
                before = (0, 0)
            new = tuple(now - then for now, then in zip(one.spent, before, strict=True))
            if any(new):
                self._spent[key] = _sum([self._spent.get(key, (0, 0)), new])

    def _admits(self, now: float, key: str, limits: Limited) -> bool:
        """Whether a key has limits, and shares of its own."""
        if not limits.borrows(key):
            return limits.of(key) is not None
        if key not in self._owners and len(self._owners) >= MOST_OWNERS:
            return False
        self._owners[key] = now
        return True

    def _is_common(self, member: _Member, key: str) -> bool:
        """Whether an owner needs no share of his own any more."""
        if not self._limits.borrows(key) or key in self._active:
            return False
        return member.granted[key] == member.granted.get(self._limits.record(key))

    def _forget(self, now: float, gateways: set[str], limits: Limited) -> None:
        for name in self._members.keys() - gateways:
            # One that starts or ends is heard though it is not among them.
            if now - self._members[name].heard > LEASE_SECONDS:
                self._gone[name] = self._members.pop(name)
        for name in self._gone.keys() & gateways:
            self._members[name] = self._gone.pop(name)
        self._gone = {name: one for name, one in self._gone.items() if now - one.heard <= MINUTE_SECONDS}
        self._active = {
            key: then for key, then in self._active.items() if now - then <= ACTIVE_SECONDS and limits.of(key)
        }
        self._asked = {key: then for key, then in self._asked.items() if key in self._active}
        if limits != self._limits:
            self._limits = limits
            of_members = [known for one in self._everybody() for known in (one.granted, one.counted)]
            for known in (self._spent, *of_members):
                for key in [key for key in known if not limits.of(key)]:
                    del known[key]

    def _share(self, now: float, name: str, key: str, limits: Limits, gateways: Sequence[str]) -> Share:
        heard = {other: one for other, one in self._members.items() if now - one.heard <= LEASE_SECONDS}
        record = self._limits.record(key)
        standings = {other: one.of(key, record) for other, one in heard.items()}
        others = [one for other, one in heard.items() if other != name]
        unsure = any(now - then < LEASE_SECONDS and one not in heard for one, then in self._appeared.items())
        most = (*(limit or 0 for limit in limits), 1)
        spent = self._spend(key)
        lost = _sum([self._forgotten(key, record, spent), self._lost(key, most, heard, gateways)])
        weights = {other: 1 + _WEIGHT * max(one.demand, 0.0) for other, one in standings.items()}
        own, share = heard[name], []
        common = own.granted.get(record, NOTHING) if record != key else None
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
        set_ = (*(limit is not None for limit in limits), True)
        return Share(_where(set_, share), _where(set_[:LAST], rest), spent)

    def _spend(self, key: str) -> tuple[int, ...]:
        """What is spent of the day: what is known, or what the gateways have counted, where that is more."""
        counted = _sum(one.counted.get(key, (0, 0)) for one in self._everybody())
        spent = _most(counted, self._spent.get(key, (0, 0)))
        if any(spent):
            self._spent[key] = spent
        return spent

    def _forgotten(self, key: str, record: str, spent: Sequence[int]) -> tuple[int, ...]:
        """What is spent of the day and in no gateway's standing."""
        standing = _sum(one.of(key, record).spent for one in self._everybody())
        return (0, 0, 0, *(max(known - told, 0) for known, told in zip(spent, standing, strict=True)), 0)

    def _everybody(self) -> tuple[_Member, ...]:
        return (*self._members.values(), *self._gone.values())

    def _lost(
        self, key: str, most: Sequence[int], heard: Mapping[str, _Member], gateways: Sequence[str]
    ) -> tuple[int, ...]:
        """What is not to be shared out: an equal part for each that is silent or, where that is more, what it had used;
        and what was used by those that went a moment ago."""
        part = tuple(limit // max(len(gateways), 1) for limit in most)
        silent = {*gateways, *self._members} - heard.keys()
        record = self._limits.record(key)
        known_of = {name: one.of(key, record).used for name, one in self._members.items()}
        taken = [_most(part, known_of.get(name, NOTHING)) for name in silent]
        taken += [one.of(key, record).used for one in self._gone.values()]
        return _sum([NOTHING, *taken])


def _of_no_day(standing: Standing) -> Standing:
    """The standing without what it counted of a day."""
    used = tuple(0 if index in _DAILY else one for index, one in enumerate(standing.used))
    return standing._replace(used=used, spent=(0, 0))


def _where(chosen: Sequence[bool], row: Sequence[int]) -> tuple[int, ...]:
    """The row, with UNSET where it is not chosen."""
    return tuple(one if yes else UNSET for yes, one in zip(chosen, row, strict=True))


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
