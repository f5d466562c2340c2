"""ModelPools: their members take turns at one slot. Pools and services are reconciled one after another until nothing
changes, as by the controller."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from slipway.apis.llmkube import POOLS, SERVICES
from slipway.apis.llmkube.api import POOL_INDEXES
from slipway.apis.llmkube.names import SERVICE_LABEL
from slipway.apis.llmkube.services import pods
from slipway.apis.llmkube.types.model import KIND as MODEL
from slipway.apis.llmkube.types.pool import KIND
from slipway.apis.llmkube.types.service import KIND as INFERENCE_SERVICE
from slipway.kube.caches.store import Change, Store, Stores
from slipway.kube.objects import DEPLOYMENT, HORIZONTAL_POD_AUTOSCALER, POD, Key, key
from slipway.kube.schemas.conditions import Condition, find, merge
from slipway.kube.values.names import label_value
from slipway.serving.contract.api import InvalidSpecError, Reference, Rejection, World
from slipway.serving.contract.settings import Settings
from slipway.serving.routing.demand import Demand
from tests import worlds

from .services import GGUF, SINCE, model

NOW = 1_795_252_000.0
REPLICA_SET = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "uid": "1", "controller": True}
KINDS = {"InferenceService": INFERENCE_SERVICE, "ModelPool": KIND, "Model": MODEL, "Pod": POD}


def service(name: str, **spec: Any) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "models", "uid": name, "generation": 1, "creationTimestamp": SINCE}
    return {"kind": "InferenceService", "metadata": metadata, "spec": {"modelRef": "tiny", "replicas": 1, **spec}}


def pool(*members: str, name: str = "slot", minute: int = 0, **spec: Any) -> dict[str, Any]:
    since = f"2026-11-21T08:{minute:02}:00Z"
    metadata = {"name": name, "namespace": "models", "uid": name, "generation": 1, "creationTimestamp": since}
    named = [{"inferenceServiceRef": {"name": one}} for one in members]
    return {"kind": "ModelPool", "metadata": metadata, "spec": {"members": named, **spec}}


class Cluster:
    """Pools, services and their pods, as in the controller's caches."""

    def __init__(self, *objects: dict[str, Any], now: float = NOW) -> None:
        self.objects = {(one["kind"], key(one).name): one for one in (*objects, model("tiny", GGUF))}
        self.deployments: dict[str, dict[str, Any]] = {}
        self.busy: dict[str, Demand] = {}
        self.now, self.draining = now, False
        self.most = 0

    def request(self, *names: str) -> None:
        """From now on these services, and no others, have requests."""
        for service in self.services():
            demand, busy = self.busy.get(service), service in names
            if demand is None or demand.busy != busy:
                self.busy[service] = Demand(busy, self.now)

    def services(self) -> list[str]:
        return [name for kind, name in self.objects if kind == "InferenceService"]

    def listers(self, api: Any) -> Any:
        watched = {watch.kind.kind for watch in api.watches(Settings())} | {api.resource.kind.kind}
        objects = {
            Reference(KINDS[kind], "models", name): one
            for (kind, name), one in self.objects.items()
            if kind in watched and (kind != "Pod" or api is POOLS)
        }
        return worlds.known_world(api, objects=objects)

    def world(self, api: Any, kind: str, name: str) -> World:
        deployment = self.deployments.get(name) if kind == "InferenceService" else None
        return World(
            resource=self.objects[kind, name],
            children={(DEPLOYMENT, Key("models", name)): deployment} if deployment else {},
            pods=[],
            routed=[],
            settings=Settings(),
            now=self.now,
            listers=self.listers(api),
            demand={Key("models", pods.service_name(one)): demand for one, demand in self.busy.items()},
        )

    def reconcile(self, api: Any, kind: str, name: str) -> bool:
        """Whether the status changed."""
        rejection, children = None, []
        try:
            children = list(worlds.plan(api, self.world(api, kind, name)).children)
        except InvalidSpecError as error:
            rejection = Rejection(error.reason, error.message)
        for child in children:
            if child["kind"] == "Deployment":
                self._deploy(name, child)
        before = self.objects[kind, name]
        status = worlds.status(api, self.world(api, kind, name), rejection).status
        own = [msgspec.convert(one, Condition) for one in status["conditions"]]
        had = (before.get("status") or {}).get("conditions") or []
        status["conditions"] = merge(had, own, self.now)
        status.pop("lastUpdated", None)
        self.objects[kind, name] = {**before, "status": status}
        return before.get("status") != status

    def _deploy(self, name: str, deployment: dict[str, Any]) -> None:
        replicas = deployment["spec"]["replicas"]
        if replicas:
            self.objects["Pod", name] = {
                "kind": "Pod",
                "metadata": {
                    "name": name,
                    "namespace": "models",
                    "labels": {SERVICE_LABEL: label_value(name), "pod-template-hash": "1"},
                    "ownerReferences": [{**REPLICA_SET, "name": f"{name}-1"}],
                },
            }
        elif not self.draining:
            self.objects.pop(("Pod", name), None)
        ready = replicas if ("Pod", name) in self.objects else 0
        conditions = [{"type": "Available", "status": "True" if ready else "False"}]
        numbers = {"replicas": replicas, "readyReplicas": ready, "updatedReplicas": replicas}
        status = {"observedGeneration": 1, "conditions": conditions, **numbers}
        metadata = {**deployment["metadata"], "generation": 1}
        self.deployments[name] = {**deployment, "metadata": metadata, "status": status}
        self.most = max(self.most, len([one for kind, one in self.objects if kind == "Pod"]))

    def settle(self) -> None:
        for _unused in range(20):
            news = [self.reconcile(SERVICES, "InferenceService", name) for name in self.services()]
            pools = [name for kind, name in self.objects if kind == "ModelPool"]
            news += [self.reconcile(POOLS, "ModelPool", name) for name in pools]
            if not any(news):
                return
        pytest.fail("the pool never settles")

    def running(self) -> list[str]:
        """Services with pods."""
        return sorted(name for kind, name in self.objects if kind == "Pod")

    def condition(self, kind: str, name: str, type_: str) -> tuple[str, str]:
        condition = find(self.objects[kind, name], type_) or {}
        return condition.get("status", ""), condition.get("reason", "")

    def message(self) -> str:
        """Of the condition SlotAllocated of the pool."""
        return str((find(self.objects["ModelPool", "slot"], "SlotAllocated") or {}).get("message"))

    def phase(self, name: str = "slot") -> str:
        return str(self.objects["ModelPool", name]["status"]["phase"])


