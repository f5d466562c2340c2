"""Uploads: a user sends a file to the registry, in a single request (PUT, as with ``curl -T``) or in several.

Several requests follow the core of the tus protocol, version 1.0.0: HEAD returns the number of stored bytes, and PATCH
sends more. PUT with a ``Content-Range`` does the same as PATCH. Any replica can handle any request, because the stored
parts are in the registry and the current writer is recorded on the model.
"""

from __future__ import annotations

import asyncio
import binascii
import logging
import re
import time
from base64 import b64decode
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Any, NamedTuple

import msgspec
from aiohttp import web
from prometheus_client import Counter, Gauge

from slipway.artifacts.documents import session as sessions
from slipway.artifacts.documents.session import Session
from slipway.decoding import describe_error
from slipway.depot.http.app import RefusedError, busy
from slipway.depot.settings import Settings
from slipway.depot.storage.models import Hold, Models, uploaded
from slipway.depot.storage.registry import Registry, RegistryError
from slipway.depot.storage.writer import Body, CutError, Writer, retry_while_away, stored, unavailable
from slipway.kube.api.errors import ApiError
from slipway.kube.metrics import Metrics
from slipway.kube.objects import Object
from slipway.serving.wire import depot_token
from slipway.serving.wire.depot_token import Claim
from slipway.serving.wire.repositories import repository
from slipway.serving.wire.upload_notes import note

log = logging.getLogger(__name__)

PATH = "/v1/upload/{namespace}/{name}/{uid}"
NO_NAMESPACE = "-"
"""Text that replaces the namespace in the URL of a cluster-scoped model."""
TUS, TUS_VERSION = "Tus-Resumable", "1.0.0"
OFFSET_TYPE = "application/offset+octet-stream"
MOST_DIGITS = 18
READ_SECONDS = 30.0
"""Maximum seconds that a status request waits for an unavailable registry."""
LONGEST_FILE_NAME = 1024
LOOK_SECONDS = 300.0
"""Seconds between two checks for abandoned uploads."""
_RANGE = re.compile(r"bytes (\d{1,18})-(\d{1,18})/(\d{1,18})", re.ASCII)


class State(NamedTuple):
    """The progress of an upload."""

    offset: int
    length: int | None
    session: Session | None
    """The session with the stored parts; None: no part is stored, or the file was published and removed."""


class Upload(NamedTuple):
    """The upload that a request with a valid token belongs to."""

    claim: Claim
    model: Object
    repository: str


