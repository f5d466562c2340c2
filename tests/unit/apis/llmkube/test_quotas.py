"""GPUQuotas: who may have GPUs, who waits and until when, and what each is told. Services are looked at one after
another until nothing changes any more, as the controller does it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from slipway.apis.llmkube import QUOTAS, SERVICES, quotas
from slipway.apis.llmkube.api import QUOTA_INDEXES
from slipway.apis.llmkube.model_types import KIND as MODEL
from slipway.apis.llmkube.quota_types import KIND
from slipway.apis.llmkube.service_types import KIND as INFERENCE_SERVICE
from slipway.kube.objects import DEPLOYMENT, HORIZONTAL_POD_AUTOSCALER, Key
from slipway.kube.store import Change, Store, Stores
from slipway.serving.api import Reference, World
from slipway.serving.settings import Settings
from tests import worlds

from .services import GGUF, model

NOW = 1_795_252_000.0
LABELS = {"team": "blue"}


class Cluster:
    """Services, and quotas, as the controller's caches have them."""

    def __init__(self, *found: dict[str, Any]) -> None:
        namespace = {"kind": "Namespace", "metadata": {"name": "models", "labels": LABELS}}
        self.objects = {(one["kind"], one["metadata"]["name"]): one for one in (*found, namespace)}
        self.deployments: dict[str, dict[str, Any]] = {}
        self.model = model("tiny", GGUF)

    def world(self, name: str) -> World:
        kinds = {"GPUQuota": KIND, "InferenceService": INFERENCE_SERVICE, "Namespace": quotas.NAMESPACES}
        known = {
            Reference(kinds[kind], "" if kind == "Namespace" else "models", one): found
            for (kind, one), found in self.objects.items()
        }
        made = self.deployments.get(name)
        return World(
            resource=self.objects["InferenceService", name],
            children={(DEPLOYMENT, Key("models", name)): made} if made else {},
            pods=[],
            routed=[],
            settings=Settings(),
            now=NOW,
            listers=worlds.known(SERVICES, objects=known | {Reference(MODEL, "models", "tiny"): self.model}),
        )

    def decide(self, name: str) -> dict[str, Any]:
        """One reconciliation, whose writes are not yet seen: the status that it writes."""
        asked = self.world(name)
        for made in worlds.plan(SERVICES, asked).children:
            if made["kind"] == "Deployment":
                self.deployments[name] = made
        return worlds.status(SERVICES, asked).status

    def write(self, name: str, status: dict[str, Any]) -> bool:
        """Whether anything is new."""
        before = self.objects["InferenceService", name]
        self.objects["InferenceService", name] = {**before, "status": status}
        return before.get("status", {}).get("quota") != status.get("quota")

    def settle(self, names: Iterable[str] = ()) -> None:
        """Looks at services, by default all, until nothing is new."""
        for _unused in range(20):
            services = names or [name for kind, name in self.objects if kind == "InferenceService"]
            news = [self.write(name, self.decide(name)) for name in services]
            if not any(news):
                return
        pytest.fail("the services never come to rest")

    def running(self) -> dict[str, int]:
        """Replicas of each service that runs."""
        return {name: made["spec"]["replicas"] for name, made in sorted(self.deployments.items())}

    def waits(self, name: str) -> str:
        """Reason of the condition Progressing."""
        return str(_conditions(self.objects["InferenceService", name])["Progressing"]["reason"])

    def quota(self, name: str = "team", before: dict[str, Any] | None = None) -> dict[str, Any]:
        resource = {**self.objects["GPUQuota", name], "status": before or {}}
        asked = World(
            resource=resource,
            children={},
            pods=[],
            routed=[],
            settings=Settings(),
            now=NOW,
            listers=worlds.known(QUOTAS, others=[resource, *self.services()]),
        )
        return worlds.status(QUOTAS, asked).status

    def services(self) -> list[dict[str, Any]]:
        return [one for (kind, _name), one in self.objects.items() if kind == "InferenceService"]


