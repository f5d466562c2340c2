"""Tokens (JWT) instead of API keys: subjects, their rights, and forged tokens."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import requests
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

from slipway.gateway.control import exchange
from slipway.gateway.rules import jwks
from tests.gateway.conftest import PATIENCE, Engine, ask_haproxy, wait_for
from tests.gateway.standalone import Standalone
from tests.unit.certificates import Authority

CHAT = "/v1/chat/completions"
LIFE = 6 * 3600
"""Seconds that a token is valid. Some tokens are created long before their test runs."""
ISSUER, AUDIENCE = "https://login.example.org/realms/a?b=1&c", "slipway"
RIGHTS: dict[str, dict[str, Any]] = {
    "key": {"models": ["m1"]},
    "jwt:alice": {"models": ["m1"], "owner": "search"},
    "jwt:former": {"models": [""]},
    "jwt:*": {"models": ["m2"], "requestsPerMinute": 3, "tokensPerMinute": 1000},
}
KEYS = {"rsa": rsa.generate_private_key(65537, 2048), "ec": ec.generate_private_key(ec.SECP256R1())}
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
    return {"kty": "EC", "kid": kid, "crv": "P-256", "x": number(point.x), "y": number(point.y)}


def signature(key: rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey, text: bytes) -> bytes:
    if isinstance(key, rsa.RSAPrivateKey):
        return key.sign(text, padding.PKCS1v15(), hashes.SHA256())
    return b"".join(
        part.to_bytes(32, "big") for part in decode_dss_signature(key.sign(text, ec.ECDSA(hashes.SHA256())))
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
    fields = {"alg": "RS256", "typ": "JWT", "kid": "rsa"} | (header or {})
    parts = (fields, payload or claims())
    text = ".".join(b64(json.dumps({k: v for k, v in part.items() if v is not None}).encode()) for part in parts)
    return f"{text}.{b64(sign(text.encode()))}"


def by_curve(**header: Any) -> str:
    return token(header={"alg": "ES256", "kid": "ec"} | header, sign=lambda text: signature(KEYS["ec"], text))


class Issuer:
    """Serves its key set over TLS."""

    def __init__(self, folder: Path) -> None:
        self.text = json.dumps({"keys": [jwk("rsa"), jwk("ec")]}).encode()
        authority, issuer = Authority(), self
        self.ca = authority.pem

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(200)
                self.end_headers()
                self.wfile.write(issuer.text)

            def log_message(self, *_unused: object) -> None:
                """Keeps the output of tests clean."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.socket = authority.context(folder).wrap_socket(self._server.socket, server_side=True)
        self.url = f"https://127.0.0.1:{self._server.server_port}/keys"
        Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture(scope="module")
def issuer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Issuer]:
    issuer = Issuer(tmp_path_factory.mktemp("issuer"))
    yield issuer
    issuer.close()


@pytest.fixture(scope="module")
def guarded(make_gateway: Callable[..., Standalone], engine: Engine, issuer: Issuer) -> Iterator[Standalone]:
    jwt = {"issuer": ISSUER, "audience": AUDIENCE, "jwksUrl": issuer.url, "ca": issuer.ca}
    gateway = make_gateway(apiKeysSecret="keys", countTokens=True, jwt=jwt)
    gateway.route({name: [engine.endpoint] for name in ("m1", "m2", "m3")}, {"key": "sk-key"}, rights=RIGHTS)
    with gateway:
        wait_for(lambda: post(gateway, "sk-key").status_code == 200)
        wait_for(lambda: post(gateway, token()).status_code == 200)
        yield gateway


def post(gateway: Standalone, secret: str, model: str = "m1", **body: Any) -> requests.Response:
    headers = {"authorization": f"Bearer {secret}"}
    return requests.post(f"{gateway.url}{CHAT}", json={"model": model, **body}, headers=headers, timeout=PATIENCE)


def models(gateway: Standalone, secret: str, **headers: str) -> list[str]:
    answer = requests.get(
        f"{gateway.url}/v1/models", headers={"authorization": f"Bearer {secret}", **headers}, timeout=PATIENCE
    )
    return [model["id"] for model in answer.json()["data"]]


