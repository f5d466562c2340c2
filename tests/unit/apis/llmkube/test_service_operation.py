"""How an InferenceService is operated: how old pods get, when nodes are left under them, shared GPUs, further names,
and what is asked of Pyrra."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import pytest

from slipway.apis.llmkube import SERVICES
from slipway.kube.objects import Key, Object
from slipway.serving.contract.api import World
from slipway.serving.contract.settings import Settings
from tests import worlds

from .services import (
    GGUF,
    HUB,
    ONE_GPU,
    RUNTIMES,
    VLLM,
    child,
    container,
    kinds,
    line,
    plan,
    pod,
    refusal,
    unused,
    world,
)

NOW = 1_795_252_000.0
OLD, OLDER, YOUNG = "2026-11-20T09:00:00Z", "2026-11-19T09:00:00Z", "2026-11-21T09:06:00Z"
DAY = 86400
RECYCLED = "slipway.inference/recycled"
ONE = {"accelerator": "cuda", "gpu": {"count": 1}}


def aged(*starts: str, deployment: Object | None = None, **spec: Any) -> World:
    """A service with a pod that started at each of these times, and its Deployment."""
    snapshot = world(**spec)
    workload = deployment or child(snapshot, "Deployment")
    kind = next(watch.kind for watch in SERVICES.watches(snapshot.settings) if watch.kind.kind == "Deployment")
    pods = [
        {
            "metadata": {"name": f"chat-{number}", "namespace": "models", "uid": f"p-{number}"},
            "status": {"startTime": at},
        }
        for number, at in enumerate(starts)
    ]
    return msgspec.structs.replace(snapshot, pods=pods, children={(kind, Key("models", "chat")): workload})


def with_settings(world: World, **own: Any) -> World:
    return msgspec.structs.replace(world, settings=Settings(apis={"llmkube": own}))


def reasons(world: World) -> dict[str, str]:
    conditions = worlds.status(SERVICES, world, None).status["conditions"]
    return {one["type"]: f"{one['status']}/{one['reason']}" for one in conditions}


def template(world: World) -> Object:
    annotations: Object = pod(world)["metadata"]["annotations"]
    return annotations


def test_pods_that_are_too_old_are_replaced_once() -> None:
    first = aged(OLDER, OLD, YOUNG, maxPodLifetimeSeconds=DAY)
    assert template(first)[RECYCLED] == OLD
    again = aged(YOUNG, deployment=child(first, "Deployment"), maxPodLifetimeSeconds=DAY)
    assert template(again)[RECYCLED] == OLD
    without = aged(YOUNG, deployment=child(first, "Deployment"))
    assert template(without)[RECYCLED] == OLD
    assert RECYCLED not in template(aged(YOUNG, maxPodLifetimeSeconds=DAY))
    assert RECYCLED not in template(aged(OLDER))


def test_a_service_is_looked_at_again_when_its_next_pod_is_too_old() -> None:
    snapshot = aged(OLD, YOUNG, maxPodLifetimeSeconds=DAY)
    assert worlds.status(SERVICES, snapshot, None).recheck_seconds == pytest.approx(DAY - 40)


def test_pods_with_gpus_are_replaced_one_at_a_time_where_they_may_not_grow_old() -> None:
    strategy = child(world(maxPodLifetimeSeconds=DAY, **ONE_GPU), "Deployment")["spec"]["strategy"]
    assert strategy == {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}}
    assert child(world(**ONE_GPU), "Deployment")["spec"]["strategy"] == {"type": "Recreate"}


STARTED = {"readyReplicas": 1}
OVERDUE = {"conditions": [{"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded"}]}


@pytest.mark.parametrize("disruption", [None, {}, {"protectStartup": True}, {"protectAlways": True}])
@pytest.mark.parametrize("runtime", RUNTIMES)
def test_pods_that_start_are_protected_by_a_budget(runtime: str, disruption: dict[str, bool] | None) -> None:
    model = HUB if runtime in ("vllm", "tgi", "sglang") else GGUF
    spec: dict[str, Any] = {"runtime": runtime, "model": model, "image": "engine:1", "containerPort": 8080}
    spec |= {} if disruption is None else {"disruption": disruption}
    deployment = child(world(**spec), "Deployment")
    for starting in (world(**spec), aged(YOUNG, deployment=deployment, **spec)):
        budget = child(starting, "PodDisruptionBudget")["spec"]
        assert (budget["maxUnavailable"], budget["unhealthyPodEvictionPolicy"]) == (0, "IfHealthyBudget")
        assert budget["selector"]["matchLabels"] == deployment["spec"]["selector"]["matchLabels"]
    for status in (STARTED, OVERDUE):
        assert "PodDisruptionBudget" not in kinds(aged(YOUNG, deployment={**deployment, "status": status}, **spec))


@pytest.mark.parametrize(
    "spec",
    [
        {"disruption": {"protectStartup": False}},
        {"disruption": {"protectStartup": False, "protectAlways": True}},
        {"disruption": {}, "replicas": 0},
        {"suspend": True},
    ],
)
def test_pods_that_start_are_not_protected_if_the_service_allows_that_or_has_none(spec: dict[str, Any]) -> None:
    assert "PodDisruptionBudget" not in kinds(world(**spec))


def test_an_operator_without_budgets_gets_none_that_no_service_asks_for() -> None:
    without = Settings(disruption_budgets=False)
    assert "PodDisruptionBudget" not in kinds(msgspec.structs.replace(world(), settings=without))
    assert "PodDisruptionBudget" in kinds(msgspec.structs.replace(world(disruption={}), settings=without))


def test_a_service_whose_pods_are_always_protected_has_one_budget() -> None:
    whole = child(world(disruption={}, evictionProtection=True), "PodDisruptionBudget")["spec"]
    assert whole["unhealthyPodEvictionPolicy"] == "AlwaysAllow"


def test_pods_are_kept_from_karpenter_where_the_service_says_always() -> None:
    name = "karpenter.sh/do-not-disrupt"
    assert template(world(disruption={"protectAlways": True}))[name] == "true"
    own = world(disruption={"protectAlways": True}, podAnnotations={name: "false"})
    assert template(own)[name] == "false"
    assert name not in template(world(disruption={}))


def test_a_rollout_that_waits_for_idle_pods_replaces_pods_with_gpus_one_at_a_time() -> None:
    one_by_one = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}}
    waits = {"rolloutPolicy": {"waitForIdle": True}, **ONE_GPU}

    def strategy(**spec: Any) -> Object:
        rollout: Object = child(world(**waits | spec), "Deployment")["spec"]["strategy"]
        return rollout

    assert strategy(replicas=2) == one_by_one
    assert strategy(autoscaling={"maxReplicas": 2}) == one_by_one
    assert strategy(replicas=1) == {"type": "Recreate"}
    assert strategy(replicas=2, rolloutPolicy={"waitForIdle": True, "force": True}) == {"type": "Recreate"}


def test_a_rollout_without_a_drain_does_not_wait_for_idle_pods() -> None:
    generic = {"runtime": "generic", "image": "acme/engine:1", "rolloutPolicy": {"waitForIdle": True}}
    assert reasons(world(**generic))["RolloutDeferred"] == "False/IdleCheckUnsupported"
    assert "rolloutPolicy.waitForIdle (" in unused(**generic)
    undrained = msgspec.structs.replace(world(rolloutPolicy={"waitForIdle": True}), settings=Settings(drain_seconds=0))
    assert reasons(undrained)["RolloutDeferred"] == "False/IdleCheckUnsupported"


def test_a_rollout_that_waits_for_idle_pods_reports_their_time_limit() -> None:
    waits = world(rolloutPolicy={"waitForIdle": True, "idleTimeoutSeconds": 600})
    assert reasons(waits)["RolloutDeferred"] == "False/PodsFinish"
    assert pod(waits)["spec"]["terminationGracePeriodSeconds"] >= waits.settings.drain_seconds
    assert unused(rolloutPolicy={"waitForIdle": True}) == ""
    longer = unused(rolloutPolicy={"waitForIdle": True, "idleTimeoutSeconds": 601})
    assert "rolloutPolicy.idleTimeoutSeconds (a terminating pod has 600 seconds for its requests)" in longer
    assert "maxPodLifetimeIdleTimeoutSeconds (" in unused(maxPodLifetimeIdleTimeoutSeconds=0)
    assert "RolloutDeferred" not in reasons(world(rolloutPolicy={"waitForIdle": True, "force": True}))


def test_a_further_name_leads_to_the_service() -> None:
    gateway = {"enabled": True, "modelName": "gpt", "gatewayRef": {"name": "edge"}}
    snapshot = world(**VLLM, endpoint={"gateway": gateway})
    route = child(snapshot, "Service")["metadata"]["annotations"]["slipway.inference/route"]
    assert '"models":["chat","gpt"]' in route
    assert "--served-model-name chat acme/tiny gpt " in f"{' '.join(container(snapshot)['args'])} "
    status = worlds.status(SERVICES, snapshot, None).status
    assert status["gateway"] == {"modelName": "gpt", "routeReady": False}
    assert reasons(snapshot)["GatewayReady"] == reasons(snapshot)["Routed"]
    assert "endpoint.gateway.gatewayRef (" in unused(endpoint={"gateway": gateway})
    unnamed = child(world(endpoint={"gateway": {"enabled": True, "gatewayRef": {"name": "a"}}}), "Service")
    assert '"models":["chat","tiny"]' in unnamed["metadata"]["annotations"]["slipway.inference/route"]
    off = world(endpoint={"gateway": {"modelName": "gpt", "gatewayRef": {"name": "a"}}})
    assert "GatewayReady" not in reasons(off)
    assert "gateway" not in worlds.status(SERVICES, off, None).status


def test_an_objective_is_made_for_pyrra() -> None:
    objective = child(world(slo={"objective": "99.5", "window": "7d"}), "ServiceLevelObjective")
    assert (objective["apiVersion"], objective["metadata"]["name"]) == ("pyrra.dev/v1alpha1", "chat-availability")
    assert (objective["spec"]["target"], objective["spec"]["window"]) == ("99.5", "7d")
    assert objective["spec"]["indicator"] == {"bool_gauge": {"metric": 'up{namespace="models",model="chat"}'}}
    slow = {"objective": "99", "indicator": "latency", "latencyThreshold": "2", "name": "fast"}
    latency = child(world(**VLLM, slo=slow), "ServiceLevelObjective")
    assert latency["metadata"]["name"] == "fast"
    assert latency["spec"]["indicator"]["latency"]["success"]["metric"].endswith(',le="2"}')
    odd = child(world(slo={"objective": "99", "name": "My SLO"}), "ServiceLevelObjective")
    assert re.fullmatch(r"[a-z0-9-]+", odd["metadata"]["name"])
    assert reasons(world(slo={"objective": "99"}))["SLOReady"] == "False/NotCreated"
    assert "ServiceLevelObjective" not in kinds(world(slo=slow))
    assert reasons(world(slo=slow))["SLOReady"] == "False/IndicatorUnsupportedForRuntime"


def test_a_part_of_a_gpu_is_a_resource_of_its_own() -> None:
    sharing = {"gpu": 1, "gpuSharing": {"mode": "partitioned", "profile": "1g.24gb"}}
    snapshot = world(resources=sharing)
    assert container(snapshot)["resources"]["limits"] == {"nvidia.com/mig-1g.24gb": "1"}
    assert pod(snapshot)["spec"]["tolerations"][0]["key"] == "nvidia.com/mig-1g.24gb"


@pytest.mark.parametrize(
    ("sharing", "hardware", "why"),
    [
        ({"mode": "partitioned", "profile": "half"}, ONE, "not a MIG profile"),
        ({"mode": "partitioned", "profile": "1g.5gb"}, {"gpu": {"count": 2}}, "a pod with exactly one GPU"),
        ({"mode": "partitioned", "profile": "1g.5gb"}, {"gpu": {"count": 1, "vendor": "amd"}}, "needs NVIDIA GPUs"),
        ({"mode": "partitioned", "profile": "1g.5gb"}, {"gpu": {"count": 1, "resourceName": "a.b/c"}}, "resourceName"),
        ({"mode": "shared"}, ONE, "controller_shared_gpu_nodes"),
        ({"mode": "shared"}, {"gpu": {"count": 1, "resourceClaims": [{"name": "a"}]}}, "without resourceClaims"),
    ],
)
def test_a_gpu_that_cannot_be_shared_so_is_refused(sharing: Object, hardware: Object, why: str) -> None:
    refused = refusal(model={**GGUF, "hardware": hardware}, resources={"gpuSharing": sharing})
    assert refused.reason == "InvalidSpec"
    assert why in refused.message


def test_shared_gpus_are_on_the_nodes_that_the_operator_keeps_for_them() -> None:
    snapshot = world(resources={"gpu": 1, "gpuSharing": {"mode": "shared"}}, nodeSelector={"disk": "fast"})
    spec = pod(with_settings(snapshot, sharedGpuNodes={"gpus": "shared"}))["spec"]
    assert spec["nodeSelector"] == {"gpus": "shared", "disk": "fast"}
    amd = {**GGUF, "hardware": {"gpu": {"count": 1, "vendor": "amd"}}}
    assert "nodeSelector" not in pod(world(model=amd, resources={"gpuSharing": {"mode": "shared"}}))["spec"]


@pytest.mark.parametrize(
    ("hardware", "spec", "groups"),
    [
        ({"gpu": {"enabled": True, "count": 1, "vendor": "amd", "runtime": "vulkan"}}, {}, [991]),
        ({"accelerator": "vulkan", "gpu": {"enabled": True, "count": 1, "vendor": "amd"}}, {}, [991]),
        ({"accelerator": "vulkan", "gpu": {"enabled": True, "count": 1}}, {}, None),
        ({"accelerator": "cuda", "gpu": {"count": 1}}, {}, None),
        ({"accelerator": "cpu"}, {}, None),
        (
            {"gpu": {"count": 1, "vendor": "amd", "runtime": "vulkan"}},
            {"podSecurityContext": {"supplementalGroups": [777]}},
            [777, 991],
        ),
    ],
)
def test_pods_that_compute_by_vulkan_have_the_group_of_the_render_devices(
    hardware: Object, spec: Object, groups: list[int] | None
) -> None:
    snapshot = world(model={**GGUF, "hardware": hardware}, **spec)
    settings = msgspec.structs.replace(snapshot.settings, device_groups=(991,))
    assert (
        pod(msgspec.structs.replace(snapshot, settings=settings))["spec"]["securityContext"].get("supplementalGroups")
        == groups
    )


def test_claims_of_devices_take_the_place_of_a_resource() -> None:
    claims = [{"name": "gpu", "resourceClaimTemplateName": "one-gpu"}]
    snapshot = world(model={**GGUF, "hardware": {"accelerator": "cuda", "gpu": {"resourceClaims": claims}}})
    spec = pod(snapshot)["spec"]
    assert spec["resourceClaims"] == claims
    assert container(snapshot)["resources"] == {"claims": [{"name": "gpu"}]}
    assert "tolerations" not in spec
    assert "--n-gpu-layers 99" in " ".join(container(snapshot)["args"])
    assert child(snapshot, "Deployment")["spec"]["strategy"] == {"type": "Recreate"}


def test_the_router_of_llama_cpp_reads_a_volume_of_the_users() -> None:
    volumes = [{"name": "mine", "persistentVolumeClaim": {"claimName": "models"}}]
    mounts = [{"name": "mine", "mountPath": "/models"}]
    snapshot = world(
        runtime="llamacpp-router", extraVolumes=volumes, extraVolumeMounts=mounts, extraArgs=["--models-max", "2"]
    )
    assert container(snapshot)["args"] == [
        "--models-dir", "/models", "--host", "::", "--port", "8080", "--models-max", "2", "--metrics",
    ]  # fmt: skip
    assert pod(snapshot)["spec"]["volumes"] == volumes
    assert "initContainers" not in pod(snapshot)["spec"]
    assert container(snapshot)["image"].startswith("ghcr.io/ggml-org/llama.cpp:")
    preset = line(runtime="llamacpp-router", extraArgs=["--models-preset", "/models/all.ini"])
    assert "--models-dir" not in preset


def test_a_service_may_have_a_claim_for_itself() -> None:
    snapshot = with_settings(world(), modelCache={"persistence": "PerService", "size": "5Gi"})
    (claim,) = (one for one in plan(snapshot).shared if one["kind"] == "PersistentVolumeClaim")
    assert (claim["metadata"]["name"], claim["spec"]["resources"]) == (
        "chat-model-cache",
        {"requests": {"storage": "5Gi"}},
    )
    assert claim["metadata"]["ownerReferences"][0]["uid"] == "s-1"
    volumes = {volume["name"]: volume for volume in pod(snapshot)["spec"]["volumes"]}
    assert volumes["model-cache"]["persistentVolumeClaim"]["claimName"] == "chat-model-cache"
    assert [one["name"] for one in pod(snapshot)["spec"]["initContainers"]] == ["model-downloader"]
    for other in ({"claimName": "mine"}, {"persistence": "Ephemeral"}):
        shared_objects = plan(with_settings(world(modelCache=other), modelCache={"persistence": "PerService"})).shared
        assert [one["kind"] for one in shared_objects] == ["PriorityClass"]


def test_fields_of_programs_on_macs_are_reported_to_have_no_effect() -> None:
    fields = {"turboQuantBits": 3, "hotCacheMaxSize": "1GB", "pagedSSDCacheDir": "/a", "pagedSSDCacheMaxSize": "2GB"}
    assert all(f"{field} (" in unused(**fields) for field in fields)


def test_a_token_of_sglangs_own_goes_before_the_models() -> None:
    token = {"name": "hub", "key": "HF_TOKEN"}
    variables = container(world(runtime="sglang", model=HUB, sglangConfig={"hfTokenSecretRef": token}))["env"]
    assert {"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": token}} in variables
