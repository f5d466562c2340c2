"""Jobs: what their pods told, and why there are none."""

from __future__ import annotations

from typing import Any

import pytest

from slipway.kube.schemas.conditions import timestamp
from slipway.serving.pods.job import is_active, job_of, last_error, pods_of, termination_message, without_pods

NOW = 1_800_000_000.0


def job(age: float = 60, **status: Any) -> dict[str, Any]:
    return {"metadata": {"name": "load", "uid": "job", "creationTimestamp": timestamp(NOW - age)}, "status": status}


def pod(age: float, owner: str = "job", **status: Any) -> dict[str, Any]:
    reference = {"apiVersion": "batch/v1", "kind": "Job", "name": "load", "uid": owner, "controller": True}
    stamp = timestamp(NOW - age)
    return {"metadata": {"uid": str(age), "creationTimestamp": stamp, "ownerReferences": [reference]}, "status": status}


def ended(age: float, phase: str, code: int, message: str) -> dict[str, Any]:
    state = {"terminated": {"exitCode": code, "message": message}}
    return pod(age, phase=phase, containerStatuses=[{"name": "loader", "state": state}])


def test_pods_of_a_job_of_the_same_name_that_was_before_are_not_its_own() -> None:
    pods = [pod(9), pod(3), pod(5, "earlier")]
    assert [one["metadata"]["uid"] for one in pods_of(job(), pods)] == ["3", "9"]
    assert pods_of(None, pods) == []


def test_a_pod_of_another_kinds_job_is_no_jobs() -> None:
    """Volcano's Jobs, for example, have the same name of their kind."""
    theirs = pod(9)
    theirs["metadata"]["ownerReferences"][0]["apiVersion"] = "batch.volcano.sh/v1alpha1"
    reference = job_of(pod(3))
    assert reference is not None
    assert reference.name == "load"
    assert job_of(theirs) is None
    assert pods_of(job(), [theirs]) == []


def test_the_newest_pod_that_failed_has_the_last_word() -> None:
    pods = [
        ended(9, "Failed", 1, "old"),
        ended(5, "Failed", 3, "a log line\nthe reason \n\n"),
        ended(2, "Succeeded", 0, "x"),
    ]
    assert last_error(pods) == "the reason"
    assert last_error([ended(5, "Failed", 3, "")]) == "it ended with exit code 3"
    assert last_error([pod(5, phase="Failed", reason="Evicted", message="out of disk")]) == "out of disk"
    assert last_error([pod(5, phase="Running")]) == ""


def test_the_newest_pod_that_succeeded_tells_what_it_found() -> None:
    pods = [ended(9, "Succeeded", 0, "old"), ended(5, "Succeeded", 0, "new"), ended(2, "Failed", 1, "x")]
    assert termination_message(pods) == "new"
    assert termination_message(pods[2:]) == ""


def test_a_job_without_pods_is_given_a_moment() -> None:
    assert without_pods(job(age=5), "loads", NOW).recheck_seconds == 15.0
    failure = without_pods(job(), "loads", NOW).failure
    assert failure is not None
    assert (failure.reason, "kubectl describe job load" in failure.message) == ("PodsRejected", True)


def test_a_job_that_is_over_or_goes_needs_no_pods() -> None:
    over = {"type": "Complete", "status": "True", "lastTransitionTime": timestamp(NOW)}
    assert without_pods(job(conditions=[over]), "loads", NOW).failure is None
    going = job()
    going["metadata"]["deletionTimestamp"] = timestamp(NOW)
    assert without_pods(going, "loads", NOW).failure is None
    assert without_pods(None, "loads", NOW).failure is None


@pytest.mark.parametrize(
    ("status", "age", "at_work"),
    [
        ({}, 5, True),
        ({}, 60, False),
        ({"active": 1}, 60, True),
        ({"active": 0, "failed": 2}, 60, True),
        ({"active": 0, "failed": 0}, 60, False),
        (
            {"failed": 5, "conditions": [{"type": "Failed", "status": "True", "lastTransitionTime": timestamp(NOW)}]},
            60,
            False,
        ),
        ({"conditions": [{"type": "Complete", "status": "True", "lastTransitionTime": timestamp(NOW)}]}, 5, False),
    ],
)
def test_a_job_without_a_pod_is_at_work_only_while_it_may_get_one(
    status: dict[str, Any], age: float, at_work: bool
) -> None:
    assert is_active(job(age, **status), NOW) == at_work
