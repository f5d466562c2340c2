"""The loop that applies each change of the routing table to HAProxy's files and to the running HAProxy.

A source, which is the cluster or a file, publishes snapshots of the table.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping

from slipway.gateway.control.probe import Prober
from slipway.gateway.haproxy.dataplane import DataPlane
from slipway.gateway.haproxy.render import DesiredState
from slipway.gateway.haproxy.socket import CommandError
from slipway.gateway.routing.balancing import server_name
from slipway.gateway.routing.keys import Rights
from slipway.gateway.routing.outliers import Outliers
from slipway.gateway.routing.table import EMPTY, RoutingTable, Snapshot
from slipway.gateway.rules.jwks import VerificationKey
from slipway.gateway.rules.limits import Permissions

log = logging.getLogger(__name__)

_GATHER_SECONDS = 0.03
"""Seconds for which the loop collects changes, so that it applies simultaneous changes together."""
_CHECK_SECONDS = 10.0
"""Seconds after which HAProxy is compared with the table even without changes, because it may have restarted."""
WATCH_SECONDS = 5.0
"""Seconds between two checks for servers that return errors or do not answer."""
_FIRST_PAUSE, _LONGEST_PAUSE = 0.2, 2.0


class ReconcileLoop:
    """The desired state of HAProxy, and the loop that applies it."""

    def __init__(self, dataplane: DataPlane, *, verifies_tokens: bool = False) -> None:
        """If the gateway ``verifies_tokens``, it applies the first table only after the first call of
        :meth:`set_verification_keys`."""
        self._dataplane = dataplane
        self._verification_keys: tuple[VerificationKey, ...] = ()
        self._issuer_answered = asyncio.Event()
        if not verifies_tokens:
            self._issuer_answered.set()
        self._prober = Prober(self.mark_changed)
        self._outliers = Outliers()
        self._permissions = Permissions()
        self._changed = asyncio.Event()
        self.has_table = asyncio.Event()
        """Event that is set when the first table is published."""
        self._snapshot = Snapshot(EMPTY)
        self._leaving = False
        self._applied = asyncio.Event()
        self._conditions: list[asyncio.Event] = []

    @property
    def table(self) -> RoutingTable:
        """The latest table with all endpoints, including those that do not listen yet."""
        return self._snapshot.table

    @property
    def rights(self) -> Mapping[str, Rights]:
        """Rights of the API keys and subjects, by name."""
        return self._snapshot.rights

    @property
    def gateways(self) -> Mapping[str, bool]:
        """``host:port`` of a gateway's exchange -> whether the gateway's pod is Ready."""
        return self._snapshot.gateways

    @property
    def ready(self) -> bool:
        """Whether this gateway should get traffic: HAProxy has a table, and the gateway is not shutting down."""
        return self._applied.is_set() and not self._leaving

    @property
    def passed_over(self) -> dict[str, int]:
        """Backend name -> number of servers that get no requests, because they return errors or do not answer."""
        return self._outliers.count_passed_over()

    def add_condition(self, condition: asyncio.Event) -> None:
        """Delay the first table, and thus the readiness of the gateway, until ``condition`` is set. The delay does not
        apply if HAProxy already has servers."""
        self._conditions.append(condition)

    def mark_changed(self) -> None:
        """Start a new round of the loop, because the desired state may have changed."""
        self._changed.set()

    def publish(self, snapshot: Snapshot) -> None:
        """Set the latest snapshot, which becomes the desired state."""
        self.has_table.set()
        if snapshot != self._snapshot:
            self._snapshot = snapshot
            self.mark_changed()

    def set_verification_keys(self, keys: tuple[VerificationKey, ...]) -> None:
        """Set the keys that verify the issuer's tokens. There are none if the first request for them failed."""
        self._verification_keys = keys
        self._issuer_answered.set()
        self.mark_changed()

    def set_leaving(self, leaving: bool) -> None:
        """Make the gateway unready before it shuts down (``leaving``), or ready again."""
        self._leaving = leaving
        self.mark_changed()

    async def run(self) -> None:
        """Apply the desired state until cancelled. Wait first for a snapshot, for HAProxy, and for the issuer's keys if
        the gateway verifies tokens.

        Servers that HAProxy already uses are not probed.
        """
        try:
            await self.has_table.wait()
            await self._issuer_answered.wait()
            running = await self._running_servers()
            if not running:  # Otherwise HAProxy is ready already, and only this process is new.
                for condition in self._conditions:
                    await condition.wait()
            self._trust_running(running)
            self.mark_changed()
            while True:
                await self._apply()
        finally:
            await self._prober.close()

    async def watch_servers(self) -> None:
        """Check every few seconds which servers return errors or do not answer and must be skipped, until cancelled."""
        now = asyncio.get_running_loop().time
        while True:
            await asyncio.sleep(WATCH_SECONDS)
            readmitted = self._outliers.expire(now())
            try:
                verdicts = self._outliers.observe(now(), await self._dataplane.read_outcomes())
            except CommandError:
                verdicts = []  # HAProxy does not run, which the loop reports
            for one in verdicts:
                log.warning("%s: skipping %s for %.0f s: %s", one.backend, one.server, one.seconds, one.reason)
            if readmitted or verdicts:
                self.mark_changed()

    async def _running_servers(self) -> set[str]:
        while True:
            try:
                return await self._dataplane.list_active_servers()
            except CommandError as error:
                log.info("Waiting for HAProxy: %s", error)
                await asyncio.sleep(1)

    def _trust_running(self, running: set[str]) -> None:
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
            keys, rights = self._snapshot.keys, self._snapshot.rights
            table = self._prober.filter(self._outliers.filter(self.table))
            allowed = self._permissions.update(rights, table)
            state = DesiredState(table, keys, rights, not self._leaving, allowed, self._verification_keys)
            try:
                await self._dataplane.apply(state)
            except CommandError as error:
                log.warning("Could not apply the new state to HAProxy; retrying in %.1f s: %s", pause, error)
                await asyncio.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)
            else:
                self._applied.set()
                return
