"""Sealed engines: engines that reject the gateway's requests, because they require their own key or TLS. Pure.

The gateway removes credentials from every request and sends plain HTTP to engines. An engine that requires a key passes
its probes, which need no key, and answers 401 to every request.
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
    """Environment variables with which, unless they are empty, the engine rejects requests without a key or TLS."""
    clearable: tuple[str, ...] = ()
    """The part of ``variables`` that every version of the engine treats as unset if they are empty."""
    clearable_today: tuple[str, ...] = ()
    """The part of ``variables`` that the version in the default images treats as unset if they are empty."""


def seals_in(
    container: Object,
    words: Sequence[str],
    assigned: Sequence[str],
    seals: Seals,
    *,
    abbreviated: bool,
    any_case: frozenset[str],
) -> tuple[str, ...]:
    """Return the flags and environment variables with which a container's engine rejects the gateway's requests. An
    environment variable counts unless its value is known to be empty.

    ``words``: the command line of the container; ``assigned``: environment variables that a script or ``env`` in the
    command line sets; ``any_case``: environment variables that the engine accepts in any case.
    """
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
    """Return the environment variables in ``names``, except those in ``env``, with empty values. They take precedence
    over ``env_from``, so that Secrets and ConfigMaps, whose content is unknown, cannot set these variables. Return an
    empty tuple if the container has no ``env_from``."""
    env_names = {str(one.get("name")) for one in env}
    return tuple({"name": name, "value": ""} for name in names if name not in env_names) if env_from else ()


def _entries(value: object) -> list[Object]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list | tuple) else []
