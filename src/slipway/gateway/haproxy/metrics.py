"""HAProxy's counters as Prometheus metrics, created for each scrape. Pure: converts HAProxy's answers to metrics.

Labels contain a model's namespace and Service name. Counters of deleted models are omitted, so the existing models
limit the number of series. Counters start at zero when HAProxy starts or reloads, as Prometheus expects of a restarted
process.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Iterator, Mapping, Set
from typing import NamedTuple

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric, SummaryMetricFamily
from prometheus_client.registry import Collector

from slipway.gateway.rules import fallback_server, tokens

LABELS = ("namespace", "model")
_CODES = ("1xx", "2xx", "3xx", "4xx", "5xx", "other")
_FIRST_BYTE = re.compile(r"key=(\S+) .*gpc0=(\d+) gpc1=(\d+)")


class RawCounters(NamedTuple):
    """HAProxy's unparsed answers: statistics of frontends, backends and servers, times to the first byte, waiting
    requests, and tokens."""

    statistics: str
    first_bytes: str
    hold: str
    tokens: tuple[str, ...] = ()
    """Answers with token counts, one per thread and one for the stick table."""
    passed_over: Mapping[str, int] = {}
    """Backend name -> number of servers that get no requests, because they return errors or do not answer."""


class BackendCounters(NamedTuple):
    """The counters of one backend. Fields without a unit are numbers of requests. Answers and times are counted since
    HAProxy started. A request that waits for another server because its server died counts twice."""

    active: int
    """Requests in progress at the servers."""
    waiting: int
    """Requests that wait for a ready server."""
    answered: int
    failed: int
    """Answers with status 500 or higher, also counted in ``answered``."""
    first_byte_ms: int
    """Sum of the times from a request's arrival at a server to the first byte of the answer, in milliseconds."""
    first_bytes: int
    """Number of answers in the sum ``first_byte_ms``."""
    passed_over: int = 0
    """Servers that get no requests, because they return errors or do not answer."""


def parse_counters(counters: RawCounters) -> dict[str, BackendCounters]:
    """Return the counters of each model's backend, by backend name."""
    held = parse_waiting(counters.hold)
    bytes_ = {name: (int(ms), int(number)) for name, ms, number in _FIRST_BYTE.findall(counters.first_bytes)}
    backends = {}
    for row in csv.DictReader(io.StringIO(counters.statistics.removeprefix("# "))):
        name = row["pxname"]
        if row["svname"] == "BACKEND" and ":" in name:
            codes = {code: int(row[f"hrsp_{code}"] or 0) for code in _CODES}
            backends[name] = BackendCounters(
                int(row["scur"] or 0),
                held.get(name, 0),
                sum(codes.values()),
                codes["5xx"],
                *bytes_.get(name, (0, 0)),
                passed_over=counters.passed_over.get(name, 0),
            )
    return backends


class HaproxyCollector(Collector):
    """A Prometheus collector that exports HAProxy's last counters."""

    def __init__(self) -> None:
        self.counters: RawCounters | None = None
        """Counters to export; None if HAProxy does not respond."""

    def collect(self) -> Iterable[Metric]:
        """Yield the metrics. The registry calls this method for each scrape."""
        up = GaugeMetricFamily("slipway_gateway_haproxy_up", "1 while HAProxy responds to the control process.")
        up.add_metric((), 1 if self.counters else 0)
        yield up
        if self.counters:
            rows = list(csv.DictReader(io.StringIO(self.counters.statistics.removeprefix("# "))))
            yield from _traffic_metrics(rows)
            yield from _frontend_metrics(rows)
            backends = {row["pxname"] for row in rows if row["svname"] == "BACKEND" and ":" in row["pxname"]}
            yield _first_byte_metric(self.counters.first_bytes, backends)
            yield from _hold_metrics(self.counters.hold, backends)
            yield _passed_over_metric(self.counters.passed_over, backends)
            yield from _token_metrics(self.counters.tokens, backends)


def _split_backend(backend: str) -> tuple[str, str]:
    namespace, _unused, service = backend.partition(":")
    return namespace, service


def _traffic_metrics(rows: list[dict[str, str]]) -> Iterator[Metric]:
    requests = CounterMetricFamily(
        "slipway_gateway_requests", "Responses for a model, by status class.", labels=(*LABELS, "code")
    )
    active = GaugeMetricFamily(
        "slipway_gateway_requests_in_flight", "Requests in flight at the servers.", labels=LABELS
    )
    servers = GaugeMetricFamily("slipway_gateway_ready_servers", "Servers that take new requests.", labels=LABELS)
    counters = {
        "bin": CounterMetricFamily("slipway_gateway_received_bytes", "Bytes of requests.", labels=LABELS),
        "bout": CounterMetricFamily("slipway_gateway_sent_bytes", "Bytes of responses.", labels=LABELS),
        "wretr": CounterMetricFamily(
            "slipway_gateway_retries", "Connections tried again on the same server.", labels=LABELS
        ),
        "wredis": CounterMetricFamily(
            "slipway_gateway_redispatches", "Requests moved to another server.", labels=LABELS
        ),
        "cli_abrt": CounterMetricFamily(
            "slipway_gateway_client_aborts", "Responses that the client aborted.", labels=LABELS
        ),
        "srv_abrt": CounterMetricFamily(
            "slipway_gateway_cut_answers", "Responses that the server ended early.", labels=LABELS
        ),
    }
    retries = {row["pxname"]: row for row in rows if row["svname"] == fallback_server.NAME}
    for row in rows:
        if row["svname"] != "BACKEND" or ":" not in row["pxname"]:
            continue
        model = _split_backend(row["pxname"])
        # A request that waits for another server enters the backend twice, so subtract the first time.
        retried = retries.get(row["pxname"], {})
        for code in _CODES:
            requests.add_metric((*model, code), _number(row, f"hrsp_{code}") - _number(retried, f"hrsp_{code}"))
        active.add_metric(model, _number(row, "scur") - _number(retried, "scur"))
        servers.add_metric(model, int(row["act"] or 0))
        for column, family in counters.items():
            family.add_metric(model, int(row[column] or 0))
    yield from (requests, active, servers, *counters.values())


