"""The loader: a sidecar that manages the adapters of an engine. Only the controller can query and command it. Pure."""

from __future__ import annotations

from fractions import Fraction

import msgspec

from slipway.kube.objects import Object
from slipway.kube.values.quantity import amount
from slipway.serving.containers import volumes
from slipway.serving.pods.server import Container, Mount, Probe
from slipway.serving.pods.workload import UNPRIVILEGED
from slipway.serving.wire.agent import CONTAINER, CONTROLLER_KEY_VARIABLE, POD_UID_VARIABLE, PORT

ADAPTERS, ADAPTERS_FOLDER = "adapters", "/adapters"
"""Name of the volume for downloaded adapters and their state, and its mount path."""
ADAPTERS_SHARE = Fraction(95, 100)
"""Share of the volume's size limit that adapters may use. The kubelet evicts a pod that exceeds the limit, so the
loader rejects adapters earlier."""
RESTORED = Probe(port=PORT, path="/healthz", period=1, timeout=5, failures=1)
"""Readiness probe that fails immediately while a restarted engine lacks adapters that it had before, so that the engine
gets no requests. A slow response of a loader on a busy node has no effect on the pod."""


def scratch(size: str, volume: str = ADAPTERS) -> Object:
    """Return the volume for downloaded adapters. ``size`` is its size limit as a Kubernetes quantity, and ``volume``
    its name."""
    return volumes.scratch(volume, size)


def build_adapter_loader(
    loader: Container, port: int, size: str, controller_key: str, *, kind: str = "", volume: str = ADAPTERS
) -> Container:
    """Return the container that downloads adapters and makes the engine load them, as the controller requests.

    ``loader`` has the image, credentials and additional arguments, ``port`` is the engine's port, and ``size`` and
    ``volume`` are those of :func:`scratch`. ``kind`` is the engine's kind if its endpoints differ from vLLM's, and
    empty otherwise.
    """
    most, engine = int(amount(size) * ADAPTERS_SHARE), f"http://127.0.0.1:{port}"
    arguments = ("loader", "serve", "--directory", ADAPTERS_FOLDER, "--engine", engine, "--max-bytes", str(most))
    named = ("--engine-kind", kind) if kind else ()
    beside = msgspec.structs.replace(
        loader,
        name=CONTAINER,
        args=(*arguments, *named, *loader.args),
        mounts=(Mount(volume, ADAPTERS_FOLDER), *loader.mounts),
        readiness=RESTORED,
        security=UNPRIVILEGED,
    )
    return with_controller_key(beside, controller_key)


def with_controller_key(container: Container, controller_key: str) -> Container:
    """Return a loader's container with two environment variables: the controller's public key, and the UID of the pod,
    which is part of each signed request. They replace environment variables of the same names."""
    ours: tuple[Object, ...] = (
        {"name": CONTROLLER_KEY_VARIABLE, "value": controller_key},
        {"name": POD_UID_VARIABLE, "valueFrom": {"fieldRef": {"fieldPath": "metadata.uid"}}},
    )
    names = {variable["name"] for variable in ours}
    others = (variable for variable in container.env if variable["name"] not in names)
    return msgspec.structs.replace(container, env=(*others, *ours))
