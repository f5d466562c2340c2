"""A client for the registry, with the few requests that the depot needs. The depot signs its own tokens."""

from __future__ import annotations

import hashlib
import re
import ssl
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import NamedTuple, TypeVar

import aiohttp
import msgspec
from yarl import URL

from slipway.decoding import DecodingError, decode_json
from slipway.depot.credentials.signing import Access, Signer
from slipway.depot.settings import Settings

SUBJECT = "slipway-depot"
CONNECT_SECONDS = 10.0
ANSWER_SECONDS = 60.0
STREAM_SECONDS = 300.0
"""Maximum seconds to stream one piece of a file."""
COMMIT_SECONDS = 600.0
"""Maximum seconds to commit an upload. The limit is high because a registry may read all bytes again."""
CONNECTIONS = 64
CHUNK = "application/octet-stream"
PAGE = 1000
"""Number of names on each page of a list."""
MOST_PAGES = 1000
LIST_BYTES = 1 << 20
MANIFESTS = (
    "application/vnd.oci.image.manifest.v1+json, application/vnd.oci.image.index.v1+json,"
    " application/vnd.docker.distribution.manifest.v2+json, application/vnd.docker.distribution.manifest.list.v2+json"
)
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")
_DIGEST = re.compile(r"[a-z0-9]+:[0-9a-f]{32,128}")
_READ_ONLY = 405
_VERSION_HEADER, _VERSION = "Docker-Distribution-Api-Version", "registry/2"
"""Header that registries send with each response, and the beginning of its value."""


class RegistryError(Exception):
    """A failed request to the registry, or an invalid response. The message contains the request and the reason. A
    retry cannot succeed, except after AwayError."""


class AwayError(RegistryError):
    """The registry does not answer, fails, or is read-only. A retry may succeed."""


class GoneError(RegistryError):
    """The upload or the object does not exist, the registry rejects a digest or an offset, or a manifest refers to a
    missing blob."""


class MissingError(GoneError):
    """The registry responded with 404."""


class Manifest(NamedTuple):
    content: bytes
    digest: str


class _Catalog(msgspec.Struct, frozen=True):
    repositories: tuple[str, ...] = ()


class _Tags(msgspec.Struct, frozen=True):
    tags: tuple[str, ...] | None = None


T = TypeVar("T")


