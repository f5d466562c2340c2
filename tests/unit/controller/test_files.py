"""Files of the controller's own."""

from __future__ import annotations

from pathlib import Path

from slipway.controller.inputs.files import MOST_BYTES, content


def test_a_file_is_read_as_it_is_now(tmp_path: Path) -> None:
    key = tmp_path / "hmac"
    assert content(str(key)) == b""
    key.write_bytes(b"one")
    assert content(str(key)) == b"one"
    key.write_bytes(b"two")
    assert content(str(key)) == b"two"


def test_an_unreadable_file_is_empty_and_an_endless_one_is_cut(tmp_path: Path) -> None:
    assert content(str(tmp_path)) == b""
    assert len(content("/dev/zero")) == MOST_BYTES
