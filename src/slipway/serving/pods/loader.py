"""Loader: a container that only the controller can query and command, as a sidecar of an engine whose adapters it
manages. Pure."""

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
"""The volume for downloaded adapters and their state, and its mount path."""
ADAPTERS_SHARE = Fraction(95, 100)
"""Share of the volume's limit that adapters may use. The kubelet evicts a pod that exceeds the limit; the loader just
refuses earlier."""
RESTORED = Probe(port=PORT, path="/healthz", period=1, timeout=5, failures=1)
"""Fails immediately if a restarted engine lacks adapters that it had, so that it gets no requests until it has them
again. A loader that is slow to answer on a busy node has no effect on the pod."""


def scratch(size: str, volume: str = ADAPTERS) -> Object:
    """Returns the volume for downloaded adapters. ``size``: a quantity."""
    return volumes.scratch(volume, size)


def build_adapter_loader(
    loader: Container, port: int, size: str, controller_key: str, *, kind: str = "", volume: str = ADAPTERS
) -> Container:
    """Returns the container that downloads adapters and makes the engine load them, as the controller requests.

    ``loader``: its image, credentials and further arguments; ``port``: the engine's port; ``size``: the volume's size;
    ``kind``: the engine's kind, if its endpoints differ from vLLM's.
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
    """Returns a loader's container with the controller's public key and its pod's uid, which is part of each signed
    request. Variables of a user cannot replace them."""
    ours: tuple[Object, ...] = (
        {"name": CONTROLLER_KEY_VARIABLE, "value": controller_key},
        {"name": POD_UID_VARIABLE, "valueFrom": {"fieldRef": {"fieldPath": "metadata.uid"}}},
    )
    names = {variable["name"] for variable in ours}
    others = (variable for variable in container.env if variable["name"] not in names)
    return msgspec.structs.replace(container, env=(*others, *ours))
