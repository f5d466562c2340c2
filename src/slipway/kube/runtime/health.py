"""Health and metrics over HTTP: ``/healthz`` (the event loop runs), ``/readyz`` (the stores are filled) and
``/metrics``."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from aiohttp import web

from slipway.kube.metrics import Metrics

LAG_SECONDS = 5.0
_TICK_SECONDS = 0.5


class Pulse:
    """A measurement of how late the event loop runs its tasks."""

    def __init__(self) -> None:
        self._last = time.monotonic()

    async def run(self) -> None:
        """Update the measurement regularly until the task is cancelled."""
        while True:
            self._last = time.monotonic()
            await asyncio.sleep(_TICK_SECONDS)

    @property
    def lag(self) -> float:
        """Seconds by which the last tick is overdue."""
        return max(0.0, time.monotonic() - self._last - _TICK_SECONDS)


@asynccontextmanager
async def serve(listen: str, *, ready: Callable[[], bool], metrics: Metrics) -> AsyncIterator[None]:
    """Serve ``/healthz``, ``/readyz`` and ``/metrics`` on ``listen`` (``HOST:PORT``) while the context is open."""
    pulse = Pulse()

    async def healthz(_unused: web.Request) -> web.Response:
        lag = pulse.lag
        return web.Response(status=200 if lag < LAG_SECONDS else 503, text=f"event loop {lag:.1f} s late\n")

    async def readyz(_unused: web.Request) -> web.Response:
        return web.Response(text="ready\n") if ready() else web.Response(status=503, text="stores are being filled\n")

    async def numbers(_unused: web.Request) -> web.Response:
        return web.Response(body=metrics.text(), headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"})

    application = web.Application()
    application.add_routes(
        [web.get("/healthz", healthz), web.get("/readyz", readyz), web.get("/metrics", numbers)],
    )
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    host, _unused, port = listen.rpartition(":")
    beat = asyncio.create_task(pulse.run())
    try:
        await web.TCPSite(runner, host or None, int(port)).start()
        yield
    finally:
        beat.cancel()
        await runner.cleanup()
