"""A client for one repository of an OCI registry, on the HTTP session that all sources use.

Blobs of any size are streamed in both directions. An interrupted upload continues at the offset that the registry
reports. The registry's token service issues tokens for a few minutes, according to Docker's protocol.
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
"""Environment variable with the path of the pod's service account token, with which the loader authenticates to the
token service."""
REALM = "SLIPWAY_REGISTRY_REALM"
"""Environment variable with the host and port of the token service. It is required only if the token service is neither
the registry itself nor in the registry's namespace."""
STREAM = (30.0, 120.0)
"""Timeouts in seconds: to connect or to wait until the registry accepts more bytes, and to wait for its response."""
COMMIT = (30.0, 3600.0)
"""Timeouts like ``STREAM`` for the end of an upload, when the registry may read all of its bytes again."""
READ_ONLY_SECONDS = 3600.0
"""Maximum seconds to wait for a registry that is read-only during garbage collection."""
READ_ONLY_PAUSE = 5.0
LARGEST_MANIFEST = 16 << 20
"""Maximum size of a manifest in bytes. Registries accept 4 MiB. Slipway's largest manifests are upload sessions."""
LARGEST_ANSWER = 1 << 16
FRESH = 60.0
"""Seconds for which a token must still be valid when a request starts."""
MANIFESTS = (
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.v2+json",
)
OCTETS = "application/octet-stream"
MISSING = (HTTPStatus.NOT_FOUND,)
UPLOAD_GONE = (HTTPStatus.NOT_FOUND, HTTPStatus.BAD_REQUEST, HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE)
"""HTTP statuses for an upload that the registry does not know, or knows in another state."""
MISMATCHES = {"DIGEST_INVALID", "SIZE_INVALID"}
"""Error codes for an upload whose bytes do not match the digest or the size."""
FULL = ("no space left on device", "disk quota exceeded", "quota exceeded")
_CHALLENGE = re.compile(r'(\w+)="([^"]*)"')
_RANGE = re.compile(r"(?:bytes=)?0-(\d+)")


class UploadGoneError(Exception):
    """The registry does not know the upload, or has another state of it. The client must start a new upload."""


class DigestMismatchError(UploadGoneError):
    """The bytes that the registry received in an upload do not match the digest or the size."""


class BlobsGoneError(LoadError):
    """A manifest refers to blobs that the registry does not have, for example because garbage collection has deleted
    them."""


class Manifest(msgspec.Struct, frozen=True):
    content: bytes
    digest: str
    """SHA-256 of the content, in a registry's format: ``sha256:HEX``."""
    media_type: str


class Progress(msgspec.Struct, frozen=True):
    """An upload in progress."""

    location: str
    offset: int
    """Number of bytes that the registry has received."""


class _Token(msgspec.Struct, frozen=True):
    token: str = ""
    access_token: str = ""
    expires_in: int = 60


class Credentials(msgspec.Struct, frozen=True):
    """The credentials for a registry or its token service. Without any, requests for tokens are anonymous."""

    token_file: str = ""
    """File with a service account token for the token service; empty: there is none. The file is read for each request,
    because Kubernetes renews the token."""
    granted: Callable[[], str] | None = None
    """Function that returns a token for the registry itself; None: the registry's token service issues tokens."""

    def header(self) -> dict[str, str]:
        """Return the headers for the token service; empty if there is no ``token_file``. Raise LoadError if the file
        cannot be read."""
        if not self.token_file:
            return {}
        try:
            text = Path(self.token_file).read_text("ascii").strip()
        except (OSError, ValueError) as error:
            raise LoadError(f"cannot read the service account's token at {self.token_file}", transient=True) from error
        return {"Authorization": f"Bearer {text}"}


