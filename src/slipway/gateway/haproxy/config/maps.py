"""The maps that HAProxy reads: names and entries. Pure."""

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
    """IDs of models that need more rules: for several targets, paths that an engine lacks, prefixes or another name."""
    backends = {name for file in (targets.TARGETS_MAP, LACKS_MAP, RINGS_MAP) for name in maps[file]}
    names = maps[rewrite.NAMES_MAP]
    return {model: "1" for model, backend in maps[MODELS_MAP].items() if backend in backends or model in names}


def paths_map() -> str:
    """Map of the paths that take a body with a model, and the number of each."""
    return _lines(f"{one.path} {paths.BITS[one.path]}" for one in paths.PATHS)


def plain_map() -> str:
    """Map of the one form of small bodies that is beyond doubt, and the place of the model's name in it."""
    pattern = PLAIN_BODY.replace(" ", r"\x20")  # a space ends the key of a map
    return _lines([f"{pattern} \\{NAME_GROUP}"])


def lacks_map(table: RoutingTable) -> dict[str, str]:
    """By backend whose route says what its engine serves: the set of the paths that it does not."""
    lacking = {name: paths.unknown(backend.route.paths) for name, backend in table.backends.items()}
    return {name: str(bits) for name, bits in lacking.items() if bits}


def map_text(entries: dict[str, str]) -> str:
    """A map file: one ``key value`` a line, sorted."""
    return _lines(f"{key} {value}" for key, value in sorted(entries.items()))


def _lines(lines: Iterable[str]) -> str:
    return "".join(f"{line}\n" for line in lines)
