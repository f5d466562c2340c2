"""The models that uploads belong to: whether a model accepts a file, which client writes the file, and how much storage
all models use.

All replicas share this state in an annotation of the model. A replica writes the annotation only if the model has not
changed in the meantime.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import msgspec

from slipway.decoding import describe_error
from slipway.depot.http.app import RefusedError
from slipway.depot.settings import Settings
from slipway.kube.api.client import Client
from slipway.kube.api.errors import ApiError, ConflictError, NotFoundError
from slipway.kube.objects import Key, Kind, Object, annotations_of, deleting, key, resource_version, uid
from slipway.serving.wire.depot_token import Claim
from slipway.serving.wire.upload_notes import UPLOAD, Note, note, proof, proven, request_proof, reserved

log = logging.getLogger(__name__)

UPLOADED = "slipway.inference/uploaded"
"""Annotation of a model with the digest of the session's manifest, set once all bytes are stored."""
HOLD_SECONDS, RENEW_SECONDS = 120.0, 40.0
"""Seconds after which a writer loses its right unless it renews the right, and seconds between two renewals."""
MARGIN_SECONDS = 20.0
"""Seconds before the expiry of a writer's right during which the writer starts nothing new."""
RELEASE, RELEASE_SECONDS = "release", 300.0
"""Name of the writer of an abandoned upload while the depot removes it from the registry, and the time limit for the
removal."""
MOST_RELEASED = 16
"""Maximum number of abandoned uploads that one request removes, because its client waits for it."""
ATTEMPTS = 8
FIELD_MANAGER = "slipway-depot"


Remove = Callable[[Claim], Awaitable[bool]]
"""Function that removes an upload from the registry, and returns whether it is completely removed."""


def uploaded(model: Object) -> str:
    """Return the digest of the session's manifest if all bytes are stored, or an empty string if not."""
    return str(annotations_of(model).get(UPLOADED, ""))


def is_upload_abandoned(model: Object, key: bytes, now: float) -> bool:
    """Whether an unfinished upload can no longer be completed, because its token has expired and no client is writing.
    False if the model has no note that the depot wrote. ``key`` is the HMAC key, and ``now`` is in Unix seconds."""
    noted = proven(model, key)
    if noted is None or not noted.expires or uploaded(model) or _artifact_bytes(model) is not None:
        return False
    return now >= noted.expires and not (noted.writer and now < noted.until)


def used_bytes(model: Object, key: bytes, now: float, copies: int = 1) -> int:
    """Return the bytes of storage that a model uses: ``copies`` times the size of its artifact or, without an artifact,
    the size of its unfinished upload. ``key`` is the HMAC key, and ``now`` is in Unix seconds."""
    size = _artifact_bytes(model)
    return copies * max(size, 0) if size is not None else reserved(model, key, now)


def reported(model: Object, most: int) -> int:
    """Return the size in bytes, at most ``most``, that a publisher reports for a model whose artifact has no digest.
    Return 0 if the artifact has a digest, or if no size is reported."""
    size = _size(model) if _artifact_bytes(model) is None else None
    return min(max(size, 0), most) if size is not None else 0


def _artifact_bytes(model: Object) -> int | None:
    """Return the size of a model's artifact in bytes, or None if the model has none. Without a digest, the size does
    not count, because the author's own pod may have reported it."""
    return _size(model) if _artifact(model).get("digest") else None


def _size(model: Object) -> int | None:
    size = _artifact(model).get("sizeBytes")
    return size if isinstance(size, int) else None


def _artifact(model: Object) -> Object:
    status = model.get("status")
    artifact = status.get("artifact") if isinstance(status, dict) else None
    return artifact if isinstance(artifact, dict) else {}


