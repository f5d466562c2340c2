"""Whether tokens of service accounts are still valid: the API server is asked (TokenReview), its word kept a while.

HAProxy has verified each of them before (identity.py), so nobody but the cluster's own accounts can have the API server
asked. What it adds to the signature is that the token's pod and account are still there.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import msgspec
from aiohttp import web
from prometheus_client import CollectorRegistry, Counter

from slipway.decoding import DecodingError, decode_json, said
from slipway.gateway.jwks import JwksError
from slipway.kube.client import Client
from slipway.kube.errors import ApiError
from slipway.kube.objects import Kind, Object

log = logging.getLogger(__name__)

TOKEN_REVIEW = Kind("authentication.k8s.io", "v1", "TokenReview", "tokenreviews", namespaced=False)
JWKS_PATH = "/openid/v1/jwks"
"""Where the API server publishes the keys by which it signs tokens. Every service account may read it."""
YES_SECONDS, NO_SECONDS = 60, 10
"""How long an answer is believed. So long a pod or an account that is gone may still ask."""
MOST_KNOWN = 10_000
"""Answers that are kept."""
MOST_AT_ONCE, MOST_ASKED = 16, 512
"""Tokens of which the API server is asked at once, and those that may wait for that besides. Of one namespace it is at
most half of each, so that its clients keep no others waiting."""
ASK_SECONDS = 3.0
"""For one answer of the API server."""
_LONGEST = 8192
_MOST_ANSWER = 1 << 16

Ask = Callable[[Object], Awaitable[Object]]
"""Sends a TokenReview and returns it with its status. Raises ApiError."""


class UnknownError(Exception):
    """Whether a token is valid cannot be found out now; the message says why."""


class Verdict(NamedTuple):
    """What is known of a token."""

    valid: bool
    ends: float
    """Unix time until which that may be believed."""


class _Claims(msgspec.Struct, frozen=True):
    sub: str
    exp: float


class _User(msgspec.Struct, frozen=True):
    username: str = ""


class _Status(msgspec.Struct, frozen=True):
    authenticated: bool = False
    user: _User = _User()
    audiences: list[str] = []


class _Share:
    """What one namespace has of the places."""

    def __init__(self) -> None:
        self.slots = asyncio.Semaphore(MOST_AT_ONCE // 2)
        self.held = 0
        """Its tokens of which the API server is asked, or that wait for that."""


class Reviewer:
    """Asks about each token once, however many requests have it, and again when the answer is no longer believed."""

    def __init__(
        self, ask: Ask, audience: str, registry: CollectorRegistry, clock: Callable[[], float] = time.time
    ) -> None:
        self._ask, self._audience, self._clock = ask, audience, clock
        self._known: dict[bytes, Verdict] = {}
        self._asking: dict[bytes, asyncio.Task[Verdict]] = {}
        self._slots = asyncio.Semaphore(MOST_AT_ONCE)
        self._shares: dict[str, _Share] = {}
        """By namespace, of those that have any place."""
        self._away = ""
        self._count = Counter(
            "slipway_gateway_token_reviews",
            "TokenReviews that the API server was asked for, by what it said: valid, invalid or nothing (failed).",
            ("result",),
            registry=registry,
        )

    async def review(self, token: str) -> Verdict:
        """Whether a token is valid. Raises UnknownError."""
        digest, now = hashlib.sha256(token.encode()).digest(), self._clock()
        known = self._known.get(digest)
        if known and known.ends > now:
            return known
        task = self._asking.get(digest)
        if task is None:
            task = self._begin(token, digest)
        return await asyncio.shield(task)  # others may wait for it, too

    def _begin(self, token: str, digest: bytes) -> asyncio.Task[Verdict]:
        """Raises UnknownError."""
        try:
            claims = _claims(token)
        except DecodingError as error:
            raise self._failed(said(error)) from error
        namespace = _namespace(claims)
        share = self._shares.get(namespace) or _Share()
        most = MOST_AT_ONCE + MOST_ASKED
        if len(self._asking) >= most or share.held >= most // 2:
            raise UnknownError("the API server is asked about too many tokens already")
        self._shares[namespace] = share
        share.held += 1
        task = self._asking[digest] = asyncio.create_task(self._find_out(token, claims, share))
        task.add_done_callback(lambda done: self._keep(digest, namespace, done))
        return task

    def _keep(self, digest: bytes, namespace: str, done: asyncio.Task[Verdict]) -> None:
        del self._asking[digest]
        self._shares[namespace].held -= 1
        if not self._shares[namespace].held:
            del self._shares[namespace]
        if done.cancelled() or done.exception():
            return
        self._known.pop(digest, None)
        self._known[digest] = done.result()
        if len(self._known) > MOST_KNOWN:
            del self._known[next(iter(self._known))]  # what was found out longest ago

    async def _find_out(self, token: str, claims: _Claims, share: _Share) -> Verdict:
        """Asks the API server. Raises UnknownError."""
        review: Object = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": TOKEN_REVIEW.kind,
            "metadata": {},
            "spec": {"token": token, "audiences": [self._audience]},
        }
        try:
            async with share.slots, self._slots, asyncio.timeout(ASK_SECONDS):
                status = _status(await self._ask(review))
        except (ApiError, TimeoutError, DecodingError) as error:
            raise self._failed(said(error)) from error
        self._tell("")
        now = self._clock()
        valid = status.authenticated and status.user.username == claims.sub and self._audience in status.audiences
        valid = valid and claims.exp > now
        self._count.labels("valid" if valid else "invalid").inc()
        return Verdict(valid, min(now + YES_SECONDS, claims.exp) if valid else now + NO_SECONDS)

    def _failed(self, why: str) -> UnknownError:
        self._count.labels("failed").inc()
        self._tell(why)
        return UnknownError(why)

    def _tell(self, why: str) -> None:
        """Logs that the API server does not answer, and that it does again: once each."""
        if why and not self._away:
            log.warning("Could not ask the API server whether a token is valid: %s; new ones get 503", why)
        elif self._away and not why:
            log.info("The API server answers again: tokens can be checked")
        self._away = why


def _claims(token: str) -> _Claims:
    """What a token says. HAProxy has verified it. Raises DecodingError."""
    try:
        payload = base64.urlsafe_b64decode(token.split(".")[1] + "==")
    except (IndexError, ValueError) as error:
        raise DecodingError("this is no token") from error
    return decode_json(payload, _Claims, most=_LONGEST)


def _namespace(claims: _Claims) -> str:
    """Of the account, as HAProxy has seen it: ``system:serviceaccount:NAMESPACE:NAME``."""
    return ":".join(claims.sub.split(":")[:3])


def _status(review: Object) -> _Status:
    """Raises DecodingError."""
    return decode_json(msgspec.json.encode(review.get("status")), _Status, most=_MOST_ANSWER)


def application(review: Callable[[str], Awaitable[Verdict]], clock: Callable[[], float] = time.time) -> web.Application:
    """What review.lua asks: a token in, ``1 SECONDS`` or ``0 SECONDS`` out; 503 where nobody knows."""

    async def answer(request: web.Request) -> web.Response:
        try:
            verdict = await review(await request.text())
        except UnknownError:
            return web.Response(status=503)
        return web.Response(text=f"{int(verdict.valid)} {max(int(verdict.ends - clock()), 0)}")

    made = web.Application(client_max_size=_LONGEST)
    made.add_routes([web.post("/review", answer)])
    return made


def asked_of(client: Client) -> Ask:
    """Has the API server review tokens."""

    async def ask(review: Object) -> Object:
        return await client.create(TOKEN_REVIEW, review)

    return ask


def keys_of(client: Client) -> Callable[[], Awaitable[bytes]]:
    """Reads the keys by which the API server signs tokens; raises JwksError."""

    async def read() -> bytes:
        try:
            found: dict[str, Any] = await client.read(JWKS_PATH)
        except ApiError as error:
            raise JwksError(said(error)) from error
        return msgspec.json.encode(found)

    return read
