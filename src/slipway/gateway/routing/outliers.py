"""Outlier detection: skips pods that return errors or do not answer while other pods of the model succeed. Pure.

HAProxy's own ``observe layer7`` considers each pod in isolation. A client whose requests cause status 500 could
therefore disable every pod of a model. This module skips a pod only if it differs from the other pods, which get the
same kind of requests.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from slipway.gateway.routing.balancing import server_name
from slipway.gateway.routing.table import Backend, RoutingTable

ERRORS = 5
"""Number of consecutive errors after which a pod is skipped."""
HEALTHY_SECONDS = 60.0
"""Seconds within which another pod must have answered successfully for a pod to be skipped."""
SILENT_SECONDS = 60.0
"""Seconds after which a pod is skipped if it has several requests but starts no answer, while other pods answer
many."""
_SILENT_REQUESTS = 4
_SILENT_RATIO = 10
"""Number of successful answers that each healthy pod must have given on average, per open request of a silent pod."""
_FIRST_SECONDS, _LONGEST_SECONDS = 30.0, 480.0
_NEVER = float("-inf")
_PODS_PER_OUTLIER = 3
"""Minimum number of pods per skipped pod. With fewer pods, one pod may still be skipped."""


class Count(NamedTuple):
    """The numbers of requests of one server since it was added to HAProxy."""

    good: int
    """Requests answered with a status below 500."""
    bad: int
    """Requests answered with status 500 or higher, or not answered although the server accepted the connection."""
    active: int
    """Requests in flight."""


class Verdict(NamedTuple):
    """A server to skip, the number of seconds to skip it, and the reason."""

    backend: str
    server: str
    seconds: float
    reason: str


class _Record:
    """The history of the answers of one server."""

    def __init__(self, count: Count) -> None:
        self.count = count
        self.errors = 0
        self.last_good = _NEVER
        self.silent_since: float | None = None
        self.answered_then = 0
        """Number of answers of all servers at the time when this server became silent."""
        self.until = _NEVER
        self.readmitted_at = _NEVER
        """Time at which the server was last readmitted, in seconds."""
        self.seconds = 0.0

    @property
    def is_passed_over(self) -> bool:
        """Whether the server is skipped at present."""
        return self.until > _NEVER

    def is_remembered(self, now: float) -> bool:
        """Whether to keep the record while HAProxy does not have the server.

        The record is also kept for some time after readmission, because HAProxy adds the server only later.
        """
        return self.is_passed_over or now - self.readmitted_at <= _LONGEST_SECONDS


class Outliers:
    """The histories of the servers of models with several servers."""

    def __init__(self) -> None:
        self._records: dict[str, dict[str, _Record]] = {}
        self._answered: dict[str, int] = {}

    def observe(self, now: float, counts: Mapping[str, Mapping[str, Count]]) -> list[Verdict]:
        """Process new counts by backend name and server name. Return the servers that are newly skipped.

        Backends without changes may be omitted. ``now`` is a time in seconds.
        """
        return [verdict for backend, servers in counts.items() for verdict in self._judge(now, backend, servers)]

    def expire(self, now: float) -> bool:
        """Readmit servers that have been skipped long enough. Return whether there were any.

        A single further error suffices to skip a readmitted server again.
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
        """Return the table without skipped endpoints, but with all endpoints of a backend if all of them are skipped.
        Forget removed backends, and removed endpoints if any endpoint is skipped."""
        for removed in self._records.keys() - table.backends.keys():
            del self._records[removed]
            self._answered.pop(removed, None)
        if not self.count_passed_over():
            return table
        return table._replace(
            backends={name: self._without_passed_over(backend) for name, backend in table.backends.items()}
        )

    def count_passed_over(self) -> dict[str, int]:
        """Return the number of skipped servers, by backend name. Omit backends without skipped servers."""
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
        """Return the reason to skip a server; empty if there is none. ``healthy`` is the number of other servers that
        answer successfully."""
        if record.errors >= ERRORS:
            return f"its last {record.errors} responses were errors"
        if record.silent_since is None or now - record.silent_since < SILENT_SECONDS:
            return ""
        answered = self._answered[backend] - record.answered_then
        if answered < _SILENT_RATIO * record.count.active * healthy:
            return ""
        return f"it has {record.count.active} requests but no response for {now - record.silent_since:.0f} s"