@pytest.fixture
def cluster():
    cluster = Cluster(service("a"), service("b"), service("c"), pool("a", "b", "c"))
    cluster.request()
    cluster.reconcile(POOLS, "ModelPool", "slot")
    cluster.settle()
    return cluster


def test_no_member_starts_before_the_first_request(cluster):
    assert cluster.running() == []
    assert cluster.phase() == "Pending"
    assert cluster.condition("ModelPool", "slot", "SlotAllocated") == ("False", "Unallocated")
    assert cluster.condition("InferenceService", "a", "SlotGranted") == ("False", "Asleep")
    assert cluster.objects["InferenceService", "a"]["status"]["phase"] == "Stopped"


def test_a_request_starts_one_member_and_it_stays(cluster):
    cluster.request("b")
    cluster.settle()
    assert (cluster.running(), cluster.phase()) == (["b"], "Ready")
    assert cluster.condition("InferenceService", "b", "SlotGranted") == ("True", "Granted")
    cluster.now += 10_000
    cluster.request()
    cluster.settle()
    assert cluster.running() == ["b"]


def test_an_idle_member_leaves_the_slot_to_a_member_with_requests(cluster):
    cluster.request("a")
    cluster.settle()
    cluster.now += 100
    cluster.request()
    cluster.now += 100
    cluster.request("c")
    cluster.settle()
    assert (cluster.running(), cluster.phase()) == (["c"], "Ready")
    assert cluster.most == 1, "two of them had pods at a time"


