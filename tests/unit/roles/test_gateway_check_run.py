"""A gateway without keys is published only with gateway_allow_anonymous."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from .cluster_api import ClusterApi
from .role_run import run_role

pytestmark = pytest.mark.plays


@pytest.mark.parametrize("kind", ["NodePort", "LoadBalancer"])
def test_a_published_gateway_without_keys_is_refused(tmp_path: Path, api: ClusterApi, kind: str) -> None:
    output = run_role(tmp_path, api, "gateway", "check", failing=True, gateway_service_type=kind)
    assert f"gateway_service_type: {kind} publishes a gateway without keys" in output
    assert "gateway_allow_anonymous" in output
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


def test_rights_that_no_gateway_takes_are_refused_all_at_once(tmp_path: Path, api: ClusterApi) -> None:
    rights: dict[str, Any] = {
        "bob": {},
        "alice": {
            "requestPerMinute": 5,
            "requestsPerMinute": -5,
            "requestsAtOnce": "many",
            "tokensPerMinute": 5,
            "models": "m1",
            "ends": "2030-02-30T00:00:00Z",
            "owner": 5,
            "selector": ["team=a"],
        },
    }
    given = {"gateway_api_keys": {"alice": "sk-1"}, "gateway_key_rights": rights}
    output = run_role(tmp_path, api, "gateway", "check", failing=True, **given)
    for fault in (
        "bob: no such key in gateway_api_keys.",
        "alice.requestPerMinute: unknown option. Use requestsPerMinute.",
        "alice.requestsPerMinute: -5 is not a whole number",
        "alice.requestsAtOnce: ",
        "alice.tokensPerMinute: the gateway counts no tokens",
        "alice.models: ",
        "alice.ends: ",
        "alice.owner: 5 is not a text",
        "alice.selector: ",
    ):
        assert fault in output
    assert "sk-1" not in output


JWT = {"issuer": "https://login.example.org", "audience": "slipway", "jwksUrl": "https://login.example.org/keys"}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("issuer", ""),
        ("audience", "my app"),
        ("audience", "slipway\n"),
        ("claim", "https://example.org/team"),
        ("jwksUrl", "http://login.example.org/keys"),
        ("jwksUrl", "https://user:secret@login.example.org/keys"),
        ("ca", "/etc/ssl/ca.pem"),
    ],
)
def test_an_identity_provider_that_the_gateway_rejects_is_refused(
    tmp_path: Path, api: ClusterApi, field: str, value: str
) -> None:
    wrong = JWT | {field: value}
    output = run_role(
        tmp_path, api, "gateway", "check", failing=True, gateway_jwt=wrong, gateway_api_keys={"alice": "sk-1"}
    )
    assert f"gateway_jwt.{field}: It" in output
    assert "secret@" not in output


def test_an_identity_provider_needs_a_secret_for_the_rights_of_subjects(tmp_path: Path, api: ClusterApi) -> None:
    output = run_role(tmp_path, api, "gateway", "check", failing=True, gateway_jwt=JWT)
    assert "Set gateway_api_keys with at least one key, or gateway_api_keys_secret." in output
    rights = {"jwt:*": {"requestsPerMinute": 5}}
    given = {"gateway_api_keys": {"alice": "sk-1"}, "gateway_key_rights": rights}
    run_role(tmp_path, api, "gateway", "check", gateway_jwt=JWT, **given)


def test_rights_that_a_gateway_takes_pass(tmp_path: Path, api: ClusterApi) -> None:
    rights = {"owner": "a", "models": ["m1", "team/*"], "ends": "2030-01-31T00:00:00Z", "tokensPerMinute": 1000}
    given = {"gateway_api_keys": {"alice": "sk-1"}, "gateway_key_rights": {"alice": rights}}
    run_role(tmp_path, api, "gateway", "check", gateway_count_tokens=True, **given)
