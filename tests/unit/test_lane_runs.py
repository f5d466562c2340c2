"""Test runs: one at a time on a machine, the record of a lane that could not start, and what ends with a command."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from runner import checkout, descendants, execution, machine
from runner.execution import run_lanes
from runner.machine import CannotStartError
from runner.process import InterruptedRunError, describe_interrupt, ended_with_all_it_starts, run
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


@pytest.mark.parametrize(
    ("program", "answers"), [("exit 1", False), ("test $1 = info", True), ("exec sleep 600", False)]
)
def test_a_run_starts_only_when_docker_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str, answers: bool
) -> None:
    """Otherwise a lane starts it, and it ends with the lane."""
    docker = tmp_path / "docker"
    docker.write_text(f"#!/bin/sh\n{program}\n")
    docker.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setattr(machine, "PROGRAMS", ("docker",))
    monkeypatch.setattr(machine, "FREE_GIB", 0)
    monkeypatch.setattr(machine, "DOCKER_SECONDS", 60 if answers else 1)

    if answers:
        machine.check_machine()
    else:
        with pytest.raises(CannotStartError, match=r"^Docker does not respond\. Run scripts/docker\.sh to start it\.$"):
            machine.check_machine()


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


@pytest.mark.parametrize("session", [False, True])
@pytest.mark.parametrize("program", ["exec sleep 600", "trap '' TERM; echo; while :; do sleep 600; done"])
def test_processes_of_a_command_do_not_outlive_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, program: str, session: bool
) -> None:
    """Also if it runs in another session, as the playbooks of ansible-runner do, or ignores SIGTERM."""
    monkeypatch.setattr(descendants, "TERM_SECONDS", 1)
    parent = f"""
import subprocess
from pathlib import Path
child = subprocess.Popen(["sh", "-c", {program!r}], stdout=subprocess.PIPE, start_new_session={session})
Path("{tmp_path}/pid").write_text(str(child.pid))
if "trap" in {program!r}:
    child.stdout.readline()
"""
    run([sys.executable, "-c", parent], tmp_path / "log", 60, {})

    assert not is_running(int((tmp_path / "pid").read_text()))


DAEMON = """\
setsid sh -c 'trap "" TERM; echo $$ > pid-of-daemon; exec sleep 600' &
until [ -s pid-of-daemon ]; do sleep 0.01; done
"""


@pytest.mark.parametrize(
    ("moment", "program"),
    [
        ("while it waits", "echo && exec sleep 600"),
        ("in Popen.__init__", "exec sleep 600"),
        ("in Thread.start", "exec sleep 600"),
        ("while it cleans up", DAEMON),
    ],
    ids=["while it waits", "in Popen.__init__", "in Thread.start", "while it cleans up"],
)
def test_an_interrupted_run_reports_the_signal_and_leaves_no_process(tmp_path: Path, moment: str, program: str) -> None:
    script = f"""
import os, signal, subprocess, sys, threading
sys.path.insert(0, {str(checkout.ROOT / "scripts")!r})
from pathlib import Path
from runner import descendants
from runner.process import InterruptedRunError, describe_interrupt, interruptible, run

def interrupt(moment):
    if moment == {moment!r}:
        signal.raise_signal(signal.SIGTERM)

class Popen(subprocess.Popen):
    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        Path("pid").write_text(str(self.pid))
        interrupt("in Popen.__init__")

class Thread(threading.Thread):
    def start(self):
        super().start()
        interrupt("in Thread.start")

kill = os.kill
def kill_and_interrupt(*arguments):
    kill(*arguments)
    interrupt("while it cleans up")

subprocess.Popen, threading.Thread, os.kill = Popen, Thread, kill_and_interrupt
descendants.TERM_SECONDS = 1
try:
    with interruptible():
        run(["sh", "-c", {program!r}], Path("log"), 600, {{}})
except InterruptedRunError as error:
    raise SystemExit(describe_interrupt(error).removeprefix("interrupted "))
"""
    running = subprocess.Popen(
        [sys.executable, "-c", script], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    if moment == "while it waits":
        assert running.stdout
        running.stdout.readline()
        running.send_signal(signal.SIGTERM)
    _output, message = running.communicate(timeout=60)

    assert (running.returncode, message) == (1, "by SIGTERM; all processes that it started have ended\n")
    assert [file.name for file in tmp_path.glob("pid*") if is_running(int(file.read_text()))] == []


def test_only_processes_that_the_cleanup_could_not_end_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(descendants, "TERM_SECONDS", 0)
    monkeypatch.setattr(descendants, "KILL_SECONDS", 0)
    running = [subprocess.Popen(["sleep", "600"])]

    def interrupt() -> None:
        with ended_with_all_it_starts(lambda: subprocess.Popen(["true"], text=True, start_new_session=True)):
            running.append(subprocess.Popen(["sleep", "600"]))
            raise InterruptedRunError("SIGTERM")

    try:
        with pytest.raises(InterruptedRunError) as interruption:
            interrupt()
        message = describe_interrupt(interruption.value)
    finally:
        for process in running:
            process.kill()
            process.wait()

    assert message == f"interrupted by SIGTERM; these processes still run: {running[1].pid} (sleep)"


def is_running(process: int) -> bool:
    try:
        stat = Path(f"/proc/{process}/stat").read_text()
    except FileNotFoundError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"
