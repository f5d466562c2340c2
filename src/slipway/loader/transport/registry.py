"""Registry: accesses one repository of an OCI registry with the session that all sources use.

Blobs are streamed in both directions, at any length. An interrupted upload continues at the offset that the registry
reports. The registry's token service issues tokens for five minutes, according to Docker's protocol.
"""

from __future__ import annotations

import hashlib
import os
import re
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode, urljoin, urlsplit

import msgspec
import requests

from slipway.artifacts.locations.address_policy import AddressPolicy
from slipway.artifacts.locations.references import Reference
from slipway.decoding import DecodingError, decode_json
from slipway.loader.transport import http
from slipway.loader.transport.errors import LoadError, StoppedError, TransientError
from slipway.loader.transport.selection import FaultError
from slipway.loader.transport.source import Body

CA = "SLIPWAY_REGISTRY_CA"
"""Environment variable with the CA certificate of the registry and its token service, in PEM format."""
TOKEN_FILE = "SLIPWAY_DEPOT_TOKEN_FILE"  # noqa: S105 - the variable's name
"""Environment variable: file with the token of the pod's service account, for the token service."""
REALM = "SLIPWAY_REGISTRY_REALM"
"""Environment variable: host and port of the token service, if it is neither the registry itself nor in its
namespace."""
STREAM = (30.0, 120.0)
"""Seconds to connect or to wait until the registry accepts more bytes, and to wait for its response."""
COMMIT = (30.0, 3600.0)
"""Like :data:`STREAM`, for the end of an upload, when the registry may read all of it again."""
READ_ONLY_SECONDS = 3600.0
"""How long to wait for a registry that is read-only during garbage collection."""
READ_ONLY_PAUSE = 5.0
LARGEST_MANIFEST = 16 << 20
"""Maximum size of a manifest. Registries accept 4 MiB; the largest of ours are upload sessions."""
LARGEST_ANSWER = 1 << 16
FRESH = 60.0
"""Remaining seconds of validity that a token needs when a request starts."""
MANIFESTS = (
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.v2+json",
)
OCTETS = "application/octet-stream"
MISSING = (HTTPStatus.NOT_FOUND,)
UPLOAD_GONE = (HTTPStatus.NOT_FOUND, HTTPStatus.BAD_REQUEST, HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE)
"""Status codes for an upload that the registry does not know, or knows in another state."""
FULL = ("no space left on device", "disk quota exceeded", "quota exceeded")
_CHALLENGE = re.compile(r'(\w+)="([^"]*)"')
_RANGE = re.compile(r"(?:bytes=)?0-(\d+)")


class UploadGoneError(Exception):
    """The registry does not know the upload, or has another state of it, so it must start again."""


class BlobsGoneError(LoadError):
    """A manifest refers to blobs that the registry does not have, for example because they were garbage collected
    before."""


class Manifest(msgspec.Struct, frozen=True):
    content: bytes
    digest: str
    """The digest as computed from the content."""
    media_type: str


class Progress(msgspec.Struct, frozen=True):
    """An upload in progress."""

    location: str
    offset: int
    """Number of bytes that the registry has."""


class _Token(msgspec.Struct, frozen=True):
    token: str = ""
    access_token: str = ""
    expires_in: int = 60


class Credentials(msgspec.Struct, frozen=True):
    """The credentials for a token service; empty: anonymous."""

    token_file: str = ""
    """Read again for each token, because Kubernetes renews it."""
    granted: Callable[[], str] | None = None
    """Returns a token for the registry itself, if another service issues it."""

    def header(self) -> dict[str, str]:
        """Returns the header for the token service. Raises LoadError if the file cannot be read."""
        if not self.token_file:
            return {}
        try:
            text = Path(self.token_file).read_text("ascii").strip()
        except (OSError, ValueError) as error:
            raise LoadError(f"cannot read the service account's token at {self.token_file}", transient=True) from error
        return {"Authorization": f"Bearer {text}"}


