"""Use of limits: requests and tokens of each holder in the last minute and on the current day, at all gateways. Pure.

A holder is an API key or the subject of a token. Each gateway counts its own use. A count belongs to one gateway and
only increases, so a repeated, late or indirect report does no harm.
"""

from __future__ import annotations

import datetime as dt
import heapq
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Annotated, NamedTuple

import msgspec

MINUTE = 60.0
MOST_HOLDERS = 20_000
"""Maximum number of holders that a gateway remembers from the reports of another gateway."""
MOST_DAILY = 60_000
"""Maximum number of daily counts that a gateway remembers. There is one count for each holder and gateway."""
MOST_INSTANCES = 256
"""Maximum number of gateways with counts on one day."""
MOST_RECORDS = 2_000
"""Maximum number of records in one report. Further records follow in the next report."""
MOST_BYTES = 2 << 20
"""Maximum size of one report in bytes."""
_BACK = dt.timedelta(hours=1)
_HOLDER = re.compile(r"[!-~]{1,300}")
_INSTANCE = re.compile(r"[0-9a-f]{32}")
Count = Annotated[int, msgspec.Meta(ge=0, le=1 << 53)]


class Used(NamedTuple):
    """The numbers of used requests and used tokens."""

    requests: int = 0
    tokens: int = 0

    def plus(self, other: tuple[int, int]) -> Used:
        """Return the sums of the requests and of the tokens."""
        return Used(self.requests + other[0], self.tokens + other[1])

    def minus(self, other: tuple[int, int]) -> Used:
        """Return the differences of the requests and of the tokens, but at least zero."""
        return Used(max(self.requests - other[0], 0), max(self.tokens - other[1], 0))

    def minimum(self, other: tuple[int, int]) -> Used:
        """Return the smaller number of requests, and the smaller number of tokens."""
        return Used(min(self.requests, other[0]), min(self.tokens, other[1]))

    def maximum(self, other: tuple[int, int]) -> Used:
        """Return the larger number of requests, and the larger number of tokens."""
        return Used(max(self.requests, other[0]), max(self.tokens, other[1]))


NONE = Used()


class Record(msgspec.Struct, frozen=True, array_like=True):
    """The counts of one gateway for one holder. If another gateway reports them, only ``day`` is set."""

    instance: str
    holder: str
    born: Count = 0
    """Version of the sender's ledger at which ``total`` last started at zero."""
    total: tuple[Count, Count] = (0, 0)
    minute: tuple[Count, Count] = (0, 0)
    """Requests and tokens in the last minute."""
    day: tuple[Count, Count] = (0, 0)
    """Requests and tokens on the day of the report."""
    reserved: tuple[Count, Count] = (0, 0)
    """Numbers of requests that the gateway may accept without another exchange, for the limits per minute and per
    day."""
    eager: bool = False
    """Whether requests recently arrived at the gateway."""
    waiting: bool = False
    """Whether a request waits at the gateway."""

    @property
    def valid(self) -> bool:
        """Whether holder and instance have a valid format."""
        return bool(_HOLDER.fullmatch(self.holder) and _INSTANCE.fullmatch(self.instance))


class Report(msgspec.Struct, frozen=True):
    """The answer to another gateway's request: the counts of limits that changed since the version in the request."""

    instance: str
    epoch: str
    """Random ID of the gateway's process. Totals and versions start at zero in each process."""
    day: str
    version: Count
    """Version of this report. The next request contains it to get only later changes."""
    acknowledged: Count | None = msgspec.field(name="seen")
    """Version of the requesting gateway's report on which the last grants are based. 0 if there are no such grants.
    None if that gateway does not respond, so that the grants leave it its equal part."""
    more: bool
    """Whether further records did not fit in this report."""
    records: Annotated[tuple[Record, ...], msgspec.Meta(max_length=MOST_RECORDS)]


class Window:
    """The use in the last minute, in slots of one second."""

    def __init__(self) -> None:
        self.slots: deque[tuple[int, Used]] = deque()
        """Second (Unix time) and use of each slot, oldest slot first."""
        self._sum = NONE

    def add(self, now: float, used: Used) -> None:
        """Add requests and tokens that were used at the time ``now``."""
        if used == NONE:
            return
        second = int(now)
        if self.slots and self.slots[-1][0] >= second:
            second, before = self.slots.pop()
            self.slots.append((second, before.plus(used)))
        else:
            self.slots.append((second, used))
        self._sum = self._sum.plus(used)

    def used(self, now: float) -> Used:
        """Return the use in the last minute. Remove expired slots, but only as a whole."""
        slots = self.slots
        while slots and slots[0][0] + 1 + MINUTE <= now:
            self._sum = self._sum.minus(slots.popleft()[1])
        return self._sum


def sum_windows(windows: Iterable[Window], now: float) -> Used:
    """Return the total use of all windows in the last minute."""
    requests = tokens = 0
    for window in windows:
        used = window.used(now)
        requests, tokens = requests + used.requests, tokens + used.tokens
    return Used(requests, tokens)


