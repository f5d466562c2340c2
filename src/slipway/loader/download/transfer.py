"""The download of one file under a temporary name. The download is resumed after failures until the file matches the
source's size and digest."""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import TypeVar

import msgspec

from slipway.loader.disk.folder import Folder, disk_error
from slipway.loader.disk.part import Part
from slipway.loader.disk.progress import Meter
from slipway.loader.transport.digests import hasher
from slipway.loader.transport.errors import LoadError, StoppedError, TransientError
from slipway.loader.transport.read_ahead import ReadAhead
from slipway.loader.transport.source import CHUNK, Body, Entry, Source

log = logging.getLogger(__name__)
T = TypeVar("T")


LONG = 64 << 20
"""Number of remaining bytes of a file from which reading ahead in a separate thread pays off."""


class Policy(msgspec.Struct, frozen=True):
    """The retries, pauses and parallel downloads of a load."""

    attempts: int = 8
    """Number of consecutive attempts without a new byte after which a load fails."""
    first_pause: float = 1.0
    longest_pause: float = 60.0
    """Maximum seconds between two attempts, even if the server's ``Retry-After`` is longer."""
    wrong: int = 3
    """Number of downloads of a file with a wrong digest or size after which a load fails."""
    parallel: int = 8
    """Maximum number of files to download at the same time."""

    def pause(self, failures: int, retry_after: float) -> float:
        """Return the seconds to wait after the given number of consecutive failures, at least 1. The result is partly
        random. ``retry_after`` is the wait in seconds that the server requested; 0: none."""
        delay = self.first_pause * 2.0 ** (failures - 1) * random.uniform(0.5, 1.0)  # noqa: S311 - spreads load only
        return min(max(delay, retry_after), self.longest_pause)


class Retrier:
    """A counter of consecutive failures that pauses after each failure and gives up after the last permitted one."""

    def __init__(self, policy: Policy, stop: threading.Event, meter: Meter) -> None:
        self._policy, self._stop, self._meter = policy, stop, meter
        self._failures = 0

    def progressed(self) -> None:
        """Record progress, so that the next failure counts as the first."""
        self._failures = 0

    def failed(self, what: str, error: TransientError) -> None:
        """Count a failure and wait before the next attempt. ``what`` names the failed item in messages. Raise LoadError
        after the last permitted attempt, or StoppedError if the load is stopped."""
        self._failures += 1
        if self._failures >= self._policy.attempts:
            raise LoadError(
                f"{what}: {error}; gave up after {self._failures} attempts: run it again",
                transient=True,
            ) from error
        pause = self._policy.pause(self._failures, error.retry_after)
        log.info("%s: %s; retrying in %.1f s (attempt %d)", what, error, pause, self._failures + 1)
        self._meter.note(f"{error}; retrying")
        if self._stop.wait(pause):
            raise StoppedError

    def call(self, what: str, function: Callable[[], T]) -> T:
        """Call the function, repeat the call after each TransientError, and return the result. Raise LoadError after
        the last permitted attempt, or StoppedError if the load is stopped."""
        while True:
            try:
                result = function()
            except TransientError as error:
                self.failed(what, error)
            else:
                self.progressed()
                return result


