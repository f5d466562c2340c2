"""Imports: a publisher that imports a model from another cluster's catalog gets a registry token from the depot.

The catalog's credential is in a Secret of the depot's namespace and never leaves it. The publisher sends the token of
its own service account, which the API server reviews. The depot then requests a grant for the model's entry from the
catalog, and returns the grant's token, which is valid for a few minutes and only for the model's repository. The
publisher's namespace contains no credential, and nothing is stored. An import that takes longer requests another token.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping

import msgspec
from aiohttp import web

from slipway.artifacts.locations.address_policy import AddressPolicy
from slipway.decoding import describe_error
from slipway.depot.handlers.tokens import Tokens
from slipway.depot.http.app import RefusedError, busy
from slipway.depot.settings import Settings
from slipway.kube.api.client import Client
from slipway.kube.api.errors import ForbiddenError, NotFoundError
from slipway.kube.objects import SECRET, Key, Kind, Object, uid
from slipway.serving.wire.catalogs import IMPORTS, GrantRequest, Import
from slipway.weights.sources.catalogs import CatalogEndpoint, CatalogError, authority, authorization, exchange, policy

OF_THE_CLUSTER = "-"
"""Text that replaces the namespace in the URL of a cluster-scoped model."""
AT_ONCE, WAITING, WAITING_OF_ONE = 8, 64, 8
"""Maximum number of requests for grants: running; running or waiting in total; and running or waiting for one
namespace."""


class _CatalogEntry(msgspec.Struct, frozen=True, rename="camel"):
    """The catalog entry that was chosen for a model, from the model's status."""

    name: str
    source_name: str
    remote_digest: str
    version: str = ""


class _Source(msgspec.Struct, frozen=True, rename="camel"):
    """The fields of a catalog source's spec that the depot needs."""

    url: str
    credentials_secret_name: str
    ca_secret_name: str = ""


class Imports:
    """The handler for ``/v1/imports``."""

    name = "imports"

    def __init__(
        self, settings: Settings, source: Kind, tokens: Tokens, client: Client, allowed: AddressPolicy | None = None
    ) -> None:
        """Find catalogs in resources of the kind ``source``. ``allowed`` is the address policy for catalogs; None: the
        usual one with the blocked networks in the settings."""
        self._settings, self._source, self._tokens, self._client = settings, source, tokens, client
        self._allowed = allowed or policy(settings.blocked_networks)
        self._places, self._waiting = asyncio.Semaphore(AT_ONCE), Counter[str]()

    def routes(self) -> Iterable[web.RouteDef]:
        """Return the route from which publishers get grants for imports."""
        return [web.post(f"{IMPORTS}/{{namespace}}/{{name}}/{{uid}}", self.grant)]

    async def grant(self, request: web.Request) -> web.Response:
        """Respond with a grant for the catalog entry of the model in the URL. The status is 403 for a pod that is
        neither in the namespace in which the model is published nor in the depot's namespace. The status is 424 if the
        other cluster, or the connection to it, has a permanent problem, and 503 for a transient problem."""
        match_info = request.match_info
        namespace = "" if match_info["namespace"] == OF_THE_CLUSTER else match_info["namespace"]
        caller = await self._tokens.bearer(request)
        if caller.namespace not in (namespace or self._settings.namespace, self._settings.namespace):
            raise RefusedError(403, "a publisher imports models of its own namespace only")
        chosen = await self._find_entry(Key(namespace, match_info["name"]), match_info["uid"])
        if self._waiting.total() >= WAITING or self._waiting[caller.namespace] >= WAITING_OF_ONE:
            raise busy("too many grants are being exchanged")
        self._waiting[caller.namespace] += 1
        try:
            async with self._places:
                grant = await self._request_grant(chosen)
        except CatalogError as error:
            status = 503 if error.passing else 424
            raise RefusedError(status, f"{error.reason}: {error.message}") from error
        finally:
            self._waiting[caller.namespace] -= 1
            self._waiting += Counter[str]()  # drops zero entries
        return web.Response(body=msgspec.json.encode(grant), content_type="application/json")

    async def _find_entry(self, name: Key, identity: str) -> _CatalogEntry:
        """Return the catalog entry that was chosen for a model with this name and uid. Raise RefusedError if there is
        no such model, or if no entry has been chosen yet."""
        kind = self._settings.models if name.namespace else self._settings.cluster_models
        try:
            model = await self._client.get(kind, name)
        except NotFoundError:
            model = None
        if model is None or uid(model) != identity:
            raise RefusedError(404, "there is no such model")
        source: Object = (model.get("status") or {}).get("source") or {}
        try:
            return msgspec.convert(source.get("catalog") or {}, _CatalogEntry)
        except msgspec.ValidationError:
            raise RefusedError(409, "no catalog entry has been selected for this model yet", Retry_After="2") from None

    async def _request_grant(self, chosen: _CatalogEntry) -> Import:
        """Return a grant for an entry, which its catalog issues. Raise CatalogError, or ApiError if the API server does
        not answer."""
        try:
            resource = await self._client.get(self._source, Key("", chosen.source_name))
            source = msgspec.convert(resource.get("spec"), _Source)
        except NotFoundError:
            raise CatalogError("SourceMissing", f"The source {chosen.source_name} no longer exists.") from None
        except msgspec.ValidationError as error:
            raise CatalogError("InvalidSource", f"The source {chosen.source_name}: {describe_error(error)}.") from None
        credential = authorization(await self._secret(source.credentials_secret_name))
        trusted = authority(await self._secret(source.ca_secret_name)) if source.ca_secret_name else ""
        endpoint = CatalogEndpoint(url=source.url.rstrip("/"), authorization=credential, authority=trusted)
        request = _request(chosen)
        grant = await exchange(endpoint, self._allowed, request)
        return Import(**msgspec.structs.asdict(grant), ca=trusted)

    async def _secret(self, name: str) -> Mapping[str, str]:
        """Return the data of a Secret in the depot's namespace, with values in base64. Raise CatalogError if the Secret
        is missing or must not be read, or another ApiError."""
        place = Key(self._settings.namespace, name)
        try:
            secret = await self._client.get(SECRET, place)
        except NotFoundError:
            raise CatalogError("SecretMissing", f"There is no Secret {place}.") from None
        except ForbiddenError:
            raise CatalogError("SecretForbidden", f"The depot is not allowed to read the Secret {place}.") from None
        return {key: value for key, value in (secret.get("data") or {}).items() if isinstance(value, str)}


def _request(chosen: _CatalogEntry) -> GrantRequest:
    """Return the request for a grant of this entry. Raise CatalogError if the entry is invalid."""
    fields = {"name": chosen.name, "version": chosen.version, "digest": chosen.remote_digest}
    try:
        return msgspec.convert(fields, GrantRequest)
    except msgspec.ValidationError as error:
        raise CatalogError(
            "InvalidChoice", f"The selected entry cannot be requested: {describe_error(error)}."
        ) from None
