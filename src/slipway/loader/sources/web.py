"""A single file at a web address: ``http(s)://HOST/PATH/FILE``. User and password in it are given to that host only."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from urllib.parse import unquote, urlsplit

import requests

from slipway.artifacts.redaction import redact_url
from slipway.loader.digests import of_google
from slipway.loader.errors import LoadError
from slipway.loader.sources import http
from slipway.loader.sources.base import Access, Body, Entry, Listing, Retry, Source


class WebFile:
    def __init__(self, url: str, env: Mapping[str, str], access: Access) -> None:
        self._url, self._client = url, http.session(env, address_policy=access.of(chosen=True))

    def listing(self, retry: Retry) -> Listing:
        """The answer's headers describe the file; its bytes are left unread here.

        Raises LoadError where the URL names no file.
        """
        name = unquote(urlsplit(self._url).path.rpartition("/")[2])
        if not name:
            raise LoadError(f"{redact_url(self._url)} does not name a file: its path ends with a slash")
        headers = retry(self._headers)
        length, tag = headers.get("Content-Length", ""), headers.get("ETag", "")
        promised = dict(part.strip().split("=", 1) for part in headers.get("x-goog-hash", "").split(",") if "=" in part)
        size = int(length) if length.isdigit() else None
        digest = of_google(promised.get("md5", ""), promised.get("crc32c", ""))
        return Listing(tag, (Entry(name, self._url, size, digest, "" if tag.startswith("W/") else tag),))

    def read(self, entry: Entry, start: int) -> AbstractContextManager[Body]:
        """With If-Range another version of the file comes from its beginning."""
        headers = {"If-Range": entry.version} if start and entry.version else None
        return http.read(self._client, entry.locator, start, self._explain, headers)

    def _headers(self) -> Mapping[str, str]:
        with http.get(self._client, self._url, self._explain) as response:
            return response.headers

    def _explain(self, response: requests.Response) -> str:
        status = response.status_code
        reasons = {401: "it requires a user and password", 403: "it does not allow reading", 404: "no such file"}
        reason = reasons.get(status, f"the server answers {status}")
        return f"{redact_url(self._url)}: {reason}: check the address"


def open_source(url: str, env: Mapping[str, str], access: Access) -> Source:
    """The file that an http(s):// URL names."""
    return WebFile(url, env, access)
