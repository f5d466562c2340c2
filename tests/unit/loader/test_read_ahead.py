"""Bytes that a separate thread reads ahead."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from slipway.loader.transport.errors import TransientError
from slipway.loader.transport.read_ahead import CHUNKS_AHEAD, ReadAhead
from slipway.loader.transport.source import CHUNK

PATIENCE = 60


def test_all_bytes_come_in_their_order_and_larger_chunks() -> None:
    chunks = list(ReadAhead(iter([bytes([number]) * (CHUNK // 4) for number in range(10)])))

    assert b"".join(chunks) == b"".join(bytes([number]) * (CHUNK // 4) for number in range(10))
    assert len(chunks) == 3


def test_an_error_of_the_source_reaches_the_reader() -> None:
    def broken() -> Iterator[bytes]:
        yield bytes(CHUNK)
        raise TransientError("lost")

    ahead = ReadAhead(broken())
    with pytest.raises(TransientError, match="lost"):
        list(ahead)


def test_reading_ahead_stops_at_its_limit() -> None:
    taken: list[int] = []
    full = threading.Event()

    def endless() -> Iterator[bytes]:
        while True:
            taken.append(1)
            if len(taken) > CHUNKS_AHEAD:
                full.set()
            yield bytes(CHUNK)

    ahead = ReadAhead(endless())
    assert full.wait(PATIENCE)
    ahead.stop()

    assert len(taken) <= CHUNKS_AHEAD + 3


def test_nothing_is_read_after_the_stop_and_the_source_is_closed() -> None:
    closed = threading.Event()

    def endless() -> Iterator[bytes]:
        try:
            while True:
                yield bytes(CHUNK)
        finally:
            closed.set()

    ahead = ReadAhead(endless())
    ahead.stop()

    assert closed.is_set()


def test_a_deleted_service_does_not_wait() -> None:
    go_on, closed = threading.Event(), threading.Event()

    def silent() -> Iterator[bytes]:
        try:
            yield bytes(CHUNK)
            go_on.wait(PATIENCE)
            yield bytes(CHUNK)
        finally:
            closed.set()

    ReadAhead(silent()).leave()
    assert not closed.is_set()
    go_on.set()
    assert closed.wait(PATIENCE)
