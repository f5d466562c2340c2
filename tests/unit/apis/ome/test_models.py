"""Models of OME come onto the nodes that they are for, one Job for each, and go from them again."""

from __future__ import annotations

import copy
import itertools
from typing import Any

import msgspec
import pytest

from slipway.artifacts.facts.config import ModelFacts, VersionedName
from slipway.kube.caches.store import Change
from slipway.kube.objects import NODE, Key
from slipway.kube.schemas.conditions import timestamp
from slipway.loader.main import arguments
from slipway.serving.contract.api import InvalidSpecError
from slipway.serving.contract.settings import Settings
from slipway.serving.wire.agent import AgentReport, Progress
from slipway.weights.jobs.loads import RETRY_SECONDS
from tests import worlds

from .cluster import APIS, LABEL, Cluster

URI = "hf://acme/tiny"
TWO = {"nodeSelector": {"gpu": "yes"}}


def of(cluster: Cluster, words: str) -> list[Key]:
    """The Jobs that run with these words."""
    commands = (
        (place, " ".join(job["spec"]["template"]["spec"]["containers"][0]["args"]))
        for place, job in cluster.jobs.items()
    )
    return [place for place, command in commands if words in command]


def test_a_model_comes_onto_the_nodes_that_it_is_for_and_onto_no_other() -> None:
    cluster = Cluster("c")
    cluster.join("a", gpu="yes")
    cluster.join("b", gpu="yes")
    cluster.create("tiny", URI, nodeSelector={"gpu": "yes"})
    cluster.reconcile_all()
    assert cluster.marks("tiny") == {"a": "Updating", "b": "Updating"}
    assert cluster.status("tiny")["state"] == "In_Transit"
    cluster.settle()
    assert cluster.disks == {"a": {"/raid/models/tiny": URI}, "b": {"/raid/models/tiny": URI}, "c": {}}
    assert cluster.marks("tiny") == {"a": "Ready", "b": "Ready"}
    status = cluster.status("tiny")
    assert (status["state"], status["nodesReady"], status["size"]) == ("Ready", ["a", "b"], "5 B")
    assert cluster.message("tiny") == "2 of 2 nodes have the files."
    assert cluster.jobs == {}


def test_a_node_counts_as_ready_once_pods_can_select_it() -> None:
    cluster = Cluster("a")
    cluster.create("tiny", URI)
    cluster.reconcile("tiny")
    cluster.run(cluster.working()[0])
    assert cluster.status("tiny")["state"] == "In_Transit"
    cluster.reconcile("tiny")
    assert (cluster.marks("tiny"), cluster.status("tiny")["state"]) == ({"a": "Ready"}, "Ready")


def test_a_job_is_pinned_tolerates_all_and_has_the_models_folder_as_its_only_volume() -> None:
    cluster = Cluster("a")
    cluster.create("tiny", URI, key="hf-token", parameters={"secretKey": "hub"})
    cluster.reconcile("tiny")
    ((place, job),) = cluster.jobs.items()
    pod = job["spec"]["template"]["spec"]
    assert place.namespace == "ome"
    folder = {"path": "/raid/models/tiny", "type": "DirectoryOrCreate"}
    assert pod["volumes"] == [{"name": "models", "hostPath": folder}]
    assert pod["tolerations"] == [{"operator": "Exists"}]
    (container,) = pod["containers"]
    owner = f"--owner={cluster.models['tiny']['metadata']['uid']}"
    assert container["args"] == ["loader", "stage", URI, "/raid/models/tiny", owner, "--header=model"]
    assert container["volumeMounts"] == [{"name": "models", "mountPath": "/raid/models/tiny"}]
    token = {"name": "hf-token", "key": "hub", "optional": True}
    assert {"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": token}} in container["env"]
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}


@pytest.mark.parametrize(
    ("uri", "fields"),
    [
        (URI, {"downloadPolicy": "ReuseIfExists"}),
        ("hf://acme/tiny/q4/tiny.gguf", {}),
        ("s3://weights/llama", {"key": "bucket"}),
        ("https://files.example/a.gguf", {}),
        ("local:///raid/models/tiny", {}),
    ],
)
def test_the_loader_takes_the_words_that_it_is_given(uri: str, fields: Any) -> None:
    cluster = Cluster("a")
    cluster.create("tiny", uri, **fields)
    cluster.reconcile("tiny")
    ((_place, job),) = cluster.jobs.items()
    program, *words = job["spec"]["template"]["spec"]["containers"][0]["args"]
    options = arguments(words)
    assert (program, options.command, options.header) == ("loader", words[0], "model")


