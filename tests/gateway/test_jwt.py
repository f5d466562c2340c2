"""Tokens of an issuer in the place of API keys: whose they are, what he may, and what forgers try."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import pytest
import requests
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

from slipway.gateway import jwks
from tests.gateway.conftest import PATIENCE, Engine, ask_haproxy, wait_for
from tests.gateway.standalone import Standalone
from tests.ports import reserved_port

CHAT = "/v1/chat/completions"
LIFE = 6 * 3600
"""Seconds that a token is valid: some are made when tests are collected, long before they run."""
ISSUER, AUDIENCE = "https://login.example.org/realms/a?b=1&c", "slipway"
RIGHTS: dict[str, dict[str, Any]] = {
    "key": {"models": ["m1"]},
    "jwt:alice": {"models": ["m1"], "owner": "search"},
    "jwt:*": {"models": ["m2"], "requestsPerMinute": 3},
}
KEYS = {"rsa": rsa.generate_private_key(65537, 2048), "ec": ec.generate_private_key(ec.SECP384R1())}
STRANGER = rsa.generate_private_key(65537, 2048)


def b64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def number(value: int) -> str:
    return b64(value.to_bytes((value.bit_length() + 7) // 8, "big"))


def jwk(kid: str) -> dict[str, str]:
    key = KEYS[kid].public_key()
    if isinstance(key, rsa.RSAPublicKey):
        numbers = key.public_numbers()
        return {"kty": "RSA", "kid": kid, "use": "sig", "n": number(numbers.n), "e": number(numbers.e)}
    point = key.public_numbers()
    return {"kty": "EC", "kid": kid, "crv": "P-384", "x": number(point.x), "y": number(point.y)}


def signature(key: rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey, text: bytes) -> bytes:
    if isinstance(key, rsa.RSAPrivateKey):
        return key.sign(text, padding.PKCS1v15(), hashes.SHA256())
    return b"".join(
        part.to_bytes(48, "big") for part in decode_dss_signature(key.sign(text, ec.ECDSA(hashes.SHA384())))
    )


def claims(**changed: Any) -> dict[str, Any]:
    now = int(time.time())
    usual = {"iss": ISSUER, "aud": AUDIENCE, "exp": now + LIFE, "nbf": now - 5, "sub": "alice"}
    return {name: value for name, value in (usual | changed).items() if value is not None}


def token(
    payload: dict[str, Any] | None = None,
    header: dict[str, Any] | None = None,
    sign: Callable[[bytes], bytes] = lambda text: signature(KEYS["rsa"], text),
) -> str:
    named = {"alg": "RS256", "typ": "JWT", "kid": "rsa"} | (header or {})
    parts = (named, payload or claims())
    text = ".".join(b64(json.dumps({k: v for k, v in part.items() if v is not None}).encode()) for part in parts)
    return f"{text}.{b64(sign(text.encode()))}"


class Issuer:
    """Answers with its keys, or with what a test wants."""

    def __init__(self) -> None:
        self.text = json.dumps({"keys": [jwk("rsa"), jwk("ec")]}).encode()
        issuer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(200)
                self.end_headers()
                self.wfile.write(issuer.text)

            def log_message(self, *_unused: object) -> None:
                """Keeps the output of tests clean."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/keys"
        Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture(scope="module")
def issuer() -> Iterator[Issuer]:
    made = Issuer()
    yield made
    made.close()


@pytest.fixture(scope="module")
def guarded(make_gateway: Callable[..., Standalone], engine: Engine, issuer: Issuer) -> Iterator[Standalone]:
    jwt = {"issuer": ISSUER, "audience": AUDIENCE, "jwksUrl": issuer.url, "allowHttp": True}
    made = make_gateway(apiKeysSecret="keys", countTokens=True, jwt=jwt)
    models = {name: [engine.endpoint] for name in ("m1", "m2", "m3")}
    made.table.write_text(json.dumps({"models": models, "keys": {"key": "sk-key"}, "rights": RIGHTS}))
    with made:
        wait_for(lambda: ask(made, "sk-key", "m1").status_code == 200)
        wait_for(lambda: ask(made, token(), "m1").status_code == 200)
        yield made


