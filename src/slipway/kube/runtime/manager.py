"""A manager, which runs informers, leader election and controllers in one process and shuts them down in order.

Informers start first, even in processes that do not lead, so that a successor's stores are already full. Controllers
start when their stores are filled and this process leads. A controller whose kind is not installed waits without
blocking the others. If a task fails, the process ends, and Kubernetes restarts it.
"""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Awaitable, Callable, Sequence

from slipway.kube.caches.informer import Informer
from slipway.kube.metrics import Metrics
from slipway.kube.runtime.controller import Controller
from slipway.kube.runtime.health import serve
from slipway.kube.runtime.lease import LeaderElector, LeadershipLostError

log = logging.getLogger(__name__)


class Manager:
    """The tasks of a controller process."""

    def __init__(
        self,
        *,
        informers: Sequence[Informer],
        controllers: Sequence[Controller],
        metrics: Metrics,
        listen: str,
        elector: LeaderElector | None = None,
        background: Sequence[Callable[[], Awaitable[None]]] = (),
        first: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """Create a manager; :meth:`run` starts the tasks.

        The functions in ``background``, such as that of the recorder of Events, run alongside the controllers.
        ``listen`` is ``HOST:PORT`` for health and metrics. ``first`` runs once this process leads, before the
        controllers start. Without an elector, this process must be the only one.
        """
        self._informers = tuple(informers)
        self._controllers = tuple(controllers)
        self._metrics = metrics
        self._listen = listen
        self._elector = elector
        self._background = tuple(background)
        self._first = first

    def ready(self) -> bool:
        """Whether every store is filled, except those of kinds that are not installed."""
        return all(informer.answered.is_set() for informer in self._informers)

    async def run(self) -> int:
        """Run until SIGTERM or SIGINT, and return 0. Return 1 if leadership is lost. If a task fails otherwise, raise
        an exception group with its exception."""
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)
        async with serve(self._listen, ready=self.ready, metrics=self._metrics):
            work = asyncio.create_task(self._work())
            stopped = asyncio.create_task(stop.wait())
            try:
                await asyncio.wait({work, stopped}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in (work, stopped):
                    task.cancel()
                await asyncio.wait({work, stopped})
                if self._elector is not None:
                    await self._elector.release()
        return _exit_status(work)

    async def _work(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            for informer in self._informers:
                tasks.create_task(informer.run(), name=f"informer of {informer.kind.plural}")
            for informer in self._informers:
                await informer.answered.wait()
            if self._elector is not None:
                await self._elector.acquire()
                tasks.create_task(self._elector.hold(), name="leader election")
            if self._first is not None:
                await self._first()
            log.info(
                "Starting controllers: %s", ", ".join(controller.name for controller in self._controllers) or "none"
            )
            for run in (*(controller.run for controller in self._controllers), *self._background):
                tasks.create_task(_run(run))


async def _run(run: Callable[[], Awaitable[None]]) -> None:
    await run()


def _exit_status(work: asyncio.Task[None]) -> int:
    """Return 0 if the task was cancelled and 1 if leadership was lost. Raise any other exception that ended the task. A
    task that has ended normally gives 0."""
    if work.cancelled():
        return 0
    error = work.exception()
    if isinstance(error, BaseExceptionGroup):
        lost, others = error.split(LeadershipLostError)
        if others is not None:
            raise others
        log.error("%s", lost.exceptions[0] if lost else error)
        return 1
    if error is not None:
        raise error
    return 0