class Uploads:
    """The handlers for ``/v1/upload/``."""

    name = "upload"

    def __init__(
        self,
        settings: Settings,
        hmac_key: bytes,
        models: Models,
        registry: Registry,
        metrics: Metrics,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._settings, self._hmac_key, self._models, self._registry = settings, hmac_key, models, registry
        self._now = now
        self._stopping = False
        self._count = 0
        self._running = Gauge("slipway_depot_uploads_running", "Uploads in progress.", registry=metrics.registry)
        self._received = Counter("slipway_depot_uploaded_bytes", "Bytes received.", registry=metrics.registry)

    def routes(self) -> Iterable[web.RouteDef]:
        """Return the routes for uploads. Each model has its own URL, which requires the model's token."""
        return [
            web.put(PATH, self.put, expect_handler=_later),
            web.patch(PATH, self.patch, expect_handler=_later),
            web.head(PATH, self.head),
            web.get(PATH, self.get, allow_head=False),
            web.options(PATH, self.options),
        ]

    async def run(self) -> None:
        """Remove abandoned uploads from the registry every ``LOOK_SECONDS``, until the task is cancelled."""
        while True:
            try:
                await self._models.release(self._remove)
            except ApiError as error:
                log.warning("could not list models to remove abandoned uploads: %s", describe_error(error))
            await asyncio.sleep(LOOK_SECONDS)

    def stop(self) -> None:
        """End the current part of each upload, and reject new uploads, so that clients continue with another
        replica."""
        self._stopping = True

    async def options(self, _request: web.Request) -> web.Response:
        """Respond with the supported version of the tus protocol, without authentication."""
        headers = {TUS: TUS_VERSION, "Tus-Version": TUS_VERSION, "Tus-Max-Size": str(self._settings.upload_bytes)}
        return web.Response(status=204, headers=headers)

    async def head(self, request: web.Request) -> web.Response:
        """Respond with the number of stored bytes and, if it is known, the length of the file, in tus headers."""
        state = await self._state(await self._authorize(request))
        headers = {TUS: TUS_VERSION, "Upload-Offset": str(state.offset)}
        if state.length is not None:
            headers["Upload-Length"] = str(state.length)
        return web.Response(headers=headers)

    async def get(self, request: web.Request) -> web.Response:
        """Respond with the state of the upload as JSON, including the digests of the stored parts."""
        upload = await self._authorize(request)
        state, expires = await self._state(upload), upload.claim.expires
        document: dict[str, Any] = {
            "offset": state.offset,
            "length": state.length,
            "complete": state.length is not None and state.offset == state.length,
            "fileName": state.session.file_name if state.session else "",
            "expiresAt": datetime.fromtimestamp(expires, UTC).strftime("%Y-%m-%dT%H:%M:%SZ") if expires else None,
            "pieces": state.session.pieces if state.session else (),
        }
        return web.Response(body=msgspec.json.encode(document), content_type="application/json")

    async def put(self, request: web.Request) -> web.Response:
        """Store the whole file in place of earlier parts or, with a ``Content-Range``, store its next part."""
        upload = await self._authorize(request)
        length = self._body_length(request)
        if not length:
            raise RefusedError(400, "the file is empty")
        header = request.headers.get("Content-Range")
        offset, whole = _parse_range(header, length) if header is not None else (None, length)
        self._refuse_longer(whole)
        session = await self._write_body(request, upload, whole, offset)
        return web.Response(status=201, text=f"{session.offset} of {session.length} bytes received\n")

    async def patch(self, request: web.Request) -> web.Response:
        """Store the next bytes of the file, from the offset that HEAD returned."""
        if request.headers.get(TUS, TUS_VERSION) != TUS_VERSION:
            raise RefusedError(412, f"this depot speaks tus {TUS_VERSION}", Tus_Version=TUS_VERSION)
        if request.content_type != OFFSET_TYPE:
            raise RefusedError(415, f"send it as {OFFSET_TYPE}")
        upload = await self._authorize(request)
        offset, length = _parse_number(request, "Upload-Offset"), _parse_number(request, "Upload-Length")
        if offset is None:
            raise RefusedError(400, "set the header Upload-Offset")
        size = self._body_length(request)
        if length is not None:
            self._refuse_longer(length)
            _check_size(offset, size, length)
        session = await self._write_body(request, upload, length, offset)
        return web.Response(status=204, headers={TUS: TUS_VERSION, "Upload-Offset": str(session.offset)})

    # --- shared functions --------------------------------------------------------------------------------------------

    async def _authorize(self, request: web.Request) -> Upload:
        """Return the upload that the request's token allows. Raise RefusedError: 401 for an invalid token, 410 for an
        expired one, and 404 if the model does not exist or the token is for another model."""
        claim = self._claim(request)
        place = request.match_info
        namespace = "" if place["namespace"] == NO_NAMESPACE else place["namespace"]
        if (namespace, place["name"], place["uid"]) != (claim.namespace, claim.name, claim.uid) or not claim.uid:
            raise RefusedError(404, "the token is for another model")
        model = await self._models.get(claim)
        return Upload(claim, model, repository(claim.namespace, claim.name, claim.uid))

    def _claim(self, request: web.Request) -> Claim:
        scheme, _unused, token = request.headers.get("Authorization", "").partition(" ")
        if scheme.lower() != "bearer":
            raise RefusedError(401, "send the token as Authorization: Bearer", WWW_Authenticate="Bearer")
        try:
            claim = depot_token.verify_token(self._hmac_key, token.strip(), "upload", 0)
        except depot_token.TokenError as error:
            raise RefusedError(401, str(error), WWW_Authenticate="Bearer") from None
        if claim.expires and self._now() >= claim.expires:
            raise RefusedError(410, "the token has expired: take the new one from the model's upload Secret")
        return claim

    def _body_length(self, request: web.Request) -> int:
        if request.headers.get("Content-Encoding", "identity").lower() != "identity":
            raise RefusedError(415, "send the file as it is, without Content-Encoding")
        if request.content_length is None:
            raise RefusedError(411, "send a Content-Length")
        return request.content_length

    def _refuse_longer(self, length: int) -> None:
        if length > self._settings.upload_bytes:
            raise RefusedError(413, f"a file may have {self._settings.upload_bytes} bytes")

    async def _state(self, upload: Upload) -> State:
        """Return the progress of the upload. Notify the controller if the upload is complete and the controller does
        not know this yet. Raise RefusedError (503) if the registry is unavailable."""
        try:
            session, digest = await retry_while_away(
                lambda: stored(self._registry, upload.repository), lambda: False, READ_SECONDS
            )
        except RegistryError:
            raise busy("the registry does not respond: retry") from None
        upload_note, is_announced = note(upload.model), uploaded(upload.model)
        if session and session.complete and not is_announced:
            await self._models.announce(upload.claim, digest)
        if session:
            return State(session.offset, session.length, session)
        length = upload_note.length if upload_note else None
        return State(length or 0 if is_announced else 0, length, None)

    async def _write_body(
        self, request: web.Request, upload: Upload, length: int | None, offset: int | None
    ) -> Session:
        """Write the request's body at ``offset``, or into a new session if ``offset`` is None. ``length`` is the size
        of the whole file in bytes; None: the size from an earlier request. Return the session with the new parts. Raise
        RefusedError."""
        if self._stopping or self._count >= self._settings.uploads_at_once:
            raise busy("the depot accepts no more uploads at the moment")
        self._count += 1
        self._running.set(self._count)
        try:
            async with self._models.acquire(upload.claim, length, self._remove) as hold:
                session = await self._find_session(upload, hold.length, offset)
                _check_size(offset or 0, request.content_length or 0, hold.length)
                return await self._stream_body(request, upload, hold, session)
        except CutError as error:
            status = 503 if self._stopping else 408
            raise RefusedError(status, f"{error}: continue at the offset from HEAD", Retry_After="1") from None
        finally:
            self._count -= 1
            self._running.set(self._count)

    async def _stream_body(self, request: web.Request, upload: Upload, hold: Hold, session: Session | None) -> Session:
        body = Body(request, self._settings.idle_seconds, lambda: self._stopping)
        await _send_continue(request)
        if session is None:
            kind = await _detect_kind(body)
            session = Session(file_name=sessions.name_for(_file_name(request), kind), length=hold.length)
        patience = self._settings.registry_seconds
        writer = Writer(self._registry, upload.repository, hold, body, patience=patience, now=self._now)
        try:
            session, digest = await writer.write(session)
            if session.complete:
                await self._models.announce(upload.claim, digest or await writer.list(session))
        finally:
            self._received.inc(writer.received)
            await self._forget_orphan(upload)
        return session

    async def _forget_orphan(self, upload: Upload) -> None:
        """Remove the upload if its model has been deleted in the meantime, because no other component would."""
        try:
            await self._models.get(upload.claim)
        except ApiError:
            return
        except RefusedError:
            await self._remove(upload.claim)

    async def _remove(self, claim: Claim) -> bool:
        """Delete the manifest of an upload, so that the registry's garbage collector frees its parts. Return False if
        the registry failed."""
        place = repository(claim.namespace, claim.name, claim.uid)
        try:
            await self._registry.delete_tagged(place, sessions.TAG, media_type=sessions.MANIFEST_TYPE)
        except RegistryError:
            return False
        return True

    async def _find_session(self, upload: Upload, length: int, offset: int | None) -> Session | None:
        """Return the session that a body at ``offset`` continues, or None if the body starts a new one. Raise
        RefusedError if ``offset`` is not the number of stored bytes, if the session is for a file of another length, or
        if the registry is unavailable."""
        if offset is None:
            return None
        try:
            session, _digest = await stored(self._registry, upload.repository)
        except RegistryError:
            raise unavailable() from None
        stored_bytes = session.offset if session else 0
        if offset != stored_bytes or (session and session.length != length):
            raise RefusedError(
                409,
                f"there are {stored_bytes} bytes of {session.length if session else length}",
                Upload_Offset=str(stored_bytes),
            )
        return session if stored_bytes else None


def _parse_range(header: str, size: int) -> tuple[int, int]:
    """Parse a ``Content-Range`` header for a body of ``size`` bytes. Return the offset of the body and the size of the
    whole file. Raise RefusedError if the header is invalid."""
    matched = _RANGE.fullmatch(header)
    first, last, length = (int(number) for number in matched.groups()) if matched else (0, 0, 0)
    if not matched or last - first + 1 != size:
        raise RefusedError(400, "the Content-Range is invalid: write it as bytes FIRST-LAST/LENGTH")
    return first, length


def _check_size(offset: int, size: int, length: int) -> None:
    if offset + size > length:
        raise RefusedError(413, f"the file has {length} bytes, and these end at {offset + size}")


async def _detect_kind(body: Body) -> str:
    """Return the kind of a file, judging by its first bytes. Raise RefusedError for an unsupported kind, or CutError if
    the stream ends."""
    head = b""
    while len(head) < sessions.HEAD_BYTES and (chunk := await body.chunk(sessions.HEAD_BYTES - len(head))):
        head += chunk
    kind = sessions.kind_of(head)
    if not kind:
        raise RefusedError(415, f"this file type is not supported: send one of {', '.join(sessions.KINDS)}")
    body.push_back(head)
    return kind


async def _later(_request: web.Request) -> None:
    """Do nothing, because a client that waits for 100 Continue must first see a possible rejection. ``_send_continue``
    sends 100 Continue later."""


async def _send_continue(request: web.Request) -> None:
    if request.headers.get("Expect", "").lower() == "100-continue":
        await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        request.writer.output_size = 0  # no response has begun yet


def _parse_number(request: web.Request, header: str) -> int | None:
    text = request.headers.get(header)
    if text is None:
        return None
    if not text.isascii() or not text.isdecimal() or len(text) > MOST_DIGITS:
        raise RefusedError(400, f"{header} is not a number of bytes")
    return int(text)


def _file_name(request: web.Request) -> str:
    """Return the file name that the client sent, or an empty string if there is none."""
    if name := request.query.get("filename") or request.headers.get("X-Upload-Filename"):
        return name[:LONGEST_FILE_NAME]
    for pair in request.headers.get("Upload-Metadata", "").split(","):
        name, _unused, value = pair.strip().partition(" ")
        if name == "filename":
            try:
                return b64decode(value, validate=True)[:LONGEST_FILE_NAME].decode(errors="replace")
            except binascii.Error:
                return ""
    return ""
