"""What strangers wrote is decoded or refused by one exception with a short message, whatever it is."""

from __future__ import annotations

import pytest

from slipway.apis.kubeai.settings import InvalidConfigError
from slipway.apis.kubeai.system_yaml import parse
from slipway.apis.llmkube import names
from slipway.apis.llmkube.models.cache import Record, read_records
from slipway.artifacts.documents import report
from slipway.decoding import MESSAGE_CHARACTERS, DecodingError, decode_json, decode_yaml
from slipway.gateway.routing import keys
from slipway.kube.api.errors import MOST_RETRY_SECONDS, ConflictError, ServerError, error_from_body
from slipway.serving.routing.route import MOST_BYTES, ROUTE, InvalidRouteError, routed_service

DEEP = "[" * 1500 + "]" * 1500
HOSTILE = {
    "nested": DEEP,
    "nested in an unknown field": f'{{"x":{DEEP}}}',
    "never closed": "[" * 100_000,
    "cut off": '{"models":["a',
    "half a surrogate pair": '"\\ud800"',
    "a lone surrogate": "\ud800",
    "NUL": "\0",
    "a number that is none": "1e999",
    "nothing": "",
    "a byte order mark": "\ufeff{}",
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
def test_hostile_json_is_one_exception_with_one_short_line(text: str) -> None:
    for given in (text, text.encode(errors="surrogatepass")):
        with pytest.raises(DecodingError) as caught:
            decode_json(given, dict[str, float], most=1 << 20)
        message = str(caught.value)
        assert 0 < len(message) <= MESSAGE_CHARACTERS
        assert message.isprintable()


YAML = (
    DEEP,
    "a: [",
    "\0",
    "a: !!python/object:os.x {}",
    "2026-99-99",
    "\ud800",
    "? {a: {}}\n: 1",
    "1" * 5000,
    'a: "\\ud800"',
)


@pytest.mark.parametrize("text", YAML, ids=[text[:12] for text in YAML])
def test_hostile_yaml_is_the_same_exception(text: str) -> None:
    with pytest.raises(DecodingError):
        decode_yaml(text, most=1 << 20)


def test_a_message_quotes_no_more_of_hostile_text_than_a_line() -> None:
    for text in (f'"{"x" * 5000}\\n\\u0007"', f'{{"{"k" * 5000}": "\\u0000"}}'):
        with pytest.raises(DecodingError) as caught:
            decode_json(text, dict[str, int], most=1 << 20)
        assert len(str(caught.value)) <= MESSAGE_CHARACTERS
        assert str(caught.value).isprintable()


def test_text_above_its_limit_is_refused_before_it_is_parsed() -> None:
    """If the longer text were parsed, it would be reported as malformed."""
    assert decode_json('"é"', most=4) == "é"
    for text in ('"éé', '"éé'.encode(), bytearray(b"xxxxx"), "\ud800" * 5):
        with pytest.raises(DecodingError, match="longer than 4 bytes"):
            decode_json(text, most=4)
    with pytest.raises(DecodingError, match="longer than 3 bytes"):
        decode_yaml("[[[[", most=3)


def routed(annotation: str) -> dict[str, object]:
    metadata = {"name": "a", "namespace": "n", "creationTimestamp": "2026-01-01T00:00:00Z"}
    return {"metadata": {**metadata, "annotations": {ROUTE: annotation}}, "spec": {"ports": [{"name": "http"}]}}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
def test_a_hostile_annotation_is_an_invalid_route(text: str) -> None:
    with pytest.raises(InvalidRouteError):
        routed_service(routed(text))


def test_a_route_is_as_long_as_its_limit_and_no_longer() -> None:
    text = '{"source":"' + "x" * (MOST_BYTES - 13) + '"}'
    assert len(text) == MOST_BYTES
    assert decode_json(text, most=MOST_BYTES)
    with pytest.raises(InvalidRouteError, match=f"longer than {MOST_BYTES} bytes"):
        routed_service(routed(f"{text} "))


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
def test_hostile_notes_reports_and_statuses_say_nothing_and_end_nothing(text: str) -> None:
    assert report.parse_report(text) is None
    claim = {"metadata": {"annotations": {f"{names.LOADED}{'0' * 16}": text}}}
    assert read_records(claim) == {"0" * 16: Record()}
    assert isinstance(error_from_body(500, text.encode(errors="surrogatepass")), ServerError)


def test_a_hostile_configuration_is_reported_as_one() -> None:
    for text in (DEEP, "a: [", "x: " + "y" * (1 << 20)):
        with pytest.raises(InvalidConfigError):
            parse(text)


@pytest.mark.parametrize(
    "details",
    ['"x"', "[]", '{"causes":{}}', '{"causes":[7]}', '{"retryAfterSeconds":"soon"}', '{"causes":[{"field":{}}]}'],
)
def test_a_status_of_odd_types_is_a_server_error(details: str) -> None:
    body = f'{{"kind":"Status","code":409,"details":{details}}}'.encode()
    assert isinstance(error_from_body(409, body), ServerError)


def test_no_answer_can_delay_a_retry_beyond_the_limit() -> None:
    assert error_from_body(429, b"", "9" * 400).retry_after == MOST_RETRY_SECONDS
    body = b'{"kind":"Status","code":409,"details":{"retryAfterSeconds":1e300}}'
    error = error_from_body(409, body)
    assert isinstance(error, ConflictError)
    assert error.retry_after == MOST_RETRY_SECONDS


def test_a_key_that_is_not_base64_admits_no_client_and_rejects_no_other() -> None:
    good = keys.hash_keys({"data": {"good": "c2stMQ=="}})
    assert keys.hash_keys({"data": {"bad": "c", "odd": 7, "good": "c2stMQ==", "none": None}}) == good
    assert keys.hash_keys({"data": None}) == ()