def free_at(windows: Iterable[Window], index: int, needed: int) -> int:
    """Return the Unix time at which ``needed`` requests (``index`` 0) or tokens (``index`` 1) will have expired in the
    windows.

    If the windows contain fewer, return the time at which all will have expired. Return 0 if none are needed or the
    windows are empty.
    """
    if needed <= 0:
        return 0
    time = 0
    for second, used in sorted(slot for window in windows for slot in window.slots):
        needed -= used[index]
        time = second + 1 + int(MINUTE)
        if needed <= 0:
            break
    return time


class Days:
    """The use of each holder on the current day, for each gateway."""

    def __init__(self) -> None:
        self.day = ""
        """Date of the current day (ISO format, UTC); empty before the first day."""
        self._counts: dict[str, dict[str, Used]] = {}
        self._totals: dict[str, Used] = {}
        self.size = 0
        """Number of counts. There is one for each holder and gateway."""

    def begin(self, now: float) -> bool:
        """Start a new day if the Unix time ``now`` is in another day (UTC). Return whether a new day started.

        If a clock is set back past midnight by less than an hour, the previous day does not start again.
        """
        time = dt.datetime.fromtimestamp(now, dt.UTC)
        day = time.date().isoformat()
        if day == self.day or (day < self.day <= (time + _BACK).date().isoformat()):
            return False
        self.day, self._counts, self._totals, self.size = day, {}, {}, 0
        return True

    def total(self, holder: str) -> Used:
        """Return the use of a holder at all gateways."""
        return self._totals.get(holder, NONE)

    def used_by(self, instance: str, holder: str) -> Used:
        """Return the use of a holder at one gateway."""
        return self._counts.get(instance, {}).get(holder, NONE)

    def raise_count(self, instance: str, holder: str, used: Used) -> bool:
        """Raise the count of a holder at a gateway to ``used``, but never lower it. Ignore a new gateway if there are
        already ``MOST_INSTANCES``. Return whether the count changed."""
        if instance not in self._counts and len(self._counts) >= MOST_INSTANCES:
            return False
        counts = self._counts.setdefault(instance, {})
        before = counts.get(holder, NONE)
        after = before.maximum(used)
        if after == before:
            return False
        self.size += holder not in counts
        counts[holder] = after
        self._totals[holder] = self.total(holder).plus(after.minus(before))
        return True

    def holders(self, instance: str) -> Mapping[str, Used]:
        """Return the use at one gateway, by holder."""
        return self._counts.get(instance, {})

    def instances(self) -> tuple[str, ...]:
        """Return the instance IDs of the gateways with counts."""
        return tuple(self._counts)

    def trim(self, part: Callable[[str, Used], float]) -> list[tuple[str, str]]:
        """If there are too many counts, remove the tenth of the holders that have used the smallest part of their
        limits. Return the gateway and the holder of each removed count.

        ``part`` returns the used part of the limits, from a holder and its use.
        """
        if self.size <= MOST_DAILY:
            return []
        least = heapq.nsmallest(
            max(len(self._totals) // 10, 1), self._totals, key=lambda holder: part(holder, self._totals[holder])
        )
        return [entry for holder in least for entry in self._forget(holder)]

    def _forget(self, holder: str) -> Iterator[tuple[str, str]]:
        self._totals.pop(holder, None)
        for instance, counts in self._counts.items():
            if counts.pop(holder, None) is not None:
                self.size -= 1
                yield instance, holder


class Peer:
    """The last known state of another gateway's process."""

    def __init__(self, instance: str, epoch: str) -> None:
        self.instance, self.epoch = instance, epoch
        self.version, self.complete = 0, False
        """Version of the gateway's last report, and whether the gateway has sent all its records."""
        self.fresh = False
        """Whether the gateway answered the last request."""
        self.reported_at = 0.0
        """Time of the gateway's last report, in seconds of the steady clock."""
        self.acknowledged: int | None = 0
        """The field ``acknowledged`` of the gateway's last report."""
        self.records: dict[str, Record] = {}
        self.windows: dict[str, Window] = {}
        """Holder -> use in the last minute."""

    def make_room(self, now: float, number: int) -> None:
        """Remove idle holders if ``number`` new holders could exceed the limit ``MOST_HOLDERS``."""
        if len(self.records) + number <= MOST_HOLDERS:
            return
        idle = [
            holder
            for holder, record in self.records.items()
            if not any(record.reserved) and not any(self.used_last_minute(now, holder))
        ]
        for holder in idle:
            del self.records[holder], self.windows[holder]

    def add_record(self, now: float, record: Record) -> None:
        """Store a record of the peer's use, unless there are too many. Add the use since the previous record to the
        last minute, but at most the use that the record reports for the last minute. If there is no previous record
        with the same ``born``, add the latter."""
        before = self.records.get(record.holder)
        if before is None and len(self.records) >= MOST_HOLDERS:
            return
        new = Used(*record.minute)
        if before is not None and before.born == record.born:
            new = new.minimum(Used(*record.total).minus(before.total))
        self.records[record.holder] = record
        window = self.windows.get(record.holder)
        if window is None:
            window = self.windows[record.holder] = Window()
        window.add(now, new)

    def used_last_minute(self, now: float, holder: str) -> Used:
        """Return a holder's use at the peer in the last minute."""
        window = self.windows.get(holder)
        return window.used(now) if window else NONE
