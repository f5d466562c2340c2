"""A small S3: buckets in memory, listings in pages, ranges, ETags, signatures that are checked."""

from __future__ import annotations

import hashlib
import hmac
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, quote, urlsplit
from xml.sax.saxutils import escape

from aiohttp import web


class Keys(NamedTuple):
    key: str
    secret: str


KEYS = Keys("AKIATEST", "test-secret-key")
PAGE = 2
XMLNS = "http://s3.amazonaws.com/doc/2006-03-01/"


def etag(body: bytes) -> str:
    return f'"{hashlib.md5(body).hexdigest()}"'  # noqa: S324


class Store:
    """``objects`` of the one bucket ``models``; ``etags`` where they are other than of a single upload."""

    def __init__(self, objects: dict[str, bytes], region: str = "us-east-1") -> None:
        self.objects = objects
        self.etags: dict[str, str] = {}
        self.headers: dict[str, str] = {}
        """Given with every object."""
        self.region = region

    def application(self) -> web.Application:
        app = web.Application()
        app.router.add_get("/{bucket:[^/]*}{slash:/?}{key:.*}", self._get)
        return app

    def etag(self, key: str) -> str:
        return self.etags.get(key) or etag(self.objects[key])

    async def _get(self, request: web.Request) -> web.StreamResponse:
        if fault := self._fault(request):
            return _error(*fault)
        if request.match_info["bucket"] != "models":
            return _error(404, "NoSuchBucket")
        key = request.match_info["key"]
        if not key:
            return self._list(request.query)
        if key not in self.objects:
            return _error(404, "NoSuchKey")
        if request.headers.get("If-Match", self.etag(key)) != self.etag(key):
            return _error(412, "PreconditionFailed")
        return self._object(request, key)

    def _object(self, request: web.Request, key: str) -> web.StreamResponse:
        body, headers = self.objects[key], {"ETag": self.etag(key), "Accept-Ranges": "bytes", **self.headers}
        part = request.http_range
        if part.start is None:
            return web.Response(body=body, headers=headers)
        if part.start >= len(body):
            return _error(416, "InvalidRange")
        headers["Content-Range"] = f"bytes {part.start}-{len(body) - 1}/{len(body)}"
        return web.Response(status=206, body=body[part.start :], headers=headers)

    def _list(self, query: Any) -> web.Response:
        after = "" if "continuation-token" in query else query.get("start-after", "")
        keys = [key for key in sorted(self.objects) if key.startswith(query.get("prefix", "")) and key > after]
        start = int(query.get("continuation-token", "0"))
        rows = "".join(
            f"<Contents><Key>{escape(key)}</Key><Size>{len(self.objects[key])}</Size>"
            f"<ETag>{escape(self.etag(key))}</ETag></Contents>"
            for key in keys[start : start + PAGE]
        )
        more = start + PAGE < len(keys)
        after = f"<NextContinuationToken>{start + PAGE}</NextContinuationToken>" if more else ""
        state = f"<Name>models</Name><IsTruncated>{str(more).lower()}</IsTruncated>"
        text = f'<ListBucketResult xmlns="{XMLNS}">{state}{after}{rows}'
        return web.Response(text=f"{text}</ListBucketResult>", content_type="application/xml")

    def _fault(self, request: web.Request) -> tuple[int, str] | tuple[int, str, str] | None:
        given = request.headers.get("Authorization", "")
        if not given:
            return 403, "AccessDenied"
        if f"Credential={KEYS.key}/" not in given:
            return 403, "InvalidAccessKeyId"
        if f"/{self.region}/s3/aws4_request," not in given:
            return 400, "AuthorizationHeaderMalformed", f"<Region>{self.region}</Region>"
        return (
            None if given.endswith(f"Signature={self._signature(request, given)}") else (403, "SignatureDoesNotMatch")
        )

    def _signature(self, request: web.Request, given: str) -> str:
        """What Amazon's version 4 asks for, of a request for this region."""
        names = given.split("SignedHeaders=")[1].partition(",")[0]
        url = urlsplit(request.raw_path)
        query = sorted(parse_qsl(url.query, keep_blank_values=True))
        query_string = "&".join(f"{quote(name, safe='-_.~')}={quote(value, safe='-_.~')}" for name, value in query)
        headers = "".join(f"{name}:{request.headers.get(name, '').strip()}\n" for name in names.split(";"))
        content = request.headers["x-amz-content-sha256"]
        canonical = f"{request.method}\n{url.path}\n{query_string}\n{headers}\n{names}\n{content}"
        date = request.headers["x-amz-date"]
        scope = [date[:8], self.region, "s3", "aws4_request"]
        digest = hashlib.sha256(canonical.encode()).hexdigest()
        key = f"AWS4{KEYS.secret}".encode()
        for word in (*scope, f"AWS4-HMAC-SHA256\n{date}\n{'/'.join(scope)}\n{digest}"):
            key = hmac.digest(key, word.encode(), "sha256")
        return key.hex()


def _error(status: int, code: str, more: str = "") -> web.Response:
    text = f"<Error><Code>{code}</Code><Message>{code}</Message>{more}</Error>"
    return web.Response(status=status, text=text, content_type="application/xml")
