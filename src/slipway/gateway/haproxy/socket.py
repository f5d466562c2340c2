"""Client of HAProxy's Runtime API on a Unix socket. HAProxy ends each answer with a prompt."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

_PROMPT = b"\n> "
_TIMEOUT_SECONDS = 10.0
_RELOAD_SECONDS = 60.0
_MOST_BYTES = 1 << 26
"""Maximum size of an answer in bytes. Statistics of ten thousand backends are smaller."""


class CommandError(RuntimeError):
    """HAProxy is unreachable or does not answer, or a command was rejected or could not be sent."""


class NotRunningError(CommandError):
    """HAProxy does not listen on the socket: it has not started, is restarting, or accepts no more connections."""


class Session:
    """An open session on the socket of HAProxy's worker process."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def query(self, command: str, payload: str = "") -> str:
        """Send a command with its payload. Return the answer without surrounding blank lines.

        Raise CommandError if HAProxy does not answer, or would parse the text as several commands.
        """
        (answer,) = await self._send([command], payload)
        return answer

    async def query_all(self, commands: Sequence[str]) -> list[str]:
        """Send all commands at once. Return the answer to each command, in order. Raise CommandError as ``query``
        does."""
        return await self._send(commands) if commands else []

    async def _send(self, commands: Sequence[str], payload: str = "") -> list[str]:
        """Send all commands at once, each with the payload. Return the answer to each command, in order. Raise
        CommandError."""
        for command in commands:
            if any(separator in command for separator in ";\n\r\\"):
                raise CommandError(f"{_command_name(command)}: not sent, because it contains more than one command")
        verb = _command_name(commands[0])
        if "\n\n" in payload:
            raise CommandError(f"{verb}: not sent, because its payload contains a blank line")
        end = f" <<\n{payload.strip()}\n\n" if payload else "\n"
        try:
            async with asyncio.timeout(_TIMEOUT_SECONDS):
                self._writer.write("".join(command + end for command in commands).encode())
                await self._writer.drain()
                answers = [await self._reader.readuntil(_PROMPT) for _unused in commands]
        except (OSError, EOFError, TimeoutError, asyncio.LimitOverrunError) as error:
            raise CommandError(f"{verb}: {error or type(error).__name__}") from error
        return [answer.removesuffix(_PROMPT).decode(errors="replace").strip("\n") for answer in answers]

    async def execute(self, command: str, *answers: str) -> None:
        """Send a command. Raise CommandError unless the answer is one of ``answers``, or empty if none are given."""
        _require_answer(command, await self.query(command), answers)

    async def execute_all(self, commands: Sequence[str]) -> None:
        """Send all commands at once. HAProxy also runs the commands after a failed command.

        Raise CommandError for the first command whose answer is not empty.
        """
        for command, answer in zip(commands, await self._send(commands), strict=True):
            _require_answer(command, answer)


def _require_answer(command: str, answer: str, answers: Sequence[str] = ()) -> None:
    if answer.strip() not in (answers or ("",)):
        raise CommandError(f"{_command_name(command)}: {answer.strip()}")


def _command_name(command: str) -> str:
    """Return the first two words of a command for messages. Its other words may be hashes of API keys."""
    return " ".join(command.split()[:2])


@asynccontextmanager
async def open_session(socket: Path) -> AsyncIterator[Session]:
    """Open a session and close it at the end of the context. Raise NotRunningError if HAProxy does not listen, and
    CommandError if it does not answer."""
    try:
        reader, writer = await asyncio.open_unix_connection(socket, limit=_MOST_BYTES)
    except OSError as error:
        raise NotRunningError(f"HAProxy does not listen on {socket.name}: {error.strerror}") from error
    try:
        opened = Session(reader, writer)
        await opened.query("prompt")
        yield opened
    finally:
        writer.close()


async def reload(master: Path) -> None:
    """Reload HAProxy: the master starts a new process that reads the files. Raise CommandError if the new process
    fails, or the master does not answer.

    The old process exits after its last stream.
    """
    try:
        async with asyncio.timeout(_RELOAD_SECONDS):
            reader, writer = await asyncio.open_unix_connection(master)
            writer.write(b"reload\n")
            # The first line, which arrives when the new process runs or has failed, is the result. The log follows.
            verdict = await reader.readline()
            log = b"" if verdict == b"Success=1\n" else await reader.readuntil(b"\n\n")
            writer.close()
    except (OSError, EOFError, TimeoutError, asyncio.LimitOverrunError) as error:
        raise CommandError(f"reload: {error or type(error).__name__}") from error
    if log:
        raise CommandError(f"reload: {log.decode(errors='replace').strip()}")
