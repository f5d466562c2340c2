"""Messages between gateways: signatures and refusals."""

from __future__ import annotations

import pytest

from slipway.gateway.shared_limits.seal import Request, Seal, SealError
from slipway.gateway.shared_limits.usage import Record, Report

SEAL = Seal(b"k" * 32)
REQUEST = Request("10.0.0.1:8082", "0" * 32, 1000, "e" * 32)
REPORT = Report("a" * 32, "e" * 32, "2026-01-31", 3, 0, False, (Record("a" * 32, "jwt:x=y@z"),))


def test_a_request_and_its_answer_arrive_unchanged() -> None:
    assert SEAL.open_request(SEAL.seal_request(REQUEST), "10.0.0.1:8082", 1010) == REQUEST
    assert SEAL.open_answer("0" * 32, SEAL.seal_answer("0" * 32, REPORT)) == REPORT


def test_a_message_that_was_changed_or_is_for_another_is_refused() -> None:
    line = SEAL.seal_request(REQUEST)
    for text in (b"", b"\n", line[:-5] + b"\n", line.replace(b"10.0", b"10.1"), b"0" * 64 + line[64:], b"\xff" * 100):
        with pytest.raises(SealError):
            SEAL.open_request(text, "10.0.0.1:8082", 1000)
    for own, now in (("10.0.0.2:8082", 1000), ("10.0.0.1:8082", 1031), ("10.0.0.1:8082", 969)):
        with pytest.raises(SealError):
            SEAL.open_request(line, own, now)
    answer = SEAL.seal_answer("0" * 32, REPORT)
    for nonce, text in (("1" * 32, answer), ("0" * 32, answer + b" "), ("0" * 32, line)):
        with pytest.raises(SealError):
            SEAL.open_answer(nonce, text)
    with pytest.raises(SealError):
        Seal(b"x" * 32).open_answer("0" * 32, answer)


@pytest.mark.parametrize("key", [b"", b"k" * 31])
def test_a_short_key_is_refused(key: bytes) -> None:
    with pytest.raises(ValueError, match="at least 32"):
        Seal(key)


@pytest.mark.parametrize("body", [b"{}", b"[" * 3000, b'{"instance":1}', b"\xff"])
def test_an_undecodable_message_is_refused(body: bytes) -> None:
    signed = SEAL._sign(b"answer", b"0", body).encode() + body
    with pytest.raises(SealError):
        SEAL.open_answer("0", signed)
