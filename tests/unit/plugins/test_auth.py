# Copyright: (c) 2026, The slipway.inference authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Options and environment of kubernetes.core lead to the same connection here."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.slipway.inference.plugins.module_utils import _auth, _settings
from fake_api import FakeApi
from kubeconfigs import kubeconfig
from module_run import Run


def authorization(api: FakeApi) -> str | None:
    return api.calls[-1].headers.get("Authorization")


NOTHING: dict[str, Any] = {"host": None, "api_key": None}


def test_host_and_token_are_enough(api: FakeApi, run: Run) -> None:
    assert not run("model_info").failed
    assert authorization(api) == "Bearer the-api-key"


def test_a_path_with_a_context(api: FakeApi, run: Run, tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_text(json.dumps(kubeconfig(api.url)))
    assert not run("model_info", **NOTHING, kubeconfig=str(path), context="one").failed
    assert authorization(api) == "Bearer a-long-token"


def test_the_secrets_of_a_kubeconfig_dictionary_are_not_in_the_result(api: FakeApi, run: Run) -> None:
    result = run("model_info", **NOTHING, kubeconfig=kubeconfig(api.url), context="one")
    assert not result.failed
    assert authorization(api) == "Bearer a-long-token"
    assert "a-long-token" not in str(result.data)


def test_only_the_environment(api: FakeApi, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    # What AWX's credential for a Kubernetes bearer token sets.
    monkeypatch.setenv("K8S_AUTH_HOST", api.url)
    monkeypatch.setenv("K8S_AUTH_API_KEY", "from-awx")
    monkeypatch.setenv("K8S_AUTH_VERIFY_SSL", "False")
    assert not run("model_info", **NOTHING).failed
    assert authorization(api) == "Bearer from-awx"


def test_a_kubeconfig_in_the_environment(
    api: FakeApi, run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = tmp_path / "config"
    path.write_text(json.dumps(kubeconfig(api.url)))
    monkeypatch.setenv("K8S_AUTH_KUBECONFIG", str(path))
    monkeypatch.setenv("K8S_AUTH_CONTEXT", "one")
    assert not run("model_info", **NOTHING).failed


def test_the_account_of_the_pod(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name, content in {"token": "of-the-pod", "ca.crt": "certificates"}.items():
        (tmp_path / name).write_text(content)
    monkeypatch.setattr(_settings, "ACCOUNT", str(tmp_path))
    connection = _auth.connect({}, {"KUBERNETES_SERVICE_HOST": "192.0.2.1", "KUBERNETES_SERVICE_PORT": "443"})
    assert connection.host == "https://192.0.2.1:443"
    assert ("Authorization", "Bearer of-the-pod") in connection.headers()


def test_the_task_wins_over_the_environment() -> None:
    environment = {"K8S_AUTH_HOST": "https://env", "K8S_AUTH_API_KEY": "env"}
    assert _auth.options({"host": "https://task"}, environment) == {"host": "https://task", "api_key": "env"}


@pytest.mark.parametrize(
    ("variable", "text", "option", "value"),
    [
        ("K8S_AUTH_VERIFY_SSL", "no", "validate_certs", False),
        ("K8S_AUTH_VALIDATE_CERTS", "True", "validate_certs", True),
        ("K8S_AUTH_SSL_CA_CERT", "/ca", "ca_cert", "/ca"),
        ("K8S_AUTH_CERT_FILE", "/cert", "client_cert", "/cert"),
        ("K8S_AUTH_KEY_FILE", "/key", "client_key", "/key"),
        ("K8S_AUTH_PROXY", "http://proxy", "proxy", "http://proxy"),
        ("K8S_AUTH_NO_PROXY", "a,b", "no_proxy", "a,b"),
        ("K8S_AUTH_PROXY_HEADERS_USER_AGENT", "me", "proxy_headers", {"user_agent": "me"}),
        ("K8S_AUTH_IMPERSONATE_USER", "jane", "impersonate_user", "jane"),
        ("K8S_AUTH_IMPERSONATE_GROUPS", "a,b", "impersonate_groups", ["a", "b"]),
        ("K8S_AUTH_USERNAME", "u", "username", "u"),
        ("K8S_AUTH_PASSWORD", "p", "password", "p"),
        ("K8S_AUTH_PERSIST_CONFIG", "true", "persist_config", True),
    ],
)
def test_every_variable_is_read(variable: str, text: str, option: str, value: Any) -> None:
    assert _auth.options({}, {variable: text}) == {option: value}


def test_impersonation_is_asked_for(api: FakeApi, run: Run) -> None:
    assert not run("model_info", impersonate_user="jane", impersonate_groups=["ops"]).failed
    headers = api.calls[-1].headers
    assert (headers["Impersonate-User"], headers["Impersonate-Group"]) == ("jane", "ops")


def test_every_group_is_sent() -> None:
    connection = _auth.connect({"host": "http://h", "api_key": "k", "impersonate_groups": ["a", "b"]}, {})
    assert [value for name, value in connection.headers() if name == "Impersonate-Group"] == ["a", "b"]


def test_user_and_password(api: FakeApi, run: Run) -> None:
    assert not run("model_info", host=api.url, api_key=None, username="u", password="p").failed
    assert authorization(api) == "Basic " + base64.b64encode(b"u:p").decode()


def test_a_proxy_is_used_unless_the_host_is_excepted(api: FakeApi, run: Run) -> None:
    # The server takes the proxy's part.
    assert not run("model_info", host="http://cluster.example.org", proxy=api.url).failed
    assert api.calls[-1].headers["Host"] == "cluster.example.org"
    count = len(api.calls)
    run("model_info", proxy="http://127.0.0.1:9", no_proxy="127.0.0.1")
    assert len(api.calls) == count + 1


def test_secrets_of_a_kubeconfig_are_known() -> None:
    assert list(_auth.secrets_of(kubeconfig("http://h"))) == ["a-long-token"]
