"""The ledger: how many requests this gateway may accept, so that all gateways together enforce a holder's limits. Pure.

A gateway reserves a part of the requests that no gateway has used or reserved, reports it to the others, and accepts
that many requests without further messages. Each exchange of counts renews the reservation. A gateway that does not
respond is assumed to use its equal part. Tokens are counted after an answer, so answers in progress may exceed the
limits.

HAProxy has the true counts and grants, so the ledger copies both from it. It forgets a holder only after HAProxy has.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import islice

from slipway.gateway.routing.keys import Limits, get_limits
from slipway.gateway.shared_limits.gateways import Gateways
from slipway.gateway.shared_limits.holders import Grant, HolderGrant, OwnUse, Saved
from slipway.gateway.shared_limits.usage import (
    MOST_HOLDERS,
    MOST_RECORDS,
    NONE,
    Days,
    Peer,
    Record,
    Report,
    Used,
    free_at,
    sum_windows,
)

_IDLE_SECONDS, _HURRIED_SECONDS = 60.0, 10.0
"""A holder without requests for this long loses its reservation and its entry. The second time applies if there are
many holders."""
_EAGER_SECONDS = 2.0
"""How long a gateway is expected to need more requests after one."""
_IDLE_PART = 4
"""A gateway without recent requests of a holder reserves this many times less."""
_MOST_CHANGED, _MOST_OTHERS = 1000, 200
"""Maximum holders in one round: changed ones, and others. The next round continues with the next ones."""


class Ledger:
    """The use, reservations and grants of all holders of limits."""

    def __init__(self, address: str, instance: str, epoch: str) -> None:
        self.instance, self.epoch = instance, epoch
        self.days = Days()
        self.holders: dict[str, OwnUse] = {}
        self.gateways = Gateways(address)
        self.limits: Mapping[str, Limits] = {}
        """Limits by the name of the key or subject, if it has any."""
        self.version = 0
        """Increases with each change."""
        self._claim = 0
        """Like OwnUse.claim, for all holders."""
        self._confirmed_versions: dict[str, int] = {}
        """For each other process, the version of its report on which the last confirmed grants are based."""
        self._pending_versions: dict[str, int] = {}
        """Like ``_confirmed_versions``, for the grants that HAProxy has not confirmed yet."""
        self._silent_addresses: frozenset[str] = frozenset()
        """Addresses for which the last grants reserved an equal part."""
        self._changes: dict[tuple[str, str], int] = {}
        """Version of each record's last change, in ascending order."""
        self._touched: dict[str, None] = {}
        """Holders with changes, whose grants may change. Oldest change first."""
        self._remaining: list[str] = []
        """Holders that the next rounds process before they start again."""

    # Own use

    def begin_day(self, now: float) -> None:
        """Starts a new day if ``now``, in Unix time, is in another one. Then other gateways report all records
        again."""
        if self.days.begin(now):
            self._changes = {key: version for key, version in self._changes.items() if key[0] == self.instance}
            for peer in self.gateways.peers.values():
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
        """Updates a holder from HAProxy's entry. A new birth means that its number of requests restarted at zero."""
        own = self._get_own(holder)
        if own.birth != birth:
            own.reset_entry(birth)
            own.active = now
        used = requests > own.requests or waiting
        demands = used and (not own.eager or (waiting and not own.waiting))
        self.count(now, holder, Used(max(requests - own.requests, 0), 0))
        if used:
            own.active, own.eager = now, True
        if used or (until, waiting) != (own.until, own.waiting):
            own.requests, own.until, own.waiting = max(requests, own.requests), until, waiting
            self._change(self.instance, holder)
        if demands:
            own.demand = self.version
        self._touch(holder)

    def count(self, now: float, holder: str, used: Used) -> None:
        """Adds to this gateway's use. The day's use is only counted for holders with a limit per day."""
        limits = get_limits(self.limits, holder)
        if used == NONE or limits is None:
            return
        own = self._get_own(holder)
        own.total = own.total.plus(used)
        own.window.add(now, used)
        if limits.requests_day or limits.tokens_day:
            self.days.raise_count(self.instance, holder, self.days.used_by(self.instance, holder).plus(used))
        self._change(self.instance, holder)

    def _get_own(self, holder: str) -> OwnUse:
        own = self.holders.get(holder)
        if own is None:
            own = self.holders[holder] = OwnUse(self.version + 1)
        return own

    def next_holders(self) -> list[str]:
        """Returns the holders of this round: those with changes, and some of the others in turn.

        Other holders keep their grant and its reservation.
        """
        due = dict.fromkeys(islice(self._touched, _MOST_CHANGED))
        for holder in due:
            del self._touched[holder]
        if not self._remaining:
            self._remaining = list(self.holders)
        due |= dict.fromkeys(self._remaining[-_MOST_OTHERS:])
        del self._remaining[-_MOST_OTHERS:]
        return [holder for holder in due if holder in self.holders]

    def expire(self, now: float, due: Iterable[str]) -> list[tuple[str, str, int]]:
        """Resets expired states. Returns the entries that HAProxy may delete: holder, birth and counted requests.

        Their use of the day is kept.
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

    def confirm_drops(self, dropped: Iterable[tuple[str, str]]) -> None:
        """Records that HAProxy no longer has these entries (holder and birth)."""
        for holder, birth in dropped:
            own = self.holders.get(holder)
            if own is not None and own.birth == birth:
                own.reset_entry("")
                self._change(self.instance, holder)

    def _trim(self) -> None:
        """Limits the memory for the day's use, and for changes without one."""
        for key in self.days.trim(self._used_share):
            self._changes.pop(key, None)
        if len(self._changes) > self.days.size + 2 * MOST_HOLDERS:
            self._changes = {
                key: version
                for key, version in self._changes.items()
                if any(self.days.used_by(*key)) or (key[0] == self.instance and key[1] in self.holders)
            }

    def _used_share(self, holder: str, used: Used) -> float:
        limits = get_limits(self.limits, holder) or Limits()
        requests = used.requests / limits.requests_day if limits.requests_day else 0.0
        return max(requests, used.tokens / limits.tokens_day if limits.tokens_day else 0.0)

    # Exchange

    def _change(self, instance: str, holder: str) -> None:
        self.version += 1
        self._changes.pop((instance, holder), None)
        self._changes[instance, holder] = self.version
        self._touch(holder)

    def _touch(self, holder: str) -> None:
        if holder in self.holders:
            self._touched[holder] = None

    def build_report(
        self, now: float, epoch: str, since: int, *, asker: str = "", address: str = "", complete: bool
    ) -> Report:
        """Returns the report for a gateway that has all changes of the process ``epoch`` up to ``since``.

        ``asker``, ``address``: the other gateway's process and address. ``complete``: the report includes the counts of
        gateways that it can query itself.
        """
        since = since if epoch == self.epoch else 0
        live = set() if complete or not since else {peer.instance for peer in self.gateways.fresh}
        keys = []
        for key, version in reversed(self._changes.items()):
            if version <= since:
                break
            if key[0] not in live:
                keys.append((key, version))
        page = keys[-MOST_RECORDS:][::-1]
        more = len(keys) > len(page)
        records = tuple(self._build_record(now, *key) for key, _unused in page)
        version = page[-1][1] if more else self.version
        is_silent = address in self._silent_addresses and not self.gateways.is_fresh(address)
        acknowledged = None if is_silent else self._confirmed_versions.get(asker, 0)
        return Report(self.instance, self.epoch, self.days.day, version, acknowledged, more, records)

    def _build_record(self, now: float, instance: str, holder: str) -> Record:
        day = self.days.used_by(instance, holder)
        own = self.holders.get(holder)
        if instance != self.instance or own is None:
            return Record(instance, holder, day=day)
        minute = own.window.used(now)
        return Record(instance, holder, own.born, own.total, minute, day, own.reserved, own.eager, own.waiting)

    def merge_report(self, now: float, address: str, report: Report) -> None:
        """Merges a gateway's report. Invalid records are ignored. Raises ValueError if it is this gateway's own."""
        if report.instance == self.instance:
            raise ValueError("it answers as this gateway itself")
        peer, before = self.gateways.update_peer(now, address, report)
        if before:
            self._relay(before)
        if not peer.fresh:
            # Our last report may have announced an equal part for this gateway, which it may be about to use.
            self.version += 1
            self._claim = self.version
        peer.reported_at, peer.fresh = now, True
        peer.version, peer.complete = report.version, peer.complete or not report.more
        peer.acknowledged = report.acknowledged
        peer.make_room(now, len(report.records))
        for record in filter(lambda one: one.valid, report.records):
            self._touch(record.holder)
            if record.instance == report.instance:
                peer.add_record(now, record)
            same_day = report.day == self.days.day and any(record.day)
            if same_day and self.days.raise_count(record.instance, record.holder, Used(*record.day)):
                self._change(record.instance, record.holder)

    def mark_silent(self, address: str) -> None:
        """Records that a gateway does not respond."""
        peer = self.gateways.peers.get(address)
        if peer is not None and peer.fresh:
            peer.fresh = False
            self._relay(peer)

    def set_gateways(self, now: float, others: Iterable[str]) -> None:
        """Sets the addresses of the other gateways that share the limits."""
        for peer in self.gateways.set_addresses(now, others):
            self._relay(peer)

    def _relay(self, peer: Peer) -> None:
        """Reports the day's use of a gateway to the others, which may not have it and can no longer query it."""
        for holder in list(self.days.holders(peer.instance)):
            self._change(peer.instance, holder)

    # Grants

    def build_grants(self, now: float, day_ends: float, due: Iterable[str]) -> list[HolderGrant]:
        """Returns new grants for these holders.

        Until they are confirmed, others must expect that HAProxy has the old or the new grant, whichever allows more.
        """
        self._pending_versions = {peer.epoch: peer.version for peer in self.gateways.fresh}
        self._silent_addresses = self.gateways.silent
        changed = []
        for holder in due:
            own, limits = self.holders.get(holder), get_limits(self.limits, holder)
            if own is None or not own.birth or limits is None:
                continue
            grant = self._grant(now, day_ends, holder, own, limits)
            if grant != own.last_grant:
                changed.append((own, HolderGrant(holder, own.birth, grant)))
        for own, granted in changed:
            self._promise(own, granted)
        return [granted for _own, granted in changed]

    def confirm_grants(self, granted: Iterable[HolderGrant]) -> None:
        """Records that HAProxy has the grants. The next report tells others which of their versions these used."""
        for holder, birth, grant in granted:
            own = self.holders.get(holder)
            if own is not None and own.birth == birth:
                own.last_grant = grant
                self._reserve(holder, own, grant.until)
        self._confirmed_versions = self._pending_versions

    def _promise(self, own: OwnUse, granted: HolderGrant) -> None:
        until = granted.grant.until
        own.last_grant = None
        self._reserve(granted.holder, own, (max(until[0], own.until[0]), max(until[1], own.until[1])))

    def _reserve(self, holder: str, own: OwnUse, until: tuple[int, int]) -> None:
        if own.until != until:
            own.until = until
            self._change(self.instance, holder)

    def _grant(self, now: float, day_ends: float, holder: str, own: OwnUse, limits: Limits) -> Grant:
        """Returns the grant for a holder with an entry in HAProxy."""
        windows = [own.window, *self.gateways.windows(holder)] if limits.requests or limits.tokens else []
        minute, day = sum_windows(windows, now), self.days.total(holder)
        alone = until = zero = tokens_rest = day_until = day_zero = day_tokens_rest = None
        minute_frees = tokens_free = 0
        if limits.requests:
            rest, used = limits.requests - minute.requests, own.window.used(now).requests
            alone = self.gateways.equal_part(limits.requests, self.gateways.address)
            until = self._accept_until(now, holder, own, limits.requests, rest, used, 0)
            zero = own.requests + max(rest, 0)
            minute_frees = free_at(windows, 0, max(1 - rest, 1))
        if limits.tokens:
            tokens_rest = limits.tokens - minute.tokens
            tokens_free = free_at(windows, 1, 1 - tokens_rest)
        if limits.requests_day:
            rest, used = limits.requests_day - day.requests, self.days.used_by(self.instance, holder).requests
            day_until = self._accept_until(now, holder, own, limits.requests_day, rest, used, 1)
            day_zero = own.requests + max(rest, 0)
        if limits.tokens_day:
            day_tokens_rest = limits.tokens_day - day.tokens
        return Grant(
            alone,
            until,
            zero,
            minute_frees,
            tokens_rest,
            tokens_free,
            day_until,
            day_zero,
            day_tokens_rest,
            int(day_ends),
        )

    def _accept_until(self, now: float, holder: str, own: OwnUse, limit: int, rest: int, used: int, index: int) -> int:
        """Returns the number up to which HAProxy may accept requests, and makes the next plan.

        A plan takes effect when all other gateways know it. ``used``: this gateway's own use of the limit.
        """
        others = self.gateways
        free = max(rest - others.reserved_by_others(now, holder, limit, index, self.days), 0)
        held = max(min(own.until[index] - own.requests, free), 0)
        planned = max(min(own.planned[index] - own.requests, free), 0)
        if not others.all_know(max(own.claim, self._claim)):
            self._plan(holder, own, index, planned)
            return own.requests + held
        share = self._share(holder, own, free, planned)
        if others.any_misses_this:
            # The other gateway gets no answers from here, so it only expects the equal part.
            share = min(share, max(held, others.equal_part(limit, others.address) - used, 0))
        self._plan(holder, own, index, share)
        return own.requests + (min(share, planned) if any(map(others.is_fresh, others.addresses)) else share)

    def _plan(self, holder: str, own: OwnUse, index: int, number: int) -> None:
        until = own.requests + number
        if until == own.planned[index]:
            return
        raised = until > own.planned[index]
        own.planned = (until, own.planned[1]) if index == 0 else (own.planned[0], until)
        self._change(self.instance, holder)
        if raised:
            own.claim = self.version

    def _share(self, holder: str, own: OwnUse, free: int, planned: int) -> int:
        """Returns this gateway's share of the free requests. The shares of all gateways together are at most
        ``free``."""
        number = self.gateways.number
        if free >= number:
            return free // (number if own.eager or number == 1 else number * _IDLE_PART)
        if not self.gateways.all_know(own.demand):
            return planned
        # An indivisible rest goes to the first gateways where a request waits, or otherwise where one arrived recently.
        names = self._instances_with(holder, own, "waiting") or self._instances_with(holder, own, "eager")
        return int(self.instance in sorted(names)[:free])

    def _instances_with(self, holder: str, own: OwnUse, quality: str) -> set[str]:
        return self.gateways.instances_with(holder, quality) | ({self.instance} if getattr(own, quality) else set())

    # Restarts

    def save(self, now: float) -> Saved:
        """Returns the state to save for the next process."""
        own = self.holders.items()
        return Saved(
            self.instance,
            self.days.day,
            {one: {name: (*used,) for name, used in self.days.holders(one).items()} for one in self.days.instances()},
            {name: (*used,) for name, used in ((name, one.window.used(now)) for name, one in own) if any(used)},
            {name: (one.birth, one.requests) for name, one in own if one.birth},
        )

    def restore(self, now: float, saved: Saved) -> None:
        """Restores the state of the previous process after begin_day.

        Its last minute counts as used now. HAProxy itself reports what it may still accept.
        """
        self.instance = saved.instance
        if saved.day == self.days.day:
            for instance, counts in saved.days.items():
                for holder, used in counts.items():
                    self.days.raise_count(instance, holder, Used(*used))
                    self._change(instance, holder)
        for holder, minute in saved.minutes.items():
            own = self._get_own(holder)
            own.window.add(now, Used(*minute))
            own.total = Used(*minute)
            self._change(self.instance, holder)
        for holder, (birth, requests) in saved.entries.items():
            own = self._get_own(holder)
            own.birth, own.requests, own.active = birth, requests, now
            self._change(self.instance, holder)
