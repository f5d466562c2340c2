"""The goals of the gateway, checked against the figures. Pure."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from report import OURS, Measured, ratio, resident

sys.path.insert(0, str(Path(__file__).parents[1]))

from outcome import Goal

RATIOS = {
    "1 KB": {"go-kubeai": 6.0, "go-tuned": 3.0},
    "32 KB": {"go-kubeai": 5.5, "go-tuned": 3.0},
    "220 KB": {"go-kubeai": 5.5},
    "1 MB": {"go-kubeai": 5.5},
}
"""Size -> their CPU time per request in parts of ours, at least."""
CHEAPER_THAN = ("vllm-router", "smg")
ADDED_MS = 0.2
RESIDENT_MIB = 256.0

Table = tuple[Sequence[Measured], Mapping[str, Measured]]
"""The rows of a case, and the mock engine alone at each peer's rate."""


def judge(tables: Sequence[Table]) -> list[Goal]:
    """Every goal. One whose figures are missing is not met."""
    return [goal for rows, floors in tables for goal in _of_case(rows, floors)]


def _of_case(rows: Sequence[Measured], floors: Mapping[str, Measured]) -> Iterator[Goal]:
    case = rows[0].case
    by_peer = {row.peer: row for row in rows}
    ours = by_peer.get(OURS)
    if ours is None or not ours.results:
        yield Goal(f"{case.name}: failed requests", None, 0, note=_reason(ours))
        return
    if ours.failed:
        yield Goal(f"{case.name}: failed requests", ours.failed, 0)
    if case.kind == "closed":
        yield from _cheaper(ours, by_peer)
    if case.kind == "half":
        floor = floors.get(OURS)
        added = (ours.least(lambda r: r.p50_us) - floor.least(lambda r: r.p50_us)) / 1000 if floor else None
        yield Goal(f"{case.name}: added at the median", added, ADDED_MS, "ms", note="" if floor else "no floor")
    if case.kind == "memory":
        yield Goal(f"{case.name}: memory", max(map(resident, ours.results)), RESIDENT_MIB, "MiB")


def _cheaper(ours: Measured, by_peer: Mapping[str, Measured]) -> Iterator[Goal]:
    """CPU time per request of the others in parts of ours. A ratio whose rounds overlap with 1 is a tie."""
    least = RATIOS[ours.case.name.partition(",")[0]] | dict.fromkeys(CHEAPER_THAN, 1.0)
    for peer, bound in least.items():
        row = by_peer.get(peer)
        beside = ratio(row, ours) if row else None
        name = f"{ours.case.name}: CPU of {peer} in parts of Slipway's"
        if beside is None:
            yield Goal(name, None, bound, "times", at_least=True, note=_reason(row))
        else:
            note = f"rounds {beside.low:.2f} to {beside.high:.2f}"
            yield Goal(name, beside.best, bound, "times", at_least=True, note=note, tie=beside.tie)


def _reason(row: Measured | None) -> str:
    if row is None:
        return "left out"
    return "too few requests to judge" if row.results else row.problem
