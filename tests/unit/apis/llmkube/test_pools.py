"""ModelPools: their members take turns at one slot. Pools and services are looked at one after another until nothing
changes any more, as the controller does it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from slipway.apis.llmkube import POOLS, SERVICES, pods
from slipway.apis.llmkube.api import POOL_INDEXES
from slipway.apis.llmkube.model_types import KIND as MODEL
from slipway.apis.llmkube.names import SERVICE_LABEL
from slipway.apis.llmkube.pool_types import KIND
from slipway.apis.llmkube.service_types import KIND as INFERENCE_SERVICE
from slipway.kube.conditions import Condition, find, merge
from slipway.kube.names import label_value
from slipway.kube.objects import DEPLOYMENT, HORIZONTAL_POD_AUTOSCALER, POD, Key, key
from slipway.kube.store import Change, Store, Stores
from slipway.serving.api import InvalidSpecError, Reference, Rejection, World
from slipway.serving.demand import Demand
from slipway.serving.settings import Settings
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
    """Pools, services and their pods, as the controller's caches have them."""

    def __init__(self, *found: dict[str, Any], now: float = NOW) -> None:
        everything = (*found, model("tiny", GGUF))
        self.objects = {(one["kind"], key(one).name): one for one in everything}
        self.deployments: dict[str, dict[str, Any]] = {}
        self.busy: dict[str, Demand] = {}
        self.now, self.draining = now, False
        self.most = 0

    def request(self, *names: str) -> None:
        """From now on requests for these services, and for no others, are under way or wait."""
        for one in self.services():
            known, busy = self.busy.get(one), one in names
            if known is None or known.busy != busy:
                self.busy[one] = Demand(busy, self.now)

    def services(self) -> list[str]:
        return [name for kind, name in self.objects if kind == "InferenceService"]

    def listers(self, api: Any) -> Any:
        watched = {watch.kind.kind for watch in api.watches(Settings())} | {api.resource.kind.kind}
        known = {
            Reference(KINDS[kind], "models", name): one
            for (kind, name), one in self.objects.items()
            if kind in watched and (kind != "Pod" or api is POOLS)
        }
        return worlds.known(api, objects=known)

    def world(self, api: Any, kind: str, name: str) -> World:
        made = self.deployments.get(name) if kind == "InferenceService" else None
        return World(
            resource=self.objects[kind, name],
            children={(DEPLOYMENT, Key("models", name)): made} if made else {},
            pods=[],
            routed=[],
            settings=Settings(),
            now=self.now,
            listers=self.listers(api),
            demand={Key("models", pods.service_name(one)): found for one, found in self.busy.items()},
        )

    def reconcile(self, api: Any, kind: str, name: str) -> bool:
        """Whether anything is new."""
        asked, rejection, made = self.world(api, kind, name), None, []
        try:
            made = list(worlds.plan(api, asked).children)
        except InvalidSpecError as error:
            rejection = Rejection(error.reason, error.message)
        for one in made:
            if one["kind"] == "Deployment":
                self._deploy(name, one)
        before = self.objects[kind, name]
        status = worlds.status(api, self.world(api, kind, name), rejection).status
        own = [msgspec.convert(one, Condition) for one in status["conditions"]]
        had = (before.get("status") or {}).get("conditions") or []
        status["conditions"] = merge(had, own, self.now)
        status.pop("lastUpdated", None)
        self.objects[kind, name] = {**before, "status": status}
        return before.get("status") != status

    def _deploy(self, name: str, made: dict[str, Any]) -> None:
        wanted = made["spec"]["replicas"]
        if wanted:
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
        ready = wanted if ("Pod", name) in self.objects else 0
        conditions = [{"type": "Available", "status": "True" if ready else "False"}]
        numbers = {"replicas": wanted, "readyReplicas": ready, "updatedReplicas": wanted, "availableReplicas": ready}
        status = {"observedGeneration": 1, "conditions": conditions, **numbers}
        self.deployments[name] = {**made, "metadata": {**made["metadata"], "generation": 1}, "status": status}
        self.most = max(self.most, len([one for kind, one in self.objects if kind == "Pod"]))

    def settle(self) -> None:
        for _unused in range(20):
            news = [self.reconcile(SERVICES, "InferenceService", name) for name in self.services()]
            pools = [name for kind, name in self.objects if kind == "ModelPool"]
            news += [self.reconcile(POOLS, "ModelPool", name) for name in pools]
            if not any(news):
                return
        pytest.fail("the pool never comes to rest")

    def running(self) -> list[str]:
        """Services with pods."""
        return sorted(name for kind, name in self.objects if kind == "Pod")

    def told(self, kind: str, name: str, condition: str) -> tuple[str, str]:
        found = find(self.objects[kind, name], condition) or {}
        return found.get("status", ""), found.get("reason", "")

    def phase(self, name: str = "slot") -> str:
        return str(self.objects["ModelPool", name]["status"]["phase"])