def ask(gateway: Standalone, shown: str, model: str = "m1", **body: Any) -> requests.Response:
    sent = {"authorization": f"Bearer {shown}"}
    return requests.post(f"{gateway.url}{CHAT}", json={"model": model, **body}, headers=sent, timeout=PATIENCE)


def metrics(gateway: Standalone) -> str:
    """Empty while the control process does not listen."""
    try:
        return requests.get(f"{gateway.control_url}/metrics", timeout=PATIENCE).text
    except requests.ConnectionError:
        return ""


def test_a_token_gets_what_its_owners_record_says(guarded: Standalone, engine: Engine) -> None:
    answer = ask(guarded, token())
    assert answer.status_code == 200
    assert "authorization" not in engine.headers[-1], "no token reaches an engine"
    assert ask(guarded, token(), "m2").status_code == 404
    listed = requests.get(
        f"{guarded.url}/v1/models", headers={"authorization": f"Bearer {token()}"}, timeout=PATIENCE
    ).json()
    assert [model["id"] for model in listed["data"]] == ["m1"]


def test_an_owner_without_a_record_gets_the_rights_of_all_and_limits_of_his_own(guarded: Standalone) -> None:
    for owner in ("bob", "carol@example.org"):
        answers = [ask(guarded, token(claims(sub=owner)), "m2") for _unused in range(4)]
        assert [answer.status_code for answer in answers] == [200, 200, 200, 429]
        assert answers[0].headers["x-ratelimit-limit-requests"] == "3"
    assert ask(guarded, token(claims(sub="dave")), "m1").status_code == 404


def test_the_log_names_the_owner_and_never_the_token(guarded: Standalone) -> None:
    shown = token(claims(sub="erin"))
    ask(guarded, shown, "m2")
    log = guarded.directory / "haproxy.log"
    wait_for(lambda: '"key": "jwt:erin"' in log.read_text())
    told = log.read_text() + (guarded.directory / "control.log").read_text()
    assert not any(part in told for part in shown.split("."))


@pytest.mark.parametrize(
    "payload",
    [
        claims(aud=["other", AUDIENCE]),
        claims(nbf=None),
        claims(nbf=int(time.time()) + 15),
        claims(exp=int(time.time()) + 10**6, iat=1),
    ],
    ids=["several audiences", "no begin", "clocks that differ", "long life"],
)
def test_tokens_that_are_valid_in_other_ways_are_taken(guarded: Standalone, payload: dict[str, Any]) -> None:
    assert ask(guarded, token(payload)).status_code == 200


def test_an_elliptic_curve_verifies(guarded: Standalone) -> None:
    made = token(header={"alg": "ES384", "kid": "ec"}, sign=lambda text: signature(KEYS["ec"], text))
    assert ask(guarded, made).status_code == 200


def public_pem() -> bytes:
    return (
        KEYS["rsa"]
        .public_key()
        .public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    )


def with_public_key_as_secret(text: bytes) -> bytes:
    return hmac.new(public_pem(), text, hashlib.sha256).digest()


def with_certificate_as_secret(text: bytes) -> bytes:
    known = jwks.read(json.dumps({"keys": [jwk("rsa")]}).encode())[0][0].certificate
    return hmac.new(known.encode(), text, hashlib.sha256).digest()


