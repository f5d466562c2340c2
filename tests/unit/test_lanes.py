"""The stages of CI and the lanes: what runs which test, what a change touches, and what a record says."""

from __future__ import annotations

import dataclasses
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from runner import checkout, execution
from runner.cluster import TestCluster, read_exports
from runner.execution import require_tests, run_lanes
from runner.process import Outcome, read_counts, read_failures, run
from runner.records import Record, inputs_hash, read_record, state
from runner.table import (
    Lane,
    Stage,
    Table,
    choose,
    commands,
    is_test,
    lane_tests,
    lanes_of,
    matches,
    stage_tests,
    touched,
)

ROOT = checkout.ROOT
TABLE = Table.read((ROOT / "tests/lanes.toml").read_text())
FILES = checkout.present()
TESTS = [path for path in FILES if is_test(path)]


def test_every_test_file_belongs_to_ci_or_to_one_lane() -> None:
    stages = [path for stage in TABLE.stages for path in stage_tests(stage, TABLE, FILES)]
    lanes = [path for path in TESTS for lane in lanes_of(path, TABLE) if not lane.sampled]
    runs = Counter(stages + lanes)

    assert {path: runs[path] for path in TESTS if runs[path] != 1} == {}


def test_a_file_of_which_ci_runs_a_sample_has_one_lane() -> None:
    assert {path: len(lanes) for path in TESTS if len(lanes := lanes_of(path, TABLE)) > 1} == {}


def test_a_file_with_tests_that_ci_leaves_out_has_a_lane() -> None:
    # Several files get their marks from ``moments``.
    mark = re.compile(r"mark\.(full|plays)\b|import .*\bmoments\b")
    marked = [path for path in TESTS if mark.search((ROOT / path).read_text())]

    assert [path for path in marked if path != "tests/unit/test_lanes.py" and not lanes_of(path, TABLE)] == []


def test_disruptive_tests_run_without_other_workers() -> None:
    parallel = [
        path
        for lane in TABLE.lanes.values()
        if any(" -n " in line and "not disruptive" not in line for line in lane.run)
        for path in lane_tests(lane, FILES)
    ]

    assert [path for path in parallel if "mark.disruptive" in (ROOT / path).read_text()] == []


def test_every_pattern_of_the_table_matches_a_file() -> None:
    patterns = {
        *(pattern for stage in TABLE.stages for pattern in stage.tests),
        *(pattern for lane in TABLE.lanes.values() for pattern in [*lane.tests, *lane.inputs]),
    }

    unused = {pattern for pattern in patterns if not any(matches(path, [pattern.removeprefix("!")]) for path in FILES)}
    assert unused == set()


def test_every_scenario_of_molecule_has_a_lane_or_is_a_stage() -> None:
    scenarios = {path.parent.name for path in ROOT.glob("molecule/*/molecule.yml")}
    lanes = {name.removeprefix("molecule-") for name in TABLE.lanes if name.startswith("molecule-")}

    assert scenarios == {*lanes, "site"}


def test_records_are_of_lanes_that_there_are() -> None:
    assert [path.stem for path in checkout.RECORDS.glob("*.json") if path.stem not in TABLE.lanes] == []


# --- the table -------------------------------------------------------------------------------------------------------

SMALL = """
[[stage]]
name = "units"
tests = ["tests/unit/*"]
run = ["pytest {tests}"]

[groups]
core = ["src/core/"]

[lane.slow]
tests = ["tests/unit/test_slow.py"]
run = ["pytest -m 'a b' {tests}", "true"]
inputs = ["@core"]

[lane.sample]
tests = ["tests/unit/test_sample.py"]
run = ["pytest {tests}"]
inputs = ["src/*.py"]
needs = "installation"
sampled = true
"""
SMALL_FILES = [
    "src/core/a.py",
    "tests/unit/helper.py",
    "tests/unit/test_a.py",
    "tests/unit/test_sample.py",
    "tests/unit/test_slow.py",
]


def test_ci_runs_what_no_lane_has_and_the_sample_of_those_that_are_sampled() -> None:
    table = Table.read(SMALL)

    assert stage_tests(table.stages[0], table, SMALL_FILES) == ["tests/unit/test_a.py", "tests/unit/test_sample.py"]


