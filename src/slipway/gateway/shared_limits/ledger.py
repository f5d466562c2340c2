"""The ledger, which decides how many requests this gateway may accept. All gateways together enforce the limits of a
holder, which is an API key or a subject. Pure.

A gateway reserves a part of the requests that no gateway has used or reserved. It reports the reservation to the
others, and accepts that many requests without further messages. Each exchange of counts renews the reservation. A
gateway that does not respond is assumed to use its equal part. Tokens are counted after an answer, so answers in
progress may exceed the limits.

HAProxy has the true counts and grants, and the ledger copies both. The ledger forgets a holder only after HAProxy has
deleted the holder's entry.
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
"""Seconds without requests after which a holder loses its reservation and its entry in HAProxy. The second value
applies if there are many holders."""
_EAGER_SECONDS = 2.0
"""Seconds after a request during which a gateway is expected to get more requests of the same holder."""
_IDLE_PART = 4
"""Divisor for the reservation of a gateway at which no requests of the holder arrived recently."""
_MOST_CHANGED, _MOST_OTHERS = 1000, 200
"""Maximum number of changed holders, and of other holders, in one round. The next round continues with the next
holders."""


class Ledger:
    """The use, reservations and grants of all holders."""

    def __init__(self, address: str, instance: str, epoch: str) -> None:
        self.instance, self.epoch = instance, epoch
        self.days = Days()
        self.holders: dict[str, OwnUse] = {}
        self.gateways = Gateways(address)
        self.limits: Mapping[str, Limits] = {}
        """Name of the key or subject -> its limits, if it has any."""
        self.version = 0
        """Version of the ledger, which increases with each change."""
        self._claim = 0
        """Version at which a silent or new gateway last began to respond. All others must know it before a plan takes
        effect."""
        self._confirmed_versions: dict[str, int] = {}
        """Epoch of another gateway's process -> version of its report on which the last confirmed grants are based."""
        self._pending_versions: dict[str, int] = {}
        """Epoch of another gateway's process -> version of its report on which the unconfirmed grants are based."""
        self._silent_addresses: frozenset[str] = frozenset()
        """Addresses of the silent gateways for which the last grants reserved an equal part."""
        self._changes: dict[tuple[str, str], int] = {}
        """Instance and holder of a record -> version of its last change, in ascending order."""
        self._touched: dict[str, None] = {}
        """Holders with changes, for which new grants may be needed, in the order of the changes."""
        self._remaining: list[str] = []
        """Holders that the next rounds still have to process before they start with all holders again."""

    # Own use

    def begin_day(self, now: float) -> None:
        """Start a new day if the Unix time ``now`` is in another day. Other gateways then report all records again."""
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
        """Update a holder from its entry in HAProxy. A new birth means a new entry, whose number of requests started at
        zero. The parameters from ``birth`` on are the fields of ``HolderEntry``."""
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
        """Add ``used`` requests and tokens to this gateway's use. Ignore holders without limits. The use of the day is
        counted only for holders with a limit per day."""
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
        """Return the holders to process in this round: changed holders, and some of the other holders in turn.

        All other holders keep their grants and reservations.
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
        """Reset ``eager`` and ``waiting`` of the holders in ``due`` if they have expired, and forget holders with
        neither an entry in HAProxy nor use in the last minute. Return the idle entries, which HAProxy may delete, as
        tuples of the holder, the birth and the number of counted requests.

        The use of the day of deleted entries is kept.
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
        """Record that HAProxy no longer has the ``dropped`` entries, given by holder and birth."""
        for holder, birth in dropped:
            own = self.holders.get(holder)
            if own is not None and own.birth == birth:
                own.reset_entry("")
                self._change(self.instance, holder)

    def _trim(self) -> None:
        """Limit the memory for the use of the day, and for changes of holders without such use."""
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
        """Return the report for a gateway that already has all changes of the process ``epoch`` up to version
        ``since``.

        If ``epoch`` is not the epoch of this process, that gateway has none of its changes. ``asker`` is the epoch of
        the requesting process, and ``address`` its address. The report includes the counts of gateways that the
        requesting gateway can query itself only if ``complete`` is true, or if that gateway has no changes yet.
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
        """Merge the report of another gateway. Ignore invalid records. Raise ValueError if the report comes from
        this gateway itself."""
        if report.instance == self.instance:
            raise ValueError("it answers as this gateway itself")
        peer, before = self.gateways.update_peer(now, address, report)
        if before:
            self._relay(before)
        if not peer.fresh:
            # This gateway's last report may have left the other gateway an equal part, which it may still use.
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
        """Record that the gateway at ``address`` does not respond."""
        peer = self.gateways.peers.get(address)
        if peer is not None and peer.fresh:
            peer.fresh = False
            self._relay(peer)

    def set_gateways(self, now: float, others: Iterable[str]) -> None:
        """Set the addresses of the other gateways that share the limits, and relay the counts of removed gateways."""
        for peer in self.gateways.set_addresses(now, others):
            self._relay(peer)

    def _relay(self, peer: Peer) -> None:
        """Include the day's use of a gateway in the next reports, because other gateways can no longer query it."""
        for holder in list(self.days.holders(peer.instance)):
            self._change(peer.instance, holder)

    # Grants

    def build_grants(self, now: float, day_ends: float, due: Iterable[str]) -> list[HolderGrant]:
        """Return new grants for the holders in ``due`` whose grants change. ``day_ends`` is the Unix time at which the
        day ends.

        Until a grant is confirmed, HAProxy may have the old or the new grant. The reservation is therefore the larger
        of both.
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
        """Record that HAProxy has applied the grants. The next reports contain the versions on which they are
        based."""
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
        """Return the grant for a holder with an entry in HAProxy."""
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
        """Return the total number of requests at which HAProxy must stop accepting requests, and update the plan for
        the next grant.

        A plan takes effect when all other gateways know it. ``rest`` is the unused part of the limit at all gateways,
        and ``used`` the use at this gateway. ``index`` is 0 for a limit per minute, and 1 for a limit per day.
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
            # The other gateway gets no answers from this gateway, so it leaves this gateway only the equal part.
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
        """Return this gateway's share of the ``free`` requests. The shares of all gateways add up to at most ``free``.
        ``planned`` is the current plan, which remains while others do not know the demand."""
        number = self.gateways.number
        if free >= number:
            return free // (number if own.eager or number == 1 else number * _IDLE_PART)
        if not self.gateways.all_know(own.demand):
            return planned
        # With fewer free requests than gateways, one each goes to the first gateways at which a request waits, or
        # otherwise to those at which a request arrived recently.
        names = self._instances_with(holder, own, "waiting") or self._instances_with(holder, own, "eager")
        return int(self.instance in sorted(names)[:free])

    def _instances_with(self, holder: str, own: OwnUse, quality: str) -> set[str]:
        return self.gateways.instances_with(holder, quality) | ({self.instance} if getattr(own, quality) else set())

    # Restarts

    def save(self, now: float) -> Saved:
        """Return the state to save for the next process in this pod."""
        own = self.holders.items()
        return Saved(
            self.instance,
            self.days.day,
            {one: {name: (*used,) for name, used in self.days.holders(one).items()} for one in self.days.instances()},
            {name: (*used,) for name, used in ((name, one.window.used(now)) for name, one in own) if any(used)},
            {name: (one.birth, one.requests) for name, one in own if one.birth},
        )

    def restore(self, now: float, saved: Saved) -> None:
        """Restore the state of the previous process in this pod. The caller must call ``begin_day`` first.

        The use of the day is restored only if it is still the same day. The use in the last minute counts as used now.
        HAProxy itself reports its grants.
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
