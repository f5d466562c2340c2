"""The command ``slipway gateway``: the control process, and (``--init``) the step that writes HAProxy's first files."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import resource
import signal
import socket
import sys
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
from prometheus_client import Counter

from slipway.gateway.control import http_api, supervisor
from slipway.gateway.control.exchange import Exchange, View
from slipway.gateway.control.jwks_source import JwksSource
from slipway.gateway.control.reconcile_loop import ReconcileLoop
from slipway.gateway.control.supervisor import Pulse
from slipway.gateway.haproxy import render
from slipway.gateway.haproxy.dataplane import DataPlane, write_files
from slipway.gateway.haproxy.metrics import Answers, HaproxyCollector
from slipway.gateway.haproxy.render import DesiredState
from slipway.gateway.haproxy.socket import CommandError
from slipway.gateway.rules import connections
from slipway.gateway.settings import InvalidSettingsError, Settings, load
from slipway.gateway.sources.file import FileSource
from slipway.gateway.ui.app import Page
from slipway.gateway.ui.overview import Cluster
from slipway.kube.metrics import Metrics

log = logging.getLogger(__name__)

_BEAT_SECONDS = 5.0
_STOP_SECONDS = 20.0
"""HAProxy is stopped a few seconds after us (preStop). If it is still running then, only this container is replaced."""
Run = Callable[[], Coroutine[Any, Any, None]]
"""Something that runs until it is cancelled."""
Look = Callable[[], Cluster]
"""What the page may know of the cluster now."""


def main(argv: list[str]) -> int:
    """Runs the command; returns the exit status."""
    arguments = _arguments(argv)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s", stream=sys.stderr)
    try:
        settings = _within_open_files(load(arguments.config))
    except (InvalidSettingsError, OSError) as error:
        sys.stderr.write(f"slipway gateway: {error}\n")
        return 2
    if arguments.init:
        write_files(settings.directory, render.files(settings, DesiredState()))
        return 0

    # Open while no control process runs: who asks for the model list then waits for the next one.
    door = http_api.listening(settings.directory / "control.sock")

    def run(restarts: int, pulse: Pulse) -> int:
        return asyncio.run(_run(settings, arguments.table, door, restarts, pulse))

    return supervisor.keep(run) if arguments.supervise else run(0, Pulse())


def _within_open_files(settings: Settings) -> Settings:
    """HAProxy's container has our limit of open files. HAProxy does not start if its connections could exceed it.

    Raises InvalidSettingsError if the limit is too low for a useful gateway.
    """
    _unused, files = resource.getrlimit(resource.RLIMIT_NOFILE)
    if files == resource.RLIM_INFINITY:
        return settings
    allowed = connections.within_open_files(settings.max_connections, files)
    if allowed < settings.max_connections:
        text = (
            "maxConnections: %d open files allow only %d of %d connections. Raise the limit of open files (ulimit -n)."
        )
        log.warning(text, files, allowed, settings.max_connections)
    return msgspec.structs.replace(settings, max_connections=allowed)


def _arguments(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="slipway gateway", description="Configure the HAProxy of the gateway's pod.")
    parser.add_argument("--config", type=Path, required=True, help="settings file (YAML)")
    parser.add_argument("--init", action="store_true", help="write HAProxy's first configuration and exit")
    parser.add_argument("--supervise", action="store_true", help="restart the process when it ends or hangs")
    parser.add_argument("--table", type=Path, help="JSON file with the routing table, instead of a cluster")
    return parser.parse_args(argv)


async def _run(settings: Settings, table: Path | None, door: socket.socket, restarts: int, pulse: Pulse) -> int:
    metrics, collector = Metrics(), HaproxyCollector()
    metrics.registry.register(collector)
    text = "Restarts of the control process."
    Counter("slipway_gateway_control_restarts", text, registry=metrics.registry).inc(restarts)
    dataplane = DataPlane(settings)
    reconciler = ReconcileLoop(dataplane, verifies=settings.jwt is not None)

    async def counters() -> Answers:
        return (await dataplane.counters())._replace(passed_over=reconciler.passed_over)

    async def requests(services: Sequence[str]) -> Mapping[str, int]:
        backends = {service.replace("/", ":"): service for service in services}
        numbers = await dataplane.requests([name for name in backends if name in reconciler.table.backends])
        return {backends[name]: number for name, number in numbers.items()}

    async with AsyncExitStack() as stack:
        if table is not None:
            feeds: list[Run] = [partial(FileSource(table).run, reconciler.publish)]
            look: Look = Cluster
        else:
            feeds, look = await _cluster(settings, metrics, dataplane, reconciler, stack)
        if settings.jwt:
            source = JwksSource(settings, settings.jwt, metrics.registry)
            feeds.append(partial(source.run, reconciler.verify_with))
        if settings.api_keys_secret:

            def view() -> View | None:
                return View(reconciler.rights, reconciler.gateways) if reconciler.known.is_set() else None

            exchange = Exchange(settings, dataplane, view, metrics.registry)
            reconciler.wait_for(exchange.prepared)
            feeds.append(exchange.run)
        if settings.count_tokens:
            feeds.append(dataplane.watch_tokens)
        models = http_api.model_list(lambda: reconciler.table, lambda: reconciler.rights)
        models.middlewares.append(http_api.once_known(reconciler.known))
        if settings.ui:
            page = Page(
                lambda: reconciler.table,
                look,
                counters,
                keys=bool(settings.api_keys_secret),
                replica=os.environ.get("POD_NAME", ""),
                rights=lambda: reconciler.rights,
            )
            page.add_to(models)
        await stack.enter_async_context(http_api.served(models, door))
        refresh = partial(_refresh, collector, counters)
        operations = http_api.operations(lambda: reconciler.ready, refresh, metrics.text, requests)
        await stack.enter_async_context(http_api.served(operations, settings.control_listen))
        work = asyncio.create_task(_together(reconciler.run, reconciler.look, partial(_beat, pulse), *feeds))
        await _until_signalled(work)
        if not work.done():
            await _leave(reconciler, dataplane, work)
            work.cancel()
        await asyncio.wait({work})
        if not work.cancelled():
            work.result()  # raises what ended it
    return 0


async def _cluster(
    settings: Settings, metrics: Metrics, dataplane: DataPlane, reconciler: ReconcileLoop, stack: AsyncExitStack
) -> tuple[list[Run], Look]:
    """What runs for the cluster that the environment names: the source and the waker; for the page, what it shows.

    Imported late: the init step and static tables need no client.
    """
    from slipway.gateway.control.wake import Waker
    from slipway.gateway.sources.kubernetes import KubernetesSource
    from slipway.gateway.ui.resources import Resources
    from slipway.kube.api.client import Client
    from slipway.kube.objects import Key, Kind

    client = await Client.connect(metrics=metrics)
    stack.push_async_callback(client.close)
    name = settings.api_keys_secret
    secret = Key(os.environ.get("POD_NAMESPACE", "default"), name) if name else None
    source = KubernetesSource(client, metrics, secret, settings)
    waker = Waker(client, dataplane.waiting, source.report_not_woken, source.report_woken)
    kinds = settings.ui_kinds if settings.ui else ()
    declared = Resources(client, [Kind(kind.group, kind.version, kind.kind, kind.plural) for kind in kinds])

    def look() -> Cluster:
        cluster = Cluster(declared.all(), source.owners(), source.faults, source.away_since, declared.unread())
        return cluster.within(source.serves())

    return [partial(source.run, reconciler.publish), partial(waker.run, lambda: reconciler.table), declared.run], look


async def _together(*runs: Run) -> None:
    """Runs all of these until one fails, which ends the others, or until cancelled."""
    async with asyncio.TaskGroup() as tasks:
        for run in runs:
            tasks.create_task(run())


async def _beat(pulse: Pulse) -> None:
    while True:
        pulse.beat()
        await asyncio.sleep(_BEAT_SECONDS)


async def _refresh(collector: HaproxyCollector, counters: Callable[[], Awaitable[Answers]]) -> None:
    """Fetches HAProxy's counters for the next scrape; the collector shows none while HAProxy does not answer."""
    try:
        collector.answers = await counters()
    except CommandError:
        collector.answers = None


async def _until_signalled(work: asyncio.Task[None]) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    stopped = asyncio.create_task(stop.wait())
    await asyncio.wait({work, stopped}, return_when=asyncio.FIRST_COMPLETED)
    stopped.cancel()


async def _leave(reconciler: ReconcileLoop, dataplane: DataPlane, work: asyncio.Task[None]) -> None:
    """Turns new traffic away, reconciles until HAProxy is stopping, and waits for its last stream.

    If HAProxy keeps running, only this container is being replaced: it accepts traffic again.
    """
    log.info("No longer ready; waiting for HAProxy to stop")
    reconciler.leave(True)
    loop = asyncio.get_running_loop()
    deadline = loop.time() + _STOP_SECONDS
    while loop.time() < deadline:
        if await dataplane.stopping():
            log.info("HAProxy is stopping")
            work.cancel()  # it takes no more commands; only the model list is still asked for
            await dataplane.ended()
            return
        await asyncio.sleep(0.5)
    reconciler.leave(False)
    await asyncio.sleep(1)
