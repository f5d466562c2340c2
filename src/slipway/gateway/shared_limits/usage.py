"""What holders of limits have used: requests and tokens of the last minute and of the day, at all gateways. Pure.

Each gateway counts its own use. Counts only grow, and belong to one gateway each, so that a repeated, late or
indirect report changes nothing. A holder is an API key or the subject of a token.
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
"""Holders of one gateway's reports that a gateway remembers."""
MOST_DAILY = 60_000
"""Counts of the day, one for each holder and gateway, that a gateway remembers."""
MOST_INSTANCES = 256
"""Gateways of one day."""
MOST_RECORDS = 2_000
"""Records of one report. What does not fit follows in the next one."""
MOST_BYTES = 2 << 20
"""Of one report."""
_BACK = dt.timedelta(hours=1)
_HOLDER = re.compile(r"[!-~]{1,300}")
_INSTANCE = re.compile(r"[0-9a-f]{32}")
Count = Annotated[int, msgspec.Meta(ge=0, le=1 << 53)]


class Used(NamedTuple):
    """Requests and tokens."""

    requests: int = 0
    tokens: int = 0

    def plus(self, other: tuple[int, int]) -> Used:
        """The sum."""
        return Used(self.requests + other[0], self.tokens + other[1])

    def minus(self, other: tuple[int, int]) -> Used:
        """The difference, at least zero."""
        return Used(max(self.requests - other[0], 0), max(self.tokens - other[1], 0))

    def minimum(self, other: tuple[int, int]) -> Used:
        """The smaller number of each."""
        return Used(min(self.requests, other[0]), min(self.tokens, other[1]))

    def maximum(self, other: tuple[int, int]) -> Used:
        """The larger number of each."""
        return Used(max(self.requests, other[0]), max(self.tokens, other[1]))


NONE = Used()


class Record(msgspec.Struct, frozen=True, array_like=True):
    """What one gateway counted for one holder."""

    instance: str
    holder: str
    born: Count = 0
    """Differs for each time that the total began at zero."""
    total: tuple[Count, Count] = (0, 0)
    minute: tuple[Count, Count] = (0, 0)
    """In the last minute."""
    day: tuple[Count, Count] = (0, 0)
    """On the day of the report."""
    reserved: tuple[Count, Count] = (0, 0)
    """Requests that the gateway may still accept without a further exchange, by the limits per minute and per day."""
    eager: bool = False
    """Whether requests arrived there a moment ago."""
    waiting: bool = False
    """Whether a request waits there."""

    @property
    def valid(self) -> bool:
        """Whether its names are possible ones."""
        return bool(_HOLDER.fullmatch(self.holder) and _INSTANCE.fullmatch(self.instance))


class Report(msgspec.Struct, frozen=True):
    """What a gateway answers another one."""

    instance: str
    epoch: str
    """Differs for each process. Its totals and versions begin at zero."""
    day: str
    version: Count
    """The next request names it, to receive what changed since."""
    acknowledged: Count | None = msgspec.field(name="seen")
    """Version of the asking process that the last grants took into account. None: they kept its equal part for it, as
    it does not answer."""
    more: bool
    """Whether records are missing for which this report has no room."""
    records: Annotated[tuple[Record, ...], msgspec.Meta(max_length=MOST_RECORDS)]


class Window:
    """What was used in the last minute, in slots of a second."""

    def __init__(self) -> None:
        self.slots: deque[tuple[int, Used]] = deque()
        """Seconds, and what was used in them. The oldest come first."""
        self._sum = NONE

    def add(self, now: float, used: Used) -> None:
        """Counts it as used now."""
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
        """What was used in the last minute. A slot leaves the window as a whole."""
        slots = self.slots
        while slots and slots[0][0] + 1 + MINUTE <= now:
            self._sum = self._sum.minus(slots.popleft()[1])
        return self._sum


def sum_windows(windows: Iterable[Window], now: float) -> Used:
    """What was used in the last minute of all these windows together."""
    requests = tokens = 0
    for window in windows:
        used = window.used(now)
        requests, tokens = requests + used.requests, tokens + used.tokens
    return Used(requests, tokens)


def free_at(windows: Iterable[Window], index: int, needed: int) -> int:
    """When so much of the requests (0) or tokens (1) will have left these windows, in Unix time; 0 for nothing."""
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
    """What holders used on the current day, by gateway."""

    def __init__(self) -> None:
        self.day = ""
        self._counts: dict[str, dict[str, Used]] = {}
        self._totals: dict[str, Used] = {}
        self.size = 0

    def begin(self, now: float) -> bool:
        """Ends the previous day if this Unix time belongs to another one. Returns whether it does.

        A clock that is set back over midnight by less than an hour does not begin the previous day again.
        """
        time = dt.datetime.fromtimestamp(now, dt.UTC)
        day = time.date().isoformat()
        if day == self.day or (day < self.day <= (time + _BACK).date().isoformat()):
            return False
        self.day, self._counts, self._totals, self.size = day, {}, {}, 0
        return True

    def total(self, holder: str) -> Used:
        """Of all gateways."""
        return self._totals.get(holder, NONE)

    def used_by(self, instance: str, holder: str) -> Used:
        """Of one gateway."""
        return self._counts.get(instance, {}).get(holder, NONE)

    def raise_count(self, instance: str, holder: str, used: Used) -> bool:
        """Takes over a gateway's count where it is larger. Returns whether it is."""
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
        """The counts of one gateway."""
        return self._counts.get(instance, {})

    def instances(self) -> tuple[str, ...]:
        """The gateways with counts."""
        return tuple(self._counts)

    def trim(self, part: Callable[[str, Used], float]) -> list[tuple[str, str]]:
        """Forgets a tenth if there are too many: holders that have used the smallest `part` of their limits.

        Returns gateway and holder of each.
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
    """What is known of another gateway's process."""

    def __init__(self, instance: str, epoch: str) -> None:
        self.instance, self.epoch = instance, epoch
        self.version, self.complete = 0, False
        self.fresh = False
        """Whether it answered the last time."""
        self.reported_at = 0.0
        self.acknowledged: int | None = 0
        """As in its last report."""
        self.records: dict[str, Record] = {}
        self.windows: dict[str, Window] = {}
        """The last minute of each holder."""

    def make_room(self, now: float, number: int) -> None:
        """Forgets holders that nothing depends on if so many new ones could be too many."""
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
        """Takes a record of the peer's use. What is new in it is at most what was used in the last minute."""
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
        """What it used in the last minute."""
        window = self.windows.get(holder)
        return window.used(now) if window else NONE
