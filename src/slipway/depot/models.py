"""Models of the cluster, as uploads need them: which waits for its file, who writes it, and what all have together.

What replicas must agree on stands in an annotation of the model, which is changed on the condition that nobody else has
changed the model meanwhile.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import msgspec

from slipway.decoding import DecodingError, decode_json, said
from slipway.depot.app import RefusedError
from slipway.depot.settings import Settings
from slipway.kube.client import Client
from slipway.kube.errors import ApiError, ConflictError, NotFoundError
from slipway.kube.objects import Key, Kind, Object, annotations_of, deleting, key, resource_version, uid
from slipway.serving.depot_token import Claim

log = logging.getLogger(__name__)

UPLOADED = "slipway.inference/uploaded"
"""Annotation of a model: digest of the session's manifest, once all bytes are there."""
UPLOAD = "slipway.inference/upload"
"""Annotation of a model: how long its file is, and who writes it until when."""
HOLD_SECONDS, RENEW_SECONDS = 120.0, 40.0
"""For how long one may write without saying so again, and how often it says so."""
MARGIN_SECONDS = 20.0
"""Before the end of which nothing more is begun."""
RELEASE, RELEASE_SECONDS = "release", 300.0
"""Writer of an abandoned upload while the depot removes it from the registry, and how long that may take."""
MOST_RELEASED = 16
"""Abandoned uploads that one request removes, as its client waits for that."""
ATTEMPTS = 8
FIELD_MANAGER = "slipway-depot"
_NOTE_BYTES = 1024


Remove = Callable[[Claim], Awaitable[bool]]
"""Removes an upload from the registry. Returns whether nothing is left of it there."""