def test_a_busy_member_has_its_turn_first(cluster):
    cluster.request("a")
    cluster.settle()
    cluster.now += 100
    cluster.request("a", "b")
    cluster.settle()
    assert cluster.running() == ["a"]
    assert "Requests wait for b until a is idle" in cluster.message()
    cluster.now += 60
    cluster.settle()
    assert cluster.running() == ["b"]
    cluster.request("b")
    cluster.settle()
    assert "Requests wait" not in cluster.message()


def test_the_next_one_starts_only_when_the_last_pod_is_gone(cluster):
    cluster.request("a")
    cluster.settle()
    cluster.draining = True
    cluster.now += 100
    cluster.request("b")
    cluster.now += 100
    cluster.settle()
    assert cluster.deployments["a"]["spec"]["replicas"] == 0
    assert (cluster.running(), cluster.phase()) == (["a"], "Swapping")
    assert cluster.condition("ModelPool", "slot", "SlotAllocated") == ("False", "Swapping")
    del cluster.objects["Pod", "a"]
    cluster.settle()
    assert (cluster.running(), cluster.phase()) == (["b"], "Ready")


def test_the_pods_of_a_deleted_member_hold_the_slot_until_they_are_gone(cluster):
    cluster.request("a")
    cluster.settle()
    del cluster.objects["InferenceService", "a"]
    cluster.request("b")
    cluster.settle()
    assert (cluster.running(), cluster.deployments["b"]["spec"]["replicas"]) == (["a"], 0)
    del cluster.objects["Pod", "a"]
    cluster.settle()
    assert cluster.running() == ["b"]


def test_a_pending_swap_completes_after_the_spec_becomes_invalid(cluster):
    cluster.request("a")
    cluster.settle()
    cluster.draining = True
    cluster.now += 100
    cluster.request("b")
    cluster.now += 100
    cluster.settle()
    cluster.objects["ModelPool", "slot"]["spec"]["default"] = "missing"
    cluster.settle()
    assert cluster.running() == ["a"]
    del cluster.objects["Pod", "a"]
    cluster.settle()
    assert (cluster.running(), cluster.phase()) == (["b"], "Degraded")
    cluster.now += 100
    cluster.request("c")
    cluster.now += 100
    cluster.settle()
    assert cluster.running() == ["b"]


@pytest.mark.parametrize(
    ("refused", "reason"),
    [
        (Rejection("NotAllowed", "The image is not allowed."), "CannotStart"),
        (Rejection("Overloaded", "Try again.", retryable=True), "Asleep"),
    ],
)
def test_a_rejected_member_gets_no_slot(cluster, refused, reason):
    status = worlds.status(SERVICES, cluster.world(SERVICES, "InferenceService", "a"), refused).status
    condition = find({"status": status}, "SlotGranted") or {}
    assert condition["reason"] == reason
    assert (refused.message in condition["message"]) is (reason == "CannotStart")


def test_members_that_always_have_requests_take_turns(cluster):
    seen = []
    cluster.request("a", "b", "c")
    for _unused in range(6):
        cluster.settle()
        seen += cluster.running()
        cluster.now += 61
    assert seen == ["a", "b", "c", "a", "b", "c"]
    assert cluster.most == 1, "two of them had pods at a time"


def test_running_services_continue_until_a_new_pool_has_decided():
    cluster = Cluster(service("a"), service("b"))
    cluster.settle()
    assert cluster.running() == ["a", "b"]
    cluster.objects["ModelPool", "slot"] = pool("a", "b", default="b")
    cluster.request("a", "b")
    for name in ("a", "b"):
        cluster.reconcile(SERVICES, "InferenceService", name)
    assert cluster.running() == ["a", "b"]
    cluster.settle()
    assert cluster.running() == ["b"]


@pytest.mark.parametrize("default", ["", "a", "b"])
def test_a_new_pool_stops_no_service_before_it_knows_which_ones_can_start(default):
    """The pool is reconciled before its members, as its controller has less to do."""
    cluster = Cluster(service("a"), service("b"), service("c", replicas=0))
    cluster.settle()
    cluster.request()
    cluster.objects["ModelPool", "slot"] = pool("a", "b", "c", **({"default": default} if default else {}))
    cluster.reconcile(POOLS, "ModelPool", "slot")
    assert cluster.condition("ModelPool", "slot", "SlotAllocated") == ("", "")
    cluster.reconcile(SERVICES, "InferenceService", "a")
    assert cluster.condition("InferenceService", "a", "SlotGranted") == ("False", "PoolUndecided")
    cluster.settle()
    assert cluster.running() == [default or "a"]
    assert cluster.condition("InferenceService", "c", "SlotGranted") == ("False", "SwitchedOff")


