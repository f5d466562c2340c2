"""The command ``slipway gateway``: runs the control process, or writes HAProxy's first files (``--init``)."""

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
from slipway.gateway.control.exchange import Exchange, ExchangeSnapshot
from slipway.gateway.control.jwks_source import JwksSource
from slipway.gateway.control.reconcile_loop import ReconcileLoop
from slipway.gateway.control.supervisor import Pulse
from slipway.gateway.haproxy import render
from slipway.gateway.haproxy.dataplane import DataPlane, write_files
from slipway.gateway.haproxy.metrics import HaproxyCollector, RawCounters
from slipway.gateway.haproxy.render import DesiredState
from slipway.gateway.haproxy.socket import CommandError
from slipway.gateway.rules import connections
from slipway.gateway.settings import InvalidSettingsError, Settings, load_settings
from slipway.gateway.sources.file import FileSource
from slipway.gateway.ui.app import Page
from slipway.gateway.ui.overview import Cluster
from slipway.kube.metrics import Metrics

log = logging.getLogger(__name__)

_BEAT_SECONDS = 5.0
_STOP_SECONDS = 20.0
"""Seconds to wait until HAProxy begins to stop. When the pod is deleted, HAProxy gets its signal a few seconds after
this process (preStop). If HAProxy is not stopping after this time, only this container is being replaced."""
Run = Callable[[], Coroutine[Any, Any, None]]
"""A function that returns the coroutine of a task, which runs until it is cancelled."""
GetCluster = Callable[[], Cluster]
"""A function that returns the state of the cluster for the page."""


def main(argv: list[str]) -> int:
    """Run the command ``slipway gateway`` with the arguments ``argv``. Return the exit status, which is 2 if the
    settings are invalid or cannot be read."""
    arguments = _arguments(argv)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s", stream=sys.stderr)
    try:
        settings = _limit_connections(load_settings(arguments.config))
    except (InvalidSettingsError, OSError) as error:
        sys.stderr.write(f"slipway gateway: {error}\n")
        return 2
    if arguments.init:
        write_files(settings.directory, render.render_files(settings, DesiredState()))
        return 0

    # The socket stays open while no control process runs, so requests for the model list wait for the next process.
    model_socket = http_api.open_unix_socket(settings.directory / "control.sock")

    def run(restarts: int, pulse: Pulse) -> int:
        return asyncio.run(_run(settings, arguments.table, model_socket, restarts, pulse))

    return supervisor.supervise(run) if arguments.supervise else run(0, Pulse())


def _limit_connections(settings: Settings) -> Settings:
    """Return the settings with fewer connections if the limit of open files requires it.

    HAProxy's container has the same limit as this container, and HAProxy does not start if its connections could exceed
    the limit. Raise InvalidSettingsError if the limit is too low for a useful gateway.
    """
    _unused, files = resource.getrlimit(resource.RLIMIT_NOFILE)
    if files == resource.RLIM_INFINITY:
        return settings
    allowed = connections.limit_by_open_files(settings.max_connections, files)
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


