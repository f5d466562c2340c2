"""Test runs: one at a time on a machine, and the record of a lane that could not start."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from runner import checkout, execution, machine
from runner.execution import run_lanes
from runner.machine import CannotStartError
from runner.records import read_record
from runner.table import Lane, Table

PATIENCE = 120
HOLDER = """
import sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from runner import machine
machine.LOCK = Path(sys.argv[2])
with machine.only_run():
    print("holds it", flush=True)
    sys.stdin.read()
"""


def start(lock: Path, cache: Path) -> subprocess.Popen[str]:
    """Holds the lock until its input ends."""
    return subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(checkout.ROOT / "scripts"), str(lock)],
        env={**os.environ, "SLIPWAY_CACHE": str(cache)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def test_checkouts_with_other_caches_wait_for_each_other(tmp_path: Path) -> None:
    """They share the name and the ports of the test cluster."""
    lock = tmp_path / "tests.lock"
    with start(lock, tmp_path / "one") as first:
        assert first.stdout
        assert first.stdin
        assert first.stdout.readline() == "holds it\n"
        with start(lock, tmp_path / "two") as second:
            assert second.stdout
            waiting = rf"Another test run has used this machine since \d\d:\d\d \(process {first.pid}\); waiting\.\n"
            assert re.fullmatch(waiting, second.stdout.readline())
            first.stdin.close()
            assert second.stdout.readline() == "holds it\n"
            second.communicate(timeout=PATIENCE)


def test_a_lock_that_cannot_be_opened_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "LOCK", tmp_path / "tests.lock")
    machine.LOCK.symlink_to(tmp_path / "elsewhere")

    with pytest.raises(CannotStartError, match=r"tests\.lock: .*\. Remove it\."), machine.only_run():
        pass
    assert not (tmp_path / "elsewhere").exists()


class Cluster:
    """Cannot be created."""

    def __init__(self, _log: Path) -> None:
        pass

    def provide(self, needs: str, _parts: Sequence[str]) -> None:
        if needs != "nothing":
            raise CannotStartError("scripts/cluster.sh make failed")

    def remove(self) -> None:
        pass

    def diagnose(self) -> None:
        pass


def lane(name: str, *, needs: str, run: str) -> Lane:
    return Lane(name=name, run=[run], inputs=["galaxy.yml"], needs=needs)


def test_a_lane_without_a_cluster_is_not_run_and_keeps_its_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(execution, "TestCluster", Cluster)
    monkeypatch.setattr(checkout, "OUTPUT", tmp_path / "output")
    monkeypatch.setattr(checkout, "RECORDS", tmp_path / "records")
    monkeypatch.setattr(checkout, "is_clean", lambda: True)
    lanes = [lane("apart", needs="installation", run="true"), lane("red", needs="nothing", run="false")]

    assert run_lanes(Table([], {one.name: one for one in lanes}), lanes, keep=True) == 1
    assert read_record(tmp_path / "records", "apart") is None
    assert json.loads((tmp_path / "output/lanes/apart.json").read_text())["outcome"] == "not run"
    failed = read_record(tmp_path / "records", "red")
    assert failed is not None
    assert failed.outcome == "failed"
    output = capsys.readouterr().out
    assert "=== lane apart: NOT RUN, 0 s" in output
    assert "NOT RUN:\n  apart\n    - scripts/cluster.sh make failed\n" in output
    assert "FAILED:\n  red\n" in output
