"""Forms: the model is read from their field, files pass unchanged, and some engines do not get the field.

Also the same hop for JSON: an ID `namespace/name` arrives as the name that the engine serves.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
from collections.abc import AsyncIterator, Callable
from typing import Any

import aiohttp
import pytest
import requests
from aiohttp import web

from tests.gateway.conftest import Engine, cpu_seconds, settle, wait_for
from tests.gateway.standalone import PATIENCE, Standalone
from tests.ports import reserved_port

TRANSCRIPTIONS = "/v1/audio/transcriptions"
CHAT = "/v1/chat/completions"
BOUNDARY = "b0undary"
MEBI = 1 << 20
AUDIO = (
    os.urandom(3000) + b'\r\nContent-Disposition: form-data; name="model"\r\n\r\nnot me\r\n--b0undarx\r\n' + bytes(100)
)


@pytest.fixture(scope="module")
def engine(make_engine: Callable[..., Engine]) -> Engine:
    return make_engine("forms")


@pytest.fixture(scope="module")
def gateway(keyless: Standalone, engine: Engine) -> Standalone:
    """`whisper` must not see the field, `plain` may; `long` is served under a name that does not fit."""
    endpoints = [engine.endpoint]
    keyless.route(
        {
            "whisper": {"endpoints": endpoints, "route": {"models": ["whisper"], "dropModelField": True}},
            "plain": {"endpoints": endpoints, "route": {"models": ["plain"]}},
            "long": {"endpoints": endpoints, "route": {"models": ["a-much-longer-name"]}},
            "counted": {"endpoints": endpoints, "route": {"models": ["counted"], "dropModelField": True}},
        }
    )
    settle(keyless)
    return keyless


def part(header: str, content: bytes) -> bytes:
    return b"--" + BOUNDARY.encode() + b"\r\n" + header.encode() + b"\r\n\r\n" + content + b"\r\n"


def field(name: str, value: str) -> bytes:
    return part(f'Content-Disposition: form-data; name="{name}"', value.encode())


def upload(content: bytes = AUDIO) -> bytes:
    header = 'Content-Disposition: form-data; name="file"; filename="a;b=\\"c.wav"\r\nContent-Type: audio/wav'
    return part(header, content)


END = f"--{BOUNDARY}--\r\n".encode()


def send(gateway: Standalone, body: Any, path: str = TRANSCRIPTIONS, kind: str = "") -> requests.Response:
    headers = {"content-type": kind or f"multipart/form-data; boundary={BOUNDARY}"}
    return requests.post(gateway.url + path, data=body, headers=headers, timeout=PATIENCE)


def renamed(body: bytes) -> bytes:
    """The body with its true field renamed: all models of these tests stand in one line like this."""
    at = body.index(b"\r\n\r\nwhisper\r\n")
    at = body.rindex(b"model", 0, at)
    return body[:at] + b"-" + body[at + 1 :]


@pytest.mark.parametrize(
    "path", [TRANSCRIPTIONS, "/openai/v1/audio/translations", "/v1/images/edits", "/v1/images/variations"]
)
def test_the_model_is_read_from_the_form(gateway: Standalone, engine: Engine, path: str) -> None:
    body = upload() + field("model", "plain") + field("language", "en") + END
    assert send(gateway, body, path).status_code == 200
    assert engine.bodies[-1] == body


ORDERS = {
    "model first": field("model", "whisper") + upload() + END,
    "model last": upload() + field("language", "en") + field("model", "whisper") + END,
    "nothing else": field("model", "whisper") + END,
    "unquoted name": part("content-disposition: form-data;name=model", b"whisper") + upload() + END,
    "header with a type": part('Content-Type: text/plain\r\nContent-Disposition: form-data; name="model"', b"whisper")
    + upload()
    + END,
    "the boundary's begin in the file": upload(b"\r\n--b0undaryx\r\n--b0undary-\r\n" + AUDIO)
    + field("model", "whisper")
    + END,
    "an empty file": upload(b"") + field("model", "whisper") + END,
    "a name that ends so": field("supermodel", "x") + field("model", "whisper") + field("models", "y") + END,
    "text behind the end": field("model", "whisper") + upload() + END + b"whatever",
}


@pytest.mark.parametrize("case", ORDERS)
def test_an_engine_that_must_not_see_the_field_gets_all_else_unchanged(
    gateway: Standalone, engine: Engine, case: str
) -> None:
    assert send(gateway, ORDERS[case]).status_code == 200
    assert engine.bodies[-1] == renamed(ORDERS[case])
    assert engine.headers[-1]["content-length"] == str(len(ORDERS[case]))
    assert "x-slipway-backend" not in engine.headers[-1]


@pytest.mark.parametrize("size", [10, 40_000, 50_000, 300_000, 25 * MEBI])
@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("chunked", [True, False])
def test_files_of_every_size_arrive_unchanged(
    gateway: Standalone, engine: Engine, size: int, first: bool, chunked: bool
) -> None:
    model, file = field("model", "whisper"), upload(os.urandom(size))
    body = (model + file if first else file + model) + END
    sent = (body[at : at + 65_521] for at in range(0, len(body), 65_521)) if chunked else body
    assert send(gateway, sent).status_code == 200
    assert hashlib.sha256(engine.bodies[-1]).digest() == hashlib.sha256(renamed(body)).digest()


DISPOSITION = "Content-Disposition: form-data; "
MODEL = field("model", "whisper") + END
REFUSED = {
    "no model": (upload() + END, "You must provide"),
    "empty": (field("model", "") + END, "You must provide"),
    "two models": (field("model", "plain") + MODEL, "more than once"),
    "two models, one unquoted": (part(DISPOSITION + "name=model", b"x") + MODEL, "more than once"),
    "a file as the model": (part(DISPOSITION + 'name="model"; filename="x"', b"whisper") + END, "string"),
    "no end": (upload() + field("model", "whisper"), "form"),
    "no boundary in the body": (b"hello", "form"),
    "no body": (b"", "form"),
    "a header that does not end": (b"--b0undary\r\nContent-Disposition: form-data; name=model", "form"),
    "no name": (part("Content-Disposition: form-data", b"x") + MODEL, "form"),
    "no form-data": (part('Content-Disposition: file; name="model"', b"x") + MODEL, "form"),
    "two names": (part(DISPOSITION + 'name="x"; name="model"', b"plain") + MODEL, "form"),
    "extended name": (part(DISPOSITION + "name=x; name*=utf-8''model", b"plain") + MODEL, "form"),
    "escaped name": (part(DISPOSITION + 'name="mo\\del"', b"plain") + MODEL, "form"),
    "encoded model": (part(DISPOSITION + 'name="model"\r\nContent-Transfer-Encoding: base64', b"eA==") + END, "form"),
    "folded header": (part('Content-Disposition: form-data;\r\n name="model"', b"plain") + MODEL, "form"),
    "spaces behind the boundary": (b"--b0undary \r\n" + MODEL[12:], "form"),
    "very many begins of boundaries": (upload(b"\r\n--b0undaryx" * 1_000_000) + MODEL, "complex"),
    "very many parts": (field("x", "y") * 300 + MODEL, "complex"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_form_that_can_be_read_in_two_ways_or_none_is_refused(gateway: Standalone, case: str) -> None:
    body, words = REFUSED[case]
    before = cpu_seconds(gateway)
    answer = send(gateway, body)
    assert cpu_seconds(gateway) - before < 5
    assert answer.status_code == 400, answer.text
    assert words in answer.json()["error"]["message"]


@pytest.mark.parametrize(
    "kind", ["multipart/form-data", "multipart/form-data; boundary=", "application/json", "multipart/mixed; boundary=b"]
)
def test_an_invalid_form_is_refused(gateway: Standalone, kind: str) -> None:
    assert send(gateway, field("model", "whisper") + END, kind=kind).status_code == 400


def test_a_quoted_boundary_is_understood(gateway: Standalone) -> None:
    body = field("model", "whisper") + upload() + END
    kind = f'Multipart/Form-Data; charset=utf-8; boundary="{BOUNDARY}"'
    assert send(gateway, body, kind=kind).status_code == 200


def test_an_unknown_model_of_a_form_is_not_found(gateway: Standalone) -> None:
    answer = send(gateway, field("model", 'no"pe') + END)
    assert answer.status_code == 404
    assert answer.json()["error"]["code"] == "model_not_found"


@pytest.fixture
async def parser() -> AsyncIterator[tuple[str, dict[str, bytes]]]:
    """A server with a real parser: its endpoint, and the parts of the last form by name."""
    parts: dict[str, bytes] = {}

    async def answer(request: web.Request) -> web.Response:
        parts.clear()
        async for piece in await request.multipart():
            assert isinstance(piece, aiohttp.BodyPartReader)
            parts[piece.name or ""] = bytes(await piece.read())
        return web.json_response({"text": "hello"})

    application, port = web.Application(client_max_size=64 * MEBI), reserved_port()
    application.router.add_post(TRANSCRIPTIONS, answer)
    runner = web.AppRunner(application)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    yield f"127.0.0.1:{port}", parts
    await runner.cleanup()


@pytest.mark.parametrize("writer", ["requests", "aiohttp"])
async def test_real_clients_and_a_real_parser_understand_each_other(
    gateway: Standalone, parser: tuple[str, dict[str, bytes]], writer: str
) -> None:
    endpoint, parts = parser
    table = json.loads(gateway.table.read_text())["models"]
    gateway.route(table | {"parsed": {"endpoints": [endpoint], "route": {"dropModelField": True}}})
    await asyncio.to_thread(settle, gateway)
    file = os.urandom(2 * MEBI)
    if writer == "requests":
        form = {"model": (None, "parsed"), "file": ("a.wav", file), "prompt": (None, "name=model é")}
        answer = await asyncio.to_thread(requests.post, gateway.url + TRANSCRIPTIONS, files=form, timeout=PATIENCE)
        assert answer.json() == {"text": "hello"}
    else:
        data = aiohttp.FormData({"model": "parsed", "prompt": "name=model é"}, default_to_multipart=True)
        data.add_field("file", file, filename="é.wav", content_type="audio/wav")
        async with aiohttp.ClientSession() as session, session.post(gateway.url + TRANSCRIPTIONS, data=data) as sent:
            assert await sent.json() == {"text": "hello"}
    assert parts.pop("file") == file
    assert parts == {"-odel": b"parsed", "prompt": "name=model é".encode()}


QUALIFIED = {
    "small": b'{"model":"static/plain","messages":[{"content":"static/plain"}]}',
    "with white space": b'\n{ "a" : [1,2], "model" :\t"static/plain"\r\n}',
    "escaped": b'{"model":"static\\/plain"}',
    "escaped letters": b'{"\\u006dodel":"\\u0073tatic/plain"}',
    "large, first": b'{"model":"static/plain","prompt":"' + b"a" * 100_000 + b'"}',
    "large, last": b'{"prompt":"' + b"a" * 100_000 + b'","model":"static/plain"}',
    "medium": b'{"prompt":"' + b"a" * 20_000 + b'","model":"static/plain","stream":false}',
    "huge": b'{"prompt":"' + b"\\u00e9" * 2_000_000 + b'","model":"static/plain"}',
}


@pytest.mark.parametrize("case", QUALIFIED)
def test_an_engine_sees_the_plain_name_of_a_qualified_id(gateway: Standalone, engine: Engine, case: str) -> None:
    body = QUALIFIED[case]
    assert requests.post(gateway.url + CHAT, data=body, timeout=PATIENCE).status_code == 200
    arrived = engine.bodies[-1]
    assert len(arrived) == len(body)
    assert json.loads(arrived) == {**json.loads(body), "model": "plain"}
    if b'"static/plain"' in body:
        at = body.rindex(b'"static/plain"') if case == "large, last" else body.index(b'"static/plain"')
        assert arrived == body[:at] + b'"plain"       ' + body[at + 14 :]


@pytest.mark.parametrize("model", ["plain", "static/long", "long"])
def test_other_bodies_pass_unchanged(gateway: Standalone, engine: Engine, model: str) -> None:
    body = json.dumps({"model": model, "prompt": "static/plain"}).encode()
    assert requests.post(gateway.url + CHAT, data=body, timeout=PATIENCE).status_code == 200
    assert engine.bodies[-1] == body


def test_a_stream_passes_the_hop_event_by_event_and_ends_with_the_client(gateway: Standalone, engine: Engine) -> None:
    body = {"model": "static/plain", "stream": True, "x": {"events": 100_000, "gap": 0.05}}
    before = engine.cancelled
    answer = requests.post(gateway.url + CHAT, json=body, stream=True, timeout=PATIENCE)
    lines = answer.iter_lines()
    assert next(lines).startswith(b"data: ")
    answer.close()
    wait_for(lambda: engine.cancelled > before)


def test_a_request_through_the_hop_counts_for_its_model(gateway: Standalone) -> None:
    def answered() -> float:
        text = requests.get(f"{gateway.control_url}/metrics", timeout=PATIENCE).text
        name = 'slipway_gateway_requests_total{code="2xx",model="counted",namespace="static"}'
        return next(float(line.rsplit(" ", 1)[1]) for line in text.splitlines() if line.startswith(name))

    for count in (0, 1, 2):
        wait_for(lambda count=count: answered() == count)  # type: ignore[misc]
        assert send(gateway, field("model", "counted") + END).status_code == 200


@pytest.mark.parametrize("code", [0, 1, 10, 31, 127])
def test_a_control_character_in_the_field_is_refused(gateway: Standalone, engine: Engine, code: int) -> None:
    before = len(engine.bodies)
    answer = send(gateway, field("model", f"plain{chr(code)}zzz") + upload() + END)
    assert answer.status_code == 400
    assert "control" in answer.json()["error"]["message"]
    assert len(engine.bodies) == before


def test_a_form_below_the_prefix_of_openai_arrives_without_it_and_without_the_field(
    gateway: Standalone, engine: Engine
) -> None:
    form = field("model", "whisper") + upload(os.urandom(512_000)) + END
    headers = {"content-type": f"multipart/form-data; boundary={BOUNDARY}"}
    answer = requests.post(f"{gateway.url}/openai{TRANSCRIPTIONS}", data=form, headers=headers, timeout=PATIENCE)
    assert (answer.status_code, answer.text[:300]) == (200, answer.text[:300])
    assert engine.paths[-1] == TRANSCRIPTIONS
    assert b'name="model"' not in engine.bodies[-1]
