"""The models that are added to workloads of other owners, and the objects that deliver them. Pure."""

from __future__ import annotations

from typing import Literal

import msgspec

from slipway.kube.objects import Object
from slipway.serving.contract.delivery import Blocked


class DeliveredModel(msgspec.Struct, frozen=True, kw_only=True):
    """A model that can be delivered to workloads."""

    name: str
    """Name of the model's directory in the pods."""
    repository: str
    digest: str
    image: str
    """Digest of the container image with the same files; empty: there is none."""
    size: int
    """Size of the model's files in bytes."""
    family: str


class Choices(msgspec.Struct, frozen=True, kw_only=True):
    """Settings for all deliveries, from the operator and the API."""

    folder: str
    """Directory in the containers, with a subdirectory for each model."""
    label: str
    """Name of the label of the claims and Jobs created for deliveries. Its value is ``true``."""
    prefix: str
    """Prefix of the names of claims, volumes and Secrets created for deliveries."""
    registry: str
    """``host:port`` by which pods reach the registry."""
    ca: str = ""
    """CA certificate of the registry in PEM format; empty: a public CA signed the registry's certificate."""
    access_mode: Literal["ReadWriteMany", "ReadWriteOnce"] = "ReadWriteMany"
    storage_class_name: str = ""
    """Storage class of the claims; empty: the cluster's default."""
    run_as_user: int = 65532
    """User ID of the Jobs that fill claims."""
    node_registry: str = ""
    """``host:port`` by which nodes reach the registry; empty: nodes cannot reach it."""
    key: bytes = b""
    """HMAC key that the controller shares with the depot; empty: the controller does not have it."""


class DeliveryMethod(msgspec.Struct, frozen=True, kw_only=True):
    """The way in which models get into the pods of a workload, and the objects for it. The mode, the mounts and the
    volumes are empty while ``blocked`` is set."""

    mode: str = ""
    reason: str = ""
    registry: str = ""
    """``host:port`` of the registry in the names of the models' images."""
    mounts: tuple[Object, ...] = ()
    volumes: tuple[Object, ...] = ()
    pull_secrets: tuple[Object, ...] = ()
    claims: tuple[Object, ...] = ()
    jobs: tuple[Object, ...] = ()
    finished_jobs: tuple[Object, ...] = ()
    """Jobs to delete."""
    secrets: tuple[Object, ...] = ()
    blocked: Blocked | None = None
    """Reason why the models are not available yet; None: they are available."""
    recheck_seconds: float | None = None
    """Seconds after which the method may change even if no object changes; None: only a change of an object affects
    it."""
