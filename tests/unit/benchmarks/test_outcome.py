"""Goals of benchmarks: when one is met, how it reads, and what the list at the end says."""

from __future__ import annotations

import json
from pathlib import Path

import outcome
import pytest
import summary
from outcome import Goal, Outcome

HEADER = {"benchmark", "command", "date", "machine", "quick", "seconds", "versions"}
CONTENT = {"figures", "goals", "missing", "rounds"}


@pytest.mark.parametrize(
    ("goal", "verdict"),
    [
        (Goal("a", 1.0, 1.0), "met"),
        (Goal("a", 1.1, 1.0), "MISSED"),
        (Goal("a", 1.0, 1.0, at_least=True), "met"),
        (Goal("a", 0.9, 1.0, at_least=True), "MISSED"),
        (Goal("a", 2.0, 1.0, at_least=True, tie=True), "tie"),
        (Goal("a", None, 1.0, note="there is no Docker"), "not measured"),
    ],
)
def test_only_a_goal_that_was_reached_is_met(goal: Goal, verdict: str) -> None:
    assert goal.verdict == verdict
    assert goal.met == (verdict == "met")


def test_a_goal_says_its_value_and_its_bound() -> None:
    assert Goal("pull", 0.756, 0.8, "times", at_least=True).text == "pull: 0.76 times, at least 0.80 times"
    assert Goal("cost", 1.0334, 1.03, "times").text == "cost: 1.0334 times, at most 1.03 times"
    assert Goal("writes", 0, 0, note="60 s").text == "writes: 0, at most 0 (60 s)"
    assert Goal("memory", None, 256, "MiB", note="left out").text == "memory: at most 256 MiB (left out)"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(outcome, "FOLDER", tmp_path / "bench")
    monkeypatch.setattr(outcome, "QUICK", tmp_path / "bench/quick")
    return tmp_path / "bench"


def test_every_file_has_the_same_header(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outcome, "ROOT", folder.parent)
    monkeypatch.setattr(outcome, "version", lambda: "0.4.0 (abc)")
    goals = [Goal("a", 1.0, 2.0), Goal("b", 3.0, 2.0)]
    result = Outcome("loader", False, goals, {"x": 1}, [1], {"curl": "8.14"}, {"oras": "not here"})
    assert outcome.finish(result) == 1
    document = json.loads((folder / "loader.json").read_text())
    assert set(document) == HEADER | CONTENT
    assert set(document["machine"]) == {"cpu", "cores", "memory_gib", "kernel", "python"}
    assert document["versions"] == {"slipway.inference": "0.4.0 (abc)", "curl": "8.14"}
    assert [(goal["value"], goal["bound"], goal["met"]) for goal in document["goals"]] == [
        (1.0, 2.0, True),
        (3.0, 2.0, False),
    ]
    assert list(summary.lines("loader", document)) == [
        "  met           loader: a: 1, at most 2",
        "  MISSED        loader: b: 3, at most 2",
        "  missing       loader: oras: not here",
    ]
    assert not summary.good(document)


def test_a_quick_run_leaves_the_results_of_a_whole_one(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outcome, "ROOT", folder.parent)
    monkeypatch.setattr(outcome, "version", lambda: "0.4.0")
    assert outcome.finish(Outcome("loader", True, [Goal("a", 1.0, 2.0)], {})) == 0
    assert [file.relative_to(folder) for file in folder.rglob("*.json")] == [Path("quick/loader.json")]


def test_a_benchmark_that_wrote_nothing_has_failed(tmp_path: Path) -> None:
    assert summary.read(tmp_path, "loader") is None
    assert list(summary.lines("loader", None)) == ["  FAILED        loader: it did not finish: see its output"]
    assert not summary.good(None)
