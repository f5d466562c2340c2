"""The commands that bring a running HAProxy to the desired state. Pure: computes them from the two states.

The running state is always read from HAProxy and never cached, so a restart of either process needs no special case.
The commands are ordered so that no request is lost: a server is added before a map refers to it, and removed after its
traffic has stopped.
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
"""Map with the names of backends whose requests are held, even if the backends have servers."""

_BATCH_SIZE = 100
"""Maximum number of commands in one batch. Other changes would have to wait for thousands of single commands."""


class Command(NamedTuple):
    """A command for HAProxy's socket, and the answer that means success."""

    text: str
    answer: str = ""


def batches(commands: Iterable[Command]) -> Iterator[list[Command]]:
    """Group commands into batches, without changing their order.

    Only changes of map entries and changes of server states are independent, and can share a batch. Each other command
    forms its own batch.
    """
    for kind, group in groupby(commands, key=_batch_kind):
        waiting = list(group)
        size = _BATCH_SIZE if kind else 1
        yield from (waiting[start : start + size] for start in range(0, len(waiting), size))


def _batch_kind(command: Command) -> str:
    """Return ``map`` or ``server`` for a command that can share a batch with commands of the same kind. Empty for any
    other command."""
    verb, what, *_unused = command.text.split(" ", 2)
    if what == "map":
        return "map"
    return "server" if verb in ("enable", "set") else ""


class RunningBackend(NamedTuple):
    """A model's backend in the running HAProxy."""

    published: bool
    """Whether the backend may get requests."""
    servers: Mapping[str, bool]
    """Server name -> whether the server accepts new requests."""

    @property
    def endpoints(self) -> dict[str, bool]:
        """Server name -> whether the server accepts new requests, only for endpoints of the model."""
        return {name: active for name, active in self.servers.items() if name != fallback_server.NAME}


class RunningState(NamedTuple):
    """The state of the running HAProxy."""

    version: str
    """Version of the static part of the configuration (see ``haproxy_cfg.version``)."""
    backends: Mapping[str, RunningBackend]
    """Backends of models, by name. Internal backends are omitted."""
    maps: Mapping[str, Mapping[str, str]]
    """File name -> entries of each map."""


def parse_backends(statistics: str) -> dict[str, RunningBackend]:
    """Parse the answer to ``SHOW_BACKENDS_AND_SERVERS``. Return the backends of models by name."""
    published: dict[str, bool] = {}
    servers: dict[str, dict[str, bool]] = {}
    for row in csv.DictReader(io.StringIO(statistics.removeprefix("# "))):
        backend = row["pxname"]
        if ":" not in backend:
            continue  # an internal backend
        if row["svname"] == "BACKEND":
            published[backend] = "UNPUB" not in row["status"]
        else:
            servers.setdefault(backend, {})[row["svname"]] = not row["status"].startswith("MAINT")
    return {backend: RunningBackend(on, servers.get(backend, {})) for backend, on in published.items()}


def list_busy_backends(statistics: str) -> list[str]:
    """Return the names of the models' backends with several servers and recent requests, from the answer to
    ``SHOW_BACKENDS``."""
    return [
        row["pxname"]
        for row in csv.DictReader(io.StringIO(statistics.removeprefix("# ")))
        if ":" in row["pxname"]
        and int(row["act"] or 0) > 1
        and (int(row["scur"] or 0) or 0 <= int(row["lastsess"] or -1) <= _BUSY_SECONDS)
    ]


def parse_counts(statistics: str) -> dict[str, Count]:
    """Parse the answer to the command ``show_servers``. Return the request counts of each active endpoint, by server
    name."""
    return {
        row["svname"]: Count(
            sum(int(row[f"hrsp_{code}"] or 0) for code in ("1xx", "2xx", "3xx", "4xx")),
            # A server that sends status 500 and closes the connection is counted in both.
            max(int(row["hrsp_5xx"] or 0), int(row["eresp"] or 0)),
            int(row["scur"] or 0),
        )
        for row in csv.DictReader(io.StringIO(statistics.removeprefix("# ")))
        if row["svname"] != fallback_server.NAME and not row["status"].startswith("MAINT")
    }


def show_servers(backend: str) -> str:
    """Return HAProxy's command that prints the counters of a backend's servers."""
    return f"show stat {backend} 4 -1"


def parse_map(text: str) -> dict[str, str]:
    """Parse the answer to ``show map``, in which each line has a reference, a key and a value. The first of equal keys
    counts."""
    entries: dict[str, str] = {}
    for line in text.splitlines():
        _unused, key, value = line.split(" ", 2)
        entries.setdefault(key, value)
    return entries


def arrivals(
    directory: str, running: RunningState, table: RoutingTable, maps: Mapping[str, Mapping[str, str]]
) -> list[Command]:
    """Return the commands that add missing backends and servers, and update the maps. The maps of held backends and
    special models get the entries for the time until ``withdrawals``. ``directory`` is the shared directory, and
    ``maps`` contains the desired entries by file name.

    HAProxy starts to use a server a moment after it confirms the command. Requests for a backend are therefore held
    while its first server is added or its last one is removed.
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
    """Return the commands that delete unused servers and backends.

    HAProxy rejects a command while a stream uses the server or backend. The next round retries it.
    """
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
    """Return the commands that stop traffic to unwanted servers and backends, and release held requests.

    They must be sent after HAProxy has started to use the servers of :func:`arrivals`. ``running`` is the state before
    the arrivals.
    """
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
    """Return the entries of the map of special models between arrivals and withdrawals: the old and the new entries.

    A model that becomes special or ordinary is special in between, so that its requests pass all rules until the other
    maps have changed.
    """
    return {**running.maps.get(SPECIAL_MAP, {}), **maps[SPECIAL_MAP]}


def _transitional_held(
    running: RunningState, table: RoutingTable, maps: Mapping[str, Mapping[str, str]]
) -> dict[str, str]:
    """Return the entries of the map of held backends between arrivals and withdrawals.

    They are the old and the new entries, and the backends that get their first server.
    """
    active = {name for name, backend in running.backends.items() if any(backend.endpoints.values())}
    starting = {name: "1" for name in table.backends if name not in active}
    return {**running.maps.get(HOLD_MAP, {}), **maps[HOLD_MAP], **starting}
