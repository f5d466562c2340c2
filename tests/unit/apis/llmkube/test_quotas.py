"""GPUQuotas: which services get GPUs, which wait and until when, and their status. Like the controller, the tests
reconcile one service after another until nothing changes."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import msgspec
import pytest

from slipway.apis.llmkube import QUOTAS, SERVICES
from slipway.apis.llmkube.api import QUOTA_INDEXES
from slipway.apis.llmkube.rules import quotas
from slipway.apis.llmkube.rules.hardware import gpus_of
from slipway.apis.llmkube.types.model import KIND as MODEL
from slipway.apis.llmkube.types.quota import KIND
from slipway.apis.llmkube.types.service import KIND as INFERENCE_SERVICE
from slipway.kube.caches.store import Change, Store, Stores
from slipway.kube.objects import DEPLOYMENT, HORIZONTAL_POD_AUTOSCALER, Key
from slipway.serving.contract.api import InvalidSpecError, Reference, Rejection, World
from slipway.serving.contract.settings import Settings
from tests import worlds

from .services import GGUF, model

NOW = 1_795_252_000.0
LABELS = {"team": "blue"}


class Cluster:
    """Services, and quotas, as the controller's caches have them."""

    def __init__(self, *observed: dict[str, Any]) -> None:
        namespace = {"kind": "Namespace", "metadata": {"name": "models", "labels": LABELS}}
        self.objects = {(one["kind"], one["metadata"]["name"]): one for one in (*observed, namespace)}
        self.deployments: dict[str, dict[str, Any]] = {}
        self.pods: dict[str, list[dict[str, Any]]] = {}
        self.model = model("tiny", GGUF)

    def world(self, name: str) -> World:
        kinds = {"GPUQuota": KIND, "InferenceService": INFERENCE_SERVICE, "Namespace": quotas.NAMESPACES}
        objects = {
            Reference(kinds[kind], "" if kind == "Namespace" else "models", one): resource
            for (kind, one), resource in self.objects.items()
        }
        deployment = self.deployments.get(name)
        return World(
            resource=self.objects["InferenceService", name],
            children={(DEPLOYMENT, Key("models", name)): deployment} if deployment else {},
            pods=self.pods.get(name, []),
            routed=[],
            settings=Settings(),
            now=NOW,
            listers=worlds.known_world(SERVICES, objects=objects | {Reference(MODEL, "models", "tiny"): self.model}),
        )

    def decide(self, name: str) -> dict[str, Any]:
        """One reconciliation, whose writes are not yet seen: the status that it writes."""
        world, rejection = self.world(name), None
        try:
            for child in worlds.plan(SERVICES, world).children:
                if child["kind"] == "Deployment":
                    self.deployments[name] = child
        except InvalidSpecError as error:
            rejection = Rejection(error.reason, error.message)
        return worlds.status(SERVICES, world, rejection).status

    def edit(self, name: str, **spec: Any) -> None:
        resource = self.objects["InferenceService", name]
        self.objects["InferenceService", name] = {**resource, "spec": {**resource["spec"], **spec}}

    def record(self, name: str) -> quotas.Record:
        return quotas.record_of(self.objects["InferenceService", name])

    def held(self, name: str) -> int:
        """GPUs of all pods of the Deployment."""
        spec = self.deployments[name]["spec"]
        return int(spec["replicas"]) * gpus_of(spec["template"]["spec"], 0)

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
        return {name: deployment["spec"]["replicas"] for name, deployment in sorted(self.deployments.items())}

    def waits(self, name: str) -> str:
        """Reason of the condition Progressing."""
        return str(_conditions(self.objects["InferenceService", name])["Progressing"]["reason"])

    def quota(self, name: str = "team", before: dict[str, Any] | None = None) -> dict[str, Any]:
        resource = {**self.objects["GPUQuota", name], "status": before or {}}
        world = World(
            resource=resource,
            children={},
            pods=[],
            routed=[],
            settings=Settings(),
            now=NOW,
            listers=worlds.known_world(QUOTAS, others=[resource, *self.services()]),
        )
        return worlds.status(QUOTAS, world).status

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
    assert "has 3 GPUs, of which 2 are in use. The service needs 2" in str(cluster.objects["InferenceService", "c"])


