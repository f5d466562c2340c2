"""A run with a Model of Deckhouse and a Deployment that asks for it: a LimitRange has every pod ask for more processors
than any node has, so that none starts.

What a node would do then is done by the tests: they say that the pods of Jobs have ended, and what the publisher wrote.
So the hub and the registry are what these pods were told to ask: nothing is sent to either.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Self

import yaml

from slipway.apis.deckhouse import names
from slipway.apis.deckhouse.users import DELIVERED
from slipway.artifacts.publication import Publication, written
from slipway.kube.objects import annotations_of

from .harness import Api, without
from .node import NodeRun, ends
from .proxy import Object

HUB, SOURCE = "https://huggingface.co/acme/tiny", "hf://acme/tiny"
MODEL, WORKLOAD = "tiny", "chat"
REGISTRY = "registry.example:5000"
SETTINGS = {"deckhouse": {"registry": REGISTRY, "storageClassName": "none", "accessMode": "ReadWriteOnce"}}
DIGEST = f"sha256:{'1' * 64}"
PUBLISHED = written(Publication(digest=DIGEST, media_type="application/vnd.cncf.model.manifest.v1+json", size=5))
NO_NODE = {"cpu": "1M"}
OURS = ("ai-models-", "AI_MODELS_", names.RESOLVED, names.GATE)
"""What a template has of ours, and no other."""


class DeckhouseRun(NodeRun):
    """One namespace, which is the controller's own too."""

    prefixes = NodeRun.prefixes | {
        "Model": f"/apis/{names.MODEL.api_version}",
        "LimitRange": "/api/v1",
    }
    plurals = NodeRun.plurals | {
        "LimitRange": "limitranges",
    }

    def __init__(self, api: Api, folder: Path) -> None:
        super().__init__(api, folder)
        self.settings = {"apis": SETTINGS}
        self.registry: set[str] = set()
        """Repositories that have something."""
        self.publications: list[str] = []
        """What was published, each time."""
        self.pulls: list[str] = []

    async def __aenter__(self) -> Self:
        await super().__aenter__()
        limit = {"type": "Container", "default": NO_NODE, "defaultRequest": NO_NODE}
        await self.create("LimitRange", {"metadata": {"name": "no-node"}, "spec": {"limits": [limit]}})
        return self

    # What a node does

    async def _work(self) -> None:
        while True:
            for pod in await self.all("Pod"):
                if pod.get("status", {}).get("phase") != "Succeeded":
                    await self._end(pod)
            await asyncio.sleep(0.1)

    async def _end(self, pod: Object) -> None:
        """Does what a pod of a Job is there for."""
        what, *told = pod["spec"]["containers"][0]["args"][1:]
        if not await ends(self, pod, PUBLISHED.decode() if what == "publish" else ""):
            return
        if what == "publish":
            self.publications.append(told[0])
            self.registry.add(told[1])
        elif what == "unpublish":
            self.registry.discard(told[0])
        else:
            self.pulls.append(told[0])

    # The scenario

    async def life(self) -> None:
        """A Model is published, brought into a Deployment, taken out of it, and goes; keeps what the Deployment looked
        like after each step."""
        self.proxy.stage = "publish"
        spec = {"source": {"url": HUB}}
        await self.create(
            "Model",
            {"apiVersion": names.MODEL.api_version, "kind": "Model", "metadata": {"name": MODEL}, "spec": spec},
        )
        await self.until(self._published, what="the Model is not published")
        self.proxy.stage = "deliver"
        await self.create("Deployment", workload())
        await self.until(self._delivered, what="the Deployment has no model")
        self.snapshots.append(await self.snapshot())
        self.proxy.stage = "delete"
        await self.delete("Model", MODEL)
        await self.until(self._waits_for_its_reader, what="the Model does not say who keeps it")
        await self.patch("Deployment", WORKLOAD, {"metadata": {"annotations": {names.USES_MODEL: None}}})
        await self.until(self._nothing_left, what="deletion did not end")
        self.snapshots.append(await self.snapshot())

    async def _published(self) -> bool:
        """I1, I2, I3: the registry has it once, the status says so, and nothing of the way there is left."""
        model = await self.get("Model", MODEL)
        assert model
        status = model.get("status", {})
        generation = model["metadata"]["generation"]
        assert (status.get("phase"), status.get("observedGeneration")) == ("Ready", generation), "not Ready"
        assert status["artifact"]["digest"] == DIGEST, "another artifact"
        assert names.FINALIZER in model["metadata"].get("finalizers", []), "nothing would take it out of the registry"
        assert names.PUBLICATION not in annotations_of(model), "its record stays"
        assert len(self.registry) == 1, "the registry has something else"
        assert not await self.all("Job"), "Jobs stay"
        return self.is_quiet()

    async def _delivered(self) -> bool:
        """I1, I2, I3: the template reads a claim that is filled and belongs to the Deployment alone."""
        deployment = await self.get("Deployment", WORKLOAD)
        assert deployment
        (claim,) = await self.all("PersistentVolumeClaim") or [{}]
        assert claim, "no claim"
        assert [one["uid"] for one in claim["metadata"]["ownerReferences"]] == [deployment["metadata"]["uid"]]
        pod = deployment["spec"]["template"]["spec"]
        mounted = [one.get("persistentVolumeClaim", {}).get("claimName") for one in pod.get("volumes", [])]
        assert mounted == [claim["metadata"]["name"]], "the pods read another claim, or none"
        assert "AI_MODELS_MODELS" in [one["name"] for one in pod["containers"][0].get("env", [])], "no variable"
        assert not pod.get("schedulingGates"), "the gate stays"
        annotations = annotations_of(deployment)
        assert annotations.get(DELIVERED) == f"{self.namespace}/{MODEL}", "it does not say what it was given"
        assert names.BLOCKED_REASON not in annotations, "it says that it is blocked"
        assert not await self.all("Job"), "Jobs stay"
        return self.is_quiet()

    async def _waits_for_its_reader(self) -> bool:
        model = await self.get("Model", MODEL)
        assert model, "it went though it is read"
        status = model.get("status", {})
        ready = next((one for one in status.get("conditions", []) if one["type"] == "Ready"), {"message": ""})
        assert status.get("phase") == "Deleting", "the status is old"
        assert f"Deployment {self.namespace}/{WORKLOAD}" in ready["message"], "the reader is not named"
        assert len(self.registry) == 1, "it was taken out of the registry"
        return self.is_quiet()

    async def _nothing_left(self) -> bool:
        """I5: nothing of it is anywhere, and the Deployment is as its author wrote it."""
        for kind in ("Model", "Job", "PersistentVolumeClaim"):
            left = [one["metadata"]["name"] for one in await self.all(kind)]
            assert not left, f"{kind}s left: {left}"
        assert self.registry == set(), "the registry still has it"
        deployment = await self.get("Deployment", WORKLOAD)
        assert deployment
        template = yaml.safe_dump(deployment["spec"]["template"])
        assert not [one for one in OURS if one in template], "something of ours is left in the template"
        return self.is_quiet()

    async def snapshot(self) -> list[str]:
        """The Deployment and the claim as lines of text, without what differs from run to run by its nature."""
        world = [without(one) for kind in ("Deployment", "PersistentVolumeClaim") for one in await self.all(kind)]
        return yaml.safe_dump(world).replace(self.namespace, "NAMESPACE").splitlines()

    def no_child_was_deleted(self) -> None:
        """I7. Jobs go when they have done their work, and the claim when nobody reads it."""
        known = {"jobs", "persistentvolumeclaims"}
        deletions = [one for one in self.proxy.writes if one.method == "DELETE"]
        assert [one for one in deletions if one.resource not in known] == []
        assert [one for one in deletions if one.label == "deliver persistentvolumeclaims"] == []


def workload() -> Object:
    """What its author wrote. It has no replicas, as what is delivered needs no pod."""
    labels = {"app": WORKLOAD}
    pod = {"containers": [{"name": "app", "image": "registry.example/app:1", "env": [{"name": "OWN", "value": "1"}]}]}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": WORKLOAD, "annotations": {names.USES_MODEL: MODEL}},
        "spec": {
            "replicas": 0,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    }
