"""What the page is shown in tests: resources and Services as users' manifests and the controller leave them."""

from __future__ import annotations

import json
from typing import Any

from slipway.gateway.routing.table import RoutingTable, build
from slipway.gateway.ui import resources
from slipway.gateway.ui.overview import Cluster
from slipway.kube.objects import Kind, Object

KUBEAI = Kind("kubeai.org", "v1", "Model", "models")
KRYPTON = Kind("krypton.ai", "v1alpha1", "Model", "models")
LLMKUBE = Kind("inference.llmkube.dev", "v1alpha1", "InferenceService", "inferenceservices")
OME = Kind("ome.io", "v1beta1", "InferenceService", "inferenceservices")
CREATED = "2026-11-02T09:00:00Z"
SCALE = {"group": "kubeai.org", "version": "v1", "plural": "models"}
CHAT = ["TextGeneration"]


class World:
    """Declared models, and Services that belong to them."""

    def __init__(self) -> None:
        self.resources: list[tuple[Kind, Object]] = []
        self.services: list[Object] = []
        self.slices: list[Object] = []
        self.owners: dict[str, str] = {}

    def declare(
        self,
        kind: Kind,
        namespace: str,
        name: str,
        *conditions: tuple[str, str, str, str],
        replicas: int | None = None,
        leaving: bool = False,
    ) -> str:
        """Adds a resource; returns its uid. Conditions: type, status, reason, message."""
        metadata = {
            "namespace": namespace,
            "name": name,
            "uid": f"{kind.group}/{namespace}/{name}",
            "creationTimestamp": CREATED,
        }
        obj: Object = {"metadata": metadata, "status": {"conditions": conditions_of(*conditions)}}
        if replicas is not None:
            obj["spec"] = {"replicas": replicas}
        if leaving:
            metadata["deletionTimestamp"] = CREATED
        self.resources.append((kind, obj))
        return str(metadata["uid"])

    def serve(self, namespace: str, service: str, owner: str = "", *, pods: int = 1, **route: Any) -> None:
        """Adds a Service with this route, and its endpoints."""
        metadata = {
            "namespace": namespace,
            "name": service,
            "uid": f"{namespace}/{service}",
            "resourceVersion": "1",
            "creationTimestamp": CREATED,
        }
        annotations = {"slipway.inference/route": json.dumps(route)}
        self.services.append(
            {"metadata": {**metadata, "annotations": annotations}, "spec": {"ports": [{"name": "http"}]}}
        )
        target = {"kind": "Pod", "namespace": namespace}
        self.slices.append(
            {
                "metadata": {
                    **metadata,
                    "uid": f"{namespace}/{service}-1",
                    "labels": {"kubernetes.io/service-name": service},
                },
                "addressType": "IPv4",
                "ports": [{"name": "http", "port": 8000}],
                "endpoints": [
                    {"addresses": [f"10.0.{len(self.services) % 250}.{place + 1}"], "targetRef": target}
                    for place in range(pods)
                ],
            }
        )
        if owner:
            self.owners[f"{namespace}:{service}"] = owner

    def shown(self, **others: Any) -> tuple[Cluster, RoutingTable]:
        """What the page is given of it."""
        table, faults = build(self.services, self.slices)
        read = [resources.parse_resource(kind, resources.trim(obj)) for kind, obj in self.resources]
        return Cluster(read, dict(self.owners), faults, **others), table


def conditions_of(*rows: tuple[str, str, str, str]) -> list[Object]:
    """Conditions as a status has them. Rows: type, status, reason, message."""
    return [dict(zip(("type", "status", "reason", "message"), one, strict=True)) for one in rows]


def summary(
    ready: tuple[str, str, str], reconciling: bool = False, stalled: bool = False
) -> tuple[tuple[str, str, str, str], ...]:
    """The three conditions that sum a status up, with one reason and message."""
    status, reason, message = ready
    usual = ("AsExpected", "Nothing is wrong.")
    return (
        ("Ready", status, reason, message),
        ("Reconciling", "True" if reconciling else "False", *((reason, message) if reconciling else usual)),
        ("Stalled", "True" if stalled else "False", *((reason, message) if stalled else usual)),
    )


