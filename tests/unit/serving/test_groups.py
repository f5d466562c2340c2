"""A leader and its workers become a LeaderWorkerSet, and what its controller says of it is read as of a Deployment."""

from __future__ import annotations

from typing import Any

import pytest

from slipway.kube.objects import Object
from slipway.serving.containers.diagnosis import TEMPLATE, Diagnosis, Limits, diagnose, template_digest
from slipway.serving.containers.freedoms import freedoms
from slipway.serving.pods.groups import LONGEST_NAME, Group, as_workload, leader_worker_set, owner_name
from slipway.serving.status.report import Component, report

SELECTOR = {"app": "chat-engine"}
GROUP = Group(
    name="lws-chat-engine", namespace="models", labels={"part": "engine"}, selector=SELECTOR, replicas=2, size=3
)


def template(image: str, **metadata: Any) -> Object:
    return {"metadata": metadata, "spec": {"containers": [{"name": "engine", "image": image}]}}


def build_group(leader: str = "engine:1", worker: str = "engine:1", **metadata: Any) -> Object:
    return leader_worker_set(template(leader, **metadata), template(worker), GROUP)


def observed(**status: Any) -> Object:
    resource = build_group()
    return {**resource, "metadata": {**resource["metadata"], "generation": 4}, "status": status}


def test_a_group_starts_and_ends_as_a_whole() -> None:
    spec = build_group()["spec"]
    assert (spec["replicas"], spec["leaderWorkerTemplate"]["size"]) == (2, 3)
    assert spec["leaderWorkerTemplate"]["restartPolicy"] == "RecreateGroupOnPodRestart"
    assert spec["startupPolicy"] == "LeaderCreated"


def test_leaders_and_workers_are_found_by_the_same_labels_and_are_ours() -> None:
    for role in ("leaderTemplate", "workerTemplate"):
        labels = build_group()["spec"]["leaderWorkerTemplate"][role]["metadata"]["labels"]
        assert labels == {**SELECTOR, "app.kubernetes.io/managed-by": "slipway"}


def test_a_change_of_the_workers_alone_makes_leaders_of_an_older_spec_too() -> None:
    before, after = (one["spec"]["leaderWorkerTemplate"] for one in (build_group(), build_group(worker="engine:2")))
    assert template_digest(before["leaderTemplate"]) == template_digest(before["workerTemplate"])
    assert template_digest(before["leaderTemplate"]) != template_digest(after["leaderTemplate"])


def test_the_topology_that_the_leader_asks_for_is_the_groups() -> None:
    topology = {"leaderworkerset.sigs.k8s.io/exclusive-topology": "rack"}
    assert build_group(annotations=topology)["metadata"]["annotations"] == topology
    assert "annotations" not in build_group()["metadata"]


def test_replicas_that_another_manager_sets_are_omitted() -> None:
    group = leader_worker_set(template("a"), template("a"), Group(**{**_fields(GROUP), "replicas": None}))
    assert "replicas" not in group["spec"]


def _fields(group: Group) -> dict[str, Any]:
    return {name: getattr(group, name) for name in group.__struct_fields__}


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        ({"replicas": 2, "readyReplicas": 2, "updatedReplicas": 2, "observedGeneration": 4}, "Complete"),
        ({"replicas": 2, "readyReplicas": 2, "updatedReplicas": 2, "observedGeneration": 3}, "RollingOut"),
        ({"replicas": 2, "readyReplicas": 2, "updatedReplicas": 2}, "Complete"),
        ({"replicas": 2, "readyReplicas": 1, "updatedReplicas": 2}, "RollingOut"),
    ],
)
def test_groups_are_reported_as_replicas(status: Object, reason: str) -> None:
    result = report((Component(as_workload(observed(**status)), Diagnosis()),), None, ())
    assert {one.type: one.reason for one in result.conditions}["Progressing"] == reason
    assert result.ready_replicas == status["readyReplicas"]


def test_a_workers_failure_is_reported_for_the_group() -> None:
    workload = as_workload(observed())
    mark = template_digest(workload["spec"]["template"])
    waiting = {"name": "engine", "image": "x", "state": {"waiting": {"reason": "ErrImagePull", "message": "gone"}}}
    pod = {
        "metadata": {
            "name": "w",
            "namespace": "models",
            "annotations": {TEMPLATE: mark},
            "creationTimestamp": "2026-11-22T09:00:00Z",
        },
        "status": {"phase": "Pending", "containerStatuses": [waiting]},
    }
    limits = Limits(startup_seconds=60, unschedulable_grace_seconds=30, container="engine")
    failure = diagnose(workload, [pod], limits, 0.0, lambda _log: None).failure
    assert failure is not None
    assert failure.reason == "ImagePullBackOff"


@pytest.mark.parametrize(
    ("controller", "label", "observed"),
    [
        ("lws-chat-engine", "lws-chat-engine", "lws-chat-engine"),
        ("lws-chat-engine-0", "lws-chat-engine", "lws-chat-engine"),
        ("other", "lws-chat-engine", ""),
        ("lws-chat-engine-0", "", ""),
    ],
)
def test_pods_lead_to_their_group_by_the_stateful_set_that_made_them(
    controller: str, label: str, observed: str
) -> None:
    labels = {"leaderworkerset.sigs.k8s.io/name": label} if label else {}
    assert owner_name(controller, labels) == observed


def test_the_longest_name_leaves_room_for_what_kubernetes_makes_of_it() -> None:
    revision = f"{'n' * LONGEST_NAME}-999999-{'0123456789'}"
    assert len(revision) <= 63


def test_fields_that_need_trust_are_found_in_leaders_and_workers() -> None:
    root = {"privileged": True}
    leader, worker = template("a"), template("a")
    worker["spec"]["containers"][0]["securityContext"] = root
    findings = freedoms((leader_worker_set(leader, worker, GROUP),))
    assert [one.value for one in findings if one.field.endswith("securityContext.privileged")] == ["true"]
