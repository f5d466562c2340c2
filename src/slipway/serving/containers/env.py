"""Env: which variables a container gets where several have a say. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from slipway.kube.objects import Object


def without(own: Iterable[Object], given: Iterable[Object]) -> tuple[Object, ...]:
    """Those of our ``own`` variables that the user has not ``given``: of one name only the user's counts."""
    taken = {variable["name"] for variable in given}
    return tuple(variable for variable in own if variable["name"] not in taken)
