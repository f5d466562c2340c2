"""The first process of the control container, which restarts the control process if it ends or hangs.

A pod is Ready only while all its containers run. If the kubelet restarted the control process, the pod would get no
connections in the meantime, and after several crashes for minutes, although HAProxy keeps running.
"""

from __future__ import annotations

import logging
import mmap
import os
import signal
import struct
import time
import traceback
from collections.abc import Callable

log = logging.getLogger(__name__)

SILENT_SECONDS = 60.0
"""A process without a heartbeat for this long hangs."""
_CHECK_SECONDS = 5.0
_STABLE_SECONDS = 20.0
"""A process that ran for this long is restarted immediately."""
_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 30.0
_STOP_SIGNALS = frozenset({signal.SIGTERM, signal.SIGINT})
_SIGNALS = _STOP_SIGNALS | {signal.SIGCHLD}


class Pulse:
    """The time of the control process's last heartbeat, in memory that both processes share."""

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, 8)
        self.beat()

    def beat(self) -> None:
        """Records a heartbeat."""
        struct.pack_into("d", self._memory, 0, time.monotonic())

    def silent_seconds(self) -> float:
        """Returns the seconds since the last heartbeat."""
        last: float = struct.unpack_from("d", self._memory)[0]
        return time.monotonic() - last


Run = Callable[[int, Pulse], int]
"""Runs a control process with the number of restarts before it. Returns its exit status."""


def supervise(run: Run) -> int:
    """Keeps a process running until SIGTERM or SIGINT, which is passed on. Returns the last process's exit status.

    No other thread may run, because processes are forked.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    restarts, pause = 0, 0.0
    while True:
        began, pulse = time.monotonic(), Pulse()
        child = os.fork()
        if not child:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            _run_child(run, restarts, pulse)
        status, stopping = _wait_for_exit(child, pulse)
        if stopping:
            return status if status >= 0 else 128 - status
        pause = next_pause(time.monotonic() - began, pause)
        log.error(
            "The control process ended (%s); HAProxy continues. Starting another in %.1f s",
            _describe_status(status),
            pause,
        )
        if signal.sigtimedwait(_STOP_SIGNALS, pause):
            return 0
        restarts += 1


def next_pause(lifetime: float, pause: float) -> float:
    """Returns the seconds to wait before the next start.

    ``lifetime``: how long the last process ran; ``pause``: how long the wait before it was. Both in seconds.
    """
    if lifetime >= _STABLE_SECONDS:
        return 0.0
    return min(max(2 * pause, _FIRST_PAUSE), _LONGEST_PAUSE)


def _run_child(run: Run, restarts: int, pulse: Pulse) -> None:
    """Runs the control process in the forked child; does not return."""
    status = 1
    try:
        status = run(restarts, pulse)
    except BaseException:  # noqa: BLE001 - any error must end this process, and must not reach the supervisor's code
        traceback.print_exc()
    finally:
        logging.shutdown()
        os._exit(status)


def _wait_for_exit(child: int, pulse: Pulse) -> tuple[int, bool]:
    """Waits for the process. Returns its exit status (negative: the signal), and whether it received a stop signal."""
    stopping = False
    while True:
        received = signal.sigtimedwait(_SIGNALS, _CHECK_SECONDS)
        if received and received.si_signo in _STOP_SIGNALS:
            stopping = True
            os.kill(child, signal.SIGTERM)
        elif received is None and pulse.silent_seconds() > SILENT_SECONDS and not stopping:
            log.error("The control process has hung for %.0f s: killing it", pulse.silent_seconds())
            os.kill(child, signal.SIGKILL)
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status), stopping


def _describe_status(status: int) -> str:
    return f"exit status {status}" if status >= 0 else signal.Signals(-status).name
