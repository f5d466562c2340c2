"""Delivered models: models that are added to workloads of other owners, and how. Pure."""

from __future__ import annotations

from typing import Literal

import msgspec

from slipway.kube.objects import Object
from slipway.serving.contract.delivery import Blocked


class DeliveredModel(msgspec.Struct, frozen=True, kw_only=True):
    """A model that can be delivered."""

    name: str
    """Name of its directory in the pods."""
    repository: str
    digest: str
    image: str
    """Digest of the same files as an ordinary image; empty if there is none."""
    size: int
    """Size in bytes."""
    family: str


class Choices(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of the operator and the API that apply to all workloads."""

    folder: str
    """Directory of models in containers, with a subdirectory for each."""
    label: str
    """Label of the claims and Jobs created for deliveries."""
    prefix: str
    """Prefix of the names of claims, volumes and Secrets created for deliveries."""
    registry: str
    """``host:port`` of the registry for pods."""
    ca: str = ""
    """CA certificate of the registry in PEM format; empty: a public CA."""
    access_mode: Literal["ReadWriteMany", "ReadWriteOnce"] = "ReadWriteMany"
    storage_class_name: str = ""
    """Empty: the cluster's default."""
    run_as_user: int = 65532
    """User that fills claims."""
    node_registry: str = ""
    """``host:port`` of the registry for nodes; empty: nodes cannot reach it."""
    key: bytes = b""
    """Key shared with the depot."""


class DeliveryMethod(msgspec.Struct, frozen=True, kw_only=True):
    """How models get into pods."""

    mode: str = ""
    reason: str = ""
    registry: str = ""
    """Registry in the models' image names."""
    mounts: tuple[Object, ...] = ()
    volumes: tuple[Object, ...] = ()
    pull_secrets: tuple[Object, ...] = ()
    claims: tuple[Object, ...] = ()
    jobs: tuple[Object, ...] = ()
    finished_jobs: tuple[Object, ...] = ()
    secrets: tuple[Object, ...] = ()
    blocked: Blocked | None = None
    """Why the models are not available yet."""
    recheck_seconds: float | None = None
