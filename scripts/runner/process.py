"""Runs one command at a time: its output is shown and kept, and nothing that it starts outlives it."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from .descendants import Descendants, adopted_orphans, describe_running

GRACE_SECONDS = 90
"""How long a command may take to end after SIGTERM."""
INTERRUPTS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
REAP_SECONDS = 1
DRAIN_SECONDS = 10
"""How long to read on after a command has ended: a daemon that it left behind may hold its output open."""
COUNT = re.compile(r"(\d+) (passed|failed|skipped|errors?)\b")
SUMMARY = re.compile(r"^(=+ )?\d+ \w+.* in [\d.]+s")
FAILED_TEST = re.compile(r"^(?:FAILED|ERROR) (?!- )(\S+)")
TASK = re.compile(r"^(?:TASK|PLAY) \[(.+?)\] \*+")
FATAL = re.compile(r"^(?:fatal|failed): \[")


class InterruptedRunError(Exception):
    """This process received a signal to end."""

    survivors: Collection[int] = ()
    """Processes that the cleanup could not end."""


@dataclass
class Outcome:
    """How a command ended."""

    status: int
    """Exit status; 124 if it ran out of time."""
    seconds: float
    counts: Counter[str] = field(default_factory=Counter)
    """``passed``, ``failed`` and ``skipped`` -> number of tests, over all runs of pytest."""
    failed: list[str] = field(default_factory=list)
    """Tests and Ansible tasks that failed, in the order of the output."""
    last_lines: list[str] = field(default_factory=list)
    """The end of the output of the last command."""

    @property
    def counted(self) -> str:
        """Such as `` (12 passed, 1 skipped)``; empty where no test ran."""
        words = [f"{self.counts[word]} {word}" for word in ("passed", "failed", "skipped") if self.counts[word]]
        return f" ({', '.join(words)})" if words else ""

    def add(self, other: Outcome) -> None:
        """What ran after this is part of it."""
        self.status = self.status or other.status
        self.seconds += other.seconds
        self.counts += other.counts
        self.failed += other.failed
        self.last_lines = other.last_lines


def read_counts(lines: Sequence[str]) -> Counter[str]:
    """Adds up the last lines of all runs of pytest in an output."""
    counts: Counter[str] = Counter()
    for line in lines:
        if SUMMARY.match(line):
            for number, word in COUNT.findall(line):
                counts["failed" if word.startswith("error") else word] += int(number)
    return counts


def read_end(lines: Sequence[str]) -> list[str]:
    """The last three lines that are not empty."""
    return [line.rstrip() for line in lines if line.strip()][-3:]


def read_failures(lines: Sequence[str]) -> list[str]:
    """Names the failed tests of pytest and the failed tasks of Ansible in an output, each once."""
    failures: dict[str, None] = {}
    task = ""
    for line in lines:
        if match := TASK.match(line):
            task = match.group(1)
        elif FATAL.match(line) and task and not line.rstrip().endswith("...ignoring"):
            failures[f"task: {task}"] = None
        elif line.startswith("...ignoring"):
            failures.pop(f"task: {task}", None)
        elif match := FAILED_TEST.match(line):
            failures[match.group(1)] = None
    return list(failures)


def run(command: Sequence[str], log: Path, seconds: float, environment: Mapping[str, str]) -> Outcome:
    """Runs a command in a process group and waits until it ends. Then everything that it has started is ended.

    Args:
        command: Arguments, without a shell.
        log: The output is appended to this file.
        seconds: After this time the command is ended.
        environment: Variables in addition to those of this process.

    Raises:
        FileNotFoundError: There is no such program.
    """
    began = time.monotonic()
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("a") as kept:
        try:
            with ended_with_all_it_starts(lambda: _start(command, environment)) as started:
                lines: list[str] = []
                reader = threading.Thread(target=_copy, args=(started.process.stdout, kept, lines), daemon=True)
                reader.start()
                status = started.wait(seconds)
        except subprocess.TimeoutExpired:
            status = 124
        reader.join(DRAIN_SECONDS)
        failed = read_failures(lines)
        if status == 124:
            failed.append(f"timeout after {seconds:.0f} s")
            kept.write(f"ended: {failed[-1]}\n")
    return Outcome(status, time.monotonic() - began, read_counts(lines), failed, read_end(lines))


def _start(command: Sequence[str], environment: Mapping[str, str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        env={**os.environ, **environment},
        start_new_session=True,
    )


def _copy(source: IO[str] | None, kept: IO[str], lines: list[str]) -> None:
    for line in source or ():
        sys.stdout.write(line)
        sys.stdout.flush()
        lines.append(line)
        with contextlib.suppress(ValueError):  # closed: a daemon writes after its command has ended
            kept.write(line)
            kept.flush()


@dataclass(frozen=True)
class Started:
    """A command that runs."""

    process: subprocess.Popen[str]
    descendants: Descendants

    def wait(self, seconds: float) -> int:
        """Returns the exit status.

        Raises:
            subprocess.TimeoutExpired: The command still runs.
        """
        deadline = time.monotonic() + seconds
        while True:
            self.descendants.reap(besides={self.process.pid})
            remaining = deadline - time.monotonic()
            try:
                return self.process.wait(max(min(remaining, REAP_SECONDS), 0))
            except subprocess.TimeoutExpired:
                if remaining <= REAP_SECONDS:
                    raise


@contextlib.contextmanager
def ended_with_all_it_starts(start: Callable[[], subprocess.Popen[str]]) -> Iterator[Started]:
    """Starts a command as the leader of a process group. At the end of the block, ends it and all that it has started.

    Args:
        start: Starts the command.
    """
    process: subprocess.Popen[str] | None = None
    survivors: Collection[int] = ()
    try:
        with adopted_orphans() as descendants:
            try:
                with postponed_interrupts():  # one between the start and the assignment would leave the process behind
                    process = start()
                yield Started(process, descendants)
            finally:
                with postponed_interrupts():  # one before SIGKILL would leave what ignores SIGTERM
                    if process is not None:
                        _end_group(process)
                    survivors = descendants.end()
    except InterruptedRunError as error:
        error.survivors = survivors
        raise


def describe_interrupt(error: InterruptedRunError) -> str:
    """The last message of an interrupted program."""
    if running := describe_running(error.survivors):
        return f"interrupted by {error}; these processes still run: {running}"
    return f"interrupted by {error}; all processes that it started have ended"


def _end_group(process: subprocess.Popen[str]) -> None:
    """Ends a process that leads a group, and whatever is left of the group."""
    if process.poll() is None:
        _signal_group(process.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(GRACE_SECONDS)
    _signal_group(process.pid, signal.SIGKILL)
    process.wait()


def _signal_group(group: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, number)


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """SIGINT, SIGTERM and SIGHUP raise InterruptedRunError in this block, once: nothing interrupts the cleanup."""

    def stop(number: int, _frame: object) -> None:
        for each in before:
            signal.signal(each, signal.SIG_IGN)
        raise InterruptedRunError(signal.Signals(number).name)

    before = {number: signal.signal(number, stop) for number in INTERRUPTS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def postponed_interrupts() -> Iterator[None]:
    """Handles signals that arrive in this block at its end. A program that starts here ignores those that this process
    ignores, and no others."""
    arrived: list[int] = []
    handlers = {number: signal.getsignal(number) for number in INTERRUPTS}
    handlers = {number: handler for number, handler in handlers.items() if callable(handler)}
    for number in handlers:
        signal.signal(number, lambda which, _frame: arrived.append(which))
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        for which in arrived:
            signal.raise_signal(which)


@contextlib.contextmanager
def keep_busy(cores: int) -> Iterator[None]:
    """Keeps this many processor cores busy, to show how tests behave on a busy machine."""
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _core in range(cores)]
    try:
        yield
    finally:
        for process in busy:
            process.kill()
            process.wait()
