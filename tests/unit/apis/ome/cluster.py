"""A cluster in miniature: models, nodes with disks, and Jobs that bring files onto them and take them off again."""

from __future__ import annotations

import contextlib
from typing import Any

from slipway.apis.ome.models.resolve import ModelView
from slipway.apis.ome.models.storage import KINDS, mount_of, use_of
from slipway.apis.ome.models.table import MODELS
from slipway.apis.ome.models.volumes import build_claim, claim_name
from slipway.artifacts.documents.report import Report, encode_report
from slipway.artifacts.facts.config import ModelFacts
from slipway.kube.objects import JOB, MANAGED_BY, PERSISTENT_VOLUME, Key, deleting, key, owner_reference
from slipway.kube.schemas.conditions import timestamp
from slipway.kube.writes.owners import OWNER_ELSEWHERE, by_owner, children_of, owner_text, with_owner
from slipway.serving.contract.api import USES, InvalidSpecError, Plan, Reference, World
from slipway.serving.contract.settings import Settings
from slipway.serving.contract.table import Table
from slipway.weights.nodes import node_of
from tests import worlds

START = 1_800_000_000.0
APIS: dict[str, Table[ModelView]] = {api.resource.kind.kind: api for api in MODELS}
LABEL = "models.ome.io/"


class Cluster:
    """Everything that its methods make is there at once; nothing happens by itself."""

    def __init__(self, *nodes: str, settings: Settings | None = None) -> None:
        self.settings = settings or Settings()
        self.models: dict[str, dict[str, Any]] = {}
        self.nodes: dict[str, dict[str, Any]] = {}
        self.jobs: dict[Key, dict[str, Any]] = {}
        self.pods: dict[str, dict[str, Any]] = {}
        self.volumes: dict[str, dict[str, Any]] = {}
        self.others: list[dict[str, Any]] = []
        """Claims, and pods that read files."""
        self.disks: dict[str, dict[str, str]] = {}
        """Node -> folder -> what it was loaded from."""
        self.seal = ""
        """By which loaders know their folders again."""
        self.facts: ModelFacts | None = None
        """What all files say."""
        self.fault = ""
        """What is wrong with all files that are only looked at."""
        self.now, self._made, self.most = START, 0, 0
        """Most Jobs that loaded onto one node at a time."""
        for name in nodes:
            self.join(name)

    # What people and machines do

    def create(
        self, name: str, uri: str, kind: str = "ClusterBaseModel", namespace: str = "chat", **fields: Any
    ) -> None:
        folder = f"/raid/models/{namespace}/{name}" if kind == "BaseModel" else f"/raid/models/{name}"
        given = {"storageUri": uri, "path": folder} | fields
        spec = {"storage": {field: value for field, value in given.items() if value is not None}}
        metadata = {"name": name, "uid": self._uid(), "generation": 1, "finalizers": []}
        metadata |= {"namespace": namespace} if kind == "BaseModel" else {}
        metadata |= {"creationTimestamp": timestamp(self.now + self._made)}
        self.models[name] = {"kind": kind, "metadata": metadata, "spec": spec}

    def change(self, name: str, **fields: Any) -> None:
        model = self.models[name]
        storage = {field: value for field, value in (model["spec"]["storage"] | fields).items() if value is not None}
        metadata = model["metadata"] | {"generation": model["metadata"]["generation"] + 1}
        self.models[name] = {**model, "metadata": metadata, "spec": model["spec"] | {"storage": storage}}

    def delete(self, name: str) -> None:
        self.models[name]["metadata"].setdefault("deletionTimestamp", timestamp(self.now))

    def join(self, name: str, **labels: str) -> None:
        metadata = {"name": name, "uid": self._uid(), "labels": labels, "annotations": {}}
        self.nodes[name] = {"kind": "Node", "metadata": metadata, "status": {"nodeInfo": {"bootID": "b1"}}}
        self.disks[name] = {}

    def leave(self, name: str) -> None:
        """A node is gone, and with it what ran there."""
        del self.nodes[name], self.disks[name]

    def restart(self, name: str, *, wiped: bool = False) -> None:
        self.nodes[name]["status"]["nodeInfo"]["bootID"] += "+"
        if wiped:
            self.disks[name].clear()

    def label(self, name: str, **labels: str | None) -> None:
        _mark(self.nodes[name], "labels", labels)

    def read(self, path: str) -> None:
        """A service's pod mounts a folder of its node."""
        metadata = {"name": "chat", "namespace": "chat", "annotations": {USES: use_of(path)}}
        spec = {"volumes": [{"name": "model", "hostPath": {"path": path}}]}
        self.others.append({"kind": "Pod", "metadata": metadata, "spec": spec, "status": {"phase": "Running"}})

    def claim(self, name: str, namespace: str = "chat") -> str:
        """A service of a namespace makes its claim for a model. Returns its name."""
        model = self.models[name]
        mount = mount_of(model, self.settings)
        made = build_claim(claim_name(mount.uid, mount.path, namespace), namespace, mount.mark)
        made["metadata"] |= {"uid": self._uid()}
        made["metadata"]["labels"] |= {MANAGED_BY: "slipway"}
        self.others.append(made)
        return key(made).name

    def unclaim(self, name: str) -> None:
        """A claim is gone, and Kubernetes releases its volume."""
        self.others = [one for one in self.others if key(one).name != name]
        volume = self.volumes.get(name, {})
        if "deletionTimestamp" in volume.get("metadata", {}):
            del self.volumes[name]
        elif volume:
            volume["status"] = {"phase": "Released"}

    # What the controller does

    def world(self, name: str) -> World:
        model = self.models[name]
        mine = [(place, job) for place, job in self.jobs.items() if job["owner"] == model["metadata"]["uid"]]
        jobs = {(JOB, place): job for place, job in mine if children_of(model) in by_owner(job)}
        volumes = {(PERSISTENT_VOLUME, key(one)): one for one in self._volumes_of(model)}
        everything = [*self.models.values(), *self.nodes.values(), *self.others, *self.volumes.values()]
        pinned = {Reference(JOB, *place): job for place, job in self.jobs.items()}
        return World(
            resource=model,
            children=jobs | volumes,
            pods=[self.pods[job["metadata"]["uid"]] for job in jobs.values()],
            routed=[],
            settings=self.settings,
            now=self.now,
            listers=worlds.known_world(APIS[model["kind"]], self.settings, pinned, everything),
        )

    def plan(self, name: str) -> Plan:
        return worlds.plan(APIS[self.models[name]["kind"]], self.world(name))

    def status(self, name: str) -> dict[str, Any]:
        """Stores the status that was written, which other models may read."""
        api = APIS[self.models[name]["kind"]]
        status = worlds.status(api, self.world(name), None).status
        self.models[name]["status"] = status
        return status

    def recheck(self, name: str) -> float | None:
        """Returns when the model is reconciled again if nothing changes."""
        return worlds.status(APIS[self.models[name]["kind"]], self.world(name), None).recheck_seconds

    def reason(self, name: str, of: str = "Available") -> str:
        return next(str(one["reason"]) for one in self.status(name)["conditions"] if one["type"] == of)

    def message(self, name: str) -> str:
        return next(str(one["message"]) for one in self.status(name)["conditions"] if one["type"] == "Available")

    def reconcile(self, name: str) -> None:
        model = self.models[name]
        api = APIS[model["kind"]]
        if deleting(model):
            final_plan = worlds.finalize(api, self.world(name))
            if final_plan is None:
                del self.models[name]
                gone = [place for place, job in self.jobs.items() if job["owner"] == model["metadata"]["uid"]]
                for place in gone:
                    self._remove(place)
                return
            self._apply(model, final_plan)
        else:
            with contextlib.suppress(InvalidSpecError):
                self._apply(model, self.plan(name))
        self.status(name)

    def reconcile_all(self) -> None:
        for name in list(self.models):
            if name in self.models:
                self.reconcile(name)

    def settle(self, rounds: int = 12) -> None:
        """Controller and nodes go on until nothing is left to do."""
        for _unused in range(rounds):
            self.reconcile_all()
            for place in self.working():
                self.run(place)
            self.now += 1

    # What nodes do

    def working(self) -> list[Key]:
        return [place for place, job in self.jobs.items() if "status" not in job]

    def run(self, place: Key, *, fails: str = "") -> None:
        """A Job comes to its end, if its node is there."""
        job = self.jobs[place]
        node, words = node_of(job), job["spec"]["template"]["spec"]["containers"][0]["args"]
        if node and node not in self.nodes:
            return
        over = {"type": "Failed" if fails else "Complete", "status": "True", "lastTransitionTime": timestamp(self.now)}
        message = fails or self._does(node, words)
        job["status"] = {"conditions": [over]}
        container = {"name": "loader", "state": {"terminated": {"exitCode": int(bool(fails)), "message": message}}}
        status = {"phase": "Failed" if fails else "Succeeded", "containerStatuses": [container]}
        self.pods[job["metadata"]["uid"]]["status"] = status

    def _does(self, node: str, words: list[str]) -> str:
        if words[1] == "evict":
            self.disks[node].pop(words[2], None)
            return ""
        if words[1] == "stage":
            self.disks[node][words[3]] = words[2]
        fault = self.fault if words[1] == "inspect" else ""
        report = Report(file="a.safetensors", size=5, revision="abc", model=self.facts, seal=self.seal, fault=fault)
        return encode_report(report).decode()

    def _apply(self, model: dict[str, Any], plan: Plan) -> None:
        owner = model["metadata"]["uid"]
        model["spec"] |= plan.self_patch.get("spec", {})
        children = {key(child): child for child in plan.children if child["kind"] == "Job"}
        self._apply_volumes(model, [child for child in plan.children if child["kind"] == "PersistentVolume"])
        going = {(one.namespace, one.name) for one in plan.discarded}
        for one in [other for other in self.others if key(other) in going]:
            one["metadata"].setdefault("deletionTimestamp", timestamp(self.now))
        for place, job in list(self.jobs.items()):
            fresh = children.get(place) if job["owner"] == owner else job
            if fresh is None or _words(fresh) != _words(job):
                self._remove(place)
        for place, child in children.items():
            if place not in self.jobs:
                self._start(model, place, child)
        for patch in plan.metadata_patches:
            if node := self.nodes.get(patch.reference.name):
                _mark(node, "annotations", patch.annotations)
                _mark(node, "labels", patch.labels)

    def _apply_volumes(self, model: dict[str, Any], planned: list[dict[str, Any]]) -> None:
        for volume in self._volumes_of(model):
            name = _name(volume)
            if name not in map(_name, planned):
                volume["metadata"].setdefault("deletionTimestamp", timestamp(self.now))
                if not any(key(one).name == name for one in self.others):  # a bound claim stays
                    del self.volumes[name]
        for volume in planned:
            fresh = _owned(model, {**volume, "metadata": {**volume["metadata"], "uid": self._uid()}})
            self.volumes.setdefault(_name(volume), fresh)

    def _volumes_of(self, model: dict[str, Any]) -> list[dict[str, Any]]:
        return [one for one in self.volumes.values() if children_of(model) in by_owner(one)]

    def _start(self, model: dict[str, Any], place: Key, child: dict[str, Any]) -> None:
        uid, stamp = self._uid(), timestamp(self.now)
        metadata = child["metadata"] | {"uid": uid, "creationTimestamp": stamp}
        self.jobs[place] = _owned(model, child | {"metadata": metadata}) | {"owner": model["metadata"]["uid"]}
        reference = {"apiVersion": "batch/v1", "kind": "Job", "name": place.name, "uid": uid, "controller": True}
        pod = {"name": place.name, "uid": f"pod-{uid}", "creationTimestamp": stamp, "ownerReferences": [reference]}
        self.pods[uid] = {"metadata": pod, "status": {"phase": "Running"}}
        loading = [job for job in self.jobs.values() if "status" not in job and _words(job)[1] == "stage"]
        self.most = max([self.most, *(sum(node_of(one) == name for one in loading) for name in self.nodes)])

    def _remove(self, place: Key) -> None:
        self.pods.pop(self.jobs.pop(place)["metadata"]["uid"])

    def _uid(self) -> str:
        self._made += 1
        return f"uid-{self._made}"

    def marks(self, model: str = "") -> dict[str, str]:
        """Node -> what its label says of a model of the cluster."""
        label = f"{LABEL}clusterbasemodel.{model}"
        states = {name: node["metadata"]["labels"].get(label) for name, node in self.nodes.items()}
        return {name: text for name, text in states.items() if text}


def _owned(model: dict[str, Any], child: dict[str, Any]) -> dict[str, Any]:
    """Returns a child with the owner that the caches show."""
    kind, metadata = KINDS[model["kind"]], child["metadata"]
    if key(model).namespace in ("", key(child).namespace):
        return {**child, "metadata": {**metadata, "ownerReferences": [owner_reference(kind, model)]}}
    annotations = metadata.get("annotations", {}) | {OWNER_ELSEWHERE: owner_text(kind, model)}
    return with_owner({**child, "metadata": {**metadata, "annotations": annotations}})


def _name(obj: dict[str, Any]) -> str:
    return key(obj).name


def _words(job: dict[str, Any]) -> list[str]:
    words: list[str] = job["spec"]["template"]["spec"]["containers"][0]["args"]
    return words


def _mark(obj: dict[str, Any], field: str, expected: Any) -> None:
    kept = obj["metadata"][field] | dict(expected)
    obj["metadata"][field] = {name: text for name, text in kept.items() if text is not None}
