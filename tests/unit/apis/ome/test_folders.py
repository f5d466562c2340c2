"""Models of different authors have different folders of the nodes, whatever paths their authors name."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from slipway.apis.ome.models import folders
from slipway.apis.ome.models import storage as ome_storage
from slipway.kube.caches.store import Change
from slipway.kube.objects import Key
from slipway.kube.schemas.conditions import timestamp
from slipway.serving.contract.api import InvalidSpecError
from slipway.serving.contract.settings import Settings
from slipway.weights.jobs.loads import EVICTION_SECONDS
from slipway.weights.nodes import RECORDS, mark, node_of
from tests import worlds

from . import services
from .cluster import APIS, Cluster

THEIRS = "hf://stranger/other"
URI = "hf://acme/tiny"
BASE = "BaseModel"
DEFAULT = "/raid/models/hf/acme-tiny-0e39e610"
"""Where a model of the cluster is that names no path."""


def words_of(cluster: Cluster) -> list[str]:
    """The arguments of the Jobs."""
    return [" ".join(job["spec"]["template"]["spec"]["containers"][0]["args"]) for job in cluster.jobs.values()]


def writable(cluster: Cluster) -> set[tuple[str, str]]:
    """Folders of the nodes that pods of Jobs may fill or empty, with the namespace of the model; ``ome``: of the
    cluster. Those above, in which a container replaces a folder, are left out."""
    host_folders = set()
    for place, job in cluster.jobs.items():
        pod, namespace = job["spec"]["template"]["spec"], job["metadata"]["ownerReferences"][0].get("namespace", "ome")
        if place.namespace != "ome":  # a forged one
            continue
        volumes = {one["name"]: one["hostPath"]["path"] for one in pod["volumes"] if "hostPath" in one}
        for container in (*pod["containers"], *pod.get("initContainers", ())):
            mounts = [one for one in container.get("volumeMounts", ()) if one["name"] != "parent"]
            host_folders |= {(namespace, volumes[one["name"]]) for one in mounts if not one.get("readOnly")}
    return host_folders


def label_of(cluster: Cluster, name: str, node: str = "a") -> str | None:
    kind, namespace = cluster.models[name]["kind"].lower(), cluster.models[name]["metadata"].get("namespace", "")
    labels: dict[str, str] = cluster.nodes[node]["metadata"]["labels"]
    return labels.get(f"models.ome.io/{namespace}.{kind}.{name}" if namespace else f"models.ome.io/{kind}.{name}")


def loaded_before(cluster: Cluster, name: str, path: str, requested: str, **fields: Any) -> None:
    """A node has the files of a model of a namespace by the word of an earlier version."""
    model = cluster.models[name]["metadata"]
    label = f"models.ome.io/{model['namespace']}.basemodel.{name}"
    record = {"state": "Ready", "of": model["uid"], "wanted": requested, "path": path, "boot": "b1", "size": 5}
    metadata = cluster.nodes["a"]["metadata"]
    metadata["annotations"][f"{RECORDS}{mark(label)}"] = json.dumps(record | fields)
    metadata["labels"][label] = "Ready"
    cluster.disks["a"][path] = URI


# Where models of a namespace lie


@pytest.mark.parametrize(
    "path",
    [
        "/raid/models",
        "/raid/models/hf",
        DEFAULT,
        "/raid/models/chat",
        "/raid/models/other/x",
        "/raid/models/chatter/x",
        "/raid/models/chat/../hf",
        "/mnt/models/tiny",
    ],
)
@pytest.mark.parametrize("uri", [THEIRS, "local:///raid/models/chat/x", "vendor://acme/x"])
def test_a_model_of_a_namespace_has_no_folder_outside_of_the_namespaces_own(path: str, uri: str) -> None:
    cluster = Cluster("a")
    cluster.create("mine", uri, BASE, path=path)
    cluster.reconcile("mine")
    assert (cluster.jobs, cluster.reason("mine", "Accepted")) == ({}, "PathNotAllowed")
    assert label_of(cluster, "mine") is None


@pytest.mark.parametrize("uri", ["local:///raid/models/hf", "local:///raid/models/other", "local:///mnt/models"])
def test_a_local_model_of_a_namespace_reads_no_folder_of_others(uri: str) -> None:
    cluster = Cluster("a")
    cluster.create("mine", uri, BASE, path=None)
    cluster.reconcile("mine")
    assert (cluster.jobs, cluster.reason("mine", "Accepted")) == ({}, "PathNotAllowed")


def test_a_model_that_names_no_path_gets_one_in_the_namespaces_folder() -> None:
    cluster = Cluster("a")
    cluster.create("mine", URI, BASE, path=None)
    cluster.create("operators", URI, path=None)
    cluster.settle()
    assert set(cluster.disks["a"]) == {DEFAULT, DEFAULT.replace("/hf/", "/chat/hf/")}


def test_the_operator_may_share_a_folder_with_all_namespaces() -> None:
    shared = {"modelRoots": ["/raid/models"], "sharedRoots": ["/mnt/shared"]}
    cluster = Cluster("a", settings=Settings(apis={"ome": shared}))
    cluster.create("one", URI, BASE, path="/mnt/shared/one")
    cluster.create("two", URI, BASE, namespace="other", path="/mnt/shared/two")
    cluster.create("bad", URI, BASE, path="/mnt/shared")
    cluster.create("nested", URI, BASE, path="/mnt/shared/two/inside")
    cluster.settle()
    assert set(cluster.disks["a"]) == {"/mnt/shared/one", "/mnt/shared/two"}
    assert cluster.reason("nested", "Accepted") == "PathTaken"
    assert "other/two" not in cluster.message("nested")


def test_no_namespace_has_a_folder_around_one_of_the_operators() -> None:
    roots = {"modelRoots": ["/raid/models", "/raid/models/chat/fast"]}
    cluster = Cluster("a", settings=Settings(apis={"ome": roots}))
    for number, path in enumerate(("/raid/models/chat/fast", "/raid/models/chat/fast/other/x")):
        cluster.create(f"m{number}", URI, BASE, path=path)
    cluster.reconcile_all()
    assert cluster.jobs == {}
    cluster.create("fine", URI, BASE, path="/raid/models/chat/fast/chat/x")
    cluster.reconcile("fine")
    assert writable(cluster) == {("chat", "/raid/models/chat/fast/chat/x")}


# Who has a folder that several want


@pytest.mark.parametrize("path", ["/raid/models/chat/x", "/raid/models/chat/x/y", "/raid/models/chat"])
def test_a_cluster_model_gets_its_folder_whichever_model_had_it_before(path: str) -> None:
    cluster = Cluster("a")
    cluster.create("squatter", THEIRS, BASE, path="/raid/models/chat/x")
    cluster.settle()
    assert label_of(cluster, "squatter") == "Ready"
    cluster.create("operators", URI, path=path)
    cluster.settle()
    assert cluster.status("operators")["state"] == "Ready"
    assert cluster.reason("squatter", "Accepted") == "PathTaken"
    assert label_of(cluster, "squatter") is None
    cluster.delete("squatter")
    cluster.settle()
    assert set(cluster.models) == {"operators"}
    assert cluster.disks["a"][path] == URI


def test_the_loads_of_a_model_that_lost_its_folder_end_before_the_other_one_is_loaded() -> None:
    cluster = Cluster("a")
    cluster.create("squatter", THEIRS, BASE, path="/raid/models/chat/x/y")
    cluster.reconcile("squatter")
    cluster.create("operators", URI, path="/raid/models/chat/x")
    cluster.reconcile("operators")
    assert writable(cluster) == {("chat", "/raid/models/chat/x/y")}
    cluster.reconcile("squatter")
    assert cluster.jobs == {}
    cluster.reconcile("operators")
    assert writable(cluster) == {("ome", "/raid/models/chat/x")}
    cluster.settle()
    assert cluster.disks["a"] == {"/raid/models/chat/x": URI}


def test_forged_loads_of_a_model_that_lost_its_folder_hold_up_no_other_one() -> None:
    cluster = Cluster("a")
    cluster.create("squatter", THEIRS, BASE, path="/raid/models/chat/x")
    cluster.reconcile("squatter")
    ((place, job),) = cluster.jobs.items()
    cluster.create("operators", URI, path="/raid/models/chat/x")
    for _unused in range(2):
        cluster.reconcile("squatter")
    cluster.jobs = {Key(place.namespace, "forged"): job | {"metadata": job["metadata"] | {"name": "forged"}}}
    cluster.reconcile("operators")
    assert ("ome", "/raid/models/chat/x") in writable(cluster)


@pytest.mark.parametrize("namespace", ["chat", "stranger"])
def test_forged_loads_from_before_block_nothing(namespace: str) -> None:
    """Only the record of a node tells the folder that a model's load writes to."""
    cluster = Cluster("a")
    cluster.create("stranger", THEIRS, BASE, path="/raid/models/chat/own")
    cluster.reconcile("stranger")
    ((place, job),) = cluster.jobs.items()
    forged = copy.deepcopy(job)
    forged["metadata"] |= {"name": "forged", "namespace": namespace, "creationTimestamp": "2001-01-01T00:00:00Z"}
    forged["spec"]["template"]["spec"]["containers"][0]["args"][3] = "/raid/models/operators"
    cluster.create("operators", URI)
    cluster.jobs[Key(namespace, "forged")] = forged
    cluster.reconcile("operators")
    assert ("ome", "/raid/models/operators") in writable(cluster)
    assert place in cluster.jobs


