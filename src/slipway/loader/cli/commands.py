"""The loader's long-running commands, and the port on which they report progress or accept the controller's
requests."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from aiohttp import web

from slipway.loader.agent.agent import Agent
from slipway.loader.agent.budget import Budget
from slipway.loader.agent.engine import ENGINE_APIS, Engine
from slipway.loader.agent.gate import Gate
from slipway.loader.agent.plan import Version
from slipway.loader.agent.state_api import application
from slipway.loader.agent.store import Store
from slipway.loader.agent.threads import in_thread
from slipway.loader.disk.progress import Meter, Pace
from slipway.loader.download.load import load
from slipway.loader.download.transfer import Policy
from slipway.loader.transport.errors import LoadError, StoppedError
from slipway.loader.transport.source import Access, Source, open_source
from slipway.serving.wire.agent import IN_PLACE, AgentReport
from slipway.serving.wire.proof import public_key

log = logging.getLogger(__name__)
LOG_PERIOD = 10.0
"""Seconds between two log lines about progress."""
ADAPTER_FILES = 4
"""Maximum number of files of one adapter to download at the same time."""
Address = tuple[str, int]
T = TypeVar("T")


class Port(msgspec.Struct, frozen=True):
    """The address on which the loader listens, and the check of its clients."""

    address: Address
    gate: Gate


def gate(controller_key: str, pod: str) -> Gate:
    """Return the gate that verifies the controller's requests. ``controller_key`` is the controller's public key, in
    the format of ``slipway.serving.wire.proof.SigningKey.public``, and ``pod`` is the uid of this pod. Raise ValueError
    for an invalid key."""
    return Gate(public_key(controller_key), pod)


def port(address: Address, controller_key: str, pod: str) -> Port | None:
    """Return the port with its gate, or None if ``controller_key`` is empty, because no request could then be
    verified."""
    return Port(address, gate(controller_key, pod)) if controller_key else None


def run_load(url: str, folder: Path, policy: Policy, listen: Port | None, access: Access) -> str:
    """Download ``url`` into the directory ``folder``, and return a sentence about the result. If ``listen`` is set,
    report the progress on that port. Raise LoadError or StoppedError."""
    meter = Meter()
    source = partial(open_source, url, os.environ, access)
    work = partial(load, url, source, folder, policy, threading.Event(), meter)
    fresh = with_progress(work, meter, listen)
    return f"{folder} is complete: {meter.line()}" if fresh else f"{folder} is already complete"


def with_progress(work: Callable[[], T], meter: Meter, listen: Port | None, pace: Pace | None = None) -> T:
    """Run ``work`` and return its result. Meanwhile, report its progress in the log and, if ``listen`` is set, on the
    port. If ``pace`` is set, raise LoadError when the source is too slow. Raise StoppedError after a signal, or the
    exception of ``work``."""
    return asyncio.run(_run_with_progress(work, meter, listen, pace))


def run_serve(directory: Path, engine: Engine, listen: Port, most_bytes: int, access: Access) -> None:
    """Manage the adapters of ``engine`` until a signal stops the process. All adapters together may use ``most_bytes``
    of disk space.

    Raise LoadError if the loader cannot listen on the port.
    """
    asyncio.run(_serve(directory, engine, listen, most_bytes, access))


def engine(url: str, kind: str) -> Engine:
    """Return a client for the engine at ``url``. ``kind`` is a key of ``ENGINE_APIS``. For every kind, the API key is
    the value of the environment variable ``VLLM_API_KEY``; empty or unset: there is none."""
    return Engine(url, os.environ.get("VLLM_API_KEY", ""), ENGINE_APIS[kind])


async def _run_with_progress(work: Callable[[], T], meter: Meter, listen: Port | None, pace: Pace | None) -> T:
    """Run ``work`` in a thread; see ``with_progress``."""
    task = asyncio.ensure_future(in_thread(work))
    _on_signal(task)
    async with _reporting(meter, listen):
        while not (await asyncio.wait([task], timeout=LOG_PERIOD))[0]:
            log.info("%s", meter.line())
            if pace is not None:
                pace.check()
    if task.cancelled():
        raise StoppedError
    return task.result()


def _reporting(meter: Meter, listen: Port | None) -> AbstractAsyncContextManager[None]:
    """Return a context that reports progress on the port while it is open. Without a port, the context does nothing."""
    if listen is None:
        return nullcontext()
    app = application(lambda: AgentReport(progress=meter.progress(), resume=meter.resume), listen.gate)
    return _listening(app, listen.address, needed=False)


def _on_signal(task: asyncio.Future[Any]) -> None:
    """Cancel ``task`` on SIGTERM, which Kubernetes sends to stop a container, and on SIGINT."""
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)


async def _serve(directory: Path, engine: Engine, listen: Port, most_bytes: int, access: Access) -> None:
    store = Store(directory)

    def opened(url: str) -> Source:
        return open_source(url, os.environ, access)

    fetch = partial(fetch_adapter, store, Budget(store, most_bytes), opened, Policy(parallel=ADAPTER_FILES))

    async with engine as opened_engine:
        agent = Agent(store, opened_engine, fetch)
        async with _listening(application(agent.report, listen.gate, agent), listen.address, needed=True):
            task = asyncio.create_task(agent.run())
            _on_signal(task)
            with suppress(asyncio.CancelledError):
                await task


def fetch_adapter(
    store: Store,
    budget: Budget,
    opened: Callable[[str], Source],
    policy: Policy,
    url: str,
    version: Version,
    stop: threading.Event,
    meter: Meter,
) -> None:
    """Download the adapter at ``url`` into the directory of its version. If the adapter is part of the engine's
    container, only mark the version as complete. ``opened`` returns the source of a URL. Raise LoadError or
    StoppedError."""
    if url.startswith(IN_PLACE):
        store.note(version, url)
        return
    with ExitStack() as open_until_loaded:

        def source() -> Source:
            return open_until_loaded.enter_context(budget.within(version, opened(url)))

        load(url, source, store.path(version), policy, stop, meter)


@asynccontextmanager
async def _listening(app: web.Application, listen: Address, *, needed: bool) -> AsyncIterator[None]:
    """Serve ``app`` while the context is open. If the loader cannot listen on the address, raise LoadError if
    ``needed`` is True, and otherwise continue without a port. Two loaders that share the network of a host, for
    example, compete for the port."""
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    try:
        try:
            await web.TCPSite(runner, *listen).start()
        except OSError as error:
            if needed:
                raise LoadError(
                    f"cannot listen on port {listen[1]}: {error.strerror}: choose another with --listen"
                ) from error
            log.warning("Cannot report progress on port %d: %s", listen[1], error.strerror)
        yield
    finally:
        await runner.cleanup()
