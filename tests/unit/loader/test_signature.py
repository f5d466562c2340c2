"""The examples that Amazon's documents work out by hand."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from slipway.loader.sources.signature import Credentials, signed_headers

EXAMPLE = Credentials("AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY")


@pytest.mark.parametrize(
    ("path", "extra", "signature"),
    [
        ("test.txt", {"range": "bytes=0-9"}, "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"),
        ("?max-keys=2&prefix=J", {}, "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"),
    ],
)
def test_the_documented_examples(path: str, extra: dict[str, str], signature: str) -> None:
    url = f"https://examplebucket.s3.amazonaws.com/{path}"
    headers = signed_headers("GET", url, EXAMPLE, "us-east-1", datetime(2013, 5, 24, tzinfo=UTC), extra)
    assert headers["Authorization"].endswith(f"Signature={signature}")


def test_a_session_token_is_part_of_the_request() -> None:
    session = Credentials("key", "secret", "token")
    headers = signed_headers("GET", "https://h/", session, "r", datetime(2026, 1, 1, tzinfo=UTC))
    assert headers["x-amz-security-token"] == "token"
    assert "host;x-amz-content-sha256;x-amz-date;x-amz-security-token" in headers["Authorization"]


def test_a_secret_is_not_shown() -> None:
    assert "EXAMPLEKEY" not in repr(EXAMPLE)