def test_a_load_that_never_goes_holds_up_the_next_model_for_a_bounded_time() -> None:
    cluster = Cluster("a")
    cluster.create("squatter", THEIRS, BASE, path="/raid/models/chat/x")
    cluster.reconcile("squatter")
    ((_place, job),) = cluster.jobs.items()
    cluster.create("operators", URI, path="/raid/models/chat/x")
    job["metadata"] |= {"deletionTimestamp": timestamp(cluster.now), "finalizers": ["stranger.example/never"]}
    cluster.reconcile("operators")
    assert cluster.reason("operators") == "WaitingForTurn"
    cluster.now += EVICTION_SECONDS + 1
    cluster.reconcile("operators")
    assert ("ome", "/raid/models/chat/x") in writable(cluster)


def test_models_that_wait_for_their_folder_leave_their_turns_to_others() -> None:
    cluster = Cluster("a", settings=Settings(apis={"ome": {"loadsAtOnce": 2}}))
    cluster.create("squatter", THEIRS, BASE, path="/raid/models/chat/x")
    cluster.reconcile("squatter")
    cluster.create("waiting", URI, path="/raid/models/chat/x")
    cluster.create("tiny", URI)
    cluster.reconcile("tiny")
    assert ("ome", "/raid/models/tiny") in writable(cluster)


