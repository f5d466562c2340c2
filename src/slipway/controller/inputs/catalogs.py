"""Catalogs of other clusters that plans request. The controller reads them at intervals and keeps the last content.

There is one task for each resource whose plan has a catalog. Each read, even if it fails, triggers a reconciliation of
the resource, whose status publishes the content. Nothing is stored: after a restart, the controller reads all catalogs
again.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable, Mapping, Sequence

import msgspec

from slipway.artifacts.locations.address_policy import AddressPolicy
from slipway.kube.api.client import Client
from slipway.kube.api.errors import ApiError, ForbiddenError, NotFoundError
from slipway.kube.caches.backoff import Backoff
from slipway.kube.objects import SECRET, Key, Kind
from slipway.serving.wire.catalogs import Catalog, CatalogAddress
from slipway.weights.sources.catalogs import (
    CatalogEndpoint,
    CatalogError,
    authority,
    authorization,
    fetch_catalog,
    policy,
)

log = logging.getLogger(__name__)

FIRST_PAUSE_SECONDS = 5.0
"""Seconds of the first wait before an unreachable catalog is read again. The longest wait is the catalog's refresh
interval."""
JITTER = 0.1
"""Share of the interval by which reads are randomly shifted, so that many clusters do not read at the same time."""
CONCURRENT_REQUESTS = 4

_Subject = tuple[Kind, Key]


class _Followed(msgspec.Struct):
    """One catalog, and the task that reads it."""

    address: CatalogAddress
    task: asyncio.Task[None] | None = None
    tag: str = ""


class Catalogs:
    """The catalogs of all resources. Only the leader's reconciliations start the tasks that read them."""

    def __init__(
        self, client: Client, namespace: str, blocked: Sequence[str] = (), allowed: AddressPolicy | None = None
    ) -> None:
        """Create an empty set of catalogs.

        ``namespace`` contains the Secrets with credentials and CA certificates. ``blocked`` are networks that are never
        contacted. ``allowed`` replaces the usual address policy, and ``blocked`` has no effect then.
        """
        self._client, self._namespace = client, namespace
        self._allowed = allowed or policy(blocked)
        self._followed: dict[_Subject, _Followed] = {}
        self._latest: dict[str, Catalog] = {}
        self._listeners: dict[Kind, Callable[[Key], None]] = {}
        self._places = asyncio.Semaphore(CONCURRENT_REQUESTS)

    @property
    def latest(self) -> Mapping[str, Catalog]:
        """The latest state of each catalog, by resource name. Catalogs that have not been read yet are missing."""
        return self._latest

    def on_change(self, kind: Kind, listener: Callable[[Key], None]) -> None:
        """Register a listener that is called with the key of a resource of ``kind`` after each attempt to read the
        resource's catalog."""
        self._listeners[kind] = listener

    def follow(self, kind: Kind, name: Key, address: CatalogAddress | None) -> None:
        """Start reading the resource's catalog, or stop if ``address`` is None. A new address means a new catalog with
        unknown content."""
        followed = self._followed.get((kind, name))
        if followed is not None and followed.address == address:
            return
        if followed is not None:
            del self._followed[kind, name]
            self._latest.pop(name.name, None)
            if followed.task is not None:
                followed.task.cancel()
        if address is not None:
            subscription = self._followed[kind, name] = _Followed(address)
            subscription.task = asyncio.create_task(self._poll(kind, name, subscription))

    async def close(self) -> None:
        """Cancel the tasks that read catalogs, and wait until they have ended."""
        tasks = [followed.task for followed in self._followed.values() if followed.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _poll(self, kind: Kind, name: Key, followed: _Followed) -> None:
        seconds = followed.address.refresh_seconds
        backoff = Backoff(min(FIRST_PAUSE_SECONDS, seconds), seconds)
        while True:
            pause = backoff.next()
            try:
                async with self._places:
                    catalog = await self._refresh(name, followed)
            except Exception:  # a bug must only affect this catalog
                log.exception("catalog of %s %s", kind.kind, name)
            else:
                self._latest[name.name] = catalog
                if kind in self._listeners:
                    self._listeners[kind](name)
                if not catalog.fault:
                    backoff.reset()
                    pause = seconds * random.uniform(1 - JITTER, 1 + JITTER)  # noqa: S311  # spreads load
            await asyncio.sleep(pause)

    async def _refresh(self, name: Key, followed: _Followed) -> Catalog:
        """Read a catalog once. If the content has not changed, or after a failure, return the previous content, in the
        latter case with the fault."""
        before = self._latest.get(name.name) or Catalog(address=followed.address)
        try:
            answer = await fetch_catalog(await self._load_endpoint(followed.address), self._allowed, followed.tag)
        except CatalogError as error:
            if error.reason != before.fault:
                log.warning("catalog of %s: %s", name, error.message)
            failure = {"fault": error.reason, "message": error.message, "passing": error.passing}
            return msgspec.structs.replace(before, **failure)
        now, document = time.time(), answer.document
        if document is None:
            return msgspec.structs.replace(before, refreshed=now, fault="", message="", passing=False)
        followed.tag = answer.tag
        revision, entries = document.revision, document.entries
        return Catalog(address=followed.address, revision=revision, entries=entries, refreshed=now)

    async def _load_endpoint(self, address: CatalogAddress) -> CatalogEndpoint:
        """Return the address with credentials. They are read again for each request, so that they can be replaced at
        any time. Raise CatalogError if a Secret cannot be used."""
        credential = authorization(await self._secret(address.credentials))
        trusted = authority(await self._secret(address.authority)) if address.authority else ""
        return CatalogEndpoint(url=address.url, authorization=credential, authority=trusted)

    async def _secret(self, name: str) -> Mapping[str, str]:
        """Return the data of a Secret, encoded as base64. Raise CatalogError if the Secret cannot be read."""
        place = Key(self._namespace, name)
        try:
            secret = await self._client.get(SECRET, place)
        except NotFoundError:
            raise CatalogError("SecretMissing", f"There is no Secret {place}.") from None
        except ForbiddenError:
            text = f"The controller is not allowed to read the Secret {place}. Add it to controller_catalog_secrets."
            raise CatalogError("SecretForbidden", text) from None
        except ApiError as error:
            raise CatalogError("Retrying", f"The Secret {place} cannot be read: {error}", passing=True) from error
        return {key: value for key, value in (secret.get("data") or {}).items() if isinstance(value, str)}