class Registry:
    """A client for one repository, which several threads can use at once. Its methods raise LoadError if the registry
    rejects a request, and TransientError for errors that a retry may resolve."""

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
        """Prepare requests to the repository of ``reference``. ``ca`` is the only trusted CA certificate in PEM format;
        empty: the usual CAs; None: the value of the environment variable ``CA``. ``credentials`` defaults to the token
        file that ``env`` names. ``address_policy`` None allows all addresses. ``note`` is called with the reason while
        the client waits for a read-only registry, and ``stop`` ends this wait with StoppedError."""
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
        """Return the size of a blob in bytes, or None if the repository has no blob with this digest or does not report
        the size."""
        with self._request("HEAD", f"blobs/{digest}", allowed=MISSING) as answer:
            length = answer.headers.get("Content-Length", "")
            return int(length) if answer.ok and length.isdigit() else None

    @contextmanager
    def blob(self, digest: str, start: int = 0) -> Iterator[Body]:
        """Open a blob at offset ``start``, or at 0 if the registry does not support the range."""
        headers = {"Range": f"bytes={start}-"} if start else {}
        with self._request("GET", f"blobs/{digest}", headers) as answer:
            yield http.HttpBody(answer.raw)

    def mount(self, digest: str, repository: str) -> bool:
        """Mount a blob from another repository of the registry. Return whether the registry mounted it."""
        query = urlencode({"mount": digest, "from": repository})
        with self._request("POST", f"blobs/uploads/?{query}") as answer:
            if answer.status_code == HTTPStatus.CREATED:
                return True
            location = self._location(answer)
        self.cancel(location)
        return False

    def begin(self) -> str:
        """Start a new upload, and return its location."""
        with self._request("POST", "blobs/uploads/", {"Content-Length": "0"}) as answer:
            return self._location(answer)

    def progress(self, location: str) -> Progress:
        """Return the progress of an upload. An upload of a single byte counts as empty. Raise UploadGoneError if the
        registry does not know the upload."""
        with self._request("GET", self._checked(location), allowed=UPLOAD_GONE) as answer:
            if not answer.ok:
                raise UploadGoneError
            match = _RANGE.fullmatch(answer.headers.get("Range", ""))
            # One byte and none look the same: an upload of one byte is rejected later, and starts again.
            last = int(match[1]) if match else 0
            return Progress(self._location(answer), last + 1 if last else 0)

    def send(self, upload: Progress, body: Iterator[bytes], size: int) -> Progress:
        """Send the remaining ``size`` bytes of an upload, which ``body`` yields, and return its new progress. Raise
        UploadGoneError if there is no such upload. If the registry is at another offset, raise TransientError or, for
        an upload at offset 0, UploadGoneError."""
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
        """Turn an upload into a blob. Raise DigestMismatchError if the upload does not match the digest, or another
        UploadGoneError if the upload no longer exists."""
        place = f"{location}{'&' if '?' in location else '?'}{urlencode({'digest': digest})}"
        headers = {"Content-Length": "0", "Content-Type": OCTETS}
        with self._request("PUT", place, headers, allowed=UPLOAD_GONE, timeout=COMMIT) as answer:
            if not answer.ok:
                raise UploadGoneError if MISMATCHES.isdisjoint(_codes(answer)) else DigestMismatchError

    def cancel(self, location: str) -> None:
        """Delete an upload if it exists."""
        with self._request("DELETE", self._checked(location), allowed=UPLOAD_GONE):
            pass

    def put_blob(self, content: bytes, digest: str) -> None:
        """Upload a small blob, unless the repository has it. Raise TransientError if the registry loses the upload."""
        if self.size(digest) is not None:
            return
        try:
            self.commit(self.send(Progress(self.begin(), 0), iter([content]), len(content)).location, digest)
        except UploadGoneError as error:
            raise TransientError(f"{self.host} lost the upload of {digest}") from error

    def manifest(self, version: str) -> Manifest | None:
        """Return the manifest with a tag or a digest, or None if there is none. Raise FaultError if its content does
        not match the digest."""
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
        """Write a manifest under a tag or its digest. Raise BlobsGoneError if it refers to missing blobs."""
        headers = {"Content-Type": media_type}
        with self._request("PUT", f"manifests/{version}", headers, content):
            pass

    def delete_manifest(self, digest: str) -> bool:
        """Delete a manifest. Return whether it existed."""
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
        """Send a request and yield the response, which is a success or has one of the ``allowed`` statuses, and whose
        body is unread. Wait while the registry is read-only. A streamed body cannot be sent twice: raise TransientError
        if a second request is necessary."""
        url, began, authorized = urljoin(self._root, path), time.monotonic(), False
        while True:
            self._renew()
            with http.send(self._client, method, url, {**(headers or {}), **self._proof()}, body, timeout) as response:
                expected = response.ok or response.status_code in allowed
                codes = [] if expected or method == "HEAD" else _codes(response)
                if response.status_code == HTTPStatus.UNAUTHORIZED and not authorized:
                    authorized = True
                    self._authorize(response)
                elif response.status_code == HTTPStatus.METHOD_NOT_ALLOWED and "UNSUPPORTED" not in codes:
                    self._wait(began)
                elif response.is_redirect or not expected:
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
        """Return the location of an upload as a URL of this registry, because a registry behind a proxy may use another
        name for itself. Raise LoadError if the location is not that of an upload to this repository."""
        parts = urlsplit(urljoin(self._base, location))
        if not parts.path.startswith(f"/v2/{self.repository}/blobs/uploads/") or ".." in parts.path.split("/"):
            raise LoadError(f"{self.host} sent an address that is of no upload to {self.repository}")
        return f"{self._base}{parts.path}{'?' if parts.query else ''}{parts.query}"

    def _proof(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self._token}"} if self._token else {}

    def _renew(self) -> None:
        """Renew the token if it expires soon, because the registry would reject a long stream only after it has been
        sent."""
        with self._lock:
            if self._challenge and time.monotonic() > self._until - FRESH:
                self._fetch()

    def _authorize(self, response: requests.Response) -> None:
        """Get a token as the registry's 401 response demands, or from ``Credentials.granted`` if it is set. Raise
        LoadError if the response demands an unsupported scheme."""
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
        """Raise LoadError if the token service is not trusted or would be contacted without TLS. Otherwise an attacker
        who answers in the registry's place could get the pod's token."""
        parts = urlsplit(realm)
        secure = parts.scheme == "https" or (parts.scheme == "http" and loopback(parts.netloc))
        trusted = parts.netloc in self._realms or _neighbours(parts.hostname or "", urlsplit(self._base).hostname or "")
        if not secure or not trusted or parts.username is not None:
            raise LoadError(
                f"{self.host} sends for tokens to {parts.netloc.rpartition('@')[2]!r}, which is not trusted:"
                f" if it is correct, set {REALM} to its host"
            )