def metrics(gateway: Standalone) -> str:
    """Empty while the control process does not listen."""
    try:
        return requests.get(f"{gateway.control_url}/metrics", timeout=PATIENCE).text
    except requests.ConnectionError:
        return ""


def test_a_subject_has_the_rights_of_its_entry(guarded: Standalone, engine: Engine) -> None:
    answer = post(guarded, token())
    assert answer.status_code == 200
    assert "authorization" not in engine.headers[-1], "no token reaches an engine"
    assert post(guarded, token(), "m2").status_code == 404
    assert models(guarded, token()) == ["m1"]


def test_other_subjects_have_the_rights_of_all_and_separate_limits(guarded: Standalone) -> None:
    for subject in ("bob", "carol@example.org", "uid=a,ou=b|/~:c", "x" * 200):
        answers = [post(guarded, token(claims(sub=subject)), "m2") for _unused in range(4)]
        assert [answer.status_code for answer in answers] == [200, 200, 200, 429]
        assert answers[0].headers["x-ratelimit-limit-requests"] == "3"
        message = answers[3].json()["error"]["message"]
        assert message.startswith("The subject of this token has reached its limit of 3 requests per minute.")
    assert post(guarded, token(claims(sub="dave")), "m1").status_code == 404


def minutes(gateway: Standalone) -> dict[str, list[int]]:
    """Requests and tokens of the last minute. When the control process has saved them, HAProxy has its grants."""
    file = gateway.run / exchange.FILE
    return dict(json.loads(file.read_bytes())["minutes"]) if file.exists() else {}


def test_the_tokens_of_answers_count_for_their_subject_alone(guarded: Standalone) -> None:
    usage = json.dumps({"usage": {"prompt_tokens": 100, "completion_tokens": 900}})
    for subject, status in (("spender", 429), ("saver", 200)):
        if subject == "spender":
            post(guarded, token(claims(sub=subject)), "m2", x={"pieces": [usage]})
            wait_for(lambda: minutes(guarded).get("jwt:spender", [0, 0])[1] == 1000)
        assert post(guarded, token(claims(sub=subject)), "m2").status_code == status


def test_a_refused_subject_does_not_get_the_rights_of_all(guarded: Standalone) -> None:
    answer = post(guarded, token(claims(sub="former")), "m2")
    assert (answer.status_code, answer.json()["error"]["code"]) == (403, "no_rights")


def test_the_log_contains_the_subject_and_never_the_token(guarded: Standalone) -> None:
    secret = token(claims(sub="erin"))
    post(guarded, secret, "m2")
    log = guarded.directory / "haproxy.log"
    wait_for(lambda: '"key": "jwt:erin"' in log.read_text())
    text = log.read_text() + (guarded.directory / "control.log").read_text()
    assert not any(part in text for part in secret.split("."))


@pytest.mark.parametrize(
    "payload",
    [
        claims(aud=["other", AUDIENCE]),
        claims(nbf=None),
        claims(nbf=int(time.time()) + 15),
        claims(exp=int(time.time()) + 10**8, iat=1),
    ],
    ids=["several audiences", "no begin", "different clocks", "long life"],
)
def test_other_valid_tokens_are_accepted(guarded: Standalone, payload: dict[str, Any]) -> None:
    assert post(guarded, token(payload)).status_code == 200


def test_an_elliptic_curve_verifies(guarded: Standalone) -> None:
    assert post(guarded, by_curve()).status_code == 200


def hmac_with_public_key(text: bytes) -> bytes:
    public = KEYS["rsa"].public_key()
    pem = public.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    return hmac.new(pem, text, hashlib.sha256).digest()


def hmac_with_certificate(text: bytes) -> bytes:
    keys, _ignored = jwks.parse_jwks(json.dumps({"keys": [jwk("rsa")]}).encode(), jwks.ALGORITHMS)
    return hmac.new(keys[0].certificate.encode(), text, hashlib.sha256).digest()


