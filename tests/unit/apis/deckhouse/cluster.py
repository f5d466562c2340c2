"""A cluster in miniature: models, and Jobs that publish them and take them out of the registry again."""

from __future__ import annotations

import contextlib
import copy
from typing import Any

from slipway.apis.deckhouse.api import MODELS
from slipway.apis.deckhouse.names import UPLOADED
from slipway.artifacts.documents.publication import Facts, Publication, encode_publication
from slipway.controller.reconciling.patches import own_patch
from slipway.kube.objects import JOB, Key, deleting, key
from slipway.kube.schemas.conditions import timestamp
from slipway.serving.contract.api import InvalidSpecError, Plan, Rejection, World
from slipway.serving.contract.settings import Settings
from slipway.serving.wire.agent import AgentReport, Progress
from tests import worlds

START = 1_800_000_000.0
SYSTEM = "slipway-system"
KEY = bytes(range(32))
DIGEST = f"sha256:{'1' * 64}"
BY_KIND = {api.resource.kind.kind: api for api in MODELS}
HUB = "https://huggingface.co/acme/tiny"
OWN = {
    "registry": "slipway-registry.slipway-system.svc:5000",
    "depotUrl": "https://slipway-depot.slipway-system.svc:8443",
    "uploadUrl": "https://depot.example",
    "ca": "-----BEGIN CERTIFICATE-----",
}


def publication(size: int = 100, **facts: Any) -> Publication:
    return Publication(
        digest=DIGEST,
        media_type="application/vnd.cncf.model.manifest.v1+json",
        size=size,
        revision="abc",
        facts=Facts(**facts),
    )


