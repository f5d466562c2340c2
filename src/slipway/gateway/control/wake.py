"""The waker: scales a model from zero to one replica when requests wait for the model.

It polls HAProxy for waiting requests only while a model is scaled to zero. Other gateways may scale the same model, so
each write contains the resource version that was read, and always sets one replica. The autoscaler adds more replicas.
Each model is scaled in a separate task, so that a slow or failing model does not delay the others.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import NamedTuple

from slipway.gateway.haproxy.socket import CommandError
from slipway.gateway.routing.table import EMPTY, Backend, RoutingTable
from slipway.kube.api.client import Client
from slipway.kube.api.errors import ApiError, ConflictError
from slipway.kube.objects import Key, Kind
from slipway.serving.routing.route import ScaleTarget

log = logging.getLogger(__name__)

_POLL_SECONDS = 0.1
_RETRY_SECONDS = 1.0
"""Seconds between two attempts to scale one target."""
_ATTEMPTS = 3
"""Maximum number of reads and writes of a scale in one attempt, in case of conflicts with other writers."""


class Sleeper(NamedTuple):
    """The scale target of a backend without an endpoint. Several backends, such as a model and its adapters, may share
    a target."""

    namespace: str
    target: ScaleTarget


def find_sleepers(table: RoutingTable) -> dict[str, Sleeper]:
    """Return the scale target of each backend that has one but no endpoint, by backend name. Pure."""
    return {
        name: Sleeper(backend.namespace, backend.route.scale)
        for name, backend in table.backends.items()
        if backend.route.scale and not backend.endpoints
    }


class Waker:
    """A task that scales models from zero when requests wait for them."""

    def __init__(
        self,
        client: Client,
        waiting: Callable[[], Awaitable[Mapping[str, int]]],
        report: Callable[[Backend, str], None],
        report_woken: Callable[[Backend, str], None],
    ) -> None:
        """``waiting`` returns the number of waiting requests by backend name, and may raise CommandError.

        ``report`` gets a backend that cannot be scaled and the reason, once for consecutive equal failures.
        ``report_woken`` gets one backend of each target that was scaled, and a message for users.
        """
        self._client = client
        self._waiting = waiting
        self._report, self._report_woken = report, report_woken
        self._reported: dict[Sleeper | None, str] = {}
        """Scale target -> its last reported failure. The key None is for failures to count waiting requests."""
        self._paused_until: dict[Sleeper, float] = {}
        """Scale target -> the event loop's time until which it is not tried again; infinite during an attempt."""

    async def run(self, current: Callable[[], RoutingTable]) -> None:
        """Wake models until cancelled. ``current`` returns the latest routing table."""
        table, asleep = EMPTY, find_sleepers(EMPTY)
        loop = asyncio.get_running_loop()
        async with asyncio.TaskGroup() as tries:
            while True:
                await asyncio.sleep(_POLL_SECONDS)
                if current() is not table:
                    table = current()
                    asleep = find_sleepers(table)
                    self._forget_all_but(asleep.values())
                now = loop.time()
                self._paused_until = {sleeper: until for sleeper, until in self._paused_until.items() if until > now}
                waiting = await self._count_waiting() if asleep else {}
                due = {
                    asleep[name]: table.backends[name]
                    for name in waiting
                    if name in asleep and asleep[name] not in self._paused_until
                }
                for sleeper, backend in due.items():
                    self._paused_until[sleeper] = math.inf
                    requests = sum(number for name, number in waiting.items() if asleep.get(name) == sleeper)
                    tries.create_task(self._wake(sleeper, backend, requests))

    def _forget_all_but(self, asleep: Collection[Sleeper]) -> None:
        """Forget the reported failures of models that are no longer asleep."""
        subjects = {None, *asleep}
        self._reported = {subject: text for subject, text in self._reported.items() if subject in subjects}

    async def _count_waiting(self) -> Mapping[str, int]:
        """Return the number of waiting requests by backend name, without zeros. Empty if HAProxy does not respond."""
        try:
            waiting = {name: number for name, number in (await self._waiting()).items() if number}
        except CommandError as error:
            log.debug("Could not list waiting requests: %s", error)
            return {}
        except Exception as error:  # a bug must not affect models that are running
            if self._is_new(None, _describe_unexpected(error)):
                log.exception("Unexpected error while listing waiting requests")
            return {}
        self._reported.pop(None, None)
        return waiting

    async def _wake(self, sleeper: Sleeper, backend: Backend, requests: int) -> None:
        target = sleeper.target
        try:
            woken = await wake(self._client, sleeper)
        except Exception as error:  # noqa: BLE001 - a bug must stop this model only
            self._report_failure(sleeper, backend, error)
        else:
            self._reported.pop(sleeper, None)
            if woken:
                message = f"Scaled from 0 to 1 replica: {requests} waiting request{'s' * (requests != 1)}."
                log.info("%s %s/%s: %s", target.plural, sleeper.namespace, target.name, message)
                self._report_woken(backend, message)
        finally:
            self._paused_until[sleeper] = asyncio.get_running_loop().time() + _RETRY_SECONDS

    def _report_failure(self, sleeper: Sleeper, backend: Backend, error: Exception) -> None:
        expected = isinstance(error, ApiError)
        target, fault = sleeper.target, str(error) if expected else _describe_unexpected(error)
        message = f"{target.plural} {target.name} cannot be scaled from zero: {fault}"
        if self._is_new(sleeper, message):
            log.warning("Service %s/%s: %s", backend.namespace, backend.service, message, exc_info=not expected)
            self._report(backend, message)

    def _is_new(self, subject: Sleeper | None, message: str) -> bool:
        """Record the failure of ``subject``. Return whether it differs from the last recorded failure."""
        new = self._reported.get(subject) != message
        self._reported[subject] = message
        return new


def _describe_unexpected(error: Exception) -> str:
    """Return a description of an unexpected error for Events.

    The description omits the error's text, because more people can read Events than logs.
    """
    return f"{type(error).__name__}, see the gateway's log"


async def wake(client: Client, sleeper: Sleeper) -> bool:
    """Set the scale of a target to one replica if it is zero. Return whether this call has set it. Retry after a
    conflict. Raise ApiError if a request to the API server fails for another reason, or the last attempt has a
    conflict."""
    target = sleeper.target
    kind = Kind(target.group, target.version, "Scale", target.plural)
    for reading in range(1, _ATTEMPTS + 1):
        scale = await client.get(kind, Key(sleeper.namespace, target.name), subresource="scale")
        # The API server omits a zero from the JSON.
        if scale.get("spec", {}).get("replicas", 0):
            return False
        try:
            await client.replace(
                kind, {**scale, "spec": {"replicas": 1}}, field_manager="slipway-gateway", subresource="scale"
            )
        except ConflictError:
            if reading == _ATTEMPTS:
                raise
        else:
            return True
    return False
