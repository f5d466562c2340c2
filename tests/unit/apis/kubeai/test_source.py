"""Whether the hub has what a KubeAI Model that sleeps names is found out before its first request."""

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
from slipway.serving.settings import Settings
from slipway.serving.times import unix_time
from slipway.weights.checks import RECORD
from tests import worlds
from tests.worlds import at

UID = "33333333-0000-0000-0000-000000000001"
MADE = "2026-11-21T09:00:00Z"
NOW = unix_time("2026-11-21T09:05:00Z")
ANSWERS = {
    "conditions": [
        {"type": "Available", "status": "True", "reason": "Ready", "observedGeneration": 1},
        {"type": "Progressing", "status": "False", "reason": "Complete", "observedGeneration": 1},
    ]
}
MISSING = "huggingface.co has no repository acme/tiny: the name is wrong, or it is private and needs HF_TOKEN"


def world(*, config: str = "{}", others: tuple[Object, ...] = (), **spec: Any) -> World:
    metadata = {"name": "tiny", "namespace": "models", "uid": UID, "generation": 1, "creationTimestamp": MADE}
    least = {"url": "hf://acme/tiny", "engine": "VLLM", "features": [], "resourceProfile": "cpu:1"}
    settings = Settings(system_namespace="system")
    known = {Reference(CONFIG_MAP, "system", "slipway-kubeai"): {"data": {"system.yaml": config}}}
    return World(
        resource={"metadata": metadata, "spec": least | spec},
        children={},
        pods=[],
        routed=[],
        settings=settings,
        now=NOW,
        listers=worlds.known(KUBEAI, settings, known, others),
    )


def job(asked: World) -> Object | None:
    """The Job by which the source is asked."""
    children = worlds.plan(KUBEAI, asked).children
    return next((child for child in children if child["kind"] == "Job"), None)


def with_job(asked: World, how: str = "", reason: str = "", message: str = "", since: str = MADE) -> World:
    """The world in which the Job is there, and has ended ``how``."""
    made = job(asked)
    assert made is not None
    ended = {"type": how, "status": "True", "reason": reason, "lastTransitionTime": since}
    made = {**made, "metadata": {**made["metadata"], "uid": "job"}, "status": {"conditions": [ended] if how else []}}
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "x", "uid": "job", "controller": True}
    pod = {
        "metadata": {"name": "p", "creationTimestamp": MADE, "ownerReferences": [owner]},
        "status": {
            "phase": "Failed" if how == "Failed" else "Running",
            "containerStatuses": [{"name": "check", "state": {"terminated": {"exitCode": 3, "message": message}}}],
        },
    }
    return msgspec.structs.replace(asked, children={at(JOB, made["metadata"]["name"]): made}, pods=[pod])


def missing(asked: World) -> World:
    return with_job(asked, "Failed", "PodFailurePolicy", MISSING)


def recorded(asked: World) -> World:
    """The world after what is known was written to the Model, and the Job is gone."""
    found = worlds.plan(KUBEAI, asked).self_patch["metadata"]["annotations"]
    metadata = asked.resource["metadata"] | {"annotations": found}
    return msgspec.structs.replace(asked, resource=asked.resource | {"metadata": metadata}, children={}, pods=[])


def condition(asked: World) -> Object | None:
    told = worlds.status(KUBEAI, asked).status["conditions"]
    return next((one for one in told if one["type"] == "SourceFound"), None)


def reason(asked: World) -> str:
    found = condition(asked)
    return found["reason"] if found else ""


def summary(asked: World) -> dict[str, tuple[str, str]]:
    told = summarize(worlds.status(KUBEAI, asked).status, READINESS, 1)
    return {one.type: (one.status, one.reason) for one in told}


def deployed(asked: World) -> World:
    """The world with the Deployment of the Model that sleeps."""
    made = next(child for child in worlds.plan(KUBEAI, asked).children if child["kind"] == "Deployment")
    there = {at(DEPLOYMENT, made["metadata"]["name"]): {**made, "status": {}}}
    return msgspec.structs.replace(asked, children={**asked.children, **there})


def at_time(asked: World, now: float) -> World:
    return msgspec.structs.replace(asked, now=now)


def test_the_job_asks_for_the_repository_and_its_file_with_the_models_own_credentials() -> None:
    made = job(world(engine="LlamaCpp", url="hf://acme/tiny:q4@main?model=tiny.gguf", env={"HF_TOKEN": "mine"}))
    assert made is not None
    container = made["spec"]["template"]["spec"]["containers"][0]
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
def test_what_pods_tell_or_only_an_engine_may_judge_is_not_asked(spec: dict[str, Any]) -> None:
    assert job(world(**spec)) is None


def test_patches_of_the_operator_may_bring_a_token_along_too() -> None:
    config = "modelServerPods: {jsonPatches: [{op: add, path: /metadata/annotations, value: {}}]}"
    assert job(world(config=config)) is None