class Cluster:
    """Everything that its methods make is there at once; nothing happens by itself."""

    def __init__(self, **own: Any) -> None:
        self.settings = Settings(apis={"deckhouse": OWN | own}, system_namespace=SYSTEM)
        self.models: dict[str, dict[str, Any]] = {}
        self.jobs: dict[Key, dict[str, Any]] = {}
        self.pods: dict[str, dict[str, Any]] = {}
        self.reports: dict[str, AgentReport] = {}
        self.secrets: dict[Key, dict[str, Any]] = {}
        self.write_only = 0
        """How often a Secret was in a plan."""
        self.key = KEY
        self.now, self._made = START, 0

    # What people do

    def create(self, name: str, url: str = HUB, kind: str = "Model", namespace: str = "chat", **source: Any) -> None:
        self._made += 1
        metadata: dict[str, Any] = {"name": name, "uid": f"uid-{name}", "generation": 1}
        metadata |= {"namespace": namespace} if kind == "Model" else {}
        metadata |= {"creationTimestamp": timestamp(self.now - 1000 + self._made)}
        given = source if {"upload", "catalog"} & source.keys() else {"url": url, **source}
        version = "ai.deckhouse.io/v1alpha1"
        self.models[name] = {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": {"source": given}}

    def delete(self, name: str) -> None:
        self.models[name]["metadata"].setdefault("deletionTimestamp", timestamp(self.now))

    def uploaded(self, name: str) -> None:
        self.models[name]["metadata"].setdefault("annotations", {})[UPLOADED] = DIGEST

    def annotations(self, name: str) -> dict[str, str]:
        annotations: dict[str, str] = self.models[name]["metadata"].get("annotations", {})
        return annotations

    # What the controller does

    def world(self, name: str) -> World:
        model = self.models[name]
        mine = {place: job for place, job in self.jobs.items() if job["owner"] == model["metadata"]["uid"]}
        return World(
            resource=copy.deepcopy(model),
            children={(JOB, place): job for place, job in mine.items()},
            pods=[self.pods[job["metadata"]["uid"]] for job in mine.values() if job["metadata"]["uid"] in self.pods],
            routed=[],
            settings=self.settings,
            now=self.now,
            listers=worlds.known_world(self._api(name), self.settings, {}, self.models.values()),
            agents=self.reports,
            file=lambda _path: self.key,
        )

    def _api(self, name: str) -> Any:
        return BY_KIND[self.models[name]["kind"]]

    def plan(self, name: str) -> Plan:
        return worlds.plan(self._api(name), self.world(name))

    def status(self, name: str, rejection: Rejection | None = None) -> dict[str, Any]:
        """Stores the status that was written, which other models may read."""
        status = worlds.status(self._api(name), self.world(name), rejection).status
        for one in status["conditions"]:
            before = {had["type"]: had for had in self.models[name].get("status", {}).get("conditions", ())}
            had = before.get(one["type"], {})
            same = had.get("status") == one["status"]
            one["lastTransitionTime"] = had["lastTransitionTime"] if same else timestamp(self.now)
        self.models[name]["status"] = status
        return status

    def recheck(self, name: str) -> float | None:
        return worlds.status(self._api(name), self.world(name)).recheck_seconds

    def phase(self, name: str) -> str:
        return str(self.status(name)["phase"])

    def condition(self, name: str, of: str = "Ready") -> tuple[str, str]:
        condition = next(one for one in self.status(name)["conditions"] if one["type"] == of)
        return condition["status"], condition["reason"]

    def message(self, name: str) -> str:
        return next(str(one["message"]) for one in self.status(name)["conditions"] if one["type"] == "Ready")

    def reconcile(self, name: str) -> None:
        """Writes the model's own fields first, then resolves everything again, like the reconciler."""
        model = self.models[name]
        if deleting(model):
            final_plan = worlds.finalize(self._api(name), self.world(name))
            if final_plan is None:
                del self.models[name]
                for place in [place for place, job in self.jobs.items() if job["owner"] == model["metadata"]["uid"]]:
                    self._remove(place)
                return
            self._apply(model, final_plan)
        else:
            with contextlib.suppress(InvalidSpecError):
                plan = self.plan(name)
                if patch := own_patch(model, plan):
                    metadata = patch["metadata"]
                    kept = model["metadata"].get("annotations", {}) | metadata.get("annotations", {})
                    model["metadata"]["annotations"] = {one: text for one, text in kept.items() if text is not None}
                    model["metadata"]["finalizers"] = metadata.get(
                        "finalizers", model["metadata"].get("finalizers", [])
                    )
                    plan = self.plan(name)
                self._apply(model, plan)
        self.status(name)

    def reconcile_all(self, rounds: int = 1) -> None:
        for _unused in range(rounds):
            for name in list(self.models):
                if name in self.models:
                    self.reconcile(name)

    def _apply(self, model: dict[str, Any], plan: Plan) -> None:
        owner = model["metadata"]["uid"]
        children = {key(child): child for child in plan.children}
        for place, job in list(self.jobs.items()):
            fresh = children.get(place) if job["owner"] == owner else job
            if fresh is None or words(fresh) != words(job):
                self._remove(place)
        for place, child in children.items():
            if place not in self.jobs:
                self._start(owner, model["kind"], place, child)
        for secret in plan.write_only:
            self.write_only += 1
            self.secrets[key(secret)] = secret

    def _start(self, owner: str, kind: str, place: Key, child: dict[str, Any]) -> None:
        self._made += 1
        uid, stamp = f"job-{self._made}", timestamp(self.now)
        by = {"apiVersion": "ai.deckhouse.io/v1alpha1", "kind": kind, "name": "x", "uid": owner, "controller": True}
        metadata = child["metadata"] | {"uid": uid, "creationTimestamp": stamp, "ownerReferences": [by]}
        self.jobs[place] = child | {"metadata": metadata, "owner": owner}
        reference = {"apiVersion": "batch/v1", "kind": "Job", "name": place.name, "uid": uid, "controller": True}
        pod = {"name": place.name, "uid": f"pod-{uid}", "creationTimestamp": stamp, "ownerReferences": [reference]}
        self.pods[uid] = {"metadata": pod, "status": {"phase": "Running"}}

    def _remove(self, place: Key) -> None:
        self.pods.pop(self.jobs.pop(place)["metadata"]["uid"], None)

    # What publishers do

    def job(self, name: str) -> dict[str, Any]:
        """The one Job of a model."""
        (model_job,) = (job for job in self.jobs.values() if job["owner"] == f"uid-{name}")
        return model_job

    def busy(self) -> list[str]:
        """Models with a Job that works."""
        return sorted(job["owner"].removeprefix("uid-") for job in self.jobs.values() if "status" not in job)

    def tells(self, name: str, done: int, total: int, resume: str = "") -> None:
        pod = self.pods[self.job(name)["metadata"]["uid"]]
        self.reports[pod["metadata"]["uid"]] = AgentReport(progress=Progress(done, total), resume=resume)

    def ends(self, name: str, result: Publication | str = "", *, fails: str = "") -> None:
        """A Job comes to its end."""
        job = self.job(name)
        over = {"type": "Failed" if fails else "Complete", "status": "True", "lastTransitionTime": timestamp(self.now)}
        message = fails or (encode_publication(result).decode() if isinstance(result, Publication) else result)
        job["status"] = {"conditions": [over]}
        container = {"name": "loader", "state": {"terminated": {"exitCode": int(bool(fails)), "message": message}}}
        status = {"phase": "Failed" if fails else "Succeeded", "containerStatuses": [container]}
        self.pods[job["metadata"]["uid"]]["status"] = status


def words(job: dict[str, Any]) -> list[str]:
    arguments: list[str] = job["spec"]["template"]["spec"]["containers"][0]["args"]
    return arguments
