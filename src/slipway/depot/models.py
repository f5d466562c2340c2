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
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
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


def request_proof(key: bytes, model: str, length: int, until: int) -> str:
    """Of a note whose length must still be checked against the room of the storage."""
    return hmac.digest(key, f"slipway-depot-request-v1\n{model}\n{length}\n{until}".encode(), hashlib.sha256).hex()


def _old_proof(key: bytes, model: str, length: int) -> str:
    """Of a note by an older depot. Its session never ends."""
    return hmac.digest(key, f"slipway-depot-note-v1\n{model}\n{length}".encode(), hashlib.sha256).hex()


def proven(model: Object, key: bytes) -> Note | None:
    """The note of an upload for which the depot had room. Authors of models can write annotations, too."""
    noted = note(model)
    if noted is None:
        return None
    valid = [proof(key, uid(model), noted.length, noted.expires)]
    if not noted.expires:
        valid.append(_old_proof(key, uid(model), noted.length))
    return noted if _is_one_of(noted.proof, valid) else None


def _is_one_of(given: str, valid: Sequence[str]) -> bool:
    return any(hmac.compare_digest(given.encode(), one.encode()) for one in valid)


def abandoned(model: Object, key: bytes, now: float) -> bool:
    """Whether an upload began that cannot be completed: its session has ended, and no client writes."""
    noted = proven(model, key)
    if noted is None or not noted.expires or uploaded(model) or _artifact_bytes(model) is not None:
        return False
    return now >= noted.expires and not (noted.writer and now < noted.until)


def taken(model: Object, key: bytes, now: float) -> int:
    """Bytes of the storage that a model has: of its artifact, or of its upload under way."""
    size, noted = _artifact_bytes(model), note(model)
    if size is not None:
        return max(size, 0)
    if noted is None:
        return 0
    asks = now < noted.until and _is_one_of(noted.proof, [request_proof(key, uid(model), noted.length, noted.until)])
    return noted.length if asks or proven(model, key) else 0


def _artifact_bytes(model: Object) -> int | None:
    """None: it has no artifact. Until it has a digest, its size is only a report of the author's pod."""
    status = model.get("status")
    artifact = status.get("artifact") if isinstance(status, dict) else None
    if not isinstance(artifact, dict) or not artifact.get("digest"):
        return None
    size = artifact.get("sizeBytes")
    return size if isinstance(size, int) else None


class Hold:
    """The right to write the file of one model. It is lost when it could not be renewed in time."""

    def __init__(self, writer: str, length: int, before: Note | None) -> None:
        self.writer, self.length = writer, length
        self.kept_note = before
        """What stays noted when the right is given back."""
        self.granted = False
        """Whether the storage has room for the length. An author could copy a note that proves it before."""
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
        hold = await self._take(claim, length)
        renewal = asyncio.create_task(self._renew(claim, hold))  # making room may last longer than the right
        try:
            if not hold.granted:
                await self._room(claim, hold, remove)
                await self._grant(claim, hold)
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
            model, now = await self.get(claim), self._now()
            known, before = _agreed(model, note(model), length, now), proven(model, self._key)
            kept = msgspec.structs.replace(before, writer="", until=0) if before else None
            hold = Hold(secrets.token_hex(8), known, kept)
            if not self._settings.capacity_bytes or self._has_room(model, before, known, now):
                hold.granted, hold.kept_note = True, self._granted(claim, known)
            with suppress(ConflictError):  # another client changed the model: it may be a writer
                await self._write(claim, hold, model)
                return hold
        raise RefusedError(503, "the model changes all the time: ask again", Retry_After="5")

    def _has_room(self, model: Object, before: Note | None, length: int, now: float) -> bool:
        """Whether the storage keeps room for a file of this length since an earlier request."""
        return before is not None and before.length == length and not abandoned(model, self._key, now)

    async def _room(self, claim: Claim, hold: Hold, remove: Remove) -> None:
        """Raises RefusedError where the storage has no room for what was noted just now."""
        free = self._settings.capacity_bytes
        share, rest = self._settings.share_bytes if claim.namespace else free, []
        async for model in self._others(claim.uid):
            size = taken(model, self._key, self._now())
            free -= size
            if abandoned(model, self._key, self._now()):
                rest.append((size, model))
            elif key(model).namespace == claim.namespace:
                share -= size
        rest.sort(key=lambda one: one[0], reverse=True)
        for size, model in rest[:MOST_RELEASED]:
            if hold.length > free and await self._release_abandoned(model, remove):
                free += size
        _check_room(hold.length, free, share, claim.namespace)

    async def release(self, remove: Remove) -> None:
        """Removes all abandoned uploads from the registry. Raises ApiError."""
        async for model in self._others(""):
            if abandoned(model, self._key, self._now()):
                await self._release_abandoned(model, remove)

    async def _grant(self, claim: Claim, hold: Hold) -> None:
        """Notes that the storage has room."""
        hold.granted, hold.kept_note = True, self._granted(claim, hold.length)
        for _unused in range(ATTEMPTS):
            with suppress(ConflictError):
                await self._renew_once(claim, hold)
                return
        raise RefusedError(503, "the model changes all the time: ask again", Retry_After="5")

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
                await self._renew_once(claim, hold)
            except RefusedError:
                hold.lost = True
                return
            except ApiError as error:
                log.warning("could not renew the right to upload %s: %s", _key(claim), said(error))

    async def _renew_once(self, claim: Claim, hold: Hold) -> None:
        """Raises RefusedError if the right is lost."""
        model = await self.get(claim)
        noted = note(model)
        if noted is None or noted.writer != hold.writer:
            raise RefusedError(409, "another client uploads this model's file")
        await self._write(claim, hold, model)

    async def _write(self, claim: Claim, hold: Hold, model: Object) -> None:
        until = self._now() + HOLD_SECONDS
        noted = self._granted(claim, hold.length)
        if not hold.granted:
            shown = request_proof(self._key, claim.uid, hold.length, int(until))
            noted = msgspec.structs.replace(noted, proof=shown)
        noted = msgspec.structs.replace(noted, writer=hold.writer, until=int(until))
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
                    await self._note(claim, hold.kept_note, resource_version(model))
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

    def _granted(self, claim: Claim, length: int) -> Note:
        """The note of an upload that has room and that no client writes."""
        shown = proof(self._key, claim.uid, length, claim.expires)
        return Note(length=length, proof=shown, expires=claim.expires)

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


def _check_room(length: int, free: int, share: int, namespace: str) -> None:
    """Raises RefusedError. ``free``, ``share``: bytes that are left of the storage, and of the namespace's share."""
    if length > free:
        raise RefusedError(507, f"the storage has {max(free, 0)} bytes left, and the file has {length}")
    if length > share:
        left = f"namespace {namespace} has {max(share, 0)} bytes left of its share of the storage"
        raise RefusedError(507, f"{left}, and the file has {length}: delete models of the namespace")


def _key(claim: Claim) -> Key:
    return Key(claim.namespace, claim.name)
