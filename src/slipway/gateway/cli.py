"""The command line of HAProxy over its Unix socket: one command at a time, answers told apart by prompts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

_PROMPT = b"\n> "
_SECONDS = 10.0
_RELOAD_SECONDS = 60.0
_LIMIT = 1 << 26
"""Largest answer in bytes; statistics of ten thousand backends stay below it."""


class CommandFailed(RuntimeError):
    """HAProxy could not be reached, or did not do what it was told."""


class NotRunning(CommandFailed):
    """Nobody listens on the socket: HAProxy has not started, is being restarted, or takes no more connections."""


class CommandLine:
    """An open session on the socket of HAProxy's working process."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def ask(self, command: str) -> str:
        """Sends one command and returns its answer without the blank lines around it.

        Raises CommandFailed, also for a text that HAProxy would read as several commands.
        """
        (answer,) = await self._ask([command])
        return answer

    async def _ask(self, commands: Sequence[str]) -> list[str]:
        """Sends commands at once and returns the answer to each. Raises CommandFailed."""
        for command in commands:
            if any(separator in command for separator in ";\n\r\\"):
                raise CommandFailed(f"{_verb(command)}: not sent, as it is more than one command")
        verb = _verb(commands[0])
        try:
            async with asyncio.timeout(_SECONDS):
                self._writer.write(b"".join(command.encode() + b"\n" for command in commands))
                await self._writer.drain()
                answers = [await self._reader.readuntil(_PROMPT) for _unused in commands]
        except (OSError, EOFError, TimeoutError, asyncio.LimitOverrunError) as error:
            raise CommandFailed(f"{verb}: {error or type(error).__name__}") from error
        return [answer.removesuffix(_PROMPT).decode(errors="replace").strip("\n") for answer in answers]

    async def tell(self, command: str, *answers: str) -> None:
        """Sends a command whose success is one of `answers` (default: silence). Raises CommandFailed."""
        _check(command, await self.ask(command), answers)

    async def tell_all(self, commands: Sequence[str]) -> None:
        """Sends commands at once whose success is silence, each of which may run though another fails.

        Raises CommandFailed for the first that did.
        """
        for command, answer in zip(commands, await self._ask(commands), strict=True):
            _check(command, answer)


def _check(command: str, answer: str, answers: Sequence[str] = ()) -> None:
    if answer.strip() not in (answers or ("",)):
        raise CommandFailed(f"{_verb(command)}: {answer.strip()}")


def _verb(command: str) -> str:
    """The command without its values, for messages: they may be hashes of keys."""
    return " ".join(command.split()[:2])


@asynccontextmanager
async def session(socket: Path) -> AsyncIterator[CommandLine]:
    """Opens a session for as long as the context lasts. Raises CommandFailed; NotRunning when nobody listens."""
    try:
        reader, writer = await asyncio.open_unix_connection(socket, limit=_LIMIT)
    except OSError as error:
        raise NotRunning(f"HAProxy does not listen on {socket.name}: {error.strerror}") from error
    try:
        line = CommandLine(reader, writer)
        await line.ask("prompt")
        yield line
    finally:
        writer.close()


async def reload(master: Path) -> None:
    """Makes the master start a new process from the files. Raises CommandFailed.

    The old process ends with its last stream.
    """
    try:
        async with asyncio.timeout(_RELOAD_SECONDS):
            reader, writer = await asyncio.open_unix_connection(master)
            writer.write(b"reload\n")
            # The verdict comes first, when the new process runs or has failed to; its log follows.
            verdict = await reader.readline()
            log = b"" if verdict == b"Success=1\n" else await reader.readuntil(b"\n\n")
            writer.close()
    except (OSError, EOFError, TimeoutError, asyncio.LimitOverrunError) as error:
        raise CommandFailed(f"reload: {error or type(error).__name__}") from error
    if log:
        raise CommandFailed(f"reload: {log.decode(errors='replace').strip()}")
