"""The control process's access to HAProxy by files and sockets in the shared directory. All I/O with HAProxy is
here."""

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
"""Seconds after which HAProxy uses a server whose readiness it has confirmed."""

_RELOAD_PAUSE = 5.0
"""Minimum seconds between two reloads."""

_WRAP_SECONDS = 60.0
"""Seconds between two readings of the token counters, which wrap around at 2^32."""

_BACKENDS_AND_SERVERS = 6
"""Argument of ``show stat`` that selects backends (bit 2) and servers (bit 4)."""
SHOW_HOLD = "show slipway hold"
"""Command, implemented in ``hold.lua``, that prints the numbers of waiting and rejected requests by backend."""


def write_files(directory: Path, files: Mapping[str, str]) -> None:
    """Write the files whose content differs, by name below ``directory``. Each write is atomic, so that a reader gets
    either the old or the new text."""
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
    """The connection to HAProxy. It applies the desired state, and reads HAProxy's counters."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._socket = settings.directory / "haproxy.sock"
        self._master = settings.directory / "master.sock"
        self._lock = asyncio.Lock()
        self._reloaded_at = -_RELOAD_PAUSE
        self._table_counters = tokens.TableCounters()
        self._counter_lock = asyncio.Lock()
        """Lock for reading counters. ``TableCounters`` needs the readings in order, and HAProxy allows few sessions."""

    async def apply(self, state: DesiredState) -> None:
        """Write the files for ``state`` and update the running process.

        The files are written first, so that a process that starts at any time reads the new state. If the running
        process rejects the changes twice, a reload starts a new process, which loses no request. Raise CommandError if
        HAProxy could not be updated. The caller must retry.
        """
        async with self._lock:
            write_files(self._settings.directory, render.render_files(self._settings, state))
            for attempt in ("first", "second"):
                try:
                    await self._update(state)
                except NotRunningError:
                    raise  # HAProxy reads the files when it starts, and a reload would restart a stopping HAProxy
                except CommandError as error:
                    log.warning("Could not update the running HAProxy (%s attempt): %s", attempt, error)
                else:
                    return
            await self._reload()

    async def _reload(self) -> None:
        """Start a new HAProxy process. Raise CommandError if it fails, or after a recent reload: old processes run
        until their last stream ends, so reloads must be rare."""
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
        """Load missing public keys into HAProxy. Return the paths of loaded keys that are no longer used."""
        loaded = jwks.parse_loaded(await session.query(jwks.SHOW_CERTIFICATES))
        certificates = {f"{self._settings.run_directory}/{key.file}": key.certificate for key in state.verification}
        for path, certificate in certificates.items():
            if path not in loaded:
                await session.query(f"new ssl cert {path}")  # exists if an earlier attempt failed before the commit
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
        """Return the names of the servers of all models that accept requests, including the fallback server. Raise
        CommandError if HAProxy does not respond."""
        async with haproxy_socket.open_session(self._socket) as session:
            backends = runtime_diff.parse_backends(await session.query(runtime_diff.SHOW_BACKENDS_AND_SERVERS))
        return {name for backend in backends.values() for name, active in backend.servers.items() if active}

    async def read_outcomes(self) -> dict[str, dict[str, Count]]:
        """Return the request counts of each server, by backend name and server name. Omit backends with fewer than two
        active servers or without recent requests. Raise CommandError if HAProxy does not respond."""
        async with haproxy_socket.open_session(self._socket) as session:
            busy = runtime_diff.list_busy_backends(await session.query(runtime_diff.SHOW_BACKENDS))
            return {
                name: runtime_diff.parse_counts(await session.query(runtime_diff.show_servers(name))) for name in busy
            }

    async def is_stopping(self) -> bool:
        """Whether HAProxy is stopping, has stopped or does not respond."""
        try:
            async with haproxy_socket.open_session(self._socket) as session:
                return "\nStopping: 1" in await session.query("show info")
        except CommandError:
            return True

    async def wait_until_ended(self) -> None:
        """Wait until HAProxy's last process has exited."""
        while True:
            try:
                _unused, writer = await asyncio.open_unix_connection(self._master)
            except OSError:
                return
            writer.close()
            await asyncio.sleep(0.5)

    async def count_waiting(self) -> dict[str, int]:
        """Return the number of waiting requests, by backend name. Raise CommandError if HAProxy does not respond."""
        async with haproxy_socket.open_session(self._socket) as session:
            return metrics.parse_waiting(await session.query(SHOW_HOLD))

    async def count_requests(self, backends: Sequence[str]) -> dict[str, int]:
        """Return the number of in-flight and waiting requests, by backend name. Omit backends that HAProxy does not
        have. Raise CommandError if HAProxy does not respond."""
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
        """Read HAProxy's counters, without parsing them. Raise CommandError if HAProxy does not respond."""
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
        """Return entries of ``limits.lua`` by their holder, which is an API key or a subject. Omit entries without
        changes since the last call, unless ``everything`` is true. Raise CommandError if HAProxy does not respond."""
        async with haproxy_socket.open_session(self._socket) as session:
            return limits.parse_entries(await session.query(limits.SHOW_LIMITS + " all" * everything))

    async def collect_tokens(self, totals: Counter[str]) -> None:
        """Add the number of new tokens of each holder to ``totals``.

        HAProxy reports new tokens only once. The answers of earlier threads are therefore added even if a later thread
        fails. Raise CommandError in this case.
        """
        for name in tokens.socket_names(self._settings):
            async with haproxy_socket.open_session(self._settings.directory / name) as session:
                totals.update(limits.parse_tokens(await session.query(limits.SHOW_SPENT)))

    async def grant(self, grants: Iterable[tuple[str, str, str]]) -> None:
        """Send grants to ``limits.lua``. A grant is a tuple of the holder, the birth of the holder's entry, and the
        encoded grant. HAProxy ignores a grant for an entry that no longer exists. Raise CommandError if HAProxy does
        not respond or rejects a command."""
        commands = list(limits.grant_commands(grants))
        if commands:
            async with haproxy_socket.open_session(self._socket) as session:
                await session.execute_all(commands)

    async def drop(self, drops: Iterable[tuple[str, str, int]]) -> list[tuple[str, str]]:
        """Delete entries in ``limits.lua``, given as tuples of the holder, the birth of its entry, and the number of
        counted requests. Raise CommandError if HAProxy does not respond.

        Return the holder and the birth of each entry that no longer exists. HAProxy keeps an entry with new requests.
        """
        commands = list(limits.drop_commands(drops))
        if not commands:
            return []
        async with haproxy_socket.open_session(self._socket) as session:
            return limits.parse_dropped("\n".join(await session.query_all(commands)))

    async def _read_thread_tokens(self) -> list[str]:
        """Read the token counts of each of HAProxy's threads; empty if tokens are not counted."""
        answers = []
        for name in tokens.socket_names(self._settings):
            async with haproxy_socket.open_session(self._settings.directory / name) as session:
                answers.append(await session.query(tokens.SHOW_TOKENS))
        return answers

    async def watch_tokens(self) -> None:
        """Read the stick table often enough to detect every wraparound of its counters, until cancelled."""
        while True:
            with suppress(CommandError):  # the reconcile loop reports that HAProxy does not run
                async with self._counter_lock, haproxy_socket.open_session(self._socket) as session:
                    await self._read_table_tokens(session)
            await asyncio.sleep(_WRAP_SECONDS)

    async def _read_table_tokens(self, session: Session) -> str:
        """Return the token counts in the stick table, corrected for wraparounds. The caller must hold
        ``_counter_lock``."""
        process, table = await session.query_all([f"get var {tokens.START_VARIABLE}", f"show table {tokens.TABLE}"])
        return self._table_counters.rows(process, table)
