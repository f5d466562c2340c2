"""Fixtures: a real registry, the hub, and a connection between that can be cut, all on loopback."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from aiohttp import web

from slipway.hub.server import application
from tests.ports import reserved_port
from tests.registry.real import RealRegistry

PATIENCE = 60


class Background:
    """An event loop in a thread."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self._thread.start()

    def serve(self, app: web.Application) -> str:
        """The address of an application."""

        async def begin() -> int:
            runner = web.AppRunner(app, shutdown_timeout=0.1)
            await runner.setup()
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            port: int = runner.addresses[0][1]
            return port

        return f"127.0.0.1:{asyncio.run_coroutine_threadsafe(begin(), self.loop).result(PATIENCE)}"

    def stop(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(PATIENCE)


class Cutter:
    """Passes connections on, and resets each next one after so many bytes to the server."""

    def __init__(self, target: str) -> None:
        self._target = (target.partition(":")[0], int(target.partition(":")[2]))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.host = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self.cuts: list[int] = []
        self.sent = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                near, _address = self._listener.accept()
            except OSError:
                return
            far = socket.create_connection(self._target)
            threading.Thread(target=self._pass, args=(near, far, True), daemon=True).start()
            threading.Thread(target=self._pass, args=(far, near, False), daemon=True).start()

    def _pass(self, source: socket.socket, target: socket.socket, up: bool) -> None:
        count = 0
        with suppress(OSError):
            while data := source.recv(1 << 16):
                target.sendall(data)
                if up:
                    count += len(data)
                    self.sent += len(data)
                    if self.cuts and count > self.cuts[0]:
                        self.cuts.pop(0)
                        break
        for one in (source, target):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def background() -> Iterator[Background]:
    runner = Background()
    yield runner
    runner.stop()


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[RealRegistry]:
    with RealRegistry(tmp_path / "registry", reserved_port()) as server:
        yield server


@pytest.fixture
def cutter(registry: RealRegistry) -> Iterator[Cutter]:
    proxy = Cutter(registry.host)
    yield proxy
    proxy.close()


@pytest.fixture
def hub(background: Background, tmp_path: Path) -> str:
    """Address of a hub that serves what lies in the folder `hub`."""
    (tmp_path / "hub").mkdir()
    tokens = tmp_path / "tokens"
    tokens.touch()
    return f"http://{background.serve(application(tmp_path / 'hub', tokens))}"
