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
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import msgspec

from slipway.decoding import DecodingError, decode_json, said
from slipway.depot.app import RefusedError
from slipway.depot.settings import Settings
from slipway.kube.client import Client
from slipway.kube.errors import ApiError, ConflictError, NotFoundError
from slipway.kube.objects import Key, Kind, Object, annotations_of, deleting, resource_version, uid
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
ATTEMPTS = 8
FIELD_MANAGER = "slipway-depot"
_NOTE_BYTES = 1024


class Note(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What stands in the annotation."""

    length: int
    """Bytes of the file: so much of the storage is taken."""
    proof: str = ""
    """That the depot noted this length for this model. Whoever may edit models could take all of the storage else."""
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


def proof(key: bytes, model: str, length: int) -> str:
    """Of a note on the model with this uid."""
    return hmac.digest(key, f"slipway-depot-note-v1\n{model}\n{length}".encode(), hashlib.sha256).hex()


def taken(model: Object, key: bytes) -> int:
    """Bytes of the storage that a model has: of its artifact, or of its upload under way."""
    status = model.get("status")
    artifact = status.get("artifact") if isinstance(status, dict) else None
    size = artifact.get("sizeBytes") if isinstance(artifact, dict) else None
    if isinstance(size, int):
        return max(size, 0)
    noted = note(model)
    proven = noted is not None and hmac.compare_digest(
        noted.proof.encode(), proof(key, uid(model), noted.length).encode()
    )
    return noted.length if noted and proven else 0


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
    async def held(self, claim: Claim, length: int | None) -> AsyncIterator[Hold]:
        """The right to write a file of ``length`` bytes, None where that was told before, while the context lasts.

        Raises RefusedError: 409 while somebody else has it or when the file is there, 411 where nobody told the length,
        413 where it is another one than before, 507 where the storage has no room.
        """
        hold = await self._take(claim, length)
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

    async def _take(self, claim: Claim, length: int | None) -> Hold:
        for _unused in range(ATTEMPTS):
            model = await self.get(claim)
            before = note(model)
            known = _agreed(model, before, length, self._now())
            hold = Hold(secrets.token_hex(8), known)
            try:
                await self._write(claim, hold, model)
            except ConflictError:
                continue  # somebody changed the model meanwhile: it may be another writer
            if before is None or before.length != known:
                await self._room(claim, hold, before)
            return hold
        raise RefusedError(503, "the model changes all the time: ask again", Retry_After="5")

    async def _room(self, claim: Claim, hold: Hold, before: Note | None) -> None:
        """Raises RefusedError where the storage has no room for what was noted just now; it is noted no more then."""
        most = self._settings.capacity_bytes
        if not most:
            return
        free = most - await self._taken_by_others(claim.uid)
        if hold.length > free:
            await self._note(claim, before)
            raise RefusedError(507, f"the storage has {max(free, 0)} bytes left, and the file has {hold.length}")

    async def _taken_by_others(self, own: str) -> int:
        total = 0
        for kind in (self._settings.models, self._settings.cluster_models):
            async for page in self._client.pages(kind):
                total += sum(taken(model, self._key) for model in page.items if uid(model) != own)
        return total

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
        noted = Note(length=hold.length, proof=self._proof(claim, hold), writer=hold.writer, until=int(until))
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
                    left = Note(length=hold.length, proof=self._proof(claim, hold))
                    await self._note(claim, left, resource_version(model))
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

    def _proof(self, claim: Claim, hold: Hold) -> str:
        return proof(self._key, claim.uid, hold.length)

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
