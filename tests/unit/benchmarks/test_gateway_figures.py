"""The gateway's benchmark: the best round counts, ratios whose rounds overlap are ties, and instructions are read."""

from __future__ import annotations

from pathlib import Path

import goals
import instructions
import pytest
import report
from cases import Case
from generator import Load, Result
from report import Measured


def result(cpu_us: int, completed: int = 1000, **more: int) -> Result:
    fields = dict.fromkeys(Result.__dataclass_fields__, 0) | {"cpu_us": cpu_us, "completed": completed}
    return Result(**fields | {"seconds": 1.0} | more)


def measured(peer: str, *cpu_us: int, kind: str = "closed", name: str = "1 KB, model first", **more: int) -> Measured:
    case = Case(name, kind, Load(Path("body")))
    return Measured(case, peer, tuple(result(one, **more) for one in cpu_us))


def test_the_best_round_counts_and_the_spread_says_how_far_the_worst_lies_above_it() -> None:
    row = measured("slipway", 60_000, 50_000, 75_000)
    document = report.document(row, row, None)
    assert document["cpu_us"] == 50.0
    assert document["spread_percent"] == 50.0


def test_there_is_no_ratio_to_a_round_without_cpu_time() -> None:
    """Idle streams can take less than the kernel's clock tick."""
    ours, theirs = measured("slipway", 0, 10_000), measured("envoy", 10_000, 20_000)
    assert report.document(theirs, ours, None)["to_ours"] is None
    assert report.table([ours, theirs], {})


@pytest.mark.parametrize(
    ("theirs", "tie"),
    [
        ((100_000, 105_000, 120_000), False),
        # One round in which they were cheaper.
        ((100_000, 49_000, 120_000), True),
        ((40_000, 39_000, 45_000), False),
    ],
)
def test_a_ratio_whose_rounds_overlap_with_one_is_a_tie(theirs: tuple[int, ...], tie: bool) -> None:
    ours = measured("slipway", 50_000, 50_000, 50_000)
    beside = report.ratio(measured("smg", *theirs), ours)
    assert beside is not None
    assert beside.tie == tie
    assert beside.best == min(theirs) / 50_000
    assert (beside.low, beside.high) == (min(theirs) / 50_000, max(theirs) / 50_000)


def test_rounds_of_the_same_number_are_compared_even_if_one_had_too_few_requests() -> None:
    ours = Measured(measured("slipway").case, "slipway", (result(1, completed=2), result(50_000)))
    theirs = measured("smg", 10_000, 100_000)
    beside = report.ratio(theirs, ours)
    assert beside is not None
    assert (beside.low, beside.high) == (2.0, 2.0)
    assert report.ratio(theirs, measured("slipway")) is None


def test_goals_take_ties_and_missing_peers_as_not_met() -> None:
    rows = [
        measured("slipway", 50_000, 50_000),
        measured("go-tuned", 160_000, 170_000),
        measured("go-kubeai", 200_000, 210_000),
        measured("smg", 52_000, 48_000),
        Measured(measured("vllm-router").case, "vllm-router", (), "there is no wheel"),
    ]
    by_peer = {goal.name: (goal.verdict, goal.note) for goal in goals.judge([(rows, {})])}
    name = "1 KB, model first: CPU of {} in parts of Slipway's".format
    assert by_peer[name("go-tuned")][0] == "met"
    assert by_peer[name("go-kubeai")][0] == "MISSED", "4 times, and 6 is the goal"
    assert by_peer[name("smg")] == ("tie", "rounds 0.96 to 1.04")
    assert by_peer[name("vllm-router")] == ("not measured", "there is no wheel")


def test_latency_and_memory_have_goals() -> None:
    ours = measured("slipway", 1000, kind="half", name="half load, 1 KB", p50_us=300)
    floor = measured("direct", 1000, kind="half", name="half load, 1 KB", p50_us=150)
    memory = measured("slipway", 1000, kind="memory", name="64 bodies", resident_bytes=300 << 20)
    latency, mebibytes = goals.judge([([ours], {"slipway": floor}), ([memory], {})])
    assert (latency.value, latency.verdict) == (0.15, "met")
    assert (mebibytes.value, mebibytes.verdict) == (300.0, "MISSED")


def test_a_round_without_an_answer_has_no_latency() -> None:
    row = Measured(measured("slipway").case, "slipway", (result(1, completed=0), result(1, p50_us=200)))
    assert row.least(lambda one: one.p50_us) == 200


def test_instructions_are_read_from_perf_and_from_callgrind(tmp_path: Path) -> None:
    text = "1200,,instructions:u,100,100.00,,\n34,,instructions:u,100,100.00,,\n"
    assert instructions._perf_total(text) == 1234
    assert instructions._perf_total("<not supported>,,instructions:u,0,100.00,,\n") == 0
    (tmp_path / "counted.7.1").write_text("version: 1\nevents: Ir\nfn=main\n1 20\n\ntotals: 5678\n")
    assert instructions.callgrind_total(tmp_path / "counted.7.1") == 5678


def test_the_table_says_why_there_are_no_instructions() -> None:
    ours = measured("slipway", 50_000)
    theirs = Measured(ours.case, "litellm", (result(90_000),), instructions="it starts too slowly below callgrind")
    table = report.table([ours, theirs], {})
    assert "(litellm: instructions not available: it starts too slowly below callgrind)" in table
    assert "1.80x" in table
