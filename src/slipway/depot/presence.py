"""Whether the registry still has what was published: somebody may delete an artifact there, and nobody is told.

Each artifact is asked for by its digest a few times a day, one after the other. What is not there any more is noted on
its model, which the controller watches; what is there again loses the note.
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
from slipway.depot.registry import Registry, RegistryError
from slipway.kube.client import Client
from slipway.kube.errors import ApiError
from slipway.kube.objects import Key, Kind, Object, annotations_of, deleting, key, uid
from slipway.serving.repositories import repository

log = logging.getLogger(__name__)

VANISHED = "slipway.inference/vanished"
"""Annotation of a model: digest of its artifact, once the registry does not have that any more."""
LOOK_SECONDS = 6 * 3600.0
"""Between two looks on the average; each replica looks for itself, at its own times."""
JITTER = 0.5
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

    async def run(self) -> None:
        """Looks until cancelled."""
        while True:
            await asyncio.sleep(LOOK_SECONDS * random.uniform(1 - JITTER, 1 + JITTER))  # noqa: S311 - spreads load
            await self.look()

    async def look(self) -> None:
        """Once. While the cluster or the registry does not answer nothing is known, and what was noted stays."""
        try:
            for one in await self._listed():
                await self._look_at(one)
                await asyncio.sleep(PAUSE_SECONDS)
        except (ApiError, RegistryError) as error:
            log.warning("could not look for all artifacts: %s", said(error))

    async def _listed(self) -> list[Published]:
        found: list[Published] = []
        for kind in self._kinds:
            async for page in self._client.pages(kind):
                found += published(kind, page.items)
        return found

    async def _look_at(self, one: Published) -> None:
        there = await self._registry.has_manifest(repository(*one.place, one.uid), one.digest, MANIFEST_TYPE)
        if one.noted == ("" if there else one.digest):
            return
        log.info("%s %s: the registry %s %s", one.kind.kind, one.place, "has" if there else "lost", one.digest)
        patch = {"metadata": {"uid": one.uid, "annotations": {VANISHED: None if there else one.digest}}}
        try:
            await self._client.merge_patch(one.kind, one.place, patch, field_manager=FIELD_MANAGER)
        except ApiError as error:
            log.warning("could not note that on %s: %s", one.place, said(error))