def test_the_job_of_a_model_of_a_namespace_runs_where_the_operator_says() -> None:
    cluster = Cluster("a")
    cluster.create("tiny", URI, "BaseModel")
    cluster.reconcile("tiny")
    assert [place.namespace for place in cluster.jobs] == ["ome"]
    assert "models.ome.io/chat.basemodel.tiny" in cluster.nodes["a"]["metadata"]["labels"]


def test_a_node_loads_three_models_at_a_time_the_oldest_first() -> None:
    cluster = Cluster("a", "b")
    for number in range(5):
        cluster.create(
            f"m{number}", f"hf://acme/m{number}", ("FineTunedWeight", "BaseModel", "ClusterBaseModel")[number % 3]
        )
    for name in ("m4", "m2", "m3", "m1", "m0"):
        cluster.reconcile(name)
    for name in ("m0", "m1", "m2"):
        cluster.reconcile(name)
    assert [len(of(cluster, f"acme/m{number}")) for number in range(5)] == [2, 2, 2, 0, 0]
    assert cluster.reason("m4") == "WaitingForTurn"
    assert cluster.recheck("m4") == 30
    cluster.settle()
    assert cluster.most == 3
    assert all(cluster.status(f"m{number}")["state"] == "Ready" for number in range(5))


def test_the_operator_says_how_many_a_node_loads_at_a_time() -> None:
    cluster = Cluster("a", settings=Settings(apis={"ome": {"loadsAtOnce": 1}}))
    for number in range(3):
        cluster.create(f"m{number}", f"hf://acme/m{number}")
    cluster.settle()
    assert (cluster.most, len(cluster.disks["a"])) == (1, 3)


def test_a_rejected_or_failed_model_blocks_no_other() -> None:
    cluster = Cluster("a", settings=Settings(apis={"ome": {"loadsAtOnce": 1}}))
    cluster.create("refused", "az://account/x")
    cluster.create("failing", "hf://acme/failing")
    cluster.create("tiny", URI)
    cluster.reconcile_all()
    cluster.run(cluster.working()[0], fails="the hub does not answer")
    cluster.settle()
    assert cluster.disks["a"] == {"/raid/models/tiny": URI}
    assert cluster.reason("refused", "Accepted") == "SourceNotServed"


def test_models_whose_pods_are_rejected_block_no_other_model() -> None:
    cluster = Cluster("a")
    for name in ("one", "two"):
        cluster.create(name, f"hf://acme/{name}", "BaseModel")
    cluster.create("tiny", URI)
    cluster.reconcile_all()
    refused = cluster.working()
    cluster.reconcile("tiny")
    assert cluster.working() == refused
    cluster.now += 21
    cluster.reconcile("tiny")
    assert len(of(cluster, URI)) == 1


def test_a_node_that_comes_gets_the_model_and_one_that_leaves_is_forgotten() -> None:
    cluster = Cluster("a")
    cluster.create("tiny", URI)
    cluster.settle()
    cluster.join("b")
    cluster.settle()
    assert cluster.status("tiny")["nodesReady"] == ["a", "b"]
    cluster.leave("a")
    assert cluster.status("tiny")["nodesReady"] == ["b"]


def test_a_node_that_leaves_while_it_loads_takes_its_job_along() -> None:
    cluster = Cluster("a", "b")
    cluster.create("tiny", URI)
    cluster.reconcile("tiny")
    cluster.leave("a")
    cluster.settle()
    assert cluster.status("tiny")["nodesReady"] == ["b"]
    assert cluster.jobs == {}


def test_a_node_that_comes_back_under_its_name_is_another_one() -> None:
    cluster = Cluster("a")
    cluster.create("tiny", URI)
    cluster.reconcile("tiny")
    before = of(cluster, "stage")
    cluster.leave("a")
    cluster.join("a")
    cluster.reconcile("tiny")
    assert of(cluster, "stage") != before
    cluster.settle()
    assert cluster.disks["a"] == {"/raid/models/tiny": URI}


def test_a_node_whose_label_goes_loses_the_files_and_one_that_gets_it_has_them() -> None:
    cluster = Cluster("b")
    cluster.join("a", gpu="yes")
    cluster.create("tiny", URI, nodeSelector={"gpu": "yes"})
    cluster.settle()
    cluster.label("a", gpu=None)
    cluster.label("b", gpu="yes")
    cluster.settle()
    assert cluster.disks == {"a": {}, "b": {"/raid/models/tiny": URI}}
    assert cluster.marks("tiny") == {"b": "Ready"}
    assert cluster.nodes["a"]["metadata"]["annotations"] == {}


def test_a_node_that_is_no_longer_meant_while_it_loads_is_cleared_after_its_loader_has_stopped() -> None:
    cluster = Cluster()
    cluster.join("a", gpu="yes")
    cluster.create("tiny", URI, nodeSelector={"gpu": "yes"})
    cluster.reconcile("tiny")
    cluster.label("a", gpu="no")
    cluster.reconcile("tiny")
    assert cluster.jobs == {}
    assert cluster.marks("tiny") == {}
    cluster.reconcile("tiny")
    assert len(of(cluster, "evict /raid/models/tiny")) == 1
    cluster.settle()
    assert cluster.nodes["a"]["metadata"]["annotations"] == {}