FORGED = {
    "nothing": "",
    "a word": "hello",
    "no base64": "!!.??.**",
    "dots": "." * 50,
    "one part": token().split(".")[0],
    "two parts": ".".join(token().split(".")[:2]),
    "four parts": f"{token()}.x",
    "no signature": f"{token().rpartition('.')[0]}.",
    "none": token(header={"alg": "none"}, sign=lambda _unused: b""),
    "none with a signature": token(header={"alg": "none"}),
    "None": token(header={"alg": "None"}, sign=lambda _unused: b""),
    "the public key as a secret": token(header={"alg": "HS256"}, sign=with_public_key_as_secret),
    "the certificate as a secret": token(header={"alg": "HS256"}, sign=with_certificate_as_secret),
    "another algorithm": token(header={"alg": "RS512"}),
    "no algorithm": token(header={"alg": None}),
    "a stranger's key": token(sign=lambda text: signature(STRANGER, text)),
    "another one's kid": token(header={"kid": "ec"}),
    "no kid": token(header={"kid": None}),
    "a kid that is a path": token(header={"kid": "../../../../etc/ssl/certs/ca-certificates.crt"}),
    "a kid that is a file of ours": token(header={"kid": "/run/gateway/haproxy.cfg"}),
    "a kid with an end": token(header={"kid": "rsa\0"}),
    "a long kid": token(header={"kid": "a" * 3000}),
    "an extension": token(header={"crit": ["exp"]}),
    "keys of its own": token(header={"jwk": jwk("ec"), "jku": "http://127.0.0.1:1/", "kid": "own"}),
    "expired": token(claims(exp=int(time.time()) - 60)),
    "without end": token(claims(exp=None)),
    "an end that is text": token(claims(exp="tomorrow")),
    "an end that is a list": token(claims(exp=[int(time.time()) + LIFE])),
    "too early": token(claims(nbf=int(time.time()) + LIFE // 2)),
    "another issuer": token(claims(iss="https://login.example.org")),
    "no issuer": token(claims(iss=None)),
    "a longer issuer": token(claims(iss=f"{ISSUER}x")),
    "another audience": token(claims(aud="slipway2")),
    "no audience": token(claims(aud=None)),
    "other audiences": token(claims(aud=["a", "b"])),
    "audiences in text": token(claims(aud=json.dumps([AUDIENCE]))),
    "no owner": token(claims(sub=None)),
    "an empty owner": token(claims(sub="")),
    "all owners": token(claims(sub="*")),
    "an owner with a line": token(claims(sub="alice\nbob")),
    "an owner with a space": token(claims(sub="alice bob")),
    "an owner that is a list": token(claims(sub=["alice"])),
    "a long owner": token(claims(sub="a" * 300)),
    "huge": token(claims(more="a" * 10000)),
}


@pytest.mark.parametrize("name", FORGED)
def test_a_token_that_is_not_valid_gets_401_and_reaches_no_engine(
    guarded: Standalone, engine: Engine, name: str
) -> None:
    before = len(engine.bodies)
    answer = ask(guarded, FORGED[name])
    assert (answer.status_code, answer.json()["error"]["code"]) == (401, "invalid_api_key")
    assert len(engine.bodies) == before


def test_the_payload_cannot_be_changed(guarded: Standalone) -> None:
    header, _unused, signed = token(claims(sub="bob")).split(".")
    payload = b64(json.dumps(claims(sub="alice")).encode())
    assert ask(guarded, f"{header}.{payload}.{signed}").status_code == 401


def test_a_token_counts_in_the_header_authorization_alone(guarded: Standalone) -> None:
    headers = {"x-api-key": token()}
    answer = requests.post(f"{guarded.url}{CHAT}", json={"model": "m1"}, headers=headers, timeout=PATIENCE)
    assert answer.status_code == 401


def test_nobody_passes_for_another_by_headers_of_ours(guarded: Standalone) -> None:
    shown = token(claims(sub="frank"))
    answer = requests.get(
        f"{guarded.url}/v1/models",
        headers={"authorization": f"Bearer {shown}", "x-slipway-key": "jwt:alice"},
        timeout=PATIENCE,
    )
    assert [model["id"] for model in answer.json()["data"]] == ["m2"]


def test_tokens_are_counted_by_record(guarded: Standalone) -> None:
    for owner in ("grace", "heidi"):
        assert ask(guarded, token(claims(sub=owner)), "m2").status_code == 200
    wait_for(lambda: 'key="jwt:*"' in metrics(guarded))
    text = metrics(guarded)
    assert "grace" not in text
    assert "heidi" not in text
    assert {"slipway_gateway_jwt_keys 2.0", "slipway_gateway_jwks_up 1.0"} <= set(text.splitlines())


def test_keys_change_without_a_reload_and_outlive_restarts(guarded: Standalone, issuer: Issuer) -> None:
    """Last of its module: the key `rsa` goes."""
    before = guarded.haproxy_pids()
    issuer.text = json.dumps({"keys": [jwk("ec")]}).encode()
    guarded.stop(guarded.control)
    guarded.start_control()
    made = token(header={"alg": "ES384", "kid": "ec"}, sign=lambda text: signature(KEYS["ec"], text))
    wait_for(lambda: ask(guarded, token()).status_code == 401)
    assert ask(guarded, made).status_code == 200
    unnamed = token(header={"alg": "ES384", "kid": None}, sign=lambda text: signature(KEYS["ec"], text))
    assert ask(guarded, unnamed).status_code == 200, "there is one key alone"
    wait_for(lambda: len(list((guarded.run / "jwt").iterdir())) == 1)
    assert guarded.haproxy_pids() == before
    issuer.text = b"<html>"
    guarded.kill_haproxy()
    guarded.stop(guarded.control)
    guarded.start_haproxy()
    guarded.start_control()
    guarded.wait_ready()
    wait_for(lambda: ask(guarded, made).status_code == 200)
    wait_for(lambda: "jwks_up 0.0" in metrics(guarded))
    assert ask(guarded, made).status_code == 200
    issuer.text = json.dumps({"keys": [jwk("rsa")]}).encode()


OF_ALL = {"requestsPerMinute": 40, "requestsAtOnce": 30, "tokensPerMinute": 6000}


@pytest.fixture(scope="module")
def pair(
    make_gateway: Callable[..., Standalone], engine: Engine, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[list[Standalone]]:
    """Two gateways that share limits."""
    secret = tmp_path_factory.mktemp("shares") / "key"
    secret.write_text("k" * 64)
    doors = [f"127.0.0.1:{reserved_port()}" for _unused in range(2)]
    jwt = {"issuer": ISSUER, "audience": AUDIENCE, "jwks": {"keys": [jwk("rsa")]}}
    settings = {"apiKeysSecret": "keys", "countTokens": True, "threads": 2, "shareKeyFile": str(secret), "jwt": jwt}
    made = [make_gateway(**settings, shareListen=door) for door in doors]
    text = {"models": {"m1": [engine.endpoint]}, "rights": {"jwt:*": OF_ALL}, "gateways": doors}
    with ExitStack() as stack:
        for one in made:
            one.table.write_text(json.dumps(text))
            stack.enter_context(one)
        for one in made:
            wait_for(lambda one=one: shares(one)["jwt:*"][0] == 20)
        yield made


def shares(gateway: Standalone) -> dict[str, list[int]]:
    """What a gateway's HAProxy keeps to, by name."""
    lines = [line.split() for line in ask_haproxy(gateway, f"show map {gateway.run}/shares.map").splitlines()]
    return {"jwt:*": [0]} | {
        line[1]: [int(part.replace("-", "0")) for part in line[2].split(":")] for line in lines if line
    }


def test_an_owner_gets_all_of_his_limit_at_one_gateway_and_then_nothing_at_another(pair: list[Standalone]) -> None:
    began, shown, limit = time.monotonic(), token(claims(sub="one")), OF_ALL["requestsPerMinute"]
    for _unused in range(limit):  # on a busy machine shares may come later than a request waits for
        wait_for(lambda: ask(pair[1], shown, max_tokens=1).status_code == 200)
    if time.monotonic() - began < 50:
        assert [ask(one, shown, max_tokens=1).status_code for one in pair] == [429, 429]
    assert "jwt:one" in shares(pair[0])
    assert ask(pair[0], token(claims(sub="another")), max_tokens=1).status_code == 200, "others have their own"
    assert "jwt:another" not in shares(pair[0]), "who asks little costs the gateways nothing"


def test_tokens_of_an_owners_answers_are_his_own_and_count_at_all_gateways(pair: list[Standalone]) -> None:
    usage = json.dumps({"usage": {"prompt_tokens": 200, "completion_tokens": 800}})
    shown, used = token(claims(sub="spender")), 0
    while (answer := ask(pair[used // 1000 % 2], shown, max_tokens=800, x={"pieces": [usage]})).status_code == 200:
        used += 1000
        wait_for(lambda used=used: sum(counted(one, "jwt:spender") for one in pair) == used)
    assert (answer.status_code, answer.json()["error"]["code"]) == (429, "rate_limit_exceeded")
    assert OF_ALL["tokensPerMinute"] - 1000 <= used <= OF_ALL["tokensPerMinute"] + 1000
    assert ask(pair[0], token(claims(sub="saver")), max_tokens=800).status_code == 200


def counted(gateway: Standalone, name: str) -> int:
    """Tokens of somebody's answers that a gateway has counted."""
    rows = [line for line in ask_haproxy(gateway, "show table keys").splitlines() if f"key={name} " in line]
    return sum(int(word.removeprefix("gpc1=")) for row in rows for word in row.split() if word.startswith("gpc1="))
