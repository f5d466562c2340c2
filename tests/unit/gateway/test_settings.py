"""The settings file."""

from __future__ import annotations

from pathlib import Path

import pytest

from slipway.gateway.settings import InvalidSettings, Settings, address, load


def test_an_empty_file_means_the_defaults(tmp_path: Path) -> None:
    file = tmp_path / "gateway.yaml"
    file.write_text("")
    assert load(file) == Settings()


@pytest.mark.parametrize(
    "text", ["holdSecond: 3", "maxBodyBytes: many", "holdRequests: -1", "threads: 0", "a: [", "- 1"]
)
def test_what_cannot_be_meant_is_refused_with_the_files_name(tmp_path: Path, text: str) -> None:
    file = tmp_path / "gateway.yaml"
    file.write_text(text)
    with pytest.raises(InvalidSettings, match=r"gateway\.yaml"):
        load(file)


@pytest.mark.parametrize(
    ("text", "expected"), [(":8080", ("0.0.0.0", 8080)), ("127.0.0.1:1", ("127.0.0.1", 1)), ("[::1]:2", ("::1", 2))]
)
def test_addresses(text: str, expected: tuple[str, int]) -> None:
    assert address(text) == expected
