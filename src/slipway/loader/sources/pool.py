"""How the library for S3 asks: by the session of all sources, with its proxies, certificates, limits and failures."""

from __future__ import annotations

from collections.abc import Mapping

import requests
import urllib3

from slipway.loader.errors import LoadError
from slipway.loader.sources import http

SUCCESS = (200, 204, 206)
ELSEWHERE = (301, 307, 400, 403)
"""Status of answers that may name the bucket's region."""
REGION = "x-amz-bucket-region"
XML = "application/xml"


class Moved(Exception):
    """The bucket is to be asked in another region."""

    def __init__(self, region: str) -> None:
        super().__init__(region)
        self.region = region


class Refused(Exception):
    """An answer that says no, and not in the protocol's words."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


class Pool(urllib3.PoolManager):
    """What the library takes for connections. ``region``: where it asks; of a bucket elsewhere Moved is raised."""

    def __init__(self, client: requests.Session, region: str = "", timeout: tuple[float, float] = http.TIMEOUT) -> None:
        super().__init__(num_pools=1)
        self._client, self._region, self._timeout = client, region, timeout

    def urlopen(  # type: ignore[override] # no more of it is used
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        body: str | bytes | None = None,
        preload_content: bool = True,
    ) -> urllib3.BaseHTTPResponse:
        # Host and agent are the client's own to say: after a redirect the host is another one.
        kept = {name: value for name, value in (headers or {}).items() if name not in ("Host", "User-Agent")}
        response = http.send(self._client, method, url, kept, body, self._timeout)
        raw: urllib3.BaseHTTPResponse = response.raw
        with http.connected():
            if preload_content or raw.status not in SUCCESS:
                raw.read(cache_content=True)
        region = raw.headers.get(REGION, self._region)
        if self._region and region != self._region and raw.status in ELSEWHERE:
            raise Moved(region)
        if response.is_redirect:
            raise LoadError(
                f"{http.host_of(url)} redirects to another host, to which no signed request is sent:"
                " name the store's own address as its endpoint"
            )
        told = XML in raw.headers.get("Content-Type", "").split(";") and raw.data
        if raw.status not in SUCCESS and not told:
            raise Refused(raw.status)
        return raw
