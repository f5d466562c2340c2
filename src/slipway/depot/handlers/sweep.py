"""Sweep: deletes unreferenced manifests from the registry, before its collector frees the space.

The collector's service account calls it each time. The repositories are listed before the models, so that the
repository of a model created in the meantime is not among them.
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
"""Time limit for one request. The collector repeats its request until everything is done."""
MOST_OF_ONE = 15.0
"""Time limit for one repository, so that its author cannot block all others."""
IMAGE_DIGEST = "slipway.inference/image"
"""Annotation of a model: digest of its image."""
PUBLISHED, IMAGE = "published", "image"
WORKING = frozenset({PUBLISHED, IMAGE, "session", "publishing"})
"""Tags in the repository of a model that is not published yet."""
FAILED, UPLOADED = "Failed", frozenset({"session"})
"""Phase of a model whose publication failed, and the tags that it keeps for another attempt: the author's upload."""


class Retained(msgspec.Struct, frozen=True):
    """The manifests that a model keeps in its repository."""

    tags: frozenset[str]
    digest: str = ""
    """Digest of its artifact; empty: it has none yet, and all manifests with one of the tags are kept."""

    def keeps(self, tag: str, digest: str) -> bool:
        if not self.digest:
            return tag in self.tags
        return digest == self.digest or tag in self.tags


class SweepResult(msgspec.Struct, frozen=True):
    """The response."""

    removed: int
    """Number of deleted manifests."""
    complete: bool
    """Whether everything was checked without an error."""


def find_retained(models: Iterable[Object]) -> Mapping[str, Retained]:
    """Returns repository -> the manifests that its model keeps."""
    return {repository(*key(one), uid(one)): _retained_of(one) for one in models}


def _retained_of(model: Object) -> Retained:
    status = model.get("status")
    artifact = status.get("artifact") if isinstance(status, dict) else None
    digest = artifact.get("digest") if isinstance(artifact, dict) else None
    if not isinstance(digest, str) or not digest:
        return Retained(UPLOADED if isinstance(status, dict) and status.get("phase") == FAILED else WORKING)
    return Retained(frozenset({IMAGE} if annotations_of(model).get(IMAGE_DIGEST) else ()), digest)


class Sweeper:
    """Handles ``/v1/sweep``."""

    name = "sweep"

    def __init__(self, settings: Settings, tokens: Tokens, client: Client, registry: Registry) -> None:
        self._settings, self._tokens, self._client, self._registry = settings, tokens, client, registry
        self._lock = asyncio.Lock()

    def routes(self) -> Iterable[web.RouteDef]:
        """Returns the route on which the collector requests a sweep."""
        return [web.post(PATH, self.sweep)]

    async def sweep(self, request: web.Request) -> web.Response:
        """Deletes unreferenced manifests. 403 for all clients except the collector, 503 while another request is
        running."""
        caller = await self._tokens.bearer(request)
        if caller.subject != f"system:serviceaccount:{self._settings.namespace}:{self._settings.collector}":
            raise RefusedError(403, "only the registry's collector may do this")
        if self._lock.locked():
            raise busy("another request is doing this at the moment")
        async with self._lock:
            try:
                result = await self._sweep_all()
            except RegistryError as error:
                log.warning("could not list the repositories of the registry: %s", describe_error(error))
                raise busy("the registry does not respond: retry") from None
        log.info("removed %s unreferenced manifests", result.removed)
        return web.Response(body=msgspec.json.encode(result), content_type="application/json")

    async def _sweep_all(self) -> SweepResult:
        """Deletes unreferenced manifests in all repositories. Raises RegistryError or ApiError if nothing could be
        deleted."""
        repositories = [one async for one in self._registry.repositories() if one.startswith(PREFIXES)]
        models: list[Object] = []
        for kind in (self._settings.models, self._settings.cluster_models):
            async for page in self._client.pages(kind):
                models += page.items
        named, end = find_retained(models), time.monotonic() + SECONDS
        removed, complete = 0, True
        for name in in_order(repositories, named):
            if time.monotonic() > end:
                return SweepResult(removed, complete=False)
            try:
                of_one = await self._remove(name, named.get(name, Retained(frozenset())))
                removed, complete = removed + of_one.removed, complete and of_one.complete
            except AwayError as error:
                log.warning("stopped removing unreferenced manifests: %s", describe_error(error))
                return SweepResult(removed, complete=False)
            except RegistryError as error:
                log.warning("could not remove all of %s: %s", name, describe_error(error))
                complete = False
        return SweepResult(removed, complete)

    async def _remove(self, name: str, keep: Retained) -> SweepResult:
        """Deletes the manifests of a repository that its model does not keep."""
        end, deleted = time.monotonic() + MOST_OF_ONE, set[str]()
        stay = {await self._registry.digest(name, tag) for tag in sorted(keep.tags)}
        async for tag in self._registry.tags(name):
            if time.monotonic() > end:
                return SweepResult(len(deleted), complete=False)
            digest = await self._registry.digest(name, tag)
            if digest and digest not in stay | deleted and not keep.keeps(tag, digest):
                await self._registry.delete_manifest(name, digest)
                deleted.add(digest)
        return SweepResult(len(deleted), complete=True)


def in_order(repositories: Iterable[str], named: Container[str]) -> list[str]:
    """Returns all repositories, those without a model first, because they may have the most to delete. Within both
    groups the order is random, so that a repository that cannot be finished in one request does not starve the
    others."""
    mixed = list(repositories)
    random.shuffle(mixed)
    return sorted(mixed, key=lambda name: name in named)
