"""Use of limits: requests and tokens of each holder in the last minute and on the day, at all gateways. Pure.

Each gateway counts its own use. A count belongs to one gateway and only increases, so a repeated, late or indirect
report changes nothing. A holder is an API key or the subject of a token.
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
"""Maximum holders that a gateway remembers from another gateway's reports."""
MOST_DAILY = 60_000
"""Maximum counts of the day that a gateway remembers: one for each holder and gateway."""
MOST_INSTANCES = 256
"""Maximum gateways of one day."""
MOST_RECORDS = 2_000
"""Maximum records of one report. The others follow in the next one."""
MOST_BYTES = 2 << 20
"""Maximum size of one report."""
_BACK = dt.timedelta(hours=1)
_HOLDER = re.compile(r"[!-~]{1,300}")
_INSTANCE = re.compile(r"[0-9a-f]{32}")
Count = Annotated[int, msgspec.Meta(ge=0, le=1 << 53)]


class Used(NamedTuple):
    """Used requests and tokens."""

    requests: int = 0
    tokens: int = 0

    def plus(self, other: tuple[int, int]) -> Used:
        """Returns the sum of both."""
        return Used(self.requests + other[0], self.tokens + other[1])

    def minus(self, other: tuple[int, int]) -> Used:
        """Returns the difference, at least zero."""
        return Used(max(self.requests - other[0], 0), max(self.tokens - other[1], 0))

    def minimum(self, other: tuple[int, int]) -> Used:
        """Returns the smaller number of each."""
        return Used(min(self.requests, other[0]), min(self.tokens, other[1]))

    def maximum(self, other: tuple[int, int]) -> Used:
        """Returns the larger number of each."""
        return Used(max(self.requests, other[0]), max(self.tokens, other[1]))


NONE = Used()


class Record(msgspec.Struct, frozen=True, array_like=True):
    """One gateway's counts for one holder."""

    instance: str
    holder: str
    born: Count = 0
    """Changes each time that the total restarts at zero."""
    total: tuple[Count, Count] = (0, 0)
    minute: tuple[Count, Count] = (0, 0)
    """Requests and tokens of the last minute."""
    day: tuple[Count, Count] = (0, 0)
    """Requests and tokens of the report's day."""
    reserved: tuple[Count, Count] = (0, 0)
    """Requests that the gateway may accept without another exchange, for the limits per minute and per day."""
    eager: bool = False
    """Whether requests recently arrived at the gateway."""
    waiting: bool = False
    """Whether a request waits at the gateway."""

    @property
    def valid(self) -> bool:
        """Whether holder and instance have a valid format."""
        return bool(_HOLDER.fullmatch(self.holder) and _INSTANCE.fullmatch(self.instance))


class Report(msgspec.Struct, frozen=True):
    """A gateway's report for another gateway."""

    instance: str
    epoch: str
    """Identifies the process. Totals and versions start at zero in each."""
    day: str
    version: Count
    """Version of this report. The next request contains it, to get the changes since then."""
    acknowledged: Count | None = msgspec.field(name="seen")
    """Version of the requesting process that the last grants took into account. None: that process does not respond, so
    they reserved its equal part."""
    more: bool
    """Whether further records did not fit in this report."""
    records: Annotated[tuple[Record, ...], msgspec.Meta(max_length=MOST_RECORDS)]


class Window:
    """Use in the last minute, in slots of a second."""

    def __init__(self) -> None:
        self.slots: deque[tuple[int, Used]] = deque()
        """Second and use of each slot. Oldest first."""
        self._sum = NONE

    def add(self, now: float, used: Used) -> None:
        """Adds use at the time ``now``."""
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
        """Returns the use in the last minute. Expired slots are removed as a whole."""
        slots = self.slots
        while slots and slots[0][0] + 1 + MINUTE <= now:
            self._sum = self._sum.minus(slots.popleft()[1])
        return self._sum


def sum_windows(windows: Iterable[Window], now: float) -> Used:
    """Returns the total use of all windows in the last minute."""
    requests = tokens = 0
    for window in windows:
        used = window.used(now)
        requests, tokens = requests + used.requests, tokens + used.tokens
    return Used(requests, tokens)


def free_at(windows: Iterable[Window], index: int, needed: int) -> int:
    """Returns the Unix time at which ``needed`` requests (index 0) or tokens (index 1) will have left these windows.

    Returns 0 if nothing is needed, or the windows are empty.
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
    """Use of each holder on the current day, by gateway."""

    def __init__(self) -> None:
        self.day = ""
        self._counts: dict[str, dict[str, Used]] = {}
        self._totals: dict[str, Used] = {}
        self.size = 0

    def begin(self, now: float) -> bool:
        """Starts a new day if this Unix time is in another day. Returns whether it is.

        A clock that is set back past midnight by less than an hour does not start the previous day again.
        """
        time = dt.datetime.fromtimestamp(now, dt.UTC)
        day = time.date().isoformat()
        if day == self.day or (day < self.day <= (time + _BACK).date().isoformat()):
            return False
        self.day, self._counts, self._totals, self.size = day, {}, {}, 0
        return True

    def total(self, holder: str) -> Used:
        """Returns the use at all gateways."""
        return self._totals.get(holder, NONE)

    def used_by(self, instance: str, holder: str) -> Used:
        """Returns the use at one gateway."""
        return self._counts.get(instance, {}).get(holder, NONE)

    def raise_count(self, instance: str, holder: str, used: Used) -> bool:
        """Sets a gateway's count if it is larger than the old one. Returns whether it is."""
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
        """Returns one gateway's counts by holder."""
        return self._counts.get(instance, {})

    def instances(self) -> tuple[str, ...]:
        """Returns the gateways with counts."""
        return tuple(self._counts)

    def trim(self, part: Callable[[str, Used], float]) -> list[tuple[str, str]]:
        """Removes a tenth of the holders if there are too many counts: those with the smallest ``part`` of their
        limits.

        ``part``: returns the used part of a holder's limits. Returns gateway and holder of each removed count.
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
    """The state of another gateway's process."""

    def __init__(self, instance: str, epoch: str) -> None:
        self.instance, self.epoch = instance, epoch
        self.version, self.complete = 0, False
        self.fresh = False
        """Whether it answered the last request."""
        self.reported_at = 0.0
        self.acknowledged: int | None = 0
        """The field ``acknowledged`` of its last report."""
        self.records: dict[str, Record] = {}
        self.windows: dict[str, Window] = {}
        """Use in the last minute, by holder."""

    def make_room(self, now: float, number: int) -> None:
        """Removes idle holders if ``number`` new ones may exceed the limit."""
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
        """Stores a record of the peer's use. New use is at most the record's use in the last minute."""
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
        """Returns the peer's use in the last minute."""
        window = self.windows.get(holder)
        return window.used(now) if window else NONE
