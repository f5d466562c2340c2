"""Sources on loopback that can be made as bad as a real network, and loads without pauses."""

from __future__ import annotations

import asyncio
import struct
import threading
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from aiohttp import web

from slipway.hub.server import application as hub_application
from slipway.loader.cli import termination as module
from slipway.loader.disk.folder import MARKER, WORK
from slipway.loader.disk.progress import Meter
from slipway.loader.download.load import load
from slipway.loader.download.stage import Work
from slipway.loader.download.transfer import Policy
from slipway.loader.transport.source import Access, open_source

from .site import Site

PATIENCE = 60
"""Seconds for what takes a moment on a machine that has nothing else to do."""
TOKEN = "hf_reader_of_the_tests"
HEADER = b"GGUF" + struct.pack("<IQQ", 3, 0, 0)
WEIGHTS = HEADER + (bytes(range(256)) * 6144)[len(HEADER) :]
CHANGED = HEADER + bytes(len(WEIGHTS) - len(HEADER))
"""Other weights of the same size."""
FILES = {
    "config.json": b'{"model_type": "llama"}',
    "empty.txt": b"",
    "tiny.gguf": WEIGHTS,
    "sub dir/deeper/100% #1 ünïcode+&.txt": b"odd",
}
PROPOSED = {"config.json": b"{}", "adapters/first/adapter_config.json": b"{}"}
"""At refs/pr/1."""
HASTY = Policy(attempts=4, first_pause=0.001, longest_pause=0.01, parallel=3)
Interfere = Callable[[web.Request], Awaitable[web.StreamResponse | None]]


class Seen(NamedTuple):
    method: str
    path: str
    range: str
    authorization: str


@dataclass
class Service:
    """Runs a web application in a separate thread, so that blocking clients can use it."""

    app: web.Application
    seen: list[Seen] = field(default_factory=list)
    interfere: Interfere | None = None
    """Set by tests: its answer, if any, takes the place of the application's."""
    url: str = ""

    def start(self) -> None:
        self.app.middlewares.insert(0, self._middleware())
        started = threading.Event()
        self._loop = asyncio.new_event_loop()

        async def begin() -> None:
            self._runner = web.AppRunner(self.app, shutdown_timeout=0.1)
            await self._runner.setup()
            site = web.TCPSite(self._runner, "127.0.0.1", 0)
            await site.start()
            self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
            started.set()

        def run() -> None:
            self._loop.create_task(begin())
            self._loop.run_forever()

        self._thread = threading.Thread(target=run, daemon=True)
        self._thread.start()
        assert started.wait(PATIENCE)

    def stop(self) -> None:
        asyncio.run_coroutine_threadsafe(self._runner.cleanup(), self._loop).result(PATIENCE)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(PATIENCE)

    def _middleware(self) -> Any:
        @web.middleware
        async def record(request: web.Request, handler: Any) -> web.StreamResponse:
            headers = request.headers
            path = request.raw_path.partition("?")[0]
            self.seen.append(Seen(request.method, path, headers.get("Range", ""), headers.get("Authorization", "")))
            answer = await self.interfere(request) if self.interfere else None
            return answer if answer is not None else await handler(request)

        return record


@pytest.fixture
def termination(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the loader leaves what Kubernetes keeps of it."""
    path = tmp_path / "termination-log"
    path.touch()
    monkeypatch.setattr(module, "TERMINATION_LOG", path)
    return path


@pytest.fixture
def start() -> Iterator[Callable[[web.Application], Service]]:
    running: list[Service] = []

    def begin(app: web.Application) -> Service:
        service = Service(app)
        service.start()
        running.append(service)
        return service

    yield begin
    for service in running:
        service.stop()


def write(folder: Path, files: dict[str, bytes]) -> None:
    for path, content in files.items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)


def content(folder: Path) -> dict[str, bytes]:
    """Every file below a folder but the loader's own."""
    files = {str(path.relative_to(folder)): path for path in folder.rglob("*") if path.is_file()}
    return {name: path.read_bytes() for name, path in files.items() if not name.startswith((MARKER, f"{WORK}/"))}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "hub"
    write(folder / "acme/tiny", FILES)
    write(folder / "acme/tiny", {".hub.yaml": b"refs: {refs/pr/1: proposal}"})
    write(folder / "acme/tiny/proposal", PROPOSED)
    write(folder / "acme/closed", {"config.json": b"{}", ".hub.yaml": b"gated: true"})
    return folder


@pytest.fixture
def hub(start: Callable[[web.Application], Service], root: Path, tmp_path: Path) -> Service:
    tokens = tmp_path / "tokens"
    tokens.write_text(f"reader {TOKEN}\n")
    return start(hub_application(root, tokens))


@dataclass
class Loading:
    """Runs loads into one folder."""

    folder: Path
    env: dict[str, str] = field(default_factory=dict)
    policy: Policy = HASTY
    meter: Meter = field(default_factory=Meter)
    stop: threading.Event = field(default_factory=threading.Event)
    access: Access = field(default_factory=Access)

    def __call__(self, url: str) -> bool:
        self.meter, self.stop = Meter(), threading.Event()
        return load(
            url, lambda: open_source(url, self.env, self.access), self.folder, self.policy, self.stop, self.meter
        )

    @property
    def content(self) -> dict[str, bytes]:
        return content(self.folder)


@pytest.fixture
def loading(tmp_path: Path) -> Loading:
    return Loading(tmp_path / "models" / "one")


@pytest.fixture
def from_hub(loading: Loading, hub: Service) -> Loading:
    loading.env = {"HF_ENDPOINT": hub.url}
    return loading


def cut_after(count: int) -> Callable[[web.Request, bytes], Awaitable[web.StreamResponse]]:
    """Answers with ``count`` bytes of the rest that is asked for, then drops the connection."""

    async def answer(request: web.Request, whole: bytes) -> web.StreamResponse:
        start = int(request.headers.get("Range", "bytes=0-").removeprefix("bytes=").removesuffix("-"))
        rest = whole[start:]
        headers = {"Content-Length": str(len(rest))}
        if start:
            headers["Content-Range"] = f"bytes {start}-{len(whole) - 1}/{len(whole)}"
        response = web.StreamResponse(status=206 if start else 200, headers=headers)
        await response.prepare(request)
        await response.write(rest[:count])
        if count < len(rest) and request.transport is not None:
            request.transport.close()
        return response

    return answer


def work(header: str = "gguf") -> Work:
    return Work(HASTY, threading.Event(), Meter(), header)


@pytest.fixture
def site(start: Callable[[web.Application], Service]) -> Site:
    new_site, app = Site(), web.Application()
    app.router.add_get("/tiny.gguf", new_site.get)
    new_site.service = start(app)
    return new_site


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "models" / "0123456789abcdef"
