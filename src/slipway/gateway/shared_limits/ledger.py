"""How many requests a gateway may accept for a holder of limits, so that all gateways together keep them. Pure.

A gateway reserves a part of what no gateway has used or reserved, reports it to the others, and accepts that many
requests without asking. Each exchange of counts renews the reservation. A gateway that does not answer is assumed to
use its equal part. Tokens are known after an answer only: answers in progress may exceed their limits.

HAProxy is the one that knows what it counted and what it may accept, so the ledger takes both over from there. It
forgets a holder only after HAProxy has.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

import msgspec

from slipway.gateway.routing.keys import Limits, limits_of
from slipway.gateway.shared_limits.usage import (
    MOST_HOLDERS,
    MOST_RECORDS,
    NONE,
    Days,
    Peer,
    Record,
    Report,
    Used,
    Window,
    frees,
)

_IDLE_SECONDS, _HURRIED_SECONDS = 60.0, 10.0
"""A holder without requests for this long loses its reservation, and its entry; the latter where there are many."""
_EAGER_SECONDS = 2.0
"""How long after a request a gateway counts as one that wants more."""
_GONE_SECONDS = 70.0
"""How long the last minute of a gateway that has gone counts."""
_IDLE_PART = 4
"""A gateway without requests of a holder reserves this much less."""
_MOST_OTHERS = 500
"""Holders without any change that one round looks at. The next round looks at the next ones."""


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

    def text(self) -> str:
        """As limits.lua reads it."""
        return ":".join("-" if field is None else str(field) for field in self)

    @property
    def until(self) -> tuple[int, int]:
        """What HAProxy may accept, by the limits per minute and per day."""
        return self.minute_until or 0, self.day_until or 0


class Granted(NamedTuple):
    """A grant for an entry of HAProxy's."""

    holder: str
    birth: str
    grant: Grant


class Own:
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
        """The same that it is to accept once all others know that."""
        self.claim = 0
        """Version of the last raise of a plan."""
        self.demand = 0
        """Version when a request came or waited that others have to know of before a last rest is given away."""

    @property
    def reserved(self) -> tuple[int, int]:
        """Requests that others must expect, by the limits per minute and per day."""
        minute, day = (max(until, planned) for until, planned in zip(self.until, self.planned, strict=True))
        return max(minute - self.requests, 0), max(day - self.requests, 0)


class Saved(msgspec.Struct, frozen=True):
    """What a restarted control process continues with."""

    instance: str
    day: str
    days: dict[str, dict[str, tuple[int, int]]]
    minutes: dict[str, tuple[int, int]] = {}
    entries: dict[str, tuple[str, int]] = {}
    """Birth and requests of HAProxy's entries, as counted."""


