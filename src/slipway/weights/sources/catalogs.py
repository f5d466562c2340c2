"""Requests of the controller and the depot to the catalogs of other clusters: for all entries, and for a grant for one
entry.

The server is untrusted. Responses are limited in size and time, redirects are not followed, and addresses of this
machine or of identity services are not contacted. The credential is sent only to the catalog's own address.
"""

from __future__ import annotations

import asyncio
import ssl
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any, NamedTuple

import aiohttp
import msgspec
from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.resolver import ThreadedResolver
from yarl import URL

from slipway.artifacts.locations.address_policy import EVERYWHERE, METADATA, AddressPolicy
from slipway.decoding import DecodingError, describe_error
from slipway.serving.wire.catalogs import (
    CATALOG,
    CATALOG_BYTES,
    GRANT_BYTES,
    GRANTS,
    Document,
    Grant,
    GrantRequest,
    read_catalog,
    read_grant,
)

HERE = ("127.0.0.0/8", "0.0.0.0/8", "169.254.0.0/16", "::1/128", "::/128", "fe80::/10")
SECONDS = 30.0
"""Maximum seconds to receive a complete response."""
_LIMIT = aiohttp.ClientTimeout(total=SECONDS, sock_connect=10.0)
_REFUSED = {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}
_PASSING = {HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_MANY_REQUESTS}


class CatalogError(Exception):
    """A failed request to a catalog, or an invalid response. The message contains no credentials."""

    def __init__(self, reason: str, message: str, *, passing: bool = False) -> None:
        super().__init__(message)
        self.reason, self.message = reason, message
        self.passing = passing
        """Whether the problem may disappear without a change."""


class CatalogEndpoint(msgspec.Struct, frozen=True, kw_only=True):
    """The URL and the credentials of a catalog."""

    url: str
    """Base URL without a trailing slash."""
    authorization: str
    """Value of the header ``Authorization``."""
    authority: str = ""
    """CA certificate in PEM format; empty: public CAs."""

    def __repr__(self) -> str:
        return f"CatalogEndpoint({self.url!r})"


class CatalogResponse(NamedTuple):
    """The result of a request for a catalog."""

    document: Document | None
    """Decoded catalog; None: it has not changed."""
    tag: str
    """ETag of the catalog, at most 256 characters; empty: the catalog did not send one."""


def policy(blocked: Sequence[str] = ()) -> AddressPolicy:
    """Return the address policy for catalogs. Other clusters have private addresses, so all addresses are allowed
    except those of this machine, of the clouds' identity services, and of the networks that the operator blocks."""
    return AddressPolicy(allowed=EVERYWHERE, blocked=(*METADATA, *HERE, *blocked))


def loader_arguments(blocked: Sequence[str] = ()) -> list[str]:
    """Return the loader's arguments that express ``policy``."""
    rules = policy(blocked)
    allowed = (f"--allow-host={one}" for one in rules.allowed)
    return ["--guard", *allowed, *(f"--block-network={one}" for one in rules.blocked)]


def authorization(secret: Mapping[str, str]) -> str:
    """Return the value of the header ``Authorization`` for the data of a Secret, whose values are in base64: ``token``,
    or ``username`` and ``password``. Raise CatalogError if they are missing or invalid."""
    credentials = {name: _text(secret[name]) for name in ("token", "username", "password") if secret.get(name)}
    if credentials.get("token"):
        return f"Bearer {credentials['token']}"
    if credentials.get("username") and credentials.get("password"):
        both = f"{credentials['username']}:{credentials['password']}"
        return f"Basic {b64encode(both.encode()).decode()}"
    raise CatalogError("InvalidCredentials", "The Secret has neither token nor username and password.")


def authority(secret: Mapping[str, str]) -> str:
    """Return the CA certificate, in PEM format, in the field ``ca.crt`` of a Secret's data, whose values are in base64.
    Raise CatalogError if it is missing or invalid."""
    text = _text(secret.get("ca.crt", ""))
    if not text:
        raise CatalogError("InvalidAuthority", "The Secret has no ca.crt.")
    return text


def _text(value: str) -> str:
    try:
        text = b64decode(value).decode().strip()
    except ValueError:
        raise CatalogError("InvalidCredentials", "The Secret has a value that is not text.") from None
    if "PRIVATE KEY" not in text and "BEGIN CERTIFICATE" in text:
        return text
    if not text.isprintable():
        raise CatalogError("InvalidCredentials", "The Secret has a value with line breaks or unprintable characters.")
    return text


async def fetch_catalog(endpoint: CatalogEndpoint, allowed: AddressPolicy, tag: str = "") -> CatalogResponse:
    """Return the catalog, or a response without a document if the catalog still has the ETag ``tag``. Raise
    CatalogError."""
    headers = {"If-None-Match": tag} if tag else {}
    answer = await _send_request(endpoint, allowed, "GET", CATALOG, CATALOG_BYTES, headers=headers)
    if answer.status == HTTPStatus.NOT_MODIFIED:
        if not tag:
            raise CatalogError(
                "InvalidCatalog", "The catalog answered 304 Not Modified, though it was asked without an ETag."
            )
        return CatalogResponse(None, tag)
    try:
        return CatalogResponse(read_catalog(answer.body), answer.tag)
    except DecodingError as error:
        raise CatalogError("InvalidCatalog", f"{endpoint.url} did not send a valid catalog: {error}.") from error