def _number(row: Mapping[str, str], column: str) -> int:
    return int(row.get(column) or 0)


def _frontend_metrics(rows: list[dict[str, str]]) -> Iterator[Metric]:
    responses = CounterMetricFamily(
        "slipway_gateway_responses",
        "All responses on the public port, including the gateway's own errors.",
        labels=("code",),
    )
    connections = GaugeMetricFamily("slipway_gateway_connections", "Clients connected to the public port.")
    for row in rows:
        if row["svname"] == "FRONTEND" and row["pxname"] == "public":
            for code in _CODES:
                responses.add_metric((code,), int(row[f"hrsp_{code}"] or 0))
            connections.add_metric((), int(row["scur"] or 0))
    yield from (responses, connections)


def _first_byte_metric(text: str, backends: Set[str]) -> Metric:
    family = SummaryMetricFamily(
        "slipway_gateway_time_to_first_byte_seconds",
        "Time from a request's arrival at a server to the start of the response.",
        labels=LABELS,
    )
    for backend, milliseconds, count in _FIRST_BYTE.findall(text):
        if backend in backends:
            family.add_metric(_split_backend(backend), count_value=int(count), sum_value=int(milliseconds) / 1000)
    return family


def count_requests(statistics: str, hold: str) -> dict[str, int]:
    """Return the number of in-flight and waiting requests, by backend name. ``statistics`` are the rows of backends and
    servers in the answer to ``show stat``, and ``hold`` is the answer to ``SHOW_HOLD``."""
    rows = list(csv.DictReader(io.StringIO(statistics.removeprefix("# "))))
    held = parse_waiting(hold)
    retried = {row["pxname"]: row for row in rows if row["svname"] == fallback_server.NAME}
    return {
        name: _number(row, "scur") - _number(retried.get(name, {}), "scur") + held.get(name, 0)
        for row in rows
        if row["svname"] == "BACKEND" and ":" in (name := row["pxname"])
    }


def parse_waiting(hold: str) -> dict[str, int]:
    """Return the number of waiting requests, by backend name. ``hold`` is the answer to ``SHOW_HOLD``."""
    return {backend: int(now) for backend, now, *_refused in map(str.split, hold.splitlines())}


def _hold_metrics(text: str, backends: Set[str]) -> Iterator[Metric]:
    waiting = GaugeMetricFamily(
        "slipway_gateway_requests_waiting", "Requests that wait for a ready server.", labels=LABELS
    )
    refused = CounterMetricFamily(
        "slipway_gateway_requests_refused",
        "Requests that reached no server: too many were waiting (full, 429), the wait was too long (timeout, 503), or"
        " the model cannot start (failed, 503).",
        labels=(*LABELS, "reason"),
    )
    # Export zeros as well: in a series that begins with 1, no rate shows the first rejection.
    counted = {line.split()[0]: line.split()[1:] for line in text.splitlines()}
    for backend in sorted(backends):
        now, *numbers = map(int, counted.get(backend, (0, 0, 0, 0)))
        waiting.add_metric(_split_backend(backend), now)
        for reason, number in zip(("full", "timeout", "failed"), numbers, strict=True):
            refused.add_metric((*_split_backend(backend), reason), number)
    yield from (waiting, refused)


def _passed_over_metric(servers: Mapping[str, int], backends: Set[str]) -> Metric:
    text = "Servers that get no requests, because they return errors or nothing while others succeed."
    family = GaugeMetricFamily("slipway_gateway_passed_over_servers", text, labels=LABELS)
    for backend in sorted(backends):
        family.add_metric(_split_backend(backend), servers.get(backend, 0))
    return family


def _token_metrics(answers: tuple[str, ...], backends: Set[str]) -> Iterator[Metric]:
    labels = (*LABELS, "key", "kind")
    counted = CounterMetricFamily(
        "slipway_gateway_tokens",
        "Tokens of responses. Cached tokens are included in input, reasoning tokens in output.",
        labels=labels,
    )
    estimated = CounterMetricFamily(
        "slipway_gateway_estimated_tokens", "Estimated tokens, because the engine did not report them.", labels=labels
    )
    for (backend, key), counts in sorted(tokens.sum_answers(answers).items()):
        if backend in backends:
            for kind, count in counts.by_kind().items():
                counted.add_metric((*_split_backend(backend), key, kind), count)
            for kind, count in counts.estimated_by_kind().items():
                estimated.add_metric((*_split_backend(backend), key, kind), count)
    if answers:
        yield from (counted, estimated)
