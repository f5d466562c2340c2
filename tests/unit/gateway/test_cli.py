"""The command line of HAProxy: what is sent to it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from slipway.gateway.cli import CommandFailed, CommandLine


class Writer:
    def __init__(self) -> None:
        self.written = b""

    def write(self, data: bytes) -> None:
        self.written += data

    async def drain(self) -> None:
        pass


def line(writer: Any, answer: bytes = b"\n> ") -> CommandLine:
    reader = asyncio.StreamReader()
    reader.feed_data(answer)
    return CommandLine(reader, writer)


async def test_a_command_is_one_line_and_its_answer_comes_without_blank_lines() -> None:
    writer = Writer()
    assert await line(writer, b"\n0x1 key value\n\n> ").ask("show map /run/models.map") == "0x1 key value"
    assert writer.written == b"show map /run/models.map\n"


@pytest.mark.parametrize("text", ["a;show info", "a\nshow info", "a\rb", "a\\;b"])
async def test_what_would_be_read_as_more_than_one_command_is_not_sent(text: str) -> None:
    writer = Writer()
    with pytest.raises(CommandFailed, match="add map: not sent"):
        await line(writer).ask(f"add map /run/models.map {text} ns:m")
    assert writer.written == b""
