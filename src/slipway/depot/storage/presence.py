"""Presence: a check whether the registry still has the published artifacts, because a registry does not report
deletions.

The depot sends one request for each artifact every few hours, one after another. A missing artifact is checked again
some minutes later. If it is still missing, its model gets an annotation, which the controller watches. The depot
removes the annotation when the artifact is back.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from slipway.artifacts.documents.session import MANIFEST_TYPE
from slipway.decoding import describe_error
from slipway.depot.storage.models import FIELD_MANAGER
from slipway.depot.storage.registry import AwayError, Registry, RegistryError
from slipway.kube.api.client import Client
from slipway.kube.api.errors import ApiError, ConflictError, NotFoundError
from slipway.kube.objects import Key, Kind, Object, annotations_of, deleting, key, uid
from slipway.serving.wire.repositories import repository

log = logging.getLogger(__name__)

VANISHED = "slipway.inference/vanished"
"""Annotation of a model with the digest of its artifact, if the registry no longer has the artifact."""
CHECK_SECONDS = 6 * 3600.0
"""Average seconds between two checks of all artifacts. Each replica checks independently."""
JITTER = 0.5
RECHECK_SECONDS = 300.0
"""Seconds between two checks of missing artifacts."""
FIRST_SECONDS = 3600.0
"""Maximum seconds until the first check, so that a depot that restarts often still checks."""
MOST_AWAY = 3
"""Number of consecutive unanswered requests after which a check ends."""
MOST_RECHECKED = 500
"""Maximum number of missing artifacts in one recheck, so that one author's many deletions do not delay the check of all
artifacts."""
PAUSE_SECONDS = 0.2
"""Seconds between two requests."""


class Artifact(NamedTuple):
    """A published artifact, and the record on its model."""

    kind: Kind
    model: Key
    uid: str
    digest: str
    vanished: str
    """Value of the annotation ``VANISHED``; empty: the artifact is not marked as missing."""


def artifacts(kind: Kind, models: Iterable[Object]) -> list[Artifact]:
    """Return the published artifacts of these models, except models that are being deleted."""
    artifact_list = []
    for model in models:
        status = model.get("status")
        artifact = status.get("artifact") if isinstance(status, dict) else None
        digest = artifact.get("digest") if isinstance(artifact, dict) else None
        if isinstance(digest, str) and not deleting(model):
            artifact_list.append(
                Artifact(kind, key(model), uid(model), digest, annotations_of(model).get(VANISHED, ""))
            )
    return artifact_list


class Presence:
    """Repeated checks whether the registry still has the artifacts that models of the given kinds have published."""

    def __init__(self, client: Client, registry: Registry, kinds: Iterable[Kind]) -> None:
        self._client, self._registry, self._kinds = client, registry, tuple(kinds)
        self._missing: dict[str, Artifact] = {}
        """Model uid -> artifact that the last check did not find, or whose model could not be annotated."""

    async def run(self) -> None:
        """Check all artifacts every few hours, and missing ones every few minutes, until the task is cancelled."""
        await self.load()
        pause = random.uniform(0, FIRST_SECONDS)  # noqa: S311 - spreads load
        while True:
            for _unused in range(int(pause // RECHECK_SECONDS)):
                await asyncio.sleep(RECHECK_SECONDS)
                await self.recheck()
            await asyncio.sleep(pause % RECHECK_SECONDS)
            await self.check()
            pause = CHECK_SECONDS * random.uniform(1 - JITTER, 1 + JITTER)  # noqa: S311 - spreads load

    async def load(self) -> None:
        """Load the artifacts that are already marked as missing; none if the API server does not answer."""
        self._missing = {one.uid: one for one in await self._list_artifacts() or () if one.vanished == one.digest}

    async def check(self) -> None:
        """Check all artifacts. Change nothing if the API server does not answer. Skip an artifact if the request fails,
        and end early if the registry does not answer."""
        listed = await self._list_artifacts()
        if listed is None:
            return
        uids = {one.uid for one in listed}
        self._missing = {uid: one for uid, one in self._missing.items() if uid in uids}
        await self._check(listed)

    async def recheck(self) -> None:
        """Check missing artifacts again, at most ``MOST_RECHECKED``. Each checked artifact moves to the end of the
        queue, so that every one gets its turn."""
        await self._check(list(self._missing.values())[:MOST_RECHECKED])

    async def _list_artifacts(self) -> list[Artifact] | None:
        """Return all published artifacts, or None if the API server does not answer."""
        artifact_list: list[Artifact] = []
        try:
            for kind in self._kinds:
                async for page in self._client.pages(kind):
                    artifact_list += artifacts(kind, page.items)
        except ApiError as error:
            log.warning("could not list models to check their artifacts: %s", describe_error(error))
            return None
        return artifact_list

    async def _check(self, listed: Sequence[Artifact]) -> None:
        away = 0
        for one in listed:
            try:
                there = await self._registry.has_manifest(repository(*one.model, one.uid), one.digest, MANIFEST_TYPE)
            except RegistryError as error:
                log.warning("could not check the artifact of %s: %s", one.model, describe_error(error))
                away = away + 1 if isinstance(error, AwayError) else 0
                if away == MOST_AWAY:
                    log.warning("could not check all artifacts: the registry does not answer")
                    return
            else:
                away = 0
                await self._update(one, there)
            await asyncio.sleep(PAUSE_SECONDS)

    async def _update(self, one: Artifact, there: bool) -> None:
        before = self._missing.pop(one.uid, None)
        if not there:
            self._missing[one.uid] = one
        confirmed = there or (before is not None and before.digest == one.digest)
        vanished = "" if there else one.digest
        if confirmed and one.vanished != vanished:
            await self._annotate(one, vanished)

    async def _annotate(self, one: Artifact, vanished: str) -> None:
        does = "does not have" if vanished else "has"
        log.info("%s %s: the registry %s %s", one.kind.kind, one.model, does, one.digest)
        patch = {"metadata": {"uid": one.uid, "annotations": {VANISHED: vanished or None}}}
        try:
            await self._client.merge_patch(one.kind, one.model, patch, field_manager=FIELD_MANAGER)
        except (NotFoundError, ConflictError):  # the model was deleted
            self._missing.pop(one.uid, None)
        except ApiError as error:
            log.warning("could not annotate %s %s: %s", one.kind.kind, one.model, describe_error(error))
            self._missing[one.uid] = one  # the next recheck retries
        else:
            if vanished:
                self._missing[one.uid] = one._replace(vanished=vanished)
