"""Renders all files that HAProxy reads, from the settings, the routing table and the keys. Pure, except for reading the
Lua files."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import resources
from typing import NamedTuple

from slipway.gateway import errors
from slipway.gateway.haproxy.config import maps as haproxy_maps
from slipway.gateway.haproxy.config.haproxy_cfg import configuration
from slipway.gateway.haproxy.runtime_diff import HOLD_MAP
from slipway.gateway.routing import balancing
from slipway.gateway.routing.keys import Rights
from slipway.gateway.routing.selector import label_text
from slipway.gateway.routing.table import EMPTY, RoutingTable
from slipway.gateway.rules import jwt, limits, rewrite, targets, tokens
from slipway.gateway.rules.jwks import VerificationKey
from slipway.gateway.settings import Settings
from slipway.serving.routing import paths
from slipway.serving.routing.route import Route

LUA_FILES = {
    "requests": (
        "bodies.lua",
        "claims.lua",
        "client.lua",
        "forms.lua",
        "guard.lua",
        "headers.lua",
        "json.lua",
        "labels.lua",
        "limits.lua",
        "names.lua",
        "paths.lua",
        "rewrite.lua",
    ),
    "targets": ("departures.lua", "hold.lua", "prefix.lua", "responses.lua", "servers.lua", "targets.lua"),
    "answers": (
        "cut.lua",
        "errors.lua",
        "nearest.lua",
        "reasons.lua",
        "refusals.lua",
        "tokens.lua",
        "unknown_model.lua",
    ),
}
"""Source directory -> Lua files in it. In the pod, all Lua files are in one directory."""

UNREADY, REFUSED = "unready.map", "refused.map"
"""Maps with the reasons why a model is not ready or was rejected, which ``reasons.lua`` reads."""


def unready_reasons(table: RoutingTable) -> dict[str, str]:
    """Return the reason why each backend without an endpoint has none, by backend name. A ``~`` precedes the reason if
    the model may still start. Omit backends for which the controller reports no reason."""
    return {
        name: f"{'' if condition.final else '~'}{condition.reason}"
        for name, backend in table.backends.items()
        if (condition := backend.unready) and not backend.endpoints
    }


def _wake_text(route: Route) -> str:
    """Return the time for which requests wait for a model that is scaled from zero, in the format of ``wake.map``.

    A time such as ``300s`` comes from the route, ``1`` selects the gateway's setting, and an empty string means that
    the model is not scaled from zero.
    """
    return f"{route.wake_seconds}s" if route.wake_seconds else "1" * (route.scale is not None)


class DesiredState(NamedTuple):
    """The part of HAProxy's configuration that can change while HAProxy runs."""

    table: RoutingTable = EMPTY
    keys: tuple[tuple[str, str], ...] = ()
    """Upper-case SHA-256 of each API key, and the key's name."""
    rights: Mapping[str, Rights] = {}
    """Rights by the name of the key or subject."""
    ready: bool = False
    """Whether ``/readyz`` returns status 200."""
    allowed: Mapping[str, str] = {}
    """Entries of ``allowed.map``: the backends and rejected models for each restricted key (see
    ``limits.allowed_entries``)."""
    verification: tuple[VerificationKey, ...] = ()
    """Public keys that verify tokens."""

    def maps(self, settings: Settings) -> dict[str, dict[str, str]]:
        """Return the entries of each map that ``settings`` require, by file name."""
        maps = {
            haproxy_maps.MODELS_MAP: dict(self.table.models),
            "labels.map": {
                name: text for name, b in self.table.backends.items() if (text := label_text(b.route.labels))
            },
            **targets.maps(self.table),
            **rewrite.maps(self.table),
            haproxy_maps.LACKS_MAP: haproxy_maps.lacks_map(self.table),
            HOLD_MAP: {name: "1" for name, backend in self.table.backends.items() if not backend.endpoints},
            "wake.map": {name: text for name, b in self.table.backends.items() if (text := _wake_text(b.route))},
            UNREADY: unready_reasons(self.table),
            REFUSED: dict(self.table.refused),
            haproxy_maps.RINGS_MAP: balancing.rings(self.table),
            "state.map": ({"ready": "1"} if self.ready else {}) | ({jwt.KEYS_KNOWN: "1"} if self.verification else {}),
        }
        maps[haproxy_maps.SPECIAL_MAP] = haproxy_maps.special_models(maps)
        if settings.api_keys_secret:
            maps |= {"keys.map": dict(self.keys), **limits.maps(self.rights, self.allowed)}
            maps |= jwt.maps(settings, self.rights, self.verification)
        return maps


def render_files(settings: Settings, state: DesiredState) -> dict[str, str]:
    """Return the text of each file that HAProxy reads, by the path below the shared directory."""
    lua = resources.files(__package__) / "lua"
    return (
        {f"lua/{name}": (lua / folder / name).read_text() for folder, names in LUA_FILES.items() for name in names}
        | {
            f"errors/{error.status}.http": errors.error_file(error, settings.max_body_bytes)
            for error in errors.BY_STATUS
            if error.status not in errors.OF_REQUESTS
        }
        | {
            "lua/failures.lua": errors.lua_module(settings.max_body_bytes),
            "lua/reason_maps.lua": _reason_maps_lua(settings.run_directory),
            "lua/known.lua": _known_lua(settings),
        }
        | {name: haproxy_maps.map_text(entries) for name, entries in state.maps(settings).items()}
        | {key.file: key.certificate for key in state.verification}
        | {
            haproxy_maps.PATHS_MAP: haproxy_maps.paths_map(),
            haproxy_maps.PLAIN_MAP: haproxy_maps.plain_map(),
            **tokens.maps(),
            "haproxy.cfg": configuration(settings, state.table, state.verification),
        }
    )


def _known_lua(settings: Settings) -> str:
    """Return the source of a Lua module with the served paths, and the file names of the maps of models and of
    restricted keys."""
    run = settings.run_directory
    restricted = f'"{run}/restricted.map"' if settings.api_keys_secret else "nil"
    quoted_paths = ", ".join(f'"{path}"' for path in (*(one.path for one in paths.PATHS), paths.SESSION, "/v1/models"))
    return f'return {{models = "{run}/models.map", restricted = {restricted}, paths = {{{quoted_paths}}}}}\n'


def _reason_maps_lua(run: str) -> str:
    """Return the source of a Lua module with the file names of the maps ``UNREADY`` and ``REFUSED``."""
    return f'return {{unready = "{run}/{UNREADY}", refused = "{run}/{REFUSED}"}}\n'