def _conditions(resource: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {one["type"]: one for one in resource["status"]["conditions"]}


def service(name: str, gpus: int = 1, minute: int = 0, **spec: Any) -> dict[str, Any]:
    since = f"2026-11-21T09:{minute:02}:00Z"
    metadata = {"name": name, "namespace": "models", "uid": name, "generation": 1, "creationTimestamp": since}
    return {
        "kind": "InferenceService",
        "metadata": metadata,
        "spec": {"modelRef": "tiny", "resources": {"gpu": gpus}, **spec},
    }


def quota(gpus: int, name: str = "team", **spec: Any) -> dict[str, Any]:
    since = "2026-11-21T08:00:00Z"
    metadata = {"name": name, "namespace": "models", "uid": name, "generation": 1, "creationTimestamp": since}
    chosen = {} if "selector" in spec else {"namespaceRef": "models"}
    return {"kind": "GPUQuota", "metadata": metadata, "spec": {"gpuCount": gpus, **chosen, **spec}}


def test_without_a_quota_nothing_is_written_down() -> None:
    cluster = Cluster(service("a"))
    cluster.settle()
    assert cluster.running() == {"a": 1}
    assert "quota" not in cluster.objects["InferenceService", "a"]["status"]


def test_the_oldest_start_and_the_rest_waits_with_the_reason() -> None:
    cluster = Cluster(quota(3), service("a", 1, 1), service("b", 1, 2), service("c", 2, 3))
    cluster.settle()
    assert cluster.running() == {"a": 1, "b": 1}
    assert cluster.waits("c") == "QuotaExceeded"
    assert "has 3 GPUs, of which 2 are taken; the service wants 2" in str(cluster.objects["InferenceService", "c"])


def test_all_replicas_and_all_that_autoscaling_allows_are_counted() -> None:
    cluster = Cluster(quota(5), service("a", 2, replicas=2), service("b", 1, 1, autoscaling={"maxReplicas": 2}))
    cluster.settle()
    assert cluster.running() == {"a": 2}
    assert cluster.waits("b") == "QuotaExceeded"


@pytest.mark.parametrize("idle", [{"suspend": True}, {"replicas": 0}, {"resources": {}}])
def test_who_has_no_gpus_needs_none(idle: dict[str, Any]) -> None:
    cluster = Cluster(quota(0), service("a", **idle))
    cluster.settle()
    assert "a" in cluster.running()


def test_nobody_is_passed_over_by_one_that_needs_less() -> None:
    cluster = Cluster(quota(3), service("a", 2, 1), service("b", 2, 2), service("c", 1, 3))
    cluster.settle()
    assert cluster.running() == {"a": 1}
    assert (cluster.waits("b"), cluster.waits("c")) == ("QuotaExceeded", "QuotaExceeded")


def test_the_first_in_the_queue_starts_when_there_is_room() -> None:
    cluster = Cluster(quota(2), service("a", 2, 1), service("b", 1, 2), service("c", 1, 3), service("d", 1, 4))
    cluster.settle()
    del cluster.objects["InferenceService", "a"], cluster.deployments["a"]
    cluster.settle()
    assert cluster.running() == {"b": 1, "c": 1}


def test_priority_goes_before_age() -> None:
    cluster = Cluster(quota(1), service("a", 1, 1), service("b", 1, 2), service("c", 1, 3, priority="high"))
    cluster.settle(["a"])
    cluster.settle(["b", "c"])
    del cluster.objects["InferenceService", "a"], cluster.deployments["a"]
    cluster.settle()
    assert cluster.running() == {"c": 1}


def test_who_runs_is_not_stopped_for_an_older_one() -> None:
    cluster = Cluster(quota(1), service("young", 1, 9))
    cluster.settle()
    cluster.objects["InferenceService", "old"] = service("old", 1, 1)
    cluster.settle()
    assert cluster.running() == {"young": 1}


def test_more_replicas_wait_and_those_that_there_are_serve_on() -> None:
    cluster = Cluster(quota(2), service("a", 1, 1), service("b", 1, 2))
    cluster.settle()
    cluster.objects["InferenceService", "a"]["spec"]["replicas"] = 2
    cluster.settle()
    assert cluster.running() == {"a": 1, "b": 1}
    assert cluster.waits("a") == "QuotaExceeded"
    assert cluster.objects["InferenceService", "a"]["status"]["quota"]["gpus"] == 1


def test_that_its_model_is_not_ready_gives_nobody_more_replicas() -> None:
    cluster = Cluster(quota(1), service("a", 1, 1))
    cluster.settle()
    cluster.model["status"] = {"phase": "Downloading", "observedGeneration": 1}
    cluster.objects["InferenceService", "a"]["spec"]["replicas"] = 2
    cluster.settle()
    assert cluster.running() == {"a": 1}
    assert cluster.waits("a") == "ModelNotReady"


def test_an_autoscaler_goes_no_further_than_what_was_granted() -> None:
    cluster = Cluster(quota(2), service("a", 1, 1, autoscaling={"maxReplicas": 2}))
    cluster.settle()
    cluster.objects["InferenceService", "a"]["spec"]["autoscaling"] = {"maxReplicas": 9}
    cluster.settle()
    children = worlds.plan(SERVICES, cluster.world("a")).children
    [scaler] = [made for made in children if made["kind"] == HORIZONTAL_POD_AUTOSCALER.kind]
    assert scaler["spec"]["maxReplicas"] == 2


def test_what_ran_before_there_was_a_quota_is_granted() -> None:
    cluster = Cluster(service("a", 1, 9, replicas=2))
    cluster.settle()
    cluster.objects["GPUQuota", "team"] = quota(2)
    cluster.objects["InferenceService", "b"] = service("b", 1, 1)
    cluster.settle()
    assert cluster.running() == {"a": 2}
    assert cluster.quota()["usedGPUCount"] == 2


def test_a_quota_that_is_lowered_stops_nobody_and_starts_nobody() -> None:
    cluster = Cluster(quota(2), service("a", 1, 1), service("b", 1, 2))
    cluster.settle()
    cluster.objects["GPUQuota", "team"] = quota(1)
    cluster.objects["InferenceService", "c"] = service("c", 1, 3)
    cluster.settle()
    assert cluster.running() == {"a": 1, "b": 1}
    told = _conditions({"status": cluster.quota()})["Exceeded"]
    assert (told["status"], told["reason"]) == ("True", "QuotaExceeded")


@pytest.mark.parametrize("first", ["a", "b"])
def test_two_that_decide_at_the_same_time_do_not_both_get_the_last_gpu(first: str) -> None:
    """Neither sees the other's decision before its own is written; then they are looked at in either order."""
    cluster = Cluster(quota(1), service("a", 1, 1), service("b", 1, 1))
    decided = {name: cluster.decide(name) for name in ("a", "b")}
    assert cluster.running() == {}
    for name, status in decided.items():
        cluster.write(name, status)
    cluster.settle([first, "b" if first == "a" else "a"])
    assert cluster.running() == {"a": 1}
    assert cluster.waits("b") == "QuotaExceeded"


def test_all_quotas_of_a_namespace_have_to_have_room() -> None:
    cluster = Cluster(quota(5), quota(1, "all", selector={"matchLabels": LABELS}), service("a", 2))
    cluster.settle()
    assert cluster.running() == {}
    assert "models/all has 1" in str(cluster.objects["InferenceService", "a"]["status"])


@pytest.mark.parametrize(
    ("selector", "limits"),
    [
        ({"matchLabels": {"team": "red"}}, False),
        ({"matchExpressions": [{"key": "team", "operator": "In", "values": ["blue", "red"]}]}, True),
        ({"matchExpressions": [{"key": "team", "operator": "DoesNotExist"}]}, False),
        ({}, True),
        ({"matchExpressions": [{"key": "team", "operator": "Like", "values": ["b"]}]}, False),
    ],
)
def test_labels_choose_namespaces(selector: dict[str, Any], limits: bool) -> None:
    cluster = Cluster(quota(0, selector=selector), service("a"))
    cluster.settle()
    assert cluster.running() == ({} if limits else {"a": 1})


@pytest.mark.parametrize("priority", ["low", "high"])
def test_a_least_priority_keeps_others_out(priority: str) -> None:
    cluster = Cluster(quota(8, minPriority="normal"), service("a", priority=priority))
    cluster.settle()
    assert cluster.running() == ({} if priority == "low" else {"a": 1})
    if priority == "low":
        assert cluster.waits("a") == "PriorityTooLow"


def test_who_waits_for_its_model_takes_nothing() -> None:
    cluster = Cluster(quota(1), service("a", 1, 1, modelRef="none"), service("b", 1, 2))
    cluster.settle(["b"])
    assert cluster.running() == {"b": 1}


def test_a_status_that_the_controller_would_not_write_counts_for_nothing() -> None:
    forged = {"quota": {"names": "models/team", "gpus": "many"}}
    assert quotas.record_of({"status": forged}) == quotas.Record()
    assert list(quotas.by_taken({"status": forged, "metadata": {}})) == []


def test_a_quota_says_what_is_taken_and_how_often_somebody_had_to_wait() -> None:
    cluster = Cluster(quota(5), service("a", 3, 1), service("b", 1, 2), service("c", 2, 3))
    cluster.settle()
    told = cluster.quota()
    assert {name: told[name] for name in ("usedGPUCount", "usedVRAMBytes", "waiting", "admissionDenials")} == {
        "usedGPUCount": 4,
        "usedVRAMBytes": 0,
        "waiting": 1,
        "admissionDenials": 1,
    }
    again = cluster.quota(before={**told, "lastDenial": "2026-11-21T08:30:00Z"})
    assert (again["admissionDenials"], again["lastDenial"]) == (1, "2026-11-21T08:30:00Z")


def test_fields_without_effect_and_selectors_that_are_none_are_told() -> None:
    cluster = Cluster(
        quota(1, vramBytes=1, costBudgetRef="x", selector={"matchExpressions": [{"key": "a", "operator": "Like"}]})
    )
    told = _conditions({"status": cluster.quota()})
    assert told["FieldsUsed"]["reason"] == "FieldsIgnored"
    assert (told["Accepted"]["status"], told["Accepted"]["reason"]) == ("False", "InvalidSpec")


# Who is looked at again


def stores(*found: dict[str, Any]) -> Stores:
    services, limits = Store(QUOTA_INDEXES), Store({quotas.COVERS: quotas.by_namespace_ref})
    for one in found:
        (services if one["kind"] == "InferenceService" else limits).put(one)
    return Stores({INFERENCE_SERVICE: services, KIND: limits})


def recorded(name: str, minute: int = 0, **record: Any) -> dict[str, Any]:
    return {**service(name, minute=minute), "status": {"quota": {"names": ["models/team"], **record}}}


def test_room_wakes_as_many_as_fit_and_no_more() -> None:
    waiting = [recorded(f"w{number}", number, wanted=1) for number in range(5)]
    gone = recorded("a", gpus=2)
    found = list(quotas.after(Change(gone, None), stores(quota(2), *reversed(waiting))))
    assert found == [Key("models", "w0"), Key("models", "w1")]


def test_one_that_is_granted_what_it_waited_for_wakes_the_next() -> None:
    before, now = recorded("a", wanted=1, reserved=1), recorded("a", wanted=1, gpus=1)
    found = list(quotas.after(Change(before, now), stores(quota(2), now, recorded("b", 5, wanted=1))))
    assert found == [Key("models", "b")]


def test_news_that_leave_everything_as_it_was_wake_nobody() -> None:
    before = recorded("a", gpus=1, wanted=1)
    now = {**before, "metadata": {**before["metadata"], "labels": {"x": "y"}}}
    known = stores(quota(2), now, recorded("b", 5, wanted=1))
    assert list(quotas.after(Change(before, now), known)) == []
    assert list(quotas.quotas_of(Change(before, now), known)) == []


def test_sums_cost_the_same_however_many_services_there_are() -> None:
    many = stores(quota(9), *(recorded(f"s{number}", gpus=number % 7) for number in range(500)))
    asked: list[str] = []

    class Counting:
        def count(self, kind: Any, index: str, value: str) -> int:
            asked.append(value)
            return many.count(kind, index, value)

    listers: Any = Counting()
    assert quotas.used(listers, "models/team") == sum(number % 7 for number in range(500))
    assert len(asked) == quotas.DIGITS
