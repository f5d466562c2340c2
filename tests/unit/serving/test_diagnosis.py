"""What Kubernetes says of a workload becomes a reason and a message that a person can act on."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from slipway.engines.programs.llamacpp import LLAMACPP
from slipway.kube.values.times import unix_time
from slipway.serving.containers.diagnosis import TEMPLATE, Diagnosis, Failure, Limits, diagnose

LIMITS = Limits(startup_seconds=60, unschedulable_grace_seconds=30, container="llama-server")
NOW = unix_time("2026-11-21T09:10:00Z")


def pod(name: str = "tiny-1", created: str = "2026-11-21T09:00:00Z", **status: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "namespace": "models", "creationTimestamp": created},
        "status": {"phase": "Running", **status},
    }


def container(restarts: int = 1, started: bool = False, **fields: Any) -> list[dict[str, Any]]:
    return [{"name": "llama-server", "image": "acme/engine:1", "restartCount": restarts, "started": started, **fields}]


def ended(code: int, seconds: int, log: str = "", reason: str = "Error") -> dict[str, Any]:
    times = {"startedAt": "2026-11-21T09:00:00Z", "finishedAt": f"2026-11-21T09:{seconds // 60:02}:{seconds % 60:02}Z"}
    return {"terminated": {"exitCode": code, "reason": reason, "message": log, **times}}


def diagnosed(*pods: dict[str, Any], deployment: dict[str, Any] | None = None) -> Diagnosis:
    return diagnose(deployment, pods, LIMITS, NOW, LLAMACPP.explain)


def reason_of(*pods: dict[str, Any], deployment: dict[str, Any] | None = None) -> str | None:
    failure = diagnosed(*pods, deployment=deployment).failure
    return failure.reason if failure else None


CRASHED = {"state": {"waiting": {"reason": "CrashLoopBackOff"}}}
NOT_SYNCED = "failed to sync secret cache: timed out waiting for the condition"
RUNNING = {"state": {"running": {"startedAt": "2026-11-21T09:09:59Z"}}}


@pytest.mark.parametrize(
    ("statuses", "reason"),
    [
        (container(state={"waiting": {"reason": "ContainerCreating"}}), None),
        (container(state={"waiting": {"reason": "ErrImagePull", "message": "not found"}}), "ImagePullBackOff"),
        (container(state={"waiting": {"reason": "ImagePullBackOff", "message": "back-off"}}), "ImagePullBackOff"),
        (
            container(state={"waiting": {"reason": "CreateContainerConfigError", "message": "no secret"}}),
            "CreateContainerConfigError",
        ),
        (container(state={"waiting": {"reason": "CreateContainerConfigError", "message": NOT_SYNCED}}), None),
        (container(**CRASHED, lastState=ended(1, 2, "boom")), "CrashLoopBackOff"),
        (container(restarts=2, **RUNNING, lastState=ended(1, 2, "boom")), "CrashLoopBackOff"),
        (container(restarts=1, **RUNNING, lastState=ended(255, 2)), None),
        (container(**RUNNING, lastState=ended(0, 2)), None),
        (container(**CRASHED, lastState=ended(0, 2)), "CrashLoopBackOff"),
        (container(**CRASHED, lastState=ended(137, 2, reason="OOMKilled")), "OOMKilled"),
        (container(**RUNNING, lastState=ended(137, 75)), "StartupTimeout"),
        (container(**RUNNING, lastState=ended(0, 61)), "StartupTimeout"),
        (container(restarts=2, **RUNNING, lastState=ended(143, 3500)), "CrashLoopBackOff"),
        (
            container(
                **RUNNING,
                lastState={"terminated": {"exitCode": 137, "reason": "ContainerStatusUnknown", "startedAt": None}},
            ),
            None,
        ),
        (container(**CRASHED, lastState=ended(132, 1)), "IllegalInstruction"),
        (container(**RUNNING, lastState=ended(0, 9, "error: invalid argument: --bogus")), "InvalidArgument"),
        (container(**CRASHED, lastState=ended(1, 1, "error: invalid argument: --bogus")), "InvalidArgument"),
        (container(**CRASHED, lastState=ended(1, 1, "E get_repo_commit: error: GET failed (404):")), "DownloadFailed"),
    ],
)
def test_the_state_of_a_container_decides_the_reason(statuses: list[dict[str, Any]], reason: str | None) -> None:
    assert reason_of(pod(containerStatuses=statuses)) == reason


@pytest.mark.parametrize(
    ("line", "advice"),
    [
        ("error: GET failed (401):", "requires a token"),
        ("failed to download model: Download 'http://hub/x' failed with status code: 403", "Accept its terms"),
        ("error: GET failed (404):", "Check its name"),
        ("error: GET failed (503):", "retries automatically"),
        ("get_repo_commit: error: HTTPLIB failed: Could not establish connection", "cannot be reached"),
    ],
)
def test_a_failed_download_says_what_to_do_and_shows_the_log(line: str, advice: str) -> None:
    failure = diagnosed(pod(containerStatuses=container(restarts=3, **CRASHED, lastState=ended(1, 1, line)))).failure
    assert failure is not None
    assert failure.reason == "DownloadFailed"
    assert advice in failure.message
    assert line.splitlines()[-1] in failure.message


@pytest.mark.parametrize(
    ("status", "restarts", "failed"), [(503, 2, False), (503, 3, True), (429, 1, False), (404, 0, True)]
)
def test_trouble_of_the_hub_that_passes_is_given_some_restarts(status: int, restarts: int, failed: bool) -> None:
    log = f"error: GET failed ({status}):"
    diagnosis = diagnosed(pod(containerStatuses=container(restarts=restarts, **CRASHED, lastState=ended(1, 1, log))))
    assert (diagnosis.failure is not None) == failed


def test_another_containers_log_is_not_the_engines() -> None:
    crashed = container(**CRASHED, lastState=ended(1, 2, "error: invalid argument: --bogus"))
    failure = diagnosed(pod(containerStatuses=[{**crashed[0], "name": "loader"}])).failure
    assert failure is not None
    assert failure.reason == "CrashLoopBackOff"
    assert failure.message.startswith("Container loader ended with exit code 1")
    late = [{**container(**RUNNING, lastState=ended(143, 75))[0], "name": "loader"}]
    assert diagnosed(pod(containerStatuses=late)) == Diagnosis()


def test_a_pod_without_a_node_is_given_time_before_it_is_a_failure() -> None:
    condition = {"type": "PodScheduled", "status": "False", "message": "0/1 nodes are available: 1 Insufficient cpu."}
    waiting = pod(conditions=[condition | {"lastTransitionTime": "2026-11-21T09:09:50Z"}])
    assert diagnosed(waiting) == Diagnosis(recheck_seconds=20)
    overdue = diagnosed(pod(conditions=[condition | {"lastTransitionTime": "2026-11-21T09:09:00Z"}])).failure
    assert overdue is not None
    assert overdue.reason == "Unschedulable"
    assert "Insufficient cpu" in overdue.message


NO_VICTIMS = "preemption: 0/2 nodes are available: 2 No preemption victims found for incoming pod."
NOT_HELPFUL = "preemption: 0/2 nodes are available: 2 Preemption is not helpful for scheduling."


@pytest.mark.parametrize(
    ("message", "reason", "text"),
    [
        (
            'persistentvolumeclaim "nope" not found. not found',
            "PVCNotFound",
            "There is no PersistentVolumeClaim 'nope' in the namespace models. Create it, or fix its name in the spec.",
        ),
        (
            f"0/2 nodes are available: 2 Insufficient nvidia.com/gpu. no new claims to deallocate, {NOT_HELPFUL}",
            None,
            None,
        ),
    ],
)
def test_the_grace_for_a_missing_claim_does_not_depend_on_the_grace_for_nodes(
    message: str, reason: str | None, text: str | None
) -> None:
    condition = {"type": "PodScheduled", "status": "False", "message": message}
    limits, no_words = msgspec.structs.replace(LIMITS, unschedulable_grace_seconds=600), lambda _log: None
    missing = pod(conditions=[condition | {"lastTransitionTime": "2026-11-21T09:09:29Z"}])
    failure = diagnose(None, [missing], limits, NOW, no_words).failure
    assert (failure.reason if failure else None, failure.message if failure else None) == (reason, text)
    recent = pod(conditions=[condition | {"lastTransitionTime": "2026-11-21T09:09:35Z"}])
    assert diagnose(None, [recent], limits, NOW, no_words) == Diagnosis(recheck_seconds=5 if reason else 575)


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (
            f"0/2 nodes are available: 2 Insufficient nvidia.com/gpu. no new claims to deallocate, {NOT_HELPFUL}",
            "ResourceNotFound",
        ),
        (
            f"0/2 nodes are available: 2 Insufficient nvidia.com/gpu. no new claims to deallocate, {NO_VICTIMS}",
            "Unschedulable",
        ),
        (f"0/2 nodes are available: 1 Insufficient a.b/gpu, 1 Insufficient cpu. {NOT_HELPFUL}", "Unschedulable"),
        (f"0/2 nodes are available: 2 Insufficient memory. {NOT_HELPFUL}", "Unschedulable"),
    ],
)
def test_a_device_that_no_node_has_is_distinguished_from_one_in_use(message: str, reason: str) -> None:
    condition = {"type": "PodScheduled", "status": "False", "message": message}
    failure = diagnosed(pod(conditions=[condition | {"lastTransitionTime": "2026-11-21T09:09:00Z"}])).failure
    assert failure is not None
    assert failure.reason == reason


@pytest.mark.parametrize(
    ("message", "reason", "noun"),
    [
        ('secret "hf-tokn" not found', "SecretNotFound", "Secret 'hf-tokn' in the namespace models"),
        ('configmap "setings" not found', "ConfigMapNotFound", "ConfigMap 'setings' in the namespace models"),
        ("couldn't find key token in Secret models/hf", "CreateContainerConfigError", "Secret models/hf"),
    ],
)
def test_a_container_that_names_what_does_not_exist(message: str, reason: str, noun: str) -> None:
    waiting = {"waiting": {"reason": "CreateContainerConfigError", "message": message}}
    failure = diagnosed(pod(containerStatuses=container(state=waiting))).failure
    assert failure is not None
    assert failure.reason == reason
    assert noun in failure.message


def test_a_runtime_class_that_does_not_exist_is_reported_at_once() -> None:
    message = 'pods "a-1" is forbidden: pod rejected: RuntimeClass "nvidia" not found'
    condition = {
        "type": "ReplicaFailure",
        "status": "True",
        "message": message,
        "lastTransitionTime": "2026-11-21T09:10:00Z",
    }
    failure = diagnose({"spec": {}, "status": {"conditions": [condition]}}, [], LIMITS, NOW, lambda _log: None).failure
    assert failure == Failure(
        "RuntimeClassNotFound", "There is no RuntimeClass 'nvidia'. Create it, or fix its name in the spec."
    )


@pytest.mark.parametrize(
    "text", ['configmap "sidecar-injector" not found', 'secret "a" not found', 'RuntimeClass "b" not found']
)
def test_a_webhooks_missing_object_is_not_reported_as_one_of_the_spec(text: str) -> None:
    condition = {
        "type": "ReplicaFailure",
        "status": "True",
        "message": f'admission webhook "inject.example.com" denied the request: {text}',
        "lastTransitionTime": "2026-11-21T09:09:00Z",
    }
    assert reason_of(deployment={"spec": {}, "status": {"conditions": [condition]}}) == "PodsRejected"


def test_the_newest_pod_speaks_first() -> None:
    old = pod("old", "2026-11-21T08:00:00Z", containerStatuses=container(**CRASHED, lastState=ended(1, 2)))
    new = pod("new", containerStatuses=container(state={"waiting": {"reason": "ErrImagePull"}}))
    assert reason_of(old, new) == "ImagePullBackOff"


def test_ready_pods_and_pods_on_their_way_out_say_nothing() -> None:
    crashed = container(**CRASHED, lastState=ended(1, 2))
    leaving = pod(containerStatuses=crashed)
    leaving["metadata"]["deletionTimestamp"] = "2026-11-21T09:09:00Z"
    assert reason_of(leaving, pod(containerStatuses=crashed, conditions=[{"type": "Ready", "status": "True"}])) is None


def templated(item: dict[str, Any], digest: str) -> dict[str, Any]:
    return {**item, "metadata": {**item.get("metadata", {}), "annotations": {TEMPLATE: digest}}}


def test_pods_of_an_older_spec_say_nothing_of_the_newest() -> None:
    broken = templated(
        pod("old", containerStatuses=container(state={"waiting": {"reason": "ImagePullBackOff"}})), "old"
    )
    loading = templated(pod("new", containerStatuses=container(restarts=0, **RUNNING)), "new")
    deployment = {"spec": {"template": templated({}, "new")}}
    assert reason_of(broken, loading, deployment=deployment) is None
    assert reason_of(broken, deployment=deployment) is None
    assert reason_of(broken, deployment={"spec": {"template": templated({}, "old")}}) == "ImagePullBackOff"


def test_a_pod_that_was_evicted_says_nothing_once_another_has_its_place() -> None:
    evicted = pod("old", phase="Failed", reason="Evicted", message="The node was low on resource: memory.")
    assert reason_of(evicted, pod("new", conditions=[{"type": "Ready", "status": "True"}])) is None
    assert reason_of(evicted) == "Evicted"


def test_pods_that_the_cluster_refuses_are_reported_by_the_deployment_after_a_moment() -> None:
    refused = {"type": "ReplicaFailure", "status": "True", "message": "exceeded quota: compute"}
    old, new = (
        {"spec": {}, "status": {"conditions": [refused | {"lastTransitionTime": f"2026-11-21T09:09:{second}Z"}]}}
        for second in (50, 58)
    )
    assert reason_of(deployment=old) == "PodsRejected"
    assert diagnosed(deployment=new) == Diagnosis(recheck_seconds=3)


def test_a_long_log_is_cut_to_its_last_lines() -> None:
    log = "\n".join(f"line {number} {'x' * 400}" for number in range(50))
    failure = diagnosed(pod(containerStatuses=container(**CRASHED, lastState=ended(1, 2, log)))).failure
    assert failure is not None
    assert "line 49" in failure.message
    assert "line 41 " not in failure.message
    assert len(failure.message) < 3000
