"""Env: merges environment variables from several sources. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from slipway.kube.objects import Object


def without(own: Iterable[Object], given: Iterable[Object]) -> tuple[Object, ...]:
    """Returns those of our ``own`` variables whose names the user has not ``given``; the user's values take
    precedence."""
    taken = {variable["name"] for variable in given}
    return tuple(variable for variable in own if variable["name"] not in taken)