class Use:
    """The storage that the models of each namespace use. ``limit`` and ``share`` are the bytes that all models, and
    those of one namespace, may use. Sizes that publishers report count only up to the namespace's share."""

    def __init__(self, limit: int, share: int) -> None:
        self._limit, self._share = limit, share
        self._used, self._abandoned, self._reported = Counter[str](), Counter[str](), Counter[str]()

    def add(self, namespace: str, used: int, reported: int, *, abandoned: bool) -> None:
        """Add a model that uses ``used`` bytes and whose publisher reports ``reported`` bytes. An ``abandoned`` upload
        uses storage, but does not count against the namespace's share."""
        (self._abandoned if abandoned else self._used)[namespace] += used
        self._reported[namespace] += reported

    def free(self) -> int:
        """Return the number of free bytes, which is negative if the models use more than the limit."""
        used = self._used.total() + self._abandoned.total()
        return self._limit - used - sum(map(self._claim, self._reported))

    def free_share(self, namespace: str) -> int:
        """Return the number of bytes that remain of a namespace's share, which is negative if its models use more.
        Cluster-scoped models, whose namespace is empty, have no share and can use everything."""
        return self._most(namespace) - self._used[namespace] - self._claim(namespace)

    def _claim(self, namespace: str) -> int:
        return max(min(self._reported[namespace], self._most(namespace) - self._used[namespace]), 0)

    def _most(self, namespace: str) -> int:
        return self._share if namespace else self._limit


class Hold:
    """The right to write the file of a model. A client that does not renew the right in time loses it."""

    def __init__(self, writer: str, length: int, before: Note | None) -> None:
        self.writer, self.length = writer, length
        self.previous_note = before
        """Note to write to the model when the right is released; None: remove the note."""
        self.granted = False
        """Whether the storage is known to have enough free space for the file. An earlier note alone does not prove
        this, because an author could have copied it."""
        self.until = 0.0
        """Unix time until which the right is valid; 0: it was never acquired."""
        self.is_lost = False

    def check(self, now: float) -> None:
        """Raise RefusedError (409) if the right is lost, or if it expires in less than ``MARGIN_SECONDS``."""
        if self.is_lost or now > self.until - MARGIN_SECONDS:
            raise RefusedError(409, "another client uploads this model's file")


