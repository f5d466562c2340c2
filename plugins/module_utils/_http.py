# Copyright: (c) 2026, The slipway.inference authors
# Simplified BSD License (see LICENSES/BSD-2-Clause.txt or https://opensource.org/licenses/BSD-2-Clause)
# SPDX-License-Identifier: BSD-2-Clause

# Private to this collection: it may change in any release.

"""Requests to one API server over persistent connections, from any number of threads, with the standard library."""

from __future__ import annotations

import http.client
import os
import select
import ssl
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NoReturn, Protocol
from urllib.parse import quote

from ansible_collections.slipway.inference.plugins.module_utils._errors import InferenceError
from ansible_collections.slipway.inference.plugins.module_utils._kubeconfig import NO_PEM, Pem
from ansible_collections.slipway.inference.plugins.module_utils._settings import Settings, hide_credentials, split

USER_AGENT = "slipway.inference"
CONNECT_SECONDS = 10
CHUNK_BYTES = 1 << 16


@dataclass
class Answer:
    """A server's response. For a stream, ``body`` is empty, and ``chunks`` yields the data as it arrives until
    ``close`` is called."""

    status: int
    warnings: list[str]
    retry_after: str | None
    body: bytes
    chunks: Iterator[bytes]
    close: Callable[[], None]


class Connection(Protocol):
    """A way to send requests to the API server at ``host``."""

    @property
    def host(self) -> str:
        """URL of the API server, without a trailing slash."""

    def request(
        self, method: str, target: str, headers: dict[str, str], body: bytes | None, seconds: float, *, streamed: bool
    ) -> Answer:
        """Return the response, which is complete unless it is ``streamed`` and a success. No read or write may take
        longer than ``seconds``.

        Raise InferenceError if the request fails. The chunks of a stream also raise it.
        """


def fail(host: str, error: Exception, cause: Any) -> NoReturn:
    """Raise the InferenceError for a failed request: the certificate of ``host`` is not trusted, or ``host`` is
    unreachable."""
    host = hide_credentials(host)
    if isinstance(error, ssl.SSLError):
        raise InferenceError("certificate", f"The certificate of {host} cannot be verified: {cause}.") from error
    raise InferenceError("unreachable", f"{host} cannot be reached: {_short(cause)}.", transient=True) from error


def cut(error: Exception) -> InferenceError:
    return InferenceError("unreachable", f"The stream was interrupted: {error}.", transient=True)


class HttpConnection:
    """A connection that uses ``http.client`` and our own settings."""

    def __init__(self, settings: Settings) -> None:
        self.host = settings.host.rstrip("/")
        self._settings = settings
        self._idle: list[http.client.HTTPConnection] = []
        self._context: ssl.SSLContext | None = None
        self._lock = threading.Lock()

    def headers(self) -> list[tuple[str, str]]:
        """Return the headers that identify the caller, with the latest token."""
        with self._lock:
            authorization = self._settings.authorization.header()
        named = [("Authorization", authorization)] if authorization else []
        return [("User-Agent", USER_AGENT), *named, *self._settings.impersonation]

    def request(
        self, method: str, target: str, headers: dict[str, str], body: bytes | None, seconds: float, *, streamed: bool
    ) -> Answer:
        connection = None
        try:
            connection = self._connected(seconds)
            self._send(connection, method, target, headers, body)
            response = connection.getresponse()
            if streamed and response.status < 300:
                return _answer(response, b"", connection)
            answer = _answer(response, response.read(), connection)
        except BaseException as error:
            if connection is not None:
                connection.close()
            if isinstance(error, (OSError, http.client.HTTPException, UnicodeError)):
                fail(self.host, error, str(error) or type(error).__name__)
            raise
        if response.will_close:
            connection.close()
        else:
            self._idle.append(connection)
        return answer

    def _send(
        self,
        connection: http.client.HTTPConnection,
        method: str,
        target: str,
        headers: dict[str, str],
        body: bytes | None,
    ) -> None:
        sent = [*self.headers(), *headers.items()]
        address = split(self.host)
        # Names are as in the task. The server reports an error if one contains a space.
        url = quote(f"{address.path}{target}", safe="/?&=%+:;,@!$'()*[]~")
        if self._settings.proxy and address.scheme == "http":
            url = f"http://{address.netloc.rpartition('@')[2]}{url}"
            of_proxy = {name.lower() for name, _value in self._settings.proxy_headers}
            sent = [header for header in sent if header[0].lower() not in of_proxy] + [*self._settings.proxy_headers]
        connection.putrequest(method, url)
        for name, value in sent:
            try:
                connection.putheader(name, value)
            except ValueError:  # The error's text contains the value, which may be a secret.
                text = f"The value of the header {name} contains a line break or another invalid character."
                raise InferenceError("invalid_input", text) from None
        if body is not None:
            connection.putheader("Content-Length", str(len(body)))
        connection.endheaders(body)

    # ---- connections -------------------------------------------------------------------------------------------------

    def _connected(self, seconds: float) -> http.client.HTTPConnection:
        """Return an open connection on which no read or write may take longer than ``seconds``."""
        began = time.monotonic()
        connection = self._kept() or self._opened(min(CONNECT_SECONDS, seconds))
        if connection.sock is not None:
            connection.sock.settimeout(max(seconds - (time.monotonic() - began), 0.001))
        return connection

    def _kept(self) -> http.client.HTTPConnection | None:
        """Return an idle connection that the server has not closed, or None."""
        while True:
            with self._lock:
                if not self._idle:
                    return None
                connection = self._idle.pop()
            if not _is_dropped(connection):
                return connection
            connection.close()

    def _opened(self, seconds: float) -> http.client.HTTPConnection:
        address, proxy = split(self.host), split(self._settings.proxy)
        if address.scheme not in ("http", "https"):
            text = f"Unsupported URL scheme {address.scheme!r} in {hide_credentials(self.host)}. Use https or http."
            raise InferenceError("unreachable", text)
        server = (address.hostname or "", address.port or (443 if address.scheme == "https" else 80))
        place = (proxy.hostname or "", proxy.port or 80) if self._settings.proxy else server
        if address.scheme == "http":
            connection = http.client.HTTPConnection(*place, timeout=seconds)
        else:
            name = self._settings.tls_server_name or server[0].rstrip(".")
            connection = _TlsConnection(*place, seconds, self._trust(), name)
            if self._settings.proxy:
                connection.set_tunnel(*server, headers=dict(self._settings.proxy_headers))
        try:
            connection.connect()
        except BaseException:
            connection.close()
            raise
        return connection

    def _trust(self) -> ssl.SSLContext:
        """Return the TLS context with trusted CAs and our client certificate. It is created when it is first needed."""
        with self._lock:
            if self._context is None:
                self._context = tls_context(self._settings)
            return self._context