def test_all_replicas_and_all_that_autoscaling_allows_are_counted() -> None:
    cluster = Cluster(quota(5), service("a", 2, replicas=2), service("b", 1, 1, autoscaling={"maxReplicas": 2}))
    cluster.settle()
    assert cluster.running() == {"a": 2}
    assert cluster.waits("b") == "QuotaExceeded"


@pytest.mark.parametrize("idle", [{"suspend": True}, {"replicas": 0}, {"resources": {}}])
def test_a_service_without_gpus_needs_none(idle: dict[str, Any]) -> None:
    cluster = Cluster(quota(0), service("a", **idle))
    cluster.settle()
    assert "a" in cluster.running()


def test_a_smaller_request_does_not_overtake() -> None:
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


def test_a_running_service_is_not_stopped_for_an_older_one() -> None:
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


def test_a_model_that_is_not_ready_gives_no_service_more_replicas() -> None:
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
    [scaler] = [child for child in children if child["kind"] == HORIZONTAL_POD_AUTOSCALER.kind]
    assert scaler["spec"]["maxReplicas"] == 2


def pod(gpus: int = 1, *, node: bool = True, **fields: Any) -> dict[str, Any]:
    """As the caches have one that holds GPUs."""
    spec = {"containers": [{"resources": {"limits": {"nvidia.com/gpu": str(gpus)}}}]} if gpus else {}
    scheduled = {"type": "PodScheduled", "status": "True" if node else "False"}
    metadata = {"name": "a-1", "namespace": "models", "uid": "p", "creationTimestamp": "2026-11-21T09:00:00Z"}
    status = {"phase": "Running", "conditions": [scheduled]}
    return {"metadata": metadata | fields.pop("metadata", {}), "spec": spec, "status": status | fields}


def test_services_that_ran_before_the_quota_are_granted() -> None:
    cluster = Cluster(service("a", 1, 9, replicas=2))
    cluster.settle()
    cluster.pods["a"] = [pod(), pod()]
    cluster.objects["GPUQuota", "team"] = quota(1)
    cluster.objects["InferenceService", "b"] = service("b", 1, 1)
    cluster.settle(["b"])
    cluster.settle(["a"])
    assert cluster.running() == {"a": 2, "b": 1}
    assert cluster.quota()["usedGPUCount"] == 3


@pytest.mark.parametrize(
    "none",
    [
        pod(0),
        pod(node=False),
        pod(phase="Failed"),
        pod(metadata={"deletionTimestamp": "2026-11-21T09:01:00Z"}),
    ],
)
def test_a_granted_replica_counts_only_if_its_pod_holds_gpus(none: dict[str, Any]) -> None:
    cluster = Cluster(service("a", 1, 9, replicas=10))
    cluster.settle()
    cluster.pods["a"] = [pod(), none]
    cluster.objects["GPUQuota", "team"] = quota(20)
    assert quotas.record_of({"status": cluster.decide("a")}) == quotas.Record(
        names=("models/team",), gpus=1, reserved=9, requested=10
    )
    assert cluster.running() == {"a": 1}


def test_a_lowered_quota_neither_stops_nor_starts_a_service() -> None:
    cluster = Cluster(quota(2), service("a", 1, 1), service("b", 1, 2))
    cluster.settle()
    cluster.objects["GPUQuota", "team"] = quota(1)
    cluster.objects["InferenceService", "c"] = service("c", 1, 3)
    cluster.settle()
    assert cluster.running() == {"a": 1, "b": 1}
    condition = _conditions({"status": cluster.quota()})["Exceeded"]
    assert (condition["status"], condition["reason"]) == ("True", "QuotaExceeded")


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
    both = quota(9), quota(2, "all", selector={"matchLabels": LABELS})
    cluster = Cluster(*both, service("a", 1), service("b", 2, 1))
    cluster.settle()
    assert cluster.running() == {"a": 1}
    assert "models/all has 2" in str(cluster.objects["InferenceService", "b"]["status"])


def test_nothing_starts_before_its_grant_is_written_down() -> None:
    cluster = Cluster(quota(1), recorded("a", reserved=1, wanted=1))
    cluster.write("a", cluster.decide("a"))
    assert (cluster.running(), cluster.record("a").gpus) == ({}, 1)
    cluster.decide("a")
    assert cluster.running() == {"a": 1}


