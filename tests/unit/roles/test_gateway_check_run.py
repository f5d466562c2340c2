"""A gateway that asks for no keys is published only by those who say twice that this is meant."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from .cluster_api import ClusterApi
from .role_run import run_role

pytestmark = pytest.mark.plays


@pytest.fixture
def api() -> Iterator[ClusterApi]:
    server = ClusterApi()
    yield server
    server.stop()


@pytest.mark.parametrize("kind", ["NodePort", "LoadBalancer"])
def test_a_published_gateway_without_keys_is_refused(tmp_path: Path, api: ClusterApi, kind: str) -> None:
    said = run_role(tmp_path, api, "gateway", "check", failing=True, gateway_service_type=kind)
    assert f"gateway_service_type: {kind} publishes a gateway that asks for no keys" in said
    assert "gateway_allow_anonymous" in said
    assert not api.objects


@pytest.mark.parametrize(
    "variables",
    [
        {"gateway_service_type": "ClusterIP"},
        {"gateway_service_type": "NodePort", "gateway_allow_anonymous": True},
        {"gateway_service_type": "NodePort", "gateway_api_keys": {"alice": "sk-1"}},
        {"gateway_service_type": "LoadBalancer", "gateway_api_keys_secret": "gateway-keys"},
    ],
    ids=["inside", "said-twice", "keys", "secret"],
)
def test_others_are_not_asked_twice(tmp_path: Path, api: ClusterApi, variables: dict[str, Any]) -> None:
    run_role(tmp_path, api, "gateway", "check", **variables)
