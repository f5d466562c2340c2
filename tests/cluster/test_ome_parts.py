"""OME on a cluster: services in parts, with adapters, and with replicas that others set; a node that is lost."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml
from kubernetes.dynamic.exceptions import NotFoundError, ResourceNotFoundError

from .cluster import PATIENCE, Object, condition, holds, unique, wait
from .kubeai import chat
from .load import Load
from .ome import BASE, ELIGIBLE, MODEL, OME, RUNTIME, SMALL, WEIGHT, router, sglang, vllm

pytestmark = pytest.mark.xdist_group("ome")

ONE: Object = {"minReplicas": 1, "maxReplicas": 1}
SAFETENSORS: Object = {"modelFormat": {"name": "safetensors"}, "modelFramework": {"name": "transformers"}}
SCALED_OBJECTS = Path(__file__).parent / "manifests/keda/scaledobjects.yaml"
Runtime = Callable[..., str]


@pytest.fixture(scope="module")
def base(ome: OME) -> Iterator[str]:
    """A model of the cluster on its node, of a form that no runtime of other tests serves."""
    name = unique("parts")
    ome.make_model(name, BASE, **SAFETENSORS, modelArchitecture="PartsForCausalLM")
    ome.wait_model(name)
    yield name
    ome.delete(MODEL, "", name)


@pytest.fixture
def runtime(ome: OME) -> Iterator[Runtime]:
    """Makes runtimes for that model; they are deleted after the test."""
    names: list[str] = []

    def make(runner: Object, **parts: Object) -> str:
        names.append(unique("parts"))
        formats = [{**SAFETENSORS, "modelArchitecture": "PartsForCausalLM"}]
        ome.make_runtime(names[-1], runner, formats, **parts)
        return names[-1]

    yield make
    for name in names:
        ome.delete(RUNTIME, "", name)


def named(ome: OME, namespace: str, name: str, part: str) -> set[str]:
    """Names of a part's pods."""
    return {pod["metadata"]["name"] for pod in ome.pods(namespace, f"{name},component={part}")}


def test_one_part_reads_prompts_and_another_one_writes_answers(
    ome: OME, ome_namespace: str, base: str, runtime: Runtime, gateway_url: str
) -> None:
    name, decoder = unique("apart"), sglang("--disaggregation-mode", "decode")
    runtime_name = runtime(
        sglang("--disaggregation-mode", "prefill"),
        decoderConfig={"runner": {"name": "ome-container", "resources": SMALL, **decoder}},
        routerConfig={"runner": router(parts=True)},
    )
    parts = {"engine": ONE, "decoder": {"minReplicas": 2, "maxReplicas": 2}, "router": ONE}
    ome.make_service(ome_namespace, name, base, runtime={"name": runtime_name}, **parts)
    status = ome.wait_serving(ome_namespace, name)["status"]
    assert set(status["components"]) == {"engine", "decoder", "router"}
    ome.wait_routed(ome_namespace, name)
    readers, writers = (named(ome, ome_namespace, name, part) for part in ("engine", "decoder"))
    assert (len(readers), len(writers)) == (1, 2)
    for _request in range(4):
        answer = chat(gateway_url, name)
        assert answer.status == 200, answer.body
        writer, reader = answer.words[:2]
        assert (writer in writers, reader in readers) == (True, True)


def test_adapters_answer_by_their_names(
    ome: OME, ome_namespace: str, base: str, runtime: Runtime, gateway_url: str
) -> None:
    name, adapters = unique("tuned"), [unique("one"), unique("two")]
    for adapter, source in zip(adapters, ("hf://acme/adapter-one", "hf://acme/adapter-two"), strict=True):
        ome.make_weight(adapter, source, base)
    ome.make_service(ome_namespace, name, base, adapters, runtime={"name": runtime(vllm())})
    ome.wait_serving(ome_namespace, name)
    ome.wait_routed(ome_namespace, name, *adapters)
    marks = [chat(gateway_url, asked_for).words[1] for asked_for in (name, *adapters)]
    assert marks[0] == "base"
    assert all(mark.startswith("lora-") for mark in marks[1:])
    assert len({*marks}) == 3
    for adapter in adapters:
        ome.delete(WEIGHT, "", adapter)


