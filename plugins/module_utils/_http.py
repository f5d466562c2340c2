# Copyright: (c) 2026, The slipway.inference authors
# Simplified BSD License (see LICENSES/BSD-2-Clause.txt or https://opensource.org/licenses/BSD-2-Clause)
# SPDX-License-Identifier: BSD-2-Clause

# Private to this collection: it may change in any release.

"""Requests to one API server over connections that are kept, from any number of threads, by the standard library."""

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
from ansible_collections.slipway.inference.plugins.module_utils._settings import Settings, split

USER_AGENT = "slipway.inference"
CONNECT_SECONDS = 10
CHUNK_BYTES = 1 << 16


@dataclass
class Answer:
    """What a server answered. ``body`` is empty where ``chunks`` brings it as it comes, until ``close``."""

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
        """Its URL, without a slash at the end."""

    def request(
        self, method: str, target: str, headers: dict[str, str], body: bytes | None, seconds: float, *, streamed: bool
    ) -> Answer:
        """The answer, complete unless it is ``streamed`` and a success. Nothing may be silent for longer than
        ``seconds``. Raises InferenceError; so do its chunks."""


def fail(host: str, error: Exception, cause: Any) -> NoReturn:
    """Raises what a failed request means: for trust in ``host``, or for its being there."""
    if isinstance(error, ssl.SSLError):
        raise InferenceError("certificate", f"The certificate of {host} cannot be verified: {cause}.") from error
    raise InferenceError("unreachable", f"{host} cannot be reached: {_short(cause)}.", transient=True) from error


def cut(error: Exception) -> InferenceError:
    return InferenceError("unreachable", f"The stream was interrupted: {error}.", transient=True)


class HttpConnection:
    """By http.client, with what is set."""

    def __init__(self, settings: Settings) -> None:
        self.host = settings.host.rstrip("/")
        self._settings = settings
        self._idle: list[http.client.HTTPConnection] = []
        self._context: ssl.SSLContext | None = None
        self._lock = threading.Lock()

    def headers(self) -> list[tuple[str, str]]:
        """Headers that identify the caller, with the newest token."""
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
        # Names come as the task has them; the server says what it thinks of a blank in one.
        url = quote(f"{address.path}{target}", safe="/?&=%+:;,@!$'()*[]~")
        if self._settings.proxy and address.scheme == "http":
            url = f"http://{address.netloc.rpartition('@')[2]}{url}"
            of_proxy = {name.lower() for name, _value in self._settings.proxy_headers}
            sent = [header for header in sent if header[0].lower() not in of_proxy] + [*self._settings.proxy_headers]
        connection.putrequest(method, url)
        for name, value in sent:
            try:
                connection.putheader(name, value)
            except ValueError:  # Its text has the value, which may be a secret.
                text = f"The value of the header {name} contains a line break or another invalid character."
                raise InferenceError("invalid_input", text) from None
        if body is not None:
            connection.putheader("Content-Length", str(len(body)))
        connection.endheaders(body)

    # ---- connections -------------------------------------------------------------------------------------------------

    def _connected(self, seconds: float) -> http.client.HTTPConnection:
        """A connection that is there, on which nothing may take longer than ``seconds``."""
        began = time.monotonic()
        connection = self._kept() or self._opened(min(CONNECT_SECONDS, seconds))
        if connection.sock is not None:
            connection.sock.settimeout(max(seconds - (time.monotonic() - began), 0.001))
        return connection

    def _kept(self) -> http.client.HTTPConnection | None:
        """One that was used before, and that the server has not closed meanwhile."""
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
            raise http.client.HTTPException(f"Not supported URL scheme {address.scheme}")
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
        """What is trusted, and by what we are known. Read once, when it is needed first."""
        with self._lock:
            if self._context is None:
                self._context = tls_context(self._settings)
            return self._context


class _TlsConnection(http.client.HTTPConnection):
    """A connection, through a proxy or not, to a server with a certificate of this name."""

    default_port = http.client.HTTPS_PORT

    def __init__(self, host: str, port: int, seconds: float, context: ssl.SSLContext, name: str) -> None:
        super().__init__(host, port, timeout=seconds)
        self._context, self._name = context, name

    def connect(self) -> None:
        super().connect()
        self.sock = self._context.wrap_socket(self.sock, server_hostname=self._name)


def tls_context(settings: Settings) -> ssl.SSLContext:
    """Raises OSError, of which ssl.SSLError is one: what is to be trusted, or to identify us, cannot be used."""
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
            # A key that asks for a password is refused: nobody is there to answer.
            context.load_cert_chain(certificate, key or None, password=lambda: b"")
    return context


@contextmanager
def _file(pem: Pem) -> Iterator[str]:
    """A path at which it lies; only OpenSSL reads it, which takes nothing else."""
    if not pem.data:
        yield pem.path
        return
    handle, path = tempfile.mkstemp()  # Nobody else may read it.
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
        response.close()  # It may outlive its connection.
        connection.close()

    return Answer(response.status, warnings, retry_after, body, _chunks(response), close)


def _chunks(response: http.client.HTTPResponse) -> Iterator[bytes]:
    try:
        while chunk := response.read1(CHUNK_BYTES):
            yield chunk
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise cut(error) from error


def _is_dropped(connection: http.client.HTTPConnection) -> bool:
    """Whether a connection on which nothing is awaited has something to read: its end."""
    if connection.sock is None:
        return True
    # Not select.select, which cannot watch a file whose number is 1024 or above.
    poll = select.poll()
    poll.register(connection.sock, select.POLLIN)
    return bool(poll.poll(0))


def _short(error: Any) -> str:
    """``Connection refused`` out of an error that was wrapped."""
    text = str(error)
    return text.rpartition("] ")[2].rstrip("'\").") or text if "[Errno" in text else text.rstrip(".")
