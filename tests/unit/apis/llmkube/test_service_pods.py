"""The pods of an InferenceService and the Service in front of them, for each field that concerns them."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from slipway.apis.llmkube import SERVICES
from slipway.apis.llmkube.services.pods import service_name, workload_name
from slipway.serving.contract.settings import Settings
from slipway.serving.routing.route import Route
from tests import worlds

from .services import GGUF, HUB, NEWEST, ONE_GPU, RUNTIMES, VLLM, child, container, pod, refusal, unused, world

HEALTH = {"httpGet": {"path": "/health", "port": "http"}}
CONNECTS = {"tcpSocket": {"port": "http"}}


@pytest.mark.parametrize(
    ("hardware", "resource", "image"),
    [
        ({"accelerator": "cuda"}, "nvidia.com/gpu", "server-cuda-v0.5.0"),
        ({"gpu": {"vendor": "amd"}}, "amd.com/gpu", "server-rocm-v0.4.1"),
        ({"accelerator": "rocm", "gpu": {"vendor": "nvidia"}}, "amd.com/gpu", "server-rocm-v0.4.1"),
        ({"gpu": {"vendor": "amd", "runtime": "vulkan"}}, "devic.es/dri-render", "server-vulkan-v0.5.0"),
        (
            {"accelerator": "rocm", "gpu": {"vendor": "amd", "runtime": "rocm"}},
            "devic.es/dri-render",
            "server-rocm-v0.4.1",
        ),
        ({"accelerator": "intel"}, "gpu.intel.com/i915", "server-intel-b10820"),
        ({"gpu": {"vendor": "intel"}}, "gpu.intel.com/i915", "server-intel-b10820"),
        (
            {"gpu": {"vendor": "amd", "resourceName": "squat.ai/dri-render"}},
            "squat.ai/dri-render",
            "server-vulkan-v0.5.0",
        ),
        ({"gpu": {"resourceName": "nvidia.com/mig-1g.10gb"}}, "nvidia.com/mig-1g.10gb", "server-cuda-v0.5.0"),
    ],
)
def test_each_vendors_gpus_are_asked_for_by_their_own_name_with_an_image_that_can_use_them(
    hardware: dict[str, Any], resource: str, image: str
) -> None:
    snapshot = world(model={**GGUF, "hardware": hardware}, resources={"gpu": 2})
    assert container(snapshot)["resources"]["limits"] == {resource: "2"}
    assert container(snapshot)["image"] == f"ghcr.io/ggml-org/llama.cpp:{image}"
    taint = {"key": resource, "operator": "Equal", "value": "present", "effect": "NoSchedule"}
    assert pod(snapshot)["spec"]["tolerations"] == [taint]
    assert child(snapshot, "Deployment")["spec"]["strategy"] == {"type": "Recreate"}


def test_the_models_number_of_gpus_goes_before_the_services_and_enabled_asks_for_none() -> None:
    counted = {**GGUF, "hardware": {"gpu": {"count": 4, "tolerationKey": "example.com/gpus"}}}
    snapshot = world(model=counted, resources={"gpu": 1}, tolerations=[{"key": "spot", "operator": "Exists"}])
    assert container(snapshot)["resources"]["limits"] == {"nvidia.com/gpu": "4"}
    assert [toleration["key"] for toleration in pod(snapshot)["spec"]["tolerations"]] == ["example.com/gpus", "spot"]
    enabled = world(model={**GGUF, "hardware": {"accelerator": "cuda", "gpu": {"enabled": True}}})
    assert container(enabled)["image"].endswith(":server-cuda-v0.5.0")
    assert "resources" not in container(enabled)
    assert "tolerations" not in pod(enabled)["spec"]


def test_resources_are_requests_and_disk_is_limited_too() -> None:
    resources = {"cpu": "2000m", "memory": "8Gi", "hostMemory": "64Gi", "ephemeralStorage": "40Gi"}
    assert container(world(resources=resources))["resources"] == {
        "requests": {"cpu": "2", "memory": "64Gi", "ephemeral-storage": "40Gi"},
        "limits": {"ephemeral-storage": "40Gi"},
    }


def test_gpu_memory_is_no_dead_field_but_a_liking_for_nodes_that_have_it() -> None:
    own = {
        "podAffinity": {"x": 1},
        "nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1}]},
    }
    affinity = pod(world(resources={"gpu": 1, "gpuMemory": "24Gi"}, affinity=own))["spec"]["affinity"]
    first, second = affinity["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    assert (affinity["podAffinity"], first) == ({"x": 1}, {"weight": 1})
    assert second["preference"]["matchExpressions"][0]["key"] == "nvidia.com/gpu.memory"
    assert "resources.gpuMemory" in unused(resources={"gpuMemory": "24Gi"})


@pytest.mark.parametrize(
    ("runtime", "paths"),
    [
        ("sglang", ["/health_generate", "/health_generate", "/health"]),
        ("vllm", ["/health", "/health", "/health"]),
    ],
)
def test_sglang_is_ready_when_it_generates_and_alive_when_it_answers(runtime: str, paths: list[str]) -> None:
    engine_container = container(world(runtime=runtime, model=HUB))
    probe_paths = (
        engine_container[probe]["httpGet"]["path"] for probe in ("startupProbe", "readinessProbe", "livenessProbe")
    )
    assert list(probe_paths) == paths


@pytest.mark.parametrize("runtime", ["generic", "personaplex"])
def test_a_runtime_without_image_is_refused_in_place_of_a_pod_without_one(runtime: str) -> None:
    assert refusal(runtime=runtime, model=NEWEST).reason == "NoImage"
    assert worlds.status(SERVICES, world(runtime=runtime, model=NEWEST), None).status["phase"]
    own = msgspec.structs.replace(world(runtime=runtime, model=NEWEST), settings=Settings(images={runtime: "own:1"}))
    assert container(own)["image"] == "own:1"


@pytest.mark.parametrize("runtime", RUNTIMES)
@pytest.mark.parametrize("port", [{}, {"containerPort": 9999}, {"endpoint": {"port": 7000}}])
def test_the_service_leads_to_the_port_of_its_engine_for_every_pair_of_ports(
    runtime: str, port: dict[str, Any]
) -> None:
    snapshot = world(runtime=runtime, image="own:1", model=NEWEST, **port)
    (service,) = child(snapshot, "Service")["spec"]["ports"]
    (listening,) = container(snapshot)["ports"]
    usual = {"llamacpp": 8080, "vllm": 8000, "tgi": 80, "personaplex": 8998, "generic": 8080, "sglang": 30000}
    expected = port.get("containerPort") or port.get("endpoint", {}).get("port") or usual[runtime]
    assert (service["targetPort"], listening["name"]) == ("http", "http")
    assert listening["containerPort"] == expected
    assert service["port"] == port.get("endpoint", {}).get("port", 8080)
    assert runtime == "generic" or f"--port {expected}" in " ".join(container(snapshot)["args"])


def test_the_service_has_the_type_and_the_node_port_that_it_is_given() -> None:
    service = child(world(endpoint={"port": 80, "type": "NodePort", "nodePort": 30080}), "Service")["spec"]
    assert (service["type"], service["ports"][0]["nodePort"]) == ("NodePort", 30080)
    spec = {"endpoint": {"nodePort": 30080}}
    assert "nodePort" not in child(world(**spec), "Service")["spec"]["ports"][0]
    assert "endpoint.nodePort" in unused(**spec)


@pytest.mark.parametrize(
    ("name", "service"),
    [("chat", "chat"), ("qwen2.5-7b", "qwen2-5-7b"), ("7b-chat", None), ("a" * 63, "a" * 63), ("a" * 64, None)],
)
def test_names_are_the_originals_wherever_kubernetes_takes_them(name: str, service: str | None) -> None:
    actual = service_name(name)
    assert actual == (service or actual)
    assert actual[0].isalpha()
    assert len(actual) <= 63
    assert set(actual) <= set("abcdefghijklmnopqrstuvwxyz0123456789-")
    assert len(workload_name(name)) <= 63


def test_the_selector_stays_when_the_model_changes() -> None:
    deployment = child(world(), "Deployment")
    assert deployment["spec"]["selector"]["matchLabels"] == {"app": "chat", "inference.llmkube.dev/service": "chat"}
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    assert labels["inference.llmkube.dev/model"] == "tiny"
    assert labels["inference.llmkube.dev/runtime"] == "llamacpp"


def test_labels_of_the_operator_win_and_annotations_of_the_user() -> None:
    mine = {"app": "mine", "team": "search", "app.kubernetes.io/managed-by": "me"}
    annotations = {"karpenter.sh/do-not-disrupt": "false", "cost": "1"}
    metadata = pod(world(podLabels=mine, podAnnotations=annotations, evictionProtection=True))["metadata"]
    assert metadata["labels"]["app"] == "chat"
    assert metadata["labels"]["team"] == "search"
    assert metadata["labels"]["app.kubernetes.io/managed-by"] == "slipway"
    assert metadata["annotations"]["karpenter.sh/do-not-disrupt"] == "false"
    assert metadata["annotations"]["cluster-autoscaler.kubernetes.io/safe-to-evict"] == "false"


def test_every_service_is_on_the_gateway_by_its_name_without_secrets_in_its_source() -> None:
    snapshot = world(model={"source": "https://user:secret@models.example/tiny.gguf?sig=secret"}, mode="rerank")
    annotations = child(snapshot, "Service")["metadata"]["annotations"]
    route = msgspec.json.decode(annotations["slipway.inference/route"], type=Route)
    assert (route.models, route.features, route.scale) == (("chat",), ("Reranking",), None)
    assert "secret" not in annotations["slipway.inference/route"]


@pytest.mark.parametrize("gpus", [0, 1])
def test_pods_are_scheduled_as_configured_with_and_without_gpus(gpus: int) -> None:
    fields: dict[str, Any] = {
        "nodeSelector": {"disk": "ssd"},
        "affinity": {"nodeAffinity": {"x": 1}},
        "topologySpreadConstraints": [{"maxSkew": 1}],
        "runtimeClassName": "gvisor",
    }
    spread = {"tolerations": [{"key": "spot", "operator": "Exists"}]}
    spec = pod(world(resources={"gpu": gpus}, imagePullSecrets=[{"name": "registry"}], **fields, **spread))["spec"]
    assert {field: spec[field] for field in fields} == fields
    assert spread["tolerations"][0] in spec["tolerations"]
    assert spec["imagePullSecrets"] == [{"name": "registry"}]


def test_security_contexts_are_restricted_unless_they_are_replaced() -> None:
    usual = world()
    assert pod(usual)["spec"]["securityContext"]["fsGroup"] == 102
    assert pod(usual)["spec"]["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container(usual)["securityContext"] == {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    snapshot = world(podSecurityContext={"fsGroup": 1}, securityContext={"privileged": False})
    own = msgspec.structs.replace(snapshot, settings=Settings(authors=worlds.UPSTREAM))
    assert pod(own)["spec"]["securityContext"] == {"fsGroup": 1, "seccompProfile": {"type": "RuntimeDefault"}}
    assert container(own)["securityContext"] == {"privileged": False}


def test_a_runtime_that_listens_on_a_port_of_root_may_do_so() -> None:
    capabilities = container(world(runtime="tgi", model=HUB))["securityContext"]["capabilities"]
    assert capabilities == {"drop": ["ALL"], "add": ["NET_BIND_SERVICE"]}


@pytest.mark.parametrize(
    ("runtime", "probe", "failures"),
    [
        ("llamacpp", HEALTH, 40),
        ("llamacpp-router", HEALTH, 40),
        ("vllm", HEALTH, 3),
        ("tgi", HEALTH, 3),
        ("personaplex", CONNECTS, 3),
        ("generic", CONNECTS, 3),
    ],
)
def test_probes_are_the_runtimes_unless_they_are_replaced(runtime: str, probe: dict[str, Any], failures: int) -> None:
    spec = {"runtime": runtime, "image": "own:1", "model": NEWEST}
    engine_container = container(world(**spec))
    assert all(
        probe.items() <= engine_container[field].items()
        for field in ("startupProbe", "livenessProbe", "readinessProbe")
    )
    assert engine_container["livenessProbe"]["failureThreshold"] == failures
    assert (
        engine_container["startupProbe"]["periodSeconds"] * engine_container["startupProbe"]["failureThreshold"] == 1800
    )
    own = {"exec": {"command": ["true"]}, "failureThreshold": 90}
    replaced = world(**spec, probeOverrides={"startup": own, "liveness": own})
    bound = {**own, "terminationGracePeriodSeconds": 30}
    assert container(replaced)["startupProbe"] == container(replaced)["livenessProbe"] == bound
    assert container(replaced)["readinessProbe"] == engine_container["readinessProbe"]
    assert child(replaced, "Deployment")["spec"]["progressDeadlineSeconds"] == 900 + 60


def test_the_users_variables_come_last_and_win() -> None:
    snapshot = world(**VLLM, env=[{"name": "HF_TOKEN", "value": "mine"}, {"name": "A", "value": "1"}])
    assert [variable["name"] for variable in container(snapshot)["env"]] == ["HF_TOKEN", "A"]


def test_further_volumes_are_mounted_beside_ours() -> None:
    volume, mount = (
        {"name": "kernels", "emptyDir": {}},
        {"name": "kernels", "mountPath": "/k", "mountPropagation": "None"},
    )
    snapshot = world(extraVolumes=[volume], extraVolumeMounts=[mount])
    assert pod(snapshot)["spec"]["volumes"][-1] == volume
    assert container(snapshot)["volumeMounts"][-1] == mount


def test_shared_memory_of_the_users_own_is_the_only_one() -> None:
    volume = {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "8Gi"}}
    snapshot = world(**VLLM, extraVolumes=[volume], extraVolumeMounts=[{"name": "shm", "mountPath": "/dev/shm"}])
    assert pod(snapshot)["spec"]["volumes"] == [volume]
    assert [mount["name"] for mount in container(snapshot)["volumeMounts"]] == ["shm"]


@pytest.mark.parametrize(
    ("images", "spec", "image"),
    [
        ({"llamacpp": "own:cpu"}, {}, "own:cpu"),
        ({"llamacpp": "own:cpu"}, ONE_GPU, "ghcr.io/ggml-org/llama.cpp:server-cuda-v0.5.0"),
        ({"llamacpp": "own:cpu", "llamacpp-cuda": "own:cuda"}, ONE_GPU, "own:cuda"),
        ({"vllm": "own:vllm"}, {**VLLM, **ONE_GPU}, "own:vllm"),
        ({"generic": "own:generic"}, {"runtime": "generic", **ONE_GPU}, "own:generic"),
        ({"llamacpp": "own:cpu"}, {"image": "mine:1"}, "mine:1"),
    ],
)
def test_the_operators_images_go_before_the_public_ones(
    images: dict[str, str], spec: dict[str, Any], image: str
) -> None:
    snapshot = msgspec.structs.replace(world(**spec), settings=Settings(images=images))
    assert container(snapshot)["image"] == image


def test_no_runtime_gets_variables_of_other_services() -> None:
    assert all(
        pod(world(runtime=runtime, image="own:1", model=NEWEST))["spec"]["enableServiceLinks"] is False
        for runtime in RUNTIMES
    )
