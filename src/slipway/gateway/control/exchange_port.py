"""The port at which other gateways request this gateway's use of the limits. Any pod can connect to it."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable

from slipway.decoding import describe_error
from slipway.gateway.settings import split_address
from slipway.gateway.shared_limits.seal import LONGEST_REQUEST, SealError

log = logging.getLogger(__name__)

_TIMEOUT_SECONDS = 2.0
"""Seconds within which a client must send its request and read the answer."""
_MOST_UNKNOWN, _MOST_OF_ADDRESS = 128, 8
"""Maximum number of concurrent connections from all addresses that are not gateways, and from one address."""


class ExchangePort:
    """A server that answers one request per connection."""

    def __init__(self, hosts: Callable[[], set[str]], answer: Callable[[bytes], bytes]) -> None:
        """``hosts`` returns the addresses of the gateways without ports.

        ``answer`` returns the answer to a request, which is one line. It may raise SealError or ValueError.
        """
        self._hosts, self._answer = hosts, answer
        self._server: asyncio.Server | None = None
        self._connections: Counter[str] = Counter()
        self._refused: set[str] = set()
        """Gateways with a rejected request for which a warning has been logged."""

    async def open(self, listen: str) -> None:
        """Open the port at the address ``listen``, ``[host]:port``, if it is not open yet. Raise OSError if it cannot
        be opened."""
        if self._server is None:
            host, port = split_address(listen)
            self._server = await asyncio.start_server(self.serve, host or None, port, limit=LONGEST_REQUEST)

    def close(self) -> None:
        """Stop accepting connections."""
        if self._server:
            self._server.close()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one request, and close the connection. Send no answer if the request is invalid or late, or there are
        too many connections."""
        host = str((writer.get_extra_info("peername") or ("",))[0])
        self._connections[host] += 1
        try:
            if self._admits(host):
                async with asyncio.timeout(_TIMEOUT_SECONDS):
                    await self._reply(reader, writer)
                    self._refused.discard(host)
        except (OSError, EOFError, TimeoutError, asyncio.LimitOverrunError, ValueError) as error:
            self._log_refusal(host, error)
        finally:
            self._connections[host] -= 1
            if not self._connections[host]:
                del self._connections[host]
            writer.transport.abort()

    def _admits(self, host: str) -> bool:
        """Whether to answer a connection from ``host``. Connections from unknown addresses never block gateways."""
        gateways = self._hosts()
        unknown = sum(number for other, number in self._connections.items() if other not in gateways)
        return self._connections[host] <= _MOST_OF_ADDRESS and (host in gateways or unknown <= _MOST_UNKNOWN)

    async def _reply(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(self._answer(await reader.readuntil(b"\n")))
        await writer.drain()
        writer.write_eof()
        await reader.read(1)  # waits until the client has read the answer and closes

    def _log_refusal(self, host: str, error: Exception) -> None:
        """Log that a request was rejected. Warn only about the first of several consecutive rejections of a
        gateway."""
        gateways = self._hosts()
        self._refused &= gateways
        if isinstance(error, SealError) and host in gateways and host not in self._refused:
            self._refused.add(host)
            log.warning("Refused a request of gateway %s for the use of limits: %s", host, describe_error(error))
        log.debug("Refused a request for the use of limits from %s: %s", host, describe_error(error))
