"""The source of a sleeping KubeAI Model is checked before the first request."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from slipway.apis.kubeai import KUBEAI
from slipway.apis.kubeai.readiness import READINESS
from slipway.kube.conditions import timestamp
from slipway.kube.objects import CONFIG_MAP, DEPLOYMENT, JOB, Object
from slipway.serving.api import Reference, Rejection, World
from slipway.serving.readiness import summarize
from slipway.serving.settings import Loader, Settings
from slipway.serving.times import unix_time
from slipway.weights.checks import RECORD
from tests import worlds
from tests.worlds import at

UID = "33333333-0000-0000-0000-000000000001"
CREATED = "2026-11-21T09:00:00Z"
NOW = unix_time("2026-11-21T09:05:00Z")
ANSWERS = {
    "conditions": [
        {"type": "Available", "status": "True", "reason": "Ready", "observedGeneration": 1},
        {"type": "Progressing", "status": "False", "reason": "Complete", "observedGeneration": 1},
    ]
}
MISSING = "huggingface.co has no repository acme/tiny: the name is wrong, or it is private and needs HF_TOKEN"


def world(*, config: str = "{}", others: tuple[Object, ...] = (), **spec: Any) -> World:
    metadata = {"name": "tiny", "namespace": "models", "uid": UID, "generation": 1, "creationTimestamp": CREATED}
    least = {"url": "hf://acme/tiny", "engine": "VLLM", "features": [], "resourceProfile": "cpu:1"}
    settings = Settings(system_namespace="system")
    objects = {Reference(CONFIG_MAP, "system", "slipway-kubeai"): {"data": {"system.yaml": config}}}
    return World(
        resource={"metadata": metadata, "spec": least | spec},
        children={},
        pods=[],
        routed=[],
        settings=settings,
        now=NOW,
        listers=worlds.known(KUBEAI, settings, objects, others),
    )


def job(state: World) -> Object | None:
    """The Job that checks the source."""
    children = worlds.plan(KUBEAI, state).children
    return next((child for child in children if child["kind"] == "Job"), None)


def with_job(state: World, how: str = "", reason: str = "", message: str = "", since: str = CREATED) -> World:
    """The world with the Job, which has the condition ``how``."""
    manifest = job(state)
    assert manifest is not None
    failure = {"type": how, "status": "True", "reason": reason, "lastTransitionTime": since}
    manifest = {
        **manifest,
        "metadata": {**manifest["metadata"], "uid": "job"},
        "status": {"conditions": [failure] if how else []},
    }
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "x", "uid": "job", "controller": True}
    pod = {
        "metadata": {"name": "p", "creationTimestamp": CREATED, "ownerReferences": [owner]},
        "status": {
            "phase": "Failed" if how == "Failed" else "Running",
            "containerStatuses": [{"name": "check", "state": {"terminated": {"exitCode": 3, "message": message}}}],
        },
    }
    return msgspec.structs.replace(state, children={at(JOB, manifest["metadata"]["name"]): manifest}, pods=[pod])


def missing(state: World) -> World:
    return with_job(state, "Failed", "PodFailurePolicy", MISSING)


def recorded(state: World) -> World:
    """The world after the result was written to the Model and the Job deleted."""
    annotations = worlds.plan(KUBEAI, state).self_patch["metadata"]["annotations"]
    metadata = state.resource["metadata"] | {"annotations": annotations}
    return msgspec.structs.replace(state, resource=state.resource | {"metadata": metadata}, children={}, pods=[])


def condition(state: World, rejection: Rejection | None = None) -> Object | None:
    result = worlds.status(KUBEAI, state, rejection).status["conditions"]
    return next((one for one in result if one["type"] == "SourceFound"), None)


def reason(state: World) -> str:
    result = condition(state)
    return result["reason"] if result else ""


def summary(state: World) -> dict[str, tuple[str, str]]:
    result = summarize(worlds.status(KUBEAI, state).status, READINESS, 1)
    return {one.type: (one.status, one.reason) for one in result}


def deployed(state: World) -> World:
    """The world with the Deployment of the sleeping Model."""
    manifest = next(child for child in worlds.plan(KUBEAI, state).children if child["kind"] == "Deployment")
    there = {at(DEPLOYMENT, manifest["metadata"]["name"]): {**manifest, "status": {}}}
    return msgspec.structs.replace(state, children={**state.children, **there})


def at_time(state: World, now: float) -> World:
    return msgspec.structs.replace(state, now=now)


def test_the_job_queries_the_repository_and_its_file_with_the_models_credentials() -> None:
    manifest = job(world(engine="LlamaCpp", url="hf://acme/tiny:q4@main?model=tiny.gguf", env={"HF_TOKEN": "mine"}))
    assert manifest is not None
    container = manifest["spec"]["template"]["spec"]["containers"][0]
    assert container["args"][:2] == ["loader", "probe"]
    assert "--file=tiny.gguf" in container["args"]
    assert {"name": "HF_TOKEN", "value": "mine"} in container["env"]


@pytest.mark.parametrize(
    "spec",
    [
        {"minReplicas": 1},
        {"autoscalingDisabled": True, "replicas": 0},
        {"replicas": 1},
        {"url": "pvc://claim"},
        {"url": "s3://bucket/tiny"},
        {"engine": "OLlama", "url": "ollama://tiny"},
        {"image": "registry.example/with-weights:1"},
        {"env": {"HF_HUB_OFFLINE": "1"}},
        {"jsonPatches": [{"op": "add", "path": "/metadata/annotations", "value": {}}]},
        {"url": "hf://acme/tiny/a-folder"},
    ],
)
def test_a_source_that_pods_or_only_an_engine_can_check_has_no_job(spec: dict[str, Any]) -> None:
    assert job(world(**spec)) is None


def test_with_patches_of_the_operator_there_is_no_check() -> None:
    config = "modelServerPods: {jsonPatches: [{op: add, path: /metadata/annotations, value: {}}]}"
    assert job(world(config=config)) is None


def test_the_operator_can_disable_checks_and_the_result_is_removed() -> None:
    done = recorded(with_job(world(), "Complete"))
    settings = msgspec.structs.replace(done.settings, loader=Loader(env={"HF_HUB_OFFLINE": "1"}))
    off = msgspec.structs.replace(done, settings=settings)
    assert (job(off), condition(off)) == (None, None)
    assert worlds.plan(KUBEAI, off).self_patch["metadata"]["annotations"][RECORD] is None


def test_a_model_without_weights_is_not_ready() -> None:
    asleep = deployed(recorded(missing(world())))
    result = condition(asleep)
    assert result is not None
    assert (result["status"], result["reason"]) == ("False", "SourceNotFound")
    assert result["message"].startswith(f"{MISSING}. The controller checks again")
    assert summary(asleep)["Ready"] == ("False", "SourceNotFound")
    assert summary(asleep)["Stalled"] == ("True", "SourceNotFound")


def test_an_unreachable_hub_is_not_a_failure() -> None:
    asleep = deployed(recorded(with_job(world(), "Failed", "BackoffLimitExceeded", "the hub is not well")))
    result = condition(asleep)
    assert result is not None
    assert (result["status"], result["reason"]) == ("Unknown", "SourceNotChecked")
    assert "the hub is not well" in result["message"]
    assert summary(asleep)["Ready"] == ("True", "Ready")


def test_the_job_has_the_tolerations_of_the_model_and_resources_for_a_quota() -> None:
    taint = {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}
    manifest = job(
        world(config=json.dumps({"resourceProfiles": {"gpu": {"tolerations": [taint]}}}), resourceProfile="gpu:1")
    )
    assert manifest is not None
    pod = manifest["spec"]["template"]["spec"]
    assert pod["tolerations"] == [taint]
    resources = pod["containers"][0]["resources"]
    assert {part: set(resources[part]) for part in ("requests", "limits")} == {
        "requests": {"cpu", "memory"},
        "limits": {"cpu", "memory"},
    }


def test_a_model_with_an_unknown_profile_has_no_condition() -> None:
    refused = Rejection(reason="UnknownProfile", message="there is no such profile")
    result = worlds.status(KUBEAI, world(resourceProfile="none:1"), refused)
    assert "SourceFound" not in [one["type"] for one in result.status["conditions"]]


def test_without_a_report_of_a_pod_the_hub_is_not_blamed() -> None:
    failure = msgspec.structs.replace(with_job(world(), "Failed", "DeadlineExceeded"), pods=[])
    asleep = deployed(recorded(failure))
    result = condition(asleep)
    assert result is not None
    assert (result["status"], result["reason"]) == ("Unknown", "SourceNotChecked")
    assert result["message"].startswith("The Job check-source-tiny reported nothing within 120 s.")
    assert summary(asleep)["Ready"] == ("True", "Ready")


def test_a_running_job_without_pods_is_reported() -> None:
    podless = msgspec.structs.replace(with_job(world()), pods=[])
    for manifest in podless.children.values():
        manifest["metadata"]["creationTimestamp"] = CREATED
    result = condition(podless)
    assert result is not None
    assert result["reason"] == "SourceNotChecked"
    assert "kubectl describe job check-source-tiny" in result["message"]
    young = at_time(podless, unix_time(CREATED) + 5)
    assert reason(young) == "CheckingSource"
    assert worlds.status(KUBEAI, young).recheck_seconds == 15


def test_a_restriction_of_the_loader_is_not_a_failure() -> None:
    text = "SourceNotAllowed: 10.0.0.1 is not public"
    assert reason(recorded(with_job(world(), "Failed", "PodFailurePolicy", text))) == "SourceNotChecked"


def test_each_version_of_a_source_is_checked_once() -> None:
    done = recorded(with_job(world(), "Complete"))
    assert (job(done), reason(done)) == (None, "SourceFound")
    done.resource["spec"]["url"] = "hf://acme/other"
    assert job(done) is not None


def test_a_source_without_the_weights_is_checked_again_at_growing_intervals() -> None:
    state, since = recorded(missing(world())), unix_time(CREATED)
    waits = []
    for _time in range(9):
        later = next(seconds for seconds in range(60, 40000, 60) if job(at_time(state, since + seconds)) is not None)
        waits.append(later)
        again = at_time(state, since + later)
        since = again.now
        state = recorded(with_job(again, "Failed", "PodFailurePolicy", MISSING, timestamp(since)))
    assert waits == [300, 600, 1200, 2400, 4800, 9600, 19200, 21600, 21600]


def test_a_failed_job_that_is_seen_twice_counts_once() -> None:
    failure = missing(world())
    annotations = recorded(failure).resource["metadata"]["annotations"]
    both = msgspec.structs.replace(
        failure, resource={**failure.resource, "metadata": {**failure.resource["metadata"], "annotations": annotations}}
    )
    again = worlds.plan(KUBEAI, both).self_patch["metadata"]["annotations"]
    assert json.loads(again[RECORD]) == json.loads(annotations[RECORD])


def test_a_starting_model_has_no_condition_and_an_answer_proves_its_source() -> None:
    awake = recorded(missing(world()))
    awake.resource["spec"]["replicas"] = 1
    assert condition(awake) is None
    answering = msgspec.structs.replace(awake, resource=awake.resource | {"status": ANSWERS})
    assert reason(answering) == "SourceFound"
    written = worlds.plan(KUBEAI, answering).self_patch["metadata"]["annotations"][RECORD]
    assert json.loads(written)["found"] == "yes"


def test_a_model_is_reconciled_after_its_first_check_and_stays_so() -> None:
    first = deployed(with_job(world()))
    assert reason(first) == "CheckingSource"
    assert summary(first)["Ready"] == ("True", "Ready")
    assert summary(first)["Reconciling"] == ("True", "CheckingSource")
    waiting = deployed(recorded(missing(world())))
    again = msgspec.structs.replace(with_job(at_time(waiting, NOW + 86400)), pods=[])
    assert reason(again) == "SourceNotFound"


def check_job(namespace: str, number: int) -> Object:
    metadata = {"name": f"check-source-{number}", "namespace": namespace, "labels": {RECORD: "x"}}
    return {"kind": "Job", "metadata": metadata, "spec": {}}


def test_few_checks_run_at_once_and_namespaces_do_not_share_turns() -> None:
    foreign = tuple(check_job("mallory", number) for number in range(50))
    own = tuple(check_job("models", number) for number in range(4))
    leaving = {**own[0], "metadata": own[0]["metadata"] | {"deletionTimestamp": CREATED}}
    assert job(world(others=(*foreign, *own[1:]))) is not None
    assert job(world(others=own)) is None
    assert job(world(others=(leaving, *own[1:]))) is not None


def test_our_jobs_count_as_running() -> None:
    manifest = job(world())
    assert manifest is not None
    jobs = [{**manifest, "metadata": {**manifest["metadata"], "name": f"check-source-{number}"}} for number in range(4)]
    assert job(world(others=tuple(jobs))) is None


def test_models_look_for_a_turn_at_different_times() -> None:
    def recheck(uid: str) -> float:
        state = world(others=tuple(check_job("models", number) for number in range(4)))
        state.resource["metadata"]["uid"] = uid
        seconds = worlds.status(KUBEAI, state).recheck_seconds
        assert seconds is not None
        return seconds

    few = {recheck(f"uid-{number}") for number in range(20)}
    assert 30 <= min(few) < max(few) <= 60
    assert len(few) == 20


def test_without_a_profile_there_is_no_check() -> None:
    """The plan refuses the Model."""
    view = KUBEAI.resolve(world(resourceProfile="none:1"))
    assert "SourceFound" not in [one["type"] for one in KUBEAI.status(view, None).status["conditions"]]


def test_a_retry_of_other_objects_changes_no_result() -> None:
    state = deployed(recorded(missing(world())))
    retried = Rejection(reason="Retrying", message="conflict", retryable=True)
    assert condition(state) == condition(state, retried)


def test_a_model_can_do_without_its_check() -> None:
    assert worlds.plan(KUBEAI, world()).dispensable == {("Job", "check-source-tiny")}
    assert not worlds.plan(KUBEAI, world(minReplicas=1)).dispensable


@pytest.mark.parametrize("text", ["[" * 3000, '{"of": 1}', '{"of":"x","found":"yes","failures":-1}', "x" * 9000])
def test_a_malformed_record_is_ignored(text: str) -> None:
    state = world()
    state.resource["metadata"]["annotations"] = {RECORD: text}
    assert job(state) is not None


def test_a_model_that_is_no_longer_checked_keeps_no_record() -> None:
    always = recorded(with_job(world(), "Complete"))
    always.resource["spec"]["minReplicas"] = 1
    assert worlds.plan(KUBEAI, always).self_patch["metadata"]["annotations"][RECORD] is None
