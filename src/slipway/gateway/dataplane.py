"""HAProxy as seen from the control process: files and sockets in the shared directory. All I/O towards it is here."""

from __future__ import annotations

import asyncio
import logging
import os
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path

from slipway.gateway import cli, haproxy, metrics, render, runtime
from slipway.gateway.cli import CommandFailed, CommandLine, NotRunning
from slipway.gateway.render import State
from slipway.gateway.settings import Settings

log = logging.getLogger(__name__)

_ARRIVAL_SECONDS = 0.05
"""A server that became ready is among those that HAProxy chooses from a moment after the command was answered."""

_RELOAD_PAUSE = 5.0
"""Seconds between two reloads."""

SHOW_HOLD = "show slipway hold"
"""Answered by hold.lua."""


def write_files(directory: Path, files: Mapping[str, str]) -> None:
    """Writes what differs, each file at once: a reader sees the old or the new text, never a part."""
    for name, text in files.items():
        path = directory / name
        data = text.encode()
        try:
            if path.read_bytes() == data:
                continue
        except FileNotFoundError:
            path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
            file.write(data)
        os.replace(file.name, path)


class DataPlane:
    """Brings HAProxy to a wanted state and reads its counters."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._socket = settings.directory / "haproxy.sock"
        self._master = settings.directory / "master.sock"
        self._lock = asyncio.Lock()
        self._reloaded = -_RELOAD_PAUSE

    async def apply(self, state: State) -> None:
        """Makes files and process say `state`. Raises CommandFailed: the files say it then, try again.

        The files come first, so that a process that starts at any moment reads what is wanted now. What the running
        process refuses twice is left to a new one, which a reload starts: no request is lost by that either.
        """
        async with self._lock:
            write_files(self._settings.directory, render.files(self._settings, state))
            for attempt in ("first", "second"):
                try:
                    await self._steer(state)
                except NotRunning:
                    raise  # it will read the files when it starts; a reload would revive one that is told to end
                except CommandFailed as error:
                    log.warning("HAProxy cannot be changed as it runs, %s attempt: %s", attempt, error)
                else:
                    return
            await self._reload()

    async def _reload(self) -> None:
        """Starts a new process. Each one before lives as long as its streams: they must not pile up."""
        now = asyncio.get_running_loop().time()
        if now - self._reloaded < _RELOAD_PAUSE:
            raise CommandFailed(f"it was loaded anew less than {_RELOAD_PAUSE:.0f} s ago")
        self._reloaded = now
        await cli.reload(self._master)

    async def _steer(self, state: State) -> None:
        async with cli.session(self._socket) as line:
            running = await self._running(line)
            if running.version != haproxy.version(self._settings):
                raise CommandFailed("its settings are older")
            maps = state.maps(self._settings)
            arriving = runtime.arrivals(self._settings.run_directory, running, state.table, maps)
            leaving = list(runtime.withdrawals(self._settings.run_directory, running, state.table, maps))
            await self._tell(line, arriving)
            if arriving and leaving:
                await asyncio.sleep(_ARRIVAL_SECONDS)
            await self._tell(line, leaving)
            await self._remove_unused(line, state)

    async def _tell(self, line: CommandLine, commands: Iterable[runtime.Command]) -> None:
        for batch in runtime.batches(commands):
            if len(batch) == 1:
                await line.tell(batch[0].text, batch[0].answer)
            else:
                await line.tell_all([command.text for command in batch])

    async def _remove_unused(self, line: CommandLine, state: State) -> None:
        for command in runtime.removals(await self._running(line), state.table):
            answer = await line.ask(command.text)
            if not answer.endswith(command.answer):
                log.debug("%s: %s", command.text, answer)

    async def _running(self, line: CommandLine) -> runtime.Running:
        version = await line.ask(f"get var {haproxy.VERSION_VARIABLE}")
        statistics = await line.ask(runtime.SHOW_BACKENDS_AND_SERVERS)
        maps = {
            name: runtime.parse_map(await line.ask(f"show map {self._settings.run_directory}/{name}"))
            for name in State().maps(self._settings)
        }
        return runtime.Running(version.partition("<")[2].rstrip(">"), runtime.parse_backends(statistics), maps)

    async def servers(self) -> set[str]:
        """Names of the servers that take requests now. Raises CommandFailed when HAProxy does not run."""
        async with cli.session(self._socket) as line:
            backends = runtime.parse_backends(await line.ask(runtime.SHOW_BACKENDS_AND_SERVERS))
        return {name for backend in backends.values() for name, active in backend.servers.items() if active}

    async def stopping(self) -> bool:
        """Whether HAProxy was told to end, or has ended."""
        try:
            async with cli.session(self._socket) as line:
                return "\nStopping: 1" in await line.ask("show info")
        except CommandFailed:
            return True

    async def ended(self) -> None:
        """Waits until HAProxy's last process is gone."""
        while True:
            try:
                _unused, writer = await asyncio.open_unix_connection(self._master)
            except OSError:
                return
            writer.close()
            await asyncio.sleep(0.5)

    async def waiting(self) -> dict[str, int]:
        """How many requests wait, by backend. Raises CommandFailed."""
        async with cli.session(self._socket) as line:
            return metrics.waiting(await line.ask(SHOW_HOLD))

    async def counters(self) -> metrics.Answers:
        """What HAProxy counted. Raises CommandFailed."""
        async with cli.session(self._socket) as line:
            return metrics.Answers(
                statistics=await line.ask("show stat -1 7 -1"),
                first_bytes=await line.ask(f"show table {haproxy.TTFB_TABLE}"),
                hold=await line.ask(SHOW_HOLD),
            )