@pytest.fixture
def cluster():
    found = Cluster(service("a"), service("b"), service("c"), pool("a", "b", "c"))
    found.request()
    found.reconcile(POOLS, "ModelPool", "slot")
    found.settle()
    return found


def test_nobody_starts_before_the_first_request(cluster):
    assert cluster.running() == []
    assert cluster.phase() == "Pending"
    assert cluster.told("ModelPool", "slot", "SlotAllocated") == ("False", "NobodyAsked")
    assert cluster.told("InferenceService", "a", "SlotGranted") == ("False", "Asleep")
    assert cluster.objects["InferenceService", "a"]["status"]["phase"] == "Stopped"


def test_a_request_starts_one_member_and_it_stays(cluster):
    cluster.request("b")
    cluster.settle()
    assert (cluster.running(), cluster.phase()) == (["b"], "Ready")
    assert cluster.told("InferenceService", "b", "SlotGranted") == ("True", "Granted")
    cluster.now += 10_000
    cluster.request()
    cluster.settle()
    assert cluster.running() == ["b"]


def test_an_idle_member_makes_place_for_the_one_that_is_asked_for(cluster):
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
    assert cluster.told("ModelPool", "slot", "SwapDeferred") == ("True", "TurnNotOver")
    cluster.now += 60
    cluster.settle()
    assert cluster.running() == ["b"]
    cluster.request("b")
    cluster.settle()
    assert cluster.told("ModelPool", "slot", "SwapDeferred") == ("False", "AsExpected")


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
    assert cluster.told("ModelPool", "slot", "SlotAllocated") == ("False", "Swapping")
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


def test_a_swap_ends_though_the_spec_of_its_pool_is_not_valid_any_more(cluster):
    cluster.request("a")
    cluster.settle()
    cluster.draining = True
    cluster.now += 100
    cluster.request("b")
    cluster.now += 100
    cluster.settle()
    cluster.objects["ModelPool", "slot"]["spec"]["default"] = "nobody"
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
def test_a_member_that_is_refused_cannot_start_before_it_is_mended(cluster, refused, reason):
    told = worlds.status(SERVICES, cluster.world(SERVICES, "InferenceService", "a"), refused).status
    found = find({"status": told}, "SlotGranted") or {}
    assert found["reason"] == reason
    assert (refused.message in found["message"]) is (reason == "CannotStart")


def test_all_that_are_asked_for_without_an_end_get_their_turns(cluster):
    seen = []
    cluster.request("a", "b", "c")
    for _unused in range(6):
        cluster.settle()
        seen += cluster.running()
        cluster.now += 61
    assert seen == ["a", "b", "c", "a", "b", "c"]
    assert cluster.most == 1, "two of them had pods at a time"


def test_what_ran_before_there_was_a_pool_goes_on_until_the_pool_knows_who_has_the_slot():
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
def test_a_new_pool_stops_nobody_before_its_members_have_said_whether_they_could_start(default):
    """The pool is reconciled before its members, as its controller has less to do."""
    cluster = Cluster(service("a"), service("b"), service("c", replicas=0))
    cluster.settle()
    cluster.request()
    cluster.objects["ModelPool", "slot"] = pool("a", "b", "c", **({"default": default} if default else {}))
    cluster.reconcile(POOLS, "ModelPool", "slot")
    assert cluster.told("ModelPool", "slot", "SlotAllocated") == ("", "")
    cluster.reconcile(SERVICES, "InferenceService", "a")
    assert cluster.told("InferenceService", "a", "SlotGranted") == ("False", "PoolUndecided")
    cluster.settle()
    assert cluster.running() == [default or "a"]
    assert cluster.told("InferenceService", "c", "SlotGranted") == ("False", "SwitchedOff")


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


