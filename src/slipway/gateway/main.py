"""``slipway gateway``: the control process, and (``--init``) the step that writes HAProxy's first files."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import signal
import sys
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from slipway.gateway import render, surface
from slipway.gateway.cli import CommandFailed
from slipway.gateway.control import Control
from slipway.gateway.dataplane import DataPlane, write_files
from slipway.gateway.metrics import HaproxyCollector
from slipway.gateway.render import State
from slipway.gateway.settings import InvalidSettings, Settings, load
from slipway.gateway.static import File
from slipway.kube.metrics import Metrics

if TYPE_CHECKING:
    from slipway.gateway.cluster import Cluster

log = logging.getLogger(__name__)

_STOP_SECONDS = 20.0
"""HAProxy is told to stop a few seconds after us (preStop). If it is not by then, only we are to end."""


def main(argv: list[str]) -> int:
    """Runs the command; returns the exit status."""
    arguments = _arguments(argv)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s", stream=sys.stderr)
    try:
        settings = load(arguments.config)
    except (InvalidSettings, OSError) as error:
        sys.stderr.write(f"slipway gateway: {error}\n")
        return 2
    if arguments.init:
        write_files(settings.directory, render.files(settings, State()))
        return 0
    return asyncio.run(_run(settings, arguments.table))


def _arguments(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="slipway gateway", description="Steers the HAProxy of the gateway's pod.")
    parser.add_argument("--config", type=Path, required=True, help="settings file (YAML)")
    parser.add_argument("--init", action="store_true", help="write the first configuration for HAProxy and end")
    parser.add_argument("--table", type=Path, help="JSON file with the table, instead of the cluster")
    return parser.parse_args(argv)


async def _run(settings: Settings, table: Path | None) -> int:
    metrics, collector = Metrics(), HaproxyCollector()
    metrics.registry.register(collector)
    dataplane = DataPlane(settings)
    control = Control(dataplane)

    async def numbers() -> bytes:
        try:
            collector.answers = await dataplane.counters()
        except CommandFailed:
            collector.answers = None
        return metrics.text()

    async with AsyncExitStack() as stack:
        source = File(table) if table else await _cluster(settings, metrics, dataplane, stack)
        models = surface.model_list(lambda: control.table)
        await stack.enter_async_context(surface.served(models, settings.directory / "control.sock"))
        operations = surface.operations(lambda: control.ready, numbers)
        await stack.enter_async_context(surface.served(operations, settings.control_listen))
        work = asyncio.create_task(source.run(control))
        await _until_told_to_stop(work)
        if not work.done():
            await _leave(control, dataplane, work)
            work.cancel()
        await asyncio.wait({work})
        if not work.cancelled():
            work.result()  # raises what ended it
    return 0


async def _cluster(settings: Settings, metrics: Metrics, dataplane: DataPlane, stack: AsyncExitStack) -> Cluster:
    """The cluster that the environment names. Imported late: the init step and static tables need no client."""
    from slipway.gateway.cluster import Cluster
    from slipway.kube.client import Client
    from slipway.kube.objects import Key

    client = await Client.connect(metrics=metrics)
    stack.push_async_callback(client.close)
    name = settings.api_keys_secret
    secret = Key(os.environ.get("POD_NAMESPACE", "default"), name) if name else None
    return Cluster(client, metrics, secret, dataplane.waiting, settings)


async def _until_told_to_stop(work: asyncio.Task[None]) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    stopped = asyncio.create_task(stop.wait())
    await asyncio.wait({work, stopped}, return_when=asyncio.FIRST_COMPLETED)
    stopped.cancel()


async def _leave(control: Control, dataplane: DataPlane, work: asyncio.Task[None]) -> None:
    """Turns new traffic away, steers until HAProxy is told to stop, and waits for its last stream.

    Where HAProxy goes on, only this container is being replaced: traffic is welcome again.
    """
    log.info("no longer ready; waiting for HAProxy to end")
    control.leave(True)
    loop = asyncio.get_running_loop()
    patience = loop.time() + _STOP_SECONDS
    while loop.time() < patience:
        if await dataplane.stopping():
            log.info("HAProxy ends")
            work.cancel()  # it takes no more commands; only the model list is still asked for
            await dataplane.ended()
            return
        await asyncio.sleep(0.5)
    control.leave(False)
    await asyncio.sleep(1)
