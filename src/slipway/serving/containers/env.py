"""Merging of environment variables from several sources. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from slipway.kube.objects import Object


def without(own: Iterable[Object], overrides: Iterable[Object]) -> tuple[Object, ...]:
    """Return the environment variables in ``own``, except those that ``overrides``, the user's environment variables,
    also set."""
    names = {variable["name"] for variable in overrides}
    return tuple(variable for variable in own if variable["name"] not in names)
