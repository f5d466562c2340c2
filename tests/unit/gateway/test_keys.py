"""API keys of a Secret."""

from __future__ import annotations

import base64
import hashlib

from slipway.gateway.keys import hashes


def secret(**values: bytes) -> dict[str, dict[str, str]]:
    return {"data": {name: base64.b64encode(value).decode() for name, value in values.items()}}


def test_only_hashes_leave() -> None:
    expected = hashlib.sha256(b"sk-1").hexdigest().upper()
    assert hashes(secret(alice=b"sk-1\n")) == ((expected, "alice"),)


def test_empty_values_and_a_missing_secret_let_nobody_in() -> None:
    assert hashes(secret(empty=b"", space=b" \n")) == ()
    assert hashes({}) == hashes(None) == ()


def test_equal_keys_count_once() -> None:
    assert [name for _unused, name in hashes(secret(b=b"same", a=b"same"))] == ["a"]
