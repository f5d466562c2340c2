"""Manifests as people have them: each is one that its definition takes, and together they become what they say.

OME's own manifests are read where the reference folder is present; the examples of the page are always there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from slipway.apis import ome
from slipway.kube.objects import Object
from slipway.serving.contract.api import Api, InvalidSpecError, Plan, World
from slipway.serving.contract.settings import Settings
from tests import documents, worlds
from tests.schemas import definition_of, faults, filled, schema_of

ROOT = Path(__file__).parents[4]
SAMPLES = ROOT.parent / "shared/reference/samples/ome"
FOLDERS = ("models", "runtimes", "isvc", "benchmark")
WRONG = {"LGAI-EXAONE__exaone-3-5-7-8b-instruct-isvc.yaml": "names its model by a field that the original refuses, too"}
APIS: dict[str, Api[Any]] = {api.resource.kind.kind: api for api in ome.APIS}
SCHEMAS = {kind: schema_of(definition_of(api.resource)) for kind, api in APIS.items()}
SETTINGS = Settings(system_namespace="slipway-system", authors=worlds.UPSTREAM)
SINCE = "2026-11-21T09:00:00Z"
NODE: Object = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": "node-a", "uid": "n-a", "labels": {"kubernetes.io/hostname": "node-a"}},
    "status": {"conditions": [{"type": "Ready", "status": "True"}], "nodeInfo": {"bootID": "b"}},
}
YAML = re.compile(r"^```yaml\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def of_the_page() -> Iterator[Object]:
    for text in YAML.findall((ROOT / "docs/reference/apis/ome.md").read_text()):
        yield from (one for one in documents.load_all(text) if one.get("kind") in APIS)


def of_the_reference() -> Iterator[Object]:
    for path in sorted(path for folder in FOLDERS for path in SAMPLES.glob(f"{folder}/*.yaml")):
        if path.name not in WRONG:
            yield from (one for one in documents.load_all(path.read_text()) if (one or {}).get("kind") in APIS)


MANIFESTS = [*of_the_page(), *of_the_reference()]


def stored(manifest: Object) -> Object:
    """As the API server stores it."""
    resource: Object = filled(SCHEMAS[manifest["kind"]], manifest)
    kind = APIS[manifest["kind"]].resource.kind
    namespace = {"namespace": manifest["metadata"].get("namespace", "default")} if kind.namespaced else {}
    metadata = {**manifest["metadata"], **namespace, "uid": f"u-{kind.plural}", "generation": 1}
    return {**resource, "metadata": {**metadata, "creationTimestamp": SINCE}}


STORED = [stored(manifest) for manifest in MANIFESTS]


def world(resource: Object, *, alone: bool = False) -> World:
    """The resource, and all others unless it is alone with a node."""
    api = APIS[resource["kind"]]
    kinds = {watch.kind.kind for watch in api.watches(SETTINGS) if watch.listed and not watch.owned}
    others = [one for one in (NODE, *(() if alone else STORED)) if one["kind"] in kinds]
    listers = worlds.known_world(api, SETTINGS, others=[*others, resource])
    return World(
        resource=resource, children={}, pods=(), routed=(), settings=SETTINGS, now=1_795_252_000.0, listers=listers
    )


def planned(resource: Object, *, alone: bool = False) -> Plan:
    return worlds.plan(APIS[resource["kind"]], world(resource, alone=alone))


def name(manifest: Object) -> str:
    return f"{manifest['kind']}-{manifest['metadata']['name']}"


def children(plan: Plan, kind: str) -> list[str]:
    return [child["metadata"]["name"] for child in (*plan.children, *plan.pending) if child["kind"] == kind]


@pytest.mark.parametrize("manifest", MANIFESTS, ids=name)
def test_its_definition_takes_it(manifest: Object) -> None:
    assert faults(SCHEMAS[manifest["kind"]], manifest) == []


@pytest.mark.parametrize("resource", STORED, ids=name)
def test_its_spec_can_be_read_as_the_api_server_stores_it(resource: Object) -> None:
    assert msgspec.convert(resource["spec"], APIS[resource["kind"]].resource.spec)


@pytest.mark.parametrize("resource", STORED, ids=name)
def test_its_status_is_one_that_the_definition_keeps_whole(resource: Object) -> None:
    status = worlds.status(APIS[resource["kind"]], world(resource)).status
    for condition in status["conditions"]:
        condition["lastTransitionTime"] = SINCE
    assert faults(SCHEMAS[resource["kind"]]["properties"]["status"], status) == []


@pytest.mark.parametrize("resource", [one for one in STORED if one["kind"].endswith("BaseModel")], ids=name)
def test_a_model_is_loaded_onto_the_node(resource: Object) -> None:
    selector = resource["spec"]["storage"].get("nodeSelector")
    plan = planned(resource, alone=True)
    assert len(children(plan, "Job")) == (0 if selector else 1)
    assert bool(plan.metadata_patches) == (not selector)


def lacking(service: Object) -> set[str]:
    """What keeps a service without a runtime from getting one: its model says too little of itself, or none fits."""
    if service["spec"].get("runtime"):
        return set()
    model = next(one for one in STORED if one["metadata"]["name"] == service["spec"]["model"]["name"])
    return set() if "modelFormat" in model["spec"] else {"format is unknown until it is downloaded"}


@pytest.mark.parametrize("resource", [one for one in STORED if one["kind"] == "InferenceService"], ids=name)
def test_a_service_has_all_of_its_parts_or_says_what_it_lacks(resource: Object) -> None:
    spec, service = resource["spec"], resource["metadata"]["name"]
    there = {one["metadata"]["name"] for one in STORED if one["kind"].endswith(("BaseModel", "Weight", "Runtime"))}
    named = {(spec.get(field) or {}).get("name") for field in ("model", "runtime") if spec.get(field)}
    named |= {*(spec.get("model") or {}).get("fineTunedWeights", ())}
    if lacks := named - there or lacking(resource):
        with pytest.raises(InvalidSpecError, match="|".join(lacks)):
            planned(resource)
        return
    plan = planned(resource)
    parts = {f"{service}-{part}" for part in ("engine", "decoder", "router") if part in spec}
    workloads = {*children(plan, "Deployment"), *children(plan, "LeaderWorkerSet")}
    assert len(workloads) == len(parts)
    assert {*children(plan, "Service")} == {service, *parts}


def test_there_is_an_example_of_every_kind_that_people_write() -> None:
    assert {manifest["kind"] for manifest in of_the_page()} >= {
        "BaseModel",
        "ClusterBaseModel",
        "ClusterServingRuntime",
        "InferenceService",
        "BenchmarkJob",
    }
