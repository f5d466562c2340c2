"""Server: one engine process that serves a model, in words of Kubernetes but of no API and no engine.

An API maps its spec to a Server with the help of an engine; :mod:`slipway.serving.workload` makes the objects.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from slipway.kube.objects import Object


class Cache(msgspec.Struct, frozen=True):
    """A writable place for weights that lives as long as the pod."""

    path: str
    """Mount path, also the engine's home folder."""
    size_limit: str
    """A Kubernetes quantity; a pod that grows over it is evicted."""


class Server(msgspec.Struct, frozen=True, kw_only=True):
    """Everything a pod of this model needs. Its objects all carry ``name`` in ``namespace``."""

    name: str
    namespace: str
    labels: Mapping[str, str]
    """On every object and on the pods."""
    selector: Mapping[str, str]
    """Finds the pods; a subset of the pods' labels that never changes, since a Deployment's selector cannot."""
    container: str
    """Name of the engine's container."""
    image: str
    image_pull_policy: str
    image_pull_secrets: tuple[str, ...]
    args: tuple[str, ...]
    port: int
    health_path: str
    """HTTP path that answers 200 from when the model is loaded."""
    startup_seconds: int
    """How long a container may take until ``health_path`` answers, the download of the weights included."""
    drain_seconds: int
    """How long a pod that is to go keeps answering, while gateways and proxies learn of it and streams end."""
    env: tuple[Object, ...]
    env_from: tuple[Object, ...]
    resources: Object
    cache: Cache
    service_account: str
    """An existing ServiceAccount; empty: one of the model's own, without permissions and without a token."""
    run_as_user: int


class Scale(msgspec.Struct, frozen=True):
    """How many replicas are wanted."""

    replicas: int
