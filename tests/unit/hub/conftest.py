"""A hub over a folder of files, on a free port, and a record of what clients asked it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from huggingface_hub import HfApi, set_client_factory
from huggingface_hub.utils import _http

from slipway.hub.folder import Library
from slipway.hub.server import application

REPOSITORY = "acme/tiny"
TOKEN = "hf_reader_of_the_tests"
WEIGHTS = bytes(range(256)) * 4096


class Seen(NamedTuple):
    method: str
    path: str
    """As sent, with its percent-encoding, without the query."""
    range: str
    authorization: str
    status: int


@dataclass
class RunningHub:
    root: Path
    endpoint: str
    seen: list[Seen] = field(default_factory=list)
    interfere: Callable[[web.Request], Awaitable[web.StreamResponse | None]] | None = None
    """Set by tests that want a worse network than loopback: its answer, if any, replaces the hub's."""

    async def call(self, function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        """Runs a blocking client call while the server runs."""
        return await asyncio.to_thread(partial(function, *arguments, **options))

    def api(self, token: str | bool = False) -> HfApi:
        return HfApi(endpoint=self.endpoint, token=token)

    def calls(self) -> list[tuple[str, str]]:
        return [(entry.method, entry.path) for entry in self.seen]

    def sha(self, repository: str = REPOSITORY, ref: str = "main") -> str:
        loaded = Library(self.root).load(repository)
        assert loaded is not None
        revision = loaded.revision(ref)
        assert revision is not None
        return revision.sha


def write(folder: Path, files: dict[str, bytes | str]) -> None:
    for path, content in files.items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content.encode() if isinstance(content, str) else content)


@pytest.fixture(autouse=True)
def own_client() -> Iterator[None]:
    """The library's own: the loader, whose tests may have run in this process, gives it another one."""
    before = _http._GLOBAL_CLIENT_FACTORY
    set_client_factory(_http.default_client_factory)
    yield
    set_client_factory(before)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """One repository that has what makes trouble: odd names, an empty file, folders, an LFS file, a tag, a PR."""
    folder = tmp_path / "models"
    write(
        folder / REPOSITORY,
        {
            "config.json": '{"model_type": "llama"}',
            "README.md": "# Tiny\n",
            "empty.txt": b"",
            "tiny.gguf": WEIGHTS,
            "sub dir/x.txt": "in a folder",
            "sub dir/deeper/100% #1 ünïcode+&.txt": "odd",
            ".hub.yaml": "refs: {refs/tags/v1: old, refs/pr/1: proposals/1, refs/heads/next: .}",
            "old/config.json": '{"model_type": "older"}',
            "proposals/1/config.json": '{"model_type": "proposed"}',
            ".cache/huggingface/download/config.json.metadata": "left by a download into this folder",
        },
    )
    write(folder / "acme/closed", {"config.json": "{}", ".hub.yaml": "gated: true"})
    return folder


@pytest.fixture
async def hub(root: Path, tmp_path: Path) -> AsyncIterator[RunningHub]:
    tokens = tmp_path / "tokens"
    tokens.write_text(f"# who may read\nreader {TOKEN}\n")
    running = RunningHub(root, "")

    @web.middleware
    async def replace(request: web.Request, handler: Any) -> web.StreamResponse:
        response = await running.interfere(request) if running.interfere else None
        return await handler(request) if response is None else response

    async def record(request: web.Request, response: web.StreamResponse) -> None:
        """Runs before the first byte of the answer, so the record is complete when a client has it."""
        headers = request.headers
        path = request.raw_path.partition("?")[0]
        running.seen.append(
            Seen(request.method, path, headers.get("Range", ""), headers.get("Authorization", ""), response.status)
        )

    app = application(root, tokens)
    app.middlewares.insert(0, replace)
    app.on_response_prepare.append(record)
    server = TestServer(app)
    await server.start_server()
    running.endpoint = f"http://127.0.0.1:{server.port}"
    yield running
    await server.close()