@pytest.mark.parametrize("wiped", [False, True])
def test_a_node_that_was_restarted_is_looked_at_before_pods_may_use_it(wiped: bool) -> None:
    cluster = Cluster("a")
    cluster.create("tiny", URI)
    cluster.settle()
    cluster.restart("a", wiped=wiped)
    cluster.reconcile("tiny")
    assert cluster.marks("tiny") == {"a": "Updating"}
    cluster.settle()
    assert cluster.marks("tiny") == {"a": "Ready"}
    assert cluster.disks["a"] == {"/raid/models/tiny": URI}


def test_another_revision_is_loaded_into_the_same_folder() -> None:
    cluster = Cluster("a")
    cluster.create("tiny", URI)
    cluster.settle()
    cluster.change("tiny", storageUri=f"{URI}@v2")
    cluster.reconcile("tiny")
    assert cluster.marks("tiny") == {"a": "Updating"}
    assert not of(cluster, "evict")
    cluster.settle()
    assert cluster.disks["a"] == {"/raid/models/tiny": f"{URI}@v2"}
    assert cluster.marks("tiny") == {"a": "Ready"}


def test_another_revision_while_the_first_one_loads_starts_again() -> None:
    cluster = Cluster("a")
    cluster.create("tiny", URI)
    cluster.reconcile("tiny")
    cluster.change("tiny", storageUri=f"{URI}@v2")
    cluster.settle()
    assert cluster.disks["a"] == {"/raid/models/tiny": f"{URI}@v2"}


def test_another_path_is_filled_before_the_old_one_is_removed_once_no_pod_reads_it() -> None:
    cluster = Cluster("a")
    cluster.create("tiny", URI)
    cluster.settle()
    cluster.read("/raid/models/tiny")
    cluster.change("tiny", path="/raid/models/new")
    cluster.settle()
    assert cluster.marks("tiny") == {"a": "Ready"}
    assert set(cluster.disks["a"]) == {"/raid/models/tiny", "/raid/models/new"}
    assert cluster.recheck("tiny") == 30
    cluster.others.clear()
    cluster.settle()
    assert set(cluster.disks["a"]) == {"/raid/models/new"}


def test_a_deleted_model_leaves_no_file_and_no_mark() -> None:
    cluster = Cluster("a", "b")
    cluster.create("tiny", URI)
    cluster.settle()
    cluster.delete("tiny")
    assert cluster.reason("tiny") == "Leaving"
    cluster.settle()
    assert cluster.models == {}
    assert cluster.disks == {"a": {}, "b": {}}
    assert all(node["metadata"]["labels"] == node["metadata"]["annotations"] == {} for node in cluster.nodes.values())


def test_a_model_that_is_deleted_before_its_load_was_noted_leaves_no_job() -> None:
    cluster = Cluster("a")
    cluster.create("tiny", URI)
    cluster.reconcile("tiny")
    cluster.nodes["a"]["metadata"] |= {"labels": {}, "annotations": {}}
    cluster.delete("tiny")
    cluster.settle()
    assert (cluster.models, cluster.jobs) == ({}, {})


def forged(cluster: Cluster) -> None:
    """Replaces the model's Job by one in a tenant's namespace that names the cluster-scoped model as its owner."""
    ((place, job),) = cluster.jobs.items()
    there = {"metadata": job["metadata"] | {"namespace": "tenant"}, "status": {"active": 1}}
    cluster.jobs = {Key("tenant", place.name): job | there}


def test_a_job_of_a_tenant_does_not_keep_a_model_of_the_cluster() -> None:
    cluster = Cluster("a")
    cluster.create("tiny", "hf://acme/tiny")
    cluster.reconcile("tiny")
    forged(cluster)
    cluster.delete("tiny")
    final_plan = worlds.finalize(APIS["ClusterBaseModel"], cluster.world("tiny"))
    assert final_plan is not None
    assert [job["spec"]["template"]["spec"]["containers"][0]["args"][1] for job in final_plan.children] == ["evict"]


def test_endless_loads_of_one_namespace_leave_a_turn_to_others() -> None:
    cluster = Cluster("a")
    for number in range(3):
        cluster.create(f"endless-{number}", "hf://acme/endless", kind="BaseModel")
    cluster.reconcile_all()
    cluster.reconcile_all()
    assert len(cluster.working()) == 2
    cluster.create("operators", "hf://acme/tiny")
    cluster.reconcile_all()
    owners = [cluster.jobs[place]["metadata"]["ownerReferences"][0]["name"] for place in cluster.working()]
    assert sorted(owners) == ["endless-0", "endless-1", "operators"]


