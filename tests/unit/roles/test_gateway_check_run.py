"""A gateway that asks for no keys is published only by those who say twice that this is meant."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from .cluster_api import ClusterApi
from .role_run import run_role

pytestmark = pytest.mark.plays


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


def test_rights_that_no_gateway_takes_are_refused_all_at_once(tmp_path: Path, api: ClusterApi) -> None:
    rights: dict[str, Any] = {
        "bob": {},
        "alice": {
            "requestPerMinute": 5,
            "requestsPerMinute": -5,
            "requestsAtOnce": "many",
            "tokensPerMinute": 5,
            "models": "m1",
            "ends": "tomorrow",
        },
    }
    given = {"gateway_api_keys": {"alice": "sk-1"}, "gateway_key_rights": rights}
    said = run_role(tmp_path, api, "gateway", "check", failing=True, **given)
    for fault in (
        "bob: there is no such key",
        "alice: unknown option requestPerMinute",
        "alice: requestsPerMinute is not a whole number",
        "alice: requestsAtOnce is not a whole number",
        "alice: tokensPerMinute needs gateway_count_tokens",
        "alice: models is not a list",
        "alice: ends is not a time",
    ):
        assert fault in said
    assert "sk-1" not in said


def test_rights_that_a_gateway_takes_pass(tmp_path: Path, api: ClusterApi) -> None:
    rights = {"owner": "a", "models": ["m1", "team/*"], "ends": "2030-01-31T00:00:00Z", "tokensPerMinute": 1000}
    given = {"gateway_api_keys": {"alice": "sk-1"}, "gateway_key_rights": {"alice": rights}}
    run_role(tmp_path, api, "gateway", "check", gateway_count_tokens=True, **given)


JWT = {"issuer": "https://login.example.org", "audience": "slipway", "jwksUrl": "https://login.example.org/keys"}


@pytest.mark.parametrize(
    ("jwt", "fault"),
    [
        ({"issuer": "https://login.example.org"}, "audience is missing; give either jwksUrl or jwks."),
        (JWT | {"jwksUrl": "http://login.example.org/keys"}, "jwksUrl is no https:// address"),
        (JWT | {"jwks": {"keys": []}}, "give either jwksUrl or jwks"),
    ],
)
def test_an_issuer_whose_tokens_could_not_be_verified_is_refused(
    tmp_path: Path, api: ClusterApi, jwt: dict[str, Any], fault: str
) -> None:
    assert fault in run_role(tmp_path, api, "gateway", "check", failing=True, gateway_jwt=jwt)


def test_owners_of_tokens_have_rights_where_tokens_are_let_in(tmp_path: Path, api: ClusterApi) -> None:
    rights: dict[str, Any] = {"jwt:alice@example.org": {"models": ["m1"]}, "jwt:*": {"requestsPerMinute": 5}}
    given = {"gateway_key_rights": rights, "gateway_service_type": "NodePort"}
    run_role(tmp_path, api, "gateway", "check", gateway_jwt=JWT, **given)
    said = run_role(tmp_path, api, "gateway", "check", failing=True, **given)
    assert "jwt:*: owners of tokens need gateway_jwt" in said
    faulty = {"gateway_key_rights": {"jwt:a b": {}}, "gateway_jwt": JWT}
    said = run_role(tmp_path, api, "gateway", "check", failing=True, **faulty)
    assert "jwt:a b: this is not the name of an owner" in said


def test_service_accounts_have_rights_where_their_tokens_are_let_in(tmp_path: Path, api: ClusterApi) -> None:
    rights: dict[str, Any] = {"serviceaccount:search:indexer": {"models": ["m1"]}, "serviceaccount:*": {}}
    given = {"gateway_key_rights": rights, "gateway_service_type": "NodePort"}
    run_role(tmp_path, api, "gateway", "check", gateway_service_account_audience="slipway", **given)
    said = run_role(tmp_path, api, "gateway", "check", failing=True, **given)
    assert "serviceaccount:*: service accounts need gateway_service_account_audience" in said


def test_an_audience_that_could_not_be_compared_is_refused(tmp_path: Path, api: ClusterApi) -> None:
    said = run_role(tmp_path, api, "gateway", "check", failing=True, gateway_service_account_audience="a' or TRUE")
    assert "gateway_service_account_audience: it is longer" in said
