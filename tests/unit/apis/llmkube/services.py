"""An InferenceService over a Model, planned: short words for tests."""

from __future__ import annotations

from typing import Any

import pytest

from slipway.apis.llmkube import SERVICES
from slipway.apis.llmkube.types.model import KIND as MODEL
from slipway.serving.contract.api import InvalidSpecError, Plan, Reference, World
from slipway.serving.contract.settings import Settings
from tests import worlds

SINCE = "2026-11-21T09:00:00Z"
GGUF = {"source": "https://models.example/tiny.gguf"}
HUB = {"source": "acme/tiny@v2", "format": "safetensors"}
NEWEST = {"source": "acme/tiny", "format": "safetensors"}
ONE_GPU = {"resources": {"gpu": 1}}
READY = {"phase": "Ready", "observedGeneration": 1}
VLLM = {"runtime": "vllm", "model": HUB}
RUNTIMES = ("llamacpp", "vllm", "tgi", "personaplex", "generic", "sglang")


def model(name: str, spec: dict[str, Any], status: dict[str, Any] | None = None) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "models", "uid": f"m-{name}", "generation": 1, "creationTimestamp": SINCE}
    return {"kind": "Model", "metadata": metadata, "spec": spec, "status": READY if status is None else status}


def world(*others: dict[str, Any], name: str = "chat", model: dict[str, Any] | None = None, **spec: Any) -> World:
    """A service over the Model ``tiny``; ``others``: further Models, and Models of this name in place of it."""
    metadata = {"name": name, "namespace": "models", "uid": "s-1", "generation": 1, "creationTimestamp": SINCE}
    models = {one["metadata"]["name"]: one for one in (tiny(GGUF if model is None else model), *others)}
    return World(
        resource={"metadata": metadata, "spec": {"modelRef": "tiny"} | spec},
        children={},
        pods=[],
        routed=[],
        settings=Settings(),
        now=1_795_252_000.0,
        listers=worlds.known_world(
            SERVICES, objects={Reference(MODEL, "models", one): resource for one, resource in models.items()}
        ),
    )


def tiny(spec: dict[str, Any]) -> dict[str, Any]:
    return model("tiny", spec)


def plan(world: World) -> Plan:
    return worlds.plan(SERVICES, world)


def child(world: World, kind: str) -> dict[str, Any]:
    return next(manifest for manifest in plan(world).children if manifest["kind"] == kind)


def kinds(world: World) -> list[str]:
    return [manifest["kind"] for manifest in plan(world).children]


def pod(world: World) -> dict[str, Any]:
    template: dict[str, Any] = child(world, "Deployment")["spec"]["template"]
    return template


def container(world: World) -> dict[str, Any]:
    engine_container: dict[str, Any] = pod(world)["spec"]["containers"][0]
    return engine_container


def line(*others: dict[str, Any], **spec: Any) -> str:
    """The command line, one blank between words."""
    return " ".join(container(world(*others, **spec)).get("args", []))


def refusal(*others: dict[str, Any], **spec: Any) -> InvalidSpecError:
    with pytest.raises(InvalidSpecError) as refused:
        plan(world(*others, **spec))
    return refused.value


def unused(**spec: Any) -> str:
    conditions = worlds.status(SERVICES, world(**spec), None).status["conditions"]
    fields_used = next(condition for condition in conditions if condition["type"] == "FieldsUsed")
    return "" if fields_used["status"] == "True" else str(fields_used["message"])


def tiny_at(path: str) -> dict[str, Any]:
    return model("tiny", GGUF, READY | {"path": path})