def test_forged_jobs_of_one_namespace_leave_a_turn_to_others() -> None:
    cluster = Cluster("a")
    cluster.create("endless", "hf://acme/endless", kind="BaseModel")
    cluster.reconcile("endless")
    ((place, job),) = cluster.jobs.items()
    for number in range(20):
        name = f"forged-{number}"
        metadata = job["metadata"] | {"name": name, "uid": name, "namespace": "chat"}
        cluster.jobs[Key("chat", name)] = job | {"metadata": metadata, "owner": "a stranger"}
    cluster.create("operators", "hf://acme/tiny")
    cluster.reconcile("operators")
    assert len([key for key in cluster.jobs if key.namespace == place.namespace]) == 2


def test_a_tenants_job_for_a_cluster_model_takes_no_turn() -> None:
    cluster = Cluster("a", settings=Settings(apis={"ome": {"loadsAtOnce": 1}}))
    cluster.create("tiny", "hf://acme/tiny")
    cluster.reconcile("tiny")
    forged(cluster)
    cluster.create("young", "hf://acme/young")
    del cluster.models["tiny"]["spec"]["storage"]["storageUri"]
    cluster.reconcile("young")
    assert [place.namespace for place in cluster.jobs] == ["tenant", "ome"]


def test_files_stay_while_pods_read_them() -> None:
    cluster = Cluster("a")
    cluster.create("tiny", URI)
    cluster.settle()
    cluster.read("/raid/models/tiny")
    cluster.delete("tiny")
    cluster.settle()
    assert cluster.reason("tiny") == "InUse"
    assert cluster.disks["a"]
    assert not cluster.marks("tiny")
    cluster.others.clear()
    cluster.settle()
    assert (cluster.models, cluster.disks["a"]) == ({}, {})


@pytest.mark.parametrize(
    ("namespace", "mounted", "state"),
    [
        ("chat", "/raid/models/chat/tiny", "InUse"),
        ("chat", None, ""),
        ("chat", "/tmp", ""),
        ("other", "/raid/models/chat/tiny", ""),
    ],
)
def test_pods_that_only_pretend_to_read_files_keep_none(namespace: str, mounted: str | None, state: str) -> None:
    cluster = Cluster("a")
    cluster.create("tiny", URI, "BaseModel")
    cluster.settle()
    cluster.read("/raid/models/chat/tiny")
    (pod,) = cluster.others
    pod["metadata"]["namespace"] = namespace
    pod["spec"] = {"volumes": [{"name": "x", "hostPath": {"path": mounted}}] if mounted else []}
    cluster.delete("tiny")
    cluster.settle()
    assert ("tiny" in cluster.models) is bool(state)


def test_a_pod_that_takes_for_ever_to_end_keeps_files_for_a_bounded_time() -> None:
    cluster = Cluster("a")
    cluster.create("tiny", URI)
    cluster.settle()
    cluster.read("/raid/models/tiny")
    (pod,) = cluster.others
    grace = 1_000_000_000
    pod["metadata"] |= {"deletionTimestamp": timestamp(cluster.now + grace), "deletionGracePeriodSeconds": grace}
    cluster.delete("tiny")
    cluster.settle()
    assert cluster.reason("tiny") == "InUse"
    cluster.now += 3600 + 300
    cluster.settle()
    assert cluster.models == {}


def test_files_stay_that_another_model_has_or_a_label_reserves() -> None:
    cluster = Cluster("a")
    cluster.create("tiny", URI)
    cluster.create("same", URI, "FineTunedWeight", path="/raid/models/tiny")
    cluster.create("kept", "hf://acme/kept")
    cluster.models["kept"]["metadata"]["labels"] = {"models.ome/reserve-model-artifact": "true"}
    cluster.settle()
    for name in ("tiny", "kept"):
        cluster.delete(name)
    cluster.settle()
    assert set(cluster.models) == {"same"}
    assert set(cluster.disks["a"]) == {"/raid/models/tiny", "/raid/models/kept"}


def test_a_deletion_ends_though_a_node_is_lost() -> None:
    cluster = Cluster("a", "lost", "gone")
    cluster.create("tiny", URI)
    cluster.settle()
    cluster.delete("tiny")
    cluster.leave("gone")
    cluster.reconcile("tiny")
    (job,) = [place for place in of(cluster, "evict") if "lost" in str(cluster.jobs[place]["spec"])]
    for _unused in range(5):
        cluster.reconcile("tiny")
        for place in cluster.working():
            if place != job:
                cluster.run(place)
    assert "tiny" in cluster.models
    cluster.now += 601
    cluster.reconcile("tiny")
    cluster.reconcile("tiny")
    assert (cluster.models, cluster.disks["a"]) == ({}, {})


