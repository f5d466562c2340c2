"""Every file that HAProxy reads, made of settings, table and keys. Pure but for reading our own Lua files."""

from __future__ import annotations

from importlib import resources
from typing import NamedTuple

from slipway.gateway import balancing, errors, haproxy, rewrite
from slipway.gateway.runtime import HELD
from slipway.gateway.selector import label_text
from slipway.gateway.settings import Settings
from slipway.gateway.table import EMPTY, RoutingTable

LUA_FILES = (
    *("json.lua", "guard.lua", "forms.lua", "rewrite.lua", "prefix.lua", "labels.lua", "hold.lua", "surface.lua"),
    *("bodies.lua", "client.lua", "headers.lua", "refusals.lua"),
)


class State(NamedTuple):
    """All that HAProxy must know and that changes while it runs."""

    table: RoutingTable = EMPTY
    keys: tuple[tuple[str, str], ...] = ()
    """Upper-case SHA-256 of each API key, and the key's name."""
    ready: bool = False
    """Whether /readyz says so."""

    def maps(self, settings: Settings) -> dict[str, dict[str, str]]:
        """Entries of every map that HAProxy has with these settings, by its file name."""
        maps = {
            "models.map": dict(self.table.models),
            "labels.map": {
                name: text for name, b in self.table.backends.items() if (text := label_text(b.route.labels))
            },
            **rewrite.maps(self.table),
            HELD: {name: "1" for name, backend in self.table.backends.items() if not backend.endpoints},
            "wake.map": {name: "1" for name, backend in self.table.backends.items() if backend.route.scale},
            "rings.map": balancing.rings(self.table),
            "state.map": {"ready": "1"} if self.ready else {},
        }
        return maps | ({"keys.map": dict(self.keys)} if settings.api_keys_secret else {})


def files(settings: Settings, state: State) -> dict[str, str]:
    """Text of each file by its path below the shared directory."""
    lua = resources.files(__package__) / "lua"
    return (
        {f"lua/{name}": (lua / name).read_text() for name in LUA_FILES}
        | {f"errors/{failure.status}.http": errors.error_file(failure) for failure in errors.BY_STATUS}
        | {"lua/failures.lua": errors.lua_module()}
        | {name: haproxy.map_text(entries) for name, entries in state.maps(settings).items()}
        | {"paths.map": haproxy.paths_map(), "haproxy.cfg": haproxy.configuration(settings, state.table)}
    )
