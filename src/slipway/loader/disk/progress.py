"""Progress of a load: counted by its threads, shown in the agent's report and in the log."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from slipway.loader.transport.errors import LoadError
from slipway.serving.wire.agent import Progress

UNITS = ("B", "KiB", "MiB", "GiB", "TiB")
LOWEST_RATE = 64 << 10
"""Minimum rate in bytes per second. A slower load is ended, because others wait for its turn."""
RATE_SECONDS = 600.0
"""How long the rate must be lower, in seconds."""


class Meter:
    """Counts the bytes and files of one load. It can be read at any time, even before the total is known."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._lock = threading.Lock()
        self._clock = clock
        self._started = clock()
        self._done = self._total = self._fetched = self._handled = 0
        self._files = self._all_files = self._flushing = 0
        self._note = "listing files"
        self.resume = ""
        """State with which the next loader can resume, if the folder does not contain it."""

    def expect(self, size: int, files: int) -> None:
        """Starts the clock. ``size`` bytes in ``files`` files are expected."""
        with self._lock:
            self._total, self._all_files, self._note = size, files, ""
            self._done = self._files = self._fetched = 0
            self._started = self._clock()

    def note(self, text: str) -> None:
        """Sets the reason why the load is waiting; empty: it is not waiting."""
        with self._lock:
            self._note = text

    def reused(self, size: int) -> None:
        """Counts ``size`` bytes that already existed. A negative size subtracts bytes that turned out to be
        unusable."""
        with self._lock:
            self._done += size

    def fetched(self, size: int) -> None:
        """Counts ``size`` bytes that were downloaded."""
        with self._lock:
            self._done += size
            self._fetched += size
            self._handled += size
            self._note = ""

    def verified(self, size: int) -> None:
        """Counts ``size`` bytes of an earlier load that were read again."""
        with self._lock:
            self._handled += size

    def file_done(self) -> None:
        """Counts a complete file."""
        with self._lock:
            self._files += 1

    @contextmanager
    def flushing(self) -> Iterator[None]:
        """Marks the time in which the disk writes data, which does not count against the source."""
        with self._lock:
            self._flushing += 1
        try:
            yield
        finally:
            with self._lock:
                self._flushing -= 1

    def progress(self) -> Progress:
        """Returns the current state, for the agent's report."""
        with self._lock:
            if self._note:
                return Progress(self._done, self._total, self._note)
            speed = self._fetched / max(self._clock() - self._started, 0.001)
            message = f"{self._files} of {self._all_files} files, {human(speed)}/s"
            if speed and self._total > self._done:
                message += f", {round((self._total - self._done) / speed)} s left"
            return Progress(self._done, self._total, message)

    def handled(self) -> int | None:
        """Returns the number of bytes downloaded or verified. None: no file is being loaded, or the disk is writing
        one."""
        with self._lock:
            return self._handled if self._files < self._all_files and not self._flushing else None

    def line(self) -> str:
        """Returns a line for the log."""
        now = self.progress()
        return f"{human(now.done_bytes)} of {human(now.total_bytes)}: {now.message}"


class Pace:
    """Ends a load whose source sends almost nothing."""

    def __init__(self, meter: Meter, clock: Callable[[], float] = time.monotonic) -> None:
        self._meter, self._clock = meter, clock
        self._seen: deque[tuple[float, int]] = deque()
        """Times and the bytes handled until then; the first one is at least RATE_SECONDS old, if there is one."""

    def check(self) -> None:
        """Checks the rate; call it regularly. Raises LoadError if the load is too slow."""
        handled, now = self._meter.handled(), self._clock()
        if handled is None:
            self._seen.clear()
            return
        self._seen.append((now, handled))
        while len(self._seen) > 1 and now - self._seen[1][0] >= RATE_SECONDS:
            self._seen.popleft()
        since, before = self._seen[0]
        if now - since >= RATE_SECONDS and handled - before < LOWEST_RATE * (now - since):
            rate = human((handled - before) / (now - since))
            text = f"the source sent {rate}/s for {(now - since) / 60:.0f} min, less than {human(LOWEST_RATE)}/s"
            raise LoadError(f"{text}: check the source and the network")


def human(size: float) -> str:
    """Formats a number of bytes for people."""
    for unit in UNITS[:-1]:
        if abs(size) < 1000:
            return f"{size:.0f} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} {UNITS[-1]}"
