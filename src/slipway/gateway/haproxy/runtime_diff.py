"""The commands that bring a running HAProxy to the desired state. Pure: two states in, commands out.

The running state is always read from HAProxy, never remembered: a restart of either process needs no special case.
The order loses no request: a new server exists before a map leads to it, an old one is left before it is removed.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from typing import NamedTuple

from slipway.gateway.haproxy.config.maps import SPECIAL_MAP
from slipway.gateway.haproxy.config.servers import MODEL_DEFAULTS
from slipway.gateway.haproxy.config.servers import servers as haproxy_servers
from slipway.gateway.routing.outliers import Count
from slipway.gateway.routing.table import RoutingTable
from slipway.gateway.rules import fallback_server

SHOW_BACKENDS_AND_SERVERS = "show stat -1 6 -1"
SHOW_BACKENDS = "show stat -1 2 -1"
_BUSY_SECONDS = 15
HOLD_MAP = "hold.map"
"""The map of backends whose requests are held, whatever servers they have."""

_BATCH_SIZE = 100
"""Commands that are sent at once. One by one, thousands of them would keep the changes of others waiting."""


class Command(NamedTuple):
    """One line for the command socket, and the answer that means success."""

    text: str
    answer: str = ""


def batches(commands: Iterable[Command]) -> Iterator[list[Command]]:
    """Commands as they may be sent at once: entries of maps, and states of servers, which do not need each other. Any
    other goes alone."""
    for kind, group in groupby(commands, key=_batch_kind):
        waiting = list(group)
        size = _BATCH_SIZE if kind else 1
        yield from (waiting[start : start + size] for start in range(0, len(waiting), size))


def _batch_kind(command: Command) -> str:
    """What a command changes of which many may be sent at once; empty: something else."""
    verb, what, *_unused = command.text.split(" ", 2)
    if what == "map":
        return "map"
    return "server" if verb in ("enable", "set") else ""


class RunningBackend(NamedTuple):
    """A model's backend as HAProxy has it."""

    published: bool
    servers: Mapping[str, bool]
    """Whether each server takes new requests, by its name."""

    @property
    def endpoints(self) -> dict[str, bool]:
        """The servers that are endpoints of the model."""
        return {name: active for name, active in self.servers.items() if name != fallback_server.NAME}


class RunningState(NamedTuple):
    """What HAProxy knows now."""

    version: str
    """Of the static part of the configuration (see haproxy.version)."""
    backends: Mapping[str, RunningBackend]
    """Models' backends only."""
    maps: Mapping[str, Mapping[str, str]]
    """Entries of each map, by file name."""


def parse_backends(statistics: str) -> dict[str, RunningBackend]:
    """Reads the answer to SHOW_BACKENDS_AND_SERVERS."""
    published: dict[str, bool] = {}
    servers: dict[str, dict[str, bool]] = {}
    for row in csv.DictReader(io.StringIO(statistics.removeprefix("# "))):
        backend = row["pxname"]
        if ":" not in backend:
            continue  # one of our own
        if row["svname"] == "BACKEND":
            published[backend] = "UNPUB" not in row["status"]
        else:
            servers.setdefault(backend, {})[row["svname"]] = not row["status"].startswith("MAINT")
    return {backend: RunningBackend(on, servers.get(backend, {})) for backend, on in published.items()}


def list_busy_backends(statistics: str) -> list[str]:
    """Of the answer to SHOW_BACKENDS, models' backends of several servers that have had requests a moment ago."""
    return [
        row["pxname"]
        for row in csv.DictReader(io.StringIO(statistics.removeprefix("# ")))
        if ":" in row["pxname"]
        and int(row["act"] or 0) > 1
        and (int(row["scur"] or 0) or 0 <= int(row["lastsess"] or -1) <= _BUSY_SECONDS)
    ]


def parse_counts(statistics: str) -> dict[str, Count]:
    """What each endpoint of a backend did, by its name, of the answer to ``show_servers``."""
    return {
        row["svname"]: Count(
            sum(int(row[f"hrsp_{code}"] or 0) for code in ("1xx", "2xx", "3xx", "4xx")),
            # A server that sends 500 and closes is counted in both.
            max(int(row["hrsp_5xx"] or 0), int(row["eresp"] or 0)),
            int(row["scur"] or 0),
        )
        for row in csv.DictReader(io.StringIO(statistics.removeprefix("# ")))
        if row["svname"] != fallback_server.NAME and not row["status"].startswith("MAINT")
    }


def show_servers(backend: str) -> str:
    """The command that asks for the counters of one backend's servers."""
    return f"show stat {backend} 4 -1"