FORGED = {
    "one part": token().split(".")[0],
    "two parts": ".".join(token().split(".")[:2]),
    "four parts": f"{token()}.x",
    "no signature": f"{token().rpartition('.')[0]}.",
    "none": token(header={"alg": "none"}, sign=lambda _unused: b""),
    "none with a signature": token(header={"alg": "none"}),
    "None": token(header={"alg": "None"}, sign=lambda _unused: b""),
    "the public key as a secret": token(header={"alg": "HS256"}, sign=hmac_with_public_key),
    "the certificate as a secret": token(header={"alg": "HS256"}, sign=hmac_with_certificate),
    "another algorithm": token(header={"alg": "RS512"}),
    "the algorithm of another key": token(header={"alg": "ES256"}),
    "a stranger's key": token(sign=lambda text: signature(STRANGER, text)),
    "the kid of another key": token(header={"kid": "ec"}),
    "no kid": token(header={"kid": None}),
    "a kid that is a path": token(header={"kid": "../../../../etc/ssl/certs/ca-certificates.crt"}),
    "a kid that is our file": token(header={"kid": "/run/gateway/haproxy.cfg"}),
    "a kid with an end": token(header={"kid": "rsa\0"}),
    "a long kid": token(header={"kid": "a" * 3000}),
    "an extension": token(header={"crit": ["exp"]}),
    "keys in the header": token(header={"jwk": jwk("ec"), "jku": "http://127.0.0.1:1/", "kid": "own"}),
}
NO_TOKEN = {
    "empty": "",
    "a word": "hello",
    "no base64": "!!.??.**",
    "dots": "." * 50,
    "no algorithm": token(header={"alg": None}),
    "too long": token(claims(more="a" * 10000)),
}
WRONG = {
    "another issuer": claims(iss="https://login.example.org"),
    "no issuer": claims(iss=None),
    "a longer issuer": claims(iss=f"{ISSUER}x"),
    "another audience": claims(aud="slipway2"),
    "no audience": claims(aud=None),
    "other audiences": claims(aud=["a", "b"]),
    "audiences in text": claims(aud=json.dumps([AUDIENCE])),
}
EXPIRED = {
    "expired": claims(exp=int(time.time()) - 60),
    "without end": claims(exp=None),
    "an end that is text": claims(exp="tomorrow"),
    "an end that is a list": claims(exp=[int(time.time()) + LIFE]),
}
EARLY = {"too early": claims(nbf=int(time.time()) + LIFE // 2)}
UNNAMED = {
    "no subject": claims(sub=None),
    "an empty subject": claims(sub=""),
    "all subjects": claims(sub="*"),
    "a subject with a line": claims(sub="alice\nbob"),
    "a subject with a space": claims(sub="alice bob"),
    "a subject that is a list": claims(sub=["alice"]),
    "a long subject": claims(sub="a" * 300),
    "a subject that is true": claims(sub=True),
    "a subject that is false": claims(sub=False),
    "a subject that is a number": claims(sub=5),
    "a subject that is a large number": claims(sub=50000000),
    "a subject that is a fraction": claims(sub=0.5),
}
REFUSALS = [
    *((name, text, "invalid_api_key", "missing or incorrect") for name, text in NO_TOKEN.items()),
    *((name, text, "invalid_token", "signature") for name, text in FORGED.items()),
    *((name, token(payload), "invalid_token", "audience") for name, payload in WRONG.items()),
    *((name, token(payload), "token_expired", "expired") for name, payload in EXPIRED.items()),
    *((name, token(payload), "invalid_token", "not valid yet") for name, payload in EARLY.items()),
    *((name, token(payload), "invalid_token", "subject") for name, payload in UNNAMED.items()),
]


@pytest.mark.parametrize(("text", "code", "word"), [one[1:] for one in REFUSALS], ids=[one[0] for one in REFUSALS])
def test_an_invalid_token_gets_401_with_the_reason_and_reaches_no_engine(
    guarded: Standalone, engine: Engine, text: str, code: str, word: str
) -> None:
    before = len(engine.bodies)
    answer = post(guarded, text)
    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (401, code)
    assert word in error["message"]
    assert len(engine.bodies) == before


def test_the_payload_cannot_be_changed(guarded: Standalone) -> None:
    header, _unused, signed = token(claims(sub="bob")).split(".")
    payload = b64(json.dumps(claims(sub="alice")).encode())
    assert post(guarded, f"{header}.{payload}.{signed}").status_code == 401


def test_only_the_header_authorization_may_contain_a_token(guarded: Standalone) -> None:
    headers = {"x-api-key": token()}
    answer = requests.post(f"{guarded.url}{CHAT}", json={"model": "m1"}, headers=headers, timeout=PATIENCE)
    assert answer.status_code == 401


def test_the_gateways_own_headers_change_no_subject(guarded: Standalone) -> None:
    assert models(guarded, token(claims(sub="frank")), **{"x-slipway-key": "jwt:alice"}) == ["m2"]


def test_metrics_have_one_series_for_all_subjects_without_an_entry(guarded: Standalone) -> None:
    for subject in ("grace", "heidi"):
        assert post(guarded, token(claims(sub=subject)), "m2").status_code == 200
    wait_for(lambda: 'key="jwt:*"' in metrics(guarded))
    text = metrics(guarded)
    assert "grace" not in text
    assert "heidi" not in text
    assert {"slipway_gateway_jwt_keys 2.0", "slipway_gateway_jwks_up 1.0"} <= set(text.splitlines())


def kill_control(gateway: Standalone) -> None:
    """Ends the control process at once: it waits for HAProxy when it is stopped."""
    assert gateway.control
    gateway.control.kill()
    gateway.control.wait(PATIENCE)


@pytest.fixture
def restored(guarded: Standalone, issuer: Issuer) -> Iterator[None]:
    """Gives the gateway all keys of the issuer again."""
    text = issuer.text
    yield
    issuer.text = text
    kill_control(guarded)
    guarded.start_control()
    wait_for(lambda: post(guarded, token()).status_code == 200)
    listed = f"{guarded.url}/v1/models/m1"
    wait_for(lambda: requests.get(listed, headers={"authorization": f"Bearer {token()}"}, timeout=PATIENCE).ok)


@pytest.mark.usefixtures("restored")
def test_keys_change_without_a_reload_and_outlive_restarts(guarded: Standalone, issuer: Issuer) -> None:
    before = guarded.haproxy_pids()
    issuer.text = json.dumps({"keys": [jwk("ec")]}).encode()
    kill_control(guarded)
    guarded.start_control()
    wait_for(lambda: post(guarded, token()).status_code == 401)
    assert post(guarded, by_curve()).status_code == 200
    assert post(guarded, by_curve(kid=None)).status_code == 200, "there is only one key"
    wait_for(lambda: len(list((guarded.run / "jwt").iterdir())) == 1)
    wait_for(lambda: len(jwks.parse_loaded(ask_haproxy(guarded, jwks.SHOW_CERTIFICATES))) == 1)
    assert guarded.haproxy_pids() == before
    issuer.text = b"<html>"
    guarded.kill_haproxy()
    kill_control(guarded)
    guarded.start_haproxy()
    guarded.start_control()
    guarded.wait_ready()
    wait_for(lambda: post(guarded, by_curve()).status_code == 200)
    wait_for(lambda: "jwks_up 0.0" in metrics(guarded))
    assert post(guarded, by_curve()).status_code == 200


@pytest.mark.usefixtures("restored")
def test_without_any_key_tokens_get_503_and_api_keys_work(guarded: Standalone, issuer: Issuer) -> None:
    issuer.text = b"<html>"
    kill_control(guarded)
    for kept in guarded.run.glob("jwks-*.json"):
        kept.unlink()
    guarded.start_control()
    wait_for(lambda: post(guarded, by_curve()).status_code == 503)
    answer = post(guarded, by_curve())
    assert (answer.json()["error"]["code"], answer.headers["retry-after"]) == ("token_keys_unknown", "5")
    assert post(guarded, "sk-key").status_code == 200
    issuer.text = json.dumps({"keys": [jwk("ec")]}).encode()
    wait_for(lambda: post(guarded, by_curve()).status_code == 200)
