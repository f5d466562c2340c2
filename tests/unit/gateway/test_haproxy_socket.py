"""Commands on HAProxy's socket."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from slipway.gateway.haproxy.socket import CommandError, Session


class Writer:
    def __init__(self) -> None:
        self.written = b""

    def write(self, data: bytes) -> None:
        self.written += data

    async def drain(self) -> None:
        pass


def session(writer: Any, answer: bytes = b"\n> ") -> Session:
    reader = asyncio.StreamReader()
    reader.feed_data(answer)
    return Session(reader, writer)


async def test_a_command_is_one_line_and_its_answer_comes_without_blank_lines() -> None:
    writer = Writer()
    assert await session(writer, b"\n0x1 key value\n\n> ").query("show map /run/models.map") == "0x1 key value"
    assert writer.written == b"show map /run/models.map\n"


@pytest.mark.parametrize("text", ["a;show info", "a\nshow info", "a\rb", "a\\;b"])
async def test_text_with_several_commands_is_not_sent(text: str) -> None:
    writer = Writer()
    with pytest.raises(CommandError, match="add map: not sent"):
        await session(writer).query(f"add map /run/models.map {text} ns:m")
    assert writer.written == b""


async def test_many_commands_go_at_once_and_each_answer_is_read() -> None:
    writer = Writer()
    opened = session(writer, b"\n> " * 3 + b"7\n> ")
    await opened.execute_all(["add map /m a b", "set map /m c d", "del map /m e"])
    assert writer.written == b"add map /m a b\nset map /m c d\ndel map /m e\n"
    assert await opened.query("get var x") == "7"


async def test_a_failed_command_is_named_without_its_values() -> None:
    opened = session(Writer(), b"\n> entry not found.\n\n> \n> 7\n> ")
    with pytest.raises(CommandError, match=r"\Aset map: entry not found\.\Z"):
        await opened.execute_all(["add map /m secret b", "set map /m secret d", "del map /m e"])
    assert await opened.query("get var x") == "7"


async def test_no_command_is_sent_if_one_could_be_parsed_as_several() -> None:
    writer = Writer()
    with pytest.raises(CommandError, match="not sent"):
        await session(writer).execute_all(["add map /m a b", "add map /m c;d e"])
    assert writer.written == b""


async def test_a_payload_ends_with_a_blank_line_and_contains_none() -> None:
    writer = Writer()
    await session(writer).query("set ssl cert a.pem", "line 1\nline 2\n")
    assert writer.written == b"set ssl cert a.pem <<\nline 1\nline 2\n\n"
    with pytest.raises(CommandError, match="blank line"):
        await session(Writer()).query("set ssl cert a.pem", "line 1\n\nshow info")
