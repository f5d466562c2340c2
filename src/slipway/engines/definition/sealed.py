"""Sealed engines: engines that reject the gateway's requests, because they require their own key or TLS. Pure.

The gateway removes credentials from every request and sends plain HTTP to engines. Such an engine passes its probes,
which need no key, and answers 401 to every request.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from slipway.engines.definition.flags import names_flag
from slipway.kube.objects import Object


class Seals(msgspec.Struct, frozen=True, kw_only=True):
    """Which settings make an engine refuse requests without a key, or without TLS."""

    flags: tuple[str, ...] = ()
    variables: tuple[str, ...] = ()
    """With an empty value they seal nothing."""
    clearable: tuple[str, ...] = ()
    """Those of the variables that every version takes for absent if they are empty."""
    clearable_today: tuple[str, ...] = ()
    """The same of the version in the default images."""


def seals_in(
    container: Object,
    words: Sequence[str],
    assigned: Sequence[str],
    seals: Seals,
    *,
    abbreviated: bool,
    any_case: frozenset[str],
) -> tuple[str, ...]:
    """The flags and variables that seal the engine of a container. ``words``: of its command line; ``assigned``:
    variables that this sets, as scripts and ``env`` do; ``any_case``: variables that the engine reads in any case."""
    spelled = (word.partition("=")[0] for word in words)
    flags = (one for one in spelled if any(names_flag(one, flag, abbreviated=abbreviated) for flag in seals.flags))
    variables = [str(one.get("name")) for one in _entries(container.get("env")) if one.get("value") != ""]
    sealing = (
        name
        for name in (*variables, *assigned)
        if (name.upper() if name.upper() in any_case else name) in seals.variables
    )
    return tuple(dict.fromkeys((*flags, *sealing)))


def cleared(env: Iterable[Object], env_from: Sequence[Object], names: Sequence[str]) -> tuple[Object, ...]:
    """Empty variables for a container that takes variables from Secrets or ConfigMaps: what is in those is not known,
    and a variable of the container takes precedence."""
    given = {str(one.get("name")) for one in env}
    return tuple({"name": name, "value": ""} for name in names if name not in given) if env_from else ()


def _entries(given: object) -> list[Object]:
    return [one for one in given if isinstance(one, dict)] if isinstance(given, list | tuple) else []
