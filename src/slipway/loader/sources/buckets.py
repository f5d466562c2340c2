"""Buckets with the S3 protocol: ``s3://BUCKET/FOLDER`` and, through its S3 endpoint, Alibaba Cloud's
``oss://BUCKET/FOLDER``.

MinIO's library signs requests, lists objects and reads them, with the HTTP session that all sources share.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar
from urllib.parse import urlsplit
from xml.etree import ElementTree as ET

import urllib3
from minio import Minio, S3Error
from minio.credentials.providers import Provider, StaticProvider
from minio.datatypes import Object
from minio.helpers import check_bucket_name

from slipway.artifacts.locations.redaction import WEB
from slipway.loader.sources import keys
from slipway.loader.transport import http, identity
from slipway.loader.transport.digests import Digest, Kind
from slipway.loader.transport.errors import LoadError, TransientError
from slipway.loader.transport.pool import HttpStatusError, Pool, WrongRegionError
from slipway.loader.transport.source import Access, Body, Entry, Listing, Retry, Source, bounded

T = TypeVar("T")
MD5 = re.compile(r"[0-9a-f]{32}")
"""Pattern of an ETag that is the MD5 of an unencrypted object, because the object was uploaded in one part. After a
multipart upload, the ETag ends with the number of parts."""
OPAQUE = ("aws:kms", "aws:kms:dsse")
"""Kinds of encryption for which an ETag looks like an MD5 but is not one."""
BUSY = ("SlowDown", "RequestTimeout", "Throttling", "InternalError", "ServiceUnavailable")
ELSEWHERE = ("AuthorizationHeaderMalformed", "PermanentRedirect", "IncorrectEndpoint")
"""Error codes for a bucket in another region."""
UNREADABLE = "\ufffd"
"""Character that replaces, in a store's listing, a character that XML does not allow."""
UNKNOWN_USER = ("InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken", "InvalidToken")
ALONE = re.compile(r"\[.*\]|[\d.]+|localhost")
"""Pattern of hosts to which the name of a bucket cannot be prepended."""


class Bucket:
    def __init__(
        self,
        url: str,
        endpoint: str,
        region: str,
        env: Mapping[str, str],
        who: Callable[[], Provider | None],
        access: Access,
        *,
        chosen: bool,
        in_host: bool | None = None,
    ) -> None:
        """Prepare access to the bucket. ``region`` is the region for which requests are signed. ``who`` returns the
        provider of credentials; None: requests are not signed. ``chosen``: whether the author of the spec chooses the
        endpoint, so the address policy applies to it. ``in_host``: whether the bucket's name is part of the host; None:
        the library decides. Raise LoadError for an invalid bucket or endpoint."""
        self._url, self._in_host, self._access = url, in_host, access
        self._bucket, self._prefix = keys.split(url)
        self._endpoint = urlsplit(endpoint)
        if self._endpoint.scheme not in WEB:
            raise LoadError(f"{url}: the store's endpoint must begin with https:// or http://")
        self._session = http.session(env, address_policy=access.of(chosen=chosen), stays=True)
        self._session.verify = env.get("AWS_CA_BUNDLE") or self._session.verify
        self._who = who
        self._provider: Provider | None = None
        self._client = self._opened(region)

    def listing(self, retry: Retry) -> Listing:
        """List the objects of the bucket's folder. Raise LoadError if there are none."""
        self._provider = retry(self._who)
        self._client = self._opened(self._region)
        cursor = Rows(self._rows)
        rows = iter(partial(retry, partial(self._request, cursor.following)), None)
        entries = bounded((entry for row in rows if (entry := self._entry(row))), self._url)
        if not entries:
            raise keys.no_files_error(self._url)
        return Listing("", entries)

    @contextmanager
    def read(self, entry: Entry, start: int) -> Iterator[Body]:
        """Open a listed object at offset ``start``, or at 0 if the store rejects the range. Raise LoadError if the
        object has been replaced since the listing, or TransientError."""
        raw = self._request(partial(self._object, entry, start), listed=True)
        try:
            yield http.HttpBody(raw, verifiable=not _encrypted(raw))
        finally:
            raw.close()
            raw.release_conn()

    def _opened(self, region: str) -> Minio:
        """Return a client for a region. Raise LoadError if the library rejects the bucket or the endpoint."""
        self._region = region
        try:
            check_bucket_name(self._bucket)
            client = Minio(
                self._endpoint.netloc + self._endpoint.path.rstrip("/"),
                region=region,
                secure=self._endpoint.scheme == "https",
                credentials=self._provider,
                http_client=Pool(self._session, region),
            )
        except ValueError as error:
            raise LoadError(f"{self._url} at {self._endpoint.hostname} cannot be reached: {error}") from error
        if self._in_host is True:
            client.enable_virtual_style_endpoint()
        if self._in_host is False:
            client.disable_virtual_style_endpoint()
        return client

    def _rows(self, last: str | None) -> Iterator[Object]:
        # Not URL-encoded: a name that XML cannot contain is not the name of a model file.
        rows: Iterator[Object] = self._client.list_objects(
            self._bucket, keys.beginning(self._prefix), recursive=True, start_after=last, use_url_encoding_type=False
        )
        return rows

    def _object(self, entry: Entry, start: int) -> urllib3.BaseHTTPResponse:
        """Request an object from offset ``start`` on, or from 0 if the store rejects the range."""
        match: dict[str, Any] = {"If-Match": entry.version} if entry.version else {}
        try:
            return self._client.get_object(self._bucket, entry.locator, start, request_headers=match)
        except (S3Error, HttpStatusError) as error:
            if not start or _status(error) != 416:
                raise
        return self._client.get_object(self._bucket, entry.locator, request_headers=match)

    def _request(self, question: Callable[[], T], *, listed: bool = False) -> T:
        """Call ``question``, which sends requests through the library, and return its result. If the bucket is in
        another region, call ``question`` once more. ``listed``: whether the request is for an object of the listing.
        Raise LoadError or TransientError."""
        try:
            for _unused in range(2):
                try:
                    return question()
                except WrongRegionError as moved:
                    self._client = self._opened(moved.region)
        except (S3Error, HttpStatusError) as error:
            raise self._fault(error, listed=listed) from None
        except (ET.ParseError, UnicodeDecodeError) as error:
            raise TransientError("the store does not speak the S3 protocol") from error
        raise LoadError(f"{self._url}: the store redirects from region to region: set AWS_REGION to the bucket's")

    def _entry(self, row: Object) -> Entry | None:
        key, tag = row.object_name or "", row.etag or ""
        path = keys.path_of_key(key, self._prefix)
        if path is None:
            return None
        if UNREADABLE in key:
            raise LoadError(f"{self._url}: {key!r} has a character that a listing cannot contain: rename the file")
        digest = Digest(Kind.MD5, tag.lower()) if MD5.fullmatch(tag.lower()) else None
        return Entry(path, key, row.size or 0, digest, f'"{tag}"' if tag else "")

    def _fault(self, error: S3Error | HttpStatusError, *, listed: bool) -> Exception:
        status, code = _status(error), (error.code or "" if isinstance(error, S3Error) else "")
        if code in BUSY:
            return TransientError(f"the store answers {status} {code}")
        if code == "RequestTimeTooSkewed":
            return TransientError("the clocks of this node and the store differ by minutes: synchronize them (NTP)")
        if status == 412 or (listed and code == "NoSuchKey"):
            return keys.changed_error(self._url)
        return LoadError(self._refusal(status, code))

    def _refusal(self, status: int, code: str) -> str:
        if code == "NoSuchBucket":
            return f"bucket {self._bucket} does not exist: check the address, the region and the endpoint"
        if code in ELSEWHERE:
            variable = "OSS_REGION" if self._url.startswith("oss://") else "AWS_REGION"
            return f"{self._url} is not in region {self._region}: set {variable} to the bucket's region"
        if code in UNKNOWN_USER:
            return f"{self._url}: the store rejects the credentials ({code}): check the Secret"
        if status in (401, 403) and self._provider is None and not self._access.node_identity:
            return f"{self._url}: the store requires credentials: {identity.NO_IDENTITY_HINT}"
        if status in (401, 403):
            return f"{self._url}: these credentials lack permission: grant them list and read"
        return f"{self._url}: the store answers {status} {code}: check the address"