def test_a_deployment_without_granted_gpus_has_no_replicas_despite_its_autoscaler() -> None:
    cluster = Cluster(service("a", 1, autoscaling={"maxReplicas": 2}))
    cluster.settle()
    cluster.objects["GPUQuota", "team"] = quota(1)
    world = cluster.world("a")
    scaled = {"status": {"lastScaleTime": "2026-11-21T09:00:00Z"}}
    children = {**world.children, (HORIZONTAL_POD_AUTOSCALER, Key("models", "a")): scaled}
    manifests = worlds.plan(SERVICES, msgspec.structs.replace(world, children=children)).children
    [replicas] = [one["spec"]["replicas"] for one in manifests if one["kind"] == "Deployment"]
    assert replicas == 0


def test_a_service_that_loses_in_any_quota_releases_its_reservation() -> None:
    """The first that is over is one that it holds."""
    both = quota(2, "a-first"), quota(1, "b-second")
    names = ["models/a-first", "models/b-second"]
    rival = {**service("rival", minute=1), "status": {"quota": {"names": names[1:], "gpus": 1, "wanted": 1}}}
    behind = {**service("behind", 2, minute=9), "status": {"quota": {"names": names[:1], "reserved": 2, "wanted": 2}}}
    own = {**service("own", minute=5), "status": {"quota": {"names": names, "reserved": 1, "wanted": 1}}}
    cluster = Cluster(*both, rival, behind, own)
    cluster.write("own", cluster.decide("own"))
    assert (cluster.record("own").reserved, cluster.waits("own")) == (0, "QuotaExceeded")


def test_the_deployment_that_is_kept_holds_no_more_gpus_than_were_granted() -> None:
    cluster = Cluster(quota(9), service("a", 8))
    cluster.settle()
    cluster.edit("a", resources={"gpu": 1}, replicas=10)
    cluster.settle()
    assert (cluster.held("a"), cluster.running()) == (8, {"a": 1})


@pytest.mark.parametrize("limit", [5, 10])
def test_running_pods_keep_serving_while_larger_ones_wait(limit: int) -> None:
    cluster = Cluster(quota(limit), service("a", 1, replicas=2))
    cluster.settle()
    cluster.objects["InferenceService", "other"] = service("other", limit - 2)
    cluster.settle(["other"])
    cluster.edit("a", resources={"gpu": 4})
    cluster.settle()
    assert cluster.running() == {"a": 2, "other": 1}
    assert cluster.held("a") == 2


def test_pods_without_gpus_serve_on_while_their_service_waits_for_some() -> None:
    cluster = Cluster(quota(1), service("a", 0), service("b", 1))
    cluster.settle()
    cluster.edit("a", resources={"gpu": 1}, replicas=2)
    cluster.settle()
    assert cluster.running() == {"a": 2, "b": 1}


@pytest.mark.parametrize(("gpus", "replicas"), [(1, 4), (0, 4), (4, 1)])
def test_gpus_that_the_deployment_holds_while_its_model_is_not_ready_are_not_given_back(
    gpus: int, replicas: int
) -> None:
    cluster = Cluster(quota(8), service("a", 8))
    cluster.settle()
    cluster.model["status"] = {"phase": "Downloading", "observedGeneration": 1}
    cluster.edit("a", resources={"gpu": gpus}, replicas=replicas)
    cluster.settle()
    assert (cluster.held("a"), cluster.record("a").gpus) == (8, 8)


def test_gpus_that_nothing_holds_any_more_are_given_back_while_the_model_is_not_ready() -> None:
    cluster = Cluster(quota(8), service("a", 2, replicas=4))
    cluster.settle()
    cluster.model["status"] = {"phase": "Downloading", "observedGeneration": 1}
    cluster.edit("a", replicas=1)
    cluster.settle()
    assert (cluster.held("a"), cluster.record("a").gpus) == (2, 2)


@pytest.mark.parametrize(
    ("observed", "reason"),
    [
        (service("big", 5, 1, replicas=2), "QuotaTooSmall"),
        (service("big", 1, 1, priority="low"), "PriorityTooLow"),
    ],
)
def test_a_service_that_can_never_start_blocks_no_other(observed: dict[str, Any], reason: str) -> None:
    shared = quota(9, "shared", selector={"matchLabels": LABELS})
    cluster = Cluster(quota(8, minPriority="normal"), shared, observed, service("b", 8, 2))
    cluster.settle()
    assert cluster.running() == {"b": 1}
    assert cluster.waits("big") == reason
    assert cluster.quota("shared")["waiting"] == 0


