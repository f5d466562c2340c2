"""LLMKube's InferenceServices: runtimes and their ports, replicas, changes, and the reports of their failures."""

from __future__ import annotations

import re

import pytest

from .cluster import PATIENCE, Object, condition, unique, wait
from .kubeai import chat, listed
from .llmkube import ENGINES, SERVICE, LLMKube
from .load import Load

REPOSITORY = {"source": "acme/base", "format": "safetensors"}
"""A Model that engines fetch themselves."""
CHAT = {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 2}
BY_ITSELF = ["serve", "acme/base", "--port=9000"]


def make_repository(llmkube: LLMKube, namespace: str) -> str:
    name = unique("base")
    llmkube.make_model(namespace, name, **REPOSITORY)
    status = llmkube.wait_model(namespace, name, "Ready", "RuntimeResolved")["status"]
    assert not {"path", "cacheKey"} & set(status)
    return name


def ports(llmkube: LLMKube, namespace: str, name: str) -> tuple[int, str | int, int]:
    """Of the Service, what it points at, of the container."""
    service = llmkube.get("Service", namespace, name)
    [pod] = llmkube.pods(namespace, name)
    assert service
    [port] = service["spec"]["ports"]
    [declared] = pod["spec"]["containers"][0]["ports"]
    return port["port"], port["targetPort"], declared["containerPort"]


@pytest.mark.parametrize(
    ("runtime", "spec", "expected"),
    [
        ("vllm", {}, (8080, "http", 8000)),
        ("sglang", {}, (8080, "http", 30000)),
        ("vllm", {"endpoint": {"port": 9999}}, (9999, "http", 9999)),
        ("vllm", {"endpoint": {"port": 9999}, "containerPort": 8001}, (9999, "http", 8001)),
        ("generic", {"command": ["vllm"], "args": BY_ITSELF, "containerPort": 9000}, (8080, "http", 9000)),
    ],
    ids=["vllm", "sglang", "vllm-endpoint", "vllm-both", "generic"],
)
def test_the_service_leads_to_the_port_that_the_engine_has(
    llmkube: LLMKube, llmkube_namespace: str, gateway_url: str, runtime: str, spec: Object, expected: tuple[object, ...]
) -> None:
    """The original uses port 8080 if the endpoint sets none, and no process listens there."""
    name, weights = unique("port"), make_repository(llmkube, llmkube_namespace)
    if runtime == "generic":
        spec = spec | {"args": [*spec["args"], f"--served-model-name={name}"]}
    llmkube.make_service(llmkube_namespace, name, weights, runtime=runtime, image=ENGINES, **spec)
    service = llmkube.wait_serving(llmkube_namespace, name)
    assert ports(llmkube, llmkube_namespace, name) == expected
    url = service["status"]["endpoint"]
    assert url == f"http://{name}.{llmkube_namespace}.svc.cluster.local:{expected[0]}/v1/chat/completions"
    assert llmkube.ask_inside(url, {"model": name, **CHAT})["choices"]
    llmkube.wait_routed(llmkube_namespace, name)
    assert chat(gateway_url, name).words[1] == "base"


def test_a_dotted_name_is_served_as_it_is_written(llmkube: LLMKube, llmkube_namespace: str, gateway_url: str) -> None:
    name, weights = unique("qwen2.5-0.5b"), unique("weights-2.5")
    llmkube.make_model(llmkube_namespace, weights)
    llmkube.make_service(llmkube_namespace, name, weights)
    service = llmkube.wait_serving(llmkube_namespace, name)
    assert f"http://{name.replace('.', '-')}.{llmkube_namespace}.svc" in service["status"]["endpoint"]
    llmkube.wait_routed(llmkube_namespace, name)
    assert chat(gateway_url, name).json["model"] == name
    card = listed(gateway_url)[name]
    assert (card["object"], card["features"]) == ("model", ["TextGeneration"])