def test_files_take_the_place_of_tests_in_a_command() -> None:
    lane = Table.read(SMALL).lanes["slow"]

    assert commands(lane.run, ["x.py", "y.py"]) == [["pytest", "-m", "a b", "x.py", "y.py"], ["true"]]


@pytest.mark.parametrize(
    ("changed", "names"),
    [
        ("src/core/a.py", ["slow", "sample"]),
        ("src/b.py", ["sample"]),
        ("tests/unit/test_slow.py", ["slow"]),
        ("docs/a.md", []),
    ],
)
def test_a_change_touches_the_lanes_with_these_inputs(changed: str, names: list[str]) -> None:
    assert [lane.name for lane in touched(Table.read(SMALL), [changed])] == names


def test_lanes_are_chosen_by_pattern_and_ordered_by_what_they_need_of_the_cluster() -> None:
    table = Table.read(SMALL)

    assert [lane.name for lane in choose(table, ["sa*", "slow", "slow"], everything=False)] == ["slow", "sample"]


@pytest.mark.parametrize(("name", "hint"), [("slo", "Did you mean slow?"), ("x*", "`lanes.py list` shows them.")])
def test_an_unknown_lane_is_rejected_with_the_nearest_name(name: str, hint: str) -> None:
    with pytest.raises(ValueError, match=re.escape(f"there is no lane {name}. {hint}")):
        choose(Table.read(SMALL), [name], everything=False)


@pytest.mark.parametrize(
    "text",
    [
        SMALL.replace('needs = "installation"', 'needs = "instalation"'),
        SMALL.replace("sampled", "sampeld"),
        SMALL.replace('inputs = ["@core"]', ""),
        SMALL.replace("@core", "@cor"),
    ],
)
def test_a_table_with_a_mistake_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"tests/lanes\.toml"):
        Table.read(text)


# --- records ---------------------------------------------------------------------------------------------------------

LANE = Lane("slow", ["pytest"], inputs=["src/"], tests=["tests/test_a.py"])
OBJECTS = {"src/a.py": "1", "tests/test_a.py": "2", "docs/a.md": "3"}
RECORD = Record("slow", inputs_hash(LANE, OBJECTS), "c0", "passed", 3, [], 0, 7, 0.1, 2, "2026-11-28T00:00:00Z")


@pytest.mark.parametrize(
    ("objects", "is_now"),
    [
        (OBJECTS, "green"),
        (OBJECTS | {"docs/a.md": "4"}, "green"),
        (OBJECTS | {"src/a.py": "4"}, "stale"),
        (OBJECTS | {"tests/test_a.py": "4"}, "stale"),
        (OBJECTS | {"src/b.py": "4"}, "stale"),
    ],
)
def test_a_record_is_about_the_inputs_of_its_lane(objects: dict[str, str], is_now: str) -> None:
    assert state(RECORD, inputs_hash(LANE, objects)) == is_now


def test_another_command_makes_a_record_stale() -> None:
    assert state(RECORD, inputs_hash(dataclasses.replace(LANE, run=["true"]), OBJECTS)) == "stale"


def test_a_record_of_a_failure_is_red() -> None:
    assert state(dataclasses.replace(RECORD, outcome="failed"), inputs_hash(LANE, OBJECTS)) == "red"


def test_a_record_is_read_as_it_was_written(tmp_path: Path) -> None:
    RECORD.write(tmp_path)

    assert read_record(tmp_path, "slow") == RECORD
    assert read_record(tmp_path, "other") is None


# --- running ---------------------------------------------------------------------------------------------------------


def execute(tmp_path: Path, program: str, seconds: float = 60) -> Outcome:
    return run([sys.executable, "-c", program], tmp_path / "log", seconds, {})


def test_output_is_kept_and_the_status_returned(tmp_path: Path) -> None:
    outcome = execute(
        tmp_path, "print('FAILED tests/a.py::b - no'); print('1 failed, 2 passed in 3.0s'); raise SystemExit(3)"
    )

    assert outcome.status == 3
    assert outcome.failed == ["tests/a.py::b"]
    assert outcome.counted == " (2 passed, 1 failed)"
    assert "1 failed, 2 passed" in (tmp_path / "log").read_text()


