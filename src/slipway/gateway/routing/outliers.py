"""Pods that answer errors or nothing while others of their model answer well: which are passed over, how long. Pure.

HAProxy's own ``observe layer7`` judges a pod by itself. A client whose requests an engine answers with 500 could so
take every pod of a model away from everybody. Here a pod has to differ from the others, which get the same requests.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from slipway.gateway.routing.balancing import server_name
from slipway.gateway.routing.table import Backend, RoutingTable

ERRORS = 5
"""Errors without a good answer between them, after which a pod is passed over."""
HEALTHY_SECONDS = 60.0
"""Another pod has to have answered well within this time."""
SILENT_SECONDS = 60.0
"""A pod that begins no answer for so long is passed over, where it has several requests and others answer many."""
_SILENT_REQUESTS = 4
_SILENT_RATIO = 10
"""Answers of each other pod for one request that the silent pod has."""
_FIRST_SECONDS, _LONGEST_SECONDS = 30.0, 480.0
_NEVER = float("-inf")
_PODS_PER_OUTLIER = 3
"""Of so many pods one may be passed over; of fewer one, too."""


class Count(NamedTuple):
    """What one server did since HAProxy knows it, in requests."""

    good: int
    """Answered with a status below 500."""
    bad: int
    """Answered with another status, or not at all though it took the connection."""
    active: int
    """That it has now."""


class Verdict(NamedTuple):
    """A server that is passed over from now on."""

    backend: str
    server: str
    seconds: float
    reason: str


class _Record:
    """What is remembered of one server."""

    def __init__(self, count: Count) -> None:
        self.count = count
        self.errors = 0
        self.last_good = _NEVER
        self.silent_since: float | None = None
        self.answered_then = 0
        """What all servers had answered when it fell silent."""
        self.until = _NEVER
        self.readmitted_at = _NEVER
        """When it was let back last."""
        self.seconds = 0.0

    @property
    def is_passed_over(self) -> bool:
        """Whether it is passed over."""
        return self.until > _NEVER

    def is_remembered(self, now: float) -> bool:
        """Whether it is kept while HAProxy has no such server: for a while after it was passed over, too, as HAProxy
        has it again only some time after it was let back."""
        return self.is_passed_over or now - self.readmitted_at <= _LONGEST_SECONDS


class Outliers:
    """Remembers the servers of models that have several."""

    def __init__(self) -> None:
        self._records: dict[str, dict[str, _Record]] = {}
        self._answered: dict[str, int] = {}

    def observe(self, now: float, counts: Mapping[str, Mapping[str, Count]]) -> list[Verdict]:
        """Takes new counts, by backend and server; backends without news may be left out. `now`: seconds."""
        return [verdict for backend, servers in counts.items() for verdict in self._judge(now, backend, servers)]

    def expire(self, now: float) -> bool:
        """Lets servers back whose time is over; whether there were any. A single error passes them over again."""
        expired = [
            one
            for records in self._records.values()
            for one in records.values()
            if one.is_passed_over and one.until <= now
        ]
        for record in expired:
            record.until, record.readmitted_at, record.errors, record.silent_since = _NEVER, now, ERRORS - 1, None
        return bool(expired)

    def filter(self, table: RoutingTable) -> RoutingTable:
        """The table without the endpoints that are passed over. Forgets what the table does not have."""
        for gone in self._records.keys() - table.backends.keys():
            del self._records[gone]
            self._answered.pop(gone, None)
        if not self.count_passed_over():
            return table
        return table._replace(
            backends={name: self._without_passed_over(backend) for name, backend in table.backends.items()}
        )

    def count_passed_over(self) -> dict[str, int]:
        """How many servers of each backend are, where any is."""
        counts = {name: sum(one.is_passed_over for one in records.values()) for name, records in self._records.items()}
        return {name: number for name, number in counts.items() if number}

    def _without_passed_over(self, backend: Backend) -> Backend:
        records = self._records.get(backend.name, {})
        names = {endpoint: server_name(endpoint) for endpoint in backend.endpoints}
        for gone in records.keys() - names.values():
            del records[gone]
        kept = tuple(
            endpoint for endpoint, name in names.items() if name not in records or not records[name].is_passed_over
        )
        return backend._replace(endpoints=kept or backend.endpoints)

    def _judge(self, now: float, backend: str, counts: Mapping[str, Count]) -> list[Verdict]:
        records = self._records.setdefault(backend, {})
        for gone in [name for name, one in records.items() if name not in counts and not one.is_remembered(now)]:
            del records[gone]
        for name, count in counts.items():
            self._update(now, backend, records.setdefault(name, _Record(count)), count)
        passed_over = sum(one.is_passed_over for one in records.values())
        verdicts = []
        for name in sorted(counts):
            record = records[name]
            healthy = [
                one
                for other, one in records.items()
                if other != name
                and not one.is_passed_over
                and not one.errors
                and now - one.last_good <= HEALTHY_SECONDS
            ]
            reason = (
                self._find_fault(now, backend, record, len(healthy)) if healthy and not record.is_passed_over else ""
            )
            if reason and passed_over < max(1, len(records) // _PODS_PER_OUTLIER):
                passed_over += 1
                record.seconds = min(max(2 * record.seconds, _FIRST_SECONDS), _LONGEST_SECONDS)
                record.until = now + record.seconds
                verdicts.append(Verdict(backend, name, record.seconds, reason))
        return verdicts

    def _update(self, now: float, backend: str, record: _Record, count: Count) -> None:
        before = record.count
        if count.good < before.good or count.bad < before.bad:  # a server made anew
            before = Count(0, 0, 0)
        good, bad = count.good - before.good, count.bad - before.bad
        record.count = count
        self._answered[backend] = self._answered.get(backend, 0) + good
        if good:
            record.errors, record.last_good, record.seconds = 0, now, 0.0
        else:
            record.errors += bad
        if good or bad or count.active < _SILENT_REQUESTS:
            record.silent_since = None
        elif record.silent_since is None:
            record.silent_since, record.answered_then = now, self._answered[backend]

    def _find_fault(self, now: float, backend: str, record: _Record, healthy: int) -> str:
        """Why a server is to be passed over; empty: it is not."""
        if record.errors >= ERRORS:
            return f"its last {record.errors} responses were errors"
        if record.silent_since is None or now - record.silent_since < SILENT_SECONDS:
            return ""
        answered = self._answered[backend] - record.answered_then
        if answered < _SILENT_RATIO * record.count.active * healthy:
            return ""
        return f"it has {record.count.active} requests but no response for {now - record.silent_since:.0f} s"