def test_an_operator_may_have_no_source_asked_and_what_was_known_goes() -> None:
    done = recorded(with_job(world(), "Complete"))
    settings = msgspec.structs.replace(done.settings, check_sources=False)
    off = msgspec.structs.replace(done, settings=settings)
    assert (job(off), condition(off)) == (None, None)
    assert worlds.plan(KUBEAI, off).self_patch["metadata"]["annotations"][RECORD] is None
    off.resource["spec"]["url"] = "hf://acme/other"
    assert job(off) is None


def test_a_source_that_lacks_the_weights_is_told_and_the_model_is_not_ready() -> None:
    asleep = deployed(recorded(missing(world())))
    told = condition(asleep)
    assert told is not None
    assert (told["status"], told["reason"]) == ("False", "SourceNotFound")
    assert told["message"].startswith(f"{MISSING}. It is asked again")
    assert summary(asleep)["Ready"] == ("False", "SourceNotFound")
    assert summary(asleep)["Stalled"] == ("True", "SourceNotFound")


def test_a_hub_that_does_not_answer_is_no_failure() -> None:
    asleep = deployed(recorded(with_job(world(), "Failed", "BackoffLimitExceeded", "the hub is not well")))
    told = condition(asleep)
    assert told is not None
    assert (told["status"], told["reason"]) == ("Unknown", "SourceUnreachable")
    assert "the hub is not well" in told["message"]
    assert summary(asleep)["Ready"] == ("True", "Ready")


def test_the_job_goes_where_the_models_pods_may_and_a_quota_takes_it() -> None:
    taint = {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}
    made = job(
        world(config=json.dumps({"resourceProfiles": {"gpu": {"tolerations": [taint]}}}), resourceProfile="gpu:1")
    )
    assert made is not None
    pod = made["spec"]["template"]["spec"]
    assert pod["tolerations"] == [taint]
    resources = pod["containers"][0]["resources"]
    assert {part: set(resources[part]) for part in ("requests", "limits")} == {
        "requests": {"cpu", "memory"},
        "limits": {"cpu", "memory"},
    }


def test_a_model_whose_profile_is_not_there_says_nothing_of_its_source() -> None:
    refused = Rejection(reason="UnknownProfile", message="there is no such profile")
    told = worlds.status(KUBEAI, world(resourceProfile="none:1"), refused)
    assert "SourceFound" not in [one["type"] for one in told.status["conditions"]]


@pytest.mark.parametrize(
    ("status", "said"),
    [
        ({}, "The source was not checked: The cluster made no pod for the Job check-source-tiny: a quota"),
        (
            {"failed": 1},
            (
                "The source was not checked: The Job check-source-tiny ended after 120 seconds,"
                " and its pod reported nothing"
            ),
        ),
    ],
)
def test_the_hub_is_not_blamed_where_no_pod_asked_it(status: Object, said: str) -> None:
    ended = msgspec.structs.replace(with_job(world(), "Failed", "DeadlineExceeded"), pods=[])
    for made in ended.children.values():
        made["status"] |= status
    asleep = deployed(recorded(ended))
    told = condition(asleep)
    assert told is not None
    assert (told["status"], told["reason"]) == ("Unknown", "SourceNotChecked")
    assert told["message"].startswith(said)
    assert summary(asleep)["Ready"] == ("True", "Ready")


def test_a_job_for_which_the_cluster_makes_no_pod_says_so_meanwhile() -> None:
    podless = msgspec.structs.replace(with_job(world()), pods=[])
    for made in podless.children.values():
        made["metadata"]["creationTimestamp"] = MADE
    told = condition(podless)
    assert told is not None
    assert told["reason"] == "SourceNotChecked"
    assert "kubectl describe job check-source-tiny" in told["message"]
    young = at_time(podless, unix_time(MADE) + 5)
    assert reason(young) == "CheckingSource"
    assert worlds.status(KUBEAI, young).recheck_seconds == 15


def test_what_only_the_loader_may_not_read_is_no_failure() -> None:
    text = "SourceNotAllowed: 10.0.0.1 is not public"
    assert reason(recorded(with_job(world(), "Failed", "PodFailurePolicy", text))) == "SourceUnreachable"


def test_each_version_of_a_source_is_asked_once() -> None:
    done = recorded(with_job(world(), "Complete"))
    assert (job(done), reason(done)) == (None, "SourceFound")
    done.resource["spec"]["url"] = "hf://acme/other"
    assert job(done) is not None


def test_a_source_that_lacked_the_weights_is_asked_again_at_longer_and_longer_intervals() -> None:
    asked, since = recorded(missing(world())), unix_time(MADE)
    waits = []
    for _time in range(9):
        later = next(seconds for seconds in range(60, 40000, 60) if job(at_time(asked, since + seconds)) is not None)
        waits.append(later)
        again = at_time(asked, since + later)
        since = again.now
        asked = recorded(with_job(again, "Failed", "PodFailurePolicy", MISSING, timestamp(since)))
    assert waits == [300, 600, 1200, 2400, 4800, 9600, 19200, 21600, 21600]


