"""The status of an InferenceService: phases, conditions, and its place in the queue for accelerators."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from slipway.apis.llmkube import SERVICES
from slipway.apis.llmkube.rules import scheduling
from slipway.apis.llmkube.types.model import KIND as MODEL
from slipway.apis.llmkube.types.service import KIND
from slipway.kube.caches.store import Change
from slipway.kube.objects import DEPLOYMENT, HORIZONTAL_POD_AUTOSCALER, PRIORITY_CLASS
from slipway.serving.contract.api import Reference, Rejection, StatusResult, World
from slipway.serving.contract.settings import Settings
from tests import worlds
from tests.worlds import at

SINCE, NOW = "2026-11-21T09:00:00Z", 1_795_252_000.0
TEMPLATE = {"metadata": {"annotations": {"slipway.inference/template": "a"}}}


def world(
    *pods: dict[str, Any],
    deployment: dict[str, Any] | None = None,
    model: dict[str, Any] | None = None,
    resource: str = "",
    status: dict[str, Any] | None = None,
    related: tuple[dict[str, Any], ...] = (),
    **spec: Any,
) -> World:
    """A service over a Model that is ready. ``resource``: the accelerator of its pods, of which each asks for two."""
    metadata = {"name": "chat", "namespace": "models", "uid": "s", "generation": 3, "creationTimestamp": SINCE}
    gpu = {"count": 2, "resourceName": resource} if resource else {}
    weights = {
        "metadata": {"name": "tiny", "namespace": "models", "uid": "m", "generation": 1, "creationTimestamp": SINCE},
        "spec": {"source": "https://models.example/tiny.gguf", "hardware": {"gpu": gpu}},
        "status": {"phase": "Ready", "observedGeneration": 1} if model is None else model,
    }
    return World(
        resource={"metadata": metadata, "spec": {"modelRef": "tiny"} | spec, "status": status or {}},
        children={at(DEPLOYMENT, "chat"): deployment} if deployment else {},
        pods=pods,
        routed=[],
        settings=Settings(),
        now=NOW,
        listers=worlds.known_world(SERVICES, objects={Reference(MODEL, "models", "tiny"): weights}, others=related),
    )


def deployment(ready: int = 0, replicas: int = 1, resource: str = "") -> dict[str, Any]:
    limits = {"limits": {resource: "2", "ephemeral-storage": "1Gi"}} if resource else {}
    container = {"name": "llama-server", "resources": limits}
    return {
        "metadata": {"name": "chat", "namespace": "models", "labels": {}, "generation": 1},
        "spec": {"replicas": replicas, "template": {**TEMPLATE, "spec": {"containers": [container]}}},
        "status": {"replicas": replicas, "readyReplicas": ready, "updatedReplicas": replicas, "observedGeneration": 1},
    }


def pod(since: str = SINCE, **status: Any) -> dict[str, Any]:
    metadata = {**TEMPLATE["metadata"], "name": "chat-1", "namespace": "models", "uid": "p", "creationTimestamp": since}
    return {"metadata": metadata, "status": status}


def pending(message: str, reason: str = "Unschedulable") -> dict[str, Any]:
    pod_condition = {"type": "PodScheduled", "status": "False", "reason": reason, "message": message}
    return pod(phase="Pending", conditions=[{**pod_condition, "lastTransitionTime": SINCE}])


def broken(**state: Any) -> dict[str, Any]:
    return pod(containerStatuses=[{"name": "llama-server", "image": "own:1", "restartCount": 4, "state": state}])


def verdict(world: World, rejection: Rejection | None = None) -> StatusResult:
    return worlds.status(SERVICES, world, rejection)


def condition(world: World, name: str) -> dict[str, Any]:
    named_condition: dict[str, Any] = next(one for one in status_of(world)["conditions"] if one["type"] == name)
    return named_condition


def status_of(world: World, rejection: Rejection | None = None) -> dict[str, Any]:
    return verdict(world, rejection).status


def reasons(world: World, rejection: Rejection | None = None) -> dict[str, str]:
    conditions = status_of(world, rejection)["conditions"]
    return {condition["type"]: f"{condition['status']}/{condition['reason']}" for condition in conditions}


GPU = "nvidia.com/gpu"
WAITING = (pending(f"0/2 nodes are available: 2 Insufficient {GPU}. preemption: 0/2 nodes are available."),)


@pytest.mark.parametrize(
    ("moment", "phase"),
    [
        (world(), "Creating"),
        (world(deployment=deployment()), "Creating"),
        (world(deployment=deployment(ready=1)), "Ready"),
        (world(deployment=deployment(ready=1, replicas=2), replicas=2), "Progressing"),
        (world(deployment=deployment(replicas=0), replicas=0), "Stopped"),
        (world(deployment=deployment(replicas=0), suspend=True), "Suspended"),
        (world(deployment=deployment(ready=1, replicas=0), suspend=True), "Suspended"),
        (world(*WAITING, deployment=deployment(resource=GPU), resource=GPU), "WaitingForGPU"),
        (world(model={"phase": "Downloading", "observedGeneration": 1}), "Pending"),
        (world(model={}), "Pending"),
        (world(model={"phase": "Failed", "observedGeneration": 1}), "Failed"),
        (world(model={"phase": "Failed", "observedGeneration": 1}, deployment=deployment()), "Failed"),
        (world(model={"phase": "Failed", "observedGeneration": 1}, deployment=deployment(ready=1)), "Ready"),
        (world(broken(waiting={"reason": "ImagePullBackOff"}), deployment=deployment()), "Failed"),
        (world(broken(terminated={"exitCode": 1}), deployment=deployment()), "Failed"),
        (world(pending("0/2 nodes are available: 2 Insufficient cpu."), deployment=deployment()), "Failed"),
        (world(broken(waiting={"reason": "ImagePullBackOff"}), deployment=deployment(ready=1)), "Ready"),
        (world(modelRef="nowhere"), "Failed"),
        (world(modelRef="nowhere", deployment=deployment(ready=1)), "Ready"),
    ],
)
def test_the_phase_follows_from_facts(moment: World, phase: str) -> None:
    assert status_of(moment)["phase"] == phase


@pytest.mark.parametrize(
    ("state", "reason"),
    [
        ({"waiting": {"reason": "ImagePullBackOff"}}, "ImagePullBackOff"),
        ({"terminated": {"exitCode": 1}}, "CrashLoopBackOff"),
        ({"terminated": {"exitCode": 1, "message": "error: invalid argument: --x"}}, "InvalidArgument"),
        ({"terminated": {"exitCode": 137, "reason": "OOMKilled"}}, "OOMKilled"),
    ],
)
def test_crash_loops_and_images_that_cannot_be_pulled_are_reasons_and_no_endless_creating(
    state: dict[str, Any], reason: str
) -> None:
    reasons_by_type = reasons(world(broken(**state), deployment=deployment()))
    assert reasons_by_type["Available"] == f"False/{reason}"
    assert reasons_by_type["Degraded"] == f"True/{reason}"


def test_a_missing_model_a_failed_one_and_one_on_its_way_are_distinguished() -> None:
    assert reasons(world(modelRef="nowhere"))["Accepted"] == "False/ModelNotFound"
    conditions = [{"type": "Available", "message": "404 of the hub."}]
    failed = world(model={"phase": "Failed", "observedGeneration": 1, "conditions": conditions})
    assert reasons(failed)["Available"] == "False/ModelFailed"
    assert "404 of the hub." in status_of(failed)["conditions"][1]["message"]
    assert reasons(world(model={}))["Available"] == "False/ModelNotReady"
    assert [status_of(snapshot)["modelReady"] for snapshot in (failed, world())] == [False, True]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("nowhere", "There is no Model nowhere in the namespace models."),
        ("tinny", "There is no Model tinny in the namespace models; did you mean tiny?"),
    ],
)
def test_a_missing_model_is_reported_with_one_that_is_called_alike(name: str, expected: str) -> None:
    assert condition(world(modelRef=name), "Accepted")["message"] == expected


def test_a_model_whose_status_is_of_an_older_spec_is_not_ready() -> None:
    assert reasons(world(model={"phase": "Ready", "observedGeneration": 0}))["Available"] == "False/ModelNotReady"


def test_a_rejection_by_the_cluster_is_a_failure_and_a_transient_error_is_not() -> None:
    assert status_of(world(), Rejection("NameTaken", "no"))["phase"] == "Failed"
    assert status_of(world(), Rejection("Retrying", "soon", retryable=True))["phase"] == "Creating"


def test_a_service_on_a_mac_fails_with_a_reason() -> None:
    snapshot = world()
    (weights,) = snapshot.list(MODEL)
    weights["spec"] = {"source": "acme/tiny", "hardware": {"accelerator": "metal"}}
    status = status_of(snapshot)
    assert status["phase"] == "Failed"
    assert "endpoint" not in status
    assert reasons(snapshot)["Accepted"] == "False/MetalOutOfReach"


@pytest.mark.parametrize(
    "resource",
    [
        GPU,
        "amd.com/gpu",
        "gpu.intel.com/i915",
        "nvidia.com/mig-1g.10gb",
        "devic.es/dri-render",
        "squat.ai/dri-render",
        "example.com/gpu.v2",
    ],
)
def test_waiting_for_any_accelerator_is_found_out_with_the_number_that_the_model_asks_for(resource: str) -> None:
    message = f"0/3 nodes are available: 1 Insufficient memory, 2 Insufficient {resource}. preemption: none."
    snapshot = world(pending(message), deployment=deployment(resource=resource), resource=resource)
    status = status_of(snapshot)
    assert status["phase"] == "WaitingForGPU"
    assert status["schedulingStatus"] == "InsufficientGPU"
    assert status["schedulingMessage"] == message
    assert status["waitingFor"] == f"{resource}: 2"
    assert reasons(snapshot)["GPUAvailable"] == "False/InsufficientGPU"
    assert verdict(snapshot).recheck_seconds is None, "the scheduler and those ahead of it wake it"


@pytest.mark.parametrize(
    ("message", "reason", "status"),
    [
        ("0/2 nodes are available: 2 Insufficient cpu.", "Unschedulable", "InsufficientResources"),
        ("0/2 nodes: 2 Insufficient nvidia.com/gpu-shared.", "Unschedulable", "InsufficientResources"),
        ("1 node(s) had volume node affinity conflict.", "Unschedulable", "UnbindableModelCache"),
        ("2 node(s) didn't match Pod's node affinity/selector.", "Unschedulable", "Unschedulable"),
        ("gated", "SchedulingGated", "SchedulingGated"),
    ],
)
def test_another_missing_resource_is_reported_instead_of_a_place_in_the_queue(
    message: str, reason: str, status: str
) -> None:
    snapshot = world(pending(message, reason), deployment=deployment(resource=GPU), resource=GPU)
    actual = status_of(snapshot)
    assert (actual["schedulingStatus"], actual["queuePosition"]) == (status, 0)
    assert "waitingFor" not in actual


def test_a_pod_that_crashes_is_reported_though_another_one_waits_for_an_accelerator() -> None:
    pods = (*WAITING, broken(terminated={"exitCode": 1}))
    snapshot = world(*pods, deployment=deployment(replicas=2, resource=GPU), resource=GPU, replicas=2)
    assert status_of(snapshot)["phase"] == "Failed"
    assert reasons(snapshot)["Available"] == "False/CrashLoopBackOff"
    assert status_of(snapshot)["waitingFor"] == f"{GPU}: 2"


def test_nothing_of_scheduling_is_left_after_recovery() -> None:
    before = status_of(world(*WAITING, deployment=deployment(resource=GPU), resource=GPU))
    status = status_of(world(deployment=deployment(ready=1, resource=GPU), resource=GPU, status=before))
    assert not {"schedulingStatus", "schedulingMessage", "waitingFor"} & status.keys()
    assert status["queuePosition"] == 0


def waiting(
    name: str, priority: int, since: str, resource: str = GPU, namespace: str = "other", **more: Any
) -> dict[str, Any]:
    metadata = {"name": name, "namespace": namespace, "creationTimestamp": since, **more}
    status = {"phase": "WaitingForGPU", "waitingFor": f"{resource}: 1", "effectivePriority": priority}
    return {"metadata": metadata, "status": status}


def position(*related: dict[str, Any], **spec: Any) -> int:
    snapshot = world(*WAITING, deployment=deployment(resource=GPU), resource=GPU, related=related, **spec)
    place: int = status_of(snapshot)["queuePosition"]
    return place


OLDER, YOUNGER = "2026-11-21T08:00:00Z", "2026-11-21T10:00:00Z"


@pytest.mark.parametrize(
    ("other", "place"),
    [
        (waiting("a", 100000, YOUNGER), 2),
        (waiting("a", 100, OLDER), 1),
        (waiting("a", 10000, OLDER), 2),
        (waiting("a", 10000, YOUNGER), 1),
        (waiting("a", 10000, SINCE, namespace="a"), 2),
        (waiting("a", 10000, SINCE, namespace="z"), 1),
        (waiting("a", 10000, SINCE, namespace="models"), 2),
        (waiting("z", 10000, SINCE, namespace="models"), 1),
        (waiting("a", 100000, OLDER, resource="amd.com/gpu"), 1),
        (waiting("a", 100000, OLDER, deletionTimestamp=SINCE), 1),
        (waiting("chat", 1000000, OLDER, namespace="models"), 1),
    ],
)
def test_the_queue_goes_by_priority_then_age_then_name_for_each_resource_alone(
    other: dict[str, Any], place: int
) -> None:
    assert position(other) == place


def test_the_queue_knows_the_priority_of_the_service_itself() -> None:
    others = (waiting("a", 100000, OLDER), waiting("b", 10000, OLDER), waiting("c", 100, OLDER))
    ranks = [position(*others, priority=one) for one in ("critical", "high", "normal", "low", "batch")]
    assert ranks == [1, 2, 3, 3, 4]


def test_a_look_at_a_service_reads_no_other_one_that_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    others = [waiting(f"w{number}", 10000, OLDER) for number in range(50)]
    snapshot = world(*WAITING, deployment=deployment(resource=GPU), resource=GPU, related=others)
    counted: list[str] = []
    priority_of = scheduling.priority_of
    monkeypatch.setattr(scheduling, "priority_of", lambda one: counted.append(str(one)) or priority_of(one))
    assert status_of(snapshot)["queuePosition"] == 51
    assert len(counted) <= 1


@pytest.mark.parametrize(("created", "place"), [(OLDER, 2), (YOUNGER, 1)])
def test_two_services_of_classes_that_are_not_there_agree_who_is_first(created: str, place: int) -> None:
    nameless = waiting("a", 0, created)
    del nameless["status"]["effectivePriority"]
    assert position(nameless, priorityClassName="missing") == place


def test_the_effective_priority_is_that_of_the_class_which_counts() -> None:
    assert status_of(world(priority="low"))["effectivePriority"] == 1000
    snapshot = world(priority="low", priorityClassName="mine")
    assert "effectivePriority" not in status_of(snapshot)
    class_snapshot = worlds.with_objects(snapshot, {Reference(PRIORITY_CLASS, "", "mine"): {"value": 77}})
    assert status_of(class_snapshot)["effectivePriority"] == 77


def test_replicas_are_those_that_there_are_and_desired_ones_those_that_are_wanted() -> None:
    status = status_of(world(deployment=deployment(ready=1, replicas=3), replicas=1, autoscaling={"maxReplicas": 4}))
    assert (status["replicas"], status["desiredReplicas"], status["readyReplicas"]) == (3, 3, 1)
    assert status_of(world(replicas=2))["desiredReplicas"] == 2
    assert status["selector"] == "app=chat,inference.llmkube.dev/service=chat"


@pytest.mark.parametrize(
    ("endpoint", "url"),
    [
        (None, "http://chat.models.svc.cluster.local:8080/v1/chat/completions"),
        ({"port": 80}, "http://chat.models.svc.cluster.local:80/v1/chat/completions"),
        ({"path": "/v1/embeddings"}, "http://chat.models.svc.cluster.local:8080/v1/embeddings"),
        ({"path": "v1"}, "http://chat.models.svc.cluster.local:8080/v1"),
    ],
)
def test_the_endpoint_is_the_services_address(endpoint: dict[str, Any] | None, url: str) -> None:
    snapshot = world(endpoint=endpoint) if endpoint else world()
    assert status_of(snapshot)["endpoint"] == url


@pytest.mark.parametrize(
    ("spec", "mode"),
    [
        ({}, "chat"),
        ({"mode": "rerank"}, "rerank"),
        ({"runtime": "generic", "image": "own:1", "args": ["--embedding"]}, "embedding"),
        ({"runtime": "generic", "image": "own:1", "extraArgs": ["--embedding"]}, "chat"),
        ({"extraArgs": ["--embedding"]}, "embedding"),
        ({"extraArgs": ["--reranking", "--embedding"]}, "rerank"),
        ({"endpoint": {"path": "/v1/embeddings/"}}, "embedding"),
        ({"endpoint": {"path": "/v1/rerank"}}, "rerank"),
    ],
)
def test_the_mode_is_what_the_service_says_or_shows(spec: dict[str, Any], mode: str) -> None:
    assert status_of(world(**spec))["mode"] == mode


def test_speculative_decoding_without_its_model_is_omitted_and_reported() -> None:
    for speculative in ({"enabled": True}, {"enabled": True, "model": "nowhere"}):
        reasons_by_type = reasons(world(runtime="vllm", vllmConfig={"speculative": speculative}))
        assert reasons_by_type["VLLMSpecValid"] == "False/SpeculativeMissingModel"
        assert reasons_by_type["SpeculativeInvalid"] == "True/SpeculativeMissingModel"
        assert reasons_by_type["Accepted"] == "True/Valid"
    assert reasons(world(runtime="vllm"))["VLLMSpecValid"] == "True/Valid"


def test_the_time_of_the_last_change_moves_with_a_change_only() -> None:
    first = status_of(world(deployment=deployment()))
    assert first["lastUpdated"] == "2026-11-21T09:06:40Z"
    stamped = [{**condition, "lastTransitionTime": SINCE} for condition in first["conditions"]]
    earlier = {**first, "conditions": stamped, "lastUpdated": OLDER}
    assert status_of(world(deployment=deployment(), status=earlier))["lastUpdated"] == OLDER
    assert status_of(world(deployment=deployment(ready=1), status=earlier))["lastUpdated"] == first["lastUpdated"]


def test_a_place_comes_before_another_by_priority_first() -> None:
    resource = {"metadata": {"name": "a", "namespace": "n", "creationTimestamp": SINCE}}
    assert scheduling.place(resource, 2) < scheduling.place(resource, 1)


def test_an_autoscaler_without_metrics_is_reported() -> None:
    snapshot = world(deployment=deployment(ready=1), autoscaling={"maxReplicas": 3})
    assert condition(snapshot, "ScalingActive")["status"] == "Unknown"
    why = {"status": "False", "reason": "FailedGetPodsMetric", "message": "no metrics returned from custom metrics API"}
    scaler = {"status": {"conditions": [{"type": "AbleToScale", "status": "True"}, {"type": "ScalingActive", **why}]}}
    children = {**snapshot.children, at(HORIZONTAL_POD_AUTOSCALER, "chat"): scaler}
    scaling_active = condition(msgspec.structs.replace(snapshot, children=children), "ScalingActive")
    assert {name: scaling_active[name] for name in why} == why


def test_a_service_without_scaling_reports_nothing_about_it() -> None:
    stopped = world(deployment=deployment(ready=1), autoscaling={"maxReplicas": 3}, replicas=0)
    for snapshot in (world(deployment=deployment(ready=1)), stopped):
        assert "ScalingActive" not in {one["type"] for one in status_of(snapshot)["conditions"]}


def test_a_service_whose_model_is_gone_is_still_found_where_its_pods_answer() -> None:
    before = {
        "mode": "chat",
        "endpoint": "http://chat.models.svc.cluster.local:8080/v1/chat/completions",
        "phase": "Ready",
    }
    snapshot = worlds.without(world(deployment=deployment(ready=1), status=before))
    now = status_of(snapshot)
    assert {"mode": now["mode"], "endpoint": now["endpoint"]} == {name: before[name] for name in ("mode", "endpoint")}
    assert "endpoint" not in status_of(msgspec.structs.replace(snapshot, children={}))


def woken(old: dict[str, Any] | None, new: dict[str, Any] | None, *others: dict[str, Any]) -> set[str]:
    """The services that a change of the service ``m`` concerns, which is as old as all others."""
    watch = next(watch for watch in SERVICES.watches(Settings()) if watch.kind == KIND)
    there = worlds.known_world(SERVICES, others=(*others, *([new] if new else [])))
    return {key.name for key in watch.enqueue(Change(old, new), there)}


M, BEFORE, BEHIND = waiting("m", 10000, SINCE), waiting("a", 10000, SINCE), waiting("z", 10000, SINCE)
IDLE = {**M, "status": {"phase": "Ready"}}
ELSEWHERE = waiting("m", 10000, SINCE, resource="amd.com/gpu")


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        pytest.param(None, M, {"z"}, id="it joins"),
        pytest.param(M, None, {"z"}, id="it is gone"),
        pytest.param(M, waiting("m", 10000, SINCE, deletionTimestamp=SINCE), {"z"}, id="it goes"),
        pytest.param(M, IDLE, {"z"}, id="it has its accelerator"),
        pytest.param(IDLE, M, {"z"}, id="it lost its accelerator"),
        pytest.param(M, waiting("m", 100000, SINCE), {"a", "z"}, id="it is more important"),
        pytest.param(waiting("m", 100000, SINCE), M, {"a", "z"}, id="it is less important"),
        pytest.param(M, ELSEWHERE, {"z", "other"}, id="it waits for something else"),
        pytest.param(M, {**M, "status": M["status"] | {"queuePosition": 2}}, set(), id="its own place is written"),
        pytest.param(None, IDLE, set(), id="one that does not wait comes"),
        pytest.param(IDLE, None, set(), id="one that does not wait is gone"),
    ],
)
def test_those_behind_a_service_are_woken_when_its_place_in_the_queue_changes(
    old: dict[str, Any] | None, new: dict[str, Any] | None, expected: set[str]
) -> None:
    """Nothing else is enqueued: services ahead of it, services that wait for other resources, or that do not wait."""
    serving = {**waiting("x", 10000, SINCE), "status": {"phase": "Ready"}}
    assert woken(old, new, BEFORE, BEHIND, serving, waiting("other", 10000, SINCE, "amd.com/gpu", "z")) == expected
