"""Messages between gateways, signed with a key that only they have. Pure but for reading the key.

A request names the gateway it is for, its time, and a random number, which the answer's signature covers. So another
pod can neither use a recorded request for long, nor send one on, nor answer with an old answer.
"""

from __future__ import annotations

import hashlib
import hmac
from pathlib import Path
from typing import Annotated

import msgspec

from slipway.decoding import DecodingError, decode_json
from slipway.gateway.shared_limits.usage import MOST_BYTES, Count, Report

LONGEST_REQUEST = 1024
"""Bytes of a request's line."""
SIGNATURE = 64
"""Characters of a signature."""
_AGE_SECONDS = 30
"""Allowed age of a request, and difference of clocks."""
_LEAST_KEY = 32
_REQUEST, _ANSWER = b"request", b"answer"


class SealError(ValueError):
    """A message is not one of a gateway's. The text is the reason, without any part of the message."""


class Request(msgspec.Struct, frozen=True):
    """What a gateway asks another one."""

    to: Annotated[str, msgspec.Meta(max_length=100)]
    """Address of the gateway that is asked."""
    nonce: Annotated[str, msgspec.Meta(min_length=32, max_length=64)]
    at: int
    """Unix time."""
    asker: Annotated[str, msgspec.Meta(max_length=64)]
    """The epoch of the process that asks."""
    address: Annotated[str, msgspec.Meta(max_length=100)] = ""
    """Its own address."""
    busy: bool = False
    """Whether limited requests arrive there, so that the other side should exchange often, too."""
    epoch: Annotated[str, msgspec.Meta(max_length=64)] = ""
    """The process that is asked, as known from before."""
    since: Count = 0
    complete: bool = False


class Seal:
    """Signs messages and checks them."""

    def __init__(self, key: bytes) -> None:
        """Raises ValueError for a key that is too short."""
        if len(key) < _LEAST_KEY:
            raise ValueError(f"the key has {len(key)} bytes, and needs at least {_LEAST_KEY}")
        self._key = key

    def seal_request(self, request: Request) -> bytes:
        """The request as a line."""
        body = msgspec.json.encode(request)
        return self._sign(_REQUEST, body).encode() + body + b"\n"

    def open_request(self, line: bytes, own: str, now: float) -> Request:
        """The request of a line, if a gateway sent it to `own` a moment ago. Raises SealError."""
        body = self._verify(line.rstrip(b"\n"), _REQUEST)
        try:
            request = decode_json(body, Request, most=LONGEST_REQUEST)
        except DecodingError as error:
            raise SealError("unreadable") from error
        if request.to != own:
            raise SealError("for another gateway")
        if abs(now - request.at) > _AGE_SECONDS:
            raise SealError("too old, or the clocks differ")
        return request

    def seal_answer(self, nonce: str, report: Report) -> bytes:
        """The answer to the request with this nonce."""
        body = msgspec.json.encode(report)
        return self._sign(_ANSWER, nonce.encode(), body).encode() + body

    def open_answer(self, nonce: str, answer: bytes) -> Report:
        """The report of an answer. Raises SealError."""
        body = self._verify(answer, _ANSWER, nonce.encode())
        try:
            return decode_json(body, Report, most=MOST_BYTES)
        except DecodingError as error:
            raise SealError(f"unreadable: {error}") from error

    def _verify(self, message: bytes, *parts: bytes) -> bytes:
        signature, body = message[:SIGNATURE], message[SIGNATURE:]
        if not hmac.compare_digest(self._sign(*parts, body).encode(), signature):
            raise SealError("not signed by a gateway")
        return body

    def _sign(self, *parts: bytes) -> str:
        digest = hmac.new(self._key, digestmod=hashlib.sha256)
        for part in parts:
            digest.update(len(part).to_bytes(8, "big") + part)
        return digest.hexdigest()


def load_seal(path: str) -> Seal:
    """The seal whose key is in a file. Raises OSError or ValueError."""
    return Seal(Path(path).read_bytes().strip())