@pytest.mark.parametrize(
    "wrong",
    [
        {"modelRef": "none"},
        {"runtime": "vllm", "vllmConfig": {"tensorParallelSize": 4}},
        {"autoscaling": {"minReplicas": 3, "maxReplicas": 1}},
    ],
)
@pytest.mark.parametrize("record", [{"reserved": 1, "wanted": 1}, {"gpus": 1, "wanted": 1}, {"wanted": 1}])
def test_a_service_that_cannot_start_gets_no_reservation(wrong: dict[str, Any], record: dict[str, Any]) -> None:
    cluster = Cluster(quota(1), recorded("a", 1, **record), service("b", 1, 2))
    cluster.edit("a", **wrong)
    cluster.settle()
    assert cluster.running() == {"b": 1}
    assert cluster.record("a") == quotas.Record()


@pytest.mark.parametrize(
    "wrong", [{"modelRef": "none"}, {"autoscaling": {"minReplicas": 3, "maxReplicas": 2}}, {"replicas": 2}]
)
def test_a_running_service_keeps_its_gpus_and_gets_no_more_while_its_spec_is_rejected(wrong: dict[str, Any]) -> None:
    cluster = Cluster(quota(3), service("a", 1, 1))
    cluster.settle()
    if "replicas" in wrong:
        cluster.model["status"] = {"phase": "Failed", "observedGeneration": 1}
    cluster.edit("a", **wrong)
    cluster.settle()
    assert cluster.record("a") == quotas.Record(names=("models/team",), gpus=1, requested=1)


@pytest.mark.parametrize("gone", ["Failed", "Downloading"])
def test_a_service_that_waits_for_its_model_releases_its_reservation(gone: str) -> None:
    cluster = Cluster(quota(1), recorded("a", 1, reserved=1, wanted=1))
    cluster.model["status"] = {"phase": gone, "observedGeneration": 1}
    cluster.settle()
    assert cluster.record("a") == quotas.Record()


@pytest.mark.parametrize(
    "passing",
    [Rejection("Retrying", "Busy.", retryable=True), Rejection("Invalid", "Deployment a: No.", of_object=True)],
)
def test_a_starting_service_keeps_its_gpus_if_an_object_is_rejected(passing: Rejection) -> None:
    """Else it would have them set aside, start and give them back without end."""
    cluster = Cluster(quota(1), recorded("a", 1, gpus=1, wanted=1))
    status = worlds.status(SERVICES, cluster.world("a"), passing).status
    assert quotas.record_of({"status": status}).gpus == 1


@pytest.mark.parametrize("none", [{"namespaceRef": ""}, {}])
def test_a_quota_without_a_namespace_limits_nothing(none: dict[str, Any]) -> None:
    resource = quota(0)
    resource["spec"] = {"gpuCount": 0, **none}
    cluster = Cluster(resource, service("a"))
    cluster.settle()
    assert cluster.running() == {"a": 1}
    assert _conditions({"status": cluster.quota()})["Accepted"]["status"] == "False"


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


@pytest.mark.parametrize("gpus", [0, 1])
@pytest.mark.parametrize(
    ("spec", "starts"),
    [
        ({"priority": "low"}, False),
        ({"priority": "normal"}, False),
        ({}, False),
        ({"priority": "low", "autoscaling": {"minReplicas": 1, "maxReplicas": 2}}, False),
        ({"priority": "high"}, True),
        ({"priority": "critical"}, True),
    ],
)
def test_a_least_priority_holds_with_gpus_and_without(spec: dict[str, Any], starts: bool, gpus: int) -> None:
    cluster = Cluster(quota(4, minPriority="high"), service("a", gpus, **spec))
    cluster.settle()
    assert cluster.running() == ({"a": 1} if starts else {})
    if not starts:
        assert cluster.waits("a") == "PriorityTooLow"
        assert cluster.record("a").requested == 0
    cluster.objects["GPUQuota", "team"] = quota(4)
    cluster.settle()
    assert "a" in cluster.running()


