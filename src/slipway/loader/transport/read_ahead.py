"""Reading ahead: one thread reads bytes while another processes earlier ones, so network, CPU and disk work at the same
time."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from contextlib import suppress

from slipway.loader.transport.source import CHUNK

CHUNKS_AHEAD = 8
"""Maximum number of chunks in the queue."""


class ReadAhead:
    """An iterable of chunks that a separate thread reads in advance, at most ``CHUNKS_AHEAD`` of them."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks = chunks
        self._queue: queue.Queue[bytes | BaseException | None] = queue.Queue(CHUNKS_AHEAD)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def __iter__(self) -> Iterator[bytes]:
        """Yield the chunks. Raise any exception of the reading thread."""
        while True:
            chunk = self._queue.get()
            if isinstance(chunk, BaseException):
                raise chunk
            if chunk is None:
                return
            yield chunk

    def leave(self) -> None:
        """Stop the thread after the current chunk, without waiting for it."""
        self._stopped.set()
        with suppress(queue.Empty):
            while True:
                self._queue.get_nowait()

    def stop(self) -> None:
        """Stop the thread, and wait until it has ended."""
        self._stopped.set()
        while self._thread.is_alive():
            with suppress(queue.Empty):
                self._queue.get_nowait()
            self._thread.join(0.05)

    def _read(self) -> None:
        last: BaseException | None = None
        try:
            for chunk in _gathered(self._chunks):
                self._queue.put(chunk)
                if self._stopped.is_set():
                    break
        except BaseException as error:  # noqa: BLE001 - raised again in the consumer
            last = error
        finally:
            close = getattr(self._chunks, "close", None)
            if close:
                close()
        if not self._stopped.is_set():
            self._queue.put(last)


def _gathered(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """Yield the same bytes in larger chunks, because passing a chunk to another thread costs more than a few additional
    bytes."""
    held: list[bytes] = []
    size = 0
    for chunk in chunks:
        held.append(chunk)
        size += len(chunk)
        if size >= CHUNK:
            yield b"".join(held)
            held, size = [], 0
    if held:
        yield b"".join(held)