def test_the_default_starts_while_nobody_is_asked_for():
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
    assert cluster.told("InferenceService", "a", "SlotGranted") == ("False", "SwitchedOff")


def test_a_member_without_its_model_gets_the_slot_once_the_model_is_there(cluster):
    cluster.objects["Model", "large"] = model("large", GGUF, {"phase": "Downloading", "observedGeneration": 1})
    cluster.objects["InferenceService", "a"] = service("a", modelRef="large")
    cluster.request("a")
    cluster.settle()
    assert cluster.running() == []
    assert cluster.told("InferenceService", "a", "SlotGranted") == ("False", "CannotStart")
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
    assert cluster.told("ModelPool", "new", "MembersValid") == ("False", "MemberOfOtherPool")


def test_a_member_that_is_missing_is_told_and_the_others_share_the_slot():
    cluster = Cluster(service("a"), pool("gone", "a"))
    cluster.request("a")
    cluster.settle()
    assert (cluster.running(), cluster.phase()) == (["a"], "Degraded")
    assert cluster.told("ModelPool", "slot", "MembersValid") == ("False", "MemberMissing")


@pytest.mark.parametrize(
    "broken",
    [pytest.param("nowhere", id="its Model is missing"), pytest.param("mac", id="its Model is computed by a Mac")],
)
def test_a_member_for_which_nothing_is_made_does_not_stop_the_others(broken):
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
def test_a_pool_that_cannot_be_read_leaves_its_members_as_they_are(wrong):
    cluster = Cluster(service("a", replicas=3), service("b"))
    cluster.settle()
    before = dict(cluster.deployments)
    cluster.objects["ModelPool", "slot"] = pool("a", "b", "c", nodeSelector={"slot": "x"}, **wrong)
    cluster.objects["InferenceService", "c"] = service("c")
    cluster.settle()
    assert (cluster.running(), cluster.phase()) == (["a", "b", "c"], "Degraded")
    assert cluster.told("ModelPool", "slot", "Accepted") == ("False", "InvalidSpec")
    assert {name: cluster.deployments[name] for name in before} == before
    assert cluster.told("InferenceService", "a", "SlotGranted") == ("False", "PoolUndecided")
    assert cluster.told("InferenceService", "a", "FieldsUsed") == ("True", "AllUsed")


def test_a_mistake_in_the_spec_of_a_pool_that_nobody_has_starts_nobody(cluster):
    cluster.objects["ModelPool", "slot"]["spec"]["swapBudget"] = "soon"
    cluster.settle()
    assert (cluster.running(), cluster.phase()) == ([], "Degraded")


def test_members_have_one_replica_on_the_nodes_of_the_slot_and_requests_wait_for_it():
    scaled = {"autoscaling": {"minReplicas": 2, "maxReplicas": 4}, "nodeSelector": {"zone": "one"}}
    cluster = Cluster(service("a", replicas=3, **scaled), pool("a", nodeSelector={"slot": "x"}, swapBudget="2m"))
    cluster.reconcile(POOLS, "ModelPool", "slot")
    cluster.request("a")
    cluster.settle()
    made = cluster.deployments["a"]["spec"]
    assert made["replicas"] == 1
    assert made["template"]["spec"]["nodeSelector"] == {"zone": "one", "slot": "x"}
    plan = worlds.plan(SERVICES, cluster.world(SERVICES, "InferenceService", "a"))
    assert HORIZONTAL_POD_AUTOSCALER.kind not in [one["kind"] for one in plan.children]
    [route] = [one["metadata"]["annotations"] for one in plan.children if one["kind"] == "Service"]
    assert '"wakeSeconds":120' in route["slipway.inference/route"]
    told = find(cluster.objects["InferenceService", "a"], "FieldsUsed") or {}
    assert all(f"{field} (a member of a ModelPool" in told["message"] for field in ("replicas", "autoscaling"))