class Rows:
    """The objects of a listing, in order. After a failure, the listing continues after the last object that it
    returned."""

    def __init__(self, start: Callable[[str | None], Iterator[Object]]) -> None:
        self._start = start
        self._rows: Iterator[Object] | None = None
        self._last: str | None = None

    def following(self) -> Object | None:
        """Return the next object, or None after the last one."""
        rows, self._rows = self._rows or self._start(self._last), None
        row = next(rows, None)
        if row is not None:
            self._rows, self._last = rows, row.object_name
        return row


def _status(error: S3Error | HttpStatusError) -> int:
    return error.status if isinstance(error, HttpStatusError) else error.response.status


def _encrypted(raw: urllib3.BaseHTTPResponse) -> bool:
    """Whether the object is encrypted with a key, so that its ETag is not the MD5 of its bytes."""
    by_customer = "x-amz-server-side-encryption-customer-algorithm" in raw.headers
    return by_customer or raw.headers.get("x-amz-server-side-encryption") in OPAQUE


def open_source(url: str, env: Mapping[str, str], access: Access) -> Source:
    """Return the source of an ``s3://`` or ``oss://`` URL. Raise LoadError."""
    if url.startswith("oss://"):
        return _alibaba(url, env, access)
    region = env.get("AWS_REGION") or env.get("AWS_DEFAULT_REGION") or "us-east-1"
    endpoint = env.get("AWS_ENDPOINT_URL_S3") or env.get("AWS_ENDPOINT_URL")
    who = partial(identity.find, env, region, access)
    return Bucket(url, endpoint or "https://s3.amazonaws.com", region, env, who, access, chosen=bool(endpoint))


def _alibaba(url: str, env: Mapping[str, str], access: Access) -> Source:
    """Return the source of an ``oss://`` URL. Alibaba Cloud accepts the bucket's name only as part of the host. Raise
    LoadError."""
    region, endpoint = env.get("OSS_REGION", "").removeprefix("oss-"), env.get("OSS_ENDPOINT", "")
    missing = [name for name in ("OSS_ACCESS_KEY_ID", "OSS_ACCESS_KEY_SECRET") if not env.get(name)]
    missing += [] if region or endpoint else ["OSS_REGION"]
    if missing:
        raise LoadError(f"{url}: set {', '.join(missing)} in the environment")
    endpoint = endpoint or f"s3.oss-{region}.aliyuncs.com"
    endpoint = endpoint if "://" in endpoint else f"https://{endpoint}"
    provider = StaticProvider(
        env["OSS_ACCESS_KEY_ID"], env["OSS_ACCESS_KEY_SECRET"], env.get("OSS_SESSION_TOKEN") or None
    )
    in_host = not ALONE.fullmatch(urlsplit(endpoint).hostname or "")
    return Bucket(url, endpoint, region or "cn-hangzhou", env, lambda: provider, access, chosen=True, in_host=in_host)