@pytest.mark.parametrize("gpus", [0, 1])
def test_a_least_priority_stops_nothing_that_runs_and_lets_nothing_start_again(gpus: int) -> None:
    cluster = Cluster(service("a", gpus, priority="low"))
    cluster.settle()
    cluster.pods["a"] = [pod(gpus)]
    cluster.objects["GPUQuota", "team"] = quota(4, minPriority="high")
    cluster.settle()
    assert cluster.running() == {"a": 1}
    assert cluster.waits("a") != "PriorityTooLow"
    cluster.edit("a", suspend=True)
    cluster.settle()
    cluster.pods["a"] = []
    assert cluster.running() == {"a": 0}
    assert cluster.waits("a") != "PriorityTooLow"
    cluster.edit("a", suspend=False)
    cluster.settle()
    assert cluster.running() == {"a": 0}
    assert cluster.waits("a") == "PriorityTooLow"


def test_a_service_that_waits_for_its_model_reserves_nothing() -> None:
    cluster = Cluster(quota(1), service("a", 1, 1, modelRef="none"), service("b", 1, 2))
    cluster.settle(["b"])
    assert cluster.running() == {"b": 1}


def test_a_status_that_the_controller_would_not_write_counts_for_nothing() -> None:
    forged = {"quota": {"names": "models/team", "gpus": "many"}}
    assert quotas.record_of({"status": forged}) == quotas.Record()
    assert list(quotas.by_taken({"status": forged, "metadata": {}})) == []


def test_a_quota_reports_its_use_and_the_number_of_waits() -> None:
    cluster = Cluster(quota(5), service("a", 3, 1), service("b", 1, 2), service("c", 2, 3))
    cluster.settle()
    status = cluster.quota()
    assert {name: status[name] for name in ("usedGPUCount", "usedVRAMBytes", "waiting", "admissionDenials")} == {
        "usedGPUCount": 4,
        "usedVRAMBytes": 0,
        "waiting": 1,
        "admissionDenials": 1,
    }
    again = cluster.quota(before={**status, "lastDenial": "2026-11-21T08:30:00Z"})
    assert (again["admissionDenials"], again["lastDenial"]) == (1, "2026-11-21T08:30:00Z")


def test_a_new_denial_counts_even_if_another_one_ends() -> None:
    assert denials("a", "b", "b c", "c", "", "a") == [1, 2, 3, 3, 3, 4]
    assert denials("a b", "a b", "b c d", "a") == [2, 2, 4, 5]


def test_without_digests_only_growth_is_counted() -> None:
    """As with a definition of the original's, which does not have the field."""
    assert denials("a", "b", "b c", "c", pruned=True) == [1, 1, 2, 2]
    many = " ".join(f"s{number}" for number in range(257))
    assert denials(many, many.replace("s0 ", "x "), f"{many} y") == [257, 257, 258]


def denials(*waiting: str, pruned: bool = False) -> list[int]:
    """``admissionDenials`` after each state of the queue. ``pruned``: the API server drops the digests."""
    before: dict[str, Any] = {}
    counts = []
    for number, names in enumerate(waiting, 1):
        cluster = Cluster(quota(0), *(recorded(name, 1, gpus=0, wanted=1) for name in names.split()))
        status = cluster.quota(before=before)
        before = {field: value for field, value in status.items() if not (pruned and field == "waitingDigests")}
        assert ("lastDenial" in status) == bool(status["admissionDenials"]), number
        counts.append(status["admissionDenials"])
    return counts


def test_fields_without_effect_and_selectors_that_are_none_are_reported() -> None:
    cluster = Cluster(
        quota(1, vramBytes=1, costBudgetRef="x", selector={"matchExpressions": [{"key": "a", "operator": "Like"}]})
    )
    conditions = _conditions({"status": cluster.quota()})
    assert conditions["FieldsUsed"]["reason"] == "FieldsIgnored"
    assert (conditions["Accepted"]["status"], conditions["Accepted"]["reason"]) == ("False", "InvalidSpec")


# Which services are enqueued


def stores(*observed: dict[str, Any]) -> Stores:
    services, limits = Store(QUOTA_INDEXES), Store({quotas.COVERS: quotas.by_namespace_ref})
    for one in observed:
        (services if one["kind"] == "InferenceService" else limits).put(one)
    return Stores({INFERENCE_SERVICE: services, KIND: limits})


def recorded(name: str, minute: int = 0, **record: Any) -> dict[str, Any]:
    return {**service(name, minute=minute), "status": {"quota": {"names": ["models/team"], **record}}}


def test_room_wakes_as_many_as_fit_and_no_more() -> None:
    waiting = [recorded(f"w{number}", number, wanted=1) for number in range(5)]
    gone = recorded("a", gpus=2)
    keys = list(quotas.enqueue_next(Change(gone, None), stores(quota(2), *reversed(waiting))))
    assert keys == [Key("models", "w0"), Key("models", "w1")]


