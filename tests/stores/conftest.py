"""Fixtures: real stores on loopback, with a proxy before them that sees every request and may answer in their place."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from aiohttp import ClientSession, TCPConnector, web
from multidict import CIMultiDict
from yarl import URL

from tests.ports import reserved_port
from tests.stores.real import S3, Google
from tests.unit.loader.conftest import FILES, Loading, Service

ODD = {
    "a<b>'\"c;=?@.txt": b"signs",
    "&amp;%2e%2e.txt": b"looks escaped",
    "two  spaces and\ttab.txt": b"blanks",
    "\u65e5\u672c\u8a9e.txt": b"Japanese",
    "line\rline\n.txt": b"lines",
}
"""Names that a model's files should not have, and may."""
MANY_OF_GOOGLE = 2500
"""Files; the time that the server takes to begin grows by their square."""
HOP = ("connection", "keep-alive", "transfer-encoding")
"""Headers that are of one connection only."""


def proxy(target: str) -> web.Application:
    """Passes requests on as they are, so that their signatures hold, and bodies piece by piece."""

    async def pass_on(request: web.Request) -> web.StreamResponse:
        headers = CIMultiDict((name, value) for name, value in request.headers.items() if name.lower() not in HOP)
        async with (
            ClientSession(connector=TCPConnector(), auto_decompress=False) as session,
            session.get(URL(f"{target}{request.raw_path}", encoded=True), headers=headers) as answer,
        ):
            told = CIMultiDict((name, value) for name, value in answer.headers.items() if name.lower() not in HOP)
            response = web.StreamResponse(status=answer.status, headers=told)
            await response.prepare(request)
            async for piece in answer.content.iter_any():
                await response.write(piece)
            return response

    app = web.Application()
    app.router.add_get("/{path:[\\s\\S]*}", pass_on)
    return app


@pytest.fixture
def before() -> Iterator[Callable[[str], Service]]:
    """Makes a proxy before a store."""
    running: list[Service] = []

    def begin(target: str) -> Service:
        service = Service(proxy(target))
        service.start()
        running.append(service)
        return service

    yield begin
    for service in running:
        service.stop()


@pytest.fixture
def loading(tmp_path: Path) -> Loading:
    return Loading(tmp_path / "models" / "one")


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3]:
    """With the bucket ``models``, where ``team/tiny`` has a model and ``team/tiny-2`` is another one."""
    with S3(tmp_path_factory.mktemp("s3"), reserved_port()) as store:
        store.client.make_bucket("models")
        files = {f"team/tiny/{path}": body for path, body in {**FILES, **ODD}.items()}
        for key, body in {**files, "team/tiny-2/config.json": b"of a neighbour"}.items():
            store.client.put_object("models", key, io.BytesIO(body), len(body))
        yield store


@pytest.fixture(scope="session")
def gcs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Google]:
    """With the same, and the bucket ``many`` of ``MANY_OF_GOOGLE`` files."""
    data = tmp_path_factory.mktemp("data")
    (data / "many").mkdir()
    for number in range(MANY_OF_GOOGLE):
        (data / f"many/{number:05}").write_bytes(b"x" * (number % 3))
    with Google(tmp_path_factory.mktemp("gcs"), reserved_port(), data) as store:
        store.make_bucket("models")
        files = {f"team/tiny/{path}": body for path, body in {**FILES, **ODD}.items()}
        for key, body in {**files, "team/tiny/": b"", "team/tiny-2/config.json": b"of a neighbour"}.items():
            store.put(key, body)
        yield store
