"""The repository of each model's artifact in the registry. Pure."""

from __future__ import annotations

from slipway.kube.values.names import fitting

PREFIXES = ("namespaced/", "cluster/")
"""Prefixes of the repositories of all models."""
LONGEST_NAME = 128
"""Maximum length of a model's name in a repository. A registry allows 255 characters for the whole repository."""


def repository(namespace: str, name: str, uid: str) -> str:
    """Return the repository ``namespaced/<namespace>/<name>/<uid>``, or ``cluster/<name>/<uid>`` for a cluster-scoped
    model. A name that is longer than ``LONGEST_NAME`` is cut and ends in a digest."""
    short = name if len(name) <= LONGEST_NAME else fitting(name, LONGEST_NAME)
    return f"namespaced/{namespace}/{short}/{uid}" if namespace else f"cluster/{short}/{uid}"
