"""The conditions that every served model shows."""

from __future__ import annotations

from typing import Any

import pytest

from slipway.kube.objects import DEPLOYMENT, JOB, Key
from slipway.kube.schemas.conditions import Condition
from slipway.serving.containers.diagnosis import Diagnosis, Failure
from slipway.serving.contract.api import Rejection
from slipway.serving.pods.groups import LEADER_WORKER_SET
from slipway.serving.routing.claims import Rules
from slipway.serving.routing.route import Route, RoutedService
from slipway.serving.status.report import Component, Pending, model_id, newest_answers, report, routed
from tests.tables import each

LOADING = Pending("LoadingCache", "The weights are being loaded.")
BROKEN = Diagnosis(Failure("CrashLoopBackOff", "It ended."))
REFUSED = Rejection("InvalidSpec", "no")


def deployment(replicas: int = 1, /, **status: int) -> dict[str, Any]:
    return {
        "metadata": {"generation": 1},
        "spec": {"replicas": replicas},
        "status": {"observedGeneration": 1, **status},
    }


def running(count: int) -> dict[str, int]:
    return {"replicas": count, "updatedReplicas": count, "readyReplicas": count}


@pytest.mark.parametrize(
    ("observed", "diagnosis", "rejection", "pending", "available", "progressing"),
    [
        (None, Diagnosis(), None, None, "WaitingForPods", "RollingOut"),
        (None, Diagnosis(), None, LOADING, "LoadingCache", "LoadingCache"),
        (None, BROKEN, None, LOADING, "CrashLoopBackOff", "CrashLoopBackOff"),
        (deployment(), Diagnosis(), None, None, "WaitingForPods", "RollingOut"),
        (deployment(1, **running(1)), Diagnosis(), None, None, "Ready", "Complete"),
        (deployment(1, **running(1)), Diagnosis(), None, LOADING, "Ready", "LoadingCache"),
        (deployment(0), Diagnosis(), None, None, "ScaledToZero", "Complete"),
        (deployment(0, **running(1)), Diagnosis(), None, None, "Ready", "RollingOut"),
        (deployment(0), Diagnosis(), REFUSED, None, "InvalidSpec", "InvalidSpec"),
        (deployment(2, **running(1)), BROKEN, None, None, "Ready", "CrashLoopBackOff"),
    ],
)
def test_the_reasons_follow_the_observed_state(
    observed: dict[str, Any] | None,
    diagnosis: Diagnosis,
    rejection: Rejection | None,
    pending: Pending | None,
    available: str,
    progressing: str,
) -> None:
    other = Condition("Routed", "True", "Routed", "")
    conditions = report([Component(observed, diagnosis)], rejection, [other], pending).conditions
    assert [condition.type for condition in conditions] == ["Accepted", "Available", "Progressing", "Routed"]
    assert (conditions[1].reason, conditions[2].reason) == (available, progressing)


COUNTS = {
    "two replicas of the newest spec": (True, {"replicas": 2, "updatedReplicas": 2, "readyReplicas": 2}),
    "one of two replicas that fails": (True, {"replicas": 2, "updatedReplicas": 2, "readyReplicas": 1}),
    "a rollout whose first replica fails": (False, {"replicas": 3, "updatedReplicas": 1, "readyReplicas": 2}),
    "a rollout whose replicas are refused": (False, {"replicas": 2, "readyReplicas": 2}),
    "a canary that does not answer": (False, {"replicas": 1, "updatedReplicas": 1}),
}


@each(COUNTS)
def test_the_newest_spec_answers_unless_replicas_of_an_earlier_one_do(case: str) -> None:
    answers, counts = COUNTS[case]
    name, answering = Key("models", "a"), deployment(1, replicas=1, updatedReplicas=1, readyReplicas=1)
    others = {(DEPLOYMENT, Key("models", "b")): answering, (JOB, name): {"spec": {}, "status": {}}}
    assert newest_answers({(DEPLOYMENT, name): deployment(2, **counts), **others}) is answers
    assert newest_answers({(LEADER_WORKER_SET, name): deployment(2, **counts)}) is answers
    assert newest_answers({(DEPLOYMENT, name): deployment(0), **others})


def service(namespace: str, name: str, model: str, since: int) -> RoutedService:
    return RoutedService(namespace, name, Route(models=(model,), name=model), since)


def test_a_lost_name_is_reported_by_the_ids_that_requests_use() -> None:
    mine, other = service("new", "model-a", "a", 2), service("old", "model-a", "a", 1)
    condition = routed("new/model-a", ("a",), [mine, other])
    assert condition.reason == "NameConflict"
    assert "a is served by old/a. The model ID of this one is new/a" in condition.message
    assert routed("old/model-a", ("a",), [mine, other]).status == "True"
    assert routed("new/model-b", ("b",), [mine, other]).reason == "NoService"


def test_a_model_that_shares_its_long_id_with_an_older_one_reports_that_it_is_unreachable() -> None:
    kubeai, krypton = service("models", "model-a", "a", 2), service("models", "a", "a", 1)
    condition = routed("models/model-a", ("a",), [kubeai, krypton])
    assert condition.reason == "NoId"
    assert "This model has no model ID" in condition.message
    assert routed("models/a", ("a",), [kubeai, krypton]).status == "True"