def test_a_service_that_gets_its_gpus_wakes_the_next() -> None:
    before, now = recorded("a", wanted=1, reserved=1), recorded("a", wanted=1, gpus=1)
    keys = list(quotas.enqueue_next(Change(before, now), stores(quota(2), now, recorded("b", 5, wanted=1))))
    assert keys == [Key("models", "b")]


def test_changes_without_effect_wake_nothing() -> None:
    before = recorded("a", gpus=1, wanted=1)
    now = {**before, "metadata": {**before["metadata"], "labels": {"x": "y"}}}
    listers = stores(quota(2), now, recorded("b", 5, wanted=1))
    assert list(quotas.enqueue_next(Change(before, now), listers)) == []
    assert list(quotas.quotas_of(Change(before, now), listers)) == []


def test_sums_cost_the_same_however_many_services_there_are() -> None:
    many = stores(quota(9), *(recorded(f"s{number}", gpus=number % 7) for number in range(500)))
    lookups: list[str] = []

    class Counting:
        def count(self, kind: Any, index: str, value: str) -> int:
            lookups.append(value)
            return many.count(kind, index, value)

    listers: Any = Counting()
    assert quotas.used(listers, "models/team") == sum(number % 7 for number in range(500))
    assert len(lookups) == quotas.DIGITS


def priced(name: str, number: int, **record: Any) -> dict[str, Any]:
    resource = recorded(name, **record)
    return {**resource, "status": {**resource["status"], "effectivePriority": number}}


@pytest.mark.parametrize(
    ("before", "now"),
    [
        (priced("a", 100, wanted=2), priced("a", 100, wanted=1)),
        (priced("a", 100, wanted=2), priced("a", 1, wanted=2)),
        (priced("a", 100, reserved=1, wanted=1), priced("a", 100, wanted=1)),
        (priced("a", 100, reserved=1, wanted=1), priced("a", 100, gpus=1, wanted=1)),
        (priced("a", 100, wanted=2), None),
    ],
)
def test_a_service_that_moves_in_the_queue_enqueues_those_behind(
    before: dict[str, Any], now: dict[str, Any] | None
) -> None:
    behind = recorded("b", 5, wanted=1)
    behind["status"]["effectivePriority"] = 50
    listers = stores(quota(3), behind, *([now] if now else []))
    assert list(quotas.enqueue_next(Change(before, now), listers)) == [Key("models", "b")]


@pytest.mark.parametrize(
    ("before", "now"),
    [(recorded("a", gpus=0), recorded("a", wanted=1)), (recorded("a", wanted=1), recorded("a", reserved=1, wanted=1))],
)
def test_a_new_or_reserving_service_wakes_no_other(before: dict[str, Any], now: dict[str, Any]) -> None:
    listers = stores(quota(3), now, recorded("b", 5, wanted=1))
    assert list(quotas.enqueue_next(Change(before, now), listers)) == []


def test_a_service_with_a_reservation_is_enqueued_even_without_room() -> None:
    now, holder = recorded("a", gpus=1, wanted=1), recorded("b", 5, reserved=1, wanted=1)
    listers = stores(quota(1), now, holder, recorded("c", 6, wanted=1))
    keys = list(quotas.enqueue_next(Change(recorded("a", reserved=1, wanted=1), now), listers))
    assert keys == [Key("models", "b")]


# All orders in which things may happen


class Moment(msgspec.Struct, frozen=True):
    """What there is between two steps: services as the caches have them, writes that they do not have yet, and whose
    turn it is."""

    services: tuple[tuple[str, str], ...]
    """Name, and the part of its status that decides as JSON."""
    written: tuple[tuple[str, str], ...] = ()
    turns: frozenset[str] = frozenset()


