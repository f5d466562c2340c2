"""Probes new endpoints. A Ready pod may not listen yet, because a pod without a readiness probe is Ready immediately.

HAProxy gets an endpoint only after its port has accepted a connection. Until then, requests wait instead of failing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from slipway.gateway.routing.table import Backend, RoutingTable

_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 1.0
_CONNECT_SECONDS = 2.0


class Prober:
    """The set of endpoints that listen. It probes new endpoints until they listen."""

    def __init__(self, changed: Callable[[], None]) -> None:
        """``changed`` is called when a new endpoint listens."""
        self._notify = changed
        self._listening: set[str] = set()
        self._tries: dict[str, asyncio.Task[None]] = {}

    def filter(self, table: RoutingTable) -> RoutingTable:
        """Return the table with only the endpoints that listen. Start to probe new endpoints, and forget removed
        endpoints."""
        current = {endpoint for backend in table.backends.values() for endpoint in backend.endpoints}
        self._listening &= current
        for endpoint in self._tries.keys() - current:
            self._tries.pop(endpoint).cancel()
        for endpoint in current - self._listening - self._tries.keys():
            self._tries[endpoint] = asyncio.create_task(self._wait_until_listening(endpoint))
        return table._replace(
            backends={name: self._keep_listening(backend) for name, backend in table.backends.items()}
        )

    def trust(self, endpoints: Iterable[str]) -> None:
        """Treat ``endpoints`` as listening without a probe, because HAProxy already uses them."""
        self._listening.update(endpoints)

    async def close(self) -> None:
        """Cancel all probes."""
        tries = list(self._tries.values())
        for task in tries:
            task.cancel()
        await asyncio.gather(*tries, return_exceptions=True)

    def _keep_listening(self, backend: Backend) -> Backend:
        return backend._replace(endpoints=tuple(filter(self._listening.__contains__, backend.endpoints)))

    async def _wait_until_listening(self, endpoint: str) -> None:
        host, _unused, port = endpoint.rpartition(":")
        pause = _FIRST_PAUSE
        while not await _accepts_connections(host.strip("[]"), int(port)):
            await asyncio.sleep(pause)
            pause = min(pause * 1.5, _LONGEST_PAUSE)
        self._listening.add(endpoint)
        del self._tries[endpoint]
        self._notify()


async def _accepts_connections(host: str, port: int) -> bool:
    try:
        async with asyncio.timeout(_CONNECT_SECONDS):
            _unused, writer = await asyncio.open_connection(host, port)
    except (OSError, TimeoutError):
        return False
    writer.close()
    return True
