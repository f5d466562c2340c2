"""Tokens that a real API server signs, at a gateway beside the cluster: whom it lets in, and who is gone."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests

from tests.gateway.standalone import Standalone
from tests.ports import reserved_port

from .cluster import PATIENCE, Cluster, unique, wait

AUDIENCE = "slipway-tests"


@pytest.fixture
def gateway(kubeconfig: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Standalone]:
    monkeypatch.setenv("KUBECONFIG", kubeconfig)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    addresses = {name: f"127.0.0.1:{reserved_port()}" for name in ("listen", "controlListen")}
    made = Standalone(tmp_path, {**addresses, "apiKeysSecret": "keys", "serviceAccountAudience": AUDIENCE})
    rights = {"serviceaccount:*": {"models": ["tiny"]}}
    made.table.write_text(json.dumps({"models": {"tiny": []}, "keys": {"key": "sk-key"}, "rights": rights}))
    with made:
        yield made


def status(gateway: Standalone, shown: str) -> int:
    headers = {"authorization": f"Bearer {shown}"}
    return requests.get(f"{gateway.url}/v1/models", headers=headers, timeout=PATIENCE).status_code


def test_an_account_is_let_in_by_its_token_until_it_is_deleted(
    cluster: Cluster, namespace: str, gateway: Standalone
) -> None:
    account = unique("indexer")
    cluster.kubectl("create", "serviceaccount", account, "--namespace", namespace)

    def token(audience: str = AUDIENCE) -> str:
        request = ("create", "token", account, "--namespace", namespace, "--duration", "30m", "--audience", audience)
        return cluster.kubectl(*request).strip()

    shown, kept = token(), token()
    wait("the account is let in", PATIENCE, lambda: status(gateway, shown) == 200)
    assert status(gateway, token("https://kubernetes.default.svc.cluster.local")) == 401
    cluster.kubectl("delete", "serviceaccount", account, "--namespace", namespace)
    assert status(gateway, kept) == 401, "nobody has asked with it before, and the API server says no"
    assert status(gateway, shown) == 200, "a yes is believed for a minute"
