"""Repositories of the registry: the repository of each model's artifact. Pure."""

from __future__ import annotations

from slipway.kube.values.names import fitting

PREFIXES = ("namespaced/", "cluster/")
"""Of the repositories of all models."""
LONGEST_NAME = 128
"""Characters of a model's name: a registry takes 255 in all."""


def repository(namespace: str, name: str, uid: str) -> str:
    """``namespaced/<namespace>/<name>/<uid>``, or ``cluster/<name>/<uid>`` for a model without a namespace. A name that
    is too long ends in a digest of it."""
    short = name if len(name) <= LONGEST_NAME else fitting(name, LONGEST_NAME)
    return f"namespaced/{namespace}/{short}/{uid}" if namespace else f"cluster/{short}/{uid}"
