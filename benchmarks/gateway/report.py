"""Medians over the rounds, ratios to ours, tables. Pure.

CPU time per request comes first: it hardly depends on what else the machine does; requests a second and latency do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from cases import Case
from generator import Result

OURS = "slipway"
FLOOR = "direct"
MIB = 1 << 20
ENOUGH = 10
"""Requests or events in a window, below which CPU time for each would be chance: the clock ticks every 10 ms."""


@dataclass(frozen=True)
class Measured:
    """All rounds of one peer in one case; the reason where there is none."""

    case: Case
    peer: str
    results: tuple[Result, ...]
    problem: str = ""
    rate: float = 0.0
    """Requests a second that were asked of it; 0: as many as it can."""

    def middle(self, value: Callable[[Result], float]) -> float:
        return median(value(result) for result in self.results)

    @property
    def failed(self) -> int:
        return sum(result.failed for result in self.results)

    @property
    def cpu(self) -> list[float]:
        """CPU microseconds for each request, event, or second of idling, by round; only rounds with enough of them."""
        if self.case.kind == "idle":
            return [result.cpu_us / result.seconds for result in self.results]
        done = [(r.cpu_us, r.events if self.case.kind == "events" else r.completed) for r in self.results]
        return [cpu_us / number for cpu_us, number in done if number >= ENOUGH]


def per_second(result: Result) -> float:
    return result.completed / result.seconds


def cores(result: Result) -> float:
    return result.cpu_us / 1e6 / result.seconds


def resident(result: Result) -> float:
    return result.resident_bytes / MIB


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def _cpu_cells(row: Measured, ours: Measured | None) -> list[str]:
    if row.peer == FLOOR or not row.cpu:
        return ["-", "-", "-"]
    span = f"{_number(min(row.cpu))}-{_number(max(row.cpu))}"
    ratio = median(row.cpu) / median(ours.cpu) if ours and ours.cpu and median(ours.cpu) else 0
    return [_number(median(row.cpu)), span, f"{ratio:.2f}x" if ratio else "-"]


def _latency(row: Measured) -> list[str]:
    return [_number(row.middle(value) / 1000) for value in (lambda r: r.p50_us, lambda r: r.p99_us)]


def _added(row: Measured, floor: Measured | None) -> list[str]:
    """Milliseconds on top of the mock engine alone at the same rate."""
    if floor is None or row.peer == FLOOR:
        return ["-", "-"]
    values: Iterable[Callable[[Result], float]] = (lambda r: r.p50_us, lambda r: r.p99_us)
    return [_number((row.middle(value) - floor.middle(value)) / 1000) for value in values]


def _memory(row: Measured) -> str:
    return "-" if row.peer == FLOOR else _number(max(resident(result) for result in row.results))


HEADS = {
    "closed": ["CPU us/request", "range", "to ours", "requests/s", "cores", "p50 ms", "p99 ms", "RSS MiB"],
    "memory": ["RSS MiB", "requests/s", "p50 ms", "p99 ms"],
    "rate": ["CPU us/request", "range", "to ours", "rate/s", "added p50 ms", "added p99 ms", "p50 ms", "p99 ms"],
    "half": ["CPU us/request", "range", "to ours", "rate/s", "added p50 ms", "added p99 ms", "p50 ms", "p99 ms"],
    "events": ["CPU us/event", "range", "to ours", "events/s", "event p50 ms", "event p99 ms", "RSS MiB"],
    "idle": ["CPU us/s", "range", "to ours", "RSS MiB"],
}


def _cells(row: Measured, ours: Measured | None, floor: Measured | None) -> list[str]:
    if row.case.kind == "memory":
        return [_memory(row), _number(row.middle(per_second)), *_latency(row)]
    cells = _cpu_cells(row, ours)
    if row.case.kind == "closed":
        used = "-" if row.peer == FLOOR else f"{row.middle(cores):.2f}"
        return [*cells, _number(row.middle(per_second)), used, *_latency(row), _memory(row)]
    if row.case.kind in ("rate", "half"):
        return [*cells, _number(row.rate), *_added(row, floor), *_latency(row)]
    if row.case.kind == "events":
        stamped = row.middle(lambda r: r.events) > 0
        delay = [row.middle(value) / 1000 for value in (lambda r: r.event_p50_us, lambda r: r.event_p99_us)]
        shown = [_number(value) if stamped else "-" for value in delay]
        return [*cells, _number(row.middle(lambda r: r.events / r.seconds)), *shown, _memory(row)]
    return [*cells, _memory(row)]


def table(rows: Sequence[Measured], floors: dict[str, Measured]) -> str:
    """The table of one case. ``floors``: the mock engine alone, by the peer at whose rate it was asked."""
    ours = next((row for row in rows if row.peer == OURS and row.results), None)
    lines = [["peer", *HEADS[rows[0].case.kind]]]
    notes = []
    for row in rows:
        if row.results:
            lines.append([row.peer, *_cells(row, ours, floors.get(row.peer))])
            if row.failed:
                started = sum(result.started for result in row.results)
                notes.append(f"{row.peer}: {row.failed:,} of {started:,} requests FAILED")
        else:
            notes.append(f"{row.peer}: not measured: {row.problem}")
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    text = [f"\n{rows[0].case.name}"]
    for line in lines:
        cells = [
            line[0].ljust(widths[0]),
            *(cell.rjust(width) for cell, width in zip(line[1:], widths[1:], strict=True)),
        ]
        text.append("  " + "  ".join(cells).rstrip())
    return "\n".join([*text, *(f"  ({note})" for note in notes)])


def document(row: Measured) -> dict[str, Any]:
    """A row for the JSON file: medians, and every round as it was."""
    summary: dict[str, Any] = {"case": row.case.name, "kind": row.case.kind, "peer": row.peer}
    if not row.results:
        return {**summary, "problem": row.problem}
    return {
        **summary,
        "rate": row.rate,
        "failed": row.failed,
        "cpu_us": round(median(row.cpu), 3) if row.cpu else None,
        "per_second": round(row.middle(per_second), 1),
        "p50_us": row.middle(lambda r: r.p50_us),
        "p99_us": row.middle(lambda r: r.p99_us),
        "resident_mib": round(max(resident(result) for result in row.results), 1),
        "rounds": [vars(result) for result in row.results],
    }
