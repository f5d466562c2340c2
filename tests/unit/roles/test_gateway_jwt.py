"""Tokens of an issuer: what the role's variable becomes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from slipway.gateway.settings import Jwt, load
from tests.unit.roles.rendering import Rendered

GIVEN = {"issuer": "https://login.example.org", "audience": "slipway", "jwksUrl": "https://login.example.org/keys"}


def test_without_an_issuer_there_is_no_such_setting_and_no_secret() -> None:
    role = Rendered("gateway")
    assert (role["__gateway_jwt_settings"], role["__gateway_keys"], role["__gateway_keys_secret"]) == ({}, {}, "")


@pytest.mark.parametrize("allow", [False, "no", "true"])
def test_the_gateway_takes_what_the_role_writes(tmp_path: Path, allow: Any) -> None:
    role = Rendered("gateway", gateway_jwt=GIVEN | {"allowHttp": allow})
    file = tmp_path / "gateway.yaml"
    secret = {"apiKeysSecret": role["__gateway_keys_secret"]}
    file.write_text(yaml.safe_dump(secret | role["__gateway_jwt_settings"]))
    expected = Jwt(GIVEN["issuer"], "slipway", jwks_url=GIVEN["jwksUrl"], allow_http=allow == "true")
    assert load(file).jwt == expected


def test_an_audience_for_service_accounts_is_enough_for_the_secret_with_their_rights() -> None:
    role = Rendered("gateway", gateway_service_account_audience="slipway")
    assert (role["__gateway_keys"], role["__gateway_keys_secret"]) == ({"none": ""}, "slipway-gateway")
    assert role["__gateway_settings"]["serviceAccountAudience"] == "slipway"
    assert role["__gateway_jwt_settings"] == {}


@pytest.mark.parametrize(
    ("given", "written", "named"),
    [
        ({}, {"none": ""}, "slipway-gateway"),
        ({"gateway_api_keys": {"alice": "sk-1"}}, {"alice": "sk-1"}, "slipway-gateway"),
        ({"gateway_api_keys_secret": "mine"}, {}, "mine"),
    ],
)
def test_the_secret_with_the_owners_rights_is_there_without_keys_too(
    given: dict[str, Any], written: dict[str, str], named: str
) -> None:
    role = Rendered("gateway", gateway_jwt=GIVEN, **given)
    assert (role["__gateway_keys"], role["__gateway_keys_secret"]) == (written, named)
