"""What the finished gateway is meant to reach, checked against what was measured. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from report import OURS, Measured, resident

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
    """Every goal for which there are figures."""
    return [goal for rows, floors in tables for goal in _of_case(rows, floors)]


def _of_case(rows: Sequence[Measured], floors: Mapping[str, Measured]) -> Iterator[Goal]:
    by_peer = {row.peer: row for row in rows if row.results}
    ours = by_peer.get(OURS)
    if ours is None:
        return
    name = ours.case.name
    if ours.failed:
        yield Goal(f"{name}: {ours.failed:,} requests failed, none may", met=False)
    if ours.case.kind == "closed":
        yield from _cheaper(ours, by_peer)
    if ours.case.kind == "half" and OURS in floors:
        added = (ours.middle(lambda r: r.p50_us) - floors[OURS].middle(lambda r: r.p50_us)) / 1000
        yield Goal(f"{name}: {added:.2f} ms added at the median, at most {ADDED_MS} ms", added <= ADDED_MS)
    if ours.case.kind == "memory":
        most = max(resident(result) for result in ours.results)
        yield Goal(f"{name}: {most:.0f} MiB, at most {RESIDENT_MIB:.0f} MiB", most <= RESIDENT_MIB)


def _cheaper(ours: Measured, by_peer: Mapping[str, Measured]) -> Iterator[Goal]:
    costs = {name: median(row.cpu) for name, row in by_peer.items() if row.cpu}
    if OURS not in costs:
        yield Goal(f"{ours.case.name}: too few requests to judge", met=False)
        return
    cost = costs[OURS]
    for peer, least in RATIOS.items():
        if peer in costs and ours.case.name.startswith(("1 KB", "32 KB")):
            ratio = costs[peer] / cost
            yield Goal(f"{ours.case.name}: {ratio:.1f} times {peer} per CPU second, at least {least:g}", ratio >= least)
    for peer in CHEAPER_THAN:
        if peer in costs:
            text = f"{ours.case.name}: {cost:,.0f} us of CPU a request, less than {peer}'s {costs[peer]:,.0f} us"
            yield Goal(text, cost < costs[peer])
