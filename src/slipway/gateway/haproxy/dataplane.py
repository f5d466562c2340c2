"""The control process's access to HAProxy: files and sockets in the shared directory. All I/O with HAProxy is here."""

from __future__ import annotations

import asyncio
import logging
import os
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from slipway.gateway.haproxy import metrics, render, runtime_diff
from slipway.gateway.haproxy import socket as haproxy_socket
from slipway.gateway.haproxy.config.haproxy_cfg import version
from slipway.gateway.haproxy.config.model_rules import TTFB_TABLE
from slipway.gateway.haproxy.config.process import VERSION_VARIABLE
from slipway.gateway.haproxy.render import DesiredState
from slipway.gateway.haproxy.socket import CommandError, NotRunningError, Session
from slipway.gateway.routing.outliers import Count
from slipway.gateway.rules import jwks, limits, tokens
from slipway.gateway.settings import Settings

log = logging.getLogger(__name__)

_ARRIVAL_SECONDS = 0.05
"""HAProxy starts to use a server a moment after it confirms that the server is ready."""

_RELOAD_PAUSE = 5.0
"""Minimum seconds between two reloads."""

_WRAP_SECONDS = 60.0
"""Seconds between two readings of the token counters, which wrap at 2^32."""

_BACKENDS_AND_SERVERS = 6
"""Argument of ``show stat``: the sum of the bits for backends and servers."""
SHOW_HOLD = "show slipway hold"
"""Command that hold.lua implements."""


