"""Test runs: one at a time on a machine."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from runner import checkout, machine
from runner.machine import CannotStartError

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