class _Stream:
    """A request body of known length. It has no method ``read``, because the HTTP library would then send small
    pieces."""

    def __init__(self, chunks: Iterator[bytes], size: int) -> None:
        self._chunks, self._size = chunks, size

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[bytes]:
        return self._chunks


def session(env: Mapping[str, str], ca: str, address_policy: AddressPolicy | None = None) -> http.Session:
    """Return an HTTP session for a registry. ``ca`` is the only trusted CA certificate, in PEM format; empty: those of
    the environment."""
    client = http.session(env, address_policy=address_policy)
    client.hooks["response"].append(_room)
    if ca:
        handle = os.memfd_create("registry-ca", os.MFD_CLOEXEC)
        os.write(handle, ca.encode())
        client.trusted = f"/proc/self/fd/{handle}"
    return client


def _room(response: requests.Response, **_options: Any) -> None:
    """Raise FaultError if the response shows that the registry's storage is full. The session calls this function for
    each response."""
    if response.status_code < 500:
        return
    text = response.raw.read(LARGEST_ANSWER, decode_content=True) or b""
    message = text.decode("utf-8", "replace").lower()
    if response.status_code == HTTPStatus.INSUFFICIENT_STORAGE or any(words in message for words in FULL):
        raise FaultError("InsufficientStorage", f"the storage of {http.host_of(response.url)} is full")


def _codes(response: requests.Response) -> list[str]:
    """Return the first registry error codes of a response, such as ``DENIED``, at most three; empty if the response has
    none."""
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
    """Whether ``host``, which may contain a port, is ``localhost``, ``127.0.0.1`` or ``::1``. Like other registry
    clients, the loader then connects without TLS."""
    return (urlsplit(f"//{host}").hostname or "") in ("localhost", "127.0.0.1", "::1")


def _neighbours(one: str, other: str) -> bool:
    """Whether both hosts are Services of the same namespace."""
    first, second = one.partition(".")[2], other.partition(".")[2]
    return bool(first) and first == second and (first.endswith(".svc") or ".svc." in first)