def test_a_load_that_fails_is_reported_and_tried_again() -> None:
    cluster = Cluster("a")
    cluster.create("tiny", URI)
    cluster.reconcile("tiny")
    cluster.run(cluster.working()[0], fails="the disk is full")
    cluster.reconcile("tiny")
    status = cluster.status("tiny")
    assert (status["state"], status["nodesFailed"], cluster.reason("tiny")) == ("Failed", ["a"], "LoadFailed")
    assert cluster.message("tiny").startswith("a: The weights could not be loaded: the disk is full.")
    assert cluster.marks("tiny") == {"a": "Failed"}
    cluster.now += 301
    cluster.settle()
    assert (cluster.status("tiny")["state"], cluster.marks("tiny")) == ("Ready", {"a": "Ready"})


def test_how_far_all_nodes_are_is_reported_in_bytes() -> None:
    cluster = Cluster("a", "b")
    cluster.create("tiny", URI)
    cluster.reconcile("tiny")
    reports = {
        pod["metadata"]["uid"]: Progress(done_bytes=3, total_bytes=10, message="3 of 10 B")
        for pod in cluster.pods.values()
    }
    agent_reports = {one: AgentReport(progress=progress) for one, progress in reports.items()}
    world = msgspec.structs.replace(cluster.world("tiny"), agents=agent_reports)
    status = worlds.status(APIS["ClusterBaseModel"], world).status
    assert (status["doneBytes"], status["totalBytes"]) == (6, 20)
    assert "a is downloading the files: 3 of 10 B. b is downloading the files: 3 of 10 B." in str(status["conditions"])


def test_pods_that_the_cluster_refuses_are_reported() -> None:
    cluster = Cluster("a")
    cluster.create("tiny", URI)
    cluster.reconcile("tiny")
    cluster.now += 30
    world = msgspec.structs.replace(cluster.world("tiny"), pods=[])
    status = worlds.status(APIS["ClusterBaseModel"], world).status
    assert status["state"] == "Failed"
    assert "PodsRejected" in str(status["conditions"])


def test_one_node_that_has_the_files_is_enough_and_the_others_are_reported() -> None:
    cluster = Cluster("a", "b")
    cluster.create("tiny", URI)
    cluster.reconcile("tiny")
    good, bad = cluster.working()
    cluster.run(good)
    cluster.run(bad, fails="the disk is full")
    cluster.reconcile("tiny")
    status = cluster.status("tiny")
    assert (status["state"], status["nodesReady"], status["nodesFailed"]) == ("Ready", ["a"], ["b"])
    assert "1 of 2 nodes have the files. b: The weights could not be loaded" in cluster.message("tiny")


def test_an_empty_node_selection_is_reported_and_is_not_a_fault() -> None:
    cluster = Cluster("a")
    cluster.create("tiny", URI, nodeSelector={"gpu": "yes"})
    cluster.settle()
    assert (cluster.status("tiny")["state"], cluster.reason("tiny")) == ("In_Transit", "NoNode")


FACTS = ModelFacts(
    model_type="llama",
    architecture="LlamaForCausalLM",
    format=VersionedName("safetensors", "1.0.0"),
    framework=VersionedName("transformers", "4.45.0"),
    parameter_size="1.24B",
    max_tokens=131072,
    capabilities=("TEXT_TO_TEXT",),
)


def test_facts_from_the_files_fill_unset_fields() -> None:
    cluster = Cluster("a")
    cluster.facts = FACTS
    cluster.create("tiny", URI)
    cluster.models["tiny"]["spec"] |= {"modelType": "mine", "maxTokens": 512}
    cluster.settle()
    spec = cluster.models["tiny"]["spec"]
    assert (spec["modelType"], spec["maxTokens"], spec["modelArchitecture"]) == ("mine", 512, "LlamaForCausalLM")
    assert spec["modelFormat"] == {"name": "safetensors", "version": "1.0.0"}
    assert (spec["modelParameterSize"], spec["modelCapabilities"]) == ("1.24B", ["TEXT_TO_TEXT"])
    assert "quantization" not in spec
    assert cluster.marks("tiny") == {"a": "Ready"}


def test_an_annotation_keeps_the_spec_as_it_is_and_weights_that_are_tuned_have_no_such_fields() -> None:
    cluster = Cluster("a")
    cluster.facts = FACTS
    cluster.create("tiny", URI)
    cluster.models["tiny"]["metadata"]["annotations"] = {"ome.oracle.com/skip-config-parsing": "true"}
    cluster.create("lora", "hf://acme/lora", "FineTunedWeight")
    cluster.settle()
    assert all(set(model["spec"]) == {"storage"} for model in cluster.models.values())