class Race:
    """Services reconciled by several workers, whose writes reach the caches in any order. A service is reconciled when
    the controller would do it: after its own changes, and when a watch enqueues it."""

    def __init__(self, limit: int, *observed: dict[str, Any]) -> None:
        self.found = {one["metadata"]["name"]: one for one in observed}
        self.limit = quota(limit)
        self.most = limit
        self.watches = [watch for watch in SERVICES.watches(Settings()) if watch.kind == INFERENCE_SERVICE]
        self.decided: dict[tuple[Any, str], str] = {}

    def start(self) -> Moment:
        return Moment(tuple((name, "{}") for name in self.found), (), frozenset(self.found))

    def cluster(self, moment: Moment) -> Cluster:
        services = [{**self.found[name], "status": json.loads(record)} for name, record in moment.services]
        return Cluster(self.limit, *services)

    def ends(self, first: Moment) -> list[Moment]:
        """The moments after which nothing is left to be done, whatever came first."""
        seen, todo, moments = {first}, [first], []
        while todo:
            moment = todo.pop()
            assert (
                sum(_gpus(record) for record in {**dict(moment.services), **dict(moment.written)}.values()) <= self.most
            )
            following = [self.look(moment, name) for name in moment.turns if name not in dict(moment.written)]
            following += [self.arrive(moment, *write) for write in moment.written]
            if not following:
                moments.append(moment)
            todo += [one for one in dict.fromkeys(following) if one not in seen]
            seen.update(following)
        return moments

    def look(self, moment: Moment, name: str) -> Moment:
        """A worker takes the service from the queue, and writes what follows from the caches."""
        if (moment.services, name) not in self.decided:
            status = self.cluster(moment).decide(name)
            kept = {one: status[one] for one in ("quota", "effectivePriority") if one in status}
            self.decided[moment.services, name] = json.dumps(kept, sort_keys=True)
        record = self.decided[moment.services, name]
        news = () if dict(moment.services)[name] == record else ((name, record),)
        return Moment(moment.services, tuple(sorted((*moment.written, *news))), moment.turns - {name})

    def arrive(self, moment: Moment, name: str, expected: str) -> Moment:
        """A write comes to the caches."""
        services = tuple((one, expected if one == name else before) for one, before in moment.services)
        written = tuple(write for write in moment.written if write[0] != name)
        return self.woken(moment, Moment(services, written, moment.turns | {name}), name)

    def without(self, moment: Moment, name: str) -> Moment:
        """A service is deleted."""
        services = tuple(one for one in moment.services if one[0] != name)
        return self.woken(moment, Moment(services, moment.written, moment.turns - {name}), name)

    def woken(self, before: Moment, now: Moment, name: str) -> Moment:
        old, new = (self.cluster(one).objects.get(("InferenceService", name)) for one in (before, now))
        listers = worlds.known_world(SERVICES, others=[self.limit, *self.cluster(now).services()])
        keys = {one for watch in self.watches for one in watch.enqueue(Change(old, new), listers)}
        return Moment(now.services, now.written, now.turns | {one.name for one in keys})


def _gpus(expected: str) -> int:
    return int(json.loads(expected).get("quota", {}).get("gpus", 0))


def granted(moment: Moment) -> list[str]:
    return [name for name, record in moment.services if _gpus(record)]


def reserving(moment: Moment) -> list[str]:
    return [name for name, record in moment.services if json.loads(record)["quota"].get("reserved")]


@pytest.mark.parametrize(
    ("limit", "observed"),
    [
        (1, (service("a", 1, 1), service("b", 1, 2))),
        (2, (service("a", 1, 1), service("b", 2, 2))),
        (2, (service("a", 2, 1), service("b", 1, 2, priority="high"))),
        (2, (service("a", 1, 1, replicas=2), service("b", 2, 1))),
    ],
)
def test_of_two_that_race_one_starts_and_the_other_when_it_is_gone(
    limit: int, observed: tuple[dict[str, Any], ...]
) -> None:
    race = Race(limit, *observed)
    ends = race.ends(race.start())
    assert {tuple(granted(end)) for end in ends} == {("a",), ("b",)}
    for end in ends:
        [first], [second] = granted(end), sorted({"a", "b"}.difference(granted(end)))
        assert reserving(end) == []
        later = race.ends(race.without(end, first))
        assert {tuple(granted(one)) for one in later} == {(second,)}
        assert {tuple(reserving(one)) for one in later} == {()}


def test_of_three_that_race_for_two_gpus_two_start_and_then_the_third() -> None:
    race = Race(2, service("a", 1, 1), service("b", 1, 2), service("c", 1, 3))
    for end in race.ends(race.start()):
        assert (len(granted(end)), reserving(end)) == (2, [])
        later = race.ends(race.without(end, granted(end)[0]))
        assert [len(granted(one)) for one in later] == [2] * len(later)
