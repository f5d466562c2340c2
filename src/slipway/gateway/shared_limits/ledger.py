"""How many requests a gateway may accept for a holder of limits, so that all gateways together keep them. Pure.

A gateway reserves a part of what no gateway has used or reserved, reports it to the others, and accepts that many
requests without asking. Each exchange of counts renews the reservation. A gateway that does not answer is assumed to
use its equal part. Tokens are known after an answer only: answers in progress may exceed their limits.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
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

IDLE_SECONDS = 60.0
"""A holder without requests for this long loses its reservation, and its entry."""
_EAGER_SECONDS = 2.0
"""How long after a request a gateway counts as one that wants more."""
_GONE_SECONDS = 70.0
"""How long the last minute of a gateway that has gone counts."""
_IDLE_PART = 4
"""A gateway without requests of a holder reserves this much less."""


class Grant(NamedTuple):
    """What limits.lua needs to decide about a holder's requests. None: there is no such limit."""

    alone: int | None = None
    """Requests per minute if the control process does not answer."""
    minute_until: int | None = None
    """The gateway's number of requests up to which it may accept more."""
    minute_zero: int | None = None
    """The number at which the limit is reached, if no other gateway accepts any."""
    minute_frees: int = 0
    """Unix time at which the last minute has room again."""
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