def test_two_models_of_different_sources_do_not_share_a_folder() -> None:
    cluster = Cluster("a")
    cluster.create("first", URI, path="/raid/models/x")
    cluster.create("second", "hf://acme/other", path="/raid/models/x")
    cluster.settle()
    assert cluster.disks["a"] == {"/raid/models/x": URI}
    assert cluster.reason("second", "Accepted") == "PathTaken"
    with pytest.raises(InvalidSpecError, match="The ClusterBaseModel first already uses the directory /raid/models/x"):
        cluster.plan("second")


def test_a_local_folder_is_looked_at_and_never_removed() -> None:
    cluster = Cluster("a")
    cluster.disks["a"]["/raid/models/local"] = "people"
    cluster.create("tiny", "local:///raid/models/local", path=None)
    cluster.change("tiny", path=None)
    cluster.reconcile("tiny")
    ((_place, job),) = cluster.jobs.items()
    (container,) = job["spec"]["template"]["spec"]["containers"]
    assert container["args"] == ["loader", "inspect", "/raid/models/local", "--header=model"]
    assert container["volumeMounts"] == [{"name": "models", "mountPath": "/raid/models/local", "readOnly": True}]
    cluster.settle()
    assert cluster.marks("tiny") == {"a": "Ready"}
    cluster.delete("tiny")
    cluster.settle()
    assert (cluster.models, cluster.disks["a"]) == ({}, {"/raid/models/local": "people"})


def test_a_vendors_model_is_there_without_a_job() -> None:
    cluster = Cluster("a")
    cluster.create("tiny", "vendor://acme/llm/x")
    cluster.reconcile("tiny")
    assert (cluster.jobs, cluster.marks("tiny"), cluster.status("tiny")["state"]) == ({}, {"a": "Ready"}, "Ready")
    cluster.delete("tiny")
    cluster.settle()
    assert (cluster.models, cluster.marks("tiny")) == ({}, {})


def claim(namespace: str = "chat", phase: str = "Bound") -> dict[str, Any]:
    metadata = {"name": "weights", "namespace": namespace}
    return {"kind": "PersistentVolumeClaim", "metadata": metadata, "status": {"phase": phase}}


def test_a_model_on_a_claim_is_read_there_and_put_onto_no_node() -> None:
    cluster = Cluster("a")
    cluster.facts = FACTS
    cluster.create("tiny", "pvc://weights/llama", "BaseModel")
    assert cluster.reason("tiny") == "ClaimNotFound"
    cluster.others.append(claim(phase="Pending"))
    assert cluster.reason("tiny") == "ClaimNotBound"
    cluster.others[:] = [claim()]
    cluster.reconcile("tiny")
    ((place, job),) = cluster.jobs.items()
    pod = job["spec"]["template"]["spec"]
    assert (place.namespace, pod["containers"][0]["args"][:3]) == ("chat", ["loader", "inspect", "/mnt/claim/llama"])
    assert pod["volumes"] == [{"name": "models", "persistentVolumeClaim": {"claimName": "weights", "readOnly": True}}]
    cluster.settle(3)
    assert (cluster.status("tiny")["state"], cluster.reason("tiny")) == ("Ready", "OnClaim")
    assert cluster.models["tiny"]["spec"]["modelType"] == "llama"
    assert cluster.nodes["a"]["metadata"]["labels"] == {}
    cluster.delete("tiny")
    cluster.settle(2)
    assert (cluster.models, cluster.jobs) == ({}, {})


@pytest.mark.parametrize("uri", ["pvc://weights/llama", "local:///raid/models/chat/local"])
def test_files_that_are_no_model_are_reported_and_checked_again(uri: str) -> None:
    cluster = Cluster("a")
    cluster.others.append(claim())
    cluster.fault = "model.safetensors is a Git LFS pointer, not the weights"
    cluster.create("tiny", uri, "BaseModel", path=None)
    cluster.change("tiny", path=None)
    cluster.settle(4)
    assert (cluster.status("tiny")["state"], cluster.reason("tiny")) == ("Failed", "UnsupportedSource")
    (available,) = (one for one in cluster.status("tiny")["conditions"] if one["type"] == "Available")
    assert "model.safetensors is a Git LFS pointer, not the weights." in available["message"]
    cluster.fault = ""
    cluster.now += RETRY_SECONDS
    cluster.settle(4)
    assert cluster.status("tiny")["state"] == "Ready"


def test_a_model_that_moves_to_a_claim_leaves_its_nodes() -> None:
    cluster = Cluster("a")
    cluster.create("tiny", URI, "BaseModel")
    cluster.settle()
    cluster.others.append(claim())
    cluster.change("tiny", storageUri="pvc://weights/llama")
    cluster.settle()
    assert (cluster.disks["a"], cluster.status("tiny")["state"]) == ({}, "Ready")


