"""Tokens: the depot issues registry tokens in exchange for a service account's token, or for a token that the
controller signed.

The protocol is that of Docker registries: ``GET /token?service=S&scope=repository:NAME:ACTIONS``. The token permits
those of the requested actions that the caller may perform, and the registry rejects all others. All pods of a namespace
may pull the models of the namespace and those of the cluster. Only publishers may push (see
``slipway.depot.storage.publishers``).
"""

from __future__ import annotations

import binascii
import re
import time
from base64 import b64decode
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from types import MappingProxyType
from typing import NamedTuple

import msgspec
from aiohttp import web

from slipway.depot.credentials.signing import Access, Signer
from slipway.depot.http.app import RefusedError
from slipway.depot.http.reviews import Caller, Reviews, unauthorized
from slipway.depot.settings import Settings
from slipway.depot.storage.publishers import NO_RIGHTS, Publishers
from slipway.kube.api.client import Client
from slipway.kube.api.errors import NotFoundError
from slipway.kube.objects import NAMESPACE, Key, uid
from slipway.serving.wire import depot_token

MOST_SCOPES = 16
REPOSITORY = re.compile(r"[a-z0-9]+([._-]+[a-z0-9]+)*(/[a-z0-9]+([._-]+[a-z0-9]+)*)*")
LONGEST_REPOSITORY = 255
PULL = frozenset({"pull"})


class Scope(NamedTuple):
    """The access to one resource that a client requests."""

    kind: str
    name: str
    actions: tuple[str, ...]

    @property
    def writes(self) -> bool:
        """Whether the client requests more than pull for a valid repository."""
        return self.kind == "repository" and not PULL.issuperset(self.actions) and _is_repository(self.name)


def scope_of(text: str) -> Scope:
    """Parse a scope such as ``repository:NAME:pull,push``. Any text is accepted."""
    kind, _unused, rest = text.partition(":")
    name, _unused, actions = rest.rpartition(":")
    return Scope(kind, name, tuple(dict.fromkeys(actions.split(","))))


def granted(
    caller: Caller, scopes: Iterable[Scope], writable: Mapping[str, frozenset[str]] = MappingProxyType({})
) -> tuple[Access, ...]:
    """Return the part of the requested access that the caller gets. ``writable`` maps repositories to the publisher's
    rights in them."""
    access = []
    for scope in scopes:
        may = (
            _readable(caller, scope) | writable.get(scope.name, NO_RIGHTS) if scope.kind == "repository" else NO_RIGHTS
        )
        if actions := tuple(action for action in scope.actions if action in may):
            access.append(Access(scope.kind, scope.name, actions))
    return tuple(access)


def _readable(caller: Caller, scope: Scope) -> frozenset[str]:
    """Return the pull right if the caller may pull from the repository, otherwise no right. All pods of a namespace may
    pull the models of the namespace, and cluster-scoped models."""
    own = scope.name.startswith((f"namespaced/{caller.namespace}/", "cluster/"))
    return PULL if own and _is_repository(scope.name) else NO_RIGHTS


def _is_repository(name: str) -> bool:
    return len(name) <= LONGEST_REPOSITORY and REPOSITORY.fullmatch(name) is not None