def test_an_id_of_another_namespace_is_reported_as_refused_even_if_no_model_has_it() -> None:
    rules = Rules(owners={"a": "bank"})
    condition = routed("new/model-a", ("a",), [rules.apply(service("new", "model-a", "a", 1))])
    assert (condition.status, condition.reason) == ("False", "NameConflict")
    assert "a belongs to namespace bank (idOwners). The model ID of this one is new/a." in condition.message
    assert routed("bank/model-a", ("a",), [rules.apply(service("bank", "model-a", "a", 2))]).status == "True"


def test_the_model_id_of_a_status_is_the_one_that_leads_to_it() -> None:
    older, newer = service("a", "m", "tiny", 1), service("b", "m", "tiny", 2)
    assert model_id("a/m", ("tiny",), (older, newer)) == {"modelId": "tiny"}
    assert model_id("b/m", ("tiny",), (older, newer)) == {"modelId": newer.qualified}
    assert model_id("b/absent", ("tiny",), (older, newer)) == {}
    twin = newer._replace(name="twin", since=3)
    assert model_id("b/twin", ("tiny",), (older, newer, twin)) == {}


def test_aliases_are_reported_with_those_that_the_model_may_not_have() -> None:
    route = Route(models=("a",), name="a", aliases=("org/a", "Qwen/a"))
    one = Rules().apply(RoutedService("new", "model-a", route, 1))
    condition = routed("new/model-a", ("a",), [one])
    assert (condition.status, condition.reason) == ("True", "Routed")
    assert "as a, new/a. It also answers requests for Qwen/a, unless another model has that ID." in condition.message
    assert (
        "not answer requests for org/a, which belongs to namespace org, unless hubOrganizations names org."
        in condition.message
    )


def test_however_many_aliases_a_model_has_few_are_reported() -> None:
    route = Route(models=("a",), name="a", aliases=tuple(f"{kind}/{n}" for n in range(32) for kind in ("org", "Org")))
    condition = routed("new/model-a", ("a",), [Rules().apply(RoutedService("new", "model-a", route, 1))])
    assert "Org/0, Org/1, Org/2 and 29 more, unless" in condition.message
    assert condition.message.count("hubOrganizations") == 3


def test_an_older_service_that_may_not_have_the_id_does_not_stand_in_the_way() -> None:
    rules = Rules(owners={"a": "bank"})
    services = [rules.apply(service("bank", "model-a", "a", 2)), rules.apply(service("old", "model-a", "a", 1))]
    assert routed("bank/model-a", ("a",), services).status == "True"


def test_a_model_of_an_unrouted_namespace_reports_the_setting() -> None:
    rules = Rules(namespaces=frozenset({"bank"}))
    condition = routed("new/model-a", ("a",), [rules.apply(service("new", "model-a", "a", 1))])
    assert (condition.status, condition.reason) == ("False", "NotRouted")
    assert "routedNamespaces" in condition.message


def test_a_refused_long_id_is_reported() -> None:
    condition = routed("new/model-a", ("a",), [Rules(owners={"new/a": "b"}).apply(service("new", "model-a", "a", 1))])
    assert condition.reason == "NameConflict"
    assert "new/a belongs to namespace b (idOwners)." in condition.message


def component(name: str, ready: int, replicas: int = 1, failure: Failure | None = None) -> Component:
    status = {"replicas": replicas, "readyReplicas": ready, "updatedReplicas": replicas, "observedGeneration": 1}
    workload = {"metadata": {"generation": 1}, "spec": {"replicas": replicas}, "status": status}
    return Component(workload, Diagnosis(failure), name)


@pytest.mark.parametrize(
    ("components", "phase", "available", "progressing"),
    [
        ([component("engine", 2, 2), component("router", 1)], "Ready", "Ready", "Complete"),
        ([component("engine", 2, 2), component("router", 0)], "Pending", "WaitingForPods", "RollingOut"),
        (
            [component("engine", 2, 2), Component(None, Diagnosis(), "router")],
            "Pending",
            "WaitingForPods",
            "RollingOut",
        ),
        (
            [component("engine", 1), component("router", 0, failure=Failure("OOMKilled", "no"))],
            "Failed",
            *["OOMKilled"] * 2,
        ),
        ([component("engine", 0, 0), component("router", 0, 0)], "Pending", "ScaledToZero", "Complete"),
        ([component("engine", 1), component("router", 0, 0)], "Pending", "WaitingForPods", "Complete"),
    ],
)
def test_all_workloads_must_answer(components: list[Component], phase: str, available: str, progressing: str) -> None:
    result = report(components, None, [])
    reasons = {one.type: one.reason for one in result.conditions}
    assert (result.phase, reasons["Available"], reasons["Progressing"]) == (phase, available, progressing)


def test_each_workload_is_counted_by_its_name() -> None:
    result = report([component("engine", 2, 2), component("router", 1)], None, [])
    messages = {one.type: one.message for one in result.conditions}
    assert messages["Available"] == "engine: 2 replicas answer. router: 1 replica answers."
    assert messages["Progressing"] == "All 3 replicas run the latest spec."
    assert (result.replicas, result.ready_replicas) == (3, 3)


@pytest.mark.parametrize(
    ("requested", "expected"),
    [
        (0, "Scaled to zero replicas. The next one starts with the latest spec."),
        (1, "The replica runs the latest spec."),
        (2, "All 2 replicas run the latest spec."),
    ],
)
def test_the_end_of_a_rollout_is_reported_in_words_for_any_number_of_replicas(requested: int, expected: str) -> None:
    result = report([component("engine", requested, requested)], None, [])
    assert {one.type: one.message for one in result.conditions}["Progressing"] == expected