class Entry:
    """A holder whose requests reach this gateway. The numbers of requests are those of HAProxy's counter."""

    def __init__(self, birth: str) -> None:
        self.birth = birth
        self.requests = 0
        self.active = 0.0
        """When it was used last."""
        self.eager = False
        """Whether requests arrived a moment ago."""
        self.waiting = False
        """Whether one waits for a grant."""
        self.until = (0, 0)
        """What HAProxy may accept, by the limits per minute and per day."""
        self.sent: Grant | None = None
        self.claim = 0
        """Version of the last change that others have to know before more is reserved."""


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

    def __init__(self, instance: str, epoch: str) -> None:
        self.instance, self.epoch = instance, epoch
        self.days = Days()
        self.entries: dict[str, Entry] = {}
        self.peers: dict[str, Peer] = {}
        """By address."""
        self._gone: list[Peer] = []
        self._totals: dict[str, Used] = {}
        self._windows: dict[str, Window] = {}
        self.limits: Mapping[str, Limits] = {}
        """By the name of the key or subject, of those that have any."""
        self.version = 0
        """Grows with each change."""
        self._used: dict[str, int] = {}
        """Version of each other process that the last grants took into account."""
        self._changes: dict[tuple[str, str], int] = {}
        """Version of each record's last change, in ascending order."""

    # Own use

    def begin_day(self, day: str) -> None:
        """Ends the day if another one has begun. Other gateways report theirs from the beginning."""
        if self.days.begin(day):
            self._changes = {key: version for key, version in self._changes.items() if key[0] == self.instance}
            for peer in self.peers.values():
                peer.version, peer.complete = 0, False

    def observe(self, now: float, holder: str, birth: str, requests: int, *, waiting: bool = False) -> None:
        """Takes over HAProxy's counter of requests. A new birth means that it began again at zero."""
        entry = self.entries.get(holder)
        if entry is None or entry.birth != birth:
            self.entries[holder] = entry = Entry(birth)
            entry.claim = self.version + 1
        if (waiting and not entry.waiting) or not entry.eager:
            entry.claim = self.version + 1
        self.count(now, holder, Used(max(requests - entry.requests, 0), 0))
        entry.requests, entry.active = max(requests, entry.requests), now
        entry.eager, entry.waiting = True, waiting
        self._change(self.instance, holder)
        entry.claim = min(entry.claim, self.version)

    def count(self, now: float, holder: str, used: Used) -> None:
        """Adds to the own use. That of the day counts for holders with a limit per day."""
        limits = limits_of(self.limits, holder)
        if used == NONE or limits is None:
            return
        self._totals[holder] = self._totals.get(holder, NONE).plus(used)
        self._windows.setdefault(holder, Window()).add(now, used)
        if limits.requests_day or limits.tokens_day:
            self.days.raise_to(self.instance, holder, self.days.of(self.instance, holder).plus(used))
        self._change(self.instance, holder)

    def age(self, now: float) -> list[tuple[str, str]]:
        """Drops holders that were not used for a minute. Returns HAProxy's entries (holder and birth) to be dropped.

        What they used of the day remains.
        """
        for holder, entry in self.entries.items():
            eager = entry.eager and now - entry.active <= _EAGER_SECONDS
            waiting = entry.waiting and entry.active == now
            if (eager, waiting) != (entry.eager, entry.waiting):
                entry.eager, entry.waiting = eager, waiting
                self._change(self.instance, holder)
        idle = [holder for holder, entry in self.entries.items() if now - entry.active > IDLE_SECONDS]
        dropped = [(holder, self.entries.pop(holder).birth) for holder in idle]
        for holder in idle:
            self._change(self.instance, holder)
        for holder in [name for name, window in self._windows.items() if not any(window.used(now))]:
            if holder not in self.entries:
                del self._windows[holder], self._totals[holder]
        self._trim()
        return dropped

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
                if any(self.days.of(*key)) or (key[0] == self.instance and key[1] in self._windows)
            }

    # Exchange

    def _change(self, instance: str, holder: str) -> None:
        self.version += 1
        self._changes.pop((instance, holder), None)
        self._changes[instance, holder] = self.version

    def report(self, now: float, epoch: str, since: int, *, asker: str = "", complete: bool) -> Report:
        """The answer to a gateway that has all changes up to `since` of the process `epoch`. `asker`: its own process.

        `complete`: it also gets what gateways counted that it can ask itself.
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
        return Report(self.instance, self.epoch, self.days.day, version, self._used.get(asker, 0), more, records)

    def _record(self, now: float, instance: str, holder: str) -> Record:
        day = self.days.of(instance, holder)
        if instance != self.instance:
            return Record(instance, holder, day=day)
        window, entry = self._windows.get(holder), self.entries.get(holder)
        minute = window.used(now) if window else NONE
        reserved = tuple(max(until - entry.requests, 0) for until in entry.until) if entry else (0, 0)
        total = self._totals.get(holder, NONE)
        eager, waiting = (entry.eager, entry.waiting) if entry else (False, False)
        return Record(instance, holder, total, minute, day, (reserved[0], reserved[1]), eager, waiting)

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
        peer.heard, peer.fresh = now, True
        peer.version, peer.complete = report.version, peer.complete or not report.more
        peer.seen = report.seen
        for record in filter(lambda one: one.valid, report.records):
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

    def keep(self, now: float, addresses: Collection[str]) -> None:
        """Drops gateways that are no longer among these. Their last minute counts until it is over."""
        for address in self.peers.keys() - set(addresses):
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

    def grant(self, now: float, day_ends: float, holder: str, addresses: Collection[str]) -> Grant | None:
        """What the gateway may accept for a holder of an entry. `addresses`: of all other gateways.

        None if it has no limits.
        """
        limits, entry = limits_of(self.limits, holder), self.entries[holder]
        if limits is None:
            return None
        number = len(addresses) + 1
        window = self._windows.get(holder)
        minute = window.used(now) if window else NONE
        day = self.days.total(holder)
        theirs = NONE
        for peer in (*self.peers.values(), *self._gone):
            theirs = theirs.plus(peer.minute(now, holder))
        times = self._frees(holder, minute.plus(theirs), limits)
        grant = Grant(minute_frees=times[0], tokens_free=times[1], day_ends=int(day_ends))
        if limits.requests:
            rest = limits.requests - minute.requests - theirs.requests
            free = rest - self._taken(now, holder, addresses, limits.requests, 0)
            until = entry.requests + self._share(free, holder, 0, number)
            alone = max(limits.requests // number, 1)
            grant = grant._replace(alone=alone, minute_until=until, minute_zero=entry.requests + max(rest, 0))
        if limits.tokens:
            grant = grant._replace(tokens_rest=limits.tokens - minute.tokens - theirs.tokens)
        if limits.requests_day:
            rest = limits.requests_day - day.requests
            free = rest - self._taken(now, holder, addresses, limits.requests_day, 1)
            until = entry.requests + self._share(free, holder, 1, number)
            grant = grant._replace(day_until=until, day_zero=entry.requests + max(rest, 0))
        if limits.tokens_day:
            grant = grant._replace(day_tokens_rest=limits.tokens_day - day.tokens)
        return grant

    def finish(self) -> None:
        """All grants are made: others may rely on it that these took into account what they had reported."""
        self._used = {peer.epoch: peer.version for peer in self.peers.values() if peer.fresh}

    def _may_raise(self, entry: Entry) -> bool:
        """Whether all others know the last change of a reservation here, and the answers show what they then did.

        Otherwise two gateways could reserve the same rest.
        """
        return all(peer.seen >= entry.claim for peer in self.peers.values() if peer.fresh)

    def _taken(self, now: float, holder: str, addresses: Collection[str], limit: int, index: int) -> int:
        """What others may use beside what they have used: they reserved it, or they do not answer."""
        taken = 0
        for address in addresses:
            peer = self.peers.get(address)
            record = peer.of(holder) if peer else None
            reserved = record.reserved[index] if record else 0
            if peer is None or not peer.fresh:
                used = 0
                if peer is not None:
                    used = (peer.minute(now, holder) if index == 0 else self.days.of(peer.instance, holder)).requests
                reserved = max(reserved, limit // (len(addresses) + 1) - used)
            taken += reserved
        return taken

    def _share(self, free: int, holder: str, index: int, number: int) -> int:
        """The part of what is free that this gateway reserves: all parts together are at most that."""
        entry = self.entries[holder]
        if free <= 0:
            return 0
        if number == 1:
            return free
        if not self._may_raise(entry):
            return max(min(entry.until[index] - entry.requests, free), 0)
        if free >= number:
            return free // (number if entry.eager else number * _IDLE_PART)
        # A rest that cannot be divided goes to the first gateways where a request waits for it, or else arrived.
        others = [(peer.instance, peer.of(holder)) for peer in self.peers.values() if peer.fresh]
        names = {name for name, record in others if record and record.waiting} | (
            {self.instance} if entry.waiting else set()
        )
        if not names:
            names = {name for name, record in others if record and record.eager} | (
                {self.instance} if entry.eager else set()
            )
        return int(self.instance in sorted(names)[:free])

    def _frees(self, holder: str, used: Used, limits: Limits) -> tuple[int, int]:
        """When the last minute has room for one more request, and for tokens."""
        windows = [peer.window(holder) for peer in (*self.peers.values(), *self._gone)]
        windows.append(self._windows.get(holder) or Window())
        needs = [
            used[index] - limit + 1 if limit else 0 for index, limit in enumerate((limits.requests, limits.tokens))
        ]
        return frees(windows, 0, needs[0]), frees(windows, 1, needs[1])

    def promise(self, holder: str, grant: Grant) -> None:
        """HAProxy is about to get the grant: from now on, others have to expect what it or the previous one allows."""
        entry = self.entries[holder]
        minute, day = _until(grant)
        raised = minute > entry.until[0] or day > entry.until[1]
        self._reserve(holder, (max(minute, entry.until[0]), max(day, entry.until[1])))
        if raised:
            entry.claim = self.version

    def settle(self, holder: str, birth: str, grant: Grant) -> None:
        """HAProxy has the grant."""
        entry = self.entries.get(holder)
        if entry is not None and entry.birth == birth:
            entry.sent = grant
            self._reserve(holder, _until(grant))

    def _reserve(self, holder: str, until: tuple[int, int]) -> None:
        if self.entries[holder].until != until:
            self.entries[holder].until = until
            self._change(self.instance, holder)

    # Restarts

    def save(self, now: float) -> Saved:
        """What outlives this process."""
        return Saved(
            self.instance,
            self.days.day,
            {one: {name: (*used,) for name, used in self.days.holders(one).items()} for one in self.days.instances()},
            {name: (*window.used(now),) for name, window in self._windows.items()},
            {name: (entry.birth, entry.requests) for name, entry in self.entries.items()},
        )

    def restore(self, now: float, saved: Saved) -> None:
        """Continues after a restart. What the previous process counted of the last minute counts as used now."""
        self.begin_day(saved.day)
        if saved.day == self.days.day:
            for instance, counts in saved.days.items():
                for holder, used in counts.items():
                    self.days.raise_to(instance, holder, Used(*used))
                    self._change(instance, holder)
        for holder, minute in saved.minutes.items():
            self._windows.setdefault(holder, Window()).add(now, Used(*minute))
            self._totals[holder] = Used(*minute)
        for holder, (birth, requests) in saved.entries.items():
            entry = self.entries[holder] = Entry(birth)
            entry.requests, entry.active = requests, now


def _until(grant: Grant) -> tuple[int, int]:
    return grant.minute_until or 0, grant.day_until or 0
