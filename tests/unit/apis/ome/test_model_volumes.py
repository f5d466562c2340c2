"""Pods read models of nodes by claims: a volume is of one folder of one model, for the claim of one service."""

from __future__ import annotations

import json
from typing import Any

import pytest

from slipway.apis.ome.models.folders import resolve_mount
from slipway.apis.ome.models.plan import plan as model_plan
from slipway.apis.ome.models.resolve import ModelView, resolve
from slipway.apis.ome.models.storage import use_of
from slipway.apis.ome.models.volumes import PREFIX, is_usable
from slipway.kube.objects import Key, deleting, key
from slipway.kube.schemas.conditions import timestamp
from slipway.serving.contract.api import USES, InvalidSpecError
from slipway.serving.contract.settings import Settings
from slipway.weights.jobs.loads import EVICTION_SECONDS
from slipway.weights.nodes import RECORDS

from .cluster import Cluster
from .services import model, plan, runtime, service, world

URI = "hf://acme/tiny"
SHARED = Settings(apis={"ome": {"sharedRoots": ["/mnt/shared"]}})


def nodes_of(cluster: Cluster, name: str) -> list[str]:
    """The nodes that a volume is for, as the scheduler and the kubelet decide it."""
    terms = cluster.volumes[name]["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"]
    keys = [one["key"] for term in terms for one in term["matchExpressions"]]
    labels = {node: one["metadata"]["labels"] for node, one in cluster.nodes.items()}
    return sorted(node for node, own in labels.items() if all(one in own for one in keys))


def pod_with(claim: str, path: str) -> dict[str, Any]:
    """A pod of a service that mounts a model by a claim."""
    metadata = {"name": "reader", "namespace": "chat", "uid": "uid-reader", "annotations": {USES: use_of(path)}}
    volume = {"name": "model", "persistentVolumeClaim": {"claimName": claim, "readOnly": True}}
    return {"kind": "Pod", "metadata": metadata, "spec": {"volumes": [volume]}, "status": {"phase": "Running"}}


def test_a_service_reads_a_model_by_one_volume_on_all_nodes_that_have_it() -> None:
    cluster = Cluster("a", "b")
    cluster.create("tiny", URI)
    name = cluster.claim("tiny")
    assert cluster.volumes == {}
    cluster.settle()
    volume = cluster.volumes[name]
    spec, [claim] = volume["spec"], cluster.others
    assert spec["local"] == {"path": "/raid/models/tiny"}
    assert spec["accessModes"] == ["ReadOnlyMany"]
    assert spec["persistentVolumeReclaimPolicy"] == "Retain"
    assert {spec["claimRef"][field] for field in ("namespace", "name", "uid")} == {
        "chat",
        name,
        claim["metadata"]["uid"],
    }
    assert volume["metadata"]["labels"].items() >= claim["spec"]["selector"]["matchLabels"].items()
    assert nodes_of(cluster, name) == ["a", "b"]


@pytest.mark.parametrize("uri", ["hf://acme/tiny", "local:///raid/models/chat/tiny", "vendor://acme"])
def test_a_volume_is_for_nodes_on_which_the_directory_is_this_models(uri: str) -> None:
    cluster = Cluster("a", "b")
    cluster.label("b", disk="fast")
    cluster.create("tiny", uri, "BaseModel", nodeSelector={"disk": "fast"})
    name = cluster.claim("tiny")
    cluster.settle()
    assert nodes_of(cluster, name) == ["b"]
    cluster.label("a", disk="fast")
    cluster.label("b", disk=None)
    cluster.settle()
    assert nodes_of(cluster, name) == ["a"]


def test_a_claim_of_another_namespace_gets_no_volume_of_a_base_model() -> None:
    cluster = Cluster("a")
    cluster.create("tiny", URI, "BaseModel")
    cluster.claim("tiny", "search")
    mine = cluster.claim("tiny", "chat")
    cluster.settle()
    assert list(cluster.volumes) == [mine]


def test_claims_of_a_former_model_of_the_name_are_deleted() -> None:
    cluster = Cluster("a")
    cluster.create("tiny", URI)
    former = cluster.claim("tiny")
    del cluster.models["tiny"]  # its finalizer was removed
    cluster.create("tiny", URI)
    mine = cluster.claim("tiny")
    cluster.settle()
    assert list(cluster.volumes) == [mine]
    assert [key(one).name for one in cluster.others if deleting(one)] == [former]