class Registry:
    """Can be used from several threads at once. Methods raise LoadError for a rejection, TransientError for errors that
    may disappear with another attempt."""

    def __init__(
        self,
        reference: Reference,
        env: Mapping[str, str],
        credentials: Credentials | None = None,
        *,
        ca: str | None = None,
        address_policy: AddressPolicy | None = None,
        stop: threading.Event | None = None,
        note: Callable[[str], None] = lambda _text: None,
    ) -> None:
        """``ca``: CA certificate in PEM format, replaces the environment's. ``note`` receives the reason while it
        waits."""
        self.host, self.repository = reference.host, reference.repository
        scheme = "http" if loopback(self.host) else "https"
        self._base = f"{scheme}://{self.host}"
        self._root = f"{self._base}/v2/{self.repository}/"
        self._credentials = credentials or Credentials(env.get(TOKEN_FILE, ""))
        self._realms = {self.host, *filter(None, [env.get(REALM, "")])}
        self._stop, self._note = stop or threading.Event(), note
        self._client = session(env, env.get(CA, "") if ca is None else ca, address_policy)
        self._lock = threading.Lock()
        self._token, self._until = "", 0.0
        self._challenge: dict[str, str] = {}
        self._scopes: dict[str, set[str]] = defaultdict(set)

    def size(self, digest: str) -> int | None:
        """Returns the size of a blob; None if the registry has none with this digest."""
        with self._request("HEAD", f"blobs/{digest}", allowed=MISSING) as answer:
            length = answer.headers.get("Content-Length", "")
            return int(length) if answer.ok and length.isdigit() else None

    @contextmanager
    def blob(self, digest: str, start: int = 0) -> Iterator[Body]:
        """Opens a blob from ``start`` on."""
        headers = {"Range": f"bytes={start}-"} if start else {}
        with self._request("GET", f"blobs/{digest}", headers) as answer:
            yield http.HttpBody(answer.raw)

    def mount(self, digest: str, repository: str) -> bool:
        """Mounts a blob from another repository of the registry. Returns whether the registry did so."""
        query = urlencode({"mount": digest, "from": repository})
        with self._request("POST", f"blobs/uploads/?{query}") as answer:
            if answer.status_code == HTTPStatus.CREATED:
                return True
            location = self._location(answer)
        self.cancel(location)
        return False

    def begin(self) -> str:
        """Starts a new upload. Returns its location."""
        with self._request("POST", "blobs/uploads/", {"Content-Length": "0"}) as answer:
            return self._location(answer)

    def progress(self, location: str) -> Progress:
        """Returns the progress of an upload. Raises UploadGoneError."""
        with self._request("GET", self._checked(location), allowed=UPLOAD_GONE) as answer:
            if not answer.ok:
                raise UploadGoneError
            match = _RANGE.fullmatch(answer.headers.get("Range", ""))
            # One byte and none look the same: an upload of one byte is rejected later, and starts again.
            last = int(match[1]) if match else 0
            return Progress(self._location(answer), last + 1 if last else 0)

    def send(self, upload: Progress, body: Iterator[bytes], size: int) -> Progress:
        """Sends ``size`` bytes. Raises UploadGoneError if there is no such upload, TransientError if the registry is at
        another offset."""
        end = upload.offset + size
        headers = {"Content-Type": OCTETS, "Content-Range": f"{upload.offset}-{end - 1}"}
        stream = _Stream(body, size)
        with self._request("PATCH", upload.location, headers, stream, allowed=UPLOAD_GONE, timeout=STREAM) as answer:
            if answer.status_code == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE and upload.offset:
                raise TransientError(f"{self.host} has a different number of bytes")
            if not answer.ok:
                raise UploadGoneError
            return Progress(self._location(answer), end)

    def commit(self, location: str, digest: str) -> None:
        """Turns the upload into a blob. Raises UploadGoneError if it does not match its digest, or no longer exists."""
        place = f"{location}{'&' if '?' in location else '?'}{urlencode({'digest': digest})}"
        headers = {"Content-Length": "0", "Content-Type": OCTETS}
        with self._request("PUT", place, headers, allowed=UPLOAD_GONE, timeout=COMMIT) as answer:
            if not answer.ok:
                raise UploadGoneError

    def cancel(self, location: str) -> None:
        """Deletes an upload."""
        with self._request("DELETE", self._checked(location), allowed=UPLOAD_GONE):
            pass

    def put_blob(self, content: bytes, digest: str) -> None:
        """Uploads a small blob, unless it exists."""
        if self.size(digest) is None:
            self.commit(self.send(Progress(self.begin(), 0), iter([content]), len(content)).location, digest)

    def manifest(self, version: str) -> Manifest | None:
        """Returns the manifest for a tag or a digest; digests are verified. None if there is none."""
        headers = {"Accept": ", ".join(MANIFESTS)}
        with self._request("GET", f"manifests/{version}", headers, allowed=MISSING) as answer:
            if not answer.ok:
                return None
            content = http.content(answer, LARGEST_MANIFEST)
            digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
            if ":" in version and digest != version:
                raise FaultError("IntegrityCheckFailed", f"{self.host} has another manifest as {version}")
            return Manifest(content, digest, answer.headers.get("Content-Type", "").partition(";")[0])

    def put_manifest(self, version: str, content: bytes, media_type: str) -> None:
        """Writes a manifest under a tag or its digest. Raises BlobsGoneError if it refers to missing blobs."""
        headers = {"Content-Type": media_type}
        with self._request("PUT", f"manifests/{version}", headers, content):
            pass

    def delete_manifest(self, digest: str) -> bool:
        """Deletes a manifest. Returns whether it existed."""
        with self._request("DELETE", f"manifests/{digest}", allowed=MISSING) as answer:
            return answer.ok

    @contextmanager
    def _request(
        self,
        method: str,
        path: str,
        headers: Mapping[str, str] | None = None,
        body: Any = None,
        *,
        allowed: Collection[int] = (),
        timeout: tuple[float, float] = http.TIMEOUT,
    ) -> Iterator[requests.Response]:
        """Sends a request and yields the response: a success, or one of the ``allowed`` statuses. Waits while a
        registry is read-only. A streamed body is sent once: if that fails, TransientError is raised."""
        url, began, authorized = urljoin(self._root, path), time.monotonic(), False
        while True:
            self._renew()
            with http.send(self._client, method, url, {**(headers or {}), **self._proof()}, body, timeout) as response:
                codes = [] if response.ok or method == "HEAD" else _codes(response)
                if response.status_code == HTTPStatus.UNAUTHORIZED and not authorized:
                    authorized = True
                    self._authorize(response)
                elif response.status_code == HTTPStatus.METHOD_NOT_ALLOWED and "UNSUPPORTED" not in codes:
                    self._wait(began)
                elif response.is_redirect or not (response.ok or response.status_code in allowed):
                    raise self._refusal(response, codes)
                else:
                    yield response
                    return
                if isinstance(body, _Stream):
                    raise TransientError(f"{self.host} has not accepted the bytes yet")

    def _wait(self, began: float) -> None:
        if time.monotonic() - began > READ_ONLY_SECONDS:
            raise LoadError(f"{self.host} rejects writes: check whether it is read-only", transient=True)
        self._note(f"waiting for {self.host}, which is read-only at the moment")
        if self._stop.wait(READ_ONLY_PAUSE):
            raise StoppedError

    def _refusal(self, response: requests.Response, codes: Sequence[str]) -> LoadError:
        status, challenge = response.status_code, response.headers.get("WWW-Authenticate", "")
        reason = f"{status} {' '.join(codes)}".strip()
        name = f"{self.host}/{self.repository}"
        if status == HTTPStatus.FORBIDDEN or "DENIED" in codes or "insufficient_scope" in challenge:
            return LoadError(f"{name}: this pod's service account has no permission ({reason}): check its namespace")
        if status == HTTPStatus.UNAUTHORIZED:
            return LoadError(f"{name}: the registry does not accept the token ({reason}): check the depot's keys")
        if "MANIFEST_BLOB_UNKNOWN" in codes:
            return BlobsGoneError(f"{name}: blobs were collected before they were referenced: retry", transient=True)
        if status == HTTPStatus.NOT_FOUND:
            return FaultError("SourceNotFound", f"{name}: the registry does not have it ({reason})")
        return LoadError(f"{name}: the registry answers {reason}: check its log", transient=status >= 500)

    def _location(self, answer: requests.Response) -> str:
        return self._checked(urljoin(answer.url, answer.headers.get("Location", "")))

    def _checked(self, location: str) -> str:
        """Returns an upload's location as a URL of this registry, which may call itself differently behind a proxy.
        Raises LoadError if it is not an upload of this repository."""
        parts = urlsplit(urljoin(self._base, location))
        if not parts.path.startswith(f"/v2/{self.repository}/blobs/uploads/") or ".." in parts.path.split("/"):
            raise LoadError(f"{self.host} sent an address that is of no upload to {self.repository}")
        return f"{self._base}{parts.path}{'?' if parts.query else ''}{parts.query}"

    def _proof(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self._token}"} if self._token else {}

    def _renew(self) -> None:
        """Renews the token before it expires, because a rejected stream has been sent in vain."""
        with self._lock:
            if self._challenge and time.monotonic() > self._until - FRESH:
                self._fetch()

    def _authorize(self, response: requests.Response) -> None:
        """Requests a token as the registry demands. Raises LoadError for an unsupported scheme."""
        if self._credentials.granted is not None:
            with self._lock:
                self._token = self._credentials.granted()
            return
        header = response.headers.get("WWW-Authenticate", "")
        scheme, _space, rest = header.partition(" ")
        challenge = dict(_CHALLENGE.findall(rest))
        if scheme.lower() != "bearer" or "realm" not in challenge:
            raise LoadError(f"{self.host} asks for credentials in a way that is not supported: it must use tokens")
        with self._lock:
            self._challenge = {name: challenge[name] for name in ("realm", "service") if name in challenge}
            for scope in challenge.get("scope", "").split():
                name, _colon, actions = scope.rpartition(":")
                self._scopes[name].update(actions.split(","))
            self._fetch()

    def _fetch(self) -> None:
        realm = self._challenge["realm"]
        self._check_realm(realm)
        parameters = [("service", self._challenge.get("service", ""))]
        parameters += [("scope", f"{name}:{','.join(sorted(actions))}") for name, actions in self._scopes.items()]
        parts = urlsplit(realm)
        query = urlencode([*((k, v) for k, vs in parse_qs(parts.query).items() for v in vs), *parameters])
        url = f"{parts.scheme}://{parts.netloc}{parts.path}?{query}"
        with http.send(self._client, "GET", url, self._credentials.header()) as answer:
            if answer.is_redirect or not answer.ok:
                raise LoadError(f"{http.host_of(realm)} gives no token for {self.repository} ({answer.status_code})")
            try:
                reply = decode_json(http.content(answer, LARGEST_ANSWER), _Token, most=LARGEST_ANSWER)
            except DecodingError as error:
                raise TransientError(f"{http.host_of(realm)} did not answer with a token") from error
        self._token = reply.token or reply.access_token
        # A token with a shorter lifetime would be renewed before every request.
        self._until = time.monotonic() + max(reply.expires_in, 2 * FRESH)

    def _check_realm(self, realm: str) -> None:
        """Raises LoadError for an untrusted token service: an attacker who answers in the registry's place must not get
        the pod's token."""
        parts = urlsplit(realm)
        secure = parts.scheme == "https" or (parts.scheme == "http" and loopback(parts.netloc))
        trusted = parts.netloc in self._realms or _neighbours(parts.hostname or "", urlsplit(self._base).hostname or "")
        if not secure or not trusted or parts.username is not None:
            raise LoadError(
                f"{self.host} sends for tokens to {parts.netloc.rpartition('@')[2]!r}, which is not trusted:"
                f" if it is correct, set {REALM} to its host"
            )


