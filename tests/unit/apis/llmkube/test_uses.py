"""Who uses a Model decides where its weights go, how long they stay, and when pods are replaced."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest

from slipway.apis.llmkube import MODELS, SERVICES, names
from slipway.apis.llmkube.models import usage
from slipway.apis.llmkube.types.service import KIND as INFERENCE_SERVICE
from slipway.kube.caches.store import Change
from slipway.kube.schemas.conditions import timestamp
from slipway.serving.contract.api import USES
from slipway.serving.contract.settings import Settings
from tests import worlds
from tests.tables import seeds

from .services import GGUF, READY, VLLM, model, plan, pod, world
from .test_model_lifecycles import SOURCES, Cluster, complete

KEY = names.cache_key(SOURCES[0])


def service(name: str, *, served: str = "tiny", generation: int = 1, **spec: Any) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "models", "uid": f"s-{name}", "generation": generation}
    return {"kind": "InferenceService", "metadata": metadata, "spec": {"modelRef": served} | spec}


def reader(expected: str, name: str = "chat", **metadata: Any) -> dict[str, Any]:
    base_metadata = {"name": f"{name}-x", "namespace": "models", "labels": {names.SERVICE_LABEL: name}}
    return {
        "kind": "Pod",
        "metadata": base_metadata | {"annotations": {USES: expected}} | metadata,
        "status": {"phase": "Running"},
    }


EPHEMERAL = {"modelCache": {"persistence": "Ephemeral"}}
OWN = {"modelCache": {"claimName": "mine"}}
IN_THE_IMAGE = {"skipModelInit": True}


def reason(cluster: Cluster, name: str = "tiny") -> str:
    return str(worlds.status(MODELS, cluster.world(name), None).status["conditions"][0]["reason"])


@pytest.mark.parametrize("spec", [EPHEMERAL, OWN, IN_THE_IMAGE])
def test_nothing_is_loaded_into_the_cache_that_no_service_reads_there(spec: dict[str, Any]) -> None:
    cluster = Cluster()
    cluster.users = [service("chat", **spec)]
    cluster.create("tiny", SOURCES[0])
    cluster.settle()
    assert (cluster.claim, cluster.downloads) == (None, [])
    assert (cluster.phase("tiny"), reason(cluster)) == ("Ready", "WorkloadResolved")


def test_a_service_that_comes_right_after_its_model_is_waited_for() -> None:
    cluster = Cluster()
    cluster.create("tiny", SOURCES[0])
    cluster.reconcile("tiny")
    verdict = worlds.status(MODELS, cluster.world("tiny"), None)
    assert (verdict.status["phase"], verdict.recheck_seconds) == ("Pending", usage.SETTLING_SECONDS)
    cluster.users = [service("chat", **EPHEMERAL)]
    cluster.settle()
    assert (cluster.claim, cluster.downloads) == (None, [])


@pytest.mark.parametrize("others", [[], [service("chat")], [service("code", **EPHEMERAL), service("chat")]])
def test_weights_are_loaded_for_any_service_that_reads_the_cache_and_before_there_is_one(others: list[Any]) -> None:
    cluster = Cluster()
    cluster.users = others
    cluster.create("tiny", SOURCES[0])
    cluster.settle()
    assert (cluster.downloads, reason(cluster)) == ([SOURCES[0]], "ModelReady")


def test_a_prefetched_model_is_loaded_even_if_its_services_load_it_themselves() -> None:
    cluster = Cluster()
    cluster.users = [service("chat", **EPHEMERAL)]
    cluster.create("tiny", SOURCES[0], prefetch=True)
    cluster.settle()
    assert cluster.downloads == [SOURCES[0]]


def test_a_model_whose_only_service_went_stays_as_it_is() -> None:
    cluster = Cluster()
    cluster.create("tiny", SOURCES[0])
    cluster.users = [service("chat", **EPHEMERAL)]
    cluster.settle()
    cluster.models["tiny"]["status"] = worlds.status(MODELS, cluster.world("tiny"), None).status
    cluster.users = []
    cluster.settle()
    assert (cluster.downloads, reason(cluster)) == ([], "WorkloadResolved")


def test_a_service_that_wants_the_cache_now_waits_until_the_weights_are_there() -> None:
    by_each_pod = {"type": "Available", "status": "True", "reason": "WorkloadResolved", "message": ""}
    elsewhere = model("tiny", GGUF, READY | {"conditions": [by_each_pod]})
    assert [manifest["kind"] for manifest in plan(world(elsewhere)).children] == ["Service"]
    condition = worlds.status(SERVICES, world(elsewhere), None).status["conditions"][1]
    assert (condition["reason"], condition["message"]) == (
        "ModelNotReady",
        "The weights of the Model tiny are not in the cache yet.",
    )
    assert "Deployment" in [manifest["kind"] for manifest in plan(world(elsewhere, **EPHEMERAL)).children]


def test_weights_leave_the_cache_when_the_last_pod_that_reads_them_is_gone() -> None:
    cluster = Cluster()
    cluster.create("tiny", SOURCES[0])
    cluster.users = [service("chat"), reader(f"{KEY}=1")]
    cluster.settle()
    cluster.users = [service("chat", **EPHEMERAL), reader(f"{KEY}=1")]
    cluster.settle()
    assert (cluster.disk, reason(cluster)) == ({KEY}, "WorkloadResolved")
    assert worlds.status(MODELS, cluster.world("tiny"), None).recheck_seconds is not None
    cluster.users = [service("chat", **EPHEMERAL)]
    cluster.settle()
    assert (cluster.disk, complete(cluster)) == (set(), set())


def test_a_model_that_is_deleted_goes_when_its_weights_are_read_no_longer() -> None:
    cluster = Cluster()
    cluster.create("tiny", SOURCES[0])
    cluster.users = [service("chat"), reader(f"{KEY}=1")]
    cluster.settle()
    cluster.delete("tiny")
    cluster.now += 4000
    cluster.settle()
    assert (cluster.disk, reason(cluster)) == ({KEY}, "InUse")
    cluster.users = [reader(f"{KEY}=1")]
    cluster.settle()
    assert reason(cluster) == "InUse"
    cluster.users = []
    cluster.settle()
    assert (cluster.models, cluster.disk) == ({}, set())


def test_weights_that_never_came_hold_up_no_deletion() -> None:
    cluster = Cluster()
    cluster.create("tiny", SOURCES[0])
    cluster.users = [service("chat")]
    cluster.now += 10
    cluster.reconcile("tiny")
    cluster.run(cluster.working()[0], fails=True)
    cluster.delete("tiny")
    cluster.settle()
    assert cluster.models == {}


def test_a_model_of_a_source_that_others_have_too_goes_at_once() -> None:
    cluster = Cluster()
    for name in ("tiny", "other"):
        cluster.create(name, SOURCES[0])
    cluster.users = [service("chat"), reader(f"{KEY}=1")]
    cluster.settle()
    cluster.delete("tiny")
    cluster.settle()
    assert (list(cluster.models), cluster.disk) == (["other"], {KEY})


def test_pods_of_a_node_that_is_lost_hold_up_nothing() -> None:
    cluster = Cluster()
    cluster.create("tiny", SOURCES[0])
    cluster.settle()
    cluster.users = [reader(f"{KEY}=1", deletionTimestamp=timestamp(cluster.now - 1000))]
    cluster.delete("tiny")
    cluster.settle()
    assert cluster.models == {}


def test_a_service_tells_its_models_when_its_spec_changes_and_not_when_its_status_does() -> None:
    before, after = service("chat", served="a"), service("chat", served="b", generation=2)
    assert concerned(before, after) == {"a", "b"}
    assert concerned(before, before | {"status": {"phase": "Ready"}}) == set()
    assert concerned(None, after) == {"b"}
    going = msgspec.json.decode(msgspec.json.encode(before))
    going["metadata"]["deletionTimestamp"] = "2026-11-21T09:00:00Z"
    assert concerned(before, going) == {"a"}


def concerned(old: dict[str, Any] | None, new: dict[str, Any] | None) -> set[str]:
    (watch,) = (watch for watch in MODELS.watches(Settings()) if watch.kind == INFERENCE_SERVICE)
    return {key.name for key in watch.enqueue(Change(old, new), worlds.known_world(MODELS))}


def uses_of_pods(status: dict[str, Any], **spec: Any) -> str:
    template = pod(world(model("tiny", GGUF | spec.pop("files", {}), READY | status), **spec))
    return str(template["metadata"]["annotations"].get(USES, ""))


def test_pods_are_replaced_when_newer_weights_are_there_and_only_then() -> None:
    """No pod reads a folder that was loaded again before the pods restart."""
    first = uses_of_pods({"sha256": "aa", "sourceETag": "1", "sourceContentLength": 5})
    assert uses_of_pods({"sha256": "aa", "sourceETag": "2", "sourceContentLength": 5}) == first
    assert uses_of_pods({"sha256": "bb", "sourceETag": "2", "sourceContentLength": 5}) != first
    unhashed = uses_of_pods({"sourceETag": "1", "sourceContentLength": 5})
    assert uses_of_pods({"sourceETag": "2", "sourceContentLength": 5}) != unhashed


def test_of_a_set_of_files_the_others_count_as_well() -> None:
    parts = {"source": "hf://acme/tiny", "files": ["a.gguf", "b.gguf"]}
    first = uses_of_pods({"sha256": "aa", "sourceETag": "1"}, files=parts)
    assert uses_of_pods({"sha256": "aa", "sourceETag": "2"}, files=parts) != first


def test_pods_name_the_folders_of_their_model_and_of_its_draft() -> None:
    draft = model("draft", {"source": "https://models.example/draft.gguf"})
    target = model("tiny", {"source": "hf://acme/tiny", "files": ["a.safetensors"], "format": "safetensors"})
    spec = VLLM | {"vllmConfig": {"speculative": {"enabled": True, "model": "draft"}}}
    spec.pop("model")
    annotation = pod(world(draft, target, **spec))["metadata"]["annotations"][USES]
    assert len(annotation.split()) == 2
    assert names.cache_key("https://models.example/draft.gguf") in usage.cache_keys_of(reader(annotation))


@pytest.mark.parametrize("spec", [EPHEMERAL, OWN, IN_THE_IMAGE])
def test_pods_that_bring_their_weights_themselves_read_nothing_of_the_cache(spec: dict[str, Any]) -> None:
    assert USES not in pod(world(model("tiny", GGUF), **spec))["metadata"]["annotations"]


def test_a_user_cannot_say_for_a_pod_what_it_reads() -> None:
    template = pod(world(podAnnotations={USES: "junk"}))
    assert template["metadata"]["annotations"][USES] != "junk"


@pytest.mark.parametrize("seed", seeds(8))
def test_in_any_order_what_pods_read_stays_and_in_the_end_all_is_gone(seed: int) -> None:
    cluster, dice = Cluster(), random.Random(seed)
    for _step in range(250):
        act, name = dice.random(), dice.choice("ab")
        if act < 0.05:
            chosen: list[Any] = [service("chat", served=name, **dice.choice((EPHEMERAL, {}, {}, {"replicas": 0})))]
            cluster.users = [user for user in cluster.users if user["kind"] == "Pod"] + chosen * dice.randrange(2)
        elif act < 0.1:
            cluster.users = [user for user in cluster.users if user["kind"] != "Pod"]
            if complete(cluster) and dice.random() < 0.8:
                cluster.users.append(reader(f"{dice.choice(sorted(complete(cluster)))}=1"))
        elif name not in cluster.models:
            cluster.create(name, dice.choice(SOURCES[:2]))
        elif act < 0.14:
            cluster.delete(name)
        elif act < 0.2:
            cluster.models[name]["spec"]["source"] = dice.choice(SOURCES[:2])
        elif act < 0.35 and cluster.working():
            cluster.run(dice.choice(cluster.working()), fails=dice.random() < 0.2)
        else:
            cluster.reconcile(name)
        cluster.now += dice.choice((1, 1, 1, 400))
        assert complete(cluster) <= cluster.disk
        assert {
            key for user in cluster.users if user["kind"] == "Pod" for key in usage.cache_keys_of(user)
        } <= cluster.disk
    cluster.users = []
    cluster.now += 4000
    cluster.settle()
    for name in list(cluster.models):
        cluster.delete(name)
    cluster.settle()
    assert cluster.models == {}