def looks(monkeypatch: pytest.MonkeyPatch, claims: int, *nodes: str) -> int:
    """How often a look at a model with pods of a former directory examines one of them."""
    examined = list[str]()
    monkeypatch.setattr(
        "slipway.apis.ome.models.resolve._mounts_folder", lambda _pod, path, _claims: examined.append(path)
    )
    cluster = Cluster(*nodes)
    cluster.create("tiny", URI)
    for number in range(claims):
        cluster.claim("tiny", f"chat-{number}")
    cluster.settle()
    cluster.change("tiny", path="/raid/models/new")
    for number in range(20):
        cluster.read("/raid/models/tiny")
        cluster.others[-1]["metadata"]["name"] = f"pod-{number}"
    examined.clear()
    model_plan(resolve(cluster.world("tiny")))
    return len(examined)


def test_a_look_at_a_model_costs_the_same_for_each_claim(monkeypatch: pytest.MonkeyPatch) -> None:
    assert looks(monkeypatch, 40, "a", "b") == looks(monkeypatch, 1, "a") > 0


def test_a_look_at_a_model_that_leaves_no_directory_examines_no_pods(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any author can annotate pods with the directory of another namespace's model."""
    cluster = Cluster("a")
    cluster.create("tiny", URI, "BaseModel")
    cluster.claim("tiny")
    cluster.settle()
    cluster.read("/raid/models/chat/tiny")
    monkeypatch.setattr(
        ModelView, "_has_readers", lambda _view, path, _claims: pytest.fail(f"looks for readers of {path}")
    )
    model_plan(resolve(cluster.world("tiny")))


@pytest.mark.parametrize("kind", ["ClusterBaseModel", "FineTunedWeight"])
def test_a_service_gets_no_claim_for_a_model_that_another_one_keeps_from_its_directory(kind: str) -> None:
    """The model deletes such claims: the service would create them again and again."""
    cluster = Cluster("a")
    cluster.create("first", URI, path="/raid/models/tiny")
    cluster.settle()
    cluster.now += 1
    cluster.create("second", "hf://acme/other", kind, path="/raid/models/tiny")
    cluster.settle()
    assert cluster.reason("second") == "PathTaken"
    with pytest.raises(InvalidSpecError, match="already uses the directory"):
        resolve_mount(cluster.world("second"), cluster.models["second"])


@pytest.mark.parametrize("path", ["/raid/models/chat/tiny", "/raid/models/chat/other"])
def test_a_recreated_model_does_not_get_the_volumes_of_the_former_one(path: str) -> None:
    cluster = Cluster("a")
    cluster.create("tiny", URI, "BaseModel")
    name = cluster.claim("tiny")
    cluster.settle()
    del cluster.models["tiny"]  # its finalizer was removed
    cluster.create("tiny", URI, "BaseModel", path=path)
    cluster.settle()
    assert nodes_of(cluster, name) == []


def test_a_pod_that_takes_for_ever_to_end_delays_a_model_for_a_bounded_time_and_gets_no_files_of_others() -> None:
    """Kubernetes keeps the claim while the pod exists, no matter who created it."""
    cluster = Cluster("a", settings=SHARED)
    cluster.create("tiny", URI, "BaseModel", path="/mnt/shared/tiny")
    name = cluster.claim("tiny")
    cluster.settle()
    cluster.delete("tiny")
    cluster.settle()
    assert cluster.reason("tiny") == "InUse"
    cluster.now += 3600 + 300
    cluster.settle()
    assert cluster.models == {}
    cluster.create("next", "hf://acme/next", "BaseModel", "search", path="/mnt/shared/tiny")
    cluster.settle()
    assert cluster.disks["a"] == {"/mnt/shared/tiny": URI}
    cluster.unclaim(name)
    cluster.volumes.clear()
    cluster.settle()
    assert cluster.disks["a"] == {"/mnt/shared/tiny": "hf://acme/next"}


def test_a_model_whose_nodes_are_lost_goes_only_after_its_volumes() -> None:
    cluster = Cluster("a")
    cluster.create("tiny", URI, "BaseModel")
    name = cluster.claim("tiny")
    cluster.settle()
    cluster.leave("a")
    cluster.delete("tiny")
    cluster.settle()
    assert list(cluster.models) == ["tiny"]
    cluster.unclaim(name)
    cluster.settle()
    assert (cluster.models, cluster.volumes) == ({}, {})


def test_a_model_that_goes_waits_until_its_volume_is_gone() -> None:
    cluster = Cluster("a")
    cluster.create("tiny", URI, "BaseModel")
    name = cluster.claim("tiny")
    cluster.settle()
    cluster.delete("tiny")
    cluster.settle()
    assert "deletionTimestamp" in cluster.others[0]["metadata"], "the claim is not deleted"
    assert cluster.disks["a"] == {"/raid/models/chat/tiny": URI}
    assert cluster.reason("tiny") == "InUse"
    cluster.unclaim(name)
    cluster.settle()
    assert cluster.models == {}
    assert cluster.volumes == {}
    assert cluster.disks["a"] == {}


def test_a_directory_goes_to_another_namespace_only_without_volumes() -> None:
    cluster = Cluster("a", settings=SHARED)
    shared = {"path": "/mnt/shared/tiny"}
    cluster.create("first", URI, "BaseModel", "chat", **shared)
    name = cluster.claim("first")
    cluster.settle()
    del cluster.models["first"]  # its finalizer was removed, and its claim is still there
    cluster.create("second", "hf://acme/other", "BaseModel", "search", **shared)
    cluster.create("third", "hf://acme/third", "BaseModel", "search", path="/mnt/shared/third")
    cluster.settle()
    assert cluster.disks["a"]["/mnt/shared/tiny"] == URI
    assert cluster.reason("second") == "WaitingForTurn"
    assert "may still read the directory /mnt/shared/tiny" in cluster.message("second")
    assert cluster.reason("third") == "OnNodes", "a model that is blocked keeps others waiting"
    del cluster.volumes[name]
    cluster.settle()
    assert cluster.disks["a"]["/mnt/shared/tiny"] == "hf://acme/other"


def test_a_model_with_another_path_keeps_the_former_one_while_pods_read_it() -> None:
    cluster = Cluster("a")
    cluster.create("tiny", URI)
    former = cluster.claim("tiny")
    cluster.read("/raid/models/tiny")
    cluster.settle()
    cluster.change("tiny", path="/raid/models/new")
    newer = cluster.claim("tiny")
    cluster.settle()
    assert nodes_of(cluster, former) == nodes_of(cluster, newer) == ["a"]
    assert "/raid/models/tiny" in cluster.disks["a"]
    cluster.others = [one for one in cluster.others if one["kind"] != "Pod"]
    cluster.unclaim(former)
    cluster.settle()
    assert list(cluster.volumes) == [newer]
    assert list(cluster.disks["a"]) == ["/raid/models/new"]


def test_a_model_with_another_local_path_keeps_the_former_volume_while_pods_read_it() -> None:
    cluster = Cluster("a")
    cluster.create("tiny", "local:///raid/models/tiny")
    former = cluster.claim("tiny")
    cluster.settle()
    cluster.others.append(pod_with(former, "/raid/models/tiny"))
    cluster.change("tiny", storageUri="local:///raid/models/new", path=None)
    newer = cluster.claim("tiny")
    assert newer != former
    cluster.settle()
    assert nodes_of(cluster, former) == nodes_of(cluster, newer) == ["a"]
    cluster.others.pop(-2)
    cluster.settle()
    cluster.unclaim(former)
    cluster.settle()
    assert list(cluster.volumes) == [newer]


def test_labels_of_a_record_that_was_deleted_go_with_the_model() -> None:
    cluster = Cluster("a")
    cluster.create("tiny", URI)
    cluster.settle()
    cluster.nodes["a"]["metadata"]["annotations"] = {}
    cluster.change("tiny", path="/raid/models/new")
    cluster.settle()
    cluster.delete("tiny")
    cluster.settle()
    assert cluster.models == {}
    assert [one for one in cluster.nodes["a"]["metadata"]["labels"] if one.startswith(RECORDS)] == []


def test_a_claim_that_was_recreated_gets_a_new_volume() -> None:
    cluster = Cluster("a")
    cluster.create("tiny", URI)
    name = cluster.claim("tiny")
    cluster.settle()
    first = cluster.volumes[name]["metadata"]["uid"]
    cluster.unclaim(name)
    cluster.settle()
    assert cluster.claim("tiny") == name
    cluster.settle()
    assert cluster.volumes[name]["metadata"]["uid"] != first


def test_a_volume_that_is_released_is_not_used_again() -> None:
    claim = {"metadata": {"uid": "uid-2"}}
    assert is_usable(None, claim)
    assert is_usable({"spec": {"claimRef": {"uid": "uid-2"}}, "status": {"phase": "Bound"}}, claim)
    assert not is_usable({"spec": {"claimRef": {"uid": "uid-1"}}}, claim)
    assert not is_usable({"spec": {"claimRef": {}}}, claim), "it may be bound to a former claim of the name"
    assert not is_usable({"spec": {"claimRef": {"uid": "uid-2"}}, "status": {"phase": "Released"}}, claim)


def test_jobs_of_all_models_run_where_only_the_operator_may_create_pods() -> None:
    cluster = Cluster("a")
    cluster.create("tiny", URI, "BaseModel")
    cluster.create("tiny-too", URI, "BaseModel", namespace="search")
    cluster.reconcile_all()
    assert {place.namespace for place in cluster.jobs} == {"ome"}
    assert len(cluster.jobs) == 2


def begun_earlier(cluster: Cluster, name: str) -> Key:
    """The only Job as versions before 0.5 made it: in the model's namespace, under another name."""
    ((place, job),) = cluster.jobs.items()
    earlier = Key("chat", f"{name}-load-0123456789")
    del cluster.jobs[place]
    cluster.jobs[earlier] = {**job, "metadata": {**job["metadata"], "name": earlier.name, "namespace": "chat"}}
    return earlier


@pytest.mark.parametrize("kind", ["BaseModel", "ClusterBaseModel"])
def test_a_load_waits_until_that_of_an_earlier_version_has_gone(kind: str) -> None:
    cluster = Cluster("a")
    cluster.create("tiny", URI, kind, path="/raid/models/chat/tiny")
    cluster.reconcile("tiny")
    earlier = begun_earlier(cluster, "tiny")
    if kind != "BaseModel":  # these had their Jobs in the operator's namespace
        job = cluster.jobs.pop(earlier)
        job["metadata"]["namespace"] = "ome"
        cluster.jobs[Key("ome", earlier.name)] = job
    cluster.reconcile("tiny")
    assert cluster.jobs == {}, "the earlier one is not wanted, and the next one waits"
    cluster.reconcile("tiny")
    assert [place.namespace for place in cluster.jobs] == ["ome"]


def test_files_are_removed_after_the_load_of_an_earlier_version_has_gone() -> None:
    cluster = Cluster("a")
    cluster.create("tiny", URI, "BaseModel")
    cluster.reconcile("tiny")
    begun_earlier(cluster, "tiny")
    cluster.delete("tiny")
    cluster.reconcile("tiny")
    assert cluster.jobs == {}
    cluster.reconcile("tiny")
    (job,) = cluster.jobs.values()
    assert job["spec"]["template"]["spec"]["containers"][0]["args"][1] == "evict"


def test_the_load_of_an_earlier_version_ends_when_its_model_loses_the_directory() -> None:
    cluster = Cluster("a")
    cluster.create("tiny", URI, "BaseModel")
    cluster.reconcile("tiny")
    begun_earlier(cluster, "tiny")
    cluster.nodes["a"]["metadata"]["annotations"] = {}
    cluster.create("operators", "hf://acme/other", path="/raid/models/chat/tiny")
    cluster.reconcile("tiny")
    assert cluster.reason("tiny") == "PathTaken"
    assert cluster.jobs == {}


def test_a_job_of_an_earlier_version_that_does_not_go_is_waited_for_only_so_long() -> None:
    cluster = Cluster("a")
    cluster.create("tiny", URI, "BaseModel")
    cluster.reconcile("tiny")
    earlier = begun_earlier(cluster, "tiny")
    cluster.jobs[earlier]["metadata"]["deletionTimestamp"] = timestamp(cluster.now)
    assert cluster.plan("tiny").children == ()
    cluster.now += EVICTION_SECONDS + 1
    assert [one["kind"] for one in cluster.plan("tiny").children] == ["Job"]


def test_a_namespace_reaches_only_secrets_that_are_named_after_it() -> None:
    cluster = Cluster("a")
    cluster.create("tiny", URI, "BaseModel", key="search.hf-token")
    cluster.create("whole", URI, key="hf-token")
    cluster.reconcile_all()
    secrets = {
        one["valueFrom"]["secretKeyRef"]["name"]
        for job in cluster.jobs.values()
        for one in job["spec"]["template"]["spec"]["containers"][0]["env"]
        if "secretKeyRef" in one.get("valueFrom", {})
    }
    assert secrets == {"chat.search.hf-token", "hf-token"}


def test_a_failed_load_names_the_secret_that_the_loader_reads() -> None:
    cluster = Cluster("a")
    cluster.create("tiny", URI, "BaseModel", key="hf-token")
    cluster.reconcile_all()
    for place in cluster.working():
        cluster.run(place, fails="401 Unauthorized")
    assert "the Secret chat.hf-token in the namespace ome" in cluster.message("tiny")


@pytest.mark.parametrize("uri", [URI, "local:///raid/models/chat/tiny"])
def test_a_model_that_an_earlier_version_loaded_is_not_loaded_again(uri: str) -> None:
    cluster = Cluster("a")
    cluster.create("tiny", uri, "BaseModel")
    cluster.settle()
    metadata = cluster.nodes["a"]["metadata"]
    metadata["labels"] = {name: text for name, text in metadata["labels"].items() if not name.startswith(RECORDS)}
    records = {name: json.loads(text) for name, text in metadata["annotations"].items()}
    metadata["annotations"] = {
        name: json.dumps({field: value for field, value in record.items() if field != "reads"})
        for name, record in records.items()
    }
    name = cluster.claim("tiny")
    cluster.reconcile("tiny")
    assert cluster.jobs == {}
    assert cluster.reason("tiny") == "OnNodes"
    assert nodes_of(cluster, name) == ["a"]


# Services


def claims(planned: Any) -> list[str]:
    return [one["metadata"]["name"] for one in planned.shared]


def mounted(planned: Any) -> list[dict[str, Any]]:
    deployments = [one for one in planned.children if one["kind"] == "Deployment"]
    return [volume for one in deployments for volume in one["spec"]["template"]["spec"]["volumes"]]


def test_a_service_makes_the_claims_that_its_pods_mount_read_only() -> None:
    planned = plan(world(service(), model(), runtime()))
    [claim] = claims(planned)
    assert claim.startswith(PREFIX)
    assert "-" not in claim, "a claim of a pod's own could have this name"
    [volume] = mounted(planned)
    assert volume["persistentVolumeClaim"] == {"claimName": claim, "readOnly": True}


def test_the_services_of_a_namespace_share_a_claim() -> None:
    one, other = (plan(world(service(name=name), model(), runtime())) for name in ("chat", "talk"))
    assert claims(one) == claims(other)
    assert len(claims(one)) == 1


@pytest.mark.parametrize(
    "spec", [{"storageClassName": "fast"}, {"volumeName": "of-a-tenant"}, {"selector": {"matchLabels": {"mine": "1"}}}]
)
def test_a_claim_of_another_author_is_not_mounted_as_the_models(spec: dict[str, Any]) -> None:
    """It may be from before the admission policies were there."""
    [planned] = plan(world(service(), model(), runtime())).shared
    plan(world(service(), model(), runtime(), planned))
    with pytest.raises(InvalidSpecError, match="does not belong to Slipway"):
        plan(world(service(), model(), runtime(), {**planned, "spec": {**planned["spec"], **spec}}))


def test_a_model_that_is_being_deleted_gets_no_claim() -> None:
    leaving = model()
    leaving["metadata"] |= {"deletionTimestamp": "2026-11-21T09:00:00Z"}
    assert claims(plan(world(service(), leaving, runtime()))) == []
