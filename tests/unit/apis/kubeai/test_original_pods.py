"""The original's manifests, where they lie beside this checkout, become the pods that the original makes of them.

The original's behavior is repeated here as plain facts about one engine each, so that the expected values do not
come from the product.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
import yaml

from slipway.apis.kubeai import KUBEAI
from slipway.engines.programs.vllm import VLLM
from slipway.kube.objects import CONFIG_MAP, PERSISTENT_VOLUME_CLAIM
from slipway.serving.contract.api import InvalidSpecError, Plan, Reference, World
from slipway.serving.contract.settings import Settings
from tests import documents, worlds

SAMPLES = Path(__file__).parents[5] / "shared" / "reference" / "samples" / "kubeai"
CHART = SAMPLES / "config" / "kubeai-chart-values.yaml"
SYSTEM = "slipway-system"
CACHES = ("standard-filestore", "e2e-test-kind-pv")
CORRECTED = {
    "vllm/vllm-openai:v0.10.2": "vllm/vllm-openai:v0.33.0",
    "public.ecr.aws/q9t5s3a7/vllm-cpu-release-repo:v0.10.2": "public.ecr.aws/q9t5s3a7/vllm-cpu-release-repo:v0.33.0",
    "rocm/vllm/rocm6.4.1_vllm_0.10.1_20250909": "vllm/vllm-openai-rocm:v0.33.0",
    "ollama/ollama:0.11.11": "ollama/ollama:0.17.4",
    "ollama/ollama:0.11.11-rocm": "ollama/ollama:0.17.4-rocm",
    "fedirz/faster-whisper-server:latest-cpu": "fedirz/faster-whisper-server:0.6.0-rc.3-cpu",
    "fedirz/faster-whisper-server:latest-cuda": "fedirz/faster-whisper-server:0.6.0-rc.3-cuda",
}
"""Images of the chart that are of last year, that no registry has, or whose tags roll."""
SIZES = {"": 1, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "m": Fraction(1, 1000)}
HEALTH = {"path": "/health", "port": "http"}
STARTUP_SECONDS = {"VLLM": 10800, "SGLang": 10800, "LlamaCpp": 10800, "FasterWhisper": 1800, "Infinity": 1200}
"""There every two seconds; here every second, so that a replica that a request waits for is seen sooner."""
REFUSED = {
    "kind-cpu-adapters": "spec.adapters: the engine OLlama cannot load adapters at runtime",
    "distributed-qwen-500m-cpu-lws": "one model on several nodes is not supported",
    "llama-3.1-70b-instruct-multinode": "one model on several nodes is not supported",
}


def models() -> Iterator[Any]:
    for folder in ("models", "dev", "e2e", "examples", "next"):
        for path in sorted((SAMPLES / folder).glob("*.yaml")):
            for document in documents.load_all(path.read_text()):
                if document and document["kind"] == "Model":
                    yield pytest.param(document, id=path.stem)


MODELS = list(models())
SERVED = [sample for sample in MODELS if sample.id not in REFUSED]
needs_samples = pytest.mark.skipif(not MODELS, reason="the original's manifests do not lie beside this checkout")


def chart() -> Any:
    """The chart's values, with the node pools that the manifests of its clouds name."""
    values = documents.read(CHART)
    cloud = documents.read(SAMPLES / "config" / "values-gke.yaml")
    tpus = {name: profile for name, profile in cloud["resourceProfiles"].items() if name.startswith("google-tpu")}
    return {**values, "resourceProfiles": {**values["resourceProfiles"], **tpus}}


def world(model: Any, *, loaded: bool = True) -> World:
    metadata = {"namespace": "models", "uid": "uid-1", "generation": 1, "creationTimestamp": "2026-11-21T09:00:00Z"}
    resource = {**model, "metadata": metadata | model["metadata"]}
    caches = {name: {"sharedFilesystem": {"storageClassName": "files"}} for name in CACHES}
    text = yaml.safe_dump({"resourceProfiles": chart()["resourceProfiles"], "cacheProfiles": caches})
    profile, name = model["spec"].get("cacheProfile", ""), model["metadata"]["name"]
    done = {f"models.kubeai.org/{name}": '{"uid":"uid-1"}'} if loaded else {}
    claim = {"metadata": {"name": f"shared-model-cache-{profile}", "namespace": "models", "annotations": done}}
    referenced = {
        Reference(CONFIG_MAP, SYSTEM, "slipway-kubeai"): {"data": {"system.yaml": text}},
        Reference(PERSISTENT_VOLUME_CLAIM, "models", f"shared-model-cache-{profile}"): claim,
    }
    settings = Settings(system_namespace=SYSTEM)
    listers = worlds.known_world(KUBEAI, settings, referenced)
    return World(resource=resource, children={}, pods=[], routed=[], settings=settings, now=0.0, listers=listers)


