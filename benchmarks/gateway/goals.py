"""What the finished gateway is meant to reach, checked against what was measured. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from report import FLOOR, OURS, Measured, resident

RATIOS = {"go-kubeai": 4.0, "go-tuned": 3.0}
"""Requests per CPU second, ours to theirs, at 1 KB and 32 KB."""
CHEAPER_THAN = ("vllm-router", "smg")
ADDED_MS = 0.2
RESIDENT_MIB = 256.0

Table = tuple[Sequence[Measured], Mapping[str, Measured]]
"""The rows of a case, and the mock engine alone at each peer's rate."""


@dataclass(frozen=True)
class Goal:
    text: str
    met: bool


def judge(tables: Sequence[Table]) -> list[Goal]:
    """Every goal. One whose figures are missing is not met."""
    return [goal for rows, floors in tables for goal in _of_case(rows, floors)]


def _of_case(rows: Sequence[Measured], floors: Mapping[str, Measured]) -> Iterator[Goal]:
    case = rows[0].case
    by_peer = {row.peer: row for row in rows}
    ours = by_peer.get(OURS)
    if ours is None or not ours.results:
        yield _not_measured(case.name, OURS, ours)
        return
    if ours.failed:
        yield Goal(f"{case.name}: {ours.failed:,} requests failed, none may", met=False)
    if case.kind == "closed":
        yield from _cheaper(ours, by_peer)
    if case.kind == "half" and OURS in floors:
        added = (ours.middle(lambda r: r.p50_us) - floors[OURS].middle(lambda r: r.p50_us)) / 1000
        yield Goal(f"{case.name}: {added:.2f} ms added at the median, at most {ADDED_MS} ms", added <= ADDED_MS)
    elif case.kind == "half":
        yield _not_measured(case.name, FLOOR, None)
    if case.kind == "memory":
        most = max(resident(result) for result in ours.results)
        yield Goal(f"{case.name}: {most:.0f} MiB, at most {RESIDENT_MIB:.0f} MiB", most <= RESIDENT_MIB)


def _not_measured(case: str, peer: str, row: Measured | None) -> Goal:
    reason = "left out" if row is None else "too few requests to judge" if row.results else row.problem
    return Goal(f"{case}: {peer} was not measured: {reason}", met=False)


def _cheaper(ours: Measured, by_peer: Mapping[str, Measured]) -> Iterator[Goal]:
    name = ours.case.name
    costs = {peer: median(row.cpu) for peer, row in by_peer.items() if row.cpu}
    if OURS not in costs:
        yield Goal(f"{name}: {OURS} was not measured: too few requests to judge", met=False)
        return
    cost = costs[OURS]
    for peer, least in RATIOS.items() if name.startswith(("1 KB", "32 KB")) else ():
        if peer in costs:
            ratio = costs[peer] / cost
            yield Goal(f"{name}: {ratio:.1f} times {peer} per CPU second, at least {least:g}", ratio >= least)
        else:
            yield _not_measured(name, peer, by_peer.get(peer))
    for peer in CHEAPER_THAN:
        if peer in costs:
            text = f"{name}: {cost:,.0f} us of CPU a request, less than {peer}'s {costs[peer]:,.0f} us"
            yield Goal(text, cost < costs[peer])
        else:
            yield _not_measured(name, peer, by_peer.get(peer))