class Ledger:
    """All that a gateway knows of the use of limits."""

    def __init__(self, address: str, instance: str, epoch: str) -> None:
        self.address, self.instance, self.epoch = address, instance, epoch
        self.days = Days()
        self.holders: dict[str, Own] = {}
        self.peers: dict[str, Peer] = {}
        """By address."""
        self.others: tuple[str, ...] = ()
        """Addresses of all other gateways that count."""
        self._gone: list[Peer] = []
        self.limits: Mapping[str, Limits] = {}
        """By the name of the key or subject, of those that have any."""
        self.version = 0
        """Grows with each change."""
        self._claim = 0
        """As Own.claim, of all holders."""
        self._used: dict[str, int] = {}
        """Version of each other process that the last grants took into account."""
        self._using: dict[str, int] = {}
        """The same of the grants that are on their way to HAProxy."""
        self._kept: frozenset[str] = frozenset()
        """Addresses for which the last grants kept an equal part."""
        self._changes: dict[tuple[str, str], int] = {}
        """Version of each record's last change, in ascending order."""
        self._touched: set[str] = set()
        """Holders whose grants may change, as something new is known of them."""
        self._turn: list[str] = []
        """Holders that rounds have still to look at before they begin again."""

    # Own use

    def begin_day(self, now: float) -> None:
        """Ends the day if another one has begun, by Unix time. Other gateways report theirs from the beginning."""
        if self.days.begin(now):
            self._changes = {key: version for key, version in self._changes.items() if key[0] == self.instance}
            for peer in self.peers.values():
                peer.version, peer.complete = 0, False

    def observe(
        self,
        now: float,
        holder: str,
        birth: str,
        requests: int,
        *,
        waiting: bool = False,
        until: tuple[int, int] = (0, 0),
    ) -> None:
        """Takes over HAProxy's entry. A new birth means that its number of requests began again at zero."""
        own = self._own(holder)
        if own.birth != birth:
            own.birth, own.requests, own.sent, own.eager, own.active = birth, 0, None, False, now
            own.planned = (0, 0)
        used = requests > own.requests or waiting
        demands = used and (not own.eager or (waiting and not own.waiting))
        self.count(now, holder, Used(max(requests - own.requests, 0), 0))
        own.requests, own.until, own.waiting = max(requests, own.requests), until, waiting
        if used:
            own.active, own.eager = now, True
        self._change(self.instance, holder)
        if demands:
            own.demand = self.version

    def count(self, now: float, holder: str, used: Used) -> None:
        """Adds to the own use. That of the day counts for holders with a limit per day."""
        limits = limits_of(self.limits, holder)
        if used == NONE or limits is None:
            return
        own = self._own(holder)
        own.total = own.total.plus(used)
        own.window.add(now, used)
        if limits.requests_day or limits.tokens_day:
            self.days.raise_to(self.instance, holder, self.days.of(self.instance, holder).plus(used))
        self._change(self.instance, holder)

    def _own(self, holder: str) -> Own:
        own = self.holders.get(holder)
        if own is None:
            own = self.holders[holder] = Own(self.version + 1)
        return own

    def due(self) -> list[str]:
        """Holders to look at in this round: those of which something new is known, and some of the others in turn.

        What is not looked at keeps its grant, and what was reserved with it.
        """
        due, self._touched = self._touched, set()
        if not self._turn:
            self._turn = list(self.holders)
        due.update(self._turn[-_MOST_OTHERS:])
        del self._turn[-_MOST_OTHERS:]
        return [holder for holder in due if holder in self.holders]

    def age(self, now: float, due: Iterable[str]) -> list[tuple[str, str, int]]:
        """Ends what lasts a moment. Returns entries that HAProxy may drop: holder, birth, and requests as counted.

        What they used of the day remains.
        """
        idle = _IDLE_SECONDS if len(self.holders) <= MOST_HOLDERS // 2 else _HURRIED_SECONDS
        drops = []
        for holder in due:
            own = self.holders[holder]
            eager = own.eager and now - own.active <= _EAGER_SECONDS
            waiting = own.waiting and own.active == now
            if (eager, waiting) != (own.eager, own.waiting):
                own.eager, own.waiting = eager, waiting
                self._change(self.instance, holder)
            if own.birth and now - own.active > idle:
                drops.append((holder, own.birth, own.requests))
            elif not own.birth and own.window.used(now) == NONE:
                del self.holders[holder]
                self._change(self.instance, holder)
        self._trim()
        return drops

    def forget(self, dropped: Iterable[tuple[str, str]]) -> None:
        """HAProxy has no longer these entries (holder and birth)."""
        for holder, birth in dropped:
            own = self.holders.get(holder)
            if own is not None and own.birth == birth:
                own.birth, own.requests, own.sent = "", 0, None
                own.until = own.planned = (0, 0)
                self._change(self.instance, holder)

    def _trim(self) -> None:
        """Keeps the memory bounded: for uses of the day, and for changes without one."""

        def part(holder: str, used: Used) -> float:
            limits = limits_of(self.limits, holder) or Limits()
            return max(
                used.requests / limits.requests_day if limits.requests_day else 0.0,
                used.tokens / limits.tokens_day if limits.tokens_day else 0.0,
            )

        for key in self.days.trim(part):
            self._changes.pop(key, None)
        if len(self._changes) > self.days.size + 2 * MOST_HOLDERS:
            self._changes = {
                key: version
                for key, version in self._changes.items()
                if any(self.days.of(*key)) or (key[0] == self.instance and key[1] in self.holders)
            }

    # Exchange

    def _change(self, instance: str, holder: str) -> None:
        self.version += 1
        self._changes.pop((instance, holder), None)
        self._changes[instance, holder] = self.version
        self._touched.add(holder)

    def report(
        self, now: float, epoch: str, since: int, *, asker: str = "", address: str = "", complete: bool
    ) -> Report:
        """The answer to a gateway that has all changes up to `since` of the process `epoch`.

        `asker`, `address`: its own process and address. `complete`: it also gets what gateways counted that it can ask
        itself.
        """
        since = since if epoch == self.epoch else 0
        live = set() if complete or not since else {peer.instance for peer in self.peers.values() if peer.fresh}
        keys = []
        for key, version in reversed(self._changes.items()):
            if version <= since:
                break
            if key[0] not in live:
                keys.append((key, version))
        page = keys[-MOST_RECORDS:][::-1]
        more = len(keys) > len(page)
        records = tuple(self._record(now, *key) for key, _unused in page)
        version = page[-1][1] if more else self.version
        seen = None if address in self._kept and not self._hears(address) else self._used.get(asker, 0)
        return Report(self.instance, self.epoch, self.days.day, version, seen, more, records)

    def _hears(self, address: str) -> bool:
        return address in self.peers and self.peers[address].fresh

    def _record(self, now: float, instance: str, holder: str) -> Record:
        day = self.days.of(instance, holder)
        own = self.holders.get(holder)
        if instance != self.instance or own is None:
            return Record(instance, holder, day=day)
        minute = own.window.used(now)
        return Record(instance, holder, own.born, own.total, minute, day, own.reserved, own.eager, own.waiting)

    def hear(self, now: float, address: str, report: Report) -> None:
        """Takes over what a gateway reports. Records that cannot be right are ignored."""
        if report.instance == self.instance:
            raise ValueError("it answers as this gateway itself")
        peer = self.peers.get(address)
        if peer is None or (peer.instance, peer.epoch) != (report.instance, report.epoch):
            # A restarted process reports the last minute of the previous one.
            if peer is not None and peer.instance != report.instance:
                self._leave(now, peer)
            peer = self.peers[address] = Peer(report.instance, report.epoch)
        if not peer.fresh:
            # Our last report may have said that an equal part is kept for it, and it may be about to use that.
            self.version += 1
            self._claim = self.version
        peer.heard, peer.fresh = now, True
        peer.version, peer.complete = report.version, peer.complete or not report.more
        peer.seen = report.seen
        peer.make_room(now, len(report.records))
        for record in filter(lambda one: one.valid, report.records):
            self._touched.add(record.holder)
            if record.instance == report.instance:
                peer.take(now, record)
            same_day = report.day == self.days.day and any(record.day)
            if same_day and self.days.raise_to(record.instance, record.holder, Used(*record.day)):
                self._change(record.instance, record.holder)

    def fail(self, address: str) -> bool:
        """A gateway does not answer. Returns whether that is news. The others may not have its last counts."""
        peer = self.peers.get(address)
        if peer is None or not peer.fresh:
            return False
        peer.fresh = False
        self._relay(peer.instance)
        return True

    def keep(self, now: float, others: Iterable[str]) -> None:
        """Names the other gateways that count. The last minute of one that has left counts until it is over."""
        self.others = tuple(others)
        for address in self.peers.keys() - set(self.others):
            self._leave(now, self.peers.pop(address))
        self._gone = [peer for peer in self._gone if now - peer.heard <= _GONE_SECONDS]

    def _leave(self, now: float, peer: Peer) -> None:
        peer.fresh = False
        self._relay(peer.instance)
        if now - peer.heard <= _GONE_SECONDS:
            self._gone.append(peer)

    def _relay(self, instance: str) -> None:
        for holder in list(self.days.holders(instance)):
            self._change(instance, holder)

    # Grants

    def grants(self, now: float, day_ends: float, due: Collection[str]) -> list[Granted]:
        """New grants for these holders. They are on their way: others have to expect what the old or the new one
        allows, until they are settled.
        """
        self._using = {peer.epoch: peer.version for peer in self.peers.values() if peer.fresh}
        self._kept = frozenset(address for address in self.others if not self._hears(address))
        changed = []
        for holder in due:
            own = self.holders.get(holder)
            grant = self._grant(now, day_ends, holder, own) if own is not None and own.birth else None
            if own is not None and grant is not None and grant != own.sent:
                changed.append((own, Granted(holder, own.birth, grant)))
        for own, granted in changed:
            self._promise(own, granted)
        return [granted for _own, granted in changed]

    def settle(self, granted: Iterable[Granted]) -> None:
        """HAProxy has the grants: others may rely on it that these took into account what they had reported."""
        for holder, birth, grant in granted:
            own = self.holders.get(holder)
            if own is not None and own.birth == birth:
                own.sent = grant
                self._reserve(holder, own, grant.until)
        self._used = self._using

    def _promise(self, own: Own, granted: Granted) -> None:
        until = granted.grant.until
        own.sent = None
        self._reserve(granted.holder, own, (max(until[0], own.until[0]), max(until[1], own.until[1])))

    def _reserve(self, holder: str, own: Own, until: tuple[int, int]) -> None:
        if own.until != until:
            own.until = until
            self._change(self.instance, holder)

    def _grant(self, now: float, day_ends: float, holder: str, own: Own) -> Grant | None:
        """What the gateway may accept for a holder of an entry; None if it has no limits."""
        limits = limits_of(self.limits, holder)
        if limits is None:
            return None
        minute, day, theirs = own.window.used(now), self.days.total(holder), NONE
        for peer in (*self.peers.values(), *self._gone):
            theirs = theirs.plus(peer.minute(now, holder))
        times = self._frees(holder, own, minute.plus(theirs), limits)
        grant = Grant(minute_frees=times[0], tokens_free=times[1], day_ends=int(day_ends))
        if limits.requests:
            rest = limits.requests - minute.requests - theirs.requests
            until = self._until(now, holder, own, limits.requests, rest, minute.requests, 0)
            alone = self._part(limits.requests, self.address)
            grant = grant._replace(alone=alone, minute_until=until, minute_zero=own.requests + max(rest, 0))
        if limits.tokens:
            grant = grant._replace(tokens_rest=limits.tokens - minute.tokens - theirs.tokens)
        if limits.requests_day:
            rest, used = limits.requests_day - day.requests, self.days.of(self.instance, holder).requests
            until = self._until(now, holder, own, limits.requests_day, rest, used, 1)
            grant = grant._replace(day_until=until, day_zero=own.requests + max(rest, 0))
        if limits.tokens_day:
            grant = grant._replace(day_tokens_rest=limits.tokens_day - day.tokens)
        return grant

    def _part(self, limit: int, address: str) -> int:
        """The equal part of a gateway. All parts together are the limit, also where it is smaller than their number."""
        whole, rest = divmod(limit, len(self.others) + 1)
        return whole + (sum(other < address for other in (self.address, *self.others)) < rest)

    def _until(self, now: float, holder: str, own: Own, limit: int, rest: int, used: int, index: int) -> int:
        """The number up to which HAProxy may accept requests: as planned, once all others know the plan.

        Makes the next plan. `used`: what this gateway has used itself of the limit.
        """
        free = max(rest - self._taken(now, holder, limit, index), 0)
        held = max(min(own.until[index] - own.requests, free), 0)
        planned = max(min(own.planned[index] - own.requests, free), 0)
        if not self._know(max(own.claim, self._claim)):
            self._plan(holder, own, index, planned)
            return own.requests + min(held, free)
        share = self._share(holder, own, free, planned)
        if any(peer.seen is None for peer in self.peers.values() if peer.fresh):
            # It hears nothing from here, keeps the equal part, and expects no more.
            share = min(share, max(held, self._part(limit, self.address) - used, 0))
        self._plan(holder, own, index, share)
        return own.requests + (min(share, planned) if any(map(self._hears, self.others)) else share)

    def _plan(self, holder: str, own: Own, index: int, number: int) -> None:
        until = own.requests + number
        if until == own.planned[index]:
            return
        raised = until > own.planned[index]
        own.planned = (until, own.planned[1]) if index == 0 else (own.planned[0], until)
        self._change(self.instance, holder)
        if raised:
            own.claim = self.version

    def _know(self, version: int) -> bool:
        """Whether all others know what was changed here up to a version, and the answers show what they then did.

        Otherwise two gateways could reserve the same rest. Those that keep an equal part for this one need not know.
        """
        return all(peer.seen is None or peer.seen >= version for peer in self.peers.values() if peer.fresh)

    def _taken(self, now: float, holder: str, limit: int, index: int) -> int:
        """What others may use beside what they have used: they reserved it, or they do not answer."""
        taken = 0
        for address in self.others:
            peer = self.peers.get(address)
            record = peer.of(holder) if peer else None
            reserved = record.reserved[index] if record else 0
            if peer is None or not peer.fresh:
                used = 0
                if peer is not None:
                    used = (peer.minute(now, holder) if index == 0 else self.days.of(peer.instance, holder)).requests
                reserved = max(reserved, self._part(limit, address) - used)
            taken += reserved
        return taken

    def _share(self, holder: str, own: Own, free: int, planned: int) -> int:
        """The part of what is free that this gateway plans to use: all parts together are at most that."""
        number = len(self.others) + 1
        if free >= number:
            return free // (number if own.eager or number == 1 else number * _IDLE_PART)
        if not self._know(own.demand):
            return planned
        # A rest that cannot be divided goes to the first gateways where a request waits for it, or else arrived.
        others = [(peer.instance, peer.of(holder)) for peer in self.peers.values() if peer.fresh]
        names = {name for name, record in others if record and record.waiting} | (
            {self.instance} if own.waiting else set()
        )
        if not names:
            names = {name for name, record in others if record and record.eager} | (
                {self.instance} if own.eager else set()
            )
        return int(self.instance in sorted(names)[:free])

    def _frees(self, holder: str, own: Own, used: Used, limits: Limits) -> tuple[int, int]:
        """When the last minute has room again: after the limit of requests was reached, and for tokens."""
        windows = [own.window, *(peer.window(holder) for peer in (*self.peers.values(), *self._gone))]
        requests = max(used.requests - (limits.requests or 0) + 1, 1) if limits.requests else 0
        tokens = used.tokens - limits.tokens + 1 if limits.tokens else 0
        return frees(windows, 0, requests), frees(windows, 1, tokens)

    # Restarts

    def save(self, now: float) -> Saved:
        """What outlives this process."""
        own = self.holders.items()
        return Saved(
            self.instance,
            self.days.day,
            {one: {name: (*used,) for name, used in self.days.holders(one).items()} for one in self.days.instances()},
            {name: (*used,) for name, used in ((name, one.window.used(now)) for name, one in own) if any(used)},
            {name: (one.birth, one.requests) for name, one in own if one.birth},
        )

    def restore(self, now: float, saved: Saved) -> None:
        """Continues the current day after a restart, which has begun. The last minute of the previous process counts as
        used now. What HAProxy may still accept, it says itself.
        """
        self.instance = saved.instance
        if saved.day == self.days.day:
            for instance, counts in saved.days.items():
                for holder, used in counts.items():
                    self.days.raise_to(instance, holder, Used(*used))
                    self._change(instance, holder)
        for holder, minute in saved.minutes.items():
            own = self._own(holder)
            own.window.add(now, Used(*minute))
            own.total = Used(*minute)
            self._change(self.instance, holder)
        for holder, (birth, requests) in saved.entries.items():
            own = self._own(holder)
            own.birth, own.requests, own.active = birth, requests, now
            self._change(self.instance, holder)