def test_replicas_follow_what_the_pods_use_and_are_not_taken_back(
    ome: OME, ome_namespace: str, base: str, runtime: Runtime, gateway_url: str
) -> None:
    name = unique("scales")
    engine = {"minReplicas": 1, "maxReplicas": 2, "scaleMetric": "cpu", "scaleTarget": 50}
    ome.make_service(ome_namespace, name, base, runtime={"name": runtime(sglang())}, engine=engine)
    ome.wait_serving(ome_namespace, name)
    ome.wait_routed(ome_namespace, name)

    def desired_replicas() -> int:
        deployment = ome.get("Deployment", ome_namespace, f"{name}-engine")
        return int(deployment["spec"]["replicas"]) if deployment else 0

    with Load(gateway_url, name) as load:
        wait("two replicas are desired", PATIENCE, desired_replicas, lambda replicas: replicas == 2)
        ome.change_service(ome_namespace, name, engine={"labels": {"tier": "gold"}})
        ome.wait_serving(ome_namespace, name)
        assert desired_replicas() == 2
    assert load.failures == []
    [autoscaler] = ome.list("HorizontalPodAutoscaler", ome_namespace)
    assert autoscaler["spec"]["scaleTargetRef"]["name"] == f"{name}-engine"


def test_a_service_that_keda_is_to_scale_waits_for_its_definition_and_gets_an_object_of_it(
    ome: OME, ome_namespace: str, base: str, runtime: Runtime
) -> None:
    name, definition = unique("keda"), yaml.safe_load(SCALED_OBJECTS.read_text())
    # An interrupted run may have left it. This cluster never has KEDA itself.
    ome.delete("CustomResourceDefinition", "", definition["metadata"]["name"])
    ome.wait_gone("CustomResourceDefinition", "", definition["metadata"]["name"])
    engine = {"minReplicas": 1, "maxReplicas": 3, "scaleMetric": "tps", "kedaConfig": {"enableKeda": True}}
    ome.make_service(ome_namespace, name, base, runtime={"name": runtime(sglang())}, engine=engine)
    accepted = wait(
        "the status names the missing part",
        PATIENCE,
        lambda: condition(ome.service(ome_namespace, name), "Accepted"),
        lambda latest: latest.get("reason") == "MissingKind",
    )
    assert "https://keda.sh" in accepted["message"]
    ome.create(definition)
    try:
        scaled = wait("KEDA has its object", PATIENCE, lambda: scaled_objects(ome, ome_namespace))
        assert scaled[0]["spec"]["scaleTargetRef"]["name"] == f"{name}-engine"
        assert (scaled[0]["spec"]["minReplicaCount"], scaled[0]["spec"]["maxReplicaCount"]) == (1, 3)
        ome.wait_serving(ome_namespace, name)
    finally:
        ome.delete("CustomResourceDefinition", "", definition["metadata"]["name"])


def scaled_objects(ome: OME, namespace: str) -> list[Object]:
    try:
        return ome.list("ScaledObject", namespace)
    except (ResourceNotFoundError, NotFoundError):  # the client, or the server, has yet to learn of the kind
        return []


def test_a_node_that_leaves_while_it_loads_holds_nothing_up(ome: OME) -> None:
    """A node without a kubelet: what is to run there never begins."""
    name, lost, [node] = unique("leaves"), unique("lost"), ome.nodes()
    taint = {"key": "tests.slipway.inference/lost", "effect": "NoSchedule"}
    ome.create({"kind": "Node", "metadata": {"name": lost, "labels": {ELIGIBLE: name}}, "spec": {"taints": [taint]}})
    try:
        room = {"cpu": "1", "memory": "1Gi", "pods": "10"}
        ome.kubectl(
            *("patch", "node", lost, "--subresource", "status", "--type", "merge"),
            *("--patch", yaml.safe_dump({"status": {"allocatable": room, "capacity": room}})),
        )
        ome.patch("Node", "", node, {"metadata": {"labels": {ELIGIBLE: name}}})
        ome.make_model(name, storage={"nodeSelector": {ELIGIBLE: name}})
        model = ome.wait_model(name)
        assert model["status"]["nodesReady"] == [node]
        wait("the other one loads", PATIENCE, lambda: ome.labels_of_nodes(name).get(lost), loads)
        holds("it never ends", 2, lambda: ome.labels_of_nodes(name).get(lost), loads)
    finally:
        ome.delete("Node", "", lost)
    try:
        done = wait("nothing is in progress", PATIENCE, lambda: ome.model("", name), complete)
        assert done["status"]["nodesReady"] == [node]
    finally:
        ome.delete(MODEL, "", name)
        ome.wait_gone(MODEL, "", name)
        ome.patch("Node", "", node, {"metadata": {"labels": {ELIGIBLE: None}}})


def loads(state: str | None) -> bool:
    return state == "Updating"


def complete(model: Object) -> bool:
    return condition(model, "Progressing").get("reason") == "Complete"
