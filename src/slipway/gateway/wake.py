"""Waking: where requests wait for a model that was scaled to zero, its scale is set to one.

HAProxy is asked who waits only while there are models that could be woken. Other gateways may do the same: the write
carries the version that was read, and one replica is all that any of them asks for. More is the autoscaler's work.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import NamedTuple

from slipway.gateway.cli import CommandFailed
from slipway.gateway.table import EMPTY, Backend, RoutingTable
from slipway.kube.client import Client
from slipway.kube.errors import ApiError, Conflict
from slipway.kube.objects import Key, Kind
from slipway.serving.route import ScaleTarget

log = logging.getLogger(__name__)

_LOOK_SECONDS = 0.1
_PAUSE_SECONDS = 1.0
"""Between two tries for one target."""
_READINGS = 3
"""How often a scale is read within one try when others write at the same time."""


class Sleeper(NamedTuple):
    """What is to be scaled: several backends (a model and its adapters) may share it."""

    namespace: str
    target: ScaleTarget


def sleepers(table: RoutingTable) -> dict[str, Sleeper]:
    """What to scale by the name of each backend that has no endpoint. Pure."""
    return {
        name: Sleeper(backend.namespace, backend.route.scale)
        for name, backend in table.backends.items()
        if backend.route.scale and not backend.endpoints
    }


class Waker:
    """Wakes what is waited for."""

    def __init__(
        self,
        client: Client,
        waiting: Callable[[], Awaitable[Mapping[str, int]]],
        refused: Callable[[Backend, str], None],
    ) -> None:
        """`waiting` gives the number of waiting requests by backend and may raise CommandFailed.

        `refused` is told once when a backend cannot be woken, and why.
        """
        self._client = client
        self._waiting = waiting
        self._refused = refused
        self._told: dict[Sleeper, str] = {}

    async def run(self, current: Callable[[], RoutingTable]) -> None:
        """Wakes until cancelled."""
        table, asleep = EMPTY, sleepers(EMPTY)
        rest: dict[Sleeper, float] = {}
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            if current() is not table:
                table = current()
                asleep = sleepers(table)
            now = loop.time()
            rest = {sleeper: until for sleeper, until in rest.items() if until > now}
            wanted = {
                asleep[name]: table.backends[name]
                for name in (await self._waited_for() if asleep else ())
                if name in asleep and asleep[name] not in rest
            }
            await asyncio.gather(*(self._try(sleeper, backend) for sleeper, backend in wanted.items()))
            rest |= dict.fromkeys(wanted, now + _PAUSE_SECONDS)

    async def _waited_for(self) -> Iterable[str]:
        try:
            return [name for name, number in (await self._waiting()).items() if number]
        except CommandFailed as error:
            log.debug("who waits is not known: %s", error)
            return ()

    async def _try(self, sleeper: Sleeper, backend: Backend) -> None:
        try:
            woken = await wake(self._client, sleeper)
        except ApiError as error:
            message = f"{sleeper.target.plural} {sleeper.target.name} cannot be scaled from zero: {error}"
            if self._told.get(sleeper) != message:
                self._told[sleeper] = message
                log.warning("Service %s/%s: %s", backend.namespace, backend.service, message)
                self._refused(backend, message)
            return
        self._told.pop(sleeper, None)
        if woken:
            log.info("%s %s/%s was woken", sleeper.target.plural, sleeper.namespace, sleeper.target.name)


async def wake(client: Client, sleeper: Sleeper) -> bool:
    """Sets the scale to one where it is zero; says whether it was. Raises ApiError."""
    target = sleeper.target
    kind = Kind(target.group, target.version, "Scale", target.plural)
    for reading in range(1, _READINGS + 1):
        scale = await client.get(kind, Key(sleeper.namespace, target.name), subresource="scale")
        # A zero is left out of the JSON by the API server.
        if scale.get("spec", {}).get("replicas", 0):
            return False
        try:
            await client.replace(
                kind, {**scale, "spec": {"replicas": 1}}, field_manager="slipway-gateway", subresource="scale"
            )
        except Conflict:
            if reading == _READINGS:
                raise
        else:
            return True
    return False
