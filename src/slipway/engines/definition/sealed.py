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
    """Settings with which an engine rejects requests without a key or without TLS."""

    flags: tuple[str, ...] = ()
    variables: tuple[str, ...] = ()
    """Variables with which it rejects requests without a key or without TLS, unless they are empty."""
    clearable: tuple[str, ...] = ()
    """Those of ``variables`` that every version treats as unset if they are empty."""
    clearable_today: tuple[str, ...] = ()
    """Those of ``variables`` that the version in the default images treats as unset if they are empty."""


def seals_in(
    container: Object,
    words: Sequence[str],
    assigned: Sequence[str],
    seals: Seals,
    *,
    abbreviated: bool,
    any_case: frozenset[str],
) -> tuple[str, ...]:
    """Returns the flags and variables that seal the engine of a container. ``words``: its command line; ``assigned``:
    variables set there, by scripts or ``env``; ``any_case``: variables that the engine accepts in any case."""
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
    """Returns empty variables for a container that takes variables from Secrets or ConfigMaps: their content is not
    known, and the container's own variables take precedence."""
    env_names = {str(one.get("name")) for one in env}
    return tuple({"name": name, "value": ""} for name in names if name not in env_names) if env_from else ()


def _entries(value: object) -> list[Object]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list | tuple) else []
