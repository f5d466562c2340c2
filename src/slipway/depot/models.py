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
TIDY, TIDY_SECONDS = "tidy", 300.0
"""Who writes while an abandoned upload is taken out of the registry, and for how long at most."""
ATTEMPTS = 8
TIDIED_AT_ONCE = 16
"""Abandoned uploads that whoever looks for room waits for."""
FIELD_MANAGER = "slipway-depot"
_NOTE_BYTES = 1024


Tidy = Callable[[Claim], Awaitable[bool]]
"""Takes an abandoned upload out of the registry. Returns whether nothing is left there."""


class Note(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What stands in the annotation."""

    length: int
    """Bytes of the file: so much of the storage is taken."""
    proof: str = ""
    """That the depot noted this length for this model. Whoever may edit models could take all of the storage else."""
    expires: int = 0
    """Unix seconds at which the session is over, unless somebody still writes; 0: it never is."""
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


def proof(key: bytes, model: str, length: int, expires: int = 0) -> str:
    """Of a note on the model with this uid."""
    end = f"\n{expires}" if expires else ""
    return hmac.digest(key, f"slipway-depot-note-v1\n{model}\n{length}{end}".encode(), hashlib.sha256).hex()


def abandoned(model: Object, now: float) -> bool:
    """Whether an upload was begun that can come to no end any more: its session is over, and nobody writes."""
    noted = note(model)
    if noted is None or not noted.expires or uploaded(model):
        return False
    return now >= noted.expires and not (noted.writer and now < noted.until)


def taken(model: Object, key: bytes) -> int:
    """Bytes of the storage that a model has: of its artifact, or of its upload."""
    status = model.get("status")
    artifact = status.get("artifact") if isinstance(status, dict) else None
    size = artifact.get("sizeBytes") if isinstance(artifact, dict) else None
    if isinstance(size, int):
        return max(size, 0)
    noted = note(model)
    proven = noted is not None and hmac.compare_digest(
        noted.proof.encode(), proof(key, uid(model), noted.length, noted.expires).encode()
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
    async def held(self, claim: Claim, length: int | None, tidy: Tidy) -> AsyncIterator[Hold]:
        """The right to write a file of ``length`` bytes, None where that was told before, while the context lasts.

        ``tidy``: for uploads of others that were abandoned, where room is looked for.

        Raises RefusedError: 409 while somebody else has it or when the file is there, 411 where nobody told the length,
        413 where it is another one than before, 507 where the storage has no room.
        """
        hold = await self._take(claim, length, tidy)
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

    async def _take(self, claim: Claim, length: int | None, tidy: Tidy) -> Hold:
        for _unused in range(ATTEMPTS):
            model = await self.get(claim)
            before = note(model)
            known = _agreed(model, before, length, self._now())
            hold = Hold(secrets.token_hex(8), known)
            try:
                await self._write(claim, hold, model)
            except ConflictError:
                continue  # somebody changed the model meanwhile: it may be another writer
            if before is None or before.length != known or abandoned(model, self._now()):
                await self._room(claim, hold, before, tidy)
            return hold
        raise RefusedError(503, "the model changes all the time: ask again", Retry_After="5")

    async def _room(self, claim: Claim, hold: Hold, before: Note | None, tidy: Tidy) -> None:
        """Raises RefusedError where the storage has no room for what was noted just now; it is noted no more then."""
        most = self._settings.capacity_bytes
        if not most:
            return
        free = most - await self._taken_by_others(claim.uid, tidy)
        if hold.length > free:
            await self._note(claim, before)
            raise RefusedError(507, f"the storage has {max(free, 0)} bytes left, and the file has {hold.length}")

    async def _taken_by_others(self, own: str, tidy: Tidy) -> int:
        total, left = 0, TIDIED_AT_ONCE
        for kind in (self._settings.models, self._settings.cluster_models):
            async for page in self._client.pages(kind):
                for model in (one for one in page.items if uid(one) != own):
                    if left and abandoned(model, self._now()):
                        left -= 1
                        if await self._released(model, tidy):
                            continue
                    total += taken(model, self._key)
        return total

    async def _released(self, model: Object, tidy: Tidy) -> bool:
        """Whether an abandoned upload has nothing of the storage any more. Nobody can resume it meanwhile."""
        place, noted = key(model), note(model)
        claim = Claim(use="upload", namespace=place.namespace, name=place.name, uid=uid(model))
        if noted is None:
            return False
        held = msgspec.structs.replace(noted, writer=TIDY, until=int(self._now() + TIDY_SECONDS))
        try:
            version = await self._note(claim, held, resource_version(model))
            gone = await tidy(claim)
            await self._note(claim, None if gone else noted, version)
        except ApiError as error:
            log.warning("could not release the abandoned upload of %s: %s", place, said(error))
            return False
        if gone:
            log.info("released the abandoned upload of %s", place)
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
        noted = self._noted(claim, hold, writer=hold.writer, until=int(until))
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
                    await self._note(claim, self._noted(claim, hold), resource_version(model))
                    return
        except (ApiError, RefusedError) as error:
            log.warning("could not give back the right to upload %s: %s", _key(claim), said(error))

    async def _note(self, claim: Claim, noted: Note | None, version: str = "") -> str:
        """Returns the model's new version. Raises ConflictError where it has another ``version`` by now, if one is
        given."""
        text = msgspec.json.encode(noted).decode() if noted else None
        metadata: dict[str, Any] = {"uid": claim.uid, "annotations": {UPLOAD: text}}
        if version:
            metadata["resourceVersion"] = version
        changed = await self._client.merge_patch(
            self._kind(claim), _key(claim), {"metadata": metadata}, field_manager=FIELD_MANAGER
        )
        return resource_version(changed)

    def _noted(self, claim: Claim, hold: Hold, writer: str = "", until: int = 0) -> Note:
        proven = proof(self._key, claim.uid, hold.length, claim.expires)
        return Note(length=hold.length, proof=proven, expires=claim.expires, writer=writer, until=until)

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
