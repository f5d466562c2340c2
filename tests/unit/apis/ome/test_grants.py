"""What of a pod that two manifests make is the operator's, and what its author's."""

from __future__ import annotations

from typing import Any

import pytest

from slipway.apis.ome.components.grants import granted_freedoms
from slipway.kube.objects import Object
from slipway.serving.containers.freedoms import freedoms

SAFE = {"allowPrivilegeEscalation": False}
ENGINE: Object = {
    "name": "engine",
    "image": "engine:1",
    "args": ["--a"],
    "resources": {"limits": {"cpu": "1"}},
    "securityContext": {"privileged": True},
    "volumeMounts": [{"name": "rdma", "mountPath": "/dev/infiniband"}],
}
SPEC: Object = {
    "hostNetwork": True,
    "priorityClassName": "gold",
    "containers": [ENGINE],
    "volumes": [{"name": "rdma", "hostPath": {"path": "/dev/infiniband"}}],
}


def deployment(spec: Object) -> Object:
    return {"kind": "Deployment", "metadata": {"name": "chat"}, "spec": {"template": {"spec": spec}}}


def group(leader: Object, worker: Object) -> Object:
    templates = {"leaderTemplate": {"spec": leader}, "workerTemplate": {"spec": worker}, "size": 2}
    return {"kind": "LeaderWorkerSet", "metadata": {"name": "chat"}, "spec": {"leaderWorkerTemplate": templates}}


def engine(**fields: Any) -> Object:
    return {**SPEC, "containers": [{**ENGINE, **fields}]}


def refused(workload: Object, alone: Object | None) -> set[str]:
    """Returns the settings that would allow the author the freedoms that are not granted."""
    return {one.setting for one in freedoms([workload]) - granted_freedoms(workload, alone)}


EVERYTHING = {"privileged", "image_prefixes", "priority_classes", ""}


def test_freedoms_of_the_operators_manifest_are_granted() -> None:
    assert refused(deployment(SPEC), deployment(SPEC)) == set()


def test_without_one_nothing_is() -> None:
    assert refused(deployment(SPEC), None) == EVERYTHING


@pytest.mark.parametrize(
    "changed",
    [
        engine(resources={"limits": {"cpu": "64"}}),
        {**SPEC, "nodeSelector": {"a": "b"}, "tolerations": [{"key": "gpu"}], "affinity": {}},
    ],
)
def test_an_author_says_where_it_runs_and_with_how_much(changed: Object) -> None:
    assert refused(deployment(changed), deployment(SPEC)) == set()


@pytest.mark.parametrize(
    "changed",
    [
        engine(args=["--b"]),
        engine(command=["sh"]),
        engine(env=[{"name": "LD_PRELOAD", "value": "/tmp/x"}]),
        engine(lifecycle={"postStart": {"exec": {"command": ["sh"]}}}),
        engine(readinessProbe={"exec": {"command": ["sh"]}}),
        {**SPEC, "containers": [ENGINE, {"name": "mine", "image": "engine:1", "securityContext": SAFE}]},
        {**SPEC, "initContainers": [{"name": "mine", "image": "engine:1", "securityContext": SAFE}]},
        {**SPEC, "volumes": [*SPEC["volumes"], {"name": "mine", "emptyDir": {}}]},
        {**SPEC, "shareProcessNamespace": True},
    ],
)
def test_an_author_who_changes_what_runs_has_none_of_its_privileges(changed: Object) -> None:
    assert {"privileged", ""} <= refused(deployment(changed), deployment(SPEC))


def test_an_image_and_a_priority_are_the_operators_wherever_they_are() -> None:
    changed = engine(args=["--b"])
    assert not {"image_prefixes", "priority_classes"} & refused(deployment(changed), deployment(SPEC))
    assert "image_prefixes" in refused(deployment(engine(image="mine")), deployment(SPEC))
    assert "priority_classes" in refused(deployment({**SPEC, "priorityClassName": "mine"}), deployment(SPEC))


def test_each_pod_of_a_group_is_judged_for_itself() -> None:
    workload, alone = group(engine(args=["--b"]), SPEC), group(SPEC, SPEC)
    places = {one.field.partition(".")[0] for one in freedoms([workload]) - granted_freedoms(workload, alone)}
    assert places == {"leaderTemplate"}
    assert refused(alone, alone) == set()
