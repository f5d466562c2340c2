"""The S3 stand-in lists and gives objects to whoever signs with its key."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from urllib.parse import quote, urlencode, urlsplit

import pytest

from .conftest import Reply, Start, ask

KEYS = {"AWS_ACCESS_KEY_ID": "tester", "AWS_SECRET_ACCESS_KEY": "secret-of-the-tests"}


@pytest.fixture(scope="module")
def url(start: Start, tmp_path_factory: pytest.TempPathFactory) -> str:
    root = tmp_path_factory.mktemp("s3")
    for key, text in {"config.json": "{}", "deep/weights.bin": "0123456789", "odd name+.txt": "odd"}.items():
        path = root / "models" / "acme" / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return start("standin.s3", "--port={port}", str(root), **KEYS)


def signed(
    url: str, key: str = "tester", secret: str = KEYS["AWS_SECRET_ACCESS_KEY"], headers: Mapping[str, str] | None = None
) -> Reply:
    """A GET by Amazon's signature version 4."""
    parts, date, scope = urlsplit(url), "20260102T030405Z", ["20260102", "us-east-1", "s3", "aws4_request"]
    empty = hashlib.sha256(b"").hexdigest()
    names = "host;x-amz-content-sha256;x-amz-date"
    head = f"host:{parts.netloc}\nx-amz-content-sha256:{empty}\nx-amz-date:{date}\n"
    canonical = f"GET\n{parts.path}\n{parts.query}\n{head}\n{names}\n{empty}"
    digest = hashlib.sha256(canonical.encode()).hexdigest()
    text = f"AWS4-HMAC-SHA256\n{date}\n{'/'.join(scope)}\n{digest}"
    signing = f"AWS4{secret}".encode()
    for step in scope:
        signing = hmac.digest(signing, step.encode(), "sha256")
    signature = hmac.digest(signing, text.encode(), "sha256").hex()
    credential = f"{key}/{'/'.join(scope)}"
    authorization = f"AWS4-HMAC-SHA256 Credential={credential}, SignedHeaders={names}, Signature={signature}"
    sent = {"Authorization": authorization, "x-amz-date": date, "x-amz-content-sha256": empty, **(headers or {})}
    return ask(url, headers=sent)


def test_objects_are_listed_in_pages(url: str) -> None:
    query = {"list-type": "2", "max-keys": "2", "prefix": "acme/"}
    first = signed(f"{url}/models?{urlencode(query, quote_via=quote, safe='')}").body.decode()
    assert first.count("<Contents>") == 2
    assert "<IsTruncated>true" in first
    token = first.split("<NextContinuationToken>")[1].split("<")[0]
    query = {"continuation-token": token} | query
    second = signed(f"{url}/models?{urlencode(query, quote_via=quote, safe='')}").body.decode()
    assert "<Key>acme/odd name+.txt</Key><Size>3</Size>" in second
    assert "<IsTruncated>false" in second


def test_an_object_is_given_whole_or_in_part(url: str) -> None:
    whole = signed(f"{url}/models/acme/deep/weights.bin")
    assert whole.body == b"0123456789"
    assert whole.headers["ETag"] == f'"{hashlib.md5(b"0123456789").hexdigest()}"'  # noqa: S324 - as S3 has it
    assert signed(f"{url}/models/acme/deep/weights.bin", headers={"Range": "bytes=4-"}).body == b"456789"
    assert signed(f"{url}/models/acme/{quote('odd name+.txt', safe='')}").body == b"odd"


def test_missing_objects_and_unauthorized_requests_are_refused(url: str) -> None:
    assert b"NoSuchKey" in signed(f"{url}/models/none").body
    assert b"NoSuchBucket" in signed(f"{url}/none/none").body
    assert ask(f"{url}/models/acme/config.json").status == 403
    assert b"SignatureDoesNotMatch" in signed(f"{url}/models/acme/config.json", secret="wrong").body
    assert b"InvalidAccessKeyId" in signed(f"{url}/models/acme/config.json", key="stranger").body
