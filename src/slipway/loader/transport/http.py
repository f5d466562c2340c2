"""HTTP functions that all sources share: a pooled session, reading a body from an offset, and error messages.

Errors of the HTTP libraries contain complete URLs with signatures, so their messages are replaced.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from urllib.parse import urljoin

import requests
import urllib3
from requests.adapters import HTTPAdapter
from requests.auth import AuthBase

from slipway import __version__
from slipway.artifacts.locations.address_policy import AddressPolicy
from slipway.artifacts.locations.huggingface import passes
from slipway.decoding import DecodingError, decode_json
from slipway.loader.transport.errors import LoadError, TransientError
from slipway.loader.transport.guarded import GuardedAdapter

TIMEOUT = (10.0, 60.0)
"""Timeouts in seconds: to connect, and to wait for the next byte."""
LARGEST_DOCUMENT = 64 << 20
"""Maximum size in bytes of a list of files, or of one page of the list."""
PIECE = 1 << 16
"""Number of bytes of a response to read at a time."""
CONNECTIONS = 32
"""Maximum number of connections to keep open between requests."""
MOST_REDIRECTS = 5
PROOFS = ("authorization", "cookie", "proxy-authorization", "x-auth-token", "x-vault-token")
SIGNED = ("x-amz-", "x-goog-", "x-oss-", "x-aws-", "x-ms-")
"""Prefixes of headers that are part of a signature or hold a token."""
CONTENT_RANGE = re.compile(r"bytes (\d+)-")
Explain = Callable[[requests.Response], str]
"""Function that returns the message for a permanent error response."""


class Bearer(AuthBase):
    """Authentication with a bearer token. The token is only for the original host; redirects to another host remove
    it."""

    def __init__(self, token: str) -> None:
        self._token = token

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        request.headers["Authorization"] = f"Bearer {self._token}"
        return request


class Session(requests.Session):
    """A session that sends credentials only to the origin for which they are intended."""

    stays = False
    """Whether to return a redirect to another origin as the response instead of following it."""
    trusted = ""
    """File with the only trusted CA certificates, which overrides the environment; empty: those of the environment."""

    def merge_environment_settings(self, url: Any, proxies: Any, stream: Any, verify: Any, cert: Any) -> dict[str, Any]:
        """Return the settings of a request, with ``trusted`` applied. The ``requests`` library calls this method, and
        would otherwise prefer the environment to the session."""
        settings = super().merge_environment_settings(url, proxies, stream, verify, cert)
        return {**settings, "verify": self.trusted} if self.trusted else settings

    def get_redirect_target(self, resp: requests.Response) -> str | None:
        """Return the target of a redirect, or None if the response is not a redirect or must not be followed. The
        ``requests`` library calls this method."""
        target: str | None = super().get_redirect_target(resp)
        if target and self.stays and origin(urljoin(resp.url, target)) != origin(resp.url):
            return None
        return target

    def rebuild_auth(self, prepared_request: requests.PreparedRequest, response: requests.Response) -> None:
        """Remove all headers with credentials when a redirect leads to another origin, except from HTTP to HTTPS of the
        same host on the default ports. The ``requests`` library itself removes only one of them."""
        if self.should_strip_auth(response.request.url or "", prepared_request.url or ""):
            for name in list(prepared_request.headers):
                if name.lower() in PROOFS or name.lower().startswith(SIGNED):
                    del prepared_request.headers[name]
        super().rebuild_auth(prepared_request, response)


def session(
    env: Mapping[str, str],
    auth: AuthBase | tuple[str, str] | None = None,
    address_policy: AddressPolicy | None = None,
    *,
    stays: bool = False,
) -> Session:
    """Return an HTTP session for all threads of a load. The usual environment variables define proxies and
    certificates. ``address_policy`` applies to every connection, including those of redirects; None: all addresses are
    allowed. For ``stays`` see ``Session``."""
    client = Session()
    client.auth, client.stays, client.max_redirects = auth, stays, MOST_REDIRECTS
    client.headers.update({"User-Agent": f"slipway-loader/{__version__}", "Accept-Encoding": "identity"})
    if not env.get("REQUESTS_CA_BUNDLE") and env.get("SSL_CERT_FILE"):
        client.verify = env["SSL_CERT_FILE"]
    for prefix in ("http://", "https://"):
        client.mount(prefix, _adapter(address_policy))
    return client


def _adapter(address_policy: AddressPolicy | None) -> HTTPAdapter:
    if address_policy is not None:
        return GuardedAdapter(address_policy, CONNECTIONS)
    return HTTPAdapter(pool_connections=CONNECTIONS, pool_maxsize=CONNECTIONS, max_retries=0)


class HttpBody:
    def __init__(self, raw: urllib3.BaseHTTPResponse, *, verifiable: bool = True) -> None:
        match = CONTENT_RANGE.match(raw.headers.get("Content-Range", "")) if raw.status == 206 else None
        self.start = int(match[1]) if match else 0
        self.verifiable = verifiable
        self._raw = raw

    def read(self, size: int) -> bytes:
        """Return the next bytes of the response, at most ``size``. An empty result means that the body has ended. Raise
        TransientError if the connection breaks."""
        with connected():
            return self._raw.read1(size, decode_content=False)


@contextmanager
def connected() -> Iterator[None]:
    """Raise TransientError if the connection breaks while the context is open."""
    try:
        yield
    except (requests.exceptions.RequestException, urllib3.exceptions.HTTPError, OSError) as error:
        raise TransientError(f"the connection was lost: {_plain(error)}") from error


def content(response: requests.Response, most: int = LARGEST_DOCUMENT) -> bytes:
    """Return the whole body. Raise LoadError if it has more than ``most`` bytes, or TransientError if the connection
    breaks."""
    body = bytearray()
    with connected():
        for piece in response.iter_content(PIECE):
            body += piece
            if len(body) > most:
                response.close()
                raise LoadError(f"{host_of(response.url)} sent a list of more than {most} bytes: check the address")
    return bytes(body)


def send(
    client: requests.Session,
    method: str,
    url: str,
    headers: Mapping[str, str] | None = None,
    body: Any = None,
    timeout: tuple[float, float] = TIMEOUT,
) -> requests.Response:
    """Send a request and return the response, whose body is unread. Raise LoadError, or TransientError for errors that
    a retry may resolve, such as the statuses 408, 429 and 5xx. A response with another error status is returned."""
    try:
        response = client.request(method, url, headers=headers, data=body, stream=True, timeout=timeout)
    except requests.exceptions.SSLError as error:
        raise LoadError(
            f"the certificate of {host_of(url)} is not trusted: set REQUESTS_CA_BUNDLE to a file with its CA"
        ) from error
    except (requests.exceptions.InvalidURL, requests.exceptions.InvalidSchema) as error:
        raise LoadError(f"{host_of(url)!r} is not a valid address: check it") from error
    except requests.exceptions.TooManyRedirects as error:
        raise LoadError(f"{host_of(url)} redirects too often: check the address") from error
    except requests.exceptions.RequestException as error:
        raise TransientError(f"{host_of(url)} cannot be reached: {_plain(error)}") from error
    if passes(response.status_code) or response.status_code == 408:
        response.close()
        raise TransientError(f"{host_of(url)} answers {response.status_code}", _retry_after(response))
    return response


@contextmanager
def get(
    client: requests.Session, url: str, explain: Explain, headers: Mapping[str, str] | None = None
) -> Iterator[requests.Response]:
    """Send a GET request and yield the response before its body is read. Raise LoadError or TransientError for a failed
    request or an error status, except 416, which the caller handles. ``explain`` returns the message of the
    LoadError."""
    with send(client, "GET", url, headers) as response:
        if not response.ok and response.status_code != 416:
            raise LoadError(explain(response))
        yield response


@contextmanager
def open_body(
    client: requests.Session,
    url: str,
    start: int,
    explain: Explain,
    headers: Mapping[str, str] | None = None,
) -> Iterator[HttpBody]:
    """Open the body of a URL at offset ``start``, or at 0 if the server does not support the range.

    Raise LoadError or TransientError.
    """
    extra = {**(headers or {}), **({"Range": f"bytes={start}-"} if start else {})}
    with get(client, url, explain, extra) as response:
        if response.status_code != 416:
            yield HttpBody(response.raw)
            return
    with get(client, url, explain, headers) as response:
        if response.status_code == 416:
            raise LoadError(explain(response))
        yield HttpBody(response.raw)


def document(client: requests.Session, url: str, explain: Explain) -> Any:
    """Return the decoded JSON document at a URL. Raise LoadError for an error status, or TransientError if a retry may
    help or the document is invalid."""
    with get(client, url, explain) as response:
        try:
            return decode_json(content(response), most=LARGEST_DOCUMENT)
        except DecodingError as error:
            raise TransientError(f"{host_of(url)} did not answer with JSON") from error


def host_of(url: str) -> str:
    """Return the host and port of a URL, without a user and password."""
    return url.partition("://")[2].partition("/")[0].partition("?")[0].rpartition("@")[2]


def origin(url: str) -> str:
    """Return the origin of a URL: its scheme, host and port, in lower case."""
    return f"{url.partition('://')[0]}://{host_of(url)}".lower()


def _retry_after(response: requests.Response) -> float:
    """Return the seconds in a response's ``Retry-After`` header, or 0 if there are none. Dates are ignored, because no
    server of weights sends them."""
    value = response.headers.get("Retry-After", "")
    return float(value) if value.isdigit() else 0.0


def _plain(error: BaseException) -> str:
    """Return a short reason from a chain of exceptions, without addresses."""
    causes: list[BaseException] = []
    pending: list[object] = [error]
    while pending:
        current = pending.pop()
        if isinstance(current, BaseException) and current not in causes:
            causes.append(current)
            pending += [getattr(current, "reason", None), current.__context__, current.__cause__, *current.args]
    for cause in causes:
        if isinstance(cause, urllib3.exceptions.NameResolutionError):
            return "its name cannot be resolved"
    reasons = [cause.strerror for cause in causes if isinstance(cause, OSError) and cause.strerror]
    if reasons:
        return reasons[0].lower()
    late = any(isinstance(cause, urllib3.exceptions.TimeoutError | TimeoutError) for cause in causes)
    return "it timed out" if late else "it ended early"