class Registry:
    """A client that any number of tasks can use at the same time. Every method raises RegistryError."""

    def __init__(
        self, session: aiohttp.ClientSession, base: URL, signer: Signer, now: Callable[[], float] = time.time
    ) -> None:
        self._session, self._base, self._signer, self._now = session, base, signer, now

    @classmethod
    def connect(cls, settings: Settings, signer: Signer) -> Registry:
        """Return a client for the registry in the settings. Raise OSError if the CA certificate cannot be read."""
        context = ssl.create_default_context()
        if not settings.registry_plain:
            context.load_verify_locations(settings.registry_ca or settings.key("ca.crt"))
        connector = aiohttp.TCPConnector(limit=CONNECTIONS, ssl=context, ttl_dns_cache=10)
        session = aiohttp.ClientSession(
            connector=connector, cookie_jar=aiohttp.DummyCookieJar(), auto_decompress=False, trust_env=False
        )
        return cls(session, URL(f"{'http' if settings.registry_plain else 'https'}://{settings.registry}"), signer)

    async def close(self) -> None:
        """Close all connections."""
        await self._session.close()

    async def begin(self, repository: str) -> URL:
        """Start the upload of a blob, and return its location."""
        async with self._request("POST", repository, self._at(repository, "blobs/uploads/")) as answer:
            return self._location(answer, repository)

    async def append(self, repository: str, upload: URL, chunks: AsyncIterator[bytes]) -> URL:
        """Stream bytes into an upload, and return its next location. After a failure, the stream cannot be repeated."""
        headers = {"Content-Type": CHUNK}
        async with self._request("PATCH", repository, upload, headers, chunks, STREAM_SECONDS) as answer:
            return self._location(answer, repository)

    async def commit(self, repository: str, upload: URL, digest: str, size: int) -> None:
        """Turn an upload into a blob with this digest and size. Do nothing if an earlier request has already done so.
        Raise GoneError if the registry rejects the digest or lost the upload."""
        place = upload.extend_query(digest=digest)
        headers = {"Content-Type": CHUNK}
        try:
            async with self._request("PUT", repository, place, headers, b"", COMMIT_SECONDS) as answer:
                reported_digest = answer.headers.get("Docker-Content-Digest", digest)
        except GoneError:
            # The response to an earlier, successful request may have been lost.
            if await self.size(repository, digest) != size:
                raise
            return
        if reported_digest != digest:
            raise RegistryError(f"the registry has the blob {reported_digest} instead of {digest}")

    async def cancel(self, repository: str, upload: URL) -> None:
        """Cancel an upload and discard its bytes. Raise GoneError if it does not exist."""
        async with self._request("DELETE", repository, upload):
            pass

    async def size(self, repository: str, digest: str) -> int | None:
        """Return the size of a blob in bytes, or None if there is no blob with this digest."""
        try:
            async with self._request("HEAD", repository, self._at(repository, f"blobs/{digest}")) as answer:
                return answer.content_length
        except GoneError:
            return None

    async def put_blob(self, repository: str, content: bytes, digest: str) -> None:
        """Store a small blob, unless the repository has it."""
        if await self.size(repository, digest) == len(content):
            return
        place = (await self.begin(repository)).extend_query(digest=digest)
        async with self._request("PUT", repository, place, {"Content-Type": CHUNK}, content):
            pass

    async def manifest(self, repository: str, tag: str, *, media_type: str, most: int) -> Manifest | None:
        """Return the manifest with a tag, or None if there is none. Raise RegistryError if it has more than ``most``
        bytes."""
        headers = {"Accept": media_type}
        try:
            async with self._request("GET", repository, self._at(repository, f"manifests/{tag}"), headers) as answer:
                content = bytearray()
                async for chunk in answer.content.iter_any():
                    content += chunk
                    if len(content) > most:
                        raise RegistryError(f"the manifest {repository}:{tag} has more than {most} bytes")
        except GoneError:
            return None
        return Manifest(bytes(content), _digest(content))

    async def has_manifest(self, repository: str, digest: str, media_type: str) -> bool:
        """Whether the repository has a manifest with this digest. Raise AwayError if the response is not from a
        registry, because an ingress also returns 404 while the registry behind it restarts."""
        place = self._at(repository, f"manifests/{digest}")
        try:
            async with self._request("HEAD", repository, place, {"Accept": media_type}):
                return True
        except MissingError:
            await self._check_version(repository)
            return False

    async def _check_version(self, repository: str) -> None:
        place = self._base.with_path("/v2/")
        try:
            async with self._request("GET", repository, place) as answer:
                supported = answer.headers.get(_VERSION_HEADER, "").startswith(_VERSION)
        except MissingError:
            supported = False
        if not supported:
            raise AwayError(f"GET {place.path}: the response is not from a registry")

    async def put_manifest(self, repository: str, tag: str, content: bytes, *, media_type: str) -> str:
        """Store a manifest under a tag, and return its digest. Raise GoneError if a blob of the manifest is missing."""
        place, headers = self._at(repository, f"manifests/{tag}"), {"Content-Type": media_type}
        digest = _digest(content)
        async with self._request("PUT", repository, place, headers, content) as answer:
            reported_digest = answer.headers.get("Docker-Content-Digest", digest)
        if reported_digest != digest:
            raise RegistryError(f"the registry has the manifest {reported_digest} instead of {digest}")
        return digest

    async def repositories(self) -> AsyncIterator[str]:
        """Yield the names of all repositories."""
        last, access = "", Access("registry", "catalog", ("*",))
        for _unused in range(MOST_PAGES):
            place = self._base.with_path("/v2/_catalog").with_query(n=str(PAGE), **({"last": last} if last else {}))
            page = (await self._fetch_list(place, "", _Catalog, access)).repositories
            for name in page:
                yield name
            if len(page) < PAGE or page[-1] == last:
                return
            last = page[-1]

    async def tags(self, repository: str) -> AsyncIterator[str]:
        """Yield all tags of a repository. Yield nothing if the repository does not exist."""
        last = ""
        for _unused in range(MOST_PAGES):
            query = {"n": str(PAGE)} | ({"last": last} if last else {})
            try:
                page = (
                    await self._fetch_list(self._at(repository, "tags/list").with_query(query), repository, _Tags)
                ).tags
            except MissingError:
                return
            for tag in page or ():
                if _TAG.fullmatch(tag):
                    yield tag
            if not page or len(page) < PAGE or page[-1] == last:
                return
            last = page[-1]

    async def digest(self, repository: str, tag: str) -> str:
        """Return the digest of the manifest with a tag, or an empty string if there is none or the digest is
        invalid."""
        try:
            place, headers = self._at(repository, f"manifests/{tag}"), {"Accept": MANIFESTS}
            async with self._request("HEAD", repository, place, headers) as answer:
                digest = answer.headers.get("Docker-Content-Digest", "")
        except GoneError:
            return ""
        return digest if _DIGEST.fullmatch(digest) else ""

    async def delete_manifest(self, repository: str, digest: str) -> None:
        """Delete a manifest if it exists."""
        with suppress(GoneError):
            async with self._request("DELETE", repository, self._at(repository, f"manifests/{digest}")):
                pass

    async def _fetch_list(self, place: URL, repository: str, type_: type[T], access: Access | None = None) -> T:
        async with self._request("GET", repository, place, access=access) as answer:
            content = await answer.content.read(LIST_BYTES + 1)
            while len(content) <= LIST_BYTES and (more := await answer.content.read(LIST_BYTES + 1 - len(content))):
                content += more
        try:
            return decode_json(content, type_, most=LIST_BYTES)
        except DecodingError as error:
            raise RegistryError(f"GET {place.path}: the registry returned no list: {error}") from error

    async def delete_tagged(self, repository: str, tag: str, *, media_type: str) -> None:
        """Delete the manifest with a tag if it exists."""
        with suppress(GoneError):
            place, headers = self._at(repository, f"manifests/{tag}"), {"Accept": media_type}
            async with self._request("HEAD", repository, place, headers) as answer:
                digest = answer.headers.get("Docker-Content-Digest", "")
            async with self._request("DELETE", repository, self._at(repository, f"manifests/{digest}")):
                pass

    def _at(self, repository: str, path: str) -> URL:
        return self._base.with_path(f"/v2/{repository}/{path}")

    def _location(self, answer: aiohttp.ClientResponse, repository: str) -> URL:
        """Return the location of an upload as a URL of this registry, even if the registry uses another name for
        itself. Raise RegistryError if the location is not that of an upload to this repository."""
        try:
            location = URL(answer.headers.get("Location", ""))
        except ValueError:
            location = URL()
        if not location.path.startswith(f"/v2/{repository}/blobs/uploads/") or ".." in location.path.split("/"):
            raise RegistryError("the registry returned a URL that does not belong to this upload")
        return self._base.join(location.relative() if location.absolute else location)

    @asynccontextmanager
    async def _request(
        self,
        method: str,
        repository: str,
        place: URL,
        headers: dict[str, str] | None = None,
        body: bytes | AsyncIterator[bytes] | None = None,
        seconds: float = ANSWER_SECONDS,
        access: Access | None = None,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Send a request and yield the successful response. Without ``access``, the token allows everything in
        ``repository``. Raise RegistryError."""
        access = access or Access("repository", repository, ("pull", "push", "delete"))
        token = self._signer.sign(SUBJECT, [access], self._now())
        what = f"{method} {place.path}"
        try:
            async with self._session.request(
                method,
                place,
                data=body,
                headers={**(headers or {}), "Authorization": f"Bearer {token}"},
                timeout=aiohttp.ClientTimeout(total=seconds, sock_connect=CONNECT_SECONDS),
                allow_redirects=False,
            ) as answer:
                if answer.status >= 300:
                    raise _refused(what, answer.status)
                yield answer
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise AwayError(f"{what}: {type(error).__name__}") from error


def _refused(what: str, status: int) -> RegistryError:
    message = f"{what}: the registry answered {status}"
    if status >= 500 or status in (_READ_ONLY, 408, 425, 429):
        return AwayError(message)
    if status == 404:
        return MissingError(message)
    return GoneError(message) if status in (400, 416) else RegistryError(message)


def _digest(content: bytes | bytearray) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"
