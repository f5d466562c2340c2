"""The gateway reads the same model from a body as an engine would, or refuses the request."""

from __future__ import annotations

import json

import pytest
import requests

from tests.gateway.conftest import cpu_seconds
from tests.gateway.standalone import Standalone

PROMPT = "The quick brown fox.\n" * 500  # about 10 KB, so that the larger bodies take the other way through the guard
LARGE = json.dumps({"messages": [{"role": "user", "content": PROMPT * 10}]})[1:-1]
HUGE = json.dumps({"prompt": PROMPT * 300})[1:-1]


def padded(body: str) -> str:
    """The same case in a body that is too large for the regular expression."""
    return body.replace("{", '{"prompt":' + json.dumps(PROMPT) + ",", 1)


ACCEPTED = {
    "plain": '{"model":"m1","messages":[{"role":"user","content":"hi"}]}',
    "escaped value": '{"model":"\\u006d1","messages":[]}',
    "escaped key": '{"\\u006dodel":"m1","messages":[]}',
    "white space": '\n {  "model" :\t"m1" ,\r\n "messages":[]} \n',
    "nested model before": '{"messages":[{"role":"user","model":"zzz"}],"model":"m1"}',
    "nested model after": '{"model":"m1","messages":[{"role":"user","model":"zzz"}]}',
    "model as a value": '{"kind":"model","model":"m1"}',
    "model as text in the prompt": json.dumps({"prompt": 'say "model":"zzz" {"model":"zzz"}', "model": "m1"}),
    "key that ends in model": '{"a\\"model":"zzz","model":"m1"}',
    "all kinds of values": '{"a":[1,-2.5e+3,true,false,null,{"b":{}},[]],"model":"m1","s":"\\u00e9\\n\\ud83d\\ude00é"}',
    "model first in a large body": '{"model":"m1",' + LARGE + "}",
    "model last in a large body": "{" + LARGE + ',"model":"m1"}',
    "model in the middle of a large body": "{" + LARGE + ',"model":"m1","tail":' + json.dumps(PROMPT * 10) + "}",
    "model first in a huge body": '{"model":"m1",' + HUGE + "}",
    "many escapes of the row of m": '{"prompt":"' + "\\u0060" * 3000 + '","model":"m1"}',
    "other case further in": '{"model":"m1","tools":[{"Model":"zzz"}],"MODELS":1,"mode":2}',
    "a tool that has a parameter model": '{"tools":[{"properties":{"model":{}}}],"model":"m1",' + LARGE + "}",
    "model last in a huge body": "{" + HUGE + ',"model":"m1","stream":false}',
    "other case as a value in a large body": '{"model":"m1","kind":"Model",' + LARGE + "}",
    "other case further in, in a large body": "{" + LARGE + ',"tools":[{"MODEL":1}],"model":"m1"}',
    "other case as text in a large body": json.dumps({"model": "m1", "prompt": 'The "Model" of "models".' * 500}),
    "many escapes of the row of M": '{"model":"m1","prompt":"' + "\\u0040" * 3000 + '"}',
}

LONG = json.dumps({"prompt": PROMPT, "more": PROMPT})[1:-1]
LARGE_TWINS = {
    "behind the model, in front": '{"model":"m1","Model":"zzz",' + LONG + "}",
    "behind the model, in the middle": '{"model":"m1",' + LONG + ',"Model":"zzz",' + LARGE + "}",
    "behind the model, at the end": '{"model":"m1",' + LONG + ',"MODEL":"zzz"}',
    "before the model, in front": '{"moDel":"zzz",' + LONG + ',"model":"m1"}',
    "before the model, at the end": "{" + LONG + ',"modeL":"zzz","model":"m1"}',
    "with space before the colon": '{"model":"m1",' + LONG + ',"Model" \n:"zzz"}',
    "first letter escaped": '{"model":"m1",' + LONG + ',"\\u004dodel":"zzz"}',
    "upper-case escape of a letter": '{"model":"m1",' + LONG + ',"M\\u004FDEL":"zzz"}',
    "last letter escaped": '{"model":"m1",' + LONG + ',"Mode\\u004c":"zzz"}',
    "all letters escaped": '{"model":"m1",' + LONG + ',"\\u004d\\u004f\\u0044\\u0045\\u004c":"zzz"}',
    "lower case escaped, after upper case": '{"model":"m1",' + LONG + ',"M\\u006fdel":"zzz"}',
    "behind text that looks like it": '{"model":"m1","prompt":' + json.dumps('"Model' * 3000) + ',"Model":"zzz"}',
    "behind a value that is called so": '{"model":"m1","kind":"Model",' + LONG + ',"Model":"zzz"}',
    "the same key": '{"model":"m1",' + LONG + ',"model":"zzz"}',
}

# What comes before a NUL was looked up, and the whole was sent to the engine.
CONTROL = {f"U+{code:04X}": json.dumps({"model": f"m1{chr(code)}zzz"}) for code in (0, 1, 10, 31)}
CONTROL["delete, unescaped"] = '{"model":"m1\x7f"}'
CONTROL["before the name"] = '{"model":"\\u0000m1"}'
# Engines in Go would take the other one.
TWINS = {
    "other case first": '{"Model":"zzz","model":"m1"}',
    "other case last": '{"model":"m1","messages":[],"MODEL":"zzz"}',
    "other case alone": '{"Model":"m1"}',
    "other case, escaped": '{"model":"m1","\\u004dodel":"zzz"}',
    "other case, no string": '{"model":"m1","modeL":{}}',
}

