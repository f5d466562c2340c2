"""The whole program on a free port: TLS with a certificate that changes, its doors, health, metrics and its end."""

from __future__ import annotations

import asyncio
import datetime as dt
import json
import os
import signal
import ssl
from collections.abc import AsyncIterator
from datetime import UTC
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from slipway.depot import main
from slipway.depot.credentials import certificates
from slipway.depot.credentials.certificates import Pair
from slipway.depot.http.server import Certificate, serve

from ...ports import reserved_port
from .conftest import GIVEN, KEY, PEM, knows
from .test_signing import read

NAMES = ("localhost", "127.0.0.1")


@pytest.fixture
def issuer() -> Pair:
    return certificates.authority(dt.datetime.now(UTC), None)


@pytest.fixture
def folder(tmp_path: Path, issuer: Pair) -> Path:
    put(tmp_path, certificates.server(issuer, NAMES, dt.datetime.now(UTC)))
    (tmp_path / "ca.crt").write_bytes(issuer.certificate)
    (tmp_path / "token.key").write_bytes(PEM)
    (tmp_path / "hmac").write_bytes(KEY)
    return tmp_path


def put(folder: Path, pair: Pair) -> None:
    (folder / "tls.crt").write_bytes(pair.certificate)
    (folder / "tls.key").write_bytes(pair.key)


def settings_file(folder: Path, **changes: Any) -> Path:
    given = {"keys": str(folder), "listen": "127.0.0.1:0", "operationsListen": "127.0.0.1:0", **changes}
    file = folder / "depot.yaml"
    file.write_text(json.dumps({**GIVEN, **given}))
    return file


@pytest.fixture
async def program(folder: Path, kubeconfig: str) -> AsyncIterator[tuple[int, int, asyncio.Task[int]]]:
    """Ports of the doors and of the operations, and what runs."""
    doors, operations = reserved_port(), reserved_port()
    file = settings_file(folder, listen=f"127.0.0.1:{doors}", operationsListen=f"127.0.0.1:{operations}")
    settings = main.load(file)
    task = asyncio.create_task(main._run(settings, main.Keys(settings), kubeconfig))
    yield doors, operations, task
    if not task.done():
        os.kill(os.getpid(), signal.SIGTERM)
    assert await task == 0


async def answers(session: aiohttp.ClientSession, url: str, **more: Any) -> aiohttp.ClientResponse:
    """Sends requests until the server listens."""
    while True:
        try:
            answer = await session.get(url, **more)
            await answer.read()
        except aiohttp.ClientConnectionError:
            await asyncio.sleep(0.02)
        else:
            return answer


async def test_the_program_serves_its_endpoints_over_tls_and_ends_on_a_signal(program, server, issuer):
    doors, operations, _task = program
    knows(server, "system:serviceaccount:team:default", "slipway-depot")
    trusting = ssl.create_default_context(cadata=issuer.certificate.decode())
    async with aiohttp.ClientSession() as session:
        url = f"https://localhost:{doors}/token?scope=repository:cluster/a/1:pull"
        answer = await answers(session, url, ssl=trusting, headers={"Authorization": "Bearer a.b.c"})
        assert read((await answer.json())["token"])[1]["access"][0]["name"] == "cluster/a/1"
        assert (await answers(session, f"http://127.0.0.1:{operations}/readyz")).status == 200
        assert (await answers(session, f"http://127.0.0.1:{operations}/healthz")).status == 200
        metrics = await (await answers(session, f"http://127.0.0.1:{operations}/metrics")).text()
    assert 'slipway_depot_answers_total{code="200",door="token"} 1.0' in metrics


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("hmac", b"short", "hmac: a key has 32 bytes"),
        ("token.key", b"SECRET", "token.key: it has no private key"),
        ("tls.crt", b"SECRET", ""),
        ("hmac", None, "No such file"),
        ("depot.yaml", b"namespace: 5", "depot.yaml"),
    ],
)
def test_bad_settings_and_keys_end_it_with_2(folder, capsys, name, content, expected):
    file = settings_file(folder)
    if content is None:
        (folder / name).unlink()
    else:
        (folder / name).write_bytes(content)
    assert main.main(["serve", "--config", str(file)]) == 2
    shown = capsys.readouterr().err
    assert shown.startswith("slipway depot: ")
    assert expected in shown
    assert "SECRET" not in shown


async def subject(port: int, issuer: Pair) -> bytes:
    trusting = ssl.create_default_context(cadata=issuer.certificate.decode())
    _reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trusting)
    certificate: bytes = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.close()
    return certificate


async def test_a_renewed_certificate_is_taken_without_a_restart(folder, issuer):
    certificate = Certificate(folder / "tls.crt", folder / "tls.key")
    assert certificate.refresh() is False
    async with serve(web.Application(), "127.0.0.1:0", certificate.context, connections=16) as bound:
        port = bound.sockets[0].getsockname()[1]
        first = await subject(port, issuer)
        put(folder, certificates.server(issuer, NAMES, dt.datetime.now(UTC)))
        assert certificate.refresh() is True
        second = await subject(port, issuer)
        assert second != first
        (folder / "tls.crt").write_text("broken")
        assert certificate.refresh() is False
        assert await subject(port, issuer) == second


@pytest.mark.parametrize("tls", [True, False])
async def test_an_address_gets_at_most_half_of_the_connections(folder: Path, issuer: Pair, tls: bool) -> None:
    context = Certificate(folder / "tls.crt", folder / "tls.key").context if tls else None
    trust = ssl.create_default_context(cadata=issuer.certificate.decode()) if tls else None
    async with serve(web.Application(), "127.0.0.1:0", context, connections=16) as bound:
        port, writers = bound.sockets[0].getsockname()[1], list[asyncio.StreamWriter]()

        async def answer(address: str) -> bytes:
            """The first line of the answer to a request of a new connection, which stays open."""
            try:
                reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trust, local_addr=(address, 0))
                writers.append(writer)
                writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
                return (await reader.readline()).strip()
            except OSError:
                return b""

        assert [await answer("127.0.0.1") for _unused in range(10)] == [b"HTTP/1.1 404 Not Found"] * 8 + [b""] * 2
        assert [await answer("127.0.0.2") for _unused in range(2)] == [b"HTTP/1.1 404 Not Found"] * 2
        for one in writers:
            one.transport.abort()
