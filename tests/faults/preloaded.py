"""The controller without its start, which costs a second of a processor: these tests start it hundreds of times.

A process imports it once and forks for each one that is to run, as if ``slipway controller`` had been called. As a
program it reads from its standard input, a line of JSON each, what to start or whose exit status to tell, and writes a
number: the process that it started, or the status.
"""

from __future__ import annotations

import asyncio
import atexit
import json
import os
import signal
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import IO, Any


class Preloaded:
    """The process that has imported the controller. It ends with the one that started it."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-P", __file__],
            env={**os.environ, "PYTHONPATH": "src"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        atexit.register(self.close)

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(60)

    def start(self, arguments: list[str], log: Path, **environment: str) -> Forked:
        """A controller with these arguments, whose output is added to ``log``."""
        return Forked(self, self._ask({"arguments": arguments, "log": str(log), "environment": environment}))

    def status(self, pid: int) -> int:
        """The exit status of one that has ended; negative when a signal ended it."""
        return self._ask({"ended": pid})

    def _ask(self, what: dict[str, Any]) -> int:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps(what), file=self._process.stdin, flush=True)
        return int(self._process.stdout.readline())


@cache
def preloaded() -> Preloaded:
    return Preloaded()


class Forked:
    """A controller that runs, with what is needed of asyncio's Process."""

    def __init__(self, parent: Preloaded, pid: int) -> None:
        self._parent, self.pid = parent, pid
        self.returncode: int | None = None

    def send_signal(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)

    async def wait(self) -> int:
        if self.returncode is None:
            ended, loop = asyncio.Event(), asyncio.get_running_loop()
            descriptor = os.pidfd_open(self.pid)
            loop.add_reader(descriptor, ended.set)
            try:
                await ended.wait()
            finally:
                loop.remove_reader(descriptor)
                os.close(descriptor)
        if self.returncode is None:  # several may wait
            self.returncode = self._parent.status(self.pid)
        return self.returncode


def _serve(requests: IO[str], answers: IO[str]) -> None:
    from slipway.controller.main import main

    for line in requests:
        request = json.loads(line)
        if "ended" in request:
            _pid, status = os.waitpid(request["ended"], 0)
            answer = os.waitstatus_to_exitcode(status)
        else:
            answer = os.fork()
            if answer == 0:
                _move(request["log"], request["environment"])
                sys.exit(main(request["arguments"]))
        print(answer, file=answers, flush=True)


def _move(log: str, environment: dict[str, str]) -> None:
    os.environ.update(environment)
    nothing = os.open(os.devnull, os.O_RDONLY)
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    for old, new in ((nothing, 0), (output, 1), (output, 2)):
        os.dup2(old, new)


if __name__ == "__main__":
    _serve(sys.stdin, sys.stdout)