async def _run(settings: Settings, table: Path | None, model_socket: socket.socket, restarts: int, pulse: Pulse) -> int:
    metrics, collector = Metrics(), HaproxyCollector()
    metrics.registry.register(collector)
    text = "Restarts of the control process."
    Counter("slipway_gateway_control_restarts", text, registry=metrics.registry).inc(restarts)
    dataplane = DataPlane(settings)
    reconciler = ReconcileLoop(dataplane, verifies_tokens=settings.jwt is not None)

    async def counters() -> RawCounters:
        return (await dataplane.read_counters())._replace(passed_over=reconciler.passed_over)

    async def requests(services: Sequence[str]) -> Mapping[str, int]:
        backends = {service.replace("/", ":"): service for service in services}
        numbers = await dataplane.count_requests([name for name in backends if name in reconciler.table.backends])
        return {backends[name]: number for name, number in numbers.items()}

    async with AsyncExitStack() as stack:
        if table is not None:
            feeds: list[Run] = [partial(FileSource(table).run, reconciler.publish)]
            get_cluster: GetCluster = Cluster
        else:
            feeds, get_cluster = await _connect_cluster(settings, metrics, dataplane, reconciler, stack)
        if settings.jwt:
            source = JwksSource(settings, settings.jwt, metrics.registry)
            feeds.append(partial(source.run, reconciler.set_verification_keys))
        if settings.api_keys_secret:

            def get_snapshot() -> ExchangeSnapshot | None:
                return (
                    ExchangeSnapshot(reconciler.rights, reconciler.gateways) if reconciler.has_table.is_set() else None
                )

            exchange = Exchange(settings, dataplane, get_snapshot, metrics.registry)
            reconciler.add_condition(exchange.prepared)
            feeds.append(exchange.run)
        if settings.count_tokens:
            feeds.append(dataplane.watch_tokens)
        models = http_api.build_model_list(lambda: reconciler.table, lambda: reconciler.rights)
        models.middlewares.append(http_api.wait_for_table(reconciler.has_table))
        if settings.ui:
            page = Page(
                lambda: reconciler.table,
                get_cluster,
                counters,
                keys=bool(settings.api_keys_secret),
                replica=os.environ.get("POD_NAME", ""),
                rights=lambda: reconciler.rights,
            )
            page.add_to(models)
        await stack.enter_async_context(http_api.serve(models, model_socket))
        refresh = partial(_refresh, collector, counters)
        operations = http_api.build_operations(lambda: reconciler.ready, refresh, metrics.text, requests)
        await stack.enter_async_context(http_api.serve(operations, settings.control_listen))
        work = asyncio.create_task(
            _run_all(reconciler.run, reconciler.watch_servers, partial(_send_heartbeats, pulse), *feeds)
        )
        await _wait_for_signal(work)
        if not work.done():
            await _shut_down(reconciler, dataplane, work)
            work.cancel()
        await asyncio.wait({work})
        if not work.cancelled():
            work.result()  # raises the error that ended it
    return 0


async def _connect_cluster(
    settings: Settings, metrics: Metrics, dataplane: DataPlane, reconciler: ReconcileLoop, stack: AsyncExitStack
) -> tuple[list[Run], GetCluster]:
    """Connect to the cluster. Return the tasks to run, and a function that returns the state of the cluster for the
    page.

    The imports are local, because the init step and static tables need no client.
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
    waker = Waker(client, dataplane.count_waiting, source.report_not_woken, source.report_woken)
    kinds = settings.ui_kinds if settings.ui else ()
    declared = Resources(client, [Kind(kind.group, kind.version, kind.kind, kind.plural) for kind in kinds])

    def get_cluster() -> Cluster:
        cluster = Cluster(declared.all(), source.owners(), source.faults, source.away_since, declared.unread())
        return cluster.within(source.serves())

    return [
        partial(source.run, reconciler.publish),
        partial(waker.run, lambda: reconciler.table),
        declared.run,
    ], get_cluster


async def _run_all(*runs: Run) -> None:
    """Run all tasks until cancelled. If a task fails, cancel the others and raise an ExceptionGroup."""
    async with asyncio.TaskGroup() as tasks:
        for run in runs:
            tasks.create_task(run())


async def _send_heartbeats(pulse: Pulse) -> None:
    while True:
        pulse.beat()
        await asyncio.sleep(_BEAT_SECONDS)


async def _refresh(collector: HaproxyCollector, counters: Callable[[], Awaitable[RawCounters]]) -> None:
    """Fetch HAProxy's counters for the next scrape. If HAProxy does not respond, the collector exports no
    counters."""
    try:
        collector.counters = await counters()
    except CommandError:
        collector.counters = None


async def _wait_for_signal(work: asyncio.Task[None]) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    stopped = asyncio.create_task(stop.wait())
    await asyncio.wait({work, stopped}, return_when=asyncio.FIRST_COMPLETED)
    stopped.cancel()


async def _shut_down(reconciler: ReconcileLoop, dataplane: DataPlane, work: asyncio.Task[None]) -> None:
    """Make the gateway unready, reconcile until HAProxy stops, and wait for its last stream.

    If HAProxy does not begin to stop within ``_STOP_SECONDS``, only this container is being replaced, so the gateway
    becomes ready again.
    """
    log.info("No longer ready; waiting for HAProxy to stop")
    reconciler.set_leaving(True)
    loop = asyncio.get_running_loop()
    deadline = loop.time() + _STOP_SECONDS
    while loop.time() < deadline:
        if await dataplane.is_stopping():
            log.info("HAProxy is stopping")
            work.cancel()  # HAProxy accepts no more commands, but may still request the model list
            await dataplane.wait_until_ended()
            return
        await asyncio.sleep(0.5)
    reconciler.set_leaving(False)
    await asyncio.sleep(1)