def test_the_default_of_a_new_pool_of_new_members_starts_alone():
    cluster = Cluster(service("a"), service("b"), pool("a", "b", default="b"))
    cluster.reconcile(POOLS, "ModelPool", "slot")
    cluster.settle()
    assert (cluster.running(), cluster.most) == (["b"], 1)


def test_a_new_pool_does_not_wait_for_a_member_that_cannot_be_read():
    cluster = Cluster(service("a"), service("bad", modelRef="nowhere"))
    cluster.settle()
    cluster.objects["ModelPool", "slot"] = pool("a", "bad")
    cluster.settle()
    assert cluster.objects["ModelPool", "slot"]["status"]["residentMember"] == "a"


def test_the_default_starts_without_requests():
    cluster = Cluster(service("a"), service("b"), pool("a", "b", default="b"))
    cluster.reconcile(POOLS, "ModelPool", "slot")
    cluster.settle()
    assert cluster.running() == ["b"]


def test_a_member_that_is_switched_off_is_left_out(cluster):
    cluster.objects["InferenceService", "a"] = service("a", replicas=0)
    cluster.objects["InferenceService", "b"] = service("b", suspend=True)
    cluster.request("a", "b")
    cluster.settle()
    assert cluster.running() == []
    assert cluster.condition("InferenceService", "a", "SlotGranted") == ("False", "SwitchedOff")


def test_a_member_without_its_model_gets_the_slot_once_the_model_is_there(cluster):
    cluster.objects["Model", "large"] = model("large", GGUF, {"phase": "Downloading", "observedGeneration": 1})
    cluster.objects["InferenceService", "a"] = service("a", modelRef="large")
    cluster.request("a")
    cluster.settle()
    assert cluster.running() == []
    assert cluster.condition("InferenceService", "a", "SlotGranted") == ("False", "CannotStart")
    cluster.objects["Model", "large"] = model("large", GGUF)
    cluster.settle()
    assert cluster.running() == ["a"]


def test_a_service_is_a_member_of_the_oldest_pool_alone():
    others = (pool("a", "b", name="old", minute=1), pool("b", "c", name="new", minute=2))
    cluster = Cluster(service("a"), service("b"), service("c"), *others)
    for name in ("old", "new"):
        cluster.reconcile(POOLS, "ModelPool", name)
    cluster.request("b", "c")
    cluster.settle()
    assert cluster.running() == ["b", "c"]
    assert cluster.objects["ModelPool", "old"]["status"]["residentMember"] == "b"
    assert cluster.objects["ModelPool", "new"]["status"]["residentMember"] == "c"
    assert (cluster.phase("old"), cluster.phase("new")) == ("Ready", "Degraded")
    assert cluster.condition("ModelPool", "new", "MembersValid") == ("False", "MemberOfOtherPool")


def test_a_missing_member_is_reported_and_the_others_share_the_slot():
    cluster = Cluster(service("a"), pool("gone", "a"))
    cluster.request("a")
    cluster.settle()
    assert (cluster.running(), cluster.phase()) == (["a"], "Degraded")
    assert cluster.condition("ModelPool", "slot", "MembersValid") == ("False", "MemberMissing")


@pytest.mark.parametrize(
    "broken",
    [pytest.param("nowhere", id="its Model is missing"), pytest.param("mac", id="its Model is computed by a Mac")],
)
def test_a_member_without_a_deployment_does_not_block_the_others(broken):
    cluster = Cluster(service("bad", modelRef=broken), service("a"), service("b"), pool("bad", "a", "b"))
    cluster.objects["Model", "mac"] = model("mac", {**GGUF, "hardware": {"accelerator": "metal"}})
    cluster.request()
    cluster.settle()
    for name in ("a", "b"):
        cluster.now += 100
        cluster.request(name)
        cluster.now += 100
        cluster.settle()
        assert cluster.running() == [name]


