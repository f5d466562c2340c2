"""Delivered models: models that are added to workloads of other owners, and the means. Pure."""

from __future__ import annotations

from typing import Literal

import msgspec

from slipway.kube.objects import Object
from slipway.serving.contract.delivery import Blocked


class DeliveredModel(msgspec.Struct, frozen=True, kw_only=True):
    """A model that can be delivered."""

    name: str
    """Of its folder in the pods."""
    repository: str
    digest: str
    image: str
    """Digest of the same files as an ordinary image; empty: there is none."""
    size: int
    """Bytes."""
    family: str


class Choices(msgspec.Struct, frozen=True, kw_only=True):
    """The operator's settings, and the API's, for all workloads."""

    folder: str
    """Where containers find their models, each in a folder of its name."""
    label: str
    """Of claims and Jobs that are made for deliveries."""
    prefix: str
    """Beginning of the names of claims, volumes and Secrets that are made for deliveries."""
    registry: str
    """``host:port`` by which pods reach it."""
    ca: str = ""
    """PEM text of the authority that it has its certificate from; empty: a public one."""
    access_mode: Literal["ReadWriteMany", "ReadWriteOnce"] = "ReadWriteMany"
    storage_class_name: str = ""
    """Empty: the cluster's default."""
    run_as_user: int = 65532
    """Who fills claims."""
    node_registry: str = ""
    """``host:port`` by which nodes reach the registry; empty: they do not."""
    key: bytes = b""
    """Shared with the depot."""


class Means(msgspec.Struct, frozen=True, kw_only=True):
    """How models get into pods."""

    mode: str = ""
    reason: str = ""
    registry: str = ""
    """By which they are named."""
    mounts: tuple[Object, ...] = ()
    volumes: tuple[Object, ...] = ()
    pull_secrets: tuple[Object, ...] = ()
    claims: tuple[Object, ...] = ()
    jobs: tuple[Object, ...] = ()
    finished_jobs: tuple[Object, ...] = ()
    secrets: tuple[Object, ...] = ()
    blocked: Blocked | None = None
    """Why they are not there yet."""
    recheck_seconds: float | None = None