def test_reuse_is_asked_for_by_the_policy() -> None:
    cluster = Cluster("a")
    cluster.create("first", f"{URI}@v1")
    cluster.create("unfinished", URI, path="/raid/models/unfinished")
    cluster.reconcile("unfinished")
    cluster.create("other", "hf://acme/other")
    cluster.create("plain", f"{URI}@v2")
    for name in ("first", "other", "plain"):
        cluster.reconcile(name)
    for place in cluster.working():
        if "unfinished" not in place.name:
            cluster.run(place)
    for name in ("first", "other", "plain"):
        cluster.reconcile(name)
    cluster.create("tiny", URI, "BaseModel", downloadPolicy="ReuseIfExists")
    cluster.reconcile("tiny")
    ((_place, job),) = [(place, cluster.jobs[place]) for place in of(cluster, "--reuse=/raid/models/first")]
    donor = {"name": "donor", "mountPath": "/raid/models/first", "readOnly": True}
    assert donor in job["spec"]["template"]["spec"]["containers"][0]["volumeMounts"]
    assert not of(cluster, "--reuse=/raid/models/un")


def reusing(cluster: Cluster) -> str:
    """The uid of the load of tiny, which may reuse files of first."""
    cluster.reconcile("tiny")
    ((_place, job),) = [(place, cluster.jobs[place]) for place in of(cluster, "/raid/models/chat/tiny")]
    return str(job["metadata"]["uid"])


def test_a_load_is_not_restarted_when_another_model_is_there_that_it_could_reuse() -> None:
    cluster = Cluster("a")
    cluster.create("first", URI)
    cluster.create("tiny", URI, "BaseModel", downloadPolicy="ReuseIfExists")
    begun = reusing(cluster)
    cluster.reconcile("first")
    cluster.run(*of(cluster, "/raid/models/first"))
    cluster.reconcile("first")
    assert reusing(cluster) == begun
    cluster.run(*of(cluster, "/raid/models/chat/tiny"))
    cluster.reconcile("tiny")
    assert cluster.status("tiny")["state"] == "Ready"
    cluster.reconcile("tiny")
    assert not of(cluster, "/raid/models/chat/tiny")


def test_a_load_is_not_restarted_when_the_model_that_it_reuses_is_checked_again() -> None:
    cluster = Cluster("a")
    for name in ("first", "second"):
        cluster.create(name, URI)
        cluster.settle()
    cluster.create("tiny", URI, "BaseModel", downloadPolicy="ReuseIfExists")
    begun = reusing(cluster)
    assert of(cluster, "--reuse=/raid/models/first")
    cluster.change("first", parameters={"region": "elsewhere"})
    cluster.reconcile("first")
    assert reusing(cluster) == begun
    cluster.change("first", storageUri="hf://acme/another")
    assert reusing(cluster) != begun
    assert of(cluster, "--reuse=/raid/models/second")


def test_a_changed_job_cannot_make_a_load_reuse_another_folder() -> None:
    cluster = Cluster("a")
    cluster.create("first", URI)
    cluster.settle()
    cluster.create("operators", "hf://acme/secret")
    cluster.settle()
    cluster.create("tiny", URI, "BaseModel", downloadPolicy="ReuseIfExists")
    begun = reusing(cluster)
    ((_place, job),) = cluster.jobs.items()
    words = job["spec"]["template"]["spec"]["containers"][0]["args"]
    words[words.index("--reuse=/raid/models/first")] = "--reuse=/raid/models/operators"
    assert reusing(cluster) != begun
    assert of(cluster, "--reuse=/raid/models/first")


def test_files_of_another_namespace_are_not_reused() -> None:
    cluster = Cluster("a")
    cluster.create("theirs", URI, "BaseModel", namespace="theirs")
    cluster.settle()
    cluster.create("tiny", URI, "BaseModel", downloadPolicy="ReuseIfExists")
    cluster.create("operators", URI, downloadPolicy="ReuseIfExists")
    cluster.reconcile("tiny")
    cluster.reconcile("operators")
    assert len(of(cluster, "stage")) == 2
    assert not of(cluster, "--reuse")


