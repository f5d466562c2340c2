"""An InferenceService with its model and its runtime, planned: short words for tests."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from slipway.apis.ome import names
from slipway.apis.ome.services.table import SERVICES
from slipway.kube.objects import DEPLOYMENT, Key, Kind, Object
from slipway.serving.contract.api import InvalidSpecError, Plan, Reference, Rejection, World
from slipway.serving.contract.settings import Settings
from tests import worlds

SINCE = "2026-11-21T09:00:00Z"
NOW = 1_795_252_000.0
FORMAT = {"modelFormat": {"name": "safetensors", "weight": 1}, "modelFramework": {"name": "transformers", "weight": 1}}
ARCHITECTURE = {"modelArchitecture": "LlamaForCausalLM"}
SETTINGS = Settings(system_namespace="slipway-system", authors=worlds.UPSTREAM)
KINDS = {kind.kind: kind for kind in (names.SERVING_RUNTIME, names.CLUSTER_SERVING_RUNTIME)}
ENGINE = ("python3", "-m", "sglang.launch_server", "--port", "8080", "--model-path", "$(MODEL_PATH)")


def runner(name: str = "ome-container", image: str = "engine:1", **fields: Any) -> Object:
    command = [*ENGINE, "--served-model-name", "meta/Tiny-1B"] if name == "ome-container" else ["smg"]
    return {"name": name, "image": image, "command": command, "ports": [{"containerPort": 8080}]} | fields


ROUTER = {"runner": runner("router", "router:1", command=["python3", "-m", "sglang_router.launch_router"])}
PARTS = {"engineConfig": {"runner": runner()}, "decoderConfig": {"runner": runner()}, "routerConfig": ROUTER}
GROUP = {"leader": {"runner": runner()}, "worker": {"size": 2, "runner": runner()}}


def model(name: str = "tiny", state: str = "Ready", namespace: str = "", **spec: Any) -> Object:
    kind = names.BASE_MODEL if namespace else names.CLUSTER_BASE_MODEL
    folder = f"{namespace}/{name}" if namespace else name
    storage = {"storageUri": "hf://meta/tiny", "path": f"/raid/models/{folder}"}
    return {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "metadata": _metadata(name, namespace),
        "spec": {"storage": storage, **FORMAT, **ARCHITECTURE} | spec,
        "status": {"state": state},
    }


def runtime(name: str = "rt", namespace: str = "", **spec: Any) -> Object:
    kind = names.SERVING_RUNTIME if namespace else names.CLUSTER_SERVING_RUNTIME
    formats = [{**FORMAT, **ARCHITECTURE, "autoSelect": True, "priority": 1}]
    metadata = _metadata(name, namespace)
    return {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "metadata": metadata,
        "spec": {"supportedModelFormats": formats, **PARTS} | spec,
    }


def weight(name: str, base: str = "tiny") -> Object:
    storage = {"storageUri": f"hf://meta/{name}", "path": f"/raid/models/{name}"}
    spec = {"baseModelRef": {"name": base}, "modelType": "LoRA", "hyperParameters": {}, "storage": storage}
    kind = names.FINE_TUNED_WEIGHT
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": _metadata(name, ""), "spec": spec}


def _metadata(name: str, namespace: str) -> Object:
    metadata = {"name": name, "uid": f"u-{namespace}-{name}", "generation": 1, "creationTimestamp": SINCE}
    return metadata | ({"namespace": namespace} if namespace else {})


def service(name: str = "chat", annotations: Object | None = None, **spec: Any) -> Object:
    metadata = _metadata(name, "models") | {"annotations": annotations or {}}
    spec = {"model": {"name": "tiny"}, "engine": {"minReplicas": 1, "maxReplicas": 1}} | spec
    kind = names.INFERENCE_SERVICE
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, "spec": spec}


def world(
    resource: Object | None = None,
    *others: Object,
    children: tuple[Object, ...] = (),
    pods: tuple[Object, ...] = (),
    settings: Settings = SETTINGS,
    **spec: Any,
) -> World:
    """``others``: models, runtimes and weights; the model ``tiny`` and the runtime ``rt`` where there are none."""
    resource = resource or service(**spec)
    kinds = {watch.kind.kind: watch.kind for watch in SERVICES.watches(settings)}
    return World(
        resource=resource,
        children={(kinds[one["kind"]], Key(**_place(one))): one for one in children},
        pods=pods,
        routed=(),
        settings=settings,
        now=NOW,
        listers=worlds.known_world(SERVICES, settings, others=[resource, *(others or (model(), runtime()))]),
    )


def _place(obj: Object) -> Object:
    return {field: obj["metadata"].get(field, "") for field in ("namespace", "name")}


def plan(world: World) -> Plan:
    return worlds.plan(SERVICES, world)


def find_child(world: World, kind: str | Kind, name: str) -> Any:
    """A child of this name; None: there is none."""
    word = kind if isinstance(kind, str) else kind.kind
    children = [one for one in plan(world).children if one["kind"] == word and one["metadata"]["name"] == name]
    return children[0] if children else None


def objects(world: World) -> list[str]:
    """Its children, ``kind name``, but for claims: see test_model_volumes.py."""
    children = plan(world).children
    return sorted(f"{one['kind']} {one['metadata']['name']}" for one in children)


def refusal(world: World) -> InvalidSpecError:
    with pytest.raises(InvalidSpecError) as refused:
        plan(world)
    return refused.value


def status(world: World) -> Any:
    try:
        plan(world)
    except InvalidSpecError as error:
        return worlds.status(SERVICES, world, Rejection(error.reason, error.message)).status
    return worlds.status(SERVICES, world).status


def conditions(world: World) -> dict[str, Any]:
    """Type -> condition."""
    return {one["type"]: one for one in status(world)["conditions"]}


def reasons(world: World) -> dict[str, tuple[str, str]]:
    """Type -> status and reason."""
    return {name: (one["status"], one["reason"]) for name, one in conditions(world).items()}


def observed(child: Object, *, ready: int = 1, wanted: int | None = None, complete: bool = True) -> Object:
    """A workload as its controller has it."""
    number = child["spec"].get("replicas", 1) if wanted is None else wanted
    counts = {"replicas": number, "readyReplicas": ready, "updatedReplicas": number if complete else 0}
    metadata = {**child["metadata"], "uid": child["metadata"]["name"], "generation": 1}
    spec = {**child["spec"], "replicas": number}
    return {**child, "metadata": metadata, "spec": spec, "status": {**counts, "observedGeneration": 1}}


def running(world: World, *names_: str, **changes: Any) -> World:
    """The world where these Deployments are there and answer."""
    deployments = tuple(observed(find_child(world, DEPLOYMENT, name), **changes) for name in names_)
    there = {(DEPLOYMENT, Key("models", one["metadata"]["name"])): one for one in deployments}
    return msgspec.structs.replace(world, children={**world.children, **there})


def of(kind: Kind, name: str, namespace: str = "") -> Reference:
    return Reference(kind, namespace, name)
