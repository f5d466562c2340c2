"""A connection pool that sends the S3 library's requests through the session that all sources share, with its proxies,
certificates, limits and errors."""

from __future__ import annotations

import io
import re
from collections.abc import Mapping

import requests
import urllib3

from slipway.loader.transport import http
from slipway.loader.transport.errors import LoadError

SUCCESS = (200, 204, 206)
ELSEWHERE = (301, 307, 400, 403)
"""HTTP statuses of responses that may name the bucket's region."""
REGION = "x-amz-bucket-region"
NAMED_REGION = re.compile(rb"<Region>([a-z0-9-]{1,64})</Region>")
"""Pattern of the region in the body of a response. Stores other than AWS may name it only there."""
XML = "application/xml"
LARGEST_PAGE = 16 << 20
"""Maximum size in bytes of a page of a listing, or of any other response that is read completely. A page with a
thousand files needs a tenth of it."""


class WrongRegionError(Exception):
    """The bucket is in another region, ``region``."""

    def __init__(self, region: str) -> None:
        super().__init__(region)
        self.region = region


class HttpStatusError(Exception):
    """An error response without the XML document that the S3 protocol requires."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


class Pool(urllib3.PoolManager):
    """The connection pool for the S3 library. ``region`` is the region for which the library signs requests; empty: do
    not check the bucket's region."""

    def __init__(self, client: requests.Session, region: str = "", timeout: tuple[float, float] = http.TIMEOUT) -> None:
        super().__init__(num_pools=1)
        self._client, self._region, self._timeout = client, region, timeout

    def urlopen(  # type: ignore[override] # only these parameters are used
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        body: str | bytes | None = None,
        preload_content: bool = True,
    ) -> urllib3.BaseHTTPResponse:
        """Send a request and return the response. Raise WrongRegionError, HttpStatusError for an error without XML,
        LoadError or TransientError."""
        # The session sets host and agent: after a redirect the host is different.
        own_headers = {name: value for name, value in (headers or {}).items() if name not in ("Host", "User-Agent")}
        response = http.send(self._client, method, url, own_headers, body, self._timeout)
        raw: urllib3.BaseHTTPResponse = response.raw
        if preload_content or raw.status not in SUCCESS:
            whole = io.BytesIO(http.content(response, LARGEST_PAGE))
            raw = urllib3.HTTPResponse(whole, raw.headers, raw.status, reason=raw.reason, decode_content=False)
        region = _named_region(raw)
        if self._region and region and region != self._region:
            raise WrongRegionError(region)
        if response.is_redirect:
            raise LoadError(
                f"{http.host_of(url)} redirects to another host, and signed requests do not follow redirects:"
                " set the endpoint to the store's own address"
            )
        error_document = XML in raw.headers.get("Content-Type", "").split(";") and raw.data
        if raw.status not in SUCCESS and not error_document:
            raise HttpStatusError(raw.status)
        return raw


def _named_region(raw: urllib3.BaseHTTPResponse) -> str:
    """Return the bucket's region from a response, or an empty string if the response does not name one, or its status
    is not in ``ELSEWHERE``."""
    if raw.status not in ELSEWHERE:
        return ""
    named = NAMED_REGION.search(raw.data)
    return raw.headers.get(REGION) or (named[1].decode() if named else "")
