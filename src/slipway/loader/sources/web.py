"""A single file at an HTTP URL: ``http(s)://HOST/PATH/FILE``. A user and password in the URL are sent only to
``HOST``."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from functools import partial
from urllib.parse import parse_qsl, unquote, urlsplit, urlunsplit

import requests

from slipway.artifacts.files.soundness import parts_of
from slipway.artifacts.locations.redaction import redact_url
from slipway.loader.transport import http
from slipway.loader.transport.digests import of_google
from slipway.loader.transport.errors import LoadError
from slipway.loader.transport.source import Access, Body, Entry, Listing, Retry, Source


class WebFile:
    def __init__(self, url: str, env: Mapping[str, str], access: Access) -> None:
        self._url, self._client = url, http.session(env, address_policy=access.of(chosen=True))

    def listing(self, retry: Retry) -> Listing:
        """List the file, with its size and version from the response's headers, without reading its body. For a part of
        a split file, also list the other parts in the same directory. But if the URL has a query with a parameter other
        than ``download``, list only the file, because a signature is valid for one file only.

        Raise LoadError if the URL does not name a file, or for an error response.
        """
        parts = urlsplit(self._url)
        signed = any(name != "download" for name, _value in parse_qsl(parts.query, keep_blank_values=True))
        paths = (() if signed else parts_of(parts.path)) or (parts.path,)
        files = [self._entry(urlunsplit(parts._replace(path=path)), retry) for path in paths]
        return Listing(
            " ".join(tag for tag, _entry in files) if all(tag for tag, _entry in files) else "",
            tuple(entry for _tag, entry in files),
        )

    def _entry(self, url: str, retry: Retry) -> tuple[str, Entry]:
        name = unquote(urlsplit(url).path.rpartition("/")[2])
        if not name:
            raise LoadError(f"{redact_url(url)} does not name a file: its path ends with a slash")
        headers = retry(partial(self._headers, url))
        length, tag = headers.get("Content-Length", ""), headers.get("ETag", "")
        promised = dict(part.strip().split("=", 1) for part in headers.get("x-goog-hash", "").split(",") if "=" in part)
        size = int(length) if length.isdigit() else None
        digest = of_google(promised.get("md5", ""), promised.get("crc32c", ""))
        return tag, Entry(name, url, size, digest, "" if tag.startswith("W/") else tag)

    def read(self, entry: Entry, start: int) -> AbstractContextManager[Body]:
        """Open a file at offset ``start``. If the file has changed since the listing, the server sends the new version
        from its beginning. Raise LoadError or TransientError."""
        headers = {"If-Range": entry.version} if start and entry.version else None
        return http.open_body(self._client, entry.locator, start, partial(_explain, entry.locator), headers)

    def _headers(self, url: str) -> Mapping[str, str]:
        with http.get(self._client, url, partial(_explain, url)) as response:
            return response.headers


def _explain(url: str, response: requests.Response) -> str:
    status = response.status_code
    reasons = {401: "it requires a user and password", 403: "it does not allow reading", 404: "no such file"}
    reason = reasons.get(status, f"the server answers {status}")
    return f"{redact_url(url)}: {reason}: check the address"


def open_source(url: str, env: Mapping[str, str], access: Access) -> Source:
    """Return the source of an ``http://`` or ``https://`` URL."""
    return WebFile(url, env, access)
