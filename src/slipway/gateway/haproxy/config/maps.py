"""HAProxy's maps: their names and entries. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from slipway.gateway.haproxy.config.plain_body import NAME_GROUP, PLAIN_BODY
from slipway.gateway.routing.table import RoutingTable
from slipway.gateway.rules import rewrite, targets
from slipway.serving.routing import paths

PATHS_MAP, LACKS_MAP = "paths.map", "lacks.map"
PLAIN_MAP, SPECIAL_MAP = "plain.map", "special.map"
MODELS_MAP, RINGS_MAP = "models.map", "rings.map"


def special_models(maps: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    """Returns the IDs of models that need more rules, as a map.

    They have several targets, paths that their engine does not serve, prefix hashing, or another name at their engine.
    """
    backends = {name for file in (targets.TARGETS_MAP, LACKS_MAP, RINGS_MAP) for name in maps[file]}
    names = maps[rewrite.NAMES_MAP]
    return {model: "1" for model, backend in maps[MODELS_MAP].items() if backend in backends or model in names}


def paths_map() -> str:
    """Returns the map with the number of each path whose requests have a body with a model."""
    return _lines(f"{one.path} {paths.BITS[one.path]}" for one in paths.PATHS)


def plain_map() -> str:
    """Returns the map with the regular expression that matches unambiguous small bodies, and the group of the model's
    name."""
    pattern = PLAIN_BODY.replace(" ", r"\x20")  # a space ends the key of a map
    return _lines([f"{pattern} \\{NAME_GROUP}"])


def lacks_map(table: RoutingTable) -> dict[str, str]:
    """Returns the paths that a backend's engine does not serve, as bits, for each route that declares its paths."""
    lacking = {name: paths.unknown(backend.route.paths) for name, backend in table.backends.items()}
    return {name: str(bits) for name, bits in lacking.items() if bits}


def map_text(entries: dict[str, str]) -> str:
    """Returns the text of a map file: lines of ``key value``, sorted."""
    return _lines(f"{key} {value}" for key, value in sorted(entries.items()))


def _lines(lines: Iterable[str]) -> str:
    return "".join(f"{line}\n" for line in lines)
