"""Runs on a cluster where no pod starts: what a node would do with them is done here. And the deaths of their lives."""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection
from typing import Self

from .harness import PLURALS, PREFIXES, Run, crash
from .proxy import Exchange, Fault, Object

VARYING = re.compile(rb"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|[0-9]+")
"""What the same write has anew in each attempt: uids, versions, times."""
MOST_DEATHS = 40
QUIET_SECONDS = 0.7


class NodeRun(Run, ABC):
    """A run whose pods a task looks after from when it begins."""

    prefixes = PREFIXES | {"Job": "/apis/batch/v1", "Pod": "/api/v1", "PersistentVolumeClaim": "/api/v1"}
    plurals = PLURALS | {"Job": "jobs", "Pod": "pods", "PersistentVolumeClaim": "persistentvolumeclaims"}
    _node: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        await super().__aenter__()
        self._node = asyncio.create_task(self._work())
        return self

    async def __aexit__(self, *error: object) -> None:
        if self._node is not None:
            self._node.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._node
        await super().__aexit__(*error)

    @abstractmethod
    async def _work(self) -> None:
        """What the node does, until it is cancelled."""

    @abstractmethod
    async def life(self) -> None:
        """What becomes of the resources, stage by stage; keeps what was made for them after each step."""

    def is_quiet(self) -> bool:
        """Whether nothing is written any more."""
        return not self.proxy.writes or time.monotonic() - self.proxy.writes[-1].at > QUIET_SECONDS


async def live_through_deaths(run: NodeRun, stage: str, certain: Collection[str], *, after: bool) -> None:
    """Lives while the controller dies before or after each sort of write of one stage. ``certain``: resources that are
    certainly written in it."""
    deaths = Fault(first_of_its_sort(stage), crash(run.controller, after=after), MOST_DEATHS)
    run.proxy.faults.append(deaths)
    await run.controller.start()
    await run.life()
    missing = set(certain) - {exchange.label.removeprefix(f"{stage} ") for exchange in deaths.fired}
    assert not missing, f"no such write: {sorted(missing)}"
    assert deaths.left, f"too many sorts of writes: {deaths.fired}"


async def ends(run: Run, pod: Object, message: str = "") -> bool:
    """Says that the pod of a Job has succeeded, with these last words. False: it went meanwhile."""
    container = pod["spec"]["containers"][0]
    over = {"exitCode": 0, "reason": "Completed", "message": message}
    status = {"name": container["name"], "image": container["image"], "imageID": "", "ready": False}
    told = {"phase": "Succeeded", "containerStatuses": [status | {"restartCount": 0, "state": {"terminated": over}}]}
    path = run.path("Pod", pod["metadata"]["name"]) + "/status"
    return await run.api.call("PATCH", path, {"status": told}, "application/merge-patch+json") is not None


def first_of_its_sort(stage: str) -> Callable[[Exchange], bool]:
    """Matches each write of a stage that is unlike all that it has matched before."""
    had: set[tuple[str, str, bytes]] = set()

    def matches(exchange: Exchange) -> bool:
        if not (exchange.write and exchange.label.startswith(f"{stage} ")):
            return False
        sort = (exchange.method, exchange.label, VARYING.sub(b"", exchange.body))
        new = sort not in had
        had.add(sort)
        return new

    return matches
