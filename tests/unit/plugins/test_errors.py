# Copyright: (c) 2026, The slipway.inference authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Errors: stable codes, and texts that say what to do."""

from __future__ import annotations

import socket
import ssl
import subprocess
import threading
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.slipway.inference.plugins.module_utils._errors import HINTS, from_answer
from fake_api import Answer, FakeApi
from kubeconfigs import kubeconfig
from module_run import Run

FORBIDDEN = (
    'models.krypton.ai is forbidden: User "system:serviceaccount:ci:bot" cannot list resource "models" in API group '
    '"krypton.ai" in the namespace "models"'
)
WEBHOOK = 'admission webhook "policy.example.org" denied the request: image is not allowed'


@pytest.mark.parametrize(
    ("status", "body", "code", "text"),
    [
        (
            401,
            {"message": "Unauthorized"},
            "unauthorized",
            "rejected the credentials (list models.krypton.ai in models).",
        ),
        (
            403,
            {"message": FORBIDDEN, "reason": "Forbidden", "details": {"kind": "models"}},
            "forbidden",
            f"The account is not allowed to list models.krypton.ai in models: {FORBIDDEN}. Grant it with a Role",
        ),
        (403, {"message": "exceeded quota: q", "details": {"kind": "models"}}, "denied", "exceeded quota: q."),
        (400, {"message": WEBHOOK}, "denied", f"{WEBHOOK}."),
        (404, "404 page not found", "definition_missing", "The cluster has no resource type models.krypton.ai."),
        (
            404,
            {"reason": "NotFound", "details": {"kind": "namespaces", "name": "x"}},
            "namespace_missing",
            "The namespace x does not exist.",
        ),
        (
            404,
            {"reason": "NotFound", "details": {"kind": "models", "name": "x"}},
            "not_found",
            "There is no models.krypton.ai in models.",
        ),
        (
            422,
            {"message": "long", "details": {"causes": [{"field": "spec.port", "message": "Invalid value: 0"}]}},
            "invalid",
            "spec.port: Invalid value: 0.",
        ),
        (
            422,
            {
                "details": {
                    "causes": [
                        {
                            "field": "spec.engine",
                            "message": 'Unsupported value: "vlm": supported values: "OLlama", "VLLM", "Infinity"',
                        }
                    ]
                }
            },
            "invalid",
            '"Infinity". Did you mean VLLM?',
        ),
        (409, {"message": "the object has been modified"}, "conflict", "the object has been modified."),
        (
            503,
            {"message": "shutting down"},
            "server_error",
            "The API server answered 503 to list models.krypton.ai in models: shutting down.",
        ),
    ],
)
def test_answers_become_errors(status: int, body: Any, code: str, text: str) -> None:
    import json

    raw = body.encode() if isinstance(body, str) else json.dumps(body).encode()
    error = from_answer(status, raw, None, "list", "models.krypton.ai", "models")
    assert error.code == code
    assert text in error.text
    assert error.code in HINTS


def test_a_pause_that_the_server_asks_for_is_known() -> None:
    assert from_answer(429, b"", "7", "get", "x", "").retry_after == 7
    assert from_answer(429, b'{"details": {"retryAfterSeconds": 3}}', None, "get", "x", "").retry_after == 3


def test_missing_permission_ends_the_module(api: FakeApi, run: Run) -> None:
    api.answers.append(Answer(lambda _call: True, 401, "Unauthorized", "Unauthorized"))
    result = run("model_info", namespace="models")
    assert (result["error_code"], result["status"]) == ("unauthorized", 401)
    assert result["msg"] == (
        "The API server rejected the credentials (list models.krypton.ai in models). "
        "The credentials are missing, wrong or expired."
    )


def test_a_server_that_is_not_there_is_given_up_soon(run: Run) -> None:
    with socket.socket() as silent:  # it has the port, but does not listen
        silent.bind(("127.0.0.1", 0))
        port = silent.getsockname()[1]
        result = run("model_info", host=f"http://127.0.0.1:{port}")
    assert result["error_code"] == "unreachable"
    assert result["msg"] == (
        f"http://127.0.0.1:{port} cannot be reached: Connection refused. "
        "Check the address, the network and the proxy settings, and that the API server runs."
    )


def test_a_certificate_of_an_unknown_authority_is_named(run: Run, tmp_path: Path) -> None:
    names = ["-subj", "/CN=localhost", "-keyout", f"{tmp_path}/key", "-out", f"{tmp_path}/cert"]
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", *names]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "cert", tmp_path / "key")
    listener = socket.create_server(("127.0.0.1", 0))
    listener.settimeout(60)

    def shake() -> None:
        connection, _address = listener.accept()
        try:
            context.wrap_socket(connection, server_side=True)
        except OSError:
            connection.close()

    threading.Thread(target=shake, daemon=True).start()
    result = run("model_info", host=f"https://127.0.0.1:{listener.getsockname()[1]}")
    listener.close()
    assert result["error_code"] == "certificate"
    assert "cannot be verified" in result["msg"]
    assert "Set ca_cert (K8S_AUTH_SSL_CA_CERT)" in result["msg"]


def test_no_connection_details_are_reported(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    result = run("model_info", host=None, api_key=None, kubeconfig=str(tmp_path / "none"))
    assert result["error_code"] == "no_connection_details"
    assert "No usable kubeconfig" in result["msg"]
    assert "Set kubeconfig, or host and api_key, or the K8S_AUTH_* environment variables." in result["msg"]


def test_a_missing_library_is_named(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "kubernetes.client.rest", None)
    by_program = kubeconfig("http://127.0.0.1:9", exec={"command": "true"})
    result = run("model_info", host=None, api_key=None, kubeconfig=by_program)
    assert result["error_code"] == "missing_library"
    assert "kubernetes" in result["msg"]