def write_files(directory: Path, files: Mapping[str, str]) -> None:
    """Writes the files that differ. Each write is atomic: a reader sees the old or the new text."""
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
    """Brings HAProxy to the desired state and reads its counters."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._socket = settings.directory / "haproxy.sock"
        self._master = settings.directory / "master.sock"
        self._lock = asyncio.Lock()
        self._reloaded_at = -_RELOAD_PAUSE
        self._table_counters = tokens.TableCounters()
        self._counter_lock = asyncio.Lock()
        """Held while counters are read, because TableCounters needs them in order, and HAProxy allows few sessions."""

    async def apply(self, state: DesiredState) -> None:
        """Writes the files for ``state`` and updates the running process.

        The files are written first, so that a process that starts at any time reads the new state. If the running
        process refuses the changes twice, a reload starts a new one, which loses no request. Raises CommandError if
        HAProxy could not be updated; the caller retries.
        """
        async with self._lock:
            write_files(self._settings.directory, render.render_files(self._settings, state))
            for attempt in ("first", "second"):
                try:
                    await self._update(state)
                except NotRunningError:
                    raise  # HAProxy reads the files when it starts; a reload would revive one that is stopping
                except CommandError as error:
                    log.warning("Could not update the running HAProxy (%s attempt): %s", attempt, error)
                else:
                    return
            await self._reload()

    async def _reload(self) -> None:
        """Starts a new process. Old ones run until their last stream ends, so reloads must be rare."""
        now = asyncio.get_running_loop().time()
        if now - self._reloaded_at < _RELOAD_PAUSE:
            raise CommandError(f"not reloading: the last reload was less than {_RELOAD_PAUSE:.0f} s ago")
        self._reloaded_at = now
        await haproxy_socket.reload(self._master)

    async def _update(self, state: DesiredState) -> None:
        async with haproxy_socket.open_session(self._socket) as session:
            running = await self._read_running_state(session)
            if running.version != version(self._settings):
                raise CommandError("it runs with older settings")
            maps = state.maps(self._settings)
            arriving = runtime_diff.arrivals(self._settings.run_directory, running, state.table, maps)
            leaving = list(runtime_diff.withdrawals(self._settings.run_directory, running, state.table, maps))
            unused = await self._load_certificates(session, state) if self._settings.jwt else ()
            await self._execute(session, arriving)
            if arriving and leaving:
                await asyncio.sleep(_ARRIVAL_SECONDS)
            await self._execute(session, leaving)
            await self._remove_unused(session, state)
            for path in unused:
                await session.execute(f"del ssl jwt {path}")
                log.info("Unloaded a key that verified tokens: %s", await session.query(f"del ssl cert {path}"))
        if self._settings.jwt:
            jwks.delete_unused(self._settings.directory, state.verification)

    async def _load_certificates(self, session: Session, state: DesiredState) -> list[str]:
        """Loads missing public keys into HAProxy. Returns the paths of unused ones."""
        loaded = jwks.parse_loaded(await session.query(jwks.SHOW_CERTIFICATES))
        certificates = {f"{self._settings.run_directory}/{key.file}": key.certificate for key in state.verification}
        for path, certificate in certificates.items():
            if path not in loaded:
                await session.query(f"new ssl cert {path}")  # exists if an earlier attempt failed half-way
                await session.query(f"set ssl cert {path}", certificate)
                answer = await session.query(f"commit ssl cert {path}")
                if not answer.endswith("Success!"):
                    raise CommandError(f"commit ssl cert: {answer}")
                await session.execute(f"add ssl jwt {path}")
        return [path for path in loaded if path not in certificates]

    async def _execute(self, session: Session, commands: Iterable[runtime_diff.Command]) -> None:
        for batch in runtime_diff.batches(commands):
            if len(batch) == 1:
                await session.execute(batch[0].text, batch[0].answer)
            else:
                await session.execute_all([command.text for command in batch])

    async def _remove_unused(self, session: Session, state: DesiredState) -> None:
        for command in runtime_diff.removals(await self._read_running_state(session), state.table):
            answer = await session.query(command.text)
            if not answer.endswith(command.answer):
                log.debug("%s: %s", command.text, answer)

    async def _read_running_state(self, session: Session) -> runtime_diff.RunningState:
        running_version = await session.query(f"get var {VERSION_VARIABLE}")
        statistics = await session.query(runtime_diff.SHOW_BACKENDS_AND_SERVERS)
        maps = {
            name: runtime_diff.parse_map(await session.query(f"show map {self._settings.run_directory}/{name}"))
            for name in DesiredState().maps(self._settings)
        }
        return runtime_diff.RunningState(
            running_version.partition("<")[2].rstrip(">"), runtime_diff.parse_backends(statistics), maps
        )

    async def list_active_servers(self) -> set[str]:
        """Returns the names of the servers that accept requests. Raises CommandError if HAProxy does not run."""
        async with haproxy_socket.open_session(self._socket) as session:
            backends = runtime_diff.parse_backends(await session.query(runtime_diff.SHOW_BACKENDS_AND_SERVERS))
        return {name for backend in backends.values() for name, active in backend.servers.items() if active}

    async def read_outcomes(self) -> dict[str, dict[str, Count]]:
        """Returns the requests of each server of busy models with several servers, by backend. Raises CommandError."""
        async with haproxy_socket.open_session(self._socket) as session:
            busy = runtime_diff.list_busy_backends(await session.query(runtime_diff.SHOW_BACKENDS))
            return {
                name: runtime_diff.parse_counts(await session.query(runtime_diff.show_servers(name))) for name in busy
            }

    async def is_stopping(self) -> bool:
        """Whether HAProxy is stopping or has stopped."""
        try:
            async with haproxy_socket.open_session(self._socket) as session:
                return "\nStopping: 1" in await session.query("show info")
        except CommandError:
            return True

    async def wait_until_ended(self) -> None:
        """Waits until HAProxy's last process has exited."""
        while True:
            try:
                _unused, writer = await asyncio.open_unix_connection(self._master)
            except OSError:
                return
            writer.close()
            await asyncio.sleep(0.5)

    async def count_waiting(self) -> dict[str, int]:
        """Returns the number of waiting requests by backend. Raises CommandError."""
        async with haproxy_socket.open_session(self._socket) as session:
            return metrics.parse_waiting(await session.query(SHOW_HOLD))

    async def count_requests(self, backends: Sequence[str]) -> dict[str, int]:
        """Returns the number of requests in flight or waiting for each of these backends. Raises CommandError."""
        async with haproxy_socket.open_session(self._socket) as session:
            statistics = await session.query_all(
                [f"show stat {backend} {_BACKENDS_AND_SERVERS} -1" for backend in backends]
            )
            hold = await session.query_all([f"{SHOW_HOLD} {backend}" for backend in backends])
        numbers: dict[str, int] = {}
        for answer, waiting in zip(statistics, hold, strict=True):
            if answer.startswith("# "):  # another answer means that HAProxy does not have the backend yet
                numbers |= metrics.count_requests(answer, waiting)
        return numbers

    async def read_counters(self) -> metrics.RawCounters:
        """Reads HAProxy's counters. Raises CommandError."""
        async with self._counter_lock:
            async with haproxy_socket.open_session(self._socket) as session:
                answers = metrics.RawCounters(
                    statistics=await session.query("show stat -1 7 -1"),
                    first_bytes=await session.query(f"show table {TTFB_TABLE}"),
                    hold=await session.query(SHOW_HOLD),
                    tokens=(await self._read_table_tokens(session),) if self._settings.count_tokens else (),
                )
            return answers._replace(tokens=(*answers.tokens, *await self._read_thread_tokens()))

    async def read_entries(self, *, everything: bool = False) -> dict[str, limits.HolderEntry]:
        """Reads the entries of holders that sent requests since the last call, or all. Raises CommandError."""
        async with haproxy_socket.open_session(self._socket) as session:
            return limits.parse_entries(await session.query(limits.SHOW_LIMITS + " all" * everything))

    async def collect_tokens(self, totals: Counter[str]) -> None:
        """Adds the new tokens of each holder to ``totals``.

        HAProxy reports them only once, so the answers of other threads are added even if one thread fails. Raises
        CommandError.
        """
        for name in tokens.socket_names(self._settings):
            async with haproxy_socket.open_session(self._settings.directory / name) as session:
                totals.update(limits.parse_tokens(await session.query(limits.SHOW_SPENT)))

    async def grant(self, grants: Iterable[tuple[str, str, str]]) -> None:
        """Sends grants to limits.lua: holder, birth and encoded grant of each. Raises CommandError."""
        commands = list(limits.grant_commands(grants))
        if commands:
            async with haproxy_socket.open_session(self._socket) as session:
                await session.execute_all(commands)

    async def drop(self, drops: Iterable[tuple[str, str, int]]) -> list[tuple[str, str]]:
        """Deletes entries of limits.lua: holder, birth and counted requests of each. Raises CommandError.

        Returns holder and birth of those that no longer exist. An entry with new requests is kept.
        """
        commands = list(limits.drop_commands(drops))
        if not commands:
            return []
        async with haproxy_socket.open_session(self._socket) as session:
            return limits.parse_dropped("\n".join(await session.query_all(commands)))

    async def _read_thread_tokens(self) -> list[str]:
        """Reads the token counts of each of HAProxy's threads; empty if tokens are not counted."""
        answers = []
        for name in tokens.socket_names(self._settings):
            async with haproxy_socket.open_session(self._settings.directory / name) as session:
                answers.append(await session.query(tokens.SHOW_TOKENS))
        return answers

    async def watch_tokens(self) -> None:
        """Reads the stick table often enough to notice each wrap of its counters, until cancelled."""
        while True:
            with suppress(CommandError):  # the reconcile loop reports that HAProxy does not run
                async with self._counter_lock, haproxy_socket.open_session(self._socket) as session:
                    await self._read_table_tokens(session)
            await asyncio.sleep(_WRAP_SECONDS)

    async def _read_table_tokens(self, session: Session) -> str:
        """Reads the token counts of rules. The caller holds ``_counter_lock``."""
        process, table = await session.query_all([f"get var {tokens.START_VARIABLE}", f"show table {tokens.TABLE}"])
        return self._table_counters.rows(process, table)