def test_an_older_model_that_moves_waits_for_the_loads_that_were_begun_there() -> None:
    cluster = Cluster("a")
    cluster.create("operators", URI)
    cluster.settle()
    cluster.now += 3600
    cluster.create("squatter", THEIRS, BASE, path="/raid/models/chat/x")
    cluster.reconcile("squatter")
    cluster.change("operators", path="/raid/models/chat/x")
    cluster.reconcile("operators")
    assert writable(cluster) == {("chat", "/raid/models/chat/x")}
    cluster.reconcile("squatter")
    cluster.reconcile("operators")
    assert writable(cluster) == {("ome", "/raid/models/chat/x")}


@pytest.mark.parametrize(("first", "second"), [("x", "x/y"), ("x/y", "x")])
@pytest.mark.parametrize("kind", [BASE, "ClusterBaseModel"])
def test_no_model_has_a_folder_inside_anothers_whichever_is_older(first: str, second: str, kind: str) -> None:
    cluster = Cluster("a")
    cluster.create("first", URI, kind, path=f"/raid/models/chat/{first}")
    cluster.settle()
    cluster.create("second", THEIRS, kind, path=f"/raid/models/chat/{second}")
    cluster.settle()
    assert cluster.disks["a"] == {f"/raid/models/chat/{first}": URI}
    assert cluster.reason("second", "Accepted") == "PathTaken"
    cluster.delete("second")
    cluster.settle()
    assert cluster.disks["a"] == {f"/raid/models/chat/{first}": URI}


