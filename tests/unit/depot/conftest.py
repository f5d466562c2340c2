"""The depot's doors on a free port, the scripted API server behind them, and keys."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from slipway.depot.credentials import signing
from slipway.depot.credentials.signing import Signer
from slipway.depot.handlers.tokens import Tokens
from slipway.depot.http.app import Endpoint, application
from slipway.depot.settings import Settings, parse_settings
from slipway.kube.api.client import Client
from slipway.kube.metrics import Metrics
from slipway.kube.objects import Kind

from ..kube.conftest import ApiServer, client, eventually, kubeconfig, metrics, script, server

__all__ = ["client", "eventually", "kubeconfig", "metrics", "script", "server"]

NOW = 1_800_000_000.0
KEY = bytes(range(32))
SYSTEM = "slipway-system"
THING, CLUSTER_THING = Kind("toys.test", "v1", "Thing", "things"), Kind("toys.test", "v1", "Box", "boxes", False)
GIVEN = {
    "namespace": SYSTEM,
    "registry": "slipway-registry.slipway-system.svc:5000",
    "model": {"group": "toys.test", "version": "v1", "kind": "Thing", "plural": "things"},
    "clusterModel": {"group": "toys.test", "version": "v1", "kind": "Box", "plural": "boxes"},
}
PEM = signing.generate_key()


def settings_with(**changes: Any) -> Settings:
    return parse_settings({**GIVEN, **changes})


@pytest.fixture
def settings() -> Settings:
    return settings_with()


@pytest.fixture
def signer(settings: Settings) -> Signer:
    return Signer(PEM, issuer=settings.issuer, audience=settings.service, seconds=settings.token_seconds)


@pytest.fixture
def tokens(settings: Settings, signer: Signer, client: Client) -> Tokens:
    return Tokens(settings, signer, KEY, client, lambda: NOW)


@asynccontextmanager
async def depot_client(
    metrics: Metrics, *doors: Endpoint, at_once: int = 64
) -> AsyncIterator[TestClient[web.Request, Any]]:
    """A client of the depot with these doors."""
    async with TestClient(TestServer(application(doors, metrics, at_once=at_once))) as visitor:
        yield visitor


def review_answer(
    username: str, *audiences: str, authenticated: bool = True, pod: str = "any-pod"
) -> Callable[..., Any]:
    """What the API server says of a token."""
    user = {"username": username, "extra": {"authentication.kubernetes.io/pod-name": [pod]} if pod else {}}

    async def answer(_request: web.Request) -> web.StreamResponse:
        status = {"authenticated": authenticated, "user": user, "audiences": list(audiences)}
        return web.json_response({"kind": "TokenReview", "metadata": {}, "status": status}, status=201)

    return answer


def knows(server: ApiServer, username: str, *audiences: str, authenticated: bool = True, pod: str = "any-pod") -> None:
    """Every token is that of this account from now on."""
    answer = review_answer(username, *audiences, authenticated=authenticated, pod=pod)
    server.fault("POST", "tokenreviews", answer, times=10**9)