class Transfer:
    """The download of one entry of a source into a directory."""

    def __init__(
        self,
        source: Source,
        folder: Folder,
        entry: Entry,
        policy: Policy,
        stop: threading.Event,
        meter: Meter,
        *,
        replaces: bool = False,
    ) -> None:
        """Prepare the download of ``entry`` into ``folder``. With ``replaces``, the existing file is from an older
        state of the source, and stays until the new file is complete."""
        self._replaces = replaces
        self._source, self._entry, self._policy, self._stop, self._meter = source, entry, policy, stop, meter
        self._folder, self._place, self._final = folder, folder.part(entry), folder.final(entry)
        self._retrier = Retrier(policy, stop, meter)
        self._have = self._furthest = 0
        self._hasher = hasher(entry.digest, entry.size)

    @property
    def size(self) -> int:
        """Size of the file in bytes, once the file is complete."""
        return self._have

    def run(self) -> None:
        """Download the file under its final name, unless an earlier load completed it. Raise LoadError or
        StoppedError."""
        try:
            if self._replaces or not self._is_there():
                self._fetch()
        except OSError as error:
            raise disk_error(error, self._final) from error
        self._meter.file_done()

    def _is_there(self) -> bool:
        """Whether an earlier load completed this file, judging by its size and, if the source declares one, its digest.
        False if the source does not report the size."""
        if self._final.is_symlink() or not self._final.is_file():
            return False
        size = self._final.stat().st_size
        if size != self._entry.size:
            return False
        if self._entry.digest is not None:
            checksum = hasher(self._entry.digest, size)
            with self._final.open("rb", buffering=0) as stream:
                while chunk := stream.read(CHUNK):
                    checksum.update(chunk)
                    self._meter.verified(len(chunk))
                    self._check_stop()
            if checksum.hexdigest() != self._entry.digest.value:
                return False
        self._have = size
        self._meter.reused(size)
        return True

    def _fetch(self) -> None:
        with Part(self._place) as part:
            self._resume(part)
            for _unused in range(self._policy.wrong):
                verifiable = self._receive(part)
                with self._meter.flushing():
                    whole = part.is_complete(self._entry.size)
                if whole and (not verifiable or self._is_right()):
                    part.become(self._final)
                    self._folder.note_done(self._entry)
                    return
                log.warning("%s does not match its checksum or size; downloading it again", self._entry.path)
                self._forget(part)
        raise LoadError(
            f"{self._entry.path} did not match its checksum or size {self._policy.wrong} times: the file at the source"
            " is corrupt, or a proxy changes it"
        )

    def _resume(self, part: Part) -> None:
        """Continue with the bytes of an earlier attempt, or discard bytes that cannot be continued."""
        if part.size and (not self._entry.version or (self._entry.size is not None and part.size > self._entry.size)):
            part.restart()
        while self._entry.digest is not None and self._have < part.size:
            chunk = part.read(self._have)
            self._hasher.update(chunk)
            self._have += len(chunk)
            self._meter.verified(len(chunk))
            self._check_stop()
        self._have = part.size
        self._meter.reused(part.size)

    def _receive(self, part: Part) -> bool:
        """Receive bytes until the file is complete or, if its size is unknown, the body ends. Return whether the
        source's digest applies to the bytes."""
        verifiable = True
        while self._entry.size is None or self._have < self._entry.size:
            try:
                with self._source.read(self._entry, self._have if self._entry.version else 0) as body:
                    verifiable = body.verifiable
                    self._copy(body, part)
                if self._entry.size is None:
                    break
            except TransientError as error:
                self._retrier.failed(self._entry.path, error)
        return verifiable

    def _copy(self, body: Body, part: Part) -> None:
        if body.start not in (0, self._have):
            raise TransientError(f"the server sent bytes from {body.start} instead of {self._have}")
        if body.start != self._have:
            self._forget(part)
        for chunk in self._chunks(body):
            self._check_stop()
            if self._entry.size is not None and self._have + len(chunk) > self._entry.size:
                raise TransientError("the server sent more bytes than it announced")
            part.write(chunk)
            self._hasher.update(chunk)
            self._have += len(chunk)
            self._meter.fetched(len(chunk))
            if self._have > self._furthest:
                self._furthest = self._have
                self._retrier.progressed()
        if self._entry.size is not None and self._have < self._entry.size:
            raise TransientError(f"the connection ended after {self._have} of {self._entry.size} bytes")

    def _chunks(self, body: Body) -> Iterator[bytes]:
        """Yield the remaining bytes. A separate thread reads a long file while this one hashes and writes it."""
        chunks = iter(partial(body.read, CHUNK), b"")
        if (self._entry.size or 0) - self._have < LONG:
            yield from chunks
            return
        ahead = ReadAhead(chunks)
        try:
            yield from ahead
        finally:
            ahead.leave()

    def _is_right(self) -> bool:
        return self._entry.digest is None or self._hasher.hexdigest() == self._entry.digest.value

    def _forget(self, part: Part) -> None:
        part.restart()
        self._meter.reused(-self._have)
        self._have, self._hasher = 0, hasher(self._entry.digest, self._entry.size)

    def _check_stop(self) -> None:
        if self._stop.is_set():
            raise StoppedError