def test_the_requests_of_all_members_are_counted(cluster):
    plan = worlds.plan(POOLS, cluster.world(POOLS, "ModelPool", "slot"))
    assert plan.counted == (Key("models", "a"), Key("models", "b"), Key("models", "c"))
    assert (plan.children, plan.satisfied) == ((), ())


def test_the_requests_of_the_resident_are_news_only_while_another_member_waits(cluster):
    cluster.request("b")
    cluster.settle()
    plan = worlds.plan(POOLS, cluster.world(POOLS, "ModelPool", "slot"))
    assert plan.satisfied == (Key("models", "b"),)


# Who is looked at when something changes


def concerned(api: Any, kind: Any, change: Change, *objects: dict[str, Any]) -> set[str]:
    stores = {INFERENCE_SERVICE: Store({}), KIND: Store(POOL_INDEXES)}
    for one in objects:
        stores[KINDS[one["kind"]]].put(one)
    listers = Stores(stores)
    watches = [watch for watch in api.watches(Settings()) if watch.kind == kind]
    return {found.name for watch in watches for found in watch.enqueue(change, listers)}


def with_status(obj: dict[str, Any], **status: Any) -> dict[str, Any]:
    conditions = [{"type": "SlotAllocated", "status": "True"}]
    return {**obj, "status": {"phase": "Ready", "conditions": conditions, **status}}


def test_a_pool_leads_to_the_members_that_its_slot_leaves_and_goes_to():
    had = with_status(pool("a", "b", "c"), residentMember="a")
    assert concerned(SERVICES, KIND, Change(had, {**had, "status": {**had["status"], "x": 1}})) == set()
    swapping = with_status(pool("a", "b", "c"), residentMember="a", pendingMember="b")
    assert concerned(SERVICES, KIND, Change(had, swapping)) == {"a", "b"}
    assert concerned(SERVICES, KIND, Change(None, had)) == {"a", "b", "c"}
    assert concerned(SERVICES, KIND, Change(pool("a", "b"), with_status(pool("a", "b")))) == {"a", "b"}


def test_the_first_decision_of_a_pool_leads_to_those_that_lose_too():
    undecided, first = pool("a", "b", "c"), with_status(pool("a", "b", "c"), residentMember="a")
    assert concerned(SERVICES, KIND, Change(undecided, first)) == {"a", "b", "c"}


def test_a_service_leads_to_its_pools_where_they_read_something_new():
    before = with_status(service("a"), desiredReplicas=1)
    known = (pool("a", "b"), pool("b", name="other"))
    same = {**before, "metadata": {**before["metadata"], "labels": {"x": "y"}}}
    assert concerned(POOLS, INFERENCE_SERVICE, Change(before, same), *known) == set()
    asleep = with_status(service("a"), desiredReplicas=0)
    assert concerned(POOLS, INFERENCE_SERVICE, Change(before, asleep), *known) == {"slot"}
    assert concerned(POOLS, INFERENCE_SERVICE, Change(before, None), *known) == {"slot"}


def test_a_pod_that_is_gone_leads_to_the_pool_that_waits_for_it():
    long = "x" * 80
    metadata = {"name": "p", "namespace": "models", "labels": {SERVICE_LABEL: label_value(long)}}
    pod = {"kind": "Pod", "metadata": metadata, "status": {"phase": "Running"}}
    known = (pool("a", long), pool("b", name="other"))
    assert concerned(POOLS, POD, Change(pod, pod), *known) == set()
    assert concerned(POOLS, POD, Change(pod, None), *known) == {"slot"}


def test_pools_of_a_member_are_looked_at_when_an_older_one_leaves():
    old, new = pool("a", "b", name="old"), pool("b", "c", name="new", minute=1)
    assert concerned(POOLS, KIND, Change(old, None), new) == {"new"}