def parse_map(text: str) -> dict[str, str]:
    """Reads the answer to ``show map``: reference, key, value on each line. Of equal keys the first one counts."""
    entries: dict[str, str] = {}
    for line in text.splitlines():
        _unused, key, value = line.split(" ", 2)
        entries.setdefault(key, value)
    return entries


def arrivals(
    directory: str, running: RunningState, table: RoutingTable, maps: Mapping[str, Mapping[str, str]]
) -> list[Command]:
    """Commands that add what is desired and missing, and let the maps lead to it.

    HAProxy chooses from a server a moment after it says that there is one: so requests for a backend whose first
    server comes, or whose last one goes, are held while that is under way.
    """
    return [
        *_map_commands(directory, SPECIAL_MAP, running.maps.get(SPECIAL_MAP, {}), _transitional_special(running, maps)),
        *_map_commands(directory, HOLD_MAP, running.maps.get(HOLD_MAP, {}), _transitional_held(running, table, maps)),
        *_additions(directory, running, table),
        *(
            command
            for name, desired in maps.items()
            if name not in (HOLD_MAP, SPECIAL_MAP)
            for command in _map_commands(directory, name, running.maps.get(name, {}), desired)
        ),
    ]


def removals(running: RunningState, table: RoutingTable) -> list[Command]:
    """Commands that delete what is no longer used. HAProxy refuses them while a stream goes on: try again later."""
    commands = []
    for name, backend in running.backends.items():
        desired = _desired_servers("", table, name)
        commands += [
            Command(f"del server {name}/{server}", "Server deleted.")
            for server, active in backend.servers.items()
            if server not in desired and not active
        ]
        if name not in table.backends and not backend.published:
            commands.append(Command(f"del backend {name}", "Backend deleted."))
    return commands


def _desired_servers(directory: str, table: RoutingTable, name: str) -> dict[str, str]:
    backend = table.backends.get(name)
    return haproxy_servers(directory, backend) if backend else {}


def _additions(directory: str, running: RunningState, table: RoutingTable) -> Iterator[Command]:
    for name in table.backends:
        live = running.backends.get(name)
        if live is None:
            yield Command(f"add backend {name} from {MODEL_DEFAULTS}", "New backend registered.")
        servers = live.servers if live else {}
        for server, text in _desired_servers(directory, table, name).items():
            if server not in servers:
                yield Command(f"add server {name}/{server} {text}", "New server registered.")
                if fallback_server.CHECK in text:
                    yield Command(f"enable health {name}/{server}")
            if not servers.get(server):
                yield Command(f"set server {name}/{server} state ready")
        if live is None or not live.published:
            yield Command(f"publish backend {name}", "Backend published.")


def _map_commands(
    directory: str, name: str, running: Mapping[str, str], desired: Mapping[str, str]
) -> Iterator[Command]:
    path = f"{directory}/{name}"
    for key, value in desired.items():
        if key not in running:
            yield Command(f"add map {path} {key} {value}")
        elif running[key] != value:
            yield Command(f"set map {path} {key} {value}")
    for key in running:
        if key not in desired:
            yield Command(f"del map {path} {key}")


def withdrawals(
    directory: str, running: RunningState, table: RoutingTable, maps: Mapping[str, Mapping[str, str]]
) -> Iterator[Command]:
    """Commands that stop traffic to what is no longer desired, and release the requests held for what was added. Send
    them when the additions are in use."""
    yield from _map_commands(directory, HOLD_MAP, _transitional_held(running, table, maps), maps[HOLD_MAP])
    yield from _map_commands(directory, SPECIAL_MAP, _transitional_special(running, maps), maps[SPECIAL_MAP])
    for name, backend in running.backends.items():
        desired = _desired_servers(directory, table, name)
        for server, active in backend.servers.items():
            if active and server not in desired:
                yield Command(f"set server {name}/{server} state maint")
        if name not in table.backends and backend.published:
            yield Command(f"unpublish backend {name}", "Backend unpublished.")


def _transitional_special(running: RunningState, maps: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    """The map's entries between arrivals and withdrawals.

    A model that becomes special or ordinary passes all rules until the other maps have changed.
    """
    return {**running.maps.get(SPECIAL_MAP, {}), **maps[SPECIAL_MAP]}


def _transitional_held(
    running: RunningState, table: RoutingTable, maps: Mapping[str, Mapping[str, str]]
) -> dict[str, str]:
    """The map's entries between arrivals and withdrawals: those of before and after, and backends whose first server
    comes."""
    active = {name for name, backend in running.backends.items() if any(backend.endpoints.values())}
    starting = {name: "1" for name in table.backends if name not in active}
    return {**running.maps.get(HOLD_MAP, {}), **maps[HOLD_MAP], **starting}
