"""Sweep: removes from the registry what no model names, before the collector frees the space.

The collector's own account calls it each time. The repositories are listed before the models, so that the repository of
a model that was created meanwhile is not among them.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Container, Iterable, Mapping

import msgspec
from aiohttp import web

from slipway.decoding import describe_error
from slipway.depot.handlers.tokens import Tokens
from slipway.depot.http.app import RefusedError, busy
from slipway.depot.settings import Settings
from slipway.depot.storage.registry import AwayError, Registry, RegistryError
from slipway.kube.api.client import Client
from slipway.kube.objects import Object, annotations_of, key, uid
from slipway.serving.wire.repositories import PREFIXES, repository

log = logging.getLogger(__name__)

PATH = "/v1/sweep"
SECONDS = 120.0
"""For one request. The collector sends further ones until all is done."""
MOST_OF_ONE = 15.0
"""Seconds of them for one repository, so that its author keeps no other from being looked at."""
IMAGE_DIGEST = "slipway.inference/image"
"""Annotation of a model: digest of its files as an image."""
PUBLISHED, IMAGE = "published", "image"
WORKING = frozenset({PUBLISHED, IMAGE, "session", "publishing"})
"""Tags in the repository of a model that is not yet published."""
FAILED, UPLOADED = "Failed", frozenset({"session"})
"""Phase of a model that could not be published, and what it keeps for another attempt: what its author uploaded."""


class Retained(msgspec.Struct, frozen=True):
    """What a model retains in its repository."""

    tags: frozenset[str]
    digest: str = ""
    """Of its artifact; empty: it has none yet, and all that has one of the tags is kept."""

    def keeps(self, tag: str, digest: str) -> bool:
        if not self.digest:
            return tag in self.tags
        return digest == self.digest or tag in self.tags


class Swept(msgspec.Struct, frozen=True):
    """The answer."""

    removed: int
    """Manifests."""
    complete: bool
    """Whether all was looked at, and nothing failed."""


def find_retained(models: Iterable[Object]) -> Mapping[str, Retained]:
    """Returns repository -> what its model retains there."""
    return {repository(*key(one), uid(one)): _retained_of(one) for one in models}


def _retained_of(model: Object) -> Retained:
    status = model.get("status")
    artifact = status.get("artifact") if isinstance(status, dict) else None
    digest = artifact.get("digest") if isinstance(artifact, dict) else None
    if not isinstance(digest, str) or not digest:
        return Retained(UPLOADED if isinstance(status, dict) and status.get("phase") == FAILED else WORKING)
    return Retained(frozenset({IMAGE} if annotations_of(model).get(IMAGE_DIGEST) else ()), digest)


class Sweeper:
    """The door ``/v1/sweep``."""

    name = "sweep"

    def __init__(self, settings: Settings, tokens: Tokens, client: Client, registry: Registry) -> None:
        self._settings, self._tokens, self._client, self._registry = settings, tokens, client, registry
        self._lock = asyncio.Lock()

    def routes(self) -> Iterable[web.RouteDef]:
        """One."""
        return [web.post(PATH, self.sweep)]

    async def sweep(self, request: web.Request) -> web.Response:
        """Removes what no model names. 403 for all but the collector, 503 while another request does it."""
        caller = await self._tokens.bearer(request)
        if caller.subject != f"system:serviceaccount:{self._settings.namespace}:{self._settings.collector}":
            raise RefusedError(403, "only the registry's collector may do this")
        if self._lock.locked():
            raise busy("another request is doing this at the moment")
        async with self._lock:
            try:
                swept = await self._swept()
            except RegistryError as error:
                log.warning("could not list the repositories of the registry: %s", describe_error(error))
                raise busy("the registry does not respond: retry") from None
        log.info("removed %s unreferenced manifests", swept.removed)
        return web.Response(body=msgspec.json.encode(swept), content_type="application/json")

    async def _swept(self) -> Swept:
        """Raises RegistryError or ApiError while nothing was removed."""
        repositories = [one async for one in self._registry.repositories() if one.startswith(PREFIXES)]
        models: list[Object] = []
        for kind in (self._settings.models, self._settings.cluster_models):
            async for page in self._client.pages(kind):
                models += page.items
        named, end = find_retained(models), time.monotonic() + SECONDS
        removed, complete = 0, True
        for name in in_order(repositories, named):
            if time.monotonic() > end:
                return Swept(removed, complete=False)
            try:
                of_one = await self._remove(name, named.get(name, Retained(frozenset())))
                removed, complete = removed + of_one.removed, complete and of_one.complete
            except AwayError as error:
                log.warning("stopped removing unreferenced manifests: %s", describe_error(error))
                return Swept(removed, complete=False)
            except RegistryError as error:
                log.warning("could not remove all of %s: %s", name, describe_error(error))
                complete = False
        return Swept(removed, complete)

    async def _remove(self, name: str, keep: Retained) -> Swept:
        """Manifests of a repository that its model does not keep."""
        end, gone = time.monotonic() + MOST_OF_ONE, set[str]()
        stay = {await self._registry.digest(name, tag) for tag in sorted(keep.tags)}
        async for tag in self._registry.tags(name):
            if time.monotonic() > end:
                return Swept(len(gone), complete=False)
            digest = await self._registry.digest(name, tag)
            if digest and digest not in stay | gone and not keep.keeps(tag, digest):
                await self._registry.delete_manifest(name, digest)
                gone.add(digest)
        return Swept(len(gone), complete=True)


def in_order(repositories: Iterable[str], named: Container[str]) -> list[str]:
    """Those without a model first: they may have most to remove. Otherwise in another order each time, so that what
    lasts longer than a request starves no other."""
    mixed = list(repositories)
    random.shuffle(mixed)
    return sorted(mixed, key=lambda name: name in named)
