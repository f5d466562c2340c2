"""Whether the registry still has what was published: somebody may delete an artifact there, and nobody is told.

Each artifact is asked for by its digest a few times a day, one after the other. What was missing is asked for again
every few minutes: what is missing then, too, is noted on its model, which the controller watches; what is there again
loses the note.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Iterable
from typing import NamedTuple

from slipway.artifacts.session import MANIFEST_TYPE
from slipway.decoding import said
from slipway.depot.models import FIELD_MANAGER
from slipway.depot.registry import AwayError, Registry, RegistryError
from slipway.kube.client import Client
from slipway.kube.errors import ApiError, ConflictError, NotFoundError
from slipway.kube.objects import Key, Kind, Object, annotations_of, deleting, key, uid
from slipway.serving.repositories import repository

log = logging.getLogger(__name__)

VANISHED = "slipway.inference/vanished"
"""Annotation of a model: digest of its artifact, once the registry does not have that any more."""
LOOK_SECONDS = 6 * 3600.0
"""Between two looks on the average; each replica looks for itself, at its own times."""
JITTER = 0.5
AGAIN_SECONDS = 300.0
"""Between two looks at what was missing."""
PAUSE_SECONDS = 0.2
"""Between two questions of one look."""


class Published(NamedTuple):
    """What is to be in the registry, and what was noted of it last."""

    kind: Kind
    place: Key
    uid: str
    digest: str
    noted: str


def published(kind: Kind, models: Iterable[Object]) -> list[Published]:
    """Of models that have an artifact."""
    found = []
    for model in models:
        status = model.get("status")
        artifact = status.get("artifact") if isinstance(status, dict) else None
        digest = artifact.get("digest") if isinstance(artifact, dict) else None
        if isinstance(digest, str) and not deleting(model):
            found.append(Published(kind, key(model), uid(model), digest, annotations_of(model).get(VANISHED, "")))
    return found


class Presence:
    """Looks after the models of these kinds."""

    def __init__(self, client: Client, registry: Registry, kinds: Iterable[Kind]) -> None:
        self._client, self._registry, self._kinds = client, registry, tuple(kinds)
        self._missing: dict[str, Published] = {}
        """By the model's uid: what was missing when it was last asked for."""

    async def run(self) -> None:
        """Looks until cancelled."""
        await self.recall()
        while True:
            pause = LOOK_SECONDS * random.uniform(1 - JITTER, 1 + JITTER)  # noqa: S311 - spreads load
            for _unused in range(int(pause // AGAIN_SECONDS)):
                await asyncio.sleep(AGAIN_SECONDS)
                await self.look_again()
            await self.look()

    async def recall(self) -> None:
        """Learns what was noted before this process began, so that it is looked at again soon."""
        self._missing = {one.uid: one for one in await self._listed() or () if one.noted == one.digest}

    async def look(self) -> None:
        """At all, once. What is missing for the first time is not noted yet. While the cluster or the registry does not
        answer nothing is known, and what was noted stays."""
        listed = await self._listed()
        if listed is not None:
            uids = {one.uid for one in listed}
            self._missing = {uid: one for uid, one in self._missing.items() if uid in uids}
            await self._look_at(listed)

    async def look_again(self) -> None:
        """At what was missing."""
        await self._look_at(list(self._missing.values()))

    async def _listed(self) -> list[Published] | None:
        """None: the cluster does not answer."""
        found: list[Published] = []
        try:
            for kind in self._kinds:
                async for page in self._client.pages(kind):
                    found += published(kind, page.items)
        except ApiError as error:
            log.warning("could not look for artifacts: %s", said(error))
            return None
        return found

    async def _look_at(self, wanted: Iterable[Published]) -> None:
        for one in wanted:
            try:
                there = await self._registry.has_manifest(repository(*one.place, one.uid), one.digest, MANIFEST_TYPE)
            except AwayError as error:
                log.warning("could not look for all artifacts: %s", said(error))
                return
            except RegistryError as error:
                log.warning("could not look for the artifact of %s: %s", one.place, said(error))
            else:
                await self._found(one, there)
            await asyncio.sleep(PAUSE_SECONDS)

    async def _found(self, one: Published, there: bool) -> None:
        before = self._missing.pop(one.uid, None)
        if not there:
            self._missing[one.uid] = one
        confirmed = there or (before is not None and before.digest == one.digest)
        if confirmed and one.noted != ("" if there else one.digest):
            await self._note(one, "" if there else one.digest)

    async def _note(self, one: Published, lost: str) -> None:
        log.info("%s %s: the registry %s %s", one.kind.kind, one.place, "lost" if lost else "has", one.digest)
        patch = {"metadata": {"uid": one.uid, "annotations": {VANISHED: lost or None}}}
        try:
            await self._client.merge_patch(one.kind, one.place, patch, field_manager=FIELD_MANAGER)
        except (NotFoundError, ConflictError):
            self._missing.pop(one.uid, None)  # the model is gone
        except ApiError as error:
            log.warning("could not note that on %s: %s", one.place, said(error))
            self._missing[one.uid] = one
        else:
            if lost:
                self._missing[one.uid] = one._replace(noted=lost)