class Models:
    """Access to the models that upload tokens name. Methods raise RefusedError, or ApiError if the API server does not
    answer."""

    def __init__(
        self, client: Client, settings: Settings, hmac_key: bytes, now: Callable[[], float] = time.time
    ) -> None:
        self._client, self._settings, self._key, self._now = client, settings, hmac_key, now

    async def get(self, claim: Claim) -> Object:
        """Return the model that a token names. Raise RefusedError (404) if the model no longer exists or is being
        deleted."""
        try:
            model = await self._client.get(self._kind(claim), _key(claim))
        except NotFoundError:
            model = {}
        if not model or uid(model) != claim.uid or deleting(model):
            raise RefusedError(404, "the model no longer exists")
        return model

    @asynccontextmanager
    async def acquire(self, claim: Claim, length: int | None, remove: Remove) -> AsyncIterator[Hold]:
        """Hold the right to write a file of ``length`` bytes while the context is open. If ``length`` is None, use the
        length from an earlier request.

        If the storage does not have enough free space, remove abandoned uploads of other models with ``remove``, at
        most ``MOST_RELEASED``.

        Raise RefusedError: 404 if the model no longer exists, 409 if another client has the right or the file is
        complete, 411 if no length is known, 503 if the model keeps changing, 507 if there is not enough free space.
        """
        hold = await self._acquire(claim, length)
        renewal = asyncio.create_task(self._renew(claim, hold))  # making room may take longer than the right lasts
        try:
            if not hold.granted:
                await self._room(claim, hold, remove)
                await self._grant(claim, hold)
            yield hold
        finally:
            renewal.cancel()
            with suppress(asyncio.CancelledError):
                await renewal
            if not hold.is_lost:
                await self._release(claim, hold)

    async def announce(self, claim: Claim, digest: str) -> None:
        """Notify the controller that all bytes are stored. ``digest`` is that of the session's manifest."""
        patch = {"metadata": {"uid": claim.uid, "annotations": {UPLOADED: digest}}}
        await self._client.merge_patch(self._kind(claim), _key(claim), patch, field_manager=FIELD_MANAGER)

    async def _acquire(self, claim: Claim, length: int | None) -> Hold:
        for _unused in range(ATTEMPTS):
            model, now = await self.get(claim), self._now()
            file_length, before = _check_length(model, note(model), length, now), proven(model, self._key)
            previous = msgspec.structs.replace(before, writer="", until=0) if before else None
            hold = Hold(secrets.token_hex(8), file_length, previous)
            if not self._settings.capacity_bytes or self._has_room(model, before, file_length, now):
                hold.granted, hold.previous_note = True, self._build_note(claim, file_length)
            with suppress(ConflictError):  # another client changed the model, and may be a writer
                await self._write(claim, hold, model)
                return hold
        raise RefusedError(503, "the model keeps changing: retry", Retry_After="5")

    def _has_room(self, model: Object, before: Note | None, length: int, now: float) -> bool:
        """Whether an earlier request has reserved storage for a file of this length, and the reservation is still
        valid."""
        return before is not None and before.length == length and not is_upload_abandoned(model, self._key, now)

    async def _room(self, claim: Claim, hold: Hold, remove: Remove) -> None:
        """Ensure that the storage has enough free space for the file, and remove abandoned uploads if necessary. Raise
        RefusedError (507) if the space is not enough."""
        limit, rest = self._settings.capacity_bytes, []
        use = Use(limit, self._settings.share_bytes)
        async for model in self._iterate_others(claim.uid):
            size, place = used_bytes(model, self._key, self._now(), self._settings.copies), key(model).namespace
            is_abandoned = is_upload_abandoned(model, self._key, self._now())
            use.add(place, size, reported(model, limit), abandoned=is_abandoned)
            if is_abandoned:
                rest.append((size, model))
        free, share = use.free(), use.free_share(claim.namespace)
        rest.sort(key=lambda one: one[0], reverse=True)
        for size, model in rest[:MOST_RELEASED]:
            if hold.length > free and await self._release_abandoned(model, remove):
                free += size
        _check_room(hold.length, free, share, claim.namespace)

    async def release(self, remove: Remove) -> None:
        """Remove all abandoned uploads from the registry. Skip those that cannot be removed. Raise ApiError if the
        models cannot be listed."""
        async for model in self._iterate_others(""):
            if is_upload_abandoned(model, self._key, self._now()):
                await self._release_abandoned(model, remove)

    async def _grant(self, claim: Claim, hold: Hold) -> None:
        """Record on the model that storage is reserved for the file."""
        hold.granted, hold.previous_note = True, self._build_note(claim, hold.length)
        for _unused in range(ATTEMPTS):
            with suppress(ConflictError):
                await self._renew_once(claim, hold)
                return
        raise RefusedError(503, "the model keeps changing: retry", Retry_After="5")

    async def _iterate_others(self, own: str) -> AsyncIterator[Object]:
        for kind in (self._settings.models, self._settings.cluster_models):
            async for page in self._client.pages(kind):
                for model in page.items:
                    if uid(model) != own:
                        yield model

    async def _release_abandoned(self, model: Object, remove: Remove) -> bool:
        """Remove an abandoned upload, which its owner cannot resume in the meantime. Return whether it was removed."""
        place, noted = key(model), note(model)
        claim = Claim(use="upload", namespace=place.namespace, name=place.name, uid=uid(model))
        if noted is None:
            return False
        held = msgspec.structs.replace(noted, writer=RELEASE, until=int(self._now() + RELEASE_SECONDS))
        try:
            await self._note(claim, held, resource_version(model))
            is_removed = await remove(claim)
            await self._note(claim, None if is_removed else noted)
        except ApiError as error:
            log.warning("could not remove the abandoned upload of %s: %s", place, describe_error(error))
            return False
        if is_removed:
            log.info("removed the abandoned upload of %s from the registry", place)
        return is_removed

    async def _renew(self, claim: Claim, hold: Hold) -> None:
        while True:
            await asyncio.sleep(RENEW_SECONDS)
            try:
                await self._renew_once(claim, hold)
            except RefusedError:
                hold.is_lost = True
                return
            except ApiError as error:
                log.warning("could not renew the right to upload %s: %s", _key(claim), describe_error(error))

    async def _renew_once(self, claim: Claim, hold: Hold) -> None:
        """Renew the right to write. Raise RefusedError if the right belongs to another client by now, or if the model
        no longer exists, or ConflictError if the model has changed in the meantime."""
        model = await self.get(claim)
        noted = note(model)
        if noted is None or noted.writer != hold.writer:
            raise RefusedError(409, "another client uploads this model's file")
        await self._write(claim, hold, model)

    async def _write(self, claim: Claim, hold: Hold, model: Object) -> None:
        until = self._now() + HOLD_SECONDS
        noted = self._build_note(claim, hold.length)
        if not hold.granted:
            request = request_proof(self._key, claim.uid, hold.length, int(until))
            noted = msgspec.structs.replace(noted, proof=request)
        noted = msgspec.structs.replace(noted, writer=hold.writer, until=int(until))
        await self._note(claim, noted, resource_version(model))
        hold.until = until

    async def _release(self, claim: Claim, hold: Hold) -> None:
        """Release the right to write. If this fails, the right expires."""
        try:
            for _unused in range(ATTEMPTS):
                model = await self.get(claim)
                noted = note(model)
                if noted is None or noted.writer != hold.writer:
                    return
                with suppress(ConflictError):
                    await self._note(claim, hold.previous_note, resource_version(model))
                    return
        except (ApiError, RefusedError) as error:
            log.warning("could not give back the right to upload %s: %s", _key(claim), describe_error(error))

    async def _note(self, claim: Claim, noted: Note | None, version: str = "") -> None:
        """Write the upload's note to the model, or remove it if ``noted`` is None. Raise ConflictError if ``version``
        is set and the model no longer has this resource version."""
        text = msgspec.json.encode(noted).decode() if noted else None
        metadata: dict[str, Any] = {"uid": claim.uid, "annotations": {UPLOAD: text}}
        if version:
            metadata["resourceVersion"] = version
        await self._client.merge_patch(
            self._kind(claim), _key(claim), {"metadata": metadata}, field_manager=FIELD_MANAGER
        )

    def _build_note(self, claim: Claim, length: int) -> Note:
        """Return the note of an upload whose storage is reserved and that has no writer."""
        grant = proof(self._key, claim.uid, length, claim.expires)
        return Note(length=length, proof=grant, expires=claim.expires)

    def _kind(self, claim: Claim) -> Kind:
        return self._settings.models if claim.namespace else self._settings.cluster_models


