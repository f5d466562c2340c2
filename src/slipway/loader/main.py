"""``slipway loader load|evict|serve``: fetch weights into a folder, remove it, or look after an engine's adapters.

The last line on standard error says why it ended, and Kubernetes shows it as the container's termination message.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import signal
import sys
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from aiohttp import web

from slipway.loader.agent.agent import Agent
from slipway.loader.agent.engine import Engine
from slipway.loader.agent.plan import Version
from slipway.loader.agent.store import Store
from slipway.loader.errors import LoadError, StoppedError
from slipway.loader.evict import evict
from slipway.loader.http import application
from slipway.loader.load import load
from slipway.loader.progress import Meter
from slipway.loader.source import open_source
from slipway.loader.threads import in_thread
from slipway.loader.transfer import Policy
from slipway.serving.agent import PORT, AgentReport

LOG = logging.getLogger(__name__)
TERMINATION_LOG = Path("/dev/termination-log")
"""Where Kubernetes reads a container's last words."""
LONGEST_MESSAGE = 4000
"""Bytes; Kubernetes takes 4096."""
DONE, LATER, NEVER, STOPPED = 0, 1, 3, 128 + signal.SIGTERM
"""Exit status: it may succeed when run again; it will not before somebody has changed something; it was told to end."""
LOG_PERIOD = 10.0
"""Seconds between two lines of progress."""
ADAPTER_FILES = 4
"""Files of one adapter that are fetched at a time."""


def address(text: str) -> tuple[str, int]:
    """``HOST:PORT``, an IPv6 host in brackets."""
    host, _unused, port = text.rpartition(":")
    if not host or not port.isdigit() or int(port) > 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is not HOST:PORT")
    return host.removeprefix("[").removesuffix("]"), int(port)


def count(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no number from 1 on")
    return int(text)


def engine_url(text: str) -> str:
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise argparse.ArgumentTypeError(f"{text!r} is no address such as http://127.0.0.1:8000")
    return text


def folder(text: str) -> Path:
    return Path(os.path.abspath(text))


def arguments(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="slipway loader", description="Move model files, verified and resumed.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    listen = argparse.ArgumentParser(add_help=False)
    listen.add_argument(
        "--listen", type=address, default=("", PORT), metavar="HOST:PORT", help="where /v1/state is answered"
    )
    one = commands.add_parser("load", parents=[listen], help="bring what a URL names into a folder")
    one.add_argument(
        "url", metavar="URL", help="hf://ORG/REPO[@REV], s3://, gs://, oss://BUCKET/FOLDER, or http(s)://FILE"
    )
    one.add_argument("folder", type=folder, metavar="DIR")
    one.add_argument("--parallel", type=count, default=Policy.parallel, metavar="N", help="files at a time")
    one.add_argument(
        "--attempts", type=count, default=Policy.attempts, metavar="N", help="without a new byte in between"
    )
    one.set_defaults(run=run_load)
    two = commands.add_parser("evict", help="remove a folder that was loaded")
    two.add_argument("folder", type=folder, metavar="DIR")
    two.add_argument(
        "--below", type=folder, metavar="DIR", help="nothing outside of it goes; by default the volume's mount"
    )
    two.set_defaults(run=run_evict)
    three = commands.add_parser("serve", parents=[listen], help="fetch adapters and have an engine load them")
    three.add_argument("--directory", type=folder, required=True, metavar="DIR", help="shared with the engine")
    three.add_argument("--engine", type=engine_url, required=True, metavar="URL")
    three.set_defaults(run=run_serve)
    return parser.parse_args(argv)


def run_load(options: argparse.Namespace) -> str:
    policy = Policy(attempts=options.attempts, parallel=options.parallel)
    meter, stop = Meter(), threading.Event()
    work = partial(
        load, options.url, partial(open_source, options.url, os.environ), options.folder, policy, stop, meter
    )
    fresh = asyncio.run(_beside(work, meter, options.listen))
    return f"{options.folder} is complete: {meter.line()}" if fresh else f"{options.folder} was complete already"


def run_evict(options: argparse.Namespace) -> str:
    there = evict(options.folder, options.below)
    return f"{options.folder} is removed" if there else f"{options.folder} was not there"


def run_serve(options: argparse.Namespace) -> str:
    asyncio.run(_serve(options))
    return "ended as told"


async def _beside(work: Callable[[], bool], meter: Meter, listen: tuple[str, int]) -> bool:
    """Run ``work`` in a thread while the port is answered and the log tells of progress."""
    task = asyncio.ensure_future(in_thread(work))
    _on_signal(task)
    async with _listening(application(lambda: AgentReport(progress=meter.progress())), listen, needed=False):
        while not (await asyncio.wait([task], timeout=LOG_PERIOD))[0]:
            LOG.info("%s", meter.line())
    if task.cancelled():
        raise StoppedError
    return task.result()


def _on_signal(task: asyncio.Future[Any]) -> None:
    """Kubernetes ends containers by SIGTERM."""
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)


async def _serve(options: argparse.Namespace) -> None:
    store = Store(options.directory)
    policy = Policy(parallel=ADAPTER_FILES)

    def fetch(url: str, version: Version, stop: threading.Event, meter: Meter) -> None:
        load(url, partial(open_source, url, os.environ), store.path(version), policy, stop, meter)

    async with Engine(options.engine, os.environ.get("VLLM_API_KEY", "")) as engine:
        agent = Agent(store, engine, fetch)
        async with _listening(application(agent.report, agent), options.listen, needed=True):
            task = asyncio.create_task(agent.run())
            _on_signal(task)
            with suppress(asyncio.CancelledError):
                await task


@asynccontextmanager
async def _listening(app: web.Application, listen: tuple[str, int], *, needed: bool) -> AsyncIterator[None]:
    """Answers on the port meanwhile. A load goes on without, as where two share a host's network."""
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    try:
        try:
            await web.TCPSite(runner, *listen).start()
        except OSError as error:
            if needed:
                raise LoadError(
                    f"port {listen[1]} cannot be used: {error.strerror}: choose another by --listen"
                ) from error
            LOG.warning("progress is not told on port %d: %s", listen[1], error.strerror)
        yield
    finally:
        await runner.cleanup()


def last_words(message: str, place: Path = TERMINATION_LOG) -> None:
    """For whoever looks at the container; on a read-only file system Kubernetes keeps this one file writable."""
    text = " ".join(message.split())
    sys.stderr.write(f"slipway loader: {text}\n")
    sys.stderr.flush()
    with suppress(OSError):
        if place.exists():
            place.write_bytes(text.encode("utf-8", "replace")[:LONGEST_MESSAGE])


def main(argv: list[str]) -> int:
    options = arguments(argv)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s", stream=sys.stderr)
    logging.getLogger("botocore").setLevel(logging.WARNING)
    try:
        message: str = options.run(options)
    except LoadError as error:
        last_words(str(error))
        return LATER if error.passing else NEVER
    except StoppedError:
        last_words("told to end; the next run goes on from here")
        return STOPPED
    sys.stderr.write(f"slipway loader: {message}\n")
    return DONE
