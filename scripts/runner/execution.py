"""Runs stages and lanes, one command at a time, and reports how they ended."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from . import checkout
from .cluster import TestCluster, environment
from .machine import CannotStartError
from .process import Outcome, run
from .records import Record, inputs_hash, read_record, state
from .table import Lane, Stage, Table, commands, lane_tests, stage_tests


def run_stages(table: Table, names: Sequence[str]) -> int:
    """Runs the stages of CI in their order, all of them or those that are named, and stops after one that fails.

    Returns:
        The exit status: 1 if a stage failed, or if the record of a lane is red.
    """
    unknown = sorted(set(names) - {stage.name for stage in table.stages})
    if unknown:
        stage_names = ", ".join(stage.name for stage in table.stages)
        raise CannotStartError(f"there is no stage {', '.join(unknown)}. The stages are {stage_names}.")
    chosen = [stage for stage in table.stages if not names or stage.name in names]
    files = checkout.present()
    cluster = TestCluster(checkout.OUTPUT / "ci/cluster.log")
    times: list[str] = []
    failure = ""
    began = time.monotonic()
    creates = any(stage.cluster == "creates" for stage in chosen)
    if creates:
        cluster.remove()
    try:
        for stage in chosen:
            outcome = _run_stage(stage, stage_tests(stage, table, files))
            times.append(f"{outcome.seconds:6.0f} s  {stage.name}{outcome.counted}")
            if outcome.status:
                failure = _describe_failure(stage, outcome)
                if stage.cluster:
                    cluster.diagnose()
                break
    finally:
        if creates:
            cluster.remove()
    times.append(f"{time.monotonic() - began:6.0f} s  all stages")
    if not names:
        states = {name: is_now for name, (_record, is_now) in _records(table).items()}
        counts = Counter(states.values())
        print("\nRecords of the lanes:", ", ".join(f"{number} {is_now}" for is_now, number in sorted(counts.items())))
        red = [name for name, is_now in states.items() if is_now == "red"]
        if red and not failure:
            failure = f"FAILED: the records of these lanes are red: {', '.join(red)}"
    print("\nSeconds of each stage, also in tests/output/times.txt:", *times, sep="\n")
    (checkout.OUTPUT / "times.txt").write_text("\n".join(times) + "\n")
    if failure:
        print(f"\n{failure}")
    return int(bool(failure))


def _run_stage(stage: Stage, tests: Sequence[str]) -> Outcome:
    print(f"\n=== {stage.name}", flush=True)
    variables = environment() if stage.cluster == "uses" else {}
    outcome = _run_commands(commands(stage.run, tests), _stage_log(stage), stage.seconds, variables)
    require_tests(outcome, tests)
    print(f"=== {stage.name}: {'FAILED' if outcome.status else 'passed'}, {outcome.seconds:.0f} s", flush=True)
    return outcome


def _stage_log(stage: Stage) -> Path:
    return checkout.OUTPUT / f"ci/{stage.name}.log"


def _describe_failure(stage: Stage, outcome: Outcome) -> str:
    log = _stage_log(stage).relative_to(checkout.ROOT)
    first = f"FAILED: stage {stage.name} (exit status {outcome.status}); its output is in {log}"
    return "\n".join([first, *(f"  - {name}" for name in outcome.failed or outcome.last_lines)])


def require_tests(outcome: Outcome, tests: Sequence[str]) -> None:
    """Fails a run in which all tests were skipped."""
    if tests and not outcome.status and not outcome.counts["passed"]:
        outcome.status = 1
        outcome.failed.append("no test has passed: all were skipped, or none ran")


def _run_commands(lines: Sequence[list[str]], log: Path, seconds: float, variables: Mapping[str, str]) -> Outcome:
    """Runs commands one after the other, up to the first that fails."""
    log.unlink(missing_ok=True)
    whole = Outcome(0, 0.0)
    for line in lines:
        whole.add(run(line, log, max(seconds - whole.seconds, 1), variables))
        if whole.status:
            break
    return whole


def run_lanes(table: Table, lanes: Sequence[Lane], keep: bool) -> int:
    """Runs lanes, each whatever became of the one before, and writes their records.

    Args:
        table: The whole table.
        lanes: In the order in which they run.
        keep: Leaves the cluster for the next call. Lanes that need no cluster always leave it.

    Returns:
        The exit status: 1 if a lane failed or could not be run.
    """
    files = checkout.present()
    cluster = TestCluster(checkout.OUTPUT / "lanes/cluster.log")
    keep = keep or all(lane.needs == "nothing" for lane in lanes)
    if not keep:
        cluster.remove()
    unsuccessful: dict[str, list[str]] = {"not run": [], "failed": []}
    try:
        for lane in lanes:
            print(f"\n=== lane {lane.name}", flush=True)
            record = _run_lane(lane, lane_tests(lane, files), cluster)
            passed = record.outcome == "passed"
            outcome = record.outcome if passed else record.outcome.upper()
            print(f"=== lane {lane.name}: {outcome}, {record.seconds} s", flush=True)
            if not passed:
                unsuccessful[record.outcome] += [f"  {lane.name}", *(f"    - {name}" for name in record.failed)]
    finally:
        if not keep:
            cluster.remove()
    print_status(table, {lane.name for lane in lanes})
    for outcome, lines in unsuccessful.items():
        if lines:
            print(f"\n{outcome.upper()}:", *lines, sep="\n")
    return int(any(unsuccessful.values()))


def _run_lane(lane: Lane, tests: Sequence[str], cluster: TestCluster) -> Record:
    load, clean, commit = os.getloadavg()[0], checkout.is_clean(), checkout.git("rev-parse", "HEAD").strip()
    inputs = inputs_hash(lane, checkout.committed())
    log = checkout.OUTPUT / f"lanes/{lane.name}.log"
    ran = True
    try:
        cluster.provide(lane.needs, lane.parts)
        variables = environment() if lane.needs != "nothing" else {}
        outcome = _run_commands(commands(lane.run, tests), log, lane.seconds, variables)
        require_tests(outcome, tests)
    except CannotStartError as error:
        ran, outcome = False, Outcome(1, 0.0, failed=[str(error)])
    if outcome.status and lane.needs != "nothing":
        cluster.diagnose()
    clean = clean and checkout.is_clean() and inputs == inputs_hash(lane, checkout.committed())
    record = Record(
        lane=lane.name,
        inputs=inputs if clean else "",
        commit=commit,
        outcome="passed" if not outcome.status else "failed" if ran else "not run",
        passed=outcome.counts["passed"],
        failed=outcome.failed,
        skipped=outcome.counts["skipped"],
        seconds=round(outcome.seconds),
        load=round(load, 1),
        cores=os.cpu_count() or 1,
        at=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    )
    record.write(checkout.OUTPUT / "lanes")
    if clean and ran:
        record.write(checkout.RECORDS)
    elif ran:
        print("Some changes are not committed, or came during the run: the record is in tests/output/lanes only.")
    return record


def print_status(table: Table, names: set[str] | None = None) -> None:
    """Prints a line for the record of each lane, all of them or those that are named."""
    print("\nRecords of the lanes:")
    for name, (record, is_now) in _records(table).items():
        if names is None or name in names:
            about = f"{record.passed:5} passed {record.seconds:5} s  {record.at}" if record else ""
            print(f"  {is_now:8} {name:30} {about}".rstrip())


def _records(table: Table) -> dict[str, tuple[Record | None, str]]:
    """Lane -> its record and the state of that."""
    objects = checkout.committed()
    records = {name: read_record(checkout.RECORDS, name) for name in table.lanes}
    return {name: (record, state(record, inputs_hash(table.lanes[name], objects))) for name, record in records.items()}