def test_replicas_are_scaled_stopped_and_suspended(llmkube: LLMKube, llmkube_namespace: str) -> None:
    name, weights = unique("scale"), make_repository(llmkube, llmkube_namespace)
    llmkube.make_service(llmkube_namespace, name, weights, runtime="vllm", image=ENGINES)
    llmkube.wait_serving(llmkube_namespace, name)

    def scale(count: int) -> None:
        resource = f"inferenceservices.inference.llmkube.dev/{name}"
        llmkube.kubectl("scale", "--namespace", llmkube_namespace, resource, f"--replicas={count}")

    def without_pods() -> None:
        wait("no pod is left", PATIENCE, lambda: llmkube.pods(llmkube_namespace, name), lambda pods: not pods)

    scale(2)
    status = llmkube.wait_serving(llmkube_namespace, name)["status"]
    assert (status["replicas"], status["desiredReplicas"], status["readyReplicas"]) == (2, 2, 2)
    assert set(status["selector"].split(",")) == {f"app={name}", f"inference.llmkube.dev/service={name}"}
    scale(0)
    stopped = llmkube.wait_phase(llmkube_namespace, name, "Stopped", "ScaledToZero")
    assert condition(stopped, "Degraded")["status"] == "False"
    without_pods()
    scale(1)
    llmkube.wait_serving(llmkube_namespace, name)
    llmkube.change_service(llmkube_namespace, name, suspend=True)
    suspended = llmkube.wait_phase(llmkube_namespace, name, "Suspended")
    assert condition(suspended, "Suspended")["status"] == "True"
    assert suspended["spec"]["replicas"] == 1
    without_pods()
    llmkube.change_service(llmkube_namespace, name, suspend=False)
    service = llmkube.wait_serving(llmkube_namespace, name)
    assert condition(service, "Suspended") == {}
    assert len(llmkube.pods(llmkube_namespace, name)) == 1


def test_a_changed_spec_rolls_out_without_a_lost_request(
    llmkube: LLMKube, llmkube_namespace: str, gateway_url: str
) -> None:
    name, weights = unique("change"), make_repository(llmkube, llmkube_namespace)
    llmkube.make_service(llmkube_namespace, name, weights, runtime="vllm", image=ENGINES)
    llmkube.wait_serving(llmkube_namespace, name)
    llmkube.wait_routed(llmkube_namespace, name)
    before = {pod["metadata"]["name"] for pod in llmkube.pods(llmkube_namespace, name)}
    with Load(gateway_url, name) as load:
        changed = {"vllmConfig": {"maxModelLen": 1024}, "env": [{"name": "STANDIN_DECODE_SECONDS", "value": "0.1"}]}
        llmkube.change_service(llmkube_namespace, name, **changed)
        llmkube.wait_serving(llmkube_namespace, name)
        [pod] = llmkube.pods(llmkube_namespace, name)
        assert pod["metadata"]["name"] not in before
        assert "--max-model-len 1024" in " ".join(pod["spec"]["containers"][0]["args"])
        load.more(20)
    assert load.failures == []


def test_a_service_goes_over_to_another_model(llmkube: LLMKube, llmkube_namespace: str, gateway_url: str) -> None:
    name, first, second = unique("over"), unique("first"), unique("second")
    llmkube.make_model(llmkube_namespace, first)
    llmkube.make_service(llmkube_namespace, name, first)
    llmkube.wait_serving(llmkube_namespace, name)
    llmkube.change_service(llmkube_namespace, name, modelRef=second)
    llmkube.wait_for_condition(llmkube_namespace, name, "Accepted", "False", "ModelNotFound")
    assert len(llmkube.pods(llmkube_namespace, name)) == 1
    llmkube.make_model(llmkube_namespace, second, source="hf://acme/tiny@main/tiny.gguf")
    path = llmkube.wait_model(llmkube_namespace, second)["status"]["path"]
    llmkube.wait_serving(llmkube_namespace, name)
    [pod] = llmkube.pods(llmkube_namespace, name)
    assert path in pod["spec"]["containers"][0]["args"]
    llmkube.wait_routed(llmkube_namespace, name)
    assert chat(gateway_url, name).status == 200


def test_a_flag_that_the_engine_refuses_is_reported_with_its_words(llmkube: LLMKube, llmkube_namespace: str) -> None:
    """The original leaves such a service in the phase Creating indefinitely."""
    name, weights = unique("flag"), unique("flag")
    llmkube.make_model(llmkube_namespace, weights)
    llmkube.make_service(llmkube_namespace, name, weights, extraArgs=["--no-such-flag"])
    service = llmkube.wait_phase(llmkube_namespace, name, "Failed")
    available = condition(service, "Available")
    assert "no-such-flag" in available["message"]
    assert available["reason"] in ("InvalidArgument", "CrashLoopBackOff")
    assert condition(service, "Degraded")["status"] == "True"
    llmkube.change_service(llmkube_namespace, name, extraArgs=["--threads", "1"])
    service = llmkube.wait_serving(llmkube_namespace, name)
    assert condition(service, "Degraded")["status"] == "False"


def test_an_image_that_cannot_be_pulled_is_reported(llmkube: LLMKube, llmkube_namespace: str) -> None:
    name, weights = unique("image"), make_repository(llmkube, llmkube_namespace)
    image = "localhost:1/no-such-image:1"
    llmkube.make_service(llmkube_namespace, name, weights, runtime="vllm", image=image)
    service = llmkube.wait_phase(llmkube_namespace, name, "Failed", "ImagePullBackOff")
    assert image in condition(service, "Available")["message"]


