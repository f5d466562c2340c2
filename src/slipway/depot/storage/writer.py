"""A writer that streams a file to the registry in pieces, without holding a piece in memory.

Each piece is hashed while it is uploaded, becomes a blob, and is then added to the session's manifest. Pieces in the
manifest stay, however the stream ends. A piece ends when it is full, after some time, or with the stream.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from typing import Protocol, TypeVar

import aiohttp
from aiohttp import web
from yarl import URL

from slipway.artifacts.documents import session as sessions
from slipway.artifacts.documents.session import PIECE_BYTES, Piece, Session
from slipway.decoding import DecodingError
from slipway.depot.http.app import BUSY_SECONDS, RefusedError
from slipway.depot.storage.models import Hold
from slipway.depot.storage.registry import AwayError, Registry, RegistryError

log = logging.getLogger(__name__)
T = TypeVar("T")

PIECE_SECONDS = 30.0
"""Maximum seconds to receive one piece."""
LEAST_BYTES = 64 << 10
"""Minimum number of bytes to receive in ``PIECE_SECONDS``."""
LEAST_KEPT_BYTES = 1 << 20
"""Minimum size in bytes of an interrupted piece that is kept, unless the piece ends the file."""
CHUNK_BYTES = 128 << 10
"""Maximum number of bytes to request at a time. aiohttp reads ahead twice the largest number ever requested."""
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 10.0
"""Seconds before the first retry of a request to an unavailable registry, and maximum seconds between two retries."""


class CutError(Exception):
    """The stream ended too early or is too slow. The message is the reason."""


class Source(Protocol):
    """A stream of bytes from a client."""

    def is_disconnected(self) -> bool:
        """Whether the client has disconnected."""

    async def chunk(self, most: int) -> bytes:
        """Return the next bytes, at most ``most``. An empty result means that the stream has ended. Raise CutError if
        the stream ends too early."""


class Body:
    """The body of a request as a source of bytes."""

    def __init__(self, request: web.Request, idle_seconds: float, stopping: Callable[[], bool]) -> None:
        self._request, self._idle, self._stopping = request, idle_seconds, stopping
        self._back = b""
        self.remaining = request.content_length or 0

    def is_disconnected(self) -> bool:
        """Whether the client has disconnected."""
        transport = self._request.transport
        return transport is None or transport.is_closing()

    def push_back(self, chunk: bytes) -> None:
        """Put the bytes that were read last back into the stream, so that they are read again. Call this method again
        only after they have been read."""
        self._back = chunk
        self.remaining += len(chunk)

    async def chunk(self, most: int) -> bytes:
        """Return the next bytes, at most ``most``. An empty result means that the body has ended. Raise CutError if the
        client disconnects or is silent for ``idle_seconds``, or if the depot is shutting down."""
        if self._back:
            chunk, self._back = self._back[:most], self._back[most:]
        elif self._stopping():
            raise CutError("the depot is shutting down: resume in a moment")
        else:
            chunk = await self._read(most)
        self.remaining -= len(chunk)
        return chunk

    async def _read(self, most: int) -> bytes:
        try:
            async with asyncio.timeout(self._idle):
                chunk = await self._request.content.read(min(most, CHUNK_BYTES))
        except TimeoutError:
            raise CutError(f"no data was received for {self._idle:.0f} s") from None
        except (aiohttp.ClientError, web.RequestPayloadError, OSError):
            raise CutError("the connection broke") from None
        if not chunk and self.remaining:
            raise CutError("the body ended before its length")
        return chunk


class Writer:
    """A writer for the file of one model."""

    def __init__(
        self,
        registry: Registry,
        repository: str,
        hold: Hold,
        source: Source,
        *,
        patience: float,
        now: Callable[[], float] = time.time,
    ) -> None:
        """Prepare a writer that waits for an unavailable registry for at most ``patience`` seconds."""
        self._registry, self._repository, self._hold, self._source = registry, repository, hold, source
        self._patience, self._now = patience, now
        self.received = 0
        """Number of bytes received, whether or not they were kept."""

    async def write(self, session: Session) -> tuple[Session, str]:
        """Add the bytes of the source to the session. Return the session with its new pieces, and the digest of its
        manifest, which is empty if no piece was added.

        Raise CutError if the stream ends too early or is too slow. All pieces received until then are kept, except a
        last one of less than ``LEAST_KEPT_BYTES``. Raise RefusedError if the registry is unavailable for too long, if
        the file has too many pieces, or if another client may be writing by now.
        """
        digest = ""
        try:
            while (room := min(PIECE_BYTES, session.length - session.offset)) > 0:
                piece, cut = await self._piece(room)
                if piece is not None:
                    session = session.followed_by(piece)
                    digest = await self.list(session)
                if cut is not None:
                    raise cut
                if piece is None:
                    break
        except RegistryError as error:
            log.warning("upload to %s: %s", self._repository, error)
            raise unavailable() from None
        return session, digest

    async def list(self, session: Session) -> str:
        """Store the session's manifest, and return its digest. Raise CutError if the client disconnects, RefusedError
        if there are too many pieces or the right to write is lost, or RegistryError."""
        if len(session.pieces) > sessions.MOST_PIECES:
            raise RefusedError(413, f"the file was sent in more than {sessions.MOST_PIECES} pieces: send larger ones")
        content, registry, repository = sessions.encode_session(session), self._registry, self._repository
        if len(session.pieces) == 1:
            await self._patiently(lambda: registry.put_blob(repository, sessions.EMPTY, sessions.EMPTY_DIGEST))

        def put() -> Awaitable[str]:
            self._hold.check(self._now())
            return registry.put_manifest(repository, sessions.TAG, content, media_type=sessions.MANIFEST_TYPE)

        return await self._patiently(put)

    async def _piece(self, room: int) -> tuple[Piece | None, CutError | None]:
        """Send the next piece, of at most ``room`` bytes. Return the piece, or None if there was nothing to keep, and
        the error that ended the stream, or None."""
        first = await self._source.chunk(room)
        if not first:
            return None, None
        registry, repository = self._registry, self._repository
        upload = await self._patiently(lambda: registry.begin(repository))
        part = _Part(self._source, first, room)
        try:
            upload = await registry.append(repository, upload, part.chunks())
            self.received += part.size
            if part.cut is not None and part.size < min(LEAST_KEPT_BYTES, room):
                await self._cancel(upload)
                return None, part.cut
            piece = Piece(part.digest, part.size)
            await self._patiently(lambda: registry.commit(repository, upload, piece.digest, piece.size))
        except (RegistryError, RefusedError, CutError, asyncio.CancelledError):
            await self._cancel(upload)
            raise
        return piece, part.cut

    async def _cancel(self, upload: URL) -> None:
        """Try to cancel an upload. If this fails, the registry removes the upload itself some days later."""
        with suppress(RegistryError):
            await asyncio.shield(self._registry.cancel(self._repository, upload))

    async def _patiently(self, ask: Callable[[], Awaitable[T]]) -> T:
        """Repeat a request until the registry is available, as in ``retry_while_away``, because the registry may be
        read-only for a while during garbage collection."""
        return await retry_while_away(ask, self._source.is_disconnected, self._patience)


async def retry_while_away(
    request: Callable[[], Awaitable[T]], is_disconnected: Callable[[], bool], patience: float
) -> T:
    """Call ``request``, repeat it for up to ``patience`` seconds while the registry is unavailable, and return its
    result. Raise AwayError after that time, or CutError once the client has disconnected."""
    end, pause = time.monotonic() + patience, FIRST_PAUSE
    while True:
        try:
            return await request()
        except AwayError as error:
            if time.monotonic() + pause > end:
                raise
            log.info("waiting for the registry: %s", error)
        await asyncio.sleep(pause)
        if is_disconnected():
            raise CutError("the connection broke")
        pause = min(2 * pause, LONGEST_PAUSE)


class _Part:
    """The bytes of one piece, which are hashed while they are sent."""

    def __init__(self, source: Source, first: bytes, room: int) -> None:
        self._source, self._first, self._room = source, first, room
        self._hash = hashlib.sha256()
        self.size = 0
        self.cut: CutError | None = None

    @property
    def digest(self) -> str:
        return f"sha256:{self._hash.hexdigest()}"

    async def chunks(self) -> AsyncIterator[bytes]:
        """Yield the bytes of the piece. End the piece after ``PIECE_SECONDS``. If the stream ends too early or is too
        slow, end the piece and set ``cut``."""
        end, chunk = time.monotonic() + PIECE_SECONDS, self._first
        while chunk:
            self._hash.update(chunk)
            self.size += len(chunk)
            yield chunk
            if self.size == self._room:
                return
            late = time.monotonic() > end
            if late and self.size < LEAST_BYTES:
                self.cut = CutError("the upload is too slow")
            if late:
                return
            chunk = await self._next()

    async def _next(self) -> bytes:
        try:
            return await self._source.chunk(self._room - self.size)
        except CutError as error:
            self.cut = error
            return b""


async def stored(registry: Registry, repository: str) -> tuple[Session | None, str]:
    """Return the session of a repository and the digest of its manifest, or None and an empty string if there is no
    session. Raise RegistryError."""
    manifest = await registry.manifest(
        repository, sessions.TAG, media_type=sessions.MANIFEST_TYPE, most=sessions.MANIFEST_BYTES
    )
    if manifest is None:
        return None, ""
    try:
        return sessions.parse_session(manifest.content), manifest.digest
    except DecodingError as error:
        raise RegistryError(f"the manifest {repository}:{sessions.TAG} is not an upload session: {error}") from error


def unavailable() -> RefusedError:
    """Return the error for a registry that did not accept the bytes: 503, after which the client may resume the
    upload."""
    return RefusedError(503, "the registry did not accept it: resume in a moment", Retry_After=str(BUSY_SECONDS))
