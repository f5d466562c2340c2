"""Signatures of the S3 protocol, version 4: every request says whose it is and proves it, without a word of the secret.

The AWS client library does the same in 30 MB, and is bound to an older python-dateutil than the Kubernetes client's.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from urllib.parse import parse_qsl, quote, urlsplit

import requests
from requests.auth import AuthBase

ALGORITHM = "AWS4-HMAC-SHA256"
NO_BODY = hashlib.sha256(b"").hexdigest()


@dataclass(frozen=True)
class Credentials:
    key: str
    secret: str
    token: str = ""
    """Of a session; permanent keys have none."""
    expires: datetime | None = None

    def __repr__(self) -> str:
        """Never in a log."""
        return f"Credentials({self.key!r})"


def signed_headers(
    method: str, url: str, credentials: Credentials, region: str, now: datetime, extra: dict[str, str] | None = None
) -> dict[str, str]:
    """The headers by which a request without a body is one of ``credentials``. ``extra`` are headers to sign too."""
    parts = urlsplit(url)
    stamp = now.strftime("%Y%m%dT%H%M%SZ")
    headers = {"host": parts.netloc, "x-amz-content-sha256": NO_BODY, "x-amz-date": stamp, **(extra or {})}
    if credentials.token:
        headers["x-amz-security-token"] = credentials.token
    names = ";".join(sorted(headers))
    query = sorted((_quoted(name), _quoted(value)) for name, value in parse_qsl(parts.query, keep_blank_values=True))
    request = [
        method,
        parts.path or "/",
        "&".join(f"{name}={value}" for name, value in query),
        *(f"{name}:{headers[name].strip()}" for name in sorted(headers)),
        "",
        names,
        NO_BODY,
    ]
    scope = f"{stamp[:8]}/{region}/s3/aws4_request"
    text = "\n".join([ALGORITHM, stamp, scope, hashlib.sha256("\n".join(request).encode()).hexdigest()])
    key = f"AWS4{credentials.secret}".encode()
    for word in (*scope.split("/"), text):
        signature = hmac.new(key, word.encode(), hashlib.sha256)
        key = signature.digest()
    proof = f"Credential={credentials.key}/{scope},SignedHeaders={names},Signature={signature.hexdigest()}"
    del headers["host"]
    return {**headers, "Authorization": f"{ALGORITHM} {proof}"}


class Signed(AuthBase):
    """Signs requests with credentials that are looked up for each, as they may be renewed."""

    def __init__(self, credentials: Callable[[], Credentials | None], region: str) -> None:
        self._credentials = credentials
        self.region = region

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        credentials = self._credentials()
        if credentials is not None:
            method, url = request.method or "GET", request.url or ""
            request.headers.update(signed_headers(method, url, credentials, self.region, datetime.now(UTC)))
        return request


def _quoted(text: str) -> str:
    return quote(text, safe="-_.~")
