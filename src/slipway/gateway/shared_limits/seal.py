"""Messages between gateways, signed with a key that only gateways have. Pure, except for reading the key.

A request contains its recipient, its time and a random number, and the signature of the answer covers this number.
Another pod can therefore not replay a request after 30 seconds, forward a request to another gateway, or replay an
answer.
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
"""Maximum length of a request in bytes. A request is one line."""
SIGNATURE = 64
"""Length of a signature in characters."""
_AGE_SECONDS = 30
"""Maximum age of a request in seconds, including the difference between the clocks of the gateways."""
_LEAST_KEY = 32
_REQUEST, _ANSWER = b"request", b"answer"


class SealError(ValueError):
    """A message is missing, invalid, too old, or not from a gateway. The text of the error is the reason, and contains
    no part of the message."""


class Request(msgspec.Struct, frozen=True):
    """A gateway's request for another gateway's report."""

    to: Annotated[str, msgspec.Meta(max_length=100)]
    """Address of the recipient."""
    nonce: Annotated[str, msgspec.Meta(min_length=32, max_length=64)]
    """Random number that the signature of the answer covers."""
    at: int
    """Unix time at which the request was sent."""
    asker: Annotated[str, msgspec.Meta(max_length=64)]
    """Epoch, a random ID, of the sending process."""
    address: Annotated[str, msgspec.Meta(max_length=100)] = ""
    """Address of the sender."""
    busy: bool = False
    """Whether limited requests arrive at the sender, so that the recipient should also exchange often."""
    epoch: Annotated[str, msgspec.Meta(max_length=64)] = ""
    """Epoch of the recipient's process in its last report."""
    since: Count = 0
    """Version of the recipient's last report, to get only later changes; 0 to get all records."""
    complete: bool = False
    """Whether the answer must include the counts of gateways that the sender can query itself."""


class Seal:
    """The key with which gateways sign and verify messages."""

    def __init__(self, key: bytes) -> None:
        """Raise ValueError if the key has fewer than 32 bytes."""
        if len(key) < _LEAST_KEY:
            raise ValueError(f"the key has {len(key)} bytes, and needs at least {_LEAST_KEY}")
        self._key = key

    def seal_request(self, request: Request) -> bytes:
        """Sign a request. Return the signature and the request as one line."""
        body = msgspec.json.encode(request)
        return self._sign(_REQUEST, body).encode() + body + b"\n"

    def open_request(self, line: bytes, own: str, now: float) -> Request:
        """Verify and return a request. Raise SealError unless a gateway sent ``line`` to the address ``own``
        recently. ``now`` is the Unix time."""
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
        """Return the signed answer to the request with the given nonce."""
        body = msgspec.json.encode(report)
        return self._sign(_ANSWER, nonce.encode(), body).encode() + body

    def open_answer(self, nonce: str, answer: bytes) -> Report:
        """Verify an answer and return its report. Raise SealError if it is unreadable, or no gateway sent it as the
        answer to the request with the given nonce."""
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
    """Return the seal with the key in a file. Raise OSError if the file cannot be read, and ValueError if the key is
    too short."""
    return Seal(Path(path).read_bytes().strip())