REFUSED = (
    CONTROL
    | TWINS
    | {
        "duplicate, unknown first": '{"model":"zzz","model":"m1","messages":[]}',
        "duplicate, known first": '{"model":"m1","messages":[],"model":"zzz"}',
        "duplicate by an escaped key": '{"model":"m1","messages":[],"\\u006dodel":"zzz"}',
        "duplicate by an escaped key in the middle": '{"mo\\u0064el":"zzz","model":"m1"}',
        "missing": '{"messages":[]}',
        "nested only": '{"messages":[{"role":"user","content":"x","model":"m1"}]}',
        "null": '{"model":null,"messages":[]}',
        "number": '{"model":1}',
        "object": '{"model":{"name":"m1"}}',
        "empty string": '{"model":"","messages":[]}',
        "truncated": '{"model":"m1","messages":[',
        "truncated behind a brace": '{"model":"m1","messages":[{"role":"user"}',
        "trailing garbage": '{"model":"m1"} xx',
        "second document": '{"model":"m1"} {"model":"zzz"}',
        "trailing comma": '{"model":"m1",}',
        "control character": '{"model":"m1","s":"a\nb"}',
        "bad escape": '{"model":"m1","s":"\\x41"}',
        "bad number": '{"model":"m1","n":01}',
        "bad word": '{"model":"m1","n":nul}',
        "single quotes": "{'model':'m1'}",
        "not json": "hello",
        "array": '[{"model":"m1"}]',
        "nul byte": '{"model":"m1"\x00}',
        "nul byte at the end": '{"model":"m1"}\x00',
        "second model behind a nul byte": '{"model":"m1"}\x00,"model":"zzz"}',
        "too deep": '{"model":"m1","d":' + "[" * 2000 + "]" * 2000 + "}",
        "empty": "",
    }
)

# In larger bodies the text around the name is not read in full: an engine refuses these itself.
LEFT_TO_THE_ENGINE = {
    "truncated behind a brace",
    "control character",
    "bad escape",
    "bad number",
    "bad word",
    "nul byte",
}
# Between the two ways of a larger body: what follows its longer part is not read.
LEFT_TO_THE_ENGINE |= {"second document", "trailing comma", "too deep", "array", "not json", "empty", "single quotes"}


@pytest.mark.parametrize("case", ACCEPTED)
def test_a_body_with_one_model_is_routed(client: requests.Session, case: str) -> None:
    answer = client.post("/v1/chat/completions", data=ACCEPTED[case].encode())
    assert answer.status_code == 200, answer.text


@pytest.mark.parametrize("case", [case for case in ACCEPTED if len(ACCEPTED[case]) < 8000])
def test_a_large_body_with_one_model_is_routed(client: requests.Session, case: str) -> None:
    answer = client.post("/v1/chat/completions", data=padded(ACCEPTED[case]).encode())
    assert answer.status_code == 200, answer.text


@pytest.mark.parametrize("case", REFUSED)
def test_a_body_that_can_be_read_in_two_ways_or_none_is_refused(client: requests.Session, case: str) -> None:
    answer = client.post("/v1/chat/completions", data=REFUSED[case].encode())
    assert answer.status_code == 400, answer.text
    assert set(answer.json()["error"]) == {"message", "type", "param", "code"}


@pytest.mark.parametrize("case", [case for case in REFUSED if case not in LEFT_TO_THE_ENGINE])
def test_a_large_body_that_can_be_read_in_two_ways_is_refused(client: requests.Session, case: str) -> None:
    answer = client.post("/v1/chat/completions", data=padded(REFUSED[case]).encode())
    assert answer.status_code == 400, answer.text


@pytest.mark.parametrize("case", LARGE_TWINS)
def test_a_key_in_another_case_is_refused_at_any_place(client: requests.Session, case: str) -> None:
    answer = client.post("/v1/chat/completions", data=LARGE_TWINS[case].encode())
    assert answer.status_code == 400, answer.text


def test_a_chunked_body_is_read_whole(client: requests.Session) -> None:
    body = ("{" + LARGE + ',"model":"m1"}').encode()
    answer = client.post("/v1/chat/completions", data=(body[i : i + 7000] for i in range(0, len(body), 7000)))
    assert answer.status_code == 200, answer.text


def test_the_engine_gets_the_bytes_that_the_client_sent(client: requests.Session, engine: object) -> None:
    body = b'{ "model": "\\u006d1" ,"caf\\u00e9": [1.50, {"z":1,"a":2}], "drop": false}'
    assert client.post("/v1/chat/completions", data=body).status_code == 200
    assert engine.bodies[-1] == body  # type: ignore[attr-defined]


def test_a_body_that_would_cost_minutes_to_read_is_refused_soon(client: requests.Session, gateway: Standalone) -> None:
    before = cpu_seconds(gateway)
    body = b'{"a":[' + b"1," * 1_500_000 + b'1],"\\u006dodel":"m1"}'
    answer = client.post("/v1/chat/completions", data=body)
    assert answer.status_code == 400
    assert "complex" in answer.json()["error"]["message"]
    assert cpu_seconds(gateway) - before < 10