def kinds(plan: Plan) -> list[str]:
    return [child["kind"] for child in plan.children]


def pod(model: Any) -> Any:
    """The pod template of the Deployment."""
    (deployment,) = [child for child in worlds.plan(KUBEAI, world(model)).children if child["kind"] == "Deployment"]
    return deployment["spec"]["template"]


def server(model: Any) -> Any:
    (container,) = [container for container in pod(model)["spec"]["containers"] if container["name"] == "server"]
    return container


def amount(quantity: str) -> Fraction:
    digits = quantity.rstrip("KMGim")
    return Fraction(digits) * SIZES[quantity.removeprefix(digits)]


@needs_samples
@pytest.mark.parametrize("model", SERVED)
def test_the_pod_is_labelled_and_addressed_as_there(model: Any) -> None:
    name, engine = model["metadata"]["name"], model["spec"]["engine"].lower()
    metadata = pod(model)["metadata"]
    labels = {
        "app": "model",
        "model": name,
        "app.kubernetes.io/name": engine,
        "app.kubernetes.io/instance": f"{engine}-{name}",
        "app.kubernetes.io/managed-by": "kubeai",
    }
    assert labels.items() <= metadata["labels"].items()
    assert metadata["annotations"]["model-pod-port"] == "8000"
    assert server(model)["ports"] == [{"name": "http", "containerPort": 8000, "protocol": "TCP"}]


@needs_samples
@pytest.mark.parametrize("model", SERVED)
def test_image_resources_and_place_are_those_of_the_profile_times_its_count(model: Any) -> None:
    name, count = model["spec"]["resourceProfile"].split(":")
    profile, container = chart()["resourceProfiles"][name], server(model)
    servers = chart()["modelServers"]
    if model["spec"]["engine"] in servers:
        images = servers[model["spec"]["engine"]]["images"]
        image = images.get(profile.get("imageName"), images["default"])
        assert container["image"] == CORRECTED.get(image, image)
    expected = {
        part: {resource: amount(str(size)) * int(count) for resource, size in profile[part].items()}
        for part in ("requests", "limits")
        if part in profile
    }
    given = {
        part: {resource: amount(size) for resource, size in sizes.items()}
        for part, sizes in container["resources"].items()
    }
    assert given == expected
    spec = pod(model)["spec"]
    assert spec.get("nodeSelector", {}) == profile.get("nodeSelector", {})
    assert spec.get("tolerations", []) == profile.get("tolerations", [])
    assert spec.get("priorityClassName", "") == model["spec"].get("priorityClassName", "")


@needs_samples
@pytest.mark.parametrize("model", SERVED)
def test_the_probes_wait_as_long_as_there(model: Any) -> None:
    container, engine = server(model), model["spec"]["engine"]
    startup, readiness, liveness = container["startupProbe"], container["readinessProbe"], container["livenessProbe"]
    if engine == "OLlama":
        assert startup["exec"]["command"][:2] == ["bash", "-c"]
        assert len(startup["exec"]["command"]) == 3
        assert (startup["initialDelaySeconds"], startup["timeoutSeconds"], startup["failureThreshold"]) == (
            1,
            10800,
            10,
        )
        assert readiness["httpGet"] == liveness["httpGet"] == {"path": "/", "port": "http"}
        assert liveness["initialDelaySeconds"] == 900
        return
    assert startup["httpGet"] == readiness["httpGet"] == liveness["httpGet"] == HEALTH
    # Open requests may use all threads of these two, which then do not answer the probe.
    failures = 20 if engine in ("FasterWhisper", "LlamaCpp") else 3
    assert startup["periodSeconds"] * startup["failureThreshold"] == STARTUP_SECONDS[engine]
    assert (readiness["periodSeconds"], readiness["timeoutSeconds"], readiness["failureThreshold"]) == (10, 2, 3)
    assert (liveness["periodSeconds"], liveness["timeoutSeconds"], liveness["failureThreshold"]) == (30, 3, failures)