ROUTED = ("Routed", "True", "Routed", "Requests reach it.")
READY = summary(("True", "Ready", "1 of 1 replicas answers."))


def every_state() -> World:
    """A model in each of the states, of several APIs."""
    world = World()
    source = "hf:Qwen/Qwen2.5-0.5B-Instruct-GGUF/qwen2.5-0.5b-instruct-q4_k_m.gguf"
    uid = world.declare(KRYPTON, "default", "tiny", *READY, replicas=2)
    world.serve("default", "tiny", uid, pods=2, features=CHAT, source=source)
    uid = world.declare(
        KUBEAI,
        "default",
        "tiny-from-zero",
        *summary(("True", "Ready", "Scaled to zero replicas. The next request starts one.")),
        replicas=0,
    )
    world.serve(
        "default",
        "model-tiny-from-zero",
        uid,
        pods=0,
        name="tiny-from-zero",
        models=["tiny-from-zero"],
        features=CHAT,
        scale={**SCALE, "name": "tiny-from-zero"},
    )
    uid = world.declare(KUBEAI, "search", "embedder", *READY, replicas=1)
    world.serve("search", "model-embedder", uid, name="embedder", models=["embedder"], features=["TextEmbedding"])
    uid = world.declare(
        OME,
        "research",
        "llama-70b",
        *summary(
            ("False", "Unschedulable", "0/4 nodes are available: 4 Insufficient nvidia.com/gpu."), reconciling=True
        ),
        replicas=1,
    )
    world.serve("research", "llama-70b", uid, pods=0, features=CHAT)
    text = (
        "image: 'ghcr.io/example/vllm:0.99' cannot be pulled: not found. Check the name, the tag and imagePullSecrets."
    )
    uid = world.declare(
        LLMKUBE,
        "research",
        "mistral",
        *summary(("False", "ImagePullBackOff", text), stalled=True),
        ("Available", "False", "ImagePullBackOff", text),
        ("Progressing", "False", "ImagePullBackOff", text),
        replicas=1,
    )
    world.serve("research", "mistral", uid, pods=0, features=CHAT)
    uid = world.declare(
        KUBEAI,
        "support",
        "helper",
        *summary(
            ("True", "OutOfGpuMemory", "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."),
            stalled=True,
        ),
        replicas=3,
    )
    world.serve("support", "model-helper", uid, pods=3, name="helper", models=["helper", "support-bot"], features=CHAT)
    uid = world.declare(
        KRYPTON,
        "support",
        "summarizer",
        *summary(("True", "RollingOut", "1 of 2 replicas has the newest spec."), reconciling=True),
        replicas=2,
    )
    world.serve("support", "summarizer", uid, pods=2, features=CHAT)
    uid = world.declare(KRYPTON, "team-b", "tiny", *READY, replicas=1)
    world.serve("team-b", "tiny", uid, models=["tiny"], features=CHAT)
    lost = ("Routed", "False", "NotRouted", "The gateway does not take the route: Object contains unknown strategy.")
    uid = world.declare(LLMKUBE, "sandbox", "draft", *READY, lost, replicas=1)
    world.serve("sandbox", "draft", uid, strategy="Fastest", features=CHAT)
    uid = world.declare(LLMKUBE, "sandbox", "old", *summary(("True", "Suspended", "It is suspended.")), replicas=0)
    world.serve("sandbox", "old", uid, pods=0, features=CHAT)
    world.declare(KUBEAI, "sandbox", "new")
    world.declare(KUBEAI, "sandbox", "gone", *READY, leaving=True)
    world.serve("legacy", "by-hand", features=["SpeechToText"])
    return world


def many(number: int) -> World:
    """So many models, one in fifty of which has failed."""
    world = World()
    for place in range(number):
        name = f"model-{place:04}"
        text = (
            "The engine ended with exit code 1 after 4 restarts. Its last words: ValueError: unsupported architecture"
        )
        bad = summary(("False", "CrashLoopBackOff", text), stalled=True)
        uid = world.declare(KUBEAI, f"team-{place % 40:02}", name, *(READY if place % 50 else bad), replicas=1)
        world.serve(
            f"team-{place % 40:02}",
            name,
            uid,
            pods=1 if place % 50 else 0,
            features=CHAT,
            source="hf:org/repository/file.gguf",
        )
    return world
