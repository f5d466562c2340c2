"""How many pods an InferenceService has, which come first, and what is refused."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from slipway.apis.llmkube import SERVICES
from slipway.kube.objects import DEPLOYMENT, HORIZONTAL_POD_AUTOSCALER
from slipway.serving.contract.settings import Settings
from tests import worlds
from tests.worlds import at

from .services import GGUF, HUB, SINCE, VLLM, child, kinds, model, plan, pod, refusal, unused, world


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
        {"model": HUB},
        {"runtime": "vllm", "skipModelInit": True},
    ],
)
def test_invalid_settings_are_rejected_and_crash_nothing(spec: dict[str, Any]) -> None:
    refused = refusal(**spec)
    assert refused.reason == "InvalidSpec"
    status = worlds.status(SERVICES, world(**spec), None).status
    assert status["conditions"][0]["type"] == "Accepted"


SGLANG, TGI = {"runtime": "sglang", "model": HUB}, {"runtime": "tgi", "model": HUB}


def sglang(extra: tuple[str, ...] = (), **config: Any) -> dict[str, Any]:
    return {**SGLANG, "sglangConfig": config, "extraArgs": list(extra)}


@pytest.mark.parametrize(
    ("spec", "gpus", "message"),
    [
        ({**VLLM, "vllmConfig": {"tensorParallelSize": 2}}, 1, "spec.vllmConfig.tensorParallelSize 2 is more than"),
        ({**VLLM, "vllmConfig": {"tensorParallelSize": 4}}, 2, "spec.vllmConfig.tensorParallelSize 4 is more than"),
        ({**VLLM, "extraArgs": ["--tensor-parallel-size", "4"]}, 2, "spec.extraArgs --tensor-parallel-size 4"),
        ({**VLLM, "extraArgs": ["--tensor_parallel_size=4"]}, 2, "spec.extraArgs --tensor-parallel-size 4"),
        ({**VLLM, "extraArgs": ["-tp", "4"]}, 2, "spec.extraArgs -tp 4"),
        ({**VLLM, "extraArgs": ["-tp", "2", "-pp", "2"]}, 2, "-tp 2 and extraArgs -pp 2 need 4 GPUs in total"),
        ({**VLLM, "extraArgs": ["-tp", "1", "--data-parallel-size", "4"]}, 2, "--data-parallel-size 4 is more"),
        ({**VLLM, "extraArgs": ["-dp", "4", "-dpb", "mp"]}, 2, "-dp 4 is more"),
        ({**VLLM, "extraArgs": ["-tp", "4", "--distributed-executor-backend=mp"]}, 2, "-tp 4 is more"),
        (sglang(tensorParallelSize=4), 2, "spec.sglangConfig.tensorParallelSize 4 is more than the 2 GPUs of a pod"),
        (
            sglang(tensorParallelSize=2, dataParallelSize=2),
            2,
            "dataParallelSize 2 need 4 GPUs in total, and a pod has 2",
        ),
        (sglang(dataParallelSize=4), 2, "spec.sglangConfig.dataParallelSize 4 is more than"),
        (sglang(expertParallelSize=4), 2, "spec.sglangConfig.expertParallelSize 4 is more than"),
        (sglang(("--tp", "4")), 2, "spec.extraArgs --tp 4"),
        (sglang(("--tp-size=2", "--dp-size=2")), 2, "need 4 GPUs in total"),
        (sglang(("--tensor-parallel-size", "2", "--pp-size", "2")), 2, "need 4 GPUs in total"),
        (sglang(("--dp", "2"), tensorParallelSize=2), 2, "extraArgs --dp 2 need 4 GPUs in total"),
        ({**TGI, "extraArgs": ["--num-shard", "4"]}, 2, "spec.extraArgs --num-shard 4"),
    ],
)
@pytest.mark.parametrize("by", ["model", "service"])
def test_an_engine_with_more_ranks_than_gpus_is_refused(by: str, spec: dict[str, Any], gpus: int, message: str) -> None:
    if by == "model":
        spec = {**spec, "model": {**HUB, "hardware": {"gpu": {"enabled": True, "count": gpus}}}}
    else:
        spec = {**spec, "resources": {"gpu": gpus}}
    refused = refusal(**spec)
    assert refused.reason == "InvalidSpec"
    assert message in refused.message
    conditions = {one["type"]: one for one in worlds.status(SERVICES, world(**spec), None).status["conditions"]}
    kinds = {"vllm": "VLLMSpecValid", "sglang": "SGLangSpecValid"}
    for kind in ("Accepted", *([kinds[spec["runtime"]]] if spec["runtime"] in kinds else [])):
        assert (conditions[kind]["status"], conditions[kind]["reason"]) == ("False", "InvalidSpec")


@pytest.mark.parametrize(
    ("spec", "gpus", "args"),
    [
        (sglang(tensorParallelSize=2), 2, "--tp-size 2"),
        (sglang(tensorParallelSize=1, dataParallelSize=2), 2, "--tp-size 1 --dp-size 2"),
        (sglang(dataParallelSize=2), 2, "--dp-size 2"),
        (sglang(dataParallelSize=2), 4, "--tp-size 2 --dp-size 2"),
        (sglang(("--enable-dp-attention",), dataParallelSize=2), 2, "--tp-size 2 --dp-size 2"),
        (sglang(("--enable-dp-attention",), tensorParallelSize=2, dataParallelSize=2), 2, "--tp-size 2 --dp-size 2"),
        (sglang(tensorParallelSize=2, expertParallelSize=2), 2, "--tp-size 2 --ep-size 2"),
        (sglang(("--tp", "8", "--nnodes", "4")), 2, "--tp 8 --nnodes 4"),
        (sglang(tensorParallelSize=4), 0, "--tp-size 4"),
        ({**VLLM, "extraArgs": ["-dp", "2"]}, 2, "-dp 2"),
        ({**VLLM, "extraArgs": ["-dp", "2"]}, 4, "--tensor-parallel-size 2"),
        ({**VLLM, "extraArgs": ["-tp", "many"]}, 2, "-tp many"),
        *(
            ({**VLLM, "extraArgs": ["-dp", "8", *spread.split()]}, 2, f"-dp 8 {spread}")
            for spread in (
                *(
                    "--nnodes=4",
                    "-n 4",
                    "--data-parallel-size-local 2",
                    "-dpl 2",
                    "--data-parallel-address a",
                    "-dpa a",
                ),
                *("--data-parallel-rank 1", "-dpn 1", "--data-parallel-start-rank 2", "-dpr 2"),
                *("--data-parallel-hybrid-lb", "-dph", "--data-parallel-external-lb", "-dpe"),
                *("--data-parallel-backend=ray", "-dpb ray", "--distributed_executor_backend ray"),
            )
        ),
        ({**TGI, "extraArgs": ["--num-shard", "2"]}, 2, "--num-shard 2"),
    ],
)
def test_an_engine_with_a_gpu_for_each_rank_starts(spec: dict[str, Any], gpus: int, args: str) -> None:
    [container] = child(world(**{**spec, "resources": {"gpu": gpus}}), "Deployment")["spec"]["template"]["spec"][
        "containers"
    ]
    assert args in " ".join(container["args"])


def test_how_many_gpus_a_claim_stands_for_is_not_known() -> None:
    claimed = {"gpu": {"enabled": True, "resourceClaims": [{"name": "gpus", "resourceClaimTemplateName": "four"}]}}
    spec = {**VLLM, "model": {**HUB, "hardware": claimed}, "vllmConfig": {"tensorParallelSize": 4}}
    assert child(world(**spec), "Deployment")


def test_the_history_has_the_configured_length() -> None:
    assert child(world(), "Deployment")["spec"]["revisionHistoryLimit"] == 10
    assert child(world(revisionHistoryLimit=0), "Deployment")["spec"]["revisionHistoryLimit"] == 0


def test_pods_without_gpus_are_replaced_one_after_another_in_words_that_can_be_taken_back() -> None:
    strategy = child(world(), "Deployment")["spec"]["strategy"]
    assert strategy == {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}


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
    snapshot = world(runtime=runtime, image="own:1", model=model, autoscaling={"maxReplicas": 4})
    spec = child(snapshot, "HorizontalPodAutoscaler")["spec"]
    assert (spec["minReplicas"], spec["maxReplicas"], spec["scaleTargetRef"]["name"]) == (1, 4, "chat")
    (pods,) = (one["pods"] for one in spec["metrics"])
    assert pods["metric"]["name"] == metric
    assert pods["target"] == {"type": "AverageValue", "averageValue": "2"}
    assert spec["behavior"]["scaleDown"]["stabilizationWindowSeconds"] == 300


def test_an_autoscaler_uses_the_configured_metric() -> None:
    metrics = [
        {"type": "Pods", "name": "queue", "targetAverageValue": "1500m"},
        {"type": "Resource", "name": "cpu", "targetAverageUtilization": 80},
    ]
    bounds = {"minReplicas": 2, "maxReplicas": 6, "metrics": metrics}
    pods, resource = child(world(autoscaling=bounds), "HorizontalPodAutoscaler")["spec"]["metrics"]
    assert pods["pods"]["target"]["averageValue"] == "1500m"
    assert resource["resource"] == {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}}
    assert "autoscaling.metrics: cpu (the pods request none" in unused(autoscaling=bounds)
    assert not unused(autoscaling=bounds, resources={"cpu": "1"})


@pytest.mark.parametrize(
    ("running", "scaled", "replicas"),
    [(0, False, 3), (5, False, 5), (9, False, 6), (5, True, None)],
)
def test_an_autoscalers_replicas_stay(running: int, scaled: bool, replicas: int | None) -> None:
    snapshot = world(replicas=3, autoscaling={"minReplicas": 2, "maxReplicas": 6})
    status = {"lastScaleTime": SINCE} if scaled else {}
    observed = {
        at(DEPLOYMENT, "chat"): {"spec": {"replicas": running}},
        at(HORIZONTAL_POD_AUTOSCALER, "chat"): {"status": status},
    }
    deployment = child(msgspec.structs.replace(snapshot, children=observed if running else {}), "Deployment")
    assert deployment["spec"].get("replicas") == replicas


@pytest.mark.parametrize("spec", [{"suspend": True}, {"replicas": 0}])
def test_a_service_that_is_stopped_has_no_replicas_and_no_autoscaler(spec: dict[str, Any]) -> None:
    snapshot = world(autoscaling={"maxReplicas": 4}, **spec)
    assert kinds(snapshot) == ["Service", "Deployment"]
    assert child(snapshot, "Deployment")["spec"]["replicas"] == 0


def test_eviction_protection_is_a_budget_that_lets_broken_pods_go() -> None:
    budget = child(world(evictionProtection=True), "PodDisruptionBudget")["spec"]
    assert (budget["maxUnavailable"], budget["unhealthyPodEvictionPolicy"]) == (0, "AlwaysAllow")


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
    snapshot = msgspec.structs.replace(world(priority=priority), settings=Settings(authors=worlds.UPSTREAM))
    (shared,) = plan(snapshot).shared
    assert (shared["metadata"], shared["value"]) == ({"name": f"llmkube-{priority}"}, value)
    assert shared["preemptionPolicy"] == preemption
    assert pod(snapshot)["spec"]["priorityClassName"] == f"llmkube-{priority}"


def test_a_class_of_the_users_own_goes_before_the_priority() -> None:
    snapshot = world(priority="batch", priorityClassName="mine")
    assert pod(snapshot)["spec"]["priorityClassName"] == "mine"
    assert plan(snapshot).shared == ()


def test_no_autoscaler_exists_before_the_deployment() -> None:
    waiting = model("tiny", GGUF, {"phase": "Pending", "observedGeneration": 1})
    assert "HorizontalPodAutoscaler" in kinds(world(autoscaling={"maxReplicas": 3}))
    assert kinds(world(waiting, autoscaling={"maxReplicas": 3})) == ["Service"]
    wrong = {"maxReplicas": 3, "metrics": [{"type": "Pods", "name": "x"}]}
    assert refusal(waiting, autoscaling=wrong).reason == "InvalidSpec"


GPU_OF_THE_MODEL = {"source": "https://models.example/tiny.gguf", "hardware": {"gpu": {"count": 2}}}


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"replicas": 0, "autoscaling": {"maxReplicas": 3}}, "autoscaling"),
        ({"suspend": True, "autoscaling": {"maxReplicas": 3}}, "autoscaling"),
        ({"model": GPU_OF_THE_MODEL, "resources": {"gpu": 1}}, "resources.gpu"),
        ({"resources": {"memory": "1Gi", "hostMemory": "2Gi"}}, "resources.memory"),
        ({"priority": "high", "priorityClassName": "mine"}, "priority"),
        (VLLM | {"vllmConfig": {"speculative": {"model": "draft"}}}, "vllmConfig.speculative.model"),
    ],
)
def test_an_overridden_field_is_reported(spec: dict[str, Any], field: str) -> None:
    assert f" {field} (" in unused(**spec)


@pytest.mark.parametrize(
    "spec",
    [
        {"autoscaling": {"maxReplicas": 3}},
        {"model": GPU_OF_THE_MODEL, "resources": {"gpu": 2}},
        {"resources": {"hostMemory": "2Gi"}},
        {"priority": "high"},
        {"priorityClassName": "mine"},
    ],
)
def test_a_field_with_an_effect_is_not_reported(spec: dict[str, Any]) -> None:
    assert unused(**spec) == ""