def test_processes_that_ran_before_a_command_outlive_it(tmp_path: Path) -> None:
    older = subprocess.Popen(["sleep", "600"])
    try:
        execute(tmp_path, "pass")

        assert older.poll() is None
    finally:
        older.kill()
        older.wait()


def test_orphans_do_not_stay_zombies_while_a_command_runs(tmp_path: Path) -> None:
    """Scripts wait until a process group is empty."""
    outcome = execute(
        tmp_path,
        """
import os, subprocess, time
orphan = int(subprocess.check_output(["sh", "-c", "true & echo $!"]))
while os.path.exists(f"/proc/{orphan}"):
    time.sleep(0.01)
""",
    )

    assert outcome.status == 0


def test_a_command_that_exceeds_its_time_is_ended_and_reported_as_a_timeout(tmp_path: Path) -> None:
    outcome = execute(tmp_path, "import time; time.sleep(600)", seconds=0.1)

    assert (outcome.status, outcome.failed) == (124, ["timeout after 0 s"])


PYTEST = """\
FAILED tests/unit/test_a.py::test_b[1] - assert 1 == 2
ERROR tests/unit/test_c.py::test_d
== 1 failed, 12 passed, 3 skipped, 2 errors in 4.10s ==
2 passed in 0.50s
"""
ANSIBLE = """\
TASK [slipway.inference.gateway : Wait] ****
ok: [localhost]
TASK [See that nothing is left] ****
fatal: [localhost]: FAILED! => {"msg": "pods"}
TASK [Try] ****
fatal: [localhost]: FAILED! => {"msg": "no"}
...ignoring
"""


def test_the_tests_of_all_runs_of_pytest_are_counted() -> None:
    assert read_counts(PYTEST.splitlines()) == Counter(passed=14, failed=3, skipped=3)


def test_failed_tests_and_tasks_are_named() -> None:
    assert read_failures(PYTEST.splitlines()) == ["tests/unit/test_a.py::test_b[1]", "tests/unit/test_c.py::test_d"]
    assert read_failures(ANSIBLE.splitlines()) == ["task: See that nothing is left"]


def test_a_task_that_ansible_tries_again_has_not_failed() -> None:
    assert read_failures(["FAILED - RETRYING: [localhost]: Wait for the image (60 retries left)."]) == []


@pytest.mark.parametrize(
    ("tests", "counts", "status"),
    [(["tests/a.py"], {"passed": 1}, 0), (["tests/a.py"], {"skipped": 1}, 1), ([], {}, 0)],
)
def test_a_run_whose_tests_were_all_skipped_has_failed(tests: list[str], counts: dict[str, int], status: int) -> None:
    outcome = Outcome(0, 1.0, Counter(counts))

    require_tests(outcome, tests)

    assert outcome.status == status


@pytest.mark.parametrize(("needs", "removed"), [("nothing", 0), ("definitions", 2)])
def test_lanes_without_a_cluster_leave_a_kept_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, needs: str, removed: int
) -> None:
    """Another run may use it."""
    removals: list[str] = []
    monkeypatch.setattr(checkout, "OUTPUT", tmp_path)
    monkeypatch.setattr(checkout, "is_clean", lambda: False)
    monkeypatch.setattr(TestCluster, "remove", lambda _cluster: removals.append("cluster"))
    monkeypatch.setattr(TestCluster, "provide", lambda *_unused: None)
    monkeypatch.setattr(execution, "environment", dict)

    assert run_lanes(TABLE, [Lane("some", ["true"], [], needs=needs)], keep=False) == 0

    assert len(removals) == removed


def test_variables_are_read_from_exports() -> None:
    text = "export A=/tmp/a\nexport B='x y'\nother\nexport PATH=\"$PATH\":/c\n"

    assert read_exports(text) == {"A": "/tmp/a", "B": "x y"}


def test_a_stage_that_names_no_tests_runs_its_commands() -> None:
    assert commands(Stage("cluster", ["scripts/cluster.sh make"]).run, []) == [["scripts/cluster.sh", "make"]]