class Note(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What stands in the annotation."""

    length: int
    """Bytes of the file: so much of the storage is taken."""
    proof: str = ""
    """That the depot noted this length for this model. Whoever may edit models could take all of the storage else."""
    expires: int = 0
    """Unix seconds at which the session ends; 0: never."""
    writer: str = ""
    until: int = 0
    """Unix seconds."""


def note(model: Object) -> Note | None:
    """What an upload noted on a model; None for nothing, or for what is none of ours."""
    try:
        return decode_json(annotations_of(model).get(UPLOAD, ""), Note, most=_NOTE_BYTES)
    except DecodingError:
        return None


def uploaded(model: Object) -> str:
    """Digest of the manifest of a complete session; empty: it is not complete."""
    return str(annotations_of(model).get(UPLOADED, ""))


def proof(key: bytes, model: str, length: int, expires: int) -> str:
    """Of a note on the model with this uid."""
    return hmac.digest(key, f"slipway-depot-note-v2\n{model}\n{length}\n{expires}".encode(), hashlib.sha256).hex()


def proven(model: Object, key: bytes) -> Note | None:
    """The note of an upload, if the depot wrote it. Authors of models can write annotations, too."""
    noted = note(model)
    if noted is None:
        return None
    expected = proof(key, uid(model), noted.length, noted.expires)
    return noted if hmac.compare_digest(noted.proof.encode(), expected.encode()) else None


def abandoned(model: Object, key: bytes, now: float) -> bool:
    """Whether an upload began that cannot be completed: its session has ended, and no client writes."""
    noted = proven(model, key)
    if noted is None or not noted.expires or uploaded(model) or _artifact_bytes(model) is not None:
        return False
    return now >= noted.expires and not (noted.writer and now < noted.until)


def taken(model: Object, key: bytes) -> int:
    """Bytes of the storage that a model has: of its artifact, or of its upload under way."""
    size = _artifact_bytes(model)
    if size is not None:
        return max(size, 0)
    noted = proven(model, key)
    return noted.length if noted else 0


def _artifact_bytes(model: Object) -> int | None:
    status = model.get("status")
    artifact = status.get("artifact") if isinstance(status, dict) else None
    size = artifact.get("sizeBytes") if isinstance(artifact, dict) else None
    return size if isinstance(size, int) else None


class Hold:
    """The right to write the file of one model. It is lost when it could not be renewed in time."""

    def __init__(self, writer: str, length: int) -> None:
        self.writer, self.length = writer, length
        self.until = 0.0
        self.lost = False

    def check(self, now: float) -> None:
        """Raises RefusedError where somebody else may write by now."""
        if self.lost or now > self.until - MARGIN_SECONDS:
            raise RefusedError(409, "another client uploads this model's file")


class Models:
    """Models that tokens name. Methods raise RefusedError, or ApiError where the cluster does not answer."""

    def __init__(
        self, client: Client, settings: Settings, hmac_key: bytes, now: Callable[[], float] = time.time
    ) -> None:
        self._client, self._settings, self._key, self._now = client, settings, hmac_key, now

    async def get(self, claim: Claim) -> Object:
        """The model that a token is for."""
        try:
            model = await self._client.get(self._kind(claim), _key(claim))
        except NotFoundError:
            model = {}
        if not model or uid(model) != claim.uid or deleting(model):
            raise RefusedError(404, "there is no such model any more")
        return model

    @asynccontextmanager
    async def held(self, claim: Claim, length: int | None, remove: Remove) -> AsyncIterator[Hold]:
        """The right to write a file of ``length`` bytes, None where that was told before, while the context lasts.

        ``remove`` is called with abandoned uploads of other models if the storage has no room otherwise.

        Raises RefusedError: 409 while somebody else has it or when the file is there, 411 where nobody told the length,
        413 where it is another one than before, 507 where the storage has no room.
        """
        hold = await self._take(claim, length, remove)
        renewal = asyncio.create_task(self._renew(claim, hold))
        try:
            yield hold
        finally:
            renewal.cancel()
            with suppress(asyncio.CancelledError):
                await renewal
            if not hold.lost:
                await self._release(claim, hold)

    async def announce(self, claim: Claim, digest: str) -> None:
        """Tells the controller that all bytes are there."""
        patch = {"metadata": {"uid": claim.uid, "annotations": {UPLOADED: digest}}}
        await self._client.merge_patch(self._kind(claim), _key(claim), patch, field_manager=FIELD_MANAGER)

    async def _take(self, claim: Claim, length: int | None, remove: Remove) -> Hold:
        for _unused in range(ATTEMPTS):
            model = await self.get(claim)
            before = note(model)
            known = _agreed(model, before, length, self._now())
            hold = Hold(secrets.token_hex(8), known)
            try:
                await self._write(claim, hold, model)
            except ConflictError:
                continue  # somebody changed the model meanwhile: it may be another writer
            if before is None or before.length != known or abandoned(model, self._key, self._now()):
                await self._room(claim, hold, before, remove)
            return hold
        raise RefusedError(503, "the model changes all the time: ask again", Retry_After="5")

    async def _room(self, claim: Claim, hold: Hold, before: Note | None, remove: Remove) -> None:
        """Raises RefusedError where the storage has no room for what was noted just now; it is noted no more then."""
        most = self._settings.capacity_bytes
        if not most:
            return
        free, rest = most, []
        async for model in self._others(claim.uid):
            free -= taken(model, self._key)
            if abandoned(model, self._key, self._now()):
                rest.append(model)
        rest.sort(key=lambda model: taken(model, self._key), reverse=True)
        for model in rest[:MOST_RELEASED]:
            if hold.length > free and await self._release_abandoned(model, remove):
                free += taken(model, self._key)
        if hold.length > free:
            await self._note(claim, before)
            raise RefusedError(507, f"the storage has {max(free, 0)} bytes left, and the file has {hold.length}")

    async def _others(self, own: str) -> AsyncIterator[Object]:
        for kind in (self._settings.models, self._settings.cluster_models):
            async for page in self._client.pages(kind):
                for model in page.items:
                    if uid(model) != own:
                        yield model

    async def _release_abandoned(self, model: Object, remove: Remove) -> bool:
        """Whether an abandoned upload uses none of the storage any more. Its owner cannot resume it meanwhile."""
        place, noted = key(model), note(model)
        claim = Claim(use="upload", namespace=place.namespace, name=place.name, uid=uid(model))
        if noted is None:
            return False
        held = msgspec.structs.replace(noted, writer=RELEASE, until=int(self._now() + RELEASE_SECONDS))
        try:
            await self._note(claim, held, resource_version(model))
            gone = await remove(claim)
            await self._note(claim, None if gone else noted)
        except ApiError as error:
            log.warning("could not remove the abandoned upload of %s: %s", place, said(error))
            return False
        if gone:
            log.info("removed the abandoned upload of %s from the registry", place)
        return gone

    async def _renew(self, claim: Claim, hold: Hold) -> None:
        while True:
            await asyncio.sleep(RENEW_SECONDS)
            try:
                model = await self.get(claim)
                noted = note(model)
                if noted is None or noted.writer != hold.writer:
                    hold.lost = True
                    return
                await self._write(claim, hold, model)
            except RefusedError:
                hold.lost = True
                return
            except ApiError as error:
                log.warning("could not renew the right to upload %s: %s", _key(claim), said(error))

    async def _write(self, claim: Claim, hold: Hold, model: Object) -> None:
        until = self._now() + HOLD_SECONDS
        noted = msgspec.structs.replace(self._left(claim, hold), writer=hold.writer, until=int(until))
        await self._note(claim, noted, resource_version(model))
        hold.until = until

    async def _release(self, claim: Claim, hold: Hold) -> None:
        """Should that fail, the right ends by itself."""
        try:
            for _unused in range(ATTEMPTS):
                model = await self.get(claim)
                noted = note(model)
                if noted is None or noted.writer != hold.writer:
                    return
                with suppress(ConflictError):
                    await self._note(claim, self._left(claim, hold), resource_version(model))
                    return
        except (ApiError, RefusedError) as error:
            log.warning("could not give back the right to upload %s: %s", _key(claim), said(error))

    async def _note(self, claim: Claim, noted: Note | None, version: str = "") -> None:
        """Raises ConflictError where the model has another ``version`` by now, if one is given."""
        text = msgspec.json.encode(noted).decode() if noted else None
        metadata: dict[str, Any] = {"uid": claim.uid, "annotations": {UPLOAD: text}}
        if version:
            metadata["resourceVersion"] = version
        await self._client.merge_patch(
            self._kind(claim), _key(claim), {"metadata": metadata}, field_manager=FIELD_MANAGER
        )

    def _left(self, claim: Claim, hold: Hold) -> Note:
        """The note of an upload that no client writes."""
        shown = proof(self._key, claim.uid, hold.length, claim.expires)
        return Note(length=hold.length, proof=shown, expires=claim.expires)

    def _kind(self, claim: Claim) -> Kind:
        return self._settings.models if claim.namespace else self._settings.cluster_models


def _agreed(model: Object, before: Note | None, length: int | None, now: float) -> int:
    """The length of the file that may be written now."""
    if uploaded(model):
        raise RefusedError(409, "the file was uploaded already")
    if before is not None and before.writer and now < before.until:
        wait = str(max(1, int(before.until - now)))
        raise RefusedError(409, "another client uploads this model's file", Retry_After=wait)
    known = length if length is not None else before.length if before else None
    if known is None:
        raise RefusedError(411, "tell the length of the file in the header Upload-Length")
    return known


def _key(claim: Claim) -> Key:
    return Key(claim.namespace, claim.name)
