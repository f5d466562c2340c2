"""The key by which gateways recognize each other, as the role creates, keeps, checks and mounts it."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest

from .cluster_api import ClusterApi
from .role_run import run_role

pytestmark = pytest.mark.plays

SECRET = ("Secret", "slipway-system", "slipway-gateway-exchange")
GIVEN: dict[str, Any] = {"gateway_wait_timeout": 10, "gateway_wait": False, "gateway_allow_anonymous": True}


def volumes(api: ClusterApi) -> dict[str, Any]:
    (deployment,) = [one for key, one in api.objects.items() if key[0] == "Deployment"]
    pod = deployment["spec"]["template"]["spec"]
    (control,) = [one for one in pod["containers"] if one["name"] == "control"]
    mounted = {one["name"] for one in control["volumeMounts"]}
    return {one["name"]: one for one in pod["volumes"] if one["name"] in mounted}


def admitted(api: ClusterApi) -> dict[int, Any]:
    """From where the NetworkPolicy admits connections, by port."""
    (policy,) = [one for key, one in api.objects.items() if key[0] == "NetworkPolicy"]
    return {port["port"]: rule.get("from") for rule in policy["spec"]["ingress"] for port in rule["ports"]}


def test_the_key_is_created_once_and_pods_do_not_start_without_it(tmp_path: Path, api: ClusterApi) -> None:
    output = run_role(tmp_path, api, "gateway", "main", gateway_api_keys={"a": "sk-1"}, **GIVEN)
    created = api.objects[SECRET]
    text = created.get("stringData", {}).get("key") or base64.b64decode(created["data"]["key"]).decode()
    assert len(text) == 64
    assert text not in output
    assert volumes(api)["exchange"]["secret"] == {"secretName": SECRET[2]}
    gateways = {"podSelector": {"matchLabels": {"app.kubernetes.io/name": "slipway-gateway"}}}
    assert admitted(api)[8082] == [gateways]
    created["data"] = {"key": base64.b64encode(text.encode()).decode()}
    run_role(tmp_path, api, "gateway", "main", gateway_api_keys={"a": "sk-1"}, **GIVEN)
    assert api.objects[SECRET]["data"] == created["data"]


@pytest.mark.parametrize("data", [{}, {"other": "eA=="}, {"key": "c2hvcnQtYW5kLXNlY3JldA=="}, {"key": "ICA="}])
def test_an_existing_secret_without_a_usable_key_is_rejected(
    tmp_path: Path, api: ClusterApi, data: dict[str, str]
) -> None:
    api.put(
        {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": SECRET[2], "namespace": SECRET[1]}, "data": data}
    )
    output = run_role(tmp_path, api, "gateway", "main", failing=True, gateway_api_keys={"a": "sk-1"}, **GIVEN)
    assert "slipway-system/slipway-gateway-exchange: its field `key` is missing, or has fewer than 32 bytes." in output
    assert "short-and-secret" not in output
    assert not [key for key in api.objects if key[0] == "Deployment"]


def test_without_keys_there_is_nothing_to_exchange(tmp_path: Path, api: ClusterApi) -> None:
    run_role(tmp_path, api, "gateway", "main", **GIVEN)
    assert SECRET not in api.objects
    assert set(volumes(api)) == {"run", "config", "token"}
    assert set(admitted(api)) == {8080, 8081}
