"""Google Cloud Storage: ``gs://BUCKET/FOLDER``, through its JSON API. The Google library only provides credentials."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from functools import partial
from urllib.parse import quote, urlencode

import google.auth
import requests
from google.auth import exceptions
from google.auth.transport.requests import Request
from requests.auth import AuthBase

from slipway.loader.sources import keys
from slipway.loader.transport import http
from slipway.loader.transport.digests import of_google
from slipway.loader.transport.errors import LoadError, TransientError
from slipway.loader.transport.identity import NO_IDENTITY_HINT
from slipway.loader.transport.source import Access, Body, Entry, Listing, Retry, Source, bounded

PUBLIC = "https://storage.googleapis.com"
KEY_FILE = "GOOGLE_APPLICATION_CREDENTIALS"
SCOPE = "https://www.googleapis.com/auth/devstorage.read_only"
FIELDS = "nextPageToken,items(name,size,md5Hash,crc32c,generation)"
RAW = {"Accept-Encoding": "gzip"}
"""Headers that request compressed objects in their stored form, because the listing has the size and the hash of that
form."""


class GoogleAuth(AuthBase):
    """Authentication with Google credentials, which are renewed automatically."""

    def __init__(self, credentials: google.auth.credentials.Credentials, request: Request) -> None:
        self._credentials, self._request = credentials, request
        self._lock = threading.Lock()

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        with self._lock:
            try:
                self._credentials.before_request(self._request, request.method, request.url, request.headers)
            except exceptions.TransportError as error:
                raise TransientError("Google's token service cannot be reached") from error
            except exceptions.GoogleAuthError as error:
                raise LoadError("Google rejects the credentials: check the key file in the Secret") from error
        return request


class GoogleBucket:
    def __init__(self, url: str, endpoint: str, client: requests.Session, access: Access) -> None:
        self._url, self._client, self._access = url, client, access
        self._bucket, self._prefix = keys.split(url)
        self._objects = f"{endpoint}/storage/v1/b/{quote(self._bucket, safe='')}/o"

    def listing(self, retry: Retry) -> Listing:
        """List the objects of the bucket's folder. Raise LoadError if there are none."""
        entries = bounded(self._entries(retry), self._url)
        if not entries:
            raise keys.no_files_error(self._url)
        return Listing("", entries)

    def _entries(self, retry: Retry) -> Iterator[Entry]:
        token = ""
        while True:
            query = {
                "prefix": keys.beginning(self._prefix),
                "fields": FIELDS,
                **({"pageToken": token} if token else {}),
            }
            address = f"{self._objects}?{urlencode(query)}"
            page = retry(partial(http.document, self._client, address, self._explain))
            yield from (entry for row in page.get("items", ()) if (entry := self._entry(row)))
            token = page.get("nextPageToken", "")
            if not token:
                return

    def read(self, entry: Entry, start: int) -> AbstractContextManager[Body]:
        """Open the listed generation of an object at offset ``start``. Raise LoadError if the object has been replaced
        since the listing, or TransientError."""
        return http.open_body(self._client, entry.locator, start, self._explain_read, RAW)

    def _entry(self, row: Mapping[str, str]) -> Entry | None:
        path = keys.path_of_key(row["name"], self._prefix)
        if path is None:
            return None
        locator = f"{self._objects}/{quote(row['name'], safe='')}?alt=media&generation={row['generation']}"
        digest = of_google(row.get("md5Hash", ""), row.get("crc32c", ""))
        return Entry(path, locator, int(row["size"]), digest, row["generation"])

    def _explain_read(self, response: requests.Response) -> str:
        """Return the reason for an error response. Raise LoadError if the object was deleted or replaced after the
        listing."""
        if response.status_code == 404:
            raise keys.changed_error(self._url)
        return self._explain(response)

    def _explain(self, response: requests.Response) -> str:
        status = response.status_code
        if status in (401, 403) and self._client.auth is None and not self._access.node_identity:
            return f"{self._url}: the store requires credentials: {NO_IDENTITY_HINT}"
        if status in (401, 403):
            return f"{self._url}: these credentials lack permission: grant them the role Storage Object Viewer"
        if status == 404:
            return f"{self._url}: no such bucket or object: check the address"
        return f"{self._url}: the store answers {status}: check the address"


def open_source(url: str, env: Mapping[str, str], access: Access) -> Source:
    """Return the source of a ``gs://`` URL. Raise LoadError."""
    emulator = env.get("STORAGE_EMULATOR_HOST", "")
    endpoint = emulator if "://" in emulator else f"http://{emulator}"
    address_policy = access.of(chosen=bool(emulator))
    if emulator:
        return GoogleBucket(url, endpoint.rstrip("/"), http.session(env, address_policy=address_policy), access)
    return GoogleBucket(url, PUBLIC, http.session(env, _credentials(url, env, access), address_policy), access)


def _credentials(url: str, env: Mapping[str, str], access: Access) -> AuthBase | None:
    """Return the credentials of the key file or, if ``access`` allows it, of the machine. Return None if there are
    none, because a public bucket needs none. Raise LoadError for an unusable key file."""
    key_file = env.get(KEY_FILE, "")
    if not key_file and not access.node_identity:
        return None
    # A key file contains the URLs at which it is exchanged for a token.
    request = Request(http.session(env, address_policy=access.of(chosen=True))) if key_file else Request()
    try:
        credentials, _project = google.auth.default(scopes=[SCOPE], request=request)
    except exceptions.GoogleAuthError as error:
        if not key_file:
            return None
        raise LoadError(f"{url}: {KEY_FILE} does not name a usable key file: check the Secret") from error
    return GoogleAuth(credentials, request)
