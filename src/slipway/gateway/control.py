"""The loop that keeps HAProxy equal to the table: something changed -> table -> files and commands.

It does not know where the table comes from (a cluster, a file): a source puts tables and keys in and calls `changed`.
"""

from __future__ import annotations

import asyncio
import logging

from slipway.gateway.balancing import server_name
from slipway.gateway.cli import CommandFailed
from slipway.gateway.dataplane import DataPlane
from slipway.gateway.probe import Prober
from slipway.gateway.render import State
from slipway.gateway.table import EMPTY, RoutingTable

log = logging.getLogger(__name__)

_GATHER_SECONDS = 0.03
"""Changes that come together are applied together."""
_CHECK_SECONDS = 10.0
"""How often HAProxy is compared with the table though nothing changed: it may have been restarted."""
_FIRST_PAUSE, _LONGEST_PAUSE = 0.2, 2.0


class Control:
    """Holds what is wanted and applies it."""

    def __init__(self, dataplane: DataPlane) -> None:
        self._dataplane = dataplane
        self._prober = Prober(self.changed)
        self._changed = asyncio.Event()
        self._keys: tuple[tuple[str, str], ...] = ()
        self._leaving = False
        self.table: RoutingTable = EMPTY
        """The newest table, with all endpoints: what the model list shows."""
        self.applied = asyncio.Event()
        """Set when HAProxy has had its first table."""

    @property
    def ready(self) -> bool:
        """Whether this replica should get traffic."""
        return self.applied.is_set() and not self._leaving

    def changed(self) -> None:
        """Something in what is wanted may be new."""
        self._changed.set()

    def route(self, table: RoutingTable) -> None:
        """Takes a new table."""
        if table != self.table:
            self.table = table
            self.changed()

    def admit(self, keys: tuple[tuple[str, str], ...]) -> None:
        """Takes new API keys (hash and name)."""
        if keys != self._keys:
            self._keys = keys
            self.changed()

    def leave(self, leaving: bool) -> None:
        """Says to the outside that no more traffic should come, or takes that back."""
        self._leaving = leaving
        self.changed()

    async def run(self) -> None:
        """Applies until cancelled. Begins when HAProxy runs, so that the servers in use need no probe."""
        try:
            self._trust(await self._running_servers())
            self.changed()
            while True:
                await self._apply()
        finally:
            await self._prober.close()

    async def _running_servers(self) -> set[str]:
        while True:
            try:
                return await self._dataplane.servers()
            except CommandFailed as error:
                log.info("waiting for HAProxy: %s", error)
                await asyncio.sleep(1)

    def _trust(self, running: set[str]) -> None:
        endpoints = {endpoint for backend in self.table.backends.values() for endpoint in backend.endpoints}
        self._prober.trust(endpoint for endpoint in endpoints if server_name(endpoint) in running)

    async def _apply(self) -> None:
        try:
            async with asyncio.timeout(_CHECK_SECONDS):
                await self._changed.wait()
            await asyncio.sleep(_GATHER_SECONDS)
        except TimeoutError:
            pass
        pause = _FIRST_PAUSE
        while True:
            self._changed.clear()
            state = State(self._prober.filter(self.table), self._keys, ready=not self._leaving)
            try:
                await self._dataplane.apply(state)
            except CommandFailed as error:
                log.warning("HAProxy does not follow, next attempt in %.1f s: %s", pause, error)
                await asyncio.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)
            else:
                self.applied.set()
                return
