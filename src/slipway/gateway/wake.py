"""Waking: where requests wait for a model that was scaled to zero, its scale is set to one.

HAProxy is asked who waits only while there are models that could be woken. Other gateways may do the same: the write
carries the version that was read, and one replica is all that any of them asks for. More is the autoscaler's work.
Each model is tried by itself: one that fails, or whose scale is slow to answer, holds no other one up.
"""

from __future__ import annotations

import asyncio
import logging
import math
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
        self._told: dict[Sleeper | None, str] = {}
        """What was told last of each; None: of the question who waits."""
        self._rest: dict[Sleeper, float] = {}
        """Until when each is left alone."""

    async def run(self, current: Callable[[], RoutingTable]) -> None:
        """Wakes until cancelled."""
        table, asleep = EMPTY, sleepers(EMPTY)
        loop = asyncio.get_running_loop()
        async with asyncio.TaskGroup() as tries:
            while True:
                await asyncio.sleep(_LOOK_SECONDS)
                if current() is not table:
                    table = current()
                    asleep = sleepers(table)
                now = loop.time()
                self._rest = {sleeper: until for sleeper, until in self._rest.items() if until > now}
                wanted = {
                    asleep[name]: table.backends[name]
                    for name in (await self._waited_for() if asleep else ())
                    if name in asleep and asleep[name] not in self._rest
                }
                for sleeper, backend in wanted.items():
                    self._rest[sleeper] = math.inf
                    tries.create_task(self._try(sleeper, backend))

    async def _waited_for(self) -> Iterable[str]:
        try:
            names = [name for name, number in (await self._waiting()).items() if number]
        except CommandFailed as error:
            log.debug("who waits is not known: %s", error)
            return ()
        except Exception as error:  # a bug must not end what serves the models that are awake
            if self._new(None, _kind(error)):
                log.exception("who waits cannot be read")
            return ()
        self._told.pop(None, None)
        return names

    async def _try(self, sleeper: Sleeper, backend: Backend) -> None:
        target = sleeper.target
        try:
            woken = await wake(self._client, sleeper)
        except Exception as error:  # noqa: BLE001 - a bug must stop this model only
            self._failed(sleeper, backend, error)
        else:
            self._told.pop(sleeper, None)
            if woken:
                log.info("%s %s/%s was woken", target.plural, sleeper.namespace, target.name)
        finally:
            self._rest[sleeper] = asyncio.get_running_loop().time() + _PAUSE_SECONDS

    def _failed(self, sleeper: Sleeper, backend: Backend, error: Exception) -> None:
        expected = isinstance(error, ApiError)
        target, fault = sleeper.target, str(error) if expected else _kind(error)
        message = f"{target.plural} {target.name} cannot be scaled from zero: {fault}"
        if self._new(sleeper, message):
            log.warning("Service %s/%s: %s", backend.namespace, backend.service, message, exc_info=not expected)
            self._refused(backend, message)

    def _new(self, subject: Sleeper | None, message: str) -> bool:
        """Whether this was not told of it last."""
        new = self._told.get(subject) != message
        self._told[subject] = message
        return new


def _kind(error: Exception) -> str:
    """An error that nobody expected. What it says is left to the log: an Event is read by more people."""
    return f"{type(error).__name__}, see the gateway's log"


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
