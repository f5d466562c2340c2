"""When the supervisor restarts the control process, and when it stops."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

from slipway.gateway.control.supervisor import Pulse, next_pause


def supervised(body: str) -> subprocess.Popen[str]:
    """Starts a supervisor of a process that runs `body`, which can use the variable `restarts`."""
    program = f"""
import os, sys, time
from slipway.gateway.control import supervisor
supervisor._FIRST_PAUSE = 0.01
supervisor._CHECK_SECONDS = 0.05
supervisor.SILENT_SECONDS = 0.3
def run(restarts, pulse):
    print(restarts, flush=True)
{body}
sys.exit(supervisor.supervise(run))
"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    return subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, env=environment)


def lines(process: subprocess.Popen[str], count: int) -> list[str]:
    assert process.stdout
    return [process.stdout.readline().strip() for _unused in range(count)]


@pytest.mark.parametrize(
    "end",
    ["    return 0", "    return 3", "    raise RuntimeError", "    os.kill(os.getpid(), 9)", "    time.sleep(60)"],
    ids=["without-order", "failed", "raised", "killed", "hangs"],
)
def test_a_process_that_ends_or_hangs_is_restarted_with_its_number_of_restarts(end: str) -> None:
    process = supervised(end)
    try:
        assert lines(process, 3) == ["0", "1", "2"]
        assert process.poll() is None
    finally:
        process.terminate()
        process.wait(60)


def test_a_stop_signal_reaches_the_process_and_its_exit_status_is_returned() -> None:
    process = supervised(
        "    import signal\n"
        "    signal.signal(signal.SIGTERM, lambda *_unused: os._exit(7))\n"
        "    print('prepared', flush=True)\n"
        "    while True:\n"
        "        pulse.beat()\n"
        "        time.sleep(0.02)"
    )
    assert lines(process, 2) == ["0", "prepared"]
    process.send_signal(signal.SIGTERM)
    assert process.communicate(timeout=60)[0] == "", "no other was started"
    assert process.returncode == 7


def test_pauses_grow_while_processes_die_young_and_not_without_end() -> None:
    pauses = [0.0]
    for _unused in range(9):
        pauses.append(next_pause(1.0, pauses[-1]))
    assert pauses == [0.0, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0, 30.0]
    assert next_pause(20.0, 30.0) == 0.0, "one that lived is not waited for"


def test_a_beat_in_one_process_is_seen_in_the_other() -> None:
    pulse = Pulse()
    before = time.monotonic()
    child = os.fork()
    if not child:
        pulse.beat()
        os._exit(0)
    os.waitpid(child, 0)
    assert time.monotonic() - pulse.silent_seconds() > before