@needs_samples
@pytest.mark.parametrize("model", SERVED)
def test_the_engine_gets_the_same_settings_as_in_the_original(model: Any) -> None:
    spec, name, container = model["spec"], model["metadata"]["name"], server(model)
    ref = spec["url"].partition("://")[2].partition("?")[0]
    cached = f"/models/{name}-uid-1" if "cacheProfile" in spec else ""
    place = cached or ("/model" if spec["url"].startswith(("pvc://", "oci://")) else ref)
    args = container.get("args", [])
    env = {variable["name"]: variable.get("value") for variable in container.get("env", [])}
    if spec["engine"] == "VLLM":
        assert container["command"] == ["python3", "-m", "vllm.entrypoints.openai.api_server"]
        lora = ["--enable-lora"] if "adapters" in spec else []
        today = VLLM.renewed(spec.get("args", []), author_image=spec.get("image", ""), image=container["image"]).args
        assert args == [f"--model={place}", f"--served-model-name={name}", *today, *lora]
    elif spec["engine"] == "OLlama":
        assert args == spec.get("args", [])
        assert env["OLLAMA_HOST"] == "0.0.0.0:8000"
        assert (env.get("OLLAMA_MODELS") == "/model") == spec["url"].startswith("pvc://")
    elif spec["engine"] == "FasterWhisper":
        assert (env["WHISPER__MODEL"], env["ENABLE_UI"]) == (place, "false")
    elif spec["engine"] == "Infinity":
        assert args == ["v2", *spec.get("args", [])]
        assert (env["INFINITY_MODEL_ID"], env["INFINITY_SERVED_MODEL_NAME"]) == (place, name)
        assert (env["INFINITY_URL_PREFIX"], env["INFINITY_PORT"]) == ("/v1", "8000")
    else:
        assert args[-len(spec["args"]) :] == spec["args"]
        assert any(name in arg for arg in args)
    assert spec.get("env", {}).items() <= env.items()


@needs_samples
@pytest.mark.parametrize("model", SERVED)
def test_only_the_credentials_of_its_source_are_there_and_may_be_missing(model: Any) -> None:
    scheme = model["spec"]["url"].partition("://")[0]
    expected = {"hf": {"HF_TOKEN"}, "s3": {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"}}.get(scheme, set())
    secret = {variable["name"]: variable for variable in server(model).get("env", []) if "valueFrom" in variable}
    assert set(secret) == expected
    assert all(variable["valueFrom"]["secretKeyRef"]["optional"] for variable in secret.values())


@needs_samples
@pytest.mark.parametrize("model", [sample for sample in SERVED if "cacheProfile" in sample.values[0]["spec"]])
def test_a_cache_is_filled_before_there_are_pods(model: Any) -> None:
    name, profile = model["metadata"]["name"], model["spec"]["cacheProfile"]
    before, after = worlds.plan(KUBEAI, world(model, loaded=False)), worlds.plan(KUBEAI, world(model))
    assert "Deployment" not in kinds(before)
    (job,) = [child for child in before.children if child["kind"] == "Job"]
    assert job["metadata"]["name"] == f"load-cache-{name}"
    (claim,) = before.shared
    assert claim["metadata"]["name"] == f"shared-model-cache-{profile}"
    assert (claim["spec"]["accessModes"], claim["spec"]["resources"]["requests"]) == (
        ["ReadWriteMany"],
        {"storage": "10Gi"},
    )
    assert before.finalizer == after.finalizer == "kubeai.org/cache-eviction"
    mount = {"name": "models", "mountPath": f"/models/{name}-uid-1", "subPath": f"models/{name}-uid-1"}
    assert {**mount, "readOnly": True} in server(model)["volumeMounts"]
    assert "Job" not in kinds(after)


@needs_samples
@pytest.mark.parametrize("model", [sample for sample in SERVED if "files" in sample.values[0]["spec"]])
def test_files_come_from_a_config_map(model: Any) -> None:
    plan = worlds.plan(KUBEAI, world(model))
    (files,) = [child for child in plan.children if child["kind"] == "ConfigMap"]
    assert files["metadata"]["name"] == f"model-{model['metadata']['name']}-files"
    assert files["data"] == {file["path"].replace("/", "_"): file["content"] for file in model["spec"]["files"]}
    mounted = {mount["mountPath"]: mount for mount in server(model)["volumeMounts"]}
    assert all(mounted[file["path"]]["readOnly"] for file in model["spec"]["files"])


@needs_samples
@pytest.mark.parametrize("model", [sample for sample in MODELS if sample.id in REFUSED])
def test_a_model_that_cannot_be_served_is_rejected_with_the_reason(model: Any, request: pytest.FixtureRequest) -> None:
    (reason,) = [text for name, text in REFUSED.items() if name in request.node.name]
    with pytest.raises(InvalidSpecError, match=reason):
        worlds.plan(KUBEAI, world(model))