def test_a_runtime_without_an_image_asks_for_one(llmkube: LLMKube, llmkube_namespace: str) -> None:
    name, weights = unique("none"), make_repository(llmkube, llmkube_namespace)
    llmkube.make_service(llmkube_namespace, name, weights, runtime="generic")
    llmkube.wait_phase(llmkube_namespace, name, "Failed", "NoImage")
    llmkube.change_service(
        llmkube_namespace, name, image=ENGINES, command=["vllm"], args=[*BY_ITSELF[:2], "--port=8080"]
    )
    llmkube.wait_serving(llmkube_namespace, name)


def test_a_service_on_a_mac_is_reported_as_out_of_reach(llmkube: LLMKube, llmkube_namespace: str) -> None:
    name, weights = unique("metal"), unique("metal")
    llmkube.make_model(llmkube_namespace, weights, source="file:///Users/me/m.gguf", hardware={"accelerator": "metal"})
    llmkube.make_service(llmkube_namespace, name, weights)
    model = llmkube.wait_model(llmkube_namespace, weights, "Ready", "MetalAgentManaged")
    assert model["status"]["acceleratorReady"] is True
    service = llmkube.wait_phase(llmkube_namespace, name, "Failed", "MetalOutOfReach")
    assert "Mac" in condition(service, "Accepted")["message"]
    assert "endpoint" not in service["status"]
    assert llmkube.get("Deployment", llmkube_namespace, name) is None
    assert llmkube.get("Service", llmkube_namespace, name) is None


def test_a_deleted_service_takes_all_but_the_weights_along(llmkube: LLMKube, llmkube_namespace: str) -> None:
    name, weights = unique("delete"), unique("delete")
    llmkube.make_model(llmkube_namespace, weights)
    llmkube.make_service(llmkube_namespace, name, weights, evictionProtection=True)
    llmkube.wait_serving(llmkube_namespace, name)
    budgets = llmkube.list("PodDisruptionBudget", llmkube_namespace)
    assert [budget["metadata"]["name"] for budget in budgets] == [name]
    llmkube.delete(SERVICE, llmkube_namespace, name)
    llmkube.wait_gone(SERVICE, llmkube_namespace, name)

    def leftovers() -> list[str]:
        kinds = ("Deployment", "Service", "PodDisruptionBudget", "ReplicaSet")
        children = [child["metadata"]["name"] for kind in kinds for child in llmkube.list(kind, llmkube_namespace)]
        return children + [pod["metadata"]["name"] for pod in llmkube.pods(llmkube_namespace, name)]

    wait("nothing is left", PATIENCE, leftovers, lambda names: not names)
    assert llmkube.wait_model(llmkube_namespace, weights)


def test_kubectl_shows_what_a_person_wants_to_know(llmkube: LLMKube, llmkube_namespace: str) -> None:
    weights, good, bad = "weights", "good", "bad"
    llmkube.make_model(llmkube_namespace, weights, hardware={"accelerator": "cpu"})
    llmkube.make_service(llmkube_namespace, good, weights)
    llmkube.make_service(llmkube_namespace, bad, "missing")
    llmkube.wait_serving(llmkube_namespace, good)
    llmkube.wait_phase(llmkube_namespace, bad, "Failed", "ModelNotFound")

    def shown(*arguments: str) -> str:
        text = llmkube.kubectl("get", "--namespace", llmkube_namespace, *arguments)
        age = r"\b(\d+[mhs])+(?=(\s+\w+){0,2}\s*$)"
        return re.sub(age, "AGE", text.replace(llmkube_namespace, "NS"), flags=re.MULTILINE)

    def rows(text: str) -> list[list[str]]:
        return [line.split() for line in text.splitlines()]

    host = "svc.cluster.local:8080/v1/chat/completions"
    assert rows(shown("isvc")) == [
        ["NAME", "PHASE", "MODEL", "REPLICAS", "REASON", "ENDPOINT", "AGE", "STATE", "MODEL", "ID"],
        ["bad", "Failed", "missing", "0", "ModelNotFound", "AGE", "ModelNotFound"],
        ["good", "Ready", "weights", "1", "Ready", f"http://good.NS.{host}", "AGE", "Ready", "good"],
    ]
    wide = rows(shown("mdl", "--output", "wide"))
    assert wide[0] == ["NAME", "PHASE", "SIZE", "ACCELERATOR", "ARCH", "SOURCE", "REASON", "AGE", "STATE"]
    [row] = wide[1:]
    assert (row[:2], row[3:]) == (
        ["weights", "Ready"],
        ["KiB", "cpu", "llama", "hf://acme/tiny/tiny.gguf", "ModelReady", "AGE", "Ready"],
    )
    both = shown("isvc,mdl").splitlines()
    assert [line.split("/")[0] for line in both if ".dev/" in line] == [
        "inferenceservice.inference.llmkube.dev",
        "inferenceservice.inference.llmkube.dev",
        "model.inference.llmkube.dev",
    ]