def _check_length(model: Object, before: Note | None, length: int | None, now: float) -> int:
    """Return the length in bytes of the file to write: ``length`` or, if it is None, the one in ``before``. Raise
    RefusedError if neither is known, if the file is complete, or if another client has the right to write."""
    if uploaded(model):
        raise RefusedError(409, "the file is already uploaded")
    if before is not None and before.writer and now < before.until:
        wait = str(max(1, int(before.until - now)))
        raise RefusedError(409, "another client uploads this model's file", Retry_After=wait)
    file_length = length if length is not None else before.length if before else None
    if file_length is None:
        raise RefusedError(411, "set the header Upload-Length to the size of the file")
    return file_length


def _check_room(length: int, free: int, share: int, namespace: str) -> None:
    """Raise RefusedError if a file of ``length`` bytes does not fit. ``free`` and ``share`` are the free bytes of the
    storage and of the namespace's share."""
    if length > free:
        raise RefusedError(507, f"the storage has {max(free, 0)} bytes left, and the file has {length}")
    if length > share:
        shortage = f"namespace {namespace} has {max(share, 0)} bytes left of its share of the storage"
        raise RefusedError(507, f"{shortage}, and the file has {length}: delete models of the namespace")


def _key(claim: Claim) -> Key:
    return Key(claim.namespace, claim.name)