def test_an_older_model_that_moves_takes_no_folder_that_is_filled() -> None:
    cluster = Cluster("a")
    cluster.create("older", THEIRS)
    cluster.create("younger", URI, path="/raid/models/x/y")
    cluster.settle()
    cluster.change("older", path="/raid/models/x")
    cluster.settle()
    assert cluster.disks["a"]["/raid/models/x/y"] == URI
    assert cluster.status("younger")["state"] == "Ready"
    assert cluster.reason("older", "Accepted") == "PathTaken"


def test_a_model_that_waits_for_a_folder_gets_it_when_the_other_one_is_gone() -> None:
    cluster = Cluster("a")
    cluster.create("operators", URI, path="/raid/models/chat/x")
    cluster.create("mine", THEIRS, BASE, path="/raid/models/chat/x")
    cluster.settle()
    cluster.delete("operators")
    cluster.reconcile("operators")
    cluster.reconcile("mine")
    assert [words.split()[1] for words in words_of(cluster)] == ["evict"]
    cluster.settle()
    assert cluster.disks["a"] == {"/raid/models/chat/x": THEIRS}


# What earlier versions loaded


def identity_of(cluster: Cluster, name: str, path: str) -> str:
    """The digest that a record has of what the model asks for, at this path."""
    return ome_storage.parse_storage(cluster.models[name], cluster.settings, (path,)).identity


@pytest.mark.parametrize(("path", "given"), [("/raid/models/mine", "/raid/models/mine"), (DEFAULT, None)])
def test_a_model_keeps_the_folder_that_an_earlier_version_gave_it(path: str, given: str | None) -> None:
    cluster = Cluster("a")
    cluster.create("mine", URI, BASE, path=given)
    loaded_before(cluster, "mine", path, identity_of(cluster, "mine", path))
    cluster.reconcile("mine")
    assert (cluster.jobs, cluster.status("mine")["state"]) == ({}, "Ready")
    assert label_of(cluster, "mine") == "Ready"
    cluster.restart("a")
    cluster.reconcile("mine")
    assert writable(cluster) == {("chat", path)}
    assert "--seal=5@" in words_of(cluster)[0]
    cluster.settle()
    cluster.delete("mine")
    cluster.settle()
    assert (cluster.models, cluster.disks["a"]) == ({}, {})


def test_no_model_keeps_a_folder_around_that_of_a_model_that_goes_first() -> None:
    cluster = Cluster("a")
    cluster.create("squatter", THEIRS, BASE, path="/raid/models/other")
    loaded_before(cluster, "squatter", "/raid/models/other", identity_of(cluster, "squatter", "/raid/models/other"))
    cluster.create("theirs", URI, BASE, namespace="other")
    cluster.settle()
    assert cluster.reason("squatter", "Accepted") == "PathNotAllowed"
    assert label_of(cluster, "squatter") is None
    assert cluster.disks["a"]["/raid/models/other/theirs"] == URI
    cluster.delete("squatter")
    cluster.settle()
    assert cluster.disks["a"]["/raid/models/other/theirs"] == URI


def test_no_model_keeps_the_folder_of_all_models_that_name_none() -> None:
    cluster = Cluster("a")
    cluster.create("reader", THEIRS, BASE, path="/raid/models/hf")
    loaded_before(cluster, "reader", "/raid/models/hf", identity_of(cluster, "reader", "/raid/models/hf"))
    assert cluster.reason("reader", "Accepted") == "PathNotAllowed"


