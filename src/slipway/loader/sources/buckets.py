"""Buckets that speak the S3 protocol: ``s3://BUCKET/FOLDER`` and, by its S3 endpoint, Alibaba's ``oss://BUCKET/FOLDER``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import AbstractContextManager
from functools import partial
from urllib.parse import quote, urlencode, urlsplit
from xml.etree import ElementTree as ET

import requests

from slipway.loader.digests import Digest, Kind
from slipway.loader.errors import LoadError, PassingError
from slipway.loader.source import Body, Entry, Listing, Patiently, Source
from slipway.loader.sources import http, keys
from slipway.loader.sources.identity import Identity, lookup
from slipway.loader.sources.signature import Credentials, Signed

MD5 = re.compile(r"[0-9a-f]{32}")
"""The ETag of an object that was uploaded in one piece. Of several pieces it ends with their number."""
OPAQUE = ("aws:kms", "aws:kms:dsse")
"""Encryption under which an ETag looks like an MD5 and is none."""
BUSY = ("SlowDown", "RequestTimeout", "RequestTimeTooSkewed", "Throttling", "InternalError", "ServiceUnavailable")
UNKNOWN_USER = ("InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken", "InvalidToken")
REGION = "x-amz-bucket-region"
ALONE = re.compile(r"\[.*\]|[\d.]+|localhost")
"""Hosts that no bucket's name can be put before."""


class Bucket:
    def __init__(self, url: str, endpoint: str, *, bucket_in_host: bool, auth: Signed, env: Mapping[str, str]) -> None:
        self._url, self._auth = url, auth
        self._bucket, self._prefix = keys.split(url)
        self._endpoint, self._bucket_in_host = endpoint.rstrip("/"), bucket_in_host
        self._client = http.session(env, auth)
        self._client.verify = env.get("AWS_CA_BUNDLE") or self._client.verify

    def listing(self, patiently: Patiently) -> Listing:
        entries: list[Entry] = []
        token = ""
        while True:
            query = {"list-type": "2", "prefix": self._prefix, **({"continuation-token": token} if token else {})}
            page = patiently(partial(self._page, query))
            entries += [entry for row in page.iter("Contents") if (entry := self._entry(row))]
            token = page.findtext("NextContinuationToken", "") if page.findtext("IsTruncated") == "true" else ""
            if not token:
                break
        if not entries:
            raise keys.nothing(self._url)
        return Listing("", tuple(entries))

    def read(self, entry: Entry, start: int) -> AbstractContextManager[Body]:
        """Of another version that came meanwhile nothing is read."""
        url = f"{self._top()}/{quote(entry.locator, safe='/-_.~')}"
        return http.read(self._client, url, start, self._explain, {"If-Match": entry.version}, opaque=_encrypted)

    def _top(self) -> str:
        if not self._bucket_in_host:
            return f"{self._endpoint}/{self._bucket}"
        scheme, _separator, host = self._endpoint.partition("://")
        return f"{scheme}://{self._bucket}.{host}"

    def _page(self, query: Mapping[str, str]) -> ET.Element:
        """One page of the listing. The first one may have to be asked for in the bucket's own region."""
        for _unused in range(2):
            with http.get(
                self._client, f"{self._top()}/?{urlencode(query)}", self._explain, also=self._moved
            ) as answer:
                if not self._moved(answer):
                    return _document(http.content(answer))
                region = answer.headers[REGION]
            self._endpoint = self._endpoint.replace(f".{self._auth.region}.", f".{region}.")
            self._auth.region = region
        raise LoadError(f"{self._url}: the store sends from one region to another: set AWS_REGION to the bucket's")

    def _moved(self, answer: requests.Response) -> bool:
        elsewhere = answer.headers.get(REGION, self._auth.region) != self._auth.region
        return elsewhere and answer.status_code in (301, 307, 400, 403)

    def _entry(self, row: ET.Element) -> Entry | None:
        key, tag = row.findtext("Key", ""), row.findtext("ETag", "")
        path = keys.place(key, self._prefix)
        if path is None:
            return None
        bare = tag.strip('"').lower()
        digest = Digest(Kind.MD5, bare) if MD5.fullmatch(bare) else None
        return Entry(path, key, int(row.findtext("Size", "0")), digest, tag)

    def _explain(self, answer: requests.Response) -> str:
        code, status = _code(answer), answer.status_code
        if code in BUSY:
            raise PassingError(f"{self._url}: the store answers {status} {code}")
        if status == 412:
            raise LoadError(f"{self._url} changed while it was loaded: load again", passing=True)
        if code == "NoSuchBucket":
            return f"there is no bucket {self._bucket}: check the address, the region and the endpoint"
        if code in UNKNOWN_USER:
            return f"{self._url}: the store does not accept the credentials ({code}): check the Secret"
        if status in (401, 403):
            return f"{self._url}: these credentials may not list and read it: grant them both"
        return f"{self._url}: the store refuses with {status} {code}: check the address"


def _encrypted(answer: requests.Response) -> bool:
    """Whether the bucket keeps the object under a key, so that its ETag says nothing of its bytes."""
    by_customer = "x-amz-server-side-encryption-customer-algorithm" in answer.headers
    return by_customer or answer.headers.get("x-amz-server-side-encryption") in OPAQUE


def _document(content: bytes) -> ET.Element:
    """XML without its namespace, which not every store has."""
    try:
        root = ET.fromstring(content)  # noqa: S314 - expat refuses documents that grow
    except ET.ParseError as error:
        raise PassingError("the store does not list its objects") from error
    for element in root.iter():
        element.tag = element.tag.rpartition("}")[2]
    return root


def _code(answer: requests.Response) -> str:
    try:
        return _document(http.content(answer)).findtext("Code", "")
    except PassingError:
        return ""


def open_source(url: str, env: Mapping[str, str]) -> Source:
    if url.startswith("oss://"):
        return _alibaba(url, env)
    region = env.get("AWS_REGION") or env.get("AWS_DEFAULT_REGION") or "us-east-1"
    auth = Signed(Identity(lookup(env, region)), region)
    own = env.get("AWS_ENDPOINT_URL_S3") or env.get("AWS_ENDPOINT_URL")
    # A bucket with dots in its name has no certificate of its own.
    in_host = not own and "." not in keys.split(url)[0]
    return Bucket(url, own or f"https://s3.{region}.amazonaws.com", bucket_in_host=in_host, auth=auth, env=env)


def _alibaba(url: str, env: Mapping[str, str]) -> Source:
    """It takes buckets in the host's name only."""
    region, endpoint = env.get("OSS_REGION", "").removeprefix("oss-"), env.get("OSS_ENDPOINT", "")
    missing = [name for name in ("OSS_ACCESS_KEY_ID", "OSS_ACCESS_KEY_SECRET") if not env.get(name)]
    missing += [] if region or endpoint else ["OSS_REGION"]
    if missing:
        raise LoadError(f"{url}: the environment lacks {', '.join(missing)}")
    endpoint = endpoint or f"s3.oss-{region}.aliyuncs.com"
    endpoint = endpoint if "://" in endpoint else f"https://{endpoint}"
    found = Credentials(env["OSS_ACCESS_KEY_ID"], env["OSS_ACCESS_KEY_SECRET"], env.get("OSS_SESSION_TOKEN", ""))
    in_host = not ALONE.fullmatch(urlsplit(endpoint).hostname or "")
    return Bucket(url, endpoint, bucket_in_host=in_host, auth=Signed(lambda: found, region or "cn-hangzhou"), env=env)