async def exchange(endpoint: CatalogEndpoint, allowed: AddressPolicy, request: GrantRequest) -> Grant:
    """Return a grant for one entry of a catalog. Raise CatalogError."""
    answer = await _send_request(endpoint, allowed, "POST", GRANTS, GRANT_BYTES, json=msgspec.to_builtins(request))
    try:
        return read_grant(answer.body, request)
    except DecodingError as error:
        raise CatalogError("InvalidGrant", f"{endpoint.url} did not send a valid grant: {error}.") from error


class _Answer(NamedTuple):
    status: int
    tag: str
    body: bytearray


async def _send_request(
    endpoint: CatalogEndpoint, allowed: AddressPolicy, method: str, path: str, most: int, **options: Any
) -> _Answer:
    """Send one request on a separate connection, and return the response. Raise CatalogError."""
    try:
        address = URL(endpoint.url + path)
    except ValueError:
        raise CatalogError("AddressNotAllowed", f"{endpoint.url} was not contacted: it is not a valid URL.") from None
    refused = allowed.refusal_of_name(address.host or "")
    if address.scheme != "https" or refused:
        raise CatalogError("AddressNotAllowed", f"{endpoint.url} was not contacted: {refused or 'it is not https'}.")
    headers = {"Authorization": endpoint.authorization, "Accept": "application/json", **options.pop("headers", {})}
    connector = aiohttp.TCPConnector(ssl=await _trust(endpoint.authority), resolver=_Guarded(allowed), force_close=True)
    try:
        async with (
            aiohttp.ClientSession(connector=connector, timeout=_LIMIT, cookie_jar=aiohttp.DummyCookieJar()) as session,
            session.request(method, address, headers=headers, allow_redirects=False, **options) as response,
        ):
            return _check_response(endpoint, response, await _read_body(endpoint, response, most))
    except _NotAllowedError as error:
        raise CatalogError("AddressNotAllowed", f"{endpoint.url} was not contacted: {error}.") from None
    except aiohttp.ClientSSLError as error:
        raise CatalogError(
            "InvalidCertificate", f"The certificate of {endpoint.url} is not trusted: {describe_error(error)}."
        ) from error
    except TimeoutError:
        raise CatalogError(
            "Unreachable", f"{endpoint.url} did not answer within {SECONDS:.0f} seconds.", passing=True
        ) from None
    except (aiohttp.ClientError, OSError, ValueError) as error:
        cause = error.__cause__ or error.__context__
        if isinstance(cause, _NotAllowedError):
            raise CatalogError("AddressNotAllowed", f"{endpoint.url} was not contacted: {cause}.") from None
        raise CatalogError(
            "Unreachable", f"{endpoint.url} cannot be reached: {describe_error(error)}.", passing=True
        ) from error


def _check_response(endpoint: CatalogEndpoint, response: aiohttp.ClientResponse, body: bytearray) -> _Answer:
    status = response.status
    if status in (HTTPStatus.OK, HTTPStatus.NOT_MODIFIED):
        return _Answer(status, response.headers.get("ETag", "")[:256], body)
    if HTTPStatus.MULTIPLE_CHOICES <= status < HTTPStatus.BAD_REQUEST:
        raise CatalogError(
            "Redirected", f"{endpoint.url} redirects elsewhere (status {status}); redirects are not followed."
        )
    if status in _REFUSED:
        raise CatalogError("Unauthorized", f"{endpoint.url} rejected the credential (status {status}).")
    passing = status in _PASSING or status >= HTTPStatus.INTERNAL_SERVER_ERROR
    raise CatalogError("Refused", f"{endpoint.url} answered with status {status}.", passing=passing)


async def _read_body(endpoint: CatalogEndpoint, response: aiohttp.ClientResponse, most: int) -> bytearray:
    """Return the body of a response with status 200, at most ``most`` bytes after decompression. Return no bytes for
    any other status. Raise CatalogError if the body is longer."""
    body = bytearray()
    if response.status != HTTPStatus.OK:
        return body
    async for chunk in response.content.iter_any():
        body += chunk
        if len(body) > most:
            raise CatalogError("InvalidCatalog", f"{endpoint.url} sent more than {most} bytes, which is the limit.")
    return body


async def _trust(pem: str) -> ssl.SSLContext:
    """Return a TLS context that trusts a CA certificate in PEM format, or the public CAs if ``pem`` is empty. Raise
    CatalogError if the certificate is invalid."""
    try:
        return await asyncio.to_thread(ssl.create_default_context, cadata=pem or None)
    except (ssl.SSLError, ValueError) as error:
        raise CatalogError(
            "InvalidAuthority", f"ca.crt is not a valid certificate: {describe_error(error)}."
        ) from error


class _NotAllowedError(OSError):
    """The address policy does not allow the address."""


class _Guarded(AbstractResolver):
    """A DNS resolver that rejects hosts with a forbidden address. Connections use the addresses that it has checked."""

    def __init__(self, allowed: AddressPolicy) -> None:
        self._allowed, self._inner = allowed, ThreadedResolver()

    async def resolve(self, host: str, port: int = 0, family: Any = 0) -> list[ResolveResult]:
        addresses = await self._inner.resolve(host, port, family)
        for one in addresses:
            refused = self._allowed.refusal(host, one["host"])
            if refused:
                raise _NotAllowedError(refused)
        return addresses

    async def close(self) -> None:
        await self._inner.close()
