"""Counters for the progress of a load, which the log and the loader's report show."""

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
"""Minimum rate in bytes per second. A slower load that ``Pace`` checks fails, because other loads wait for their
turn."""
RATE_SECONDS = 600.0
"""Seconds for which the rate must be too low before the load fails."""


class Meter:
    """A counter of the bytes and files of one load. Any thread can read it at any time, even before the total is
    known."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._lock = threading.Lock()
        self._clock = clock
        self._started = clock()
        self._done = self._total = self._fetched = self._handled = 0
        self._files = self._all_files = self._flushing = 0
        self._note = "listing files"
        self.resume = ""
        """State that the next loader needs to resume this load and that is not on the disk; empty: there is none."""

    def expect(self, size: int, files: int) -> None:
        """Set the expected total, ``size`` bytes in ``files`` files, and restart the clock and the counters of
        ``progress``."""
        with self._lock:
            self._total, self._all_files, self._note = size, files, ""
            self._done = self._files = self._fetched = 0
            self._started = self._clock()

    def note(self, text: str) -> None:
        """Set the reason why the load is waiting. An empty string means that it is not waiting."""
        with self._lock:
            self._note = text

    def reused(self, size: int) -> None:
        """Count ``size`` bytes that existed before the load. A negative size subtracts bytes that turned out to be
        unusable."""
        with self._lock:
            self._done += size

    def fetched(self, size: int) -> None:
        """Count ``size`` bytes that were downloaded. The load is then no longer waiting."""
        with self._lock:
            self._done += size
            self._fetched += size
            self._handled += size
            self._note = ""

    def verified(self, size: int) -> None:
        """Count ``size`` bytes of an earlier load that were read again to verify them."""
        with self._lock:
            self._handled += size

    def file_done(self) -> None:
        """Count a complete file."""
        with self._lock:
            self._files += 1

    @contextmanager
    def flushing(self) -> Iterator[None]:
        """Pause the measurement of the rate while the context is open. The disk is writing data then, so the source is
        not slow."""
        with self._lock:
            self._flushing += 1
        try:
            yield
        finally:
            with self._lock:
                self._flushing -= 1

    def progress(self) -> Progress:
        """Return the current progress for the loader's report."""
        with self._lock:
            if self._note:
                return Progress(self._done, self._total, self._note)
            speed = self._fetched / max(self._clock() - self._started, 0.001)
            message = f"{self._files} of {self._all_files} files, {human(speed)}/s"
            if speed and self._total > self._done:
                message += f", {round((self._total - self._done) / speed)} s left"
            return Progress(self._done, self._total, message)

    def handled(self) -> int | None:
        """Return the number of bytes downloaded or verified so far, or None while no file is being loaded or the disk
        is writing one."""
        with self._lock:
            return self._handled if self._files < self._all_files and not self._flushing else None

    def line(self) -> str:
        """Return the current progress as one line for the log."""
        now = self.progress()
        return f"{human(now.done_bytes)} of {human(now.total_bytes)}: {now.message}"


class Pace:
    """A check that a source does not send its bytes too slowly."""

    def __init__(self, meter: Meter, clock: Callable[[], float] = time.monotonic) -> None:
        self._meter, self._clock = meter, clock
        self._seen: deque[tuple[float, int]] = deque()
        """Measurements: a time, and the number of bytes handled until then. Once the load is old enough, the first
        measurement is at least ``RATE_SECONDS`` old."""

    def check(self) -> None:
        """Measure the rate. Raise LoadError if the load has been too slow for ``RATE_SECONDS``. Call this method
        regularly."""
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
    """Format a number of bytes for people, such as ``1.5 GiB``."""
    for unit in UNITS[:-1]:
        if abs(size) < 1000:
            return f"{size:.0f} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} {UNITS[-1]}"