def test_a_job_that_is_seen_again_after_its_answer_was_written_counts_once() -> None:
    ended = missing(world())
    annotations = recorded(ended).resource["metadata"]["annotations"]
    both = msgspec.structs.replace(
        ended, resource={**ended.resource, "metadata": {**ended.resource["metadata"], "annotations": annotations}}
    )
    again = worlds.plan(KUBEAI, both).self_patch["metadata"]["annotations"]
    assert json.loads(again[RECORD]) == json.loads(annotations[RECORD])


def test_while_it_starts_its_pods_speak_for_a_model_and_once_they_answer_the_source_is_found() -> None:
    awake = recorded(missing(world()))
    awake.resource["spec"]["replicas"] = 1
    assert condition(awake) is None
    answering = msgspec.structs.replace(awake, resource=awake.resource | {"status": ANSWERS})
    assert reason(answering) == "SourceFound"
    written = worlds.plan(KUBEAI, answering).self_patch["metadata"]["annotations"][RECORD]
    assert json.loads(written)["found"] == "yes"


def test_what_was_settled_before_anybody_asked_stays_ready_meanwhile() -> None:
    asked = deployed(with_job(world()))
    assert reason(asked) == "CheckingSource"
    assert summary(asked)["Reconciling"] == ("True", "CheckingSource")
    status = {"conditions": [{"type": "Reconciling", "status": "False", "reason": "Complete", "observedGeneration": 1}]}
    before = msgspec.structs.replace(asked, resource=asked.resource | {"status": status})
    assert reason(before) == "SourceNotChecked"
    assert summary(before)["Reconciling"] == ("False", "Complete")


def asking(namespace: str, number: int) -> Object:
    metadata = {"name": f"check-source-{number}", "namespace": namespace, "labels": {RECORD: "x"}}
    template = {"spec": {"containers": [{"args": []}]}}
    return {"kind": "Job", "metadata": metadata, "spec": {"activeDeadlineSeconds": 120, "template": template}}


def test_few_sources_are_asked_at_a_time_and_no_namespace_takes_the_turns_of_all() -> None:
    hers = tuple(asking(f"mallory-{number}", number) for number in range(50))
    mine = asking("models", 1)
    assert job(world(others=hers)) is not None
    assert job(world(others=(mine,))) is not None
    assert job(world(others=(mine, asking("models", 2)))) is None
    assert job(world(others=(*hers, mine))) is None


@pytest.mark.parametrize(
    "forged",
    [{"suspend": True}, {"managedBy": "acme.example/nobody"}, {"activeDeadlineSeconds": 10**9}, {"gone": True}],
)
def test_a_job_that_would_ask_for_ever_takes_nobodys_turn(forged: dict[str, Any]) -> None:
    jobs = [asking("models", number) for number in range(2)]
    for one in jobs:
        one["spec"] |= forged
        one["metadata"] |= {"deletionTimestamp": MADE} if "gone" in forged else {}
    assert job(world(others=tuple(jobs))) is not None


def test_the_job_itself_counts_as_one_that_asks() -> None:
    made = job(world())
    assert made is not None
    jobs = [{**made, "metadata": {**made["metadata"], "name": f"check-source-{number}"}} for number in range(2)]
    assert job(world(others=tuple(jobs))) is None


def waiting(number: int) -> Object:
    told = {"type": "SourceFound", "status": "Unknown", "reason": "SourceNotChecked"}
    metadata = {"name": f"other-{number}", "namespace": "models"}
    spec = {"url": "hf://acme/tiny", "engine": "VLLM", "features": [], "resourceProfile": "cpu:1"}
    return {"metadata": metadata, "spec": spec, "status": {"conditions": [told]}}


def test_however_many_wait_for_a_turn_few_of_them_look_at_a_time_and_at_different_times() -> None:
    busy = (asking("models", 1), asking("models", 2))

    def recheck(uid: str, others: tuple[Object, ...]) -> float:
        asked = world(others=(*busy, *others))
        asked.resource["metadata"]["uid"] = uid
        seconds = worlds.status(KUBEAI, asked).recheck_seconds
        assert seconds is not None
        return seconds

    few = [recheck(f"uid-{number}", ()) for number in range(20)]
    assert 30 <= min(few) < max(few) <= 60
    assert len(set(few)) == 20
    assert 200 <= recheck("uid", tuple(waiting(number) for number in range(1000))) <= 400


@pytest.mark.parametrize("text", ["[" * 3000, '{"of": 1}', '{"of":"x","found":"yes","failures":-1}', "x" * 9000])
def test_what_strangers_write_into_the_annotation_says_nothing(text: str) -> None:
    asked = world()
    asked.resource["metadata"]["annotations"] = {RECORD: text}
    assert job(asked) is not None


def test_a_model_that_is_asked_no_more_keeps_no_record() -> None:
    always = recorded(with_job(world(), "Complete"))
    always.resource["spec"]["minReplicas"] = 1
    assert worlds.plan(KUBEAI, always).self_patch["metadata"]["annotations"][RECORD] is None
