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
    """Return the map with the IDs of special models, whose requests need more rules than those of ordinary models.

    A special model has targets, paths that its engine does not serve, prefix hashing, or another name at its engine.
    """
    backends = {name for file in (targets.TARGETS_MAP, LACKS_MAP, RINGS_MAP) for name in maps[file]}
    names = maps[rewrite.NAMES_MAP]
    return {model: "1" for model, backend in maps[MODELS_MAP].items() if backend in backends or model in names}


def paths_map() -> str:
    """Return the text of the map from paths whose request body contains a model to the path's number."""
    return _lines(f"{one.path} {paths.BITS[one.path]}" for one in paths.PATHS)


def plain_map() -> str:
    """Return the text of the map with one entry: the regular expression that matches unambiguous small bodies, and the
    reference to its group with the model's name."""
    pattern = PLAIN_BODY.replace(" ", r"\x20")  # a space ends the key of a map
    return _lines([f"{pattern} \\{NAME_GROUP}"])


def lacks_map(table: RoutingTable) -> dict[str, str]:
    """Return a bit mask of the paths that a backend's engine does not serve, by backend name. Omit backends whose
    engines serve all paths, or whose routes declare no paths."""
    lacking = {name: paths.unknown(backend.route.paths) for name, backend in table.backends.items()}
    return {name: str(bits) for name, bits in lacking.items() if bits}


def map_text(entries: dict[str, str]) -> str:
    """Return the text of a map file, with one sorted line ``key value`` per entry."""
    return _lines(f"{key} {value}" for key, value in sorted(entries.items()))


def _lines(lines: Iterable[str]) -> str:
    return "".join(f"{line}\n" for line in lines)