class _TlsConnection(http.client.HTTPConnection):
    """A connection, directly or through a proxy, to a server whose certificate must have this name."""

    default_port = http.client.HTTPS_PORT

    def __init__(self, host: str, port: int, seconds: float, context: ssl.SSLContext, name: str) -> None:
        super().__init__(host, port, timeout=seconds)
        self._context, self._name = context, name

    def connect(self) -> None:
        super().connect()
        self.sock = self._context.wrap_socket(self.sock, server_hostname=self._name)


def tls_context(settings: Settings) -> ssl.SSLContext:
    """Return the TLS context for the settings. Raise OSError, such as ssl.SSLError, if a CA or a client certificate
    cannot be used."""
    try:
        context = ssl.create_default_context(
            cafile=settings.authority.path or None, cadata=settings.authority.data.decode() or None
        )
    except (OSError, ValueError) as error:
        raise error if isinstance(error, ssl.SSLError) else ssl.SSLError(0, str(error)) from error
    if not settings.validate:
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if settings.certificate != NO_PEM:
        with _file(settings.certificate) as certificate, _file(settings.key) as key:
            # A key with a password is rejected, because a module cannot prompt for it.
            context.load_cert_chain(certificate, key or None, password=lambda: b"")
    return context


@contextmanager
def _file(pem: Pem) -> Iterator[str]:
    """Yield the path of a certificate or key, in a temporary file if the settings contain the data itself. OpenSSL only
    reads files."""
    if not pem.data:
        yield pem.path
        return
    handle, path = tempfile.mkstemp()  # Only the current user may read it.
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(pem.data)
        yield path
    finally:
        os.unlink(path)


def _answer(response: http.client.HTTPResponse, body: bytes, connection: http.client.HTTPConnection) -> Answer:
    headers = response.headers
    warnings, retry_after = headers.get_all("Warning") or [], headers.get("Retry-After")

    def close() -> None:
        response.close()  # The response may outlive its connection.
        connection.close()

    return Answer(response.status, warnings, retry_after, body, _chunks(response), close)


def _chunks(response: http.client.HTTPResponse) -> Iterator[bytes]:
    try:
        while chunk := response.read1(CHUNK_BYTES):
            yield chunk
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise cut(error) from error


def _is_dropped(connection: http.client.HTTPConnection) -> bool:
    """Whether the server has closed an idle connection: it has data to read although no response is expected."""
    if connection.sock is None:
        return True
    # select.select does not support file descriptors of 1024 or above.
    poll = select.poll()
    poll.register(connection.sock, select.POLLIN)
    return bool(poll.poll(0))


def _short(error: Any) -> str:
    """Return the cause in the text of a wrapped error, such as ``Connection refused``."""
    text = str(error)
    return text.rpartition("] ")[2].rstrip("'\").") or text if "[Errno" in text else text.rstrip(".")
