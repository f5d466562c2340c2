"""A load whose source sends next to nothing ends, and one that is busy does not."""

from __future__ import annotations

import io
import itertools
import os
import threading
from pathlib import Path
from unittest.mock import MagicMock

import pytest

from slipway.loader.cli import commands
from slipway.loader.disk.progress import LOWEST_RATE, RATE_SECONDS, Meter, Pace
from slipway.loader.download.transfer import Policy, Transfer
from slipway.loader.transport.errors import LoadError
from slipway.loader.transport.source import Entry

MINUTE = 60.0


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def loading() -> Meter:
    meter = Meter()
    meter.expect(1 << 40, 2)
    return meter


def test_a_source_that_sends_a_byte_a_minute_ends_the_load(clock: Clock) -> None:
    meter = loading()
    pace = Pace(meter, clock)
    for _unused in range(10):
        pace.check()
        meter.fetched(1)
        clock.now += MINUTE
    with pytest.raises(LoadError, match=r"the source sent 0 B/s for 10 min, less than 64\.0 KiB/s") as ended:
        pace.check()
    assert not ended.value.transient


@pytest.mark.parametrize("count", ["fetched", "verified"])
def test_a_load_that_downloads_or_verifies_continues(clock: Clock, count: str) -> None:
    meter = loading()
    pace = Pace(meter, clock)
    for _unused in range(60):
        pace.check()
        getattr(meter, count)(int(LOWEST_RATE * MINUTE))
        clock.now += MINUTE


def test_a_load_that_was_fast_once_ends_when_it_is_slow(clock: Clock) -> None:
    meter = loading()
    pace = Pace(meter, clock)
    pace.check()
    meter.fetched(1 << 39)
    clock.now += RATE_SECONDS
    pace.check()
    clock.now += MINUTE
    pace.check()
    clock.now += RATE_SECONDS
    with pytest.raises(LoadError):
        pace.check()


@pytest.mark.parametrize("expected", [False, True])
def test_a_load_without_a_file_in_progress_waits(clock: Clock, expected: bool) -> None:
    """It lists files, waits for another load of the folder, or reads headers when all files are there."""
    meter = Meter()
    if expected:
        meter.expect(5, 1)
        meter.file_done()
    pace = Pace(meter, clock)
    for _unused in range(60):
        pace.check()
        clock.now += MINUTE


def test_a_load_whose_disk_flushes_a_file_for_long_continues(
    clock: Clock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The source has sent all of it."""
    meter, body = Meter(), io.BytesIO(b"x" * 1000)
    meter.expect(1000, 2)
    pace = Pace(meter, clock)
    pace.check()

    def flush(_file: int) -> None:
        for _unused in range(20):
            clock.now += MINUTE
            pace.check()

    monkeypatch.setattr(os, "fsync", flush)
    source, folder = MagicMock(), MagicMock()
    source.read.return_value.__enter__.return_value = MagicMock(start=0, read=body.read, verifiable=True)
    folder.part.return_value, folder.final.return_value = tmp_path / "part", tmp_path / "file"
    Transfer(source, folder, Entry(path="file", locator="file", size=1000), Policy(), threading.Event(), meter).run()
    assert (tmp_path / "file").stat().st_size == 1000
    assert meter.handled() == 1000


def test_the_loader_ends_a_load_that_is_too_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commands, "LOG_PERIOD", 0.01)
    silent, minutes = threading.Event(), itertools.count()
    meter = loading()
    with pytest.raises(LoadError, match=r"check the source and the network$"):
        commands.with_progress(silent.wait, meter, None, Pace(meter, lambda: MINUTE * next(minutes)))
    silent.set()