@pytest.mark.parametrize(
    ("uri", "variables"),
    [
        ("s3://weights@us-east-1/llama", {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION"}),
        ("gs://weights/llama", {"GOOGLE_APPLICATION_CREDENTIALS"}),
    ],
)
def test_a_bucket_gets_what_the_secret_has_for_it(uri: str, variables: set[str]) -> None:
    cluster = Cluster("a")
    cluster.create("tiny", uri, key="bucket")
    cluster.reconcile("tiny")
    ((_place, job),) = cluster.jobs.items()
    env = {one["name"]: one for one in job["spec"]["template"]["spec"]["containers"][0]["env"]}
    assert variables <= set(env)
    assert env.get("AWS_REGION", {}).get("value", "us-east-1") == "us-east-1"


def test_marks_of_the_original_are_taken_over() -> None:
    cluster = Cluster("a")
    label = "models.ome.io/clusterbasemodel.tiny"
    cluster.label("a", **{label: "Ready"})
    cluster.disks["a"]["/raid/models/tiny"] = "their agent"
    cluster.create("tiny", URI)
    cluster.reconcile("tiny")
    assert cluster.marks("tiny") == {"a": "Updating"}
    cluster.settle()
    assert cluster.marks("tiny") == {"a": "Ready"}


def enqueued(cluster: Cluster, before: dict[str, Any] | None, after: dict[str, Any] | None) -> set[str]:
    """The models of the cluster that a change of a node leads to. The caches know what is there after it."""
    api, some = APIS["ClusterBaseModel"], next(iter(cluster.models))
    (watch,) = [one for one in api.watches(cluster.settings) if one.kind == NODE]
    assert watch.trim
    old, new = (watch.trim(copy.deepcopy(node)) if node else None for node in (before, after))
    return {key.name for key in watch.enqueue(Change(old, new), cluster.world(some).listers)}


@pytest.fixture
def busy() -> Cluster:
    """A node with one model of three that are for it, and one that is for another."""
    cluster = Cluster(settings=Settings(apis={"ome": {"loadsAtOnce": 1}}))
    cluster.join("a", gpu="yes")
    cluster.create("elsewhere", "hf://acme/elsewhere", nodeSelector={"gpu": "other"})
    for name in ("there", "next", "later", "last"):
        cluster.create(name, f"hf://acme/{name}", nodeSelector={"gpu": "yes"})
    cluster.reconcile_all()
    cluster.run(cluster.working()[0])
    return cluster


def test_a_heartbeat_of_a_node_concerns_no_model(busy: Cluster) -> None:
    node = busy.nodes["a"]
    beat = {**node, "status": {**node["status"], "images": ["another"], "capacity": {"cpu": "8"}}}
    assert enqueued(busy, node, beat) == set()


def test_a_node_that_comes_goes_or_changes_concerns_the_models_that_it_is_for(busy: Cluster) -> None:
    node = copy.deepcopy(busy.nodes["a"])
    mine = {"there", "next", "later", "last"}
    assert enqueued(busy, None, node) == mine
    assert enqueued(busy, node, None) == mine
    busy.restart("a")
    assert enqueued(busy, node, busy.nodes["a"]) == mine
    busy.label("a", gpu="other")
    assert enqueued(busy, node, busy.nodes["a"]) == mine | {"elsewhere"}


def test_a_changed_node_enqueues_the_model_that_it_reports_and_the_waiting_models(busy: Cluster) -> None:
    node = copy.deepcopy(busy.nodes["a"])
    busy.reconcile("there")
    assert busy.marks("there") == {"a": "Ready"}
    assert enqueued(busy, node, busy.nodes["a"]) == {"there", "next", "later"}
    busy.label("a", **{f"{LABEL}clusterbasemodel.elsewhere": "Ready"})
    assert "elsewhere" in enqueued(busy, node, busy.nodes["a"])


def test_every_storage_that_the_definition_accepts_leads_to_a_valid_state() -> None:
    texts = ["", "x", "hf://", "hf://a/b", "hf://a/b@@", "pvc://c/x", "local:///raid/models/x", "vendor://v"]
    texts += ["oci://n/x", "\udc80", "s3://b@/x", "http://[::1", "https://h/x?y"]
    paths = [None, "", "/", "/raid/models/x", "/raid/models/x/../y", "x", "/raid/models/" + "é" * 400]
    affinities = [None, {}, {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []}}]
    for text, path, affinity in itertools.product(texts, paths, affinities):
        cluster = Cluster("a")
        fields = {"path": path, "nodeAffinity": affinity}
        cluster.create(
            "tiny", text, "BaseModel", **{name: value for name, value in fields.items() if value is not None}
        )
        cluster.reconcile("tiny")
        state = cluster.status("tiny")["state"]
        assert state in ("Failed", "In_Transit", "Ready")


def test_fields_of_a_model_without_effect_are_named_with_the_reason() -> None:
    for storage, named in (({"schemaPath": "a/b"}, True), ({}, False)):
        cluster = Cluster()
        cluster.create("tiny", URI, **storage)
        cluster.settle()
        conditions = {one["type"]: one for one in cluster.status("tiny")["conditions"]}
        assert ("FieldsIgnored" in conditions) == named
        assert not named or "spec.storage.schemaPath (" in conditions["FieldsIgnored"]["message"]
