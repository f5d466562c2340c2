"""The first process of the control container, which restarts the control process when it exits or hangs.

A pod is Ready only while all its containers run. If the kubelet restarted the control process, the pod would get no
connections during the restart, and for minutes after several crashes, although HAProxy keeps running.
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
"""Seconds without a heartbeat after which a process counts as hung."""
_CHECK_SECONDS = 5.0
_STABLE_SECONDS = 20.0
"""Seconds after which a process counts as stable. When a stable process exits, it is restarted immediately."""
_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 30.0
_STOP_SIGNALS = frozenset({signal.SIGTERM, signal.SIGINT})
_SIGNALS = _STOP_SIGNALS | {signal.SIGCHLD}


class Pulse:
    """The time of the control process's last heartbeat, in memory that both processes share."""

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, 8)
        self.beat()

    def beat(self) -> None:
        """Record a heartbeat of the control process."""
        struct.pack_into("d", self._memory, 0, time.monotonic())

    def silent_seconds(self) -> float:
        """Return the seconds since the last heartbeat."""
        last: float = struct.unpack_from("d", self._memory)[0]
        return time.monotonic() - last


Run = Callable[[int, Pulse], int]
"""A function that runs the control process. It gets the number of restarts so far, and returns the exit status."""


def supervise(run: Run) -> int:
    """Keep a control process running until SIGTERM or SIGINT, which it forwards as SIGTERM. Return the exit status of
    the last process, or 128 plus the number of the signal that ended it. Return 0 if no process is running when the
    signal arrives.

    The caller must have no other threads, because this function forks.
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
    """Return the seconds to wait before the next start.

    ``lifetime`` is the time that the last process ran, and ``pause`` the wait before it started, both in seconds.
    """
    if lifetime >= _STABLE_SECONDS:
        return 0.0
    return min(max(2 * pause, _FIRST_PAUSE), _LONGEST_PAUSE)


def _run_child(run: Run, restarts: int, pulse: Pulse) -> None:
    """Run the control process in the forked child, and exit. This function never returns."""
    status = 1
    try:
        status = run(restarts, pulse)
    except BaseException:  # noqa: BLE001 - any error must end this process, and must not reach the supervisor's code
        traceback.print_exc()
    finally:
        logging.shutdown()
        os._exit(status)


def _wait_for_exit(child: int, pulse: Pulse) -> tuple[int, bool]:
    """Wait until the control process exits, and kill it if it hangs before a stop signal. Return its exit status,
    negative for a signal, and whether the supervisor received a stop signal."""
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
