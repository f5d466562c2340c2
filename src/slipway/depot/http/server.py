"""An HTTPS server that limits connections, header sizes and idle times."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from aiohttp import web

log = logging.getLogger(__name__)

HEADER_BYTES, MOST_HEADERS = 12 << 10, 64
"""Maximum size of a header in bytes, and maximum number of headers. A header with a service account token of 8,000
characters in base64 fits."""
BUFFER_BYTES = 64 << 10
"""Maximum number of bytes of a body that a connection reads ahead."""
IDLE_SECONDS = 15.0
"""Maximum seconds that a connection waits for its first or next request."""
HANDSHAKE_SECONDS = 10.0
LINGERING_SECONDS = 2.0
"""Seconds for which the rest of a rejected body is read, so that the client receives the response."""
RELOAD_SECONDS = 60.0
GRACE_SECONDS = 20.0
"""Seconds for which requests may continue during shutdown, less than Kubernetes' default of 30."""


class _Bare(logging.Filter):
    """A log filter that drops aiohttp's excerpts of invalid HTTP requests, which may contain a token."""

    def filter(self, record: logging.LogRecord) -> bool:
        record.exc_info = None
        return True


_http_log = logging.getLogger(f"{__name__}.http")
_http_log.addFilter(_Bare())


class Certificate:
    """The server's certificate. It is reloaded when its file changes, and new connections then use the new
    certificate."""

    def __init__(self, certificate: Path, key: Path) -> None:
        """Load the certificate and its key. Raise OSError, of which ssl.SSLError is a subclass, if the files are
        invalid."""
        self._certificate, self._key = certificate, key
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.minimum_version = ssl.TLSVersion.TLSv1_2
        self._read = self._stamp()
        self.context.load_cert_chain(certificate, key)

    def refresh(self) -> bool:
        """Reload the certificate and its key if one of their files has changed, and return whether they were reloaded.
        If they are invalid, log this and keep the old ones."""
        try:
            stamp = self._stamp()
            if stamp == self._read:
                return False
            self.context.load_cert_chain(self._certificate, self._key)
        except OSError as error:
            log.warning("could not read the new certificate; keeping the old one: %s", error)
            return False
        self._read = stamp
        log.info("loaded the new certificate")
        return True

    async def run(self) -> None:
        """Reload a changed certificate every minute, until the task is cancelled."""
        while True:
            await asyncio.sleep(RELOAD_SECONDS)
            self.refresh()

    def _stamp(self) -> tuple[bytes, ...]:
        return self._certificate.read_bytes(), self._key.read_bytes()


@asynccontextmanager
async def serve(
    app: web.Application, listen: str, tls: ssl.SSLContext | None, *, connections: int
) -> AsyncIterator[asyncio.Server]:
    """Serve ``app`` on ``listen`` (``HOST:PORT``) while the context is open, without TLS if ``tls`` is None. Accept at
    most ``connections`` connections, and at most half of them from one address."""
    # Bodies are not decompressed: a compressed one may become a thousand times as long.
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=GRACE_SECONDS)
    await runner.setup()
    manager = runner.server
    if manager is None:
        raise RuntimeError("the runner was set up and has no server")
    loop = asyncio.get_running_loop()

    def handler() -> web.RequestHandler:
        return web.RequestHandler(
            manager,
            loop=loop,
            access_log=None,  # type: ignore[arg-type]
            logger=_http_log,
            keepalive_timeout=IDLE_SECONDS,
            max_line_size=HEADER_BYTES,
            max_field_size=HEADER_BYTES,
            max_headers=MOST_HEADERS,
            read_bufsize=BUFFER_BYTES,
            lingering_time=LINGERING_SECONDS,
            auto_decompress=False,
        )

    def accepted() -> asyncio.Protocol:
        return _Arrival(manager, handler, connections)

    host, _unused, port = listen.rpartition(":")
    seconds = HANDSHAKE_SECONDS if tls else None
    server = await loop.create_server(
        accepted, host.strip("[]") or None, int(port), ssl=tls, ssl_handshake_timeout=seconds, backlog=256
    )
    try:
        yield server
    finally:
        server.close()
        await runner.cleanup()


class _Arrival(asyncio.Protocol):
    """A new connection before the server reads from it. Connections above the limit are closed."""

    def __init__(self, manager: web.Server, handler: Callable[[], web.RequestHandler], connections: int) -> None:
        self._manager, self._handler, self._connections = manager, handler, connections

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        others = [_address(one.transport) for one in self._manager.connections]
        if len(others) >= self._connections or others.count(_address(transport)) >= max(self._connections // 2, 1):
            transport.close()
            return
        handler = self._handler()
        transport.set_protocol(handler)
        handler.connection_made(transport)


def _address(transport: asyncio.BaseTransport | None) -> str:
    peer = transport.get_extra_info("peername") if transport else None
    return str(peer[0]) if peer else ""
