"""The sweep deletes unreferenced manifests from the registry, before the registry's garbage collector frees the space.

The collector requests a sweep each time, with its service account. The sweep lists repositories before models, so that
it does not touch the repository of a model that is created in the meantime.
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
"""Seconds after which a request checks no further repository. The collector repeats its request until everything is
done."""
MOST_OF_ONE = 15.0
"""Maximum seconds for one repository, so that the author of its model cannot block all others."""
IMAGE_DIGEST = "slipway.inference/image"
"""Annotation of a model with the digest of its container image."""
PUBLISHED, IMAGE = "published", "image"
WORKING = frozenset({PUBLISHED, IMAGE, "session", "publishing"})
"""Tags that are kept in the repository of a model that is not published yet."""
FAILED, UPLOADED = "Failed", frozenset({"session"})
"""Phase of a model whose publication failed, and the tags that are kept in its repository: the author's upload, for
another attempt."""


class Retained(msgspec.Struct, frozen=True):
    """The manifests of a model's repository that a sweep keeps: those with one of the tags or with the digest."""

    tags: frozenset[str]
    digest: str = ""
    """Digest of the model's artifact; empty: the model has no artifact yet."""

    def keeps(self, tag: str, digest: str) -> bool:
        if not self.digest:
            return tag in self.tags
        return digest == self.digest or tag in self.tags


class SweepResult(msgspec.Struct, frozen=True):
    """The response to a request for a sweep."""

    removed: int
    """Number of deleted manifests."""
    complete: bool
    """Whether all repositories were checked completely, in time and without an error."""


def find_retained(models: Iterable[Object]) -> Mapping[str, Retained]:
    """Return the manifests that the sweep keeps for each of these models, by repository."""
    return {repository(*key(one), uid(one)): _retained_of(one) for one in models}


def _retained_of(model: Object) -> Retained:
    status = model.get("status")
    artifact = status.get("artifact") if isinstance(status, dict) else None
    digest = artifact.get("digest") if isinstance(artifact, dict) else None
    if not isinstance(digest, str) or not digest:
        return Retained(UPLOADED if isinstance(status, dict) and status.get("phase") == FAILED else WORKING)
    return Retained(frozenset({IMAGE} if annotations_of(model).get(IMAGE_DIGEST) else ()), digest)


class Sweeper:
    """The handler for ``/v1/sweep``."""

    name = "sweep"

    def __init__(self, settings: Settings, tokens: Tokens, client: Client, registry: Registry) -> None:
        self._settings, self._tokens, self._client, self._registry = settings, tokens, client, registry
        self._lock = asyncio.Lock()

    def routes(self) -> Iterable[web.RouteDef]:
        """Return the route on which the collector requests a sweep."""
        return [web.post(PATH, self.sweep)]

    async def sweep(self, request: web.Request) -> web.Response:
        """Delete unreferenced manifests, and respond with their number. The status is 401 without a valid token, 403
        for all service accounts except the collector's, and 503 while another sweep is running or the registry is
        unavailable."""
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
        """Delete unreferenced manifests in all repositories. Raise RegistryError or ApiError if the repositories or the
        models cannot be listed. Later errors, or a lack of time, only make the result incomplete."""
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
        """Delete the manifests of one repository that are not in ``keep``. The result is incomplete after
        ``MOST_OF_ONE`` seconds. Raise RegistryError."""
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
    """Return all repositories, first those without a model, because they may have the most to delete. Each of the two
    groups is in random order, so that a repository that takes too long for one request does not always delay the same
    other repositories."""
    mixed = list(repositories)
    random.shuffle(mixed)
    return sorted(mixed, key=lambda name: name in named)
