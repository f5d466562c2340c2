"""The API for clients: paths, methods, errors, IDs, headers, and the access log."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import requests

from slipway.serving.routing.paths import PATHS
from tests.gateway.conftest import KEY, Api, Engine, port_of, settle, wait_for
from tests.gateway.standalone import PATIENCE, Standalone

CHAT = "/v1/chat/completions"
FIELDS = {"message", "type", "param", "code"}


def error_of(answer: requests.Response) -> dict[str, Any]:
    """Returns the error object. Fails if the answer is not an OpenAI error with a request ID."""
    assert answer.headers["content-type"].startswith("application/json")
    assert answer.headers["x-request-id"]
    error: dict[str, Any] = answer.json()["error"]
    assert set(error) == FIELDS
    assert error["message"]
    return error


def test_models_are_listed_without_their_second_names(client: requests.Session) -> None:
    answer = client.get("/v1/models").json()
    assert answer["object"] == "list"
    assert [model["id"] for model in answer["data"]] == ["empty", "m1"]
    assert answer["data"][1] | {"object": "model", "owned_by": "slipway", "namespace": "static"} == answer["data"][1]


@pytest.mark.parametrize("model", ["m1", "static/m1", "static%2Fm1"])
def test_a_model_is_fetched_by_each_of_its_names(client: requests.Session, model: str) -> None:
    assert client.get(f"/v1/models/{model}").json()["id"] == model.replace("%2F", "/")


def test_a_model_is_reached_by_namespace_and_name(client: requests.Session) -> None:
    assert client.post(CHAT, json={"model": "static/m1"}).status_code == 200


@pytest.mark.parametrize("path", [one.path for one in PATHS if not one.form])
def test_each_path_is_passed_on_and_those_below_v1_with_the_other_prefix_too(
    client: requests.Session, path: str, engine: Any
) -> None:
    for target in (path, f"/openai{path}") if path.startswith("/v1/") else (path,):
        assert client.post(target, json={"model": "m1"}).status_code == 200
        assert engine.paths[-1] == path


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "code"),
    [
        ("POST", CHAT, b'{"model":"nope"}', 404, "model_not_found"),
        ("GET", "/v1/models/nope/at/all", b"", 404, "model_not_found"),
        ("GET", "/v1/models//", b"", 404, "model_not_found"),
        ("GET", f"/v1/models/{'x' * 12_000}", b"", 404, "model_not_found"),
        ("POST", "/v1/models/", b'{"model":"m1"}', 405, "method_not_supported"),
        ("GET", "/v2/models", b"", 404, "unknown_url"),
        ("POST", "/v1/load_lora_adapter", b'{"model":"m1"}', 404, "unknown_url"),
        ("GET", CHAT, b"", 405, "method_not_supported"),
        ("POST", "/v1/models", b'{"model":"m1"}', 405, "method_not_supported"),
        ("POST", CHAT, b"{}", 400, None),
        ("POST", CHAT, b'{"model":"m1","x":"' + b"a" * (4 << 20) + b'"}', 413, "request_too_large"),
    ],
)
def test_every_refusal_is_an_openai_error(
    client: requests.Session, method: str, path: str, body: bytes, status: int, code: str | None
) -> None:
    answer = client.request(method, path, data=body)
    assert answer.status_code == status
    assert error_of(answer)["code"] == code


@pytest.mark.parametrize(
    ("model", "advice"),
    [
        ("M1", "Did you mean `m1`?"),
        ("slipway/m1", "Did you mean `m1`?"),
        ("m1:latest", "Did you mean `m1`?"),
        ("mm1", "Did you mean `m1`?"),
        ("1m", "Did you mean `m1`?"),
        ("static/emptyy", "Did you mean `static/empty`?"),
        ("other", "GET /v1/models lists the models."),
        ("x" * 1000, "GET /v1/models lists the models."),
    ],
)
def test_an_unknown_model_is_answered_with_the_nearest_id(client: requests.Session, model: str, advice: str) -> None:
    error = error_of(client.post(CHAT, json={"model": model}))
    assert error["message"].endswith(f"` does not exist. {advice}")


@pytest.fixture(scope="module")
def capitals(make_gateway: Callable[..., Standalone]) -> Iterator[Api]:
    """Has models whose IDs have capitals."""
    gateway = make_gateway()
    gateway.route({"large": {"route": {"aliases": ["Acme/Large-8B"]}}, "small": {"route": {"aliases": ["Small-1B"]}}})
    with gateway, Api(gateway.url) as api:
        settle(gateway)
        yield api


@pytest.mark.parametrize(
    ("model", "advice"),
    [
        ("Acme/Large-8B:latest", "Did you mean `Acme/Large-8B`?"),
        ("other/Small-1B", "Did you mean `Small-1B`?"),
        ("Acme/Large--8B", "Did you mean `Acme/Large-8B`?"),
        ("Samll-1B", "Did you mean `Small-1B`?"),
        ("Static/Smalll", "Did you mean `static/small`?"),
        ("Static/Small:latest", "Did you mean `static/small`?"),
        ("Acme/Other-8B", "GET /v1/models lists the models."),
    ],
)
def test_an_id_with_capitals_is_suggested(capitals: Api, model: str, advice: str) -> None:
    error = error_of(capitals.post(CHAT, json={"model": model}))
    assert error["message"] == f"The model `{model}` does not exist. {advice}"


@pytest.mark.parametrize(
    ("path", "advice"),
    [
        ("/v1/chat/completion", "Did you mean /v1/chat/completions?"),
        ("/v1/embedding", "Did you mean /v1/embeddings?"),
        ("/v1/model", "Did you mean /v1/models?"),
        ("/chat/completions", "Did you mean /v1/chat/completions?"),
        ("/v1/v1/embeddings", "Did you mean /v1/embeddings?"),
        ("/v1/responsse", "Did you mean /v1/responses?"),
        ("/v1/completions/", "Did you mean /v1/completions?"),
        ("/v1/audio/trnaslations", "Did you mean /v1/audio/translations?"),
        ("/administration", "GET /v1/models lists the models, POST /v1/chat/completions sends a message to one."),
        (f"/{'x' * 2000}", "GET /v1/models lists the models, POST /v1/chat/completions sends a message to one."),
    ],
)
def test_an_unknown_path_is_answered_with_the_nearest_one(client: requests.Session, path: str, advice: str) -> None:
    error = error_of(client.post(path, json={"model": "m1"}))
    assert error["message"] == f"This path does not exist. {advice}"


@pytest.mark.parametrize(("method", "target"), [("OPTIONS", "*"), ("CONNECT", "example.com:443")])
def test_a_request_without_a_path_is_answered_as_one_with_an_unknown_path(
    gateway: Standalone, method: str, target: str
) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", port_of(gateway), timeout=PATIENCE)
    with contextlib.closing(connection):
        connection.request(method, target, headers={"host": "example.com:443", "authorization": f"Bearer {KEY}"})
        answer = connection.getresponse()
        assert (answer.status, json.load(answer)["error"]["code"]) == (404, "unknown_url")


def test_a_chunked_body_above_the_limit_is_refused(client: requests.Session) -> None:
    answer = client.post(CHAT, data=(b'{"model":"m1","p":"' if i == 0 else b"a" * 65536 for i in range(80)))
    assert answer.status_code == 413
    refusal = error_of(answer)
    assert refusal["code"] == "request_too_large"
    assert f"{4 << 20} bytes" in refusal["message"]
    assert "gateway_max_body_bytes" in refusal["message"]


def test_a_body_of_the_limit_is_taken(client: requests.Session) -> None:
    body = b'{"model":"m1","p":"' + b"a" * ((4 << 20) - 21) + b'"}'
    assert len(body) == 4 << 20
    assert client.post(CHAT, data=body).status_code == 200


@pytest.mark.parametrize("name", ['a"b\\c', "é\u2028\u0085", "x" * 5000, "\ud800", "<script>"])
def test_an_unknown_name_cannot_break_the_error(client: requests.Session, name: str) -> None:
    answer = client.post(CHAT, data=json.dumps({"model": name}).encode())
    assert answer.status_code == 404
    assert error_of(answer)["param"] == "model"


@pytest.mark.parametrize("key", ["", "Bearer wrong", "Bearer ", "Basic c2stdGVzdC0x", "sk-test-1"])
def test_without_a_valid_key_nothing_is_revealed(client: requests.Session, key: str) -> None:
    for method, path in (("GET", "/v1/models"), ("POST", CHAT), ("GET", "/nothing")):
        answer = requests.request(method, f"{client.url}{path}", headers={"authorization": key}, timeout=PATIENCE)  # type: ignore[attr-defined]
        assert answer.status_code == 401
        assert error_of(answer)["code"] == "invalid_api_key"


def test_health_needs_no_key(gateway: Standalone) -> None:
    for url in (gateway.url, gateway.control_url):
        for path in ("/healthz", "/readyz"):
            assert requests.get(url + path, timeout=PATIENCE).status_code == 200


def test_the_engine_never_sees_the_key(client: requests.Session, engine: Any) -> None:
    assert client.post(CHAT, json={"model": "m1"}).status_code == 200
    assert "authorization" not in engine.headers[-1]


def test_the_request_id_goes_all_the_way(client: requests.Session, engine: Any) -> None:
    answer = client.post(CHAT, json={"model": "m1"}, headers={"x-request-id": "abc-1"})
    assert answer.headers["x-request-id"] == engine.headers[-1]["x-request-id"] == "abc-1"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("X-Forwarded-For", "6.6.6.6"),
        ("X-Forwarded-Proto", "https"),
        ("X-Forwarded-Host", "bank"),
        ("X-Forwarded-Port", "1"),
        ("X-Forwarded-Prefix", "/admin"),
        ("Forwarded", "for=6.6.6.6"),
        ("X-Real-IP", "6.6.6.6"),
        ("Cookie", "session=secret"),
        ("Proxy-Authorization", "Basic c2VjcmV0"),
        ("Proxy-Authenticate", "Basic"),
        ("Proxy-Connection", "keep-alive"),
        ("Keep-Alive", "timeout=5"),
        ("TE", "trailers"),
        ("HTTP2-Settings", "AAMAAABkAAQAAP__"),
    ],
)
def test_hop_by_hop_and_internal_headers_do_not_reach_engines(
    client: requests.Session, engine: Any, name: str, value: str
) -> None:
    assert client.post(CHAT, json={"model": "m1"}, headers={name: value, "X-Kept": "1"}).status_code == 200
    assert value not in engine.headers[-1].get(name.lower(), "")
    assert engine.headers[-1]["x-kept"] == "1"


def test_the_engine_gets_the_clients_address(client: requests.Session, engine: Any) -> None:
    assert client.post(CHAT, json={"model": "m1"}, headers={"x-forwarded-for": "6.6.6.6"}).status_code == 200
    assert engine.headers[-1]["x-forwarded-for"] == "127.0.0.1"


def test_headers_that_connection_names_end_at_the_gateway(client: requests.Session, engine: Any) -> None:
    headers = {"connection": "X-Secret, x-other,content-type", "X-Secret": "1", "X-Other": "2", "X-Kept": "3"}
    assert client.post(CHAT, json={"model": "m1"}, headers=headers).status_code == 200
    assert not {"x-secret", "x-other"} & engine.headers[-1].keys()
    assert (engine.headers[-1]["x-kept"], engine.headers[-1]["content-type"]) == ("3", "application/json")


def test_a_trusted_proxy_reports_the_clients_address(make_gateway: Callable[..., Standalone], engine: Engine) -> None:
    gateway = make_gateway(trustedProxies=["127.0.0.0/8"])
    gateway.route({"m1": [engine.endpoint]})
    with gateway, Api(gateway.url) as api:
        settle(gateway)
        headers = {"x-forwarded-for": "203.0.113.7", "x-forwarded-proto": "https", "cookie": "session=secret"}
        for _request in range(2):  # on one connection
            assert api.post(CHAT, json={"model": "m1"}, headers=headers).status_code == 200
        log = gateway.directory / "haproxy.log"
        wait_for(lambda: log.read_text().count('"client": "203.0.113.7"') == 2)
    assert "203.0.113.7" in engine.headers[-1]["x-forwarded-for"]
    assert engine.headers[-1]["x-forwarded-proto"] == "https"
    assert "cookie" not in engine.headers[-1]


SWITCH = b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: other\r\n\r\nfrom the engine"


@pytest.fixture
def switching() -> Iterator[tuple[str, list[bytes]]]:
    """An engine that switches to another protocol with every request: its endpoint, and the bytes that it gets."""
    got: list[bytes] = []

    def serve(server: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _unused = server.accept()
                with connection, contextlib.suppress(OSError):
                    connection.settimeout(PATIENCE)
                    request = b""
                    while b"\r\n\r\n" not in request:
                        request += connection.recv(4096) or b"\r\n\r\n"  # a probe says nothing
                    got.append(request)
                    connection.sendall(SWITCH)
                    got.append(connection.recv(4096))

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=serve, args=(server,), daemon=True)
        thread.start()
        yield f"127.0.0.1:{server.getsockname()[1]}", got
        server.shutdown(socket.SHUT_RDWR)
    thread.join(PATIENCE)


@pytest.mark.parametrize("headers", [b"", b"connection: upgrade\r\nupgrade: other\r\n"], ids=["plain", "upgrade"])
def test_an_engine_that_switches_protocols_gets_no_tunnel(
    keyless: Standalone, switching: tuple[str, list[bytes]], headers: bytes
) -> None:
    endpoint, got = switching
    keyless.route({"m1": [endpoint]})
    settle(keyless)
    body = b'{"model":"m1"}'
    request = b"POST %b HTTP/1.1\r\nhost: a\r\n%bcontent-length: %d\r\n\r\n%b" % (
        CHAT.encode(),
        headers,
        len(body),
        body,
    )
    host, port = keyless.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=PATIENCE) as connection:
        connection.sendall(request)
        answer = connection.recv(4096)
        with contextlib.suppress(OSError):
            connection.sendall(b"through the tunnel")
    assert answer[:12] == b"HTTP/1.1 502"
    sent = b"".join(got).lower()
    assert b"post " in sent
    assert b"upgrade" not in sent
    assert b"through the tunnel" not in sent


@pytest.mark.parametrize("name", ["a b", "x" * 200, '"'])
def test_an_improper_request_id_is_replaced(client: requests.Session, engine: Any, name: str) -> None:
    answer = client.post(CHAT, json={"model": "m1"}, headers={"x-request-id": name})
    assert answer.headers["x-request-id"] == engine.headers[-1]["x-request-id"] != name


def test_an_engines_error_is_passed_on_and_not_retried(client: requests.Session, engine: Any) -> None:
    before = len(engine.bodies)
    assert client.post(CHAT, json={"model": "m1", "x": {"status": 500}}).status_code == 500
    assert len(engine.bodies) == before + 1


def test_an_engine_that_is_silent_is_a_504(hasty: Api) -> None:
    answer = hasty.post(CHAT, json={"model": "m1", "x": {"delay": 2 * PATIENCE}})
    assert answer.status_code == 504
    assert error_of(answer)["code"] == "upstream_timeout"


def test_broken_http_is_an_openai_error(gateway: Standalone) -> None:
    host, port = gateway.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=PATIENCE) as connection:
        connection.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nno colon here\r\n\r\n")
        with connection.makefile("rb") as answer:
            head, _unused, body = answer.read().partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 ")
    assert set(json.loads(body)["error"]) == FIELDS


def test_the_access_log_is_json_without_secrets(client: requests.Session, gateway: Standalone) -> None:
    client.post(f"{CHAT}?secret=query", data=json.dumps({"model": 'm"1\n\u00e9', "p": "secret body"}).encode())
    client.post(CHAT, json={"model": "m1"}, headers={"x-request-id": "find-me"})
    log = gateway.directory / "haproxy.log"
    wait_for(lambda: '"find-me"' in log.read_text().rpartition("\n")[0])
    text = log.read_text().rpartition("\n")[0]
    lines = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
    record = next(line for line in lines if line["request_id"] == "find-me")
    assert (record["model"], record["status"], record["key"], record["path"]) == ("m1", 200, "tester", CHAT)
    assert record["backend"] == "static:m1"
    assert not any(secret in text for secret in ("sk-test-1", "secret body", "secret=query"))
    assert not any(line["path"] in ("/healthz", "/readyz") for line in lines)


def test_metrics_count_by_model_and_never_by_an_unknown_name(client: requests.Session, gateway: Standalone) -> None:
    client.post(CHAT, json={"model": "m1"})
    client.post(CHAT, json={"model": "never-heard-of"})
    model = 'model="m1",namespace="static"'
    text, values = "", dict[str, str]()

    def counted() -> bool:
        nonlocal text, values
        text = requests.get(f"{gateway.control_url}/metrics", timeout=PATIENCE).text
        values = dict(line.rsplit(" ", 1) for line in text.splitlines() if line.startswith("slipway_gateway_"))
        names = (f'requests_total{{code="2xx",{model}}}', f"time_to_first_byte_seconds_count{{{model}}}")
        return all(float(values.get(f"slipway_gateway_{name}", 0)) > 0 for name in names)

    wait_for(counted)
    assert float(values[f"slipway_gateway_ready_servers{{{model}}}"]) == 1
    assert float(values["slipway_gateway_haproxy_up"]) == 1
    assert "never-heard-of" not in text


def test_the_openai_client_works_with_the_gateway(client: requests.Session, gateway: Standalone) -> None:
    import openai  # takes a second, which the other workers need not spend

    with openai.OpenAI(base_url=f"{gateway.url}/v1", api_key="sk-test-1", max_retries=0) as api:
        assert "m1" in [model.id for model in api.models.list()]
        assert api.models.retrieve("static/m1").id == "static/m1"
        messages: Any = [{"role": "user", "content": "hi"}]
        answer = api.chat.completions.create(model="m1", messages=messages)
        assert answer.choices[0].message.content == "first"
        options = {"x": {"events": 3, "gap": 0.01}}
        stream = api.chat.completions.create(model="m1", messages=messages, stream=True, extra_body=options)
        assert "".join(chunk.choices[0].delta.content or "" for chunk in stream) == "0 1 2 "
        with pytest.raises(openai.NotFoundError, match="nope"):
            api.chat.completions.create(model="nope", messages=messages)
    with openai.OpenAI(base_url=f"{gateway.url}/v1", api_key="wrong") as api, pytest.raises(openai.AuthenticationError):
        api.models.list()
