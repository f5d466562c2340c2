"""What an InferenceService becomes: a test for each row of the table of fields, and for faults that upstream has."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from slipway.apis.llmkube.model_types import KIND as MODEL
from slipway.apis.llmkube.pods import service_name, workload_name
from slipway.apis.llmkube.service import Services
from slipway.serving.plan import Invalid, Plan, Reference, World
from slipway.serving.route import Route
from slipway.serving.settings import ModelCache, Settings

SINCE = "2026-11-21T09:00:00Z"
GGUF = {"source": "https://models.example/tiny.gguf"}
HUB = {"source": "acme/tiny@v2", "format": "safetensors"}
ONE_GPU = {"resources": {"gpu": 1}}
READY = {"phase": "Ready", "observedGeneration": 1}
VLLM = {"runtime": "vllm", "model": HUB}
RUNTIMES = ("llamacpp", "vllm", "tgi", "personaplex", "generic", "sglang")


def model(name: str, spec: dict[str, Any], status: dict[str, Any] | None = None) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "models", "uid": f"m-{name}", "generation": 1, "creationTimestamp": SINCE}
    return {"kind": "Model", "metadata": metadata, "spec": spec, "status": READY if status is None else status}


def world(*others: dict[str, Any], name: str = "chat", model: dict[str, Any] = GGUF, **spec: Any) -> World:
    """A service over the Model ``tiny``; ``others``: further Models, and Models of this name in place of it."""
    metadata = {"name": name, "namespace": "models", "uid": "s-1", "generation": 1, "creationTimestamp": SINCE}
    models = {one["metadata"]["name"]: one for one in (tiny(model), *others)}
    return World(
        resource={"metadata": metadata, "spec": {"modelRef": "tiny"} | spec},
        children={},
        pods=[],
        routed=[],
        settings=Settings(),
        now=1_795_252_000.0,
        referenced={Reference(MODEL, "models", one): found for one, found in models.items()},
    )


def tiny(spec: dict[str, Any]) -> dict[str, Any]:
    return model("tiny", spec)


def plan(asked: World) -> Plan:
    return Services().plan(asked)


def child(asked: World, kind: str) -> dict[str, Any]:
    return next(made for made in plan(asked).children if made["kind"] == kind)


def kinds(asked: World) -> list[str]:
    return [made["kind"] for made in plan(asked).children]


def pod(asked: World) -> dict[str, Any]:
    made: dict[str, Any] = child(asked, "Deployment")["spec"]["template"]
    return made


def container(asked: World) -> dict[str, Any]:
    made: dict[str, Any] = pod(asked)["spec"]["containers"][0]
    return made


def line(*others: dict[str, Any], **spec: Any) -> str:
    """The command line, one blank between words."""
    return " ".join(container(world(*others, **spec)).get("args", []))


def refusal(*others: dict[str, Any], **spec: Any) -> Invalid:
    with pytest.raises(Invalid) as refused:
        plan(world(*others, **spec))
    return refused.value


def unused(**spec: Any) -> str:
    conditions = Services().status(world(**spec), None).status["conditions"]
    found = next(condition for condition in conditions if condition["type"] == "FieldsUsed")
    return "" if found["status"] == "True" else str(found["message"])


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"contextSize": 4096}, "--ctx-size 4096"),
        ({"parallelSlots": 4}, "--parallel 4"),
        ({"jinja": True}, "--jinja"),
        ({"cacheTypeK": "q8_0"}, "--cache-type-k q8_0"),
        ({"cacheTypeV": "q4_0"}, "--cache-type-v q4_0"),
        ({"cacheTypeK": "q8_0", "cacheTypeCustomK": "turbo3"}, "--cache-type-k turbo3"),
        ({"moeCPUOffload": True}, "--cpu-moe"),
        ({"moeCPULayers": 7}, "--n-cpu-moe 7"),
        ({"noKvOffload": True}, "--no-kv-offload"),
        ({"noWarmup": True}, "--no-warmup"),
        ({"reasoningBudget": 0}, "--reasoning-budget 0"),
        ({"reasoningBudget": 9, "reasoningBudgetMessage": "Stop."}, "--reasoning-budget-message Stop."),
        ({"metadataOverrides": ["a=int:1", "b=bool:true"]}, "--override-kv a=int:1 --override-kv b=bool:true"),
        ({"tensorOverrides": ["exps=CPU", "x=CUDA0"]}, "--override-tensor exps=CPU --override-tensor x=CUDA0"),
        ({"batchSize": 512}, "--batch-size 512"),
        ({"uBatchSize": 64}, "--ubatch-size 64"),
        ({"ropeScaling": {"type": "yarn", "factor": "2.5"}}, "--rope-scaling yarn --rope-scale 2.5"),
        ({"ropeScaling": {"type": "linear", "originalContext": 2048}}, "--rope-scaling linear --yarn-orig-ctx 2048"),
        ({"flashAttention": True, **ONE_GPU}, "--flash-attn on"),
        (ONE_GPU, "--n-gpu-layers 99"),
        ({"bindAddress": "::"}, "--host ::"),
        ({"containerPort": 9000, "endpoint": {"port": 80}}, "--port 9000"),
        ({"endpoint": {"port": 8081}}, "--port 8081"),
        ({"mode": "embedding"}, "--embedding --pooling last --cache-ram 0"),
        ({"mode": "rerank"}, "--reranking --embedding --pooling rank --cache-ram 0"),
        ({"extraArgs": ["--seed", "42"]}, "--seed 42"),
        ({}, "--alias chat"),
        ({}, "--metrics"),
    ],
)
def test_llama_cpp_is_told_each_field(spec: dict[str, Any], words: str) -> None:
    assert f" {words} " in f" {line(**spec)} "


@pytest.mark.parametrize(
    ("spec", "flag"),
    [
        ({"jinja": False, "moeCPUOffload": False, "noKvOffload": False, "noWarmup": False}, "--jinja"),
        ({"moeCPULayers": 0}, "--n-cpu-moe"),
        ({"reasoningBudgetMessage": "Stop."}, "--reasoning-budget-message"),
        ({"flashAttention": True}, "--flash-attn"),
        ({}, "--n-gpu-layers"),
        (ONE_GPU, "--split-mode"),
        ({"mode": "chat"}, "--pooling"),
        ({"ropeScaling": {"type": "yarn", "factor": "2"}, "extraArgs": ["--rope-scaling", "none"]}, "--rope-scale "),
    ],
)
def test_llama_cpp_is_not_told_what_means_nothing(spec: dict[str, Any], flag: str) -> None:
    assert flag not in line(**spec)


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"parallelSlots": 16}, "--max-num-seqs 16"),
        ({"vllmConfig": {"tensorParallelSize": 2}, "resources": {"gpu": 4}}, "--tensor-parallel-size 2"),
        ({"resources": {"gpu": 4}}, "--tensor-parallel-size 4"),
        ({"vllmConfig": {"maxModelLen": 4096}}, "--max-model-len 4096"),
        ({"vllmConfig": {"quantization": "nvfp4"}}, "--quantization nvfp4"),
        ({"vllmConfig": {"dtype": "float16"}}, "--dtype float16"),
        ({"vllmConfig": {"kvCacheDtype": "fp8_e4m3"}}, "--kv-cache-dtype fp8_e4m3"),
        ({"vllmConfig": {"kvCacheDtype": "fp8_e4m3", "kvCacheCustomDtype": "turbo2"}}, "--kv-cache-dtype turbo2"),
        ({"vllmConfig": {"enablePrefixCaching": True}}, "--enable-prefix-caching"),
        ({"vllmConfig": {"enableChunkedPrefill": True}}, "--enable-chunked-prefill"),
        ({"vllmConfig": {"enableExpertParallel": True}}, "--enable-expert-parallel"),
        ({"vllmConfig": {"maxNumBatchedTokens": 4096}}, "--max-num-batched-tokens 4096"),
        ({"vllmConfig": {"attentionBackend": "FLASHINFER"}}, "--attention-backend FLASHINFER"),
        ({"vllmConfig": {"cpuOffloadGB": 4}, **ONE_GPU}, "--cpu-offload-gb 4"),
        ({"vllmConfig": {"gpuMemoryUtilization": 0.95}, **ONE_GPU}, "--gpu-memory-utilization 0.95"),
        ({"extraArgs": ["--seed", "1"]}, "--seed 1"),
        ({}, "acme/tiny --revision v2 --host 0.0.0.0 --port 8000 --served-model-name chat acme/tiny"),
    ],
)
def test_vllm_is_told_each_field(spec: dict[str, Any], words: str) -> None:
    assert f" {words} " in f" {line(**VLLM, **spec)} "


@pytest.mark.parametrize(
    ("config", "flag"),
    [
        ({"kvCacheDtype": "auto"}, "--kv-cache-dtype"),
        ({"enablePrefixCaching": False}, "prefix-caching"),
        ({"tensorParallelSize": 1}, "--tensor-parallel-size"),
        ({"cpuOffloadGB": 4}, "--cpu-offload-gb"),
        ({"gpuMemoryUtilization": 0.9}, "--gpu-memory-utilization"),
        ({"speculative": {"enabled": False, "model": "draft"}}, "speculative"),
    ],
)
def test_vllm_is_not_told_what_means_nothing(config: dict[str, Any], flag: str) -> None:
    assert flag not in line(**VLLM, vllmConfig=config)


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"tgiConfig": {"quantize": "awq"}}, "--quantize awq"),
        ({"tgiConfig": {"maxInputLength": 100}}, "--max-input-length 100"),
        ({"tgiConfig": {"maxTotalTokens": 200}}, "--max-total-tokens 200"),
        ({"tgiConfig": {"dtype": "bfloat16"}}, "--dtype bfloat16"),
        ({"resources": {"gpu": 2}}, "--num-shard 2"),
        ({}, "--model-id acme/tiny --revision v2 --hostname 0.0.0.0 --port 80"),
    ],
)
def test_tgi_is_told_each_field(spec: dict[str, Any], words: str) -> None:
    assert f" {words} " in f" {line(runtime='tgi', model=HUB, **spec)} "


def test_personaplex_and_generic_are_told_their_fields() -> None:
    own = {"personaPlexConfig": {"quantize4Bit": True, "cpuOffload": True}, "image": "own:1"}
    assert line(runtime="personaplex", model=HUB, **own) == (
        "--ssl /app/ssl --port 8998 --hf-repo acme/tiny --quantize-4bit --cpu-offload"
    )
    asked = world(runtime="generic", image="own:1", command=["serve"], args=["--all", "mine"])
    assert (container(asked)["command"], container(asked)["args"]) == (["serve"], ["--all", "mine"])


@pytest.mark.parametrize("flag", ["--parallel", "-np", "--parallel=3"])
def test_a_flag_of_the_users_own_is_not_set_twice(flag: str) -> None:
    words = line(parallelSlots=4, extraArgs=[flag, "3"])
    assert "--parallel 4" not in words
    assert f"parallelSlots (extraArgs has {flag.partition('=')[0]})" in unused(parallelSlots=4, extraArgs=[flag, "3"])


def test_typed_fields_come_before_the_users_arguments_in_an_order_that_stays() -> None:
    fields = {"jinja": True, "contextSize": 4096, "batchSize": 8, "extraArgs": ["--seed", "1"]}
    turned = dict(reversed(fields.items()))
    assert line(**fields) == line(**turned)
    assert line(**fields).endswith("--ctx-size 4096 --jinja --batch-size 8 --seed 1 --metrics")


@pytest.mark.parametrize(
    ("gpu", "gpus", "words"),
    [
        ({}, 2, "--split-mode layer --tensor-split 1,1"),
        ({}, 8, "--split-mode layer --tensor-split 1,1,1,1,1,1,1,1"),
        ({"sharding": {"strategy": "tensor"}}, 2, "--split-mode row --tensor-split 1,1"),
        ({"sharding": {"strategy": "pipeline"}}, 2, "--split-mode layer"),
        ({"sharding": {"strategy": "none"}}, 2, "--split-mode none"),
        ({"sharding": {"layerSplit": ["0-24", "25-39"]}}, 2, "--tensor-split 5,3"),
        ({"sharding": {"layerSplit": ["0-9", "10-19", "20-39"]}}, 3, "--tensor-split 1,1,2"),
        ({"sharding": {"layerSplit": ["0-24"]}}, 2, "--tensor-split 1,1"),
        ({"sharding": {"layerSplit": ["0-24", "x"]}}, 2, "--tensor-split 1,1"),
        ({"sharding": {"layerSplit": ["24-0", "25-39"]}}, 2, "--tensor-split 1,1"),
        ({"layers": 20}, 1, "--n-gpu-layers 20"),
        ({"layers": -1}, 1, "--n-gpu-layers 99"),
    ],
)
def test_layers_are_spread_over_gpus(gpu: dict[str, Any], gpus: int, words: str) -> None:
    spec = {**GGUF, "hardware": {"accelerator": "cuda", "gpu": {"count": gpus, **gpu}}}
    assert f" {words} " in f" {line(model=spec)} "


@pytest.mark.parametrize(
    ("hardware", "resource", "image"),
    [
        ({"accelerator": "cuda"}, "nvidia.com/gpu", "server-cuda"),
        ({"gpu": {"vendor": "amd"}}, "amd.com/gpu", "server-rocm"),
        ({"accelerator": "rocm", "gpu": {"vendor": "nvidia"}}, "amd.com/gpu", "server-rocm"),
        ({"gpu": {"vendor": "amd", "runtime": "vulkan"}}, "devic.es/dri-render", "server-vulkan"),
        ({"accelerator": "rocm", "gpu": {"vendor": "amd", "runtime": "rocm"}}, "devic.es/dri-render", "server-rocm"),
        ({"accelerator": "intel"}, "gpu.intel.com/i915", "server-intel"),
        ({"gpu": {"vendor": "intel"}}, "gpu.intel.com/i915", "server-intel"),
        ({"gpu": {"vendor": "amd", "resourceName": "squat.ai/dri-render"}}, "squat.ai/dri-render", "server-vulkan"),
        ({"gpu": {"resourceName": "nvidia.com/mig-1g.10gb"}}, "nvidia.com/mig-1g.10gb", "server-cuda"),
    ],
)
def test_each_vendors_gpus_are_asked_for_by_their_own_name_with_an_image_that_can_use_them(
    hardware: dict[str, Any], resource: str, image: str
) -> None:
    asked = world(model={**GGUF, "hardware": hardware}, resources={"gpu": 2})
    assert container(asked)["resources"]["limits"] == {resource: "2"}
    assert container(asked)["image"] == f"ghcr.io/ggml-org/llama.cpp:{image}"
    taint = {"key": resource, "operator": "Equal", "value": "present", "effect": "NoSchedule"}
    assert pod(asked)["spec"]["tolerations"] == [taint]
    assert child(asked, "Deployment")["spec"]["strategy"] == {"type": "Recreate"}


def test_the_models_number_of_gpus_goes_before_the_services_and_enabled_asks_for_none() -> None:
    counted = {**GGUF, "hardware": {"gpu": {"count": 4, "tolerationKey": "example.com/gpus"}}}
    asked = world(model=counted, resources={"gpu": 1}, tolerations=[{"key": "spot", "operator": "Exists"}])
    assert container(asked)["resources"]["limits"] == {"nvidia.com/gpu": "4"}
    assert [toleration["key"] for toleration in pod(asked)["spec"]["tolerations"]] == ["example.com/gpus", "spot"]
    enabled = world(model={**GGUF, "hardware": {"accelerator": "cuda", "gpu": {"enabled": True}}})
    assert "resources" not in container(enabled)
    assert "tolerations" not in pod(enabled)["spec"]


def test_resources_are_requests_and_disk_is_limited_too() -> None:
    asked = {"cpu": "2000m", "memory": "8Gi", "hostMemory": "64Gi", "ephemeralStorage": "40Gi"}
    assert container(world(resources=asked))["resources"] == {
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
    "spec",
    [
        {"resources": {"cpu": "two"}},
        {"resources": {"memory": "8GiB"}},
        {"resources": {"memory": "1e99"}},
        {"resources": {"gpu": 1, "gpuMemory": "24 GB"}},
        {"resources": {"gpu": 1, "gpuMemory": "1e99"}},
        {"resources": {"ephemeralStorage": "-1"}},
        {"autoscaling": {"maxReplicas": 2, "metrics": [{"type": "Pods", "name": "x", "targetAverageValue": "many"}]}},
        {"autoscaling": {"maxReplicas": 2, "metrics": [{"type": "Pods", "name": "x"}]}},
        {"autoscaling": {"maxReplicas": 2, "metrics": [{"type": "Resource", "name": "cpu"}]}},
        {"autoscaling": {"maxReplicas": 1, "minReplicas": 2}},
        {"extraArgs": ["--port", "9"]},
        {"extraArgs": ["--host", "127.0.0.1"]},
        {"contextSize": "many"},
        {"runtime": "vllm", "vllmConfig": {"tensorParallelSize": 2}},
        {"runtime": "vllm", "vllmConfig": {"tensorParallelSize": 4}, "resources": {"gpu": 2}},
        {"model": HUB},
        {"runtime": "vllm", "skipModelInit": True},
    ],
)
def test_what_cannot_work_is_refused_and_crashes_nothing(spec: dict[str, Any]) -> None:
    refused = refusal(**spec)
    assert refused.reason == "InvalidSpec"
    status = Services().status(world(**spec), None).status
    assert status["conditions"][0]["type"] == "Accepted"


@pytest.mark.parametrize("runtime", ["generic", "personaplex"])
def test_a_runtime_without_image_is_refused_in_place_of_a_pod_without_one(runtime: str) -> None:
    assert refusal(runtime=runtime, model=HUB).reason == "NoImage"
    assert Services().status(world(runtime=runtime, model=HUB), None).status["phase"]
    own = msgspec.structs.replace(world(runtime=runtime, model=HUB), settings=Settings(images={runtime: "own:1"}))
    assert container(own)["image"] == "own:1"


@pytest.mark.parametrize("runtime", RUNTIMES)
@pytest.mark.parametrize("port", [{}, {"containerPort": 9999}, {"endpoint": {"port": 7000}}])
def test_the_services_port_leads_to_the_engines_whatever_both_are(runtime: str, port: dict[str, Any]) -> None:
    asked = world(runtime=runtime, image="own:1", model={**HUB, "source": "acme/tiny"}, **port)
    (service,) = child(asked, "Service")["spec"]["ports"]
    (listening,) = container(asked)["ports"]
    usual = {"llamacpp": 8080, "vllm": 8000, "tgi": 80, "personaplex": 8998, "generic": 8080, "sglang": 30000}
    expected = port.get("containerPort") or port.get("endpoint", {}).get("port") or usual[runtime]
    assert (service["targetPort"], listening["name"]) == ("http", "http")
    assert listening["containerPort"] == expected
    assert service["port"] == port.get("endpoint", {}).get("port", 8080)
    assert runtime == "generic" or f"--port {expected}" in " ".join(container(asked)["args"])


def test_the_service_has_the_type_and_the_node_port_that_it_is_given() -> None:
    service = child(world(endpoint={"port": 80, "type": "NodePort", "nodePort": 30080}), "Service")["spec"]
    assert (service["type"], service["ports"][0]["nodePort"]) == ("NodePort", 30080)
    asked = {"endpoint": {"nodePort": 30080}}
    assert "nodePort" not in child(world(**asked), "Service")["spec"]["ports"][0]
    assert "endpoint.nodePort" in unused(**asked)


@pytest.mark.parametrize(
    ("name", "service"),
    [("chat", "chat"), ("qwen2.5-7b", "qwen2-5-7b"), ("7b-chat", None), ("a" * 63, "a" * 63), ("a" * 64, None)],
)
def test_names_are_the_originals_wherever_kubernetes_takes_them(name: str, service: str | None) -> None:
    made = service_name(name)
    assert made == (service or made)
    assert made[0].isalpha()
    assert len(made) <= 63
    assert set(made) <= set("abcdefghijklmnopqrstuvwxyz0123456789-")
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
    asked = world(model={"source": "https://user:secret@models.example/tiny.gguf?sig=secret"}, mode="rerank")
    annotations = child(asked, "Service")["metadata"]["annotations"]
    route = msgspec.json.decode(annotations["slipway.inference/route"], type=Route)
    assert (route.models, route.features, route.scale) == (("chat",), ("Reranking",), None)
    assert "secret" not in annotations["slipway.inference/route"]


@pytest.mark.parametrize("gpus", [0, 1])
def test_pods_go_where_they_are_told_with_and_without_gpus(gpus: int) -> None:
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
    own = world(podSecurityContext={"fsGroup": 1}, securityContext={"privileged": False})
    assert pod(own)["spec"]["securityContext"] == {"fsGroup": 1}
    assert container(own)["securityContext"] == {"privileged": False}


def test_a_runtime_that_listens_on_a_port_of_root_may_do_so() -> None:
    capabilities = container(world(runtime="tgi", model=HUB))["securityContext"]["capabilities"]
    assert capabilities == {"drop": ["ALL"], "add": ["NET_BIND_SERVICE"]}


@pytest.mark.parametrize(
    ("runtime", "probe"),
    [
        ("llamacpp", {"httpGet": {"path": "/health", "port": "http"}}),
        ("vllm", {"httpGet": {"path": "/health", "port": "http"}}),
        ("tgi", {"httpGet": {"path": "/health", "port": "http"}}),
        ("personaplex", {"tcpSocket": {"port": "http"}}),
        ("generic", {"tcpSocket": {"port": "http"}}),
    ],
)
def test_probes_are_the_runtimes_unless_they_are_replaced(runtime: str, probe: dict[str, Any]) -> None:
    asked = {"runtime": runtime, "image": "own:1", "model": {**HUB, "source": "acme/tiny"}}
    made = container(world(**asked))
    assert all(probe.items() <= made[field].items() for field in ("startupProbe", "livenessProbe", "readinessProbe"))
    assert made["startupProbe"]["periodSeconds"] * made["startupProbe"]["failureThreshold"] == 1800
    own = {"exec": {"command": ["true"]}, "failureThreshold": 90}
    replaced = world(**asked, probeOverrides={"startup": own, "liveness": own})
    assert container(replaced)["startupProbe"] == container(replaced)["livenessProbe"] == own
    assert container(replaced)["readinessProbe"] == made["readinessProbe"]
    assert child(replaced, "Deployment")["spec"]["progressDeadlineSeconds"] == 900 + 60


def test_the_users_variables_come_last_and_win() -> None:
    asked = world(**VLLM, env=[{"name": "HF_TOKEN", "value": "mine"}, {"name": "A", "value": "1"}])
    assert [variable["name"] for variable in container(asked)["env"]] == ["HF_TOKEN", "A"]


@pytest.mark.parametrize(
    ("runtime", "block", "variable"),
    [
        ("vllm", "vllmConfig", "HF_TOKEN"),
        ("tgi", "tgiConfig", "HUGGING_FACE_HUB_TOKEN"),
        ("personaplex", "personaPlexConfig", "HF_TOKEN"),
    ],
)
def test_the_hubs_token_has_the_name_that_the_runtime_reads(runtime: str, block: str, variable: str) -> None:
    secret = {"name": "hf", "key": "token"}
    asked = world(runtime=runtime, image="own:1", model=HUB, **{block: {"hfTokenSecretRef": secret}})
    assert {"name": variable, "valueFrom": {"secretKeyRef": secret}} in container(asked)["env"]


def test_a_secret_of_the_model_opens_gated_repositories_for_an_engine_that_fetches_them() -> None:
    asked = world(runtime="vllm", model={**HUB, "sourceSecretRef": {"name": "gated"}})
    (token,) = container(asked)["env"]
    assert token["valueFrom"]["secretKeyRef"] == {"name": "gated", "key": "HF_TOKEN", "optional": True}


def test_speculative_decoding_names_the_draft_models_path_and_never_its_resource() -> None:
    spec = {"speculative": {"enabled": True, "model": "draft", "numSpeculativeTokens": 3}}
    draft = model("draft", {"source": "s3://models/draft", "format": "safetensors"}, READY | {"path": "/models/ab"})
    args = container(world(draft, **VLLM, vllmConfig=spec))["args"]
    told = json.loads(args[args.index("--speculative-config") + 1])
    assert told == {"model": "/models/ab", "num_speculative_tokens": 3}
    assert "--speculative-model" not in args
    claimed = model("draft", {"source": "pvc://small/draft", "format": "safetensors"})
    asked = world(claimed, runtime="vllm", model={**HUB, "source": "pvc://large/big"}, vllmConfig=spec)
    mounts = {mount["mountPath"]: mount["name"] for mount in container(asked)["volumeMounts"]}
    volumes = {volume["name"]: volume for volume in pod(asked)["spec"]["volumes"]}
    assert volumes[mounts["/draft-source"]]["persistentVolumeClaim"]["claimName"] == "small"
    assert volumes[mounts["/model-source"]]["persistentVolumeClaim"]["claimName"] == "large"


def test_a_name_of_the_users_own_is_one_more_name_of_a_model_of_vllm() -> None:
    args = line(**VLLM, extraArgs=["--served-model-name", "mine", "ours", "--seed", "1"])
    assert args.endswith("--seed 1 --served-model-name chat acme/tiny mine ours")
    assert line(**VLLM, extraArgs=["--served_model_name=mine"]).endswith("--served-model-name chat acme/tiny mine")


def test_weights_come_from_the_cache_read_only() -> None:
    asked = world(tiny_at("/models/ab12/tiny.gguf"))
    assert container(asked)["volumeMounts"] == [{"name": "model-cache", "mountPath": "/models", "readOnly": True}]
    assert pod(asked)["spec"]["volumes"][0]["persistentVolumeClaim"] == {"claimName": "llmkube-model-cache"}
    assert "initContainers" not in pod(asked)["spec"]
    assert container(asked)["args"][:2] == ["--model", "/models/ab12/tiny.gguf"]


def tiny_at(path: str) -> dict[str, Any]:
    return model("tiny", GGUF, READY | {"path": path})


@pytest.mark.parametrize(
    ("spec", "volume"),
    [
        ({"modelCache": {"persistence": "Ephemeral"}, "resources": {"ephemeralStorage": "9Gi"}}, "model-storage"),
        ({"modelCache": {"claimName": "mine"}}, "model-cache"),
    ],
)
def test_pods_load_weights_themselves_where_they_are_told_to(spec: dict[str, Any], volume: str) -> None:
    asked = world(model("tiny", GGUF, {}), **spec)
    (loader,) = pod(asked)["spec"]["initContainers"]
    assert loader["name"] == "model-downloader"
    assert loader["volumeMounts"] == [{"name": volume, "mountPath": "/models"}]
    (found,) = pod(asked)["spec"]["volumes"]
    kept = {"persistentVolumeClaim": {"claimName": "mine"}} if volume == "model-cache" else {}
    assert found == {"name": volume, **(kept or {"emptyDir": {"sizeLimit": "9Gi"}})}


def test_the_operator_may_have_no_cache_at_all() -> None:
    settings = Settings(model_cache=ModelCache(persistence="Ephemeral"))
    asked = msgspec.structs.replace(world(model("tiny", GGUF, {})), settings=settings)
    assert [one["name"] for one in pod(asked)["spec"]["initContainers"]] == ["model-downloader"]
    wish = world(model("tiny", GGUF, {}), modelCache={"persistence": "Cached"})
    conditions = Services().status(msgspec.structs.replace(wish, settings=settings), None).status["conditions"]
    assert any("modelCache.persistence" in condition["message"] for condition in conditions)


def test_a_claim_that_the_model_names_is_read_where_it_is() -> None:
    asked = world(model={"source": "pvc://weights/llama/tiny.gguf"}, modelCache={"claimName": "mine"})
    assert container(asked)["args"][1] == "/model-source/llama/tiny.gguf"
    assert "initContainers" not in pod(asked)["spec"]
    assert "modelCache (" in unused(model={"source": "pvc://weights/x.gguf"}, modelCache={"claimName": "mine"})


@pytest.mark.parametrize(
    ("source", "runtime", "words"),
    [
        ("https://models.example/x.gguf", "llamacpp", "--host"),
        ("/opt/x.gguf", "llamacpp", "--model /opt/x.gguf --host"),
        ("file:///opt/model", "tgi", "--model-id /opt/model"),
        ("acme/tiny", "vllm", "acme/tiny --host"),
        ("acme/tiny-GGUF", "llamacpp", "--hf-repo acme/tiny-GGUF --host"),
    ],
)
def test_without_model_init_the_engine_sees_to_its_weights(source: str, runtime: str, words: str) -> None:
    asked = world(model={"source": source}, runtime=runtime, skipModelInit=True)
    assert " ".join(container(asked)["args"]).startswith(words)
    volumes = [volume["name"] for volume in pod(asked)["spec"].get("volumes", [])]
    assert set(volumes) <= {"dshm", "downloads"}
    assert "initContainers" not in pod(asked)["spec"]


@pytest.mark.parametrize(
    ("told", "repository"), [("Q8_0", "acme/tiny:Q8_0"), ("4 bits", "acme/tiny"), ("", "acme/tiny")]
)
def test_llama_cpp_fetches_the_file_of_the_models_quantization(told: str, repository: str) -> None:
    assert f"--hf-repo {repository} " in line(model={"source": "acme/tiny", "quantization": told})


def test_a_projector_lies_beside_its_model() -> None:
    spec = {"source": "acme/vision-GGUF", "files": ["q4/a-00001.gguf", "q4/a-00002.gguf"], "mmproj": "mmproj.gguf"}
    words = line(model=spec).split()
    path, projector = words[words.index("--model") + 1], words[words.index("--mmproj") + 1]
    assert path.endswith("/q4/a-00001.gguf")
    assert projector == f"{path.removesuffix('/q4/a-00001.gguf')}/mmproj.gguf"


def test_engines_that_take_folders_are_given_the_folder_of_a_set_of_files() -> None:
    spec = {"source": "acme/big", "format": "safetensors", "files": ["model-1.safetensors", "model-2.safetensors"]}
    assert line(runtime="vllm", model=spec).split()[0].count("/") == 2


def test_further_volumes_are_mounted_beside_ours() -> None:
    volume, mount = (
        {"name": "kernels", "emptyDir": {}},
        {"name": "kernels", "mountPath": "/k", "mountPropagation": "None"},
    )
    asked = world(extraVolumes=[volume], extraVolumeMounts=[mount])
    assert pod(asked)["spec"]["volumes"][-1] == volume
    assert container(asked)["volumeMounts"][-1] == mount


def test_shared_memory_of_the_users_own_is_the_only_one() -> None:
    volume = {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "8Gi"}}
    asked = world(**VLLM, extraVolumes=[volume], extraVolumeMounts=[{"name": "shm", "mountPath": "/dev/shm"}])
    assert pod(asked)["spec"]["volumes"] == [volume]
    assert [mount["name"] for mount in container(asked)["volumeMounts"]] == ["shm"]


@pytest.mark.parametrize(
    ("images", "spec", "image"),
    [
        ({"llamacpp": "own:cpu"}, {}, "own:cpu"),
        ({"llamacpp": "own:cpu"}, ONE_GPU, "ghcr.io/ggml-org/llama.cpp:server-cuda"),
        ({"llamacpp": "own:cpu", "llamacpp-cuda": "own:cuda"}, ONE_GPU, "own:cuda"),
        ({"vllm": "own:vllm"}, {**VLLM, **ONE_GPU}, "own:vllm"),
        ({"generic": "own:generic"}, {"runtime": "generic", **ONE_GPU}, "own:generic"),
        ({"llamacpp": "own:cpu"}, {"image": "mine:1"}, "mine:1"),
    ],
)
def test_the_operators_images_go_before_the_public_ones(
    images: dict[str, str], spec: dict[str, Any], image: str
) -> None:
    asked = msgspec.structs.replace(world(**spec), settings=Settings(images=images))
    assert container(asked)["image"] == image


def test_the_history_is_as_long_as_it_is_told() -> None:
    assert child(world(), "Deployment")["spec"]["revisionHistoryLimit"] == 10
    assert child(world(revisionHistoryLimit=0), "Deployment")["spec"]["revisionHistoryLimit"] == 0


def test_pods_without_gpus_are_replaced_one_after_another_in_words_that_can_be_taken_back() -> None:
    strategy = child(world(), "Deployment")["spec"]["strategy"]
    assert strategy == {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}


def test_no_runtime_gets_variables_of_other_services() -> None:
    assert all(
        pod(world(runtime=runtime, image="own:1", model={**HUB, "source": "acme/tiny"}))["spec"]["enableServiceLinks"]
        is False
        for runtime in RUNTIMES
    )


@pytest.mark.parametrize(
    ("runtime", "metric"),
    [
        ("llamacpp", "llamacpp:requests_processing"),
        ("vllm", "vllm:num_requests_running"),
        ("tgi", "tgi_queue_size"),
        ("sglang", "sglang:num_running_reqs"),
        ("personaplex", "llamacpp:requests_processing"),
        ("generic", "llamacpp:requests_processing"),
    ],
)
def test_an_autoscaler_looks_at_the_runtimes_own_requests_and_behaves(runtime: str, metric: str) -> None:
    model = {**HUB, "source": "acme/tiny"}
    asked = world(runtime=runtime, image="own:1", model=model, autoscaling={"maxReplicas": 4})
    spec = child(asked, "HorizontalPodAutoscaler")["spec"]
    assert (spec["minReplicas"], spec["maxReplicas"], spec["scaleTargetRef"]["name"]) == (1, 4, "chat")
    (pods,) = (one["pods"] for one in spec["metrics"])
    assert pods["metric"]["name"] == metric
    assert pods["target"] == {"type": "AverageValue", "averageValue": "2"}
    assert spec["behavior"]["scaleDown"]["stabilizationWindowSeconds"] == 300


def test_an_autoscaler_looks_at_what_it_is_told() -> None:
    metrics = [
        {"type": "Pods", "name": "queue", "targetAverageValue": "1500m"},
        {"type": "Resource", "name": "cpu", "targetAverageUtilization": 80},
    ]
    bounds = {"minReplicas": 2, "maxReplicas": 6, "metrics": metrics}
    pods, resource = child(world(autoscaling=bounds), "HorizontalPodAutoscaler")["spec"]["metrics"]
    assert pods["pods"]["target"]["averageValue"] == "1500m"
    assert resource["resource"] == {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}}
    assert "autoscaling.metrics: cpu (the pods ask for none" in unused(autoscaling=bounds)
    assert not unused(autoscaling=bounds, resources={"cpu": "1"})


@pytest.mark.parametrize(
    ("running", "scaled", "replicas"),
    [(0, False, 3), (5, False, 5), (9, False, 6), (5, True, None)],
)
def test_replicas_that_an_autoscaler_has_set_are_nobody_elses(running: int, scaled: bool, replicas: int | None) -> None:
    asked = world(replicas=3, autoscaling={"minReplicas": 2, "maxReplicas": 6})
    status = {"lastScaleTime": SINCE} if scaled else {}
    observed = {
        ("Deployment", "chat"): {"spec": {"replicas": running}},
        ("HorizontalPodAutoscaler", "chat"): {"status": status},
    }
    made = child(msgspec.structs.replace(asked, children=observed if running else {}), "Deployment")
    assert made["spec"].get("replicas") == replicas


@pytest.mark.parametrize("spec", [{"suspend": True}, {"replicas": 0}])
def test_a_service_that_is_stopped_has_no_replicas_and_no_autoscaler(spec: dict[str, Any]) -> None:
    asked = world(autoscaling={"maxReplicas": 4}, **spec)
    assert kinds(asked) == ["Service", "Deployment"]
    assert child(asked, "Deployment")["spec"]["replicas"] == 0


def test_eviction_protection_is_a_budget_that_lets_broken_pods_go() -> None:
    budget = child(world(evictionProtection=True), "PodDisruptionBudget")["spec"]
    assert (budget["maxUnavailable"], budget["unhealthyPodEvictionPolicy"]) == (0, "AlwaysAllow")
    assert "PodDisruptionBudget" not in kinds(world())


@pytest.mark.parametrize(
    ("priority", "value", "preemption"),
    [
        ("critical", 1000000, "PreemptLowerPriority"),
        ("high", 100000, "PreemptLowerPriority"),
        ("normal", 10000, "PreemptLowerPriority"),
        ("low", 1000, "PreemptLowerPriority"),
        ("batch", 100, "Never"),
    ],
)
def test_a_priority_is_a_class_of_the_cluster(priority: str, value: int, preemption: str) -> None:
    asked = world(priority=priority)
    (shared,) = plan(asked).shared
    assert (shared["metadata"], shared["value"]) == ({"name": f"llmkube-{priority}"}, value)
    assert shared["preemptionPolicy"] == preemption
    assert pod(asked)["spec"]["priorityClassName"] == f"llmkube-{priority}"


def test_a_class_of_the_users_own_goes_before_the_priority() -> None:
    asked = world(priority="batch", priorityClassName="mine")
    assert pod(asked)["spec"]["priorityClassName"] == "mine"
    assert plan(asked).shared == ()


def test_nothing_is_made_for_a_mac() -> None:
    assert kinds(world(model={"source": "acme/tiny", "hardware": {"accelerator": "metal"}})) == []


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"runtime": "tgi", "model": HUB, "jinja": True}, "jinja"),
        ({"runtime": "vllm", "model": HUB, "ropeScaling": {"type": "yarn"}}, "ropeScaling.type"),
        ({"vllmConfig": {"maxModelLen": 5}}, "vllmConfig"),
        ({"args": ["x"]}, "args"),
        ({"runtime": "generic", "image": "own:1", "extraArgs": ["x"]}, "extraArgs"),
        ({"flashAttention": True}, "flashAttention"),
        ({"runtime": "vllm", "model": HUB, "vllmConfig": {"cpuOffloadGB": 2}}, "vllmConfig.cpuOffloadGB"),
        ({"reasoningBudgetMessage": "x"}, "reasoningBudgetMessage"),
    ],
)
def test_a_field_that_has_no_effect_is_told(spec: dict[str, Any], field: str) -> None:
    assert f" {field} (" in unused(**spec)


def test_a_service_whose_fields_all_count_has_nothing_to_tell() -> None:
    assert not unused(contextSize=4096, jinja=True, flashAttention=True, **ONE_GPU)


def test_a_service_refers_to_its_models_and_its_class() -> None:
    asked = world(**VLLM, vllmConfig={"speculative": {"enabled": True, "model": "draft"}}, priorityClassName="mine")
    found = Services().references(asked.resource, Settings())
    assert [(one.kind.kind, one.namespace, one.name) for one in found] == [
        ("Model", "models", "tiny"),
        ("Model", "models", "draft"),
        ("PriorityClass", "", "mine"),
    ]


@pytest.mark.parametrize("status", [{}, {"phase": "Downloading", "observedGeneration": 1}, {"phase": "Ready"}])
def test_no_pod_is_made_before_the_model_is_ready_and_those_that_run_stay(status: dict[str, Any]) -> None:
    asked = world(model("tiny", GGUF, status))
    assert kinds(asked) == ["Service"]
    running = child(world(), "Deployment")
    kept = msgspec.structs.replace(asked, children={("Deployment", "chat"): running})
    assert child(kept, "Deployment")["spec"] == running["spec"]