def test_a_load_of_an_earlier_version_into_a_foreign_folder_ends() -> None:
    cluster = Cluster("a")
    cluster.create("mine", THEIRS, BASE)
    cluster.reconcile("mine")
    cluster.change("mine", path="/raid/models/hf")
    loaded_before(cluster, "mine", "/raid/models/hf", identity_of(cluster, "mine", "/raid/models/hf"), state="Updating")
    cluster.reconcile("mine")
    assert (cluster.jobs, label_of(cluster, "mine")) == ({}, None)
    cluster.reconcile("mine")
    assert cluster.nodes["a"]["metadata"]["annotations"] == {}
    assert cluster.reason("mine", "Accepted") == "PathNotAllowed"
    assert cluster.disks["a"]


def test_a_model_that_moves_to_a_folder_that_it_may_not_have_keeps_its_files() -> None:
    cluster = Cluster("a")
    cluster.create("mine", URI, BASE)
    cluster.settle()
    cluster.change("mine", path="/raid/models/hf")
    cluster.settle()
    assert cluster.reason("mine", "Accepted") == "PathNotAllowed"
    cluster.change("mine", path="/raid/models/chat/mine")
    cluster.reconcile("mine")
    assert (cluster.jobs, cluster.status("mine")["state"]) == ({}, "Ready")


def test_a_model_that_moved_leaves_the_files_of_the_one_that_has_its_former_folder() -> None:
    cluster = Cluster("a")
    cluster.create("operators", URI, path="/raid/models/chat/x")
    cluster.settle()
    cluster.create("mine", THEIRS, BASE, path="/raid/models/chat/x")
    cluster.change("operators", path="/raid/models/new")
    cluster.settle()
    assert cluster.disks["a"] == {"/raid/models/chat/x": THEIRS, "/raid/models/new": URI}


def test_the_word_of_a_node_counts_for_the_model_that_it_names_alone() -> None:
    cluster = Cluster("a")
    cluster.create("mine", URI, BASE, path="/raid/models/mine")
    path = "/raid/models/mine"
    loaded_before(cluster, "mine", path, identity_of(cluster, "mine", path), of="another-uid")
    cluster.reconcile("mine")
    assert cluster.reason("mine", "Accepted") == "PathNotAllowed"


def test_an_unrecorded_forbidden_folder_blocks_no_other_model() -> None:
    cluster = Cluster("a")
    cluster.create("stranger", THEIRS, BASE, path="/raid/models/mine")
    cluster.create("mine", URI, BASE, namespace="other", path="/raid/models/mine")
    path = "/raid/models/mine"
    loaded_before(cluster, "mine", path, identity_of(cluster, "mine", path))
    cluster.settle()
    assert cluster.status("mine")["state"] == "Ready"


def strangers(cluster: Cluster, number: int) -> None:
    """Models whose authors name the folders of others, and are refused."""
    for one in range(number):
        cluster.create(f"stranger-{one}", THEIRS, BASE, namespace="stranger", path="/raid/models/chat/mine")
        cluster.reconcile(f"stranger-{one}")