@pytest.mark.parametrize("wrong", [{"swapBudget": "soon"}, {"swapBudget": "0"}, {"default": "other"}])
def test_an_invalid_pool_changes_nothing_for_its_members(wrong):
    cluster = Cluster(service("a", replicas=3), service("b"))
    cluster.settle()
    before = dict(cluster.deployments)
    cluster.objects["ModelPool", "slot"] = pool("a", "b", "c", nodeSelector={"slot": "x"}, **wrong)
    cluster.objects["InferenceService", "c"] = service("c")
    cluster.settle()
    assert (cluster.running(), cluster.phase()) == (["a", "b", "c"], "Degraded")
    assert cluster.condition("ModelPool", "slot", "Accepted") == ("False", "InvalidSpec")
    assert {name: cluster.deployments[name] for name in before} == before
    assert cluster.condition("InferenceService", "a", "SlotGranted") == ("False", "PoolUndecided")
    assert cluster.condition("InferenceService", "a", "FieldsUsed") == ("True", "AllUsed")


def test_an_invalid_change_of_an_idle_pool_starts_no_member(cluster):
    cluster.objects["ModelPool", "slot"]["spec"]["swapBudget"] = "soon"
    cluster.settle()
    assert (cluster.running(), cluster.phase()) == ([], "Degraded")


def test_members_have_one_replica_on_the_nodes_of_the_slot_and_requests_wait_for_it():
    scaled = {"autoscaling": {"minReplicas": 2, "maxReplicas": 4}, "nodeSelector": {"zone": "one"}}
    cluster = Cluster(service("a", replicas=3, **scaled), pool("a", nodeSelector={"slot": "x"}, swapBudget="2m"))
    cluster.reconcile(POOLS, "ModelPool", "slot")
    cluster.request("a")
    cluster.settle()
    deployment = cluster.deployments["a"]["spec"]
    assert deployment["replicas"] == 1
    assert deployment["template"]["spec"]["nodeSelector"] == {"zone": "one", "slot": "x"}
    plan = worlds.plan(SERVICES, cluster.world(SERVICES, "InferenceService", "a"))
    assert HORIZONTAL_POD_AUTOSCALER.kind not in [one["kind"] for one in plan.children]
    [route] = [one["metadata"]["annotations"] for one in plan.children if one["kind"] == "Service"]
    assert '"wakeSeconds":120' in route["slipway.inference/route"]
    used = find(cluster.objects["InferenceService", "a"], "FieldsUsed") or {}
    assert all(f"{field} (a member of a ModelPool" in used["message"] for field in ("replicas", "autoscaling"))


def test_the_requests_of_all_members_are_counted(cluster):
    plan = worlds.plan(POOLS, cluster.world(POOLS, "ModelPool", "slot"))
    assert plan.counted == (Key("models", "a"), Key("models", "b"), Key("models", "c"))
    assert (plan.children, plan.satisfied) == ((), ())


def test_the_requests_of_the_resident_are_news_only_while_another_member_waits(cluster):
    cluster.request("b")
    cluster.settle()
    plan = worlds.plan(POOLS, cluster.world(POOLS, "ModelPool", "slot"))
    assert plan.satisfied == (Key("models", "b"),)


# What is reconciled when something changes


def enqueued(api: Any, kind: Any, change: Change, *objects: dict[str, Any]) -> set[str]:
    stores = {INFERENCE_SERVICE: Store({}), KIND: Store(POOL_INDEXES)}
    for one in objects:
        stores[KINDS[one["kind"]]].put(one)
    listers = Stores(stores)
    watches = [watch for watch in api.watches(Settings()) if watch.kind == kind]
    return {name.name for watch in watches for name in watch.enqueue(change, listers)}


def with_status(obj: dict[str, Any], **status: Any) -> dict[str, Any]:
    conditions = [{"type": "SlotAllocated", "status": "True"}]
    return {**obj, "status": {"phase": "Ready", "conditions": conditions, **status}}


