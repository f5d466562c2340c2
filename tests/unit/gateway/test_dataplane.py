"""How the control process handles errors of HAProxy, with fake sockets."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from slipway.gateway.haproxy import socket as haproxy_socket
from slipway.gateway.haproxy.dataplane import DataPlane, write_files
from slipway.gateway.haproxy.render import DesiredState
from slipway.gateway.haproxy.socket import CommandError, NotRunningError
from slipway.gateway.rules import tokens
from slipway.gateway.settings import Settings


@asynccontextmanager
async def listening(path: Path, answer: str, prompt: str = "") -> AsyncIterator[list[str]]:
    """A fake command socket with one answer to every command. Yields the received commands."""
    commands: list[str] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            commands.append(line.decode().strip())
            writer.write((answer + prompt).encode())
        writer.close()

    server = await asyncio.start_unix_server(serve, path)
    try:
        yield commands
    finally:
        server.close()


async def test_a_stopping_haproxy_is_not_revived(tmp_path: Path) -> None:
    dataplane = DataPlane(Settings(run_directory=str(tmp_path)))
    async with listening(tmp_path / "master.sock", "Success=1\n") as commands:
        with pytest.raises(NotRunningError):
            await dataplane.apply(DesiredState())
    assert commands == []
    assert (tmp_path / "haproxy.cfg").exists(), "the next process reads the desired configuration"


async def test_a_haproxy_with_older_settings_is_reloaded(tmp_path: Path) -> None:
    dataplane = DataPlane(Settings(run_directory=str(tmp_path)))
    async with (
        listening(tmp_path / "master.sock", "Success=1\n") as commands,
        listening(tmp_path / "haproxy.sock", "", "\n> "),
    ):
        await dataplane.apply(DesiredState())
    assert commands == ["reload"]


async def test_reloads_do_not_follow_at_once(tmp_path: Path) -> None:
    dataplane = DataPlane(Settings(run_directory=str(tmp_path)))
    async with (
        listening(tmp_path / "master.sock", "Success=1\n") as commands,
        listening(tmp_path / "haproxy.sock", "", "\n> "),
    ):
        await dataplane.apply(DesiredState())
        with pytest.raises(CommandError, match="not reloading"):
            await dataplane.apply(DesiredState())
    assert commands == ["reload"]


async def test_a_failed_reload_raises_an_error(tmp_path: Path) -> None:
    dataplane = DataPlane(Settings(run_directory=str(tmp_path)))
    async with (
        listening(tmp_path / "master.sock", "Success=0\n--\nbad line 7\n\n"),
        listening(tmp_path / "haproxy.sock", "", "\n> "),
    ):
        with pytest.raises(CommandError, match="bad line 7"):
            await dataplane.apply(DesiredState())


def test_only_files_that_differ_are_replaced_atomically(tmp_path: Path) -> None:
    write_files(tmp_path, {"lua/a.lua": "one", "b": "same"})
    before = (tmp_path / "b").stat().st_ino
    write_files(tmp_path, {"lua/a.lua": "two", "b": "same"})
    assert (tmp_path / "lua/a.lua").read_text() == "two"
    assert (tmp_path / "b").stat().st_ino == before
    assert (tmp_path / "b").stat().st_mode & 0o077 == 0
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["a.lua", "b", "lua"]


async def test_counters_of_tokens_are_read_each_minute_without_a_scrape(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 2:
            raise asyncio.CancelledError

    pauses: list[float] = []
    monkeypatch.setattr(asyncio, "sleep", sleep)
    plane = DataPlane(Settings(run_directory=str(tmp_path), count_tokens=True))
    async with listening(tmp_path / "haproxy.sock", "", "\n> ") as commands:
        with pytest.raises(asyncio.CancelledError):
            await plane.watch_tokens()
    assert pauses == [60, 60]
    assert commands == ["prompt", f"get var {tokens.START_VARIABLE}", f"show table {tokens.TABLE}"] * 2


class SlowSession:
    """A fake session with HAProxy, in which the first dump of the token counts arrives late."""

    dumps, open, most = 0, 0, 0

    async def query(self, _command: str) -> str:
        return ""

    async def query_all(self, _commands: list[str]) -> list[str]:
        SlowSession.dumps += 1
        text = f"0x7f: key=ns:m!alice use=0 gpc0={SlowSession.dumps} gpc1=0 gpc2=0 gpc3=0"
        for _unused in range(50 if SlowSession.dumps == 1 else 0):
            await asyncio.sleep(0)
        return ["start", text]


@asynccontextmanager
async def slow_session(_path: Path) -> AsyncIterator[SlowSession]:
    SlowSession.open += 1
    SlowSession.most = max(SlowSession.most, SlowSession.open)
    yield SlowSession()
    SlowSession.open -= 1


async def test_readings_of_counters_take_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If an older dump were added last, it would count as a wrap of 2^32 tokens."""
    monkeypatch.setattr(haproxy_socket, "open_session", slow_session)
    plane = DataPlane(Settings(run_directory=str(tmp_path), count_tokens=True, threads=2))
    readings = await asyncio.gather(*(plane.read_counters() for _unused in range(3)))
    assert [answers.tokens[0] for answers in readings] == [f"ns:m alice {number} 0 0 0 0 0" for number in (1, 2, 3)]
    assert SlowSession.most == 1, "HAProxy accepts ten sessions"


async def test_tokens_of_a_thread_are_not_lost_when_another_does_not_answer(tmp_path: Path) -> None:
    plane = DataPlane(Settings(run_directory=str(tmp_path), count_tokens=True, threads=2))
    spent = Counter[str]()
    async with listening(tmp_path / "thread1.sock", "a 30", "\n> "):
        with pytest.raises(NotRunningError):
            await plane.collect_tokens(spent)
        assert spent == {"a": 30}
        async with listening(tmp_path / "thread2.sock", "a 4\nb 5", "\n> "):
            await plane.collect_tokens(spent)
    assert spent == {"a": 64, "b": 5}