def test_refused_models_cost_nothing_at_a_look_at_others(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster("a")
    cluster.create("mine", URI, BASE)
    reads: list[str] = []
    read = ome_storage.parse_storage

    def count(model: Any, *rest: Any) -> ome_storage.Stored:
        reads.append(model["metadata"]["name"])
        return read(model, *rest)

    strangers(cluster, 20)
    world = cluster.world("mine")
    monkeypatch.setattr(ome_storage, "parse_storage", count)
    folders.resolve_storage(world, world.resource)
    assert set(reads) == {"mine"}


@pytest.mark.parametrize(
    ("model", "remaining", "expected"),
    [
        ("stranger-0", False, set()),
        ("stranger-0", True, {"former"}),
        ("former", False, {"mine"}),
        ("operators", False, {"mine", "former"}),
    ],
)
def test_a_refused_model_leads_to_no_look_at_others(model: str, remaining: bool, expected: set[str]) -> None:
    cluster = Cluster("a")
    cluster.create("mine", URI, BASE)
    cluster.create("former", URI, BASE, namespace="other", path="/raid/models/chat")
    loaded_before(cluster, "former", "/raid/models/chat", "x")
    cluster.create("operators", URI, path="/raid/models/chat")
    strangers(cluster, 1)
    kind = cluster.models[model]["kind"]
    watch = next(one for one in APIS[BASE].watches(cluster.settings) if one.kind.kind == kind)
    there = cluster.models[model]
    change = Change(there, None) if remaining else Change(None, there)
    woken = {place.name for place in watch.enqueue(change, cluster.world("mine").listers)}
    assert woken - {"stranger-0"} == expected


# Arguments of the loader


def test_the_folder_is_sealed_by_the_record_of_the_node() -> None:
    cluster = Cluster("a")
    cluster.seal = "ab" * 32
    cluster.create("tiny", URI)
    cluster.settle()
    cluster.restart("a")
    cluster.reconcile("tiny")
    assert f"--seal={cluster.seal}" in words_of(cluster)[0]
    first = words_of(cluster)
    cluster.reconcile("tiny")
    assert words_of(cluster) == first
    cluster.settle()
    cluster.change("tiny", path="/raid/models/new")
    cluster.reconcile("tiny")
    assert "--seal" not in " ".join(words_of(cluster))


def test_a_load_runs_as_a_user_without_rights_in_a_folder_that_is_given_to_him_before() -> None:
    cluster = Cluster("a")
    cluster.create("tiny", URI)
    cluster.reconcile("tiny")
    ((_place, job),) = cluster.jobs.items()
    pod = job["spec"]["template"]["spec"]
    assert pod["securityContext"]["runAsUser"] == 65532
    assert pod["securityContext"]["runAsNonRoot"] is True
    (owner,) = pod["initContainers"]
    assert owner["args"] == ["loader", "own", "/raid/models/tiny", "--user=65532", "--namespace=", "--known"]
    assert owner["securityContext"]["capabilities"] == {"drop": ["ALL"], "add": ["CHOWN", "DAC_OVERRIDE"]}
    assert "env" not in owner
    assert [one["mountPath"] for one in owner["volumeMounts"]] == ["/raid/models/tiny"]
    assert [one["name"] for one in pod["volumes"]] == ["models"]


def test_the_operator_may_have_root_load() -> None:
    cluster = Cluster("a", settings=Settings(apis={"ome": {"runAsUser": 0}}))
    cluster.create("tiny", URI)
    cluster.reconcile("tiny")
    ((_place, job),) = cluster.jobs.items()
    pod = job["spec"]["template"]["spec"]
    (owner,) = pod["initContainers"]
    assert pod["securityContext"]["runAsUser"] == 0
    assert owner["args"] == ["loader", "own", "/raid/models/tiny", "--namespace=", "--known"]


def owners(cluster: Cluster) -> dict[str, list[str]]:
    """Returns node -> arguments, after the folder, of the container that prepares the folder for a load."""
    jobs = [cluster.jobs[place] for place in cluster.working()]
    return {node_of(job): job["spec"]["template"]["spec"]["initContainers"][0]["args"][3:] for job in jobs}


def test_a_folder_that_is_new_to_a_namespace_is_replaced_by_a_container_that_alone_mounts_the_one_above() -> None:
    cluster = Cluster("a")
    cluster.create("tiny", URI, BASE, path="/raid/models/chat/x")
    cluster.reconcile("tiny")
    ((_place, job),) = cluster.jobs.items()
    pod = job["spec"]["template"]["spec"]
    (owner,), (loader,) = pod["initContainers"], pod["containers"]
    assert owner["args"] == ["loader", "own", "/raid/models/chat/x", "--user=65532", "--namespace=chat"]
    assert [one["mountPath"] for one in owner["volumeMounts"]] == ["/raid/models/chat"]
    assert [one["mountPath"] for one in loader["volumeMounts"]] == ["/raid/models/chat/x"]


def test_a_folder_that_a_node_records_for_the_namespace_stays() -> None:
    """Its pods have it mounted. Earlier versions left no mark in it."""
    cluster = Cluster("a", "b")
    cluster.create("tiny", URI, BASE, path="/raid/models/chat/x")
    cluster.settle()
    cluster.restart("a")
    cluster.reconcile("tiny")
    assert owners(cluster) == {"a": ["--user=65532", "--namespace=chat", "--known"]}
    cluster.settle()
    cluster.create("same", URI, BASE, path="/raid/models/chat/x")
    cluster.reconcile("same")
    arguments = ["--user=65532", "--namespace=chat", "--known"]
    assert owners(cluster) == {"a": arguments, "b": arguments}


def test_a_load_that_has_begun_goes_on_when_the_other_model_with_the_folder_goes() -> None:
    cluster = Cluster("a")
    cluster.create("tiny", URI, BASE, path="/raid/models/chat/x")
    cluster.settle()
    cluster.create("same", URI, BASE, path="/raid/models/chat/x")
    cluster.reconcile("same")
    (before,) = cluster.plan("same").children
    cluster.delete("tiny")
    for _look in range(2):
        cluster.reconcile("tiny")
    assert list(cluster.models) == ["same"]
    assert cluster.plan("same").children == (before,)


def test_a_model_that_moves_while_it_is_loaded_again_knows_nothing_of_the_next_folder() -> None:
    cluster = Cluster("a")
    cluster.create("tiny", URI, BASE, path="/raid/models/chat/x")
    cluster.settle()
    cluster.restart("a")
    cluster.reconcile("tiny")
    cluster.change("tiny", path="/raid/models/chat/y")
    cluster.reconcile("tiny")
    assert owners(cluster) == {"a": ["--user=65532", "--namespace=chat"]}


def test_no_model_has_a_folder_with_a_name_that_the_loader_needs() -> None:
    cluster = Cluster("a")
    cluster.create("tiny", URI, BASE, path="/raid/models/chat/.slipway-x.new")
    cluster.reconcile_all()
    assert cluster.jobs == {}
    assert cluster.reason("tiny") == "PathNotAllowed"


def test_an_eviction_has_the_folder_alone() -> None:
    cluster = Cluster("a")
    cluster.create("mine", URI, BASE)
    cluster.settle()
    cluster.delete("mine")
    cluster.reconcile("mine")
    assert words_of(cluster) == ["loader evict /raid/models/chat/mine --below=/raid/models"]
    assert writable(cluster) == {("chat", "/raid/models/chat/mine")}


# Services


@pytest.mark.parametrize(
    "storage",
    [
        {"storageUri": "local:///raid/models/hf"},
        {"storageUri": "vendor://acme/x", "path": "/raid/models/tiny"},
        {"storageUri": "hf://acme/x", "path": "/raid/models/other/x"},
    ],
)
def test_a_service_mounts_no_folder_that_its_model_may_not_have(storage: dict[str, str]) -> None:
    own = services.model(name="own", namespace="models", storage=storage)
    world = services.world(services.service(model={"name": "own"}), services.model(), own, services.runtime())
    with pytest.raises(InvalidSpecError) as refused:
        worlds.plan(services.SERVICES, world)
    assert refused.value.reason == "PathNotAllowed"


def test_a_service_mounts_no_folder_of_a_model_of_the_cluster_by_a_model_of_its_namespace() -> None:
    path = "/raid/models/models/x"
    operators = services.model(storage={"storageUri": "hf://acme/x", "path": path})
    own = services.model(name="own", namespace="models", storage={"storageUri": "vendor://acme/x", "path": path})
    world = services.world(services.service(model={"name": "own"}), operators, own, services.runtime())
    with pytest.raises(InvalidSpecError) as refused:
        worlds.plan(services.SERVICES, world)
    assert refused.value.reason == "PathTaken"