def test_a_pool_leads_to_the_members_that_its_slot_leaves_and_goes_to():
    had = with_status(pool("a", "b", "c"), residentMember="a")
    assert enqueued(SERVICES, KIND, Change(had, {**had, "status": {**had["status"], "x": 1}})) == set()
    swapping = with_status(pool("a", "b", "c"), residentMember="a", pendingMember="b")
    assert enqueued(SERVICES, KIND, Change(had, swapping)) == {"a", "b"}
    assert enqueued(SERVICES, KIND, Change(None, had)) == {"a", "b", "c"}
    assert enqueued(SERVICES, KIND, Change(pool("a", "b"), with_status(pool("a", "b")))) == {"a", "b"}


def test_the_first_decision_of_a_pool_leads_to_those_that_lose_too():
    undecided, first = pool("a", "b", "c"), with_status(pool("a", "b", "c"), residentMember="a")
    assert enqueued(SERVICES, KIND, Change(undecided, first)) == {"a", "b", "c"}


def test_a_service_leads_to_its_pool_if_something_changed_that_the_pool_reads():
    before = with_status(service("a"), desiredReplicas=1)
    others = (pool("a", "b"), pool("a", name="younger", minute=1), pool("b", name="other", minute=2))
    same = {**before, "metadata": {**before["metadata"], "labels": {"x": "y"}}}
    assert enqueued(POOLS, INFERENCE_SERVICE, Change(before, same), *others) == set()
    asleep = with_status(service("a"), desiredReplicas=0)
    assert enqueued(POOLS, INFERENCE_SERVICE, Change(before, asleep), *others) == {"slot"}
    assert enqueued(POOLS, INFERENCE_SERVICE, Change(before, None), *others) == {"slot"}


def test_a_pod_that_is_gone_leads_to_the_pool_that_waits_for_it():
    long = "x" * 80
    metadata = {"name": "p", "namespace": "models", "labels": {SERVICE_LABEL: label_value(long)}}
    pod = {"kind": "Pod", "metadata": metadata, "status": {"phase": "Running"}}
    others = (pool("a", long), pool("b", name="other"))
    assert enqueued(POOLS, POD, Change(pod, pod), *others) == set()
    assert enqueued(POOLS, POD, Change(pod, None), *others) == {"slot"}


def test_a_deleted_pool_leads_to_the_next_pool_of_its_members():
    old, new = pool("a", "b", name="old"), pool("b", "c", name="new", minute=1)
    assert enqueued(POOLS, KIND, Change(old, None), new) == {"new"}


def test_the_cost_of_a_pool_does_not_grow_with_other_pools(cluster):
    """An author may create many pools of the same services."""
    alone = Counting(cluster.listers(POOLS))
    for number in range(50):
        cluster.objects["ModelPool", f"more-{number}"] = pool("a", "b", "c", name=f"more-{number}", minute=1)
    among = Counting(cluster.listers(POOLS))
    for listers in (alone, among):
        POOLS.resolve(msgspec.structs.replace(cluster.world(POOLS, "ModelPool", "slot"), listers=listers))
    assert among.objects == alone.objects


def test_a_service_with_many_pools_leads_to_one():
    others = [pool("a", name=f"more-{number}", minute=number) for number in range(50)]
    assert enqueued(POOLS, INFERENCE_SERVICE, Change(None, service("a")), *others) == {"more-0"}
    assert enqueued(POOLS, KIND, Change(None, pool("a", minute=59)), *others) == {"more-0", "more-1"}


def test_a_long_name_gives_a_pool_no_service_of_another_name():
    """The pods of a service with a long name have a shortened name as a label."""
    long = "x" * 80
    cluster = Cluster(service(label_value(long)), pool(long))
    cluster.settle()
    assert cluster.running() == [label_value(long)]
    assert cluster.condition("InferenceService", label_value(long), "SlotGranted") == ("", "")


class Counting:
    """Listers that count the objects that they return."""

    def __init__(self, listers: Any) -> None:
        self.listers, self.objects = listers, 0

    def __getattr__(self, name: str) -> Any:
        function = getattr(self.listers, name)

        def counted(*arguments: Any) -> Any:
            answer = function(*arguments)
            self.objects += len(answer) if isinstance(answer, list) else 1
            return answer

        return counted
