"""Image volumes: models that the kubelet mounts as container images, if all nodes support this. Pure."""

from __future__ import annotations

import hashlib
import json
import re
from base64 import b64encode
from collections.abc import Sequence

from slipway.kube.objects import NAMESPACE, NODE, SECRET, Key, Object, key, metadata_of, uid
from slipway.serving.containers import volumes
from slipway.serving.contract.api import Watch
from slipway.serving.contract.delivery import Blocked, DeliveryWorld, NotDeliverableError, template_of
from slipway.serving.contract.watches import enqueue_nothing
from slipway.serving.pods.workload import child
from slipway.serving.wire.depot_token import KEY_BYTES, Claim, sign
from slipway.weights.delivery.delivered import Choices, DeliveredModel, DeliveryMethod

UNAVAILABLE = "ImageVolumeUnavailable"
KUBELET = (1, 33)
RUNTIMES = {"containerd": (2, 1), "cri-o": (1, 31)}
"""Container runtime -> first version that can mount images."""
RENEWAL, LIFE = 24 * 3600, 7 * 24 * 3600
"""Seconds after which a pull token is renewed, and its lifetime."""
UNKNOWN_SECONDS = 5.0
VERSION = re.compile(r"v?(\d+)\.(\d+)")


def plan_delivery(world: DeliveryWorld, choices: Choices, models: Sequence[DeliveredModel]) -> DeliveryMethod:
    """Return the volumes, the mounts and the pull Secret that deliver these models as images, or the reason for a wait
    if the workload's namespace is not in the cache yet. Raise NotDeliverableError if a model has no image, if a node
    that the workload's nodeSelector selects cannot mount images, or if a setting is missing."""
    if not choices.node_registry:
        raise NotDeliverableError(UNAVAILABLE, "No registry that nodes can reach is configured.")
    if len(choices.key) != KEY_BYTES:
        raise NotDeliverableError(UNAVAILABLE, "The controller does not have the key that it shares with the depot.")
    without = next((one.name for one in models if not one.image), None)
    if without is not None:
        raise NotDeliverableError(
            UNAVAILABLE, f"The model {without} was published without an image: delete it and create it again."
        )
    selector = template_of(world.kind, world.workload)["spec"].get("nodeSelector") or {}
    for node in world.listers.list(NODE):
        if selector.items() <= (node["metadata"].get("labels") or {}).items() and (why := _unable(node)):
            raise NotDeliverableError(UNAVAILABLE, why)
    named = {one.name: f"{choices.prefix}image-{hashlib.sha256(one.name.encode()).hexdigest()[:8]}" for one in models}
    space = world.listers.get(NAMESPACES.kind, Key("", key(world.workload).namespace))
    if space is None:  # the cache lags behind
        text = "The controller does not know the namespace yet."
        return DeliveryMethod(blocked=Blocked(UNAVAILABLE, text, waiting=True), recheck_seconds=UNKNOWN_SECONDS)
    images = {one.name: f"{choices.node_registry}/{one.repository}@{one.image}" for one in models}
    expires = _expires(world)
    secret = _pull_secret(world, choices, Claim(use="pull", namespace=key(space).name, uid=uid(space), expires=expires))
    return DeliveryMethod(
        mode="ImageVolume",
        reason="ImageVolume",
        registry=choices.node_registry,
        volumes=tuple(volumes.image(named[one.name], images[one.name]) for one in models),
        mounts=tuple(
            {"name": named[one.name], "mountPath": f"{choices.folder}/{one.name}", "readOnly": True} for one in models
        ),
        pull_secrets=({"name": key(secret).name},),
        secrets=(secret,),
        recheck_seconds=max(expires - LIFE + RENEWAL - world.now, 1.0),
    )


def _unable(node: Object) -> str:
    """Return the reason why a node cannot mount images, or an empty string if it can."""
    node_info, name = node["status"]["nodeInfo"], key(node).name
    runtime, _unused, version = str(node_info.get("containerRuntimeVersion", "")).partition("://")
    if _version(node_info.get("kubeletVersion", "")) < KUBELET:
        return f"The kubelet of node {name} is of version {node_info.get('kubeletVersion')}; image volumes need 1.33."
    if _version(version) < RUNTIMES.get(runtime, (999, 0)):
        return f"Node {name} runs {runtime} {version}; image volumes need containerd 2.1 or CRI-O 1.31."
    return ""


def _version(text: str) -> tuple[int, int]:
    match = VERSION.match(text)
    return (int(match[1]), int(match[2])) if match else (0, 0)


def _expires(world: DeliveryWorld) -> int:
    """Return the Unix time at which the token in a workload's pull Secret expires. The time changes only when the token
    is renewed, which happens at a different time for each workload."""
    offset = int(hashlib.sha256(uid(world.workload).encode()).hexdigest(), 16) % RENEWAL
    return (int(world.now) - offset) // RENEWAL * RENEWAL + offset + LIFE


def _pull_secret(world: DeliveryWorld, choices: Choices, claim: Claim) -> Object:
    """Return the Secret with which the kubelet pulls images from the registry. The Secret has only the permissions of
    the pods in the workload's namespace."""
    namespace, password = claim.namespace, sign(choices.key, claim)
    login = {"username": "slipway", "password": password, "auth": _text(f"slipway:{password}".encode())}
    config = json.dumps({"auths": {choices.node_registry: login}}).encode()
    name = f"{choices.prefix}pull-{hashlib.sha256(uid(world.workload).encode()).hexdigest()[:12]}"
    data = {".dockerconfigjson": _text(config)}
    return {**child(SECRET, name, namespace, {}, data=data), "type": "kubernetes.io/dockerconfigjson"}


def _text(raw: bytes) -> str:
    return b64encode(raw).decode()


def _node(node: Object) -> Object:
    """Return a node with only the fields that this module reads."""
    metadata = {field: node["metadata"].get(field) for field in ("name", "uid", "resourceVersion", "labels")}
    node_info = (node.get("status") or {}).get("nodeInfo") or {}
    fields = {field: str(node_info.get(field, "")) for field in ("kubeletVersion", "containerRuntimeVersion")}
    return {"kind": NODE.kind, "metadata": metadata, "status": {"nodeInfo": fields}}


NAMESPACES = Watch(kind=metadata_of(NAMESPACE), enqueue=enqueue_nothing)
"""Watch of namespaces, which an API requires if it delivers models as images."""
NODES = Watch(kind=NODE, enqueue=enqueue_nothing, trim=_node)
"""Watch of nodes, which an API requires if it delivers models as images."""