class Tokens:
    """The handler for ``/token``."""

    name = "token"

    def __init__(
        self, settings: Settings, signer: Signer, hmac_key: bytes, client: Client, now: Callable[[], float] = time.time
    ) -> None:
        self._settings, self._signer, self._hmac_key, self._client, self._now = settings, signer, hmac_key, client, now
        self._publishers = Publishers(settings, client)
        self._reviews = Reviews(client, settings.issuer)

    def routes(self) -> Iterable[web.RouteDef]:
        """Return the route for registry tokens. A client that first sends POST gets 405, and then sends GET."""
        return [web.get("/token", self.token, allow_head=False)]

    async def token(self, request: web.Request) -> web.Response:
        """Respond with a token for the permitted part of the requested access, which may be empty."""
        if request.query.get("service", self._settings.service) != self._settings.service:
            raise RefusedError(400, f"this depot signs tokens for the service {self._settings.service} only")
        scopes = " ".join(request.query.getall("scope", [])).split()
        if len(scopes) > MOST_SCOPES:
            raise RefusedError(400, f"ask for at most {MOST_SCOPES} scopes")
        requested = [scope_of(one) for one in scopes]
        if len(_repositories_to_write(requested)) > 1:  # each requires a lookup of models
            raise RefusedError(400, "ask to push into one repository at a time")
        caller = await self._caller(request)
        access = await self._access(caller, requested, request.remote or "")
        now = self._now()
        signed = self._signer.sign(caller.subject, access, now)
        answer = {
            "token": signed,
            "access_token": signed,
            "expires_in": self._signer.seconds,
            "issued_at": datetime.fromtimestamp(int(now), UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        }
        return web.Response(body=msgspec.json.encode(answer), content_type="application/json")

    async def _access(self, caller: Caller, scopes: Sequence[Scope], address: str) -> tuple[Access, ...]:
        writable: dict[str, frozenset[str]] = {}
        for name in _repositories_to_write(scopes) if caller.pod else ():
            async with self._reviews.place(address):
                writable[name] = await self._publishers.rights(caller.namespace, caller.pod, name)
        return granted(caller, scopes, writable)

    async def bearer(self, request: web.Request) -> Caller:
        """Return the caller whose service account token is in the request, for handlers that accept no other kind of
        token. Raise RefusedError."""
        scheme, _unused, token = request.headers.get("Authorization", "").partition(" ")
        if scheme.lower() != "bearer":
            raise unauthorized("send a service account token")
        return await self._reviews.caller(token.strip(), request.remote or "")

    async def _caller(self, request: web.Request) -> Caller:
        scheme, _unused, credentials = request.headers.get("Authorization", "").partition(" ")
        credentials = credentials.strip()
        if scheme.lower() == "bearer" and credentials:
            return await self._reviews.caller(credentials, request.remote or "")
        if scheme.lower() != "basic" or not credentials:
            raise unauthorized("send a service account token, or the password of a pull Secret")
        password = _password(credentials)
        if len(password) <= depot_token.LONGEST and password.count(".") == 1:
            return await self._puller(password, request.remote or "")
        return await self._reviews.caller(password, request.remote or "")

    async def _puller(self, password: str, address: str) -> Caller:
        """Return the caller for a pull token, which the controller signed for a namespace. Raise RefusedError if the
        token is invalid, or if the namespace has been deleted or recreated."""
        try:
            claim = depot_token.verify_token(self._hmac_key, password, "pull", self._now())
        except depot_token.TokenError as error:
            raise unauthorized(str(error)) from None
        if not claim.uid or not claim.expires:
            raise unauthorized("the token is of an older controller: wait until the controller renews the pull Secret")
        async with self._reviews.place(address):
            if await self._namespace(claim.namespace) != claim.uid:
                raise unauthorized(f"the token is for a different namespace than {claim.namespace}")
        return Caller(f"pull:{claim.namespace}", claim.namespace)

    async def _namespace(self, name: str) -> str:
        """Return the uid of a namespace, or an empty string if the namespace does not exist."""
        try:
            return uid(await self._client.get(NAMESPACE, Key("", name)))
        except NotFoundError:
            return ""


def _repositories_to_write(scopes: Iterable[Scope]) -> frozenset[str]:
    """Return the repositories for which the client requests more than pull."""
    return frozenset(one.name for one in scopes if one.writes)


def _password(credentials: str) -> str:
    try:
        return b64decode(credentials, validate=True).decode("ascii").partition(":")[2]
    except (binascii.Error, UnicodeDecodeError, ValueError):
        raise unauthorized("the credentials are not in the form of Basic authentication") from None
