"""Tokens of the cluster's service accounts in the place of API keys: whose they are, and who is gone."""

from __future__ import annotations

import base64
import json
import random
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest
import requests
import yaml

from tests.gateway.conftest import PATIENCE, Engine, wait_for
from tests.gateway.standalone import Standalone
from tests.gateway.test_jwt import CHAT, KEYS, STRANGER, ask, claims, jwk, metrics, signature, token

AUDIENCE, ACCOUNT = "slipway", "system:serviceaccount:search:indexer"
OTHER_ISSUER = "https://login.example.org"
RIGHTS: dict[str, dict[str, Any]] = {
    "serviceaccount:search:indexer": {"models": ["m1"]},
    "serviceaccount:*": {"models": ["m2"], "requestsPerMinute": 3},
    "jwt:*": {"models": ["m3"]},
}


class ApiServer:
    """Reviews tokens as a test wants, and counts what it is asked."""

    def __init__(self) -> None:
        self.reviewed: list[str] = []
        self.gone: set[str] = set()
        """Subjects whose accounts or pods are no longer there."""
        self.failing = False
        self.answering = Event()
        self.answering.set()
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                known = self.path == "/openid/v1/jwks" and self.headers["Authorization"] == "Bearer of-the-gateway"
                if known and self.headers["Accept"] not in ("*/*", "application/jwk-set+json"):
                    return self.say(406, {})
                return self.say(200 if known else 403, {"keys": [jwk("rsa")]} if known else {})

            def do_POST(self) -> None:
                asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                server.answering.wait(PATIENCE)
                if server.failing or self.path != "/apis/authentication.k8s.io/v1/tokenreviews":
                    return self.say(500, {})
                return self.say(201, {**asked, "status": server.review(**asked["spec"])})

            def say(self, status: int, body: dict[str, Any]) -> None:
                self.send_response(status)
                self.send_header("content-type", "application/json")
                self.end_headers()
                self.wfile.write(json.dumps(body).encode())

            def log_message(self, *_unused: object) -> None:
                """Keeps the output of tests clean."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        Thread(target=self._server.serve_forever, daemon=True).start()

    def review(self, token: str, audiences: list[str]) -> dict[str, Any]:
        """The status of a TokenReview."""
        self.reviewed.append(token)
        said = payload_of(token)
        if said["sub"] in self.gone or said["exp"] <= time.time():
            return {"error": "the token has been invalidated"}
        return {"authenticated": True, "user": {"username": said["sub"]}, "audiences": audiences}

    def close(self) -> None:
        self.answering.set()
        self._server.shutdown()
        self._server.server_close()


def payload_of(shown: str) -> dict[str, Any]:
    return json.loads(base64.urlsafe_b64decode(shown.split(".")[1] + "=="))


def account_token(subject: str = ACCOUNT, **changed: Any) -> str:
    payload = claims(iss="https://kubernetes.default.svc", sub=subject, aud=[AUDIENCE], jti=str(time.time()))
    return token(payload | changed)


@pytest.fixture
def api() -> Iterator[ApiServer]:
    made = ApiServer()
    yield made
    made.close()


@pytest.fixture
def guarded(
    make_gateway: Callable[..., Standalone],
    engine: Engine,
    api: ApiServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Standalone]:
    file = tmp_path / "kubeconfig"
    context = {"cluster": "c", "user": "u"}
    text = {
        "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": api.url}}],
        "users": [{"name": "u", "user": {"token": "of-the-gateway"}}],
        "contexts": [{"name": "c", "context": context}],
    }
    file.write_text(yaml.safe_dump(text))
    monkeypatch.setenv("KUBECONFIG", str(file))
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    jwt = {"issuer": OTHER_ISSUER, "audience": AUDIENCE, "jwks": {"keys": [jwk("ec")]}}
    made = make_gateway(apiKeysSecret="keys", serviceAccountAudience=AUDIENCE, jwt=jwt, threads=2)
    models = {name: [engine.endpoint] for name in ("m1", "m2", "m3")}
    made.table.write_text(json.dumps({"models": models, "keys": {"key": "sk-key"}, "rights": RIGHTS}))
    with made:
        wait_for(lambda: ask(made, "sk-key", "m1").status_code == 200)
        wait_for(lambda: ask(made, account_token("system:serviceaccount:search:first"), "m2").status_code == 200)
        api.reviewed.clear()
        yield made


def test_an_account_gets_what_its_record_says_and_the_api_server_is_asked_once(
    guarded: Standalone, api: ApiServer, engine: Engine
) -> None:
    shown = account_token()
    assert [ask(guarded, shown).status_code for _unused in range(10)] == [200] * 10
    assert api.reviewed == [shown]
    assert "authorization" not in engine.headers[-1], "no token reaches an engine"
    assert ask(guarded, shown, "m2").status_code == 404
    log = guarded.directory / "haproxy.log"
    wait_for(lambda: '"key": "serviceaccount:search:indexer"' in log.read_text())
    told = log.read_text() + (guarded.directory / "control.log").read_text()
    assert not any(part in told for part in shown.split("."))
    assert {"slipway_gateway_service_account_keys 1.0", "slipway_gateway_service_account_jwks_up 1.0"} <= set(
        metrics(guarded).splitlines()
    )


def test_an_account_that_no_record_names_has_the_rights_of_all_accounts_and_limits_of_its_own(
    guarded: Standalone,
) -> None:
    for name in ("one", "two"):
        shown = account_token(f"system:serviceaccount:search:{name}")
        assert [ask(guarded, shown, "m2").status_code for _unused in range(4)] == [200, 200, 200, 429]


def test_an_issuers_owner_never_passes_for_an_account_nor_an_account_for_an_owner(guarded: Standalone) -> None:
    def issued(subject: str) -> str:
        payload = claims(iss=OTHER_ISSUER, sub=subject)
        return token(payload, {"alg": "ES384", "kid": "ec"}, lambda text: signature(KEYS["ec"], text))

    for subject in ("search:indexer", "serviceaccount:search:indexer", ACCOUNT):
        assert ask(guarded, issued(subject), "m1").status_code == 404
        assert ask(guarded, issued(subject), "m3").status_code == 200
    assert ask(guarded, account_token(iss=OTHER_ISSUER), "m3").status_code == 404


FORGED = {
    "a stranger's key": lambda: token(payload_of(account_token()), sign=lambda text: signature(STRANGER, text)),
    "the issuer's key": lambda: token(
        payload_of(account_token()), {"alg": "ES384", "kid": "ec"}, lambda text: signature(KEYS["ec"], text)
    ),
    "another audience": lambda: account_token(aud=["https://kubernetes.default.svc"]),
    "expired": lambda: account_token(exp=int(time.time()) - 60),
    "no account": lambda: account_token("alice"),
    "no name": lambda: account_token("system:serviceaccount:search"),
    "all accounts": lambda: account_token("system:serviceaccount:*"),
    "more parts": lambda: account_token(f"{ACCOUNT}:more"),
    "a node": lambda: account_token("system:node:a"),
    "none": lambda: token(payload_of(account_token()), {"alg": "none"}, lambda _unused: b""),
}


def test_of_what_is_no_token_of_an_account_the_api_server_hears_nothing(guarded: Standalone, api: ApiServer) -> None:
    found = {name: ask(guarded, forged()).status_code for name, forged in FORGED.items()}
    assert found == dict.fromkeys(FORGED, 401)
    assert api.reviewed == []


def test_who_is_gone_gets_401_and_the_api_server_is_not_asked_again_at_once(
    guarded: Standalone, api: ApiServer
) -> None:
    api.gone.add(ACCOUNT)
    shown = account_token()
    answers = [ask(guarded, shown) for _unused in range(10)]
    assert {(one.status_code, one.json()["error"]["code"]) for one in answers} == {(401, "invalid_api_key")}
    assert api.reviewed == [shown]


def test_a_token_is_believed_no_longer_than_it_lives(guarded: Standalone, api: ApiServer) -> None:
    shown = account_token(exp=int(time.time()) + 4)
    assert ask(guarded, shown).status_code == 200
    wait_for(lambda: ask(guarded, shown).status_code == 401)
    assert time.time() >= payload_of(shown)["exp"]


def test_while_the_api_server_is_away_known_tokens_are_taken_and_unknown_ones_get_503(
    guarded: Standalone, api: ApiServer
) -> None:
    known, unknown = account_token(), account_token("system:serviceaccount:search:other")
    # Each thread knows for itself, and the control process for all of them.
    assert [ask(guarded, known).status_code for _unused in range(10)] == [200] * 10
    api.failing = True
    assert [ask(guarded, known).status_code for _unused in range(5)] == [200] * 5
    answer = ask(guarded, unknown, "m2")
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "token_review_unavailable")
    assert answer.headers["retry-after"] == "5"
    assert ask(guarded, "sk-key", "m1").status_code == 200, "keys have nothing to do with that"
    guarded.stop(guarded.control)
    assert ask(guarded, unknown, "m2").status_code == 503
    api.failing = False
    guarded.start_control()
    wait_for(lambda: ask(guarded, unknown, "m2").status_code == 200)


def test_requests_that_come_together_with_one_token_have_it_reviewed_once(guarded: Standalone, api: ApiServer) -> None:
    shown = account_token()
    api.answering.clear()
    with ThreadPoolExecutor(20) as pool:
        asked = [pool.submit(ask, guarded, shown) for _unused in range(20)]
        wait_for(lambda: requests.get(f"{guarded.url}/healthz", timeout=PATIENCE).ok)
        time.sleep(0.5)
        api.answering.set()
        assert [one.result().status_code for one in asked] == [200] * 20
    assert api.reviewed == [shown]


def test_the_api_server_is_not_asked_of_accounts_without_rights(guarded: Standalone, api: ApiServer) -> None:
    text = json.loads(guarded.table.read_text())
    text["rights"].pop("serviceaccount:*")
    guarded.table.write_text(json.dumps(text))
    without = "system:serviceaccount:search:without"
    wait_for(lambda: ask(guarded, account_token(without), "m2").status_code == 403)
    api.reviewed.clear()
    answer = ask(guarded, account_token(without), "m2")
    assert (answer.status_code, answer.json()["error"]["code"]) == (403, "no_rights")
    assert api.reviewed == []


def test_clients_that_leave_while_the_api_server_is_asked_take_no_place_for_ever(
    guarded: Standalone, api: ApiServer, tmp_path: Path
) -> None:
    """Over HTTP/2: HAProxy ends their requests at once, and what waits for them runs no further."""
    api.answering.clear()
    asked = tmp_path / "requests"
    for _unused in range(4):
        with_tokens = (
            f'url = "{guarded.url}{CHAT}"\nhttp2-prior-knowledge\nmax-time = 1\noutput = "/dev/null"\n'
            f'header = "authorization: Bearer {account_token(jti=str(random.random()))}"\n'
            'header = "content-type: application/json"\ndata = "{}"\n'
            for _another in range(200)
        )
        asked.write_text("next\n".join(with_tokens))
        command = ["curl", "--silent", "--parallel", "--parallel-max", "200", "--parallel-immediate", "-K", str(asked)]
        subprocess.run(command, check=False, timeout=PATIENCE)
    api.answering.set()
    wait_for(lambda: [ask(guarded, account_token()).status_code for _unused in range(6)] == [200] * 6)