class _Stream:
    """A body of known length. It has no ``read``, which would make the HTTP library send small pieces."""

    def __init__(self, chunks: Iterator[bytes], size: int) -> None:
        self._chunks, self._size = chunks, size

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[bytes]:
        return self._chunks


def session(env: Mapping[str, str], ca: str, address_policy: AddressPolicy | None = None) -> http.Session:
    """Returns an HTTP session for registries. ``ca``: the only trusted CA certificate in PEM format; empty: those of
    the environment."""
    client = http.session(env, address_policy=address_policy)
    client.hooks["response"].append(_room)
    if ca:
        handle = os.memfd_create("registry-ca", os.MFD_CLOEXEC)
        os.write(handle, ca.encode())
        client.trusted = f"/proc/self/fd/{handle}"
    return client


def _room(response: requests.Response, **_options: Any) -> None:
    """Raises FaultError if the registry's storage is full; called for each response."""
    if response.status_code < 500:
        return
    text = response.raw.read(LARGEST_ANSWER, decode_content=True) or b""
    message = text.decode("utf-8", "replace").lower()
    if response.status_code == HTTPStatus.INSUFFICIENT_STORAGE or any(words in message for words in FULL):
        raise FaultError("InsufficientStorage", f"the storage of {http.host_of(response.url)} is full")


def _codes(response: requests.Response) -> list[str]:
    """Returns the registry's error codes, such as ``DENIED``."""
    try:
        reply = decode_json(http.content(response, LARGEST_ANSWER), _Errors, most=LARGEST_ANSWER)
    except (DecodingError, LoadError, TransientError):
        return []
    return [error.code for error in reply.errors[:3] if re.fullmatch(r"[A-Z_]{1,40}", error.code)]


class _Error(msgspec.Struct, frozen=True):
    code: str = ""


class _Errors(msgspec.Struct, frozen=True):
    errors: list[_Error] = []


def loopback(host: str) -> bool:
    """Whether the host is this machine, which is contacted without TLS, as other clients do."""
    return (urlsplit(f"//{host}").hostname or "") in ("localhost", "127.0.0.1", "::1")


def _neighbours(one: str, other: str) -> bool:
    """Whether both hosts are Services of the same namespace."""
    first, second = one.partition(".")[2], other.partition(".")[2]
    return bool(first) and first == second and (first.endswith(".svc") or ".svc." in first)
