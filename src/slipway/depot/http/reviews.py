"""Token reviews: the API server checks service account tokens for the depot. No client can use up all reviews.

The depot remembers a rejected token for some seconds. Each address has a share of the concurrent reviews, and a
rejected review counts against this share for one more second.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
import time
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import NamedTuple

import msgspec

from slipway.depot.http.app import RefusedError, busy
from slipway.kube.api.client import Client
from slipway.kube.api.errors import InvalidObjectError
from slipway.kube.objects import Kind, Object

TOKEN_REVIEW = Kind("authentication.k8s.io", "v1", "TokenReview", "tokenreviews", namespaced=False)
POD_NAME = "authentication.kubernetes.io/pod-name"
"""Key in a TokenReview of the name of the pod to which the token is bound."""
SERVICE_ACCOUNT = re.compile(r"system:serviceaccount:([a-z0-9-]+):[a-z0-9.-]+")
LONGEST_TOKEN = 8000
_JWT = re.compile(r"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+")
AT_ONCE = 8
"""Maximum number of concurrent requests to the API server."""
MOST, MOST_OF_ONE = 256, 8
"""Maximum number of reservations of ``Reviews.place``, running or waiting: in total, and for one address."""
PENALTY_SECONDS = 1.0
"""Seconds for which a rejected request still counts against its address."""
REFUSED_SECONDS, MOST_REFUSED = 30.0, 4096
"""Seconds for which rejected tokens are remembered, and their maximum number."""
_CHALLENGE = 'Basic realm="slipway-depot"'


class Caller(NamedTuple):
    """A client with a valid token."""

    subject: str
    """Name of the client in the registry's log."""
    namespace: str
    """Namespace of the client's service account, or the namespace for which its pull token is valid."""
    pod: str = ""
    """Name of the pod to which the client's token is bound; empty: the token is not bound to a pod."""


class Refusals:
    """The tokens that were rejected recently, stored as hashes."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now, self._until = now, OrderedDict[bytes, float]()

    def add(self, token: str) -> None:
        """Remember a rejected token, and forget the oldest one if there are too many."""
        self._until[_digest(token)] = self._now() + REFUSED_SECONDS
        while len(self._until) > MOST_REFUSED:
            self._until.popitem(last=False)

    def __contains__(self, token: str) -> bool:
        return self._until.get(_digest(token), 0.0) > self._now()


class Reviews:
    """Reviews of service account tokens for one audience."""

    def __init__(self, client: Client, audience: str, now: Callable[[], float] = time.monotonic) -> None:
        self._client, self._audience = client, audience
        self._refusals, self._outstanding = Refusals(now), Counter[str]()
        self._places = asyncio.Semaphore(AT_ONCE)

    async def caller(self, token: str, address: str) -> Caller:
        """Return the owner of a service account token. Raise RefusedError if the token is invalid or too many reviews
        are running, or ApiError if the API server does not answer."""
        if len(token) > LONGEST_TOKEN or not _JWT.fullmatch(token):
            raise unauthorized("this is not a service account token")
        if token in self._refusals:
            raise self._unknown()
        async with self.place(address):
            if token in self._refusals:  # refused by another request in the meantime
                raise self._unknown()
            try:
                return reviewed(await self._reviewed(token), self._audience)
            except RefusedError:
                self._refusals.add(token)
                raise

    @asynccontextmanager
    async def place(self, address: str) -> AsyncIterator[None]:
        """Wait for one of the concurrent requests to the API server, and reserve it for ``address`` while the context
        is open. Raise RefusedError (503) if the address, or all addresses together, have too many reservations. If the
        context raises RefusedError, the reservation counts for ``PENALTY_SECONDS`` longer."""
        if self._outstanding[address] >= MOST_OF_ONE or self._outstanding.total() >= MOST:
            raise busy("too many tokens are being reviewed")
        self._outstanding[address] += 1
        penalty = 0.0
        try:
            async with self._places:
                yield
        except RefusedError:
            penalty = PENALTY_SECONDS
            raise
        finally:
            if penalty:
                asyncio.get_running_loop().call_later(penalty, self._release, address)
            else:  # immediately: the same request may need a place to look up models
                self._release(address)

    async def _reviewed(self, token: str) -> Object:
        review: Object = {
            "apiVersion": TOKEN_REVIEW.api_version,
            "kind": TOKEN_REVIEW.kind,
            "metadata": {},
            "spec": {"token": token, "audiences": [self._audience]},
        }
        try:
            return await self._client.create(TOKEN_REVIEW, review)
        except InvalidObjectError:
            raise self._unknown() from None

    def _release(self, address: str) -> None:
        self._outstanding[address] -= 1
        if not self._outstanding[address]:
            del self._outstanding[address]

    def _unknown(self) -> RefusedError:
        return _unknown(self._audience)


class _User(msgspec.Struct, frozen=True):
    username: str = ""
    extra: Mapping[str, tuple[str, ...]] | None = None


class _Review(msgspec.Struct, frozen=True):
    authenticated: bool = False
    user: _User = _User()
    audiences: tuple[str, ...] = ()


def reviewed(review: Object, audience: str) -> Caller:
    """Return the service account that a TokenReview confirms. Raise RefusedError if it confirms none for this
    audience."""
    try:
        status = msgspec.convert(review.get("status") or {}, _Review)
    except msgspec.ValidationError:
        status = _Review()
    account = SERVICE_ACCOUNT.fullmatch(status.user.username)
    if not status.authenticated or audience not in status.audiences or account is None:
        raise _unknown(audience)
    pods = (status.user.extra or {}).get(POD_NAME, ())
    return Caller(status.user.username, account[1], pods[0] if len(pods) == 1 else "")


def unauthorized(message: str) -> RefusedError:
    """Return the error for missing or invalid credentials: 401 with the accepted authentication scheme."""
    return RefusedError(401, message, WWW_Authenticate=_CHALLENGE)


def _unknown(audience: str) -> RefusedError:
    return unauthorized(f"this is not a valid service account token for the audience {audience}")


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()
