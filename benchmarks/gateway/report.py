"""The best of the rounds, how far they lie apart, ratios to ours, tables. Pure.

CPU time per request comes first: it hardly depends on what else the machine does; requests a second and latency do.
Other work on the machine only adds to a round, so the best one is nearest to the truth.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
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
    instructions: float | str = ""
    """For each request, or why there are none; empty: not counted in this case."""

    def least(self, value: Callable[[Result], float]) -> float:
        """Of the rounds in which anything was answered."""
        return min((value(result) for result in self.results if result.completed or result.events), default=0.0)

    def most(self, value: Callable[[Result], float]) -> float:
        return max(value(result) for result in self.results)

    @property
    def failed(self) -> int:
        return sum(result.failed for result in self.results)

    @property
    def cpu_by_round(self) -> list[float | None]:
        """CPU microseconds for each request, event, or second of idling; None where a round had too few of them."""
        if self.case.kind == "idle":
            return [result.cpu_us / result.seconds for result in self.results]
        done = [(r.cpu_us, r.events if self.case.kind == "events" else r.completed) for r in self.results]
        return [cpu_us / number if number >= ENOUGH else None for cpu_us, number in done]

    @property
    def cpu(self) -> list[float]:
        """The same of the rounds that count."""
        return [cost for cost in self.cpu_by_round if cost is not None]

    @property
    def spread(self) -> float:
        """How far the worst round lies above the best one, in percent."""
        return 100 * (max(self.cpu) / min(self.cpu) - 1) if self.cpu and min(self.cpu) > 0 else 0.0


@dataclass(frozen=True)
class Ratio:
    """CPU time of another peer in parts of ours."""

    best: float
    """Of the best rounds."""
    low: float
    high: float
    """Of rounds of the same number: the range."""

    @property
    def tie(self) -> bool:
        return self.low <= 1 <= self.high

    @property
    def text(self) -> str:
        return "tie" if self.tie else f"{self.best:.2f}x"


def ratio(theirs: Measured, ours: Measured) -> Ratio | None:
    """None if there are no rounds in which both were measured, or if ours took no CPU time that was counted."""
    pairs = [(t, o) for t, o in zip(theirs.cpu_by_round, ours.cpu_by_round, strict=False) if t is not None and o]
    if not pairs or not min(ours.cpu):
        return None
    each = [t / o for t, o in pairs]
    return Ratio(min(theirs.cpu) / min(ours.cpu), min(each), max(each))


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
        return ["-", "-", "-", "-"]
    beside = ratio(row, ours) if ours else None
    cells = [beside.text, f"{beside.low:.2f}-{beside.high:.2f}"] if beside and row is not ours else ["-", "-"]
    return [_number(min(row.cpu)), f"{row.spread:.0f}%", *cells]


def _latency(row: Measured) -> list[str]:
    return [_number(row.least(value) / 1000) for value in (lambda r: r.p50_us, lambda r: r.p99_us)]


def _added(row: Measured, floor: Measured | None) -> list[str]:
    """Milliseconds on top of the mock engine alone at the same rate."""
    if floor is None or row.peer == FLOOR:
        return ["-", "-"]
    values: Iterable[Callable[[Result], float]] = (lambda r: r.p50_us, lambda r: r.p99_us)
    return [_number((row.least(value) - floor.least(value)) / 1000) for value in values]


def _memory(row: Measured) -> str:
    return "-" if row.peer == FLOOR else _number(max(resident(result) for result in row.results))


CPU = ["spread", "to ours", "by round"]
FIXED_RATE = ["rate/s", "added p50 ms", "added p99 ms", "p50 ms", "p99 ms"]
HEADS = {
    "closed": ["CPU us/request", *CPU, "instructions", "requests/s", "cores", "p50 ms", "p99 ms", "RSS MiB"],
    "memory": ["RSS MiB", "requests/s", "p50 ms", "p99 ms"],
    "rate": ["CPU us/request", *CPU, *FIXED_RATE],
    "half": ["CPU us/request", *CPU, *FIXED_RATE],
    "events": ["CPU us/event", *CPU, "events/s", "event p50 ms", "event p99 ms", "RSS MiB"],
    "idle": ["CPU us/s", *CPU, "RSS MiB"],
}


def _cells(row: Measured, ours: Measured | None, floor: Measured | None) -> list[str]:
    if row.case.kind == "memory":
        return [_memory(row), _number(row.most(per_second)), *_latency(row)]
    cells = _cpu_cells(row, ours)
    if row.case.kind == "closed":
        used = "-" if row.peer == FLOOR else f"{row.most(cores):.2f}"
        counted = f"{row.instructions:,.0f}" if isinstance(row.instructions, float) else "-"
        return [*cells, counted, _number(row.most(per_second)), used, *_latency(row), _memory(row)]
    if row.case.kind in ("rate", "half"):
        return [*cells, _number(row.rate), *_added(row, floor), *_latency(row)]
    if row.case.kind == "events":
        stamped = row.most(lambda r: r.events) > 0
        delay = [row.least(value) / 1000 for value in (lambda r: r.event_p50_us, lambda r: r.event_p99_us)]
        shown = [_number(value) if stamped else "-" for value in delay]
        return [*cells, _number(row.most(lambda r: r.events / r.seconds)), *shown, _memory(row)]
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
            if row.instructions and isinstance(row.instructions, str):
                notes.append(f"{row.peer}: instructions not available: {row.instructions}")
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


def document(row: Measured, ours: Measured | None, floor: Measured | None) -> dict[str, Any]:
    """A row for the JSON file: the best of the rounds, and how far they lie apart."""
    summary: dict[str, Any] = {"case": row.case.name, "kind": row.case.kind, "peer": row.peer}
    if not row.results:
        return {**summary, "problem": row.problem}
    beside = ratio(row, ours) if ours and row.peer not in (OURS, FLOOR) else None
    added = {
        f"added_{name}_us": row.least(value) - floor.least(value)
        for name, value in (("p50", lambda r: r.p50_us), ("p99", lambda r: r.p99_us))
        if floor
    }
    return {
        **summary,
        "rate": round(row.rate),
        "failed": row.failed,
        "cpu_us": round(min(row.cpu), 3) if row.cpu and row.peer != FLOOR else None,
        "spread_percent": round(row.spread, 1),
        "to_ours": vars(beside) | {"tie": beside.tie} if beside else None,
        "instructions": row.instructions,
        "per_second": round(row.most(per_second), 1),
        "p50_us": row.least(lambda r: r.p50_us),
        "p99_us": row.least(lambda r: r.p99_us),
        **added,
        "resident_mib": None if row.peer == FLOOR else round(max(resident(result) for result in row.results), 1),
    }


def rounds(row: Measured) -> dict[str, Any]:
    """Every round."""
    return {"case": row.case.name, "peer": row.peer, "rounds": [vars(result) for result in row.results]}
