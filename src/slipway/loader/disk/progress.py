"""How far a load is: counted by its threads, told in the agent's report and in the log."""

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
"""Bytes a second, below which a load ends: others wait for its turn."""
RATE_SECONDS = 600.0
"""For how long the rate must be lower."""


class Meter:
    """Counts bytes and files of one load. It may be read at any time, even before the total is known."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._lock = threading.Lock()
        self._clock = clock
        self._started = clock()
        self._done = self._total = self._fetched = self._handled = 0
        self._files = self._all_files = self._flushing = 0
        self._note = "listing files"
        self.resume = ""
        """From where the next loader may go on, where the folder does not tell."""

    def expect(self, size: int, files: int) -> None:
        """Starts the clock: ``size`` bytes in ``files`` files are to come."""
        with self._lock:
            self._total, self._all_files, self._note = size, files, ""
            self._done = self._files = self._fetched = 0
            self._started = self._clock()

    def note(self, text: str) -> None:
        """Sets what the load waits for; an empty text: nothing."""
        with self._lock:
            self._note = text

    def reused(self, size: int) -> None:
        """Counts ``size`` bytes that existed already. A negative size takes back bytes that turned out to be
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
        """Counts a file that is complete."""
        with self._lock:
            self._files += 1

    @contextmanager
    def flushing(self) -> Iterator[None]:
        """While the disk writes what it has of a file, which is not the source's fault."""
        with self._lock:
            self._flushing += 1
        try:
            yield
        finally:
            with self._lock:
                self._flushing -= 1

    def progress(self) -> Progress:
        """The state now, for the agent's report."""
        with self._lock:
            if self._note:
                return Progress(self._done, self._total, self._note)
            speed = self._fetched / max(self._clock() - self._started, 0.001)
            message = f"{self._files} of {self._all_files} files, {human(speed)}/s"
            if speed and self._total > self._done:
                message += f", {round((self._total - self._done) / speed)} s left"
            return Progress(self._done, self._total, message)

    def handled(self) -> int | None:
        """Bytes that were downloaded or verified. None: no file is being loaded, or a disk is flushing one."""
        with self._lock:
            return self._handled if self._files < self._all_files and not self._flushing else None

    def line(self) -> str:
        """For the log."""
        now = self.progress()
        return f"{human(now.done_bytes)} of {human(now.total_bytes)}: {now.message}"


class Pace:
    """Ends a load whose source sends almost nothing."""

    def __init__(self, meter: Meter, clock: Callable[[], float] = time.monotonic) -> None:
        self._meter, self._clock = meter, clock
        self._seen: deque[tuple[float, int]] = deque()
        """Times and the bytes handled until then, the last of them at least RATE_SECONDS ago."""

    def check(self) -> None:
        """To be called regularly. Raises LoadError if the load is too slow."""
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
    """Bytes as people read them."""
    for unit in UNITS[:-1]:
        if abs(size) < 1000:
            return f"{size:.0f} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} {UNITS[-1]}"
