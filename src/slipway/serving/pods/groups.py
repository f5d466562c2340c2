"""Groups: pods that together serve one replica of a model, a leader and its workers, as a LeaderWorkerSet. Pure.

The controller of LeaderWorkerSets (sigs.k8s.io/lws) is optional: without it, a condition reports that (see
``Watch.optional``). It restarts a group as a whole, gives each pod its place in ``LWS_LEADER_ADDRESS``,
``LWS_GROUP_SIZE`` and ``LWS_WORKER_INDEX``, and labels it accordingly.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from slipway.kube.objects import Kind, Object, generation
from slipway.serving.containers.diagnosis import TEMPLATE, template_digest
from slipway.serving.pods.workload import child, digest, with_selector_labels

LEADER_WORKER_SET = Kind("leaderworkerset.x-k8s.io", "v1", "LeaderWorkerSet", "leaderworkersets")
INSTALLED_BY = "the role leader_worker_set"
"""What to install where the cluster does not have the kind."""
NAME = "leaderworkerset.sigs.k8s.io/name"
"""Label of a group's pods: the LeaderWorkerSet that made them."""
LEADERS = {"leaderworkerset.sigs.k8s.io/worker-index": "0"}
"""Labels of leaders alone: they answer requests, their workers do not."""
EXCLUSIVE_TOPOLOGY = "leaderworkerset.sigs.k8s.io/exclusive-topology"
"""Annotation: the label of nodes, such as a rack's, of which each group has one value for itself."""
LONGEST_NAME = 44
"""Of a LeaderWorkerSet. Its controller makes StatefulSets called ``<name>-<group>``, and Kubernetes labels their pods
with that name and a hash of eleven characters: 63 in all, with room for a million groups."""


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """The fields of a LeaderWorkerSet without its pod templates."""

    name: str
    """Of LONGEST_NAME characters at most."""
    namespace: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str] = {}
    selector: Mapping[str, str]
    """Labels of all its pods, leaders and workers."""
    replicas: int | None
    """Groups; None: somebody else says it."""
    size: int
    """Pods of a group, its leader among them."""


def leader_worker_set(leader: Object, worker: Object, group: Group) -> Object:
    """Groups of pods as two finished templates have them; the applier sends it by server-side apply.

    A group is replaced as a whole when one of its pods is, after its successor is up. Leaders and workers carry one
    digest of both templates, so that a pod of an older spec is known whichever of them has changed.
    """
    mark = digest([template_digest(template) or template.get("spec") for template in (leader, worker)])
    topology = (
        {EXCLUSIVE_TOPOLOGY: topology_key} if (topology_key := _annotations(leader).get(EXCLUSIVE_TOPOLOGY)) else {}
    )
    spec = {
        **({} if group.replicas is None else {"replicas": group.replicas}),
        "startupPolicy": "LeaderCreated",
        "networkConfig": {"subdomainPolicy": "Shared"},
        "rolloutStrategy": {
            "type": "RollingUpdate",
            "rollingUpdateConfiguration": {"maxUnavailable": 1, "maxSurge": 1},
        },
        "leaderWorkerTemplate": {
            "size": group.size,
            "restartPolicy": "RecreateGroupOnPodRestart",
            "leaderTemplate": _marked(with_selector_labels(leader, group.selector), mark),
            "workerTemplate": _marked(with_selector_labels(worker, group.selector), mark),
        },
    }
    manifest = child(LEADER_WORKER_SET, group.name, group.namespace, group.labels, spec=spec)
    if annotations := {**group.annotations, **topology}:
        manifest["metadata"]["annotations"] = annotations
    return manifest


def as_workload(observed: Object) -> Object:
    """A LeaderWorkerSet as reports and diagnoses read a Deployment: a replica is a group, its template the leader's.

    Releases before 0.8 do not tell of which generation their status is; it is then taken for the newest.
    """
    template = observed["spec"].get("leaderWorkerTemplate") or {}
    status = {"observedGeneration": generation(observed), **(observed.get("status") or {})}
    spec = {
        "replicas": observed["spec"].get("replicas", 1),
        "template": template.get("leaderTemplate") or template.get("workerTemplate") or {},
    }
    return {**observed, "spec": spec, "status": status}


def owner_name(controller: str, labels: Mapping[str, str]) -> str:
    """Returns the LeaderWorkerSet of a pod that the StatefulSet ``controller`` created; empty: none. The leaders'
    StatefulSet has its name; that of workers has their leader's, which begins with it."""
    name = labels.get(NAME, "")
    return name if name and (controller == name or controller.startswith(f"{name}-")) else ""


def _annotations(template: Object) -> Mapping[str, str]:
    pod_annotations: Mapping[str, str] = (template.get("metadata") or {}).get("annotations") or {}
    return pod_annotations


def _marked(template: Object, mark: str) -> Object:
    annotations = {**_annotations(template), TEMPLATE: mark}
    return {**template, "metadata": {**template["metadata"], "annotations": annotations}}
