"""Merging of environment variables from several sources. All functions are pure."""

from __future__ import annotations

from collections.abc import Iterable

from slipway.kube.objects import Object


def without(own: Iterable[Object], overrides: Iterable[Object]) -> tuple[Object, ...]:
    """Return the variables of ``own`` whose names are not in ``overrides``, the variables that the user sets."""
    names = {variable["name"] for variable in overrides}
    return tuple(variable for variable in own if variable["name"] not in names)
