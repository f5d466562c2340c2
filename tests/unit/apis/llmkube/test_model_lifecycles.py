"""Models are created, changed and deleted in any order on a simulated cluster: if one is Ready, its weights exist."""

from __future__ import annotations

import random
from typing import Any

import pytest

from slipway.apis.llmkube import MODELS
from slipway.apis.llmkube.models import cache
from slipway.artifacts.documents.report import Report, encode_report
from slipway.kube.objects import JOB, PERSISTENT_VOLUME_CLAIM, deleting
from slipway.kube.schemas.conditions import timestamp
from slipway.serving.contract.api import InvalidSpecError, Plan, World
from slipway.serving.contract.settings import Settings
from tests import worlds
from tests.tables import seeds
from tests.worlds import at

SOURCES = ("https://files.example/a.gguf", "https://files.example/b.gguf", "pvc://other/c.gguf", "acme/whole")
START = 1_800_000_000.0


class Cluster:
    """Models, one namespace's claim, Jobs with one pod each, and the folders that those make and remove."""

    def __init__(self) -> None:
        self.models: dict[str, dict[str, Any]] = {}
        self.jobs: dict[tuple[str, str], dict[str, Any]] = {}
        self.pods: dict[str, dict[str, Any]] = {}
        self.claim: dict[str, Any] | None = None
        self.disk: set[str] = set()
        self.sha256 = ""
        """Of what sources have."""
        self.users: list[dict[str, Any]] = []
        """Services, and pods that read the cache."""
        self.downloads: list[str] = []
        self.now, self._made = START, 0

    def create(self, name: str, source: str, **spec: Any) -> None:
        metadata = {"name": name, "namespace": "models", "uid": self._uid(), "generation": 1, "finalizers": []}
        stamp = {"creationTimestamp": timestamp(self.now)}
        self.models[name] = {"metadata": metadata | stamp, "spec": {"source": source} | spec}

    def delete(self, name: str) -> None:
        model = self.models[name]
        model["metadata"].setdefault("deletionTimestamp", timestamp(self.now))
        self._collect(name)

    def world(self, name: str) -> World:
        model = self.models[name]
        claim = cache.claim_reference("models")
        others = [*self.models.values(), *self.users]
        children = {
            at(JOB, job): manifest for (owner, job), manifest in self.jobs.items() if owner == model["metadata"]["uid"]
        }
        return World(
            resource=model,
            children=children,
            pods=[self.pods[manifest["metadata"]["uid"]] for manifest in children.values()],
            routed=[],
            settings=Settings(),
            now=self.now,
            listers=worlds.known_world(MODELS, objects={claim: self.claim} if self.claim else {}, others=others),
        )

    def reconcile(self, name: str) -> None:
        model, world = self.models[name], self.world(name)
        if not deleting(model):
            try:
                plan = worlds.plan(MODELS, world)
            except InvalidSpecError:
                return
            if plan.finalizer and plan.finalizer not in model["metadata"]["finalizers"]:
                model["metadata"]["finalizers"].append(plan.finalizer)
            self._apply(model, plan)
            return
        final_plan = worlds.finalize(MODELS, world)
        if final_plan is not None:
            self._apply(model, final_plan)
        else:
            model["metadata"]["finalizers"] = []
            self._collect(name)

    def run(self, place: tuple[str, str], *, fails: bool = False) -> None:
        """A Job comes to its end."""
        job = self.jobs[place]
        words = job["spec"]["template"]["spec"]["containers"][0]["args"]
        over = {"type": "Failed" if fails else "Complete", "status": "True", "lastTransitionTime": timestamp(self.now)}
        job["status"] = {"conditions": [over]}
        message = "no answer in time"
        if not fails:
            message = self._does(words)
        ended = {"exitCode": int(fails), "message": message}
        container = {"name": "loader", "state": {"terminated": ended}}
        status = {"phase": "Failed" if fails else "Succeeded", "containerStatuses": [container]}
        self.pods[job["metadata"]["uid"]]["status"] = status

    def _does(self, words: list[str]) -> str:
        if words[1] == "evict":
            self.disk.discard(words[2].rpartition("/")[2])
            return ""
        if words[1] == "stage":
            self.disk.add(words[3].rpartition("/")[2])
            self.downloads.append(words[2])
        return encode_report(Report(file="a.gguf", size=5, etag="1", sha256=self.sha256)).decode()

    def working(self) -> list[tuple[str, str]]:
        return [place for place, job in self.jobs.items() if "status" not in job]

    def phase(self, name: str) -> str:
        return str(worlds.status(MODELS, self.world(name), None).status["phase"])

    def settle(self) -> None:
        for _unused in range(40):
            for name in list(self.models):
                if name in self.models:
                    self.reconcile(name)
            for place in self.working():
                self.run(place)
            self.now += 1

    def _apply(self, model: dict[str, Any], plan: Plan) -> None:
        owner = model["metadata"]["uid"]
        annotate(model, plan.self_patch.get("metadata", {}).get("annotations", {}))
        for shared in plan.shared:
            metadata = shared["metadata"] | {"uid": "uid-of-claim"}
            self.claim = self.claim or shared | {"metadata": metadata, "status": {"phase": "Bound"}}
        children = {child["metadata"]["name"]: child for child in plan.children}
        for place, job in list(self.jobs.items()):
            words = job["spec"]["template"]["spec"]["containers"][0]["args"]
            fresh = children.get(place[1], {}) if place[0] == owner else job
            if not fresh or fresh["spec"]["template"]["spec"]["containers"][0]["args"] != words:
                self._remove(place)
        for name, child in children.items():
            if (owner, name) not in self.jobs:
                self._start(owner, name, child)
        for note in plan.metadata_patches:
            on_claim = note.reference.kind == PERSISTENT_VOLUME_CLAIM
            noted = self.claim if on_claim else self.models.get(note.reference.name)
            if noted:
                annotate(noted, note.annotations)

    def _start(self, owner: str, name: str, child: dict[str, Any]) -> None:
        uid, stamp = self._uid(), timestamp(self.now)
        self.jobs[owner, name] = child | {"metadata": child["metadata"] | {"uid": uid, "creationTimestamp": stamp}}
        reference = {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": uid, "controller": True}
        metadata = {"name": name, "uid": f"pod-{uid}", "creationTimestamp": stamp, "ownerReferences": [reference]}
        self.pods[uid] = {"metadata": metadata, "status": {"phase": "Running"}}

    def _collect(self, name: str) -> None:
        """What Kubernetes does with a Model that is deleted and has no finalizer."""
        metadata = self.models[name]["metadata"]
        if "deletionTimestamp" in metadata and not metadata["finalizers"]:
            del self.models[name]
            for place in [place for place in self.jobs if place[0] == metadata["uid"]]:
                self._remove(place)

    def _remove(self, place: tuple[str, str]) -> None:
        self.pods.pop(self.jobs.pop(place)["metadata"]["uid"])

    def _uid(self) -> str:
        self._made += 1
        return f"uid-{self._made}"


def annotate(obj: dict[str, Any], expected: dict[str, Any]) -> None:
    kept = obj["metadata"].get("annotations", {}) | expected
    obj["metadata"]["annotations"] = {name: text for name, text in kept.items() if text is not None}


def inventory(cluster: Cluster) -> dict[str, cache.Record]:
    """What Models say of the folders, and the claim of those of which none says anything."""
    carriers = [cluster.claim, *cluster.models.values()]
    return {key: record for carrier in carriers for key, record in cache.read_records(carrier).items()}


def complete(cluster: Cluster) -> set[str]:
    return {key for key, record in inventory(cluster).items() if record.complete}


def test_two_models_of_one_source_share_one_folder_which_goes_with_the_last() -> None:
    cluster = Cluster()
    cluster.create("first", SOURCES[0])
    cluster.settle()
    cluster.create("second", SOURCES[0])
    cluster.settle()
    assert [cluster.phase(name) for name in ("first", "second")] == ["Ready", "Ready"]
    assert (cluster.downloads, len(cluster.disk)) == ([SOURCES[0]], 1)
    cluster.delete("first")
    cluster.settle()
    assert list(cluster.models) == ["second"]
    assert cluster.phase("second") == "Ready"
    assert len(cluster.disk) == 1
    cluster.delete("second")
    cluster.settle()
    assert not cluster.models
    assert not cluster.disk
    assert inventory(cluster) == {}


def test_models_deleted_leave_no_folders_behind() -> None:
    """The original's do, for a person to find."""
    cluster = Cluster()
    for number, source in enumerate(SOURCES):
        cluster.create(f"model-{number}", source)
    cluster.settle()
    assert len(cluster.disk) == 2
    for name in list(cluster.models):
        cluster.delete(name)
    cluster.settle()
    assert (cluster.models, cluster.disk) == ({}, set())


def test_an_unused_source_is_removed_from_the_cache() -> None:
    cluster = Cluster()
    cluster.create("oldest", SOURCES[2])
    cluster.create("changing", SOURCES[0])
    cluster.settle()
    before = set(cluster.disk)
    cluster.models["changing"]["spec"]["source"] = SOURCES[1]
    cluster.settle()
    assert cluster.phase("changing") == "Ready"
    assert len(cluster.disk) == 1
    assert cluster.disk != before


def test_an_invalid_model_does_not_stop_others_from_emptying_the_cache() -> None:
    cluster = Cluster()
    cluster.create("oldest", "datasets/no-model")
    cluster.create("changing", SOURCES[0])
    cluster.settle()
    cluster.models["changing"]["spec"]["source"] = SOURCES[1]
    cluster.settle()
    assert cluster.phase("changing") == "Ready"
    assert len(cluster.disk) == 1


def test_a_model_of_a_mac_does_not_stop_checks_of_a_shared_source() -> None:
    cluster = Cluster()
    cluster.create("on-a-mac", SOURCES[0], hardware={"accelerator": "metal"})
    cluster.create("here", SOURCES[0])
    cluster.settle()
    cluster.now += 3600
    cluster.settle()
    assert conditions(cluster, "here")["SourceDrifted"] == "False"
    assert worlds.status(MODELS, cluster.world("here"), None).recheck_seconds > 3000  # type: ignore[operator]


def test_a_model_that_expects_another_hash_does_not_stop_checks_of_the_source() -> None:
    cluster = Cluster()
    cluster.create("strict", SOURCES[0], sha256="ab" * 32)
    cluster.create("content", SOURCES[0])
    cluster.settle()
    cluster.now += 3600
    cluster.settle()
    assert cluster.phase("content") == "Ready"
    assert conditions(cluster, "content")["SourceDrifted"] == "False"


def test_a_model_of_another_format_finds_the_file_under_the_name_that_the_first_one_gave_it() -> None:
    cluster = Cluster()
    cluster.create("first", "https://files.example/a")
    cluster.create("second", "https://files.example/a", format="custom")
    cluster.settle()
    paths = {worlds.status(MODELS, cluster.world(name), None).status["path"] for name in cluster.models}
    assert [path.rpartition("/")[2] for path in paths] == ["a.gguf"]


def test_a_claim_of_a_user_makes_no_cache() -> None:
    """Of the original, a Model on a claim had a cache's claim as well, which nothing used."""
    cluster = Cluster()
    cluster.create("mine", SOURCES[2])
    cluster.create("whole", SOURCES[3])
    cluster.settle()
    assert cluster.claim is None


def test_a_source_that_changes_is_loaded_again_if_that_is_wanted() -> None:
    cluster = Cluster()
    cluster.create("kept", SOURCES[0])
    cluster.create("followed", SOURCES[1], refreshPolicy="OnChange")
    cluster.settle()
    assert sorted(cluster.downloads) == sorted(SOURCES[:2])
    for model in cluster.models.values():
        records = model["metadata"]["annotations"]
        annotate(model, {name: text.replace('"etag":"1"', '"etag":"0"') for name, text in records.items()})
    cluster.now += 3600
    cluster.settle()
    assert cluster.downloads[2:] == [SOURCES[1]]
    drifted = {name: conditions(cluster, name).get("SourceDrifted") for name in cluster.models}
    assert drifted["kept"] == "True"
    assert drifted["followed"] in (None, "False")


def test_a_hash_that_was_corrected_with_the_source_is_loaded_and_not_refused_for_ever() -> None:
    cluster = Cluster()
    cluster.sha256 = "a" * 64
    cluster.create("tiny", SOURCES[0], sha256="A" * 64)
    cluster.settle()
    assert (cluster.phase("tiny"), len(cluster.downloads)) == ("Ready", 1)
    cluster.sha256 = cluster.models["tiny"]["spec"]["sha256"] = "b" * 64
    assert cluster.phase("tiny") == "Pending"
    cluster.settle()
    assert (cluster.phase("tiny"), len(cluster.downloads)) == ("Ready", 2)


def conditions(cluster: Cluster, name: str) -> dict[str, str]:
    condition_list = worlds.status(MODELS, cluster.world(name), None).status["conditions"]
    return {condition["type"]: condition["status"] for condition in condition_list}


@pytest.mark.parametrize("seed", seeds(8))
def test_in_any_order_what_is_ready_is_there_and_in_the_end_all_is_gone(seed: int) -> None:
    cluster, dice = Cluster(), random.Random(seed)
    for _step in range(300):
        act, name = dice.random(), dice.choice("abcd")
        if name not in cluster.models:
            if act < 0.3:
                cluster.create(name, dice.choice(SOURCES), refreshPolicy=dice.choice(("IfNotPresent", "OnChange")))
        elif act < 0.06:
            cluster.delete(name)
        elif act < 0.1:
            cluster.models[name]["spec"]["source"] = dice.choice(SOURCES)
        elif act < 0.3 and cluster.working():
            cluster.run(dice.choice(cluster.working()), fails=dice.random() < 0.2)
        else:
            cluster.reconcile(name)
        cluster.now += dice.choice((1, 1, 1, 400, 3700))
        assert complete(cluster) <= cluster.disk
    for name in list(cluster.models):
        if not deleting(cluster.models[name]):
            cluster.models[name]["spec"]["source"] = SOURCES[0]
    cluster.now += 4000
    cluster.settle()
    assert {cluster.phase(name) for name in cluster.models} <= {"Ready"}
    for name in list(cluster.models):
        cluster.delete(name)
    cluster.settle()
    assert cluster.models == {}
    assert inventory(cluster) == {}
