"""Outlier detection: passes over pods that return errors or nothing while other pods of the model succeed. Pure.

HAProxy's own ``observe layer7`` considers each pod in isolation. A client whose requests cause status 500 could then
disable every pod of a model. Here, a pod must differ from the other pods, which get the same kind of requests.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from slipway.gateway.routing.balancing import server_name
from slipway.gateway.routing.table import Backend, RoutingTable

ERRORS = 5
"""A pod is passed over after this many errors without a successful answer between them."""
HEALTHY_SECONDS = 60.0
"""Another pod must have answered successfully within this time."""
SILENT_SECONDS = 60.0
"""A pod with several requests is passed over if it starts no answer for this long while others answer many."""
_SILENT_REQUESTS = 4
_SILENT_RATIO = 10
"""Required answers of each other pod, for each request of the silent pod."""
_FIRST_SECONDS, _LONGEST_SECONDS = 30.0, 480.0
_NEVER = float("-inf")
_PODS_PER_OUTLIER = 3
"""One of this many pods may be passed over. With fewer pods, also one."""


class Count(NamedTuple):
    """Requests of one server since it was added to HAProxy."""

    good: int
    """Requests answered with a status below 500."""
    bad: int
    """Requests answered with another status, or not answered although the server accepted the connection."""
    active: int
    """Requests in flight."""


class Verdict(NamedTuple):
    """A server that is now passed over, and for how long."""

    backend: str
    server: str
    seconds: float
    reason: str


class _Record:
    """The history of one server."""

    def __init__(self, count: Count) -> None:
        self.count = count
        self.errors = 0
        self.last_good = _NEVER
        self.silent_since: float | None = None
        self.answered_then = 0
        """Number of answers of all servers when this one became silent."""
        self.until = _NEVER
        self.readmitted_at = _NEVER
        """When it was last readmitted."""
        self.seconds = 0.0

    @property
    def is_passed_over(self) -> bool:
        """Whether the server is passed over."""
        return self.until > _NEVER

    def is_remembered(self, now: float) -> bool:
        """Whether to keep the record while HAProxy has no such server.

        It is also kept for some time after readmission, because HAProxy adds the server only some time later.
        """
        return self.is_passed_over or now - self.readmitted_at <= _LONGEST_SECONDS


class Outliers:
    """Tracks the servers of models with several servers."""

    def __init__(self) -> None:
        self._records: dict[str, dict[str, _Record]] = {}
        self._answered: dict[str, int] = {}

    def observe(self, now: float, counts: Mapping[str, Mapping[str, Count]]) -> list[Verdict]:
        """Processes new counts by backend and server. Returns the servers that are now passed over.

        Backends without changes may be omitted. ``now``: time in seconds.
        """
        return [verdict for backend, servers in counts.items() for verdict in self._judge(now, backend, servers)]

    def expire(self, now: float) -> bool:
        """Readmits servers whose time is over.

        Returns whether there were any. A single error passes them over again.
        """
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
        """Returns the table without endpoints that are passed over. Forgets removed backends and endpoints."""
        for removed in self._records.keys() - table.backends.keys():
            del self._records[removed]
            self._answered.pop(removed, None)
        if not self.count_passed_over():
            return table
        return table._replace(
            backends={name: self._without_passed_over(backend) for name, backend in table.backends.items()}
        )

    def count_passed_over(self) -> dict[str, int]:
        """Returns the number of servers that are passed over, for each backend that has any."""
        counts = {name: sum(one.is_passed_over for one in records.values()) for name, records in self._records.items()}
        return {name: number for name, number in counts.items() if number}

    def _without_passed_over(self, backend: Backend) -> Backend:
        records = self._records.get(backend.name, {})
        names = {endpoint: server_name(endpoint) for endpoint in backend.endpoints}
        for removed in records.keys() - names.values():
            del records[removed]
        endpoints = tuple(
            endpoint for endpoint, name in names.items() if name not in records or not records[name].is_passed_over
        )
        return backend._replace(endpoints=endpoints or backend.endpoints)

    def _judge(self, now: float, backend: str, counts: Mapping[str, Count]) -> list[Verdict]:
        records = self._records.setdefault(backend, {})
        for removed in [name for name, one in records.items() if name not in counts and not one.is_remembered(now)]:
            del records[removed]
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
        if count.good < before.good or count.bad < before.bad:  # the server was recreated
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
        """Returns why to pass over a server; empty if it works."""
        if record.errors >= ERRORS:
            return f"its last {record.errors} responses were errors"
        if record.silent_since is None or now - record.silent_since < SILENT_SECONDS:
            return ""
        answered = self._answered[backend] - record.answered_then
        if answered < _SILENT_RATIO * record.count.active * healthy:
            return ""
        return f"it has {record.count.active} requests but no response for {now - record.silent_since:.0f} s"
