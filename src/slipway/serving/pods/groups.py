"""Groups of pods, a leader and its workers, that together serve one replica of a model, as a LeaderWorkerSet. Pure.

The controller of LeaderWorkerSets (sigs.k8s.io/lws) is optional; without it, a condition reports the missing kind (see
``Watch.optional``). It restarts a group as a whole, sets ``LWS_LEADER_ADDRESS``, ``LWS_GROUP_SIZE`` and
``LWS_WORKER_INDEX`` in each pod, and labels the pods accordingly.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from slipway.kube.objects import Kind, Object, generation
from slipway.serving.containers.diagnosis import TEMPLATE, template_digest
from slipway.serving.pods.workload import child, digest, with_selector_labels

LEADER_WORKER_SET = Kind("leaderworkerset.x-k8s.io", "v1", "LeaderWorkerSet", "leaderworkersets")
INSTALLED_BY = "the role leader_worker_set"
"""What to install if the cluster has no LeaderWorkerSets."""
NAME = "leaderworkerset.sigs.k8s.io/name"
"""Label of a group's pods. The value is the name of their LeaderWorkerSet."""
LEADERS = {"leaderworkerset.sigs.k8s.io/worker-index": "0"}
"""Labels that only leaders have. Leaders serve requests, and workers do not."""
EXCLUSIVE_TOPOLOGY = "leaderworkerset.sigs.k8s.io/exclusive-topology"
"""Annotation with the key of a node label, such as the rack's. No two groups run on nodes with the same value."""
LONGEST_NAME = 44
"""Maximum length of a LeaderWorkerSet's name. Its controller creates StatefulSets called ``<name>-<group>``, and
Kubernetes labels their pods with that name and a hash of eleven characters. The limit for both is 63, which leaves
enough characters for a million groups."""


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """The fields of a LeaderWorkerSet without its pod templates."""

    name: str
    """Name of at most ``LONGEST_NAME`` characters."""
    namespace: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str] = {}
    selector: Mapping[str, str]
    """Labels of all pods of the LeaderWorkerSet, both leaders and workers."""
    replicas: int | None
    """Number of groups, or None if another writer sets the number."""
    size: int
    """Number of pods per group, including the leader."""


def leader_worker_set(leader: Object, worker: Object, group: Group) -> Object:
    """Build a LeaderWorkerSet from two finished pod templates, for server-side apply.

    If a container of a pod restarts or the pod is deleted, its whole group is recreated. During a rollout, at most one
    group is missing, and at most one additional group exists. Leaders and workers have the same digest of both
    templates, so that a pod of an older spec is recognized whichever template has changed.
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
    """Return a LeaderWorkerSet with the spec and status fields of a Deployment, for reports and diagnoses. A replica is
    a group, and the template is the leader's.

    Releases of LeaderWorkerSet before 0.8 do not report the generation of their status, so the status counts as
    current.
    """
    template = observed["spec"].get("leaderWorkerTemplate") or {}
    status = {"observedGeneration": generation(observed), **(observed.get("status") or {})}
    spec = {
        "replicas": observed["spec"].get("replicas", 1),
        "template": template.get("leaderTemplate") or template.get("workerTemplate") or {},
    }
    return {**observed, "spec": spec, "status": status}


def owner_name(controller: str, labels: Mapping[str, str]) -> str:
    """Return the name of the LeaderWorkerSet of a pod that the StatefulSet ``controller`` created, or an empty string
    if there is none.

    The leaders' StatefulSet has the same name as the LeaderWorkerSet. A workers' StatefulSet is named after its leader,
    whose name begins with the name of the LeaderWorkerSet.
    """
    name = labels.get(NAME, "")
    return name if name and (controller == name or controller.startswith(f"{name}-")) else ""


def _annotations(template: Object) -> Mapping[str, str]:
    pod_annotations: Mapping[str, str] = (template.get("metadata") or {}).get("annotations") or {}
    return pod_annotations


def _marked(template: Object, mark: str) -> Object:
    annotations = {**_annotations(template), TEMPLATE: mark}
    return {**template, "metadata": {**template["metadata"], "annotations": annotations}}
