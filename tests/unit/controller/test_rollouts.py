"""The Events of a resource whose pods are replaced or drained."""

from __future__ import annotations

import time
from typing import Any

import pytest

from slipway.apis.kubeai import KUBEAI
from slipway.controller.reconciling.reconciler import MARK
from slipway.controller.reconciling.rollouts import describe_draining, describe_resets, describe_rollouts
from slipway.kube.objects import DEPLOYMENT, POD, SERVICE, Key, Kind, Object
from slipway.kube.schemas.conditions import timestamp
from slipway.kube.writes.events import Recorder
from slipway.serving.containers.diagnosis import TEMPLATE
from slipway.serving.contract.settings import Settings

from .conftest import apply_kubeai_model, controlled

OWN = "model-a"
NOW = 1767225600.0


def deployment(digest: str, replicas: int = 2, **fields: Any) -> Object:
    container = {"name": "server", "image": "vllm:1", "args": ["--model", "a"], **fields}
    template = {"metadata": {"annotations": {TEMPLATE: digest}}, "spec": {"containers": [container]}}
    metadata = {"name": "model-a", "namespace": "models"}
    return {"kind": "Deployment", "metadata": metadata, "spec": {"replicas": replicas, "template": template}}


def messages(old: Object, new: Object) -> list[str]:
    return describe_rollouts({(DEPLOYMENT, Key("models", "model-a")): old}, [new])


def pod(name: str, *, ago: float = 0, grace: int = 600, **fields: Any) -> Object:
    going = {"deletionTimestamp": timestamp(NOW + grace - ago), "deletionGracePeriodSeconds": grace}
    return {"metadata": {"name": name, "namespace": "models", "uid": name, **going, **fields}, "status": {}}


def test_a_rollout_names_the_changed_fields_and_the_old_replicas() -> None:
    assert messages(deployment("1"), deployment("2", image="vllm:2", args=["--model", "b"])) == [
        "Deployment model-a: image, args of server changed. 2 old replicas are removed after new ones are ready."
    ]
    assert messages(deployment("1", 1), deployment("2", 1)) == [
        "Deployment model-a: pod template changed. 1 old replica is removed after new ones are ready."
    ]


@pytest.mark.parametrize(
    "strategy",
    [{"type": "Recreate"}, {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}}],
)
def test_without_surge_the_old_replicas_are_removed_first(strategy: Object) -> None:
    new = deployment("2")
    new["spec"]["strategy"] = strategy

    [message] = messages(deployment("1"), new)
    assert message.endswith(" 2 old replicas are removed before new ones start.")


def test_a_rollout_to_zero_replicas_names_no_replicas() -> None:
    assert messages(deployment("1"), deployment("2", 0)) == ["Deployment model-a: pod template changed."]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (deployment("1", 2), deployment("1", 5)),
        (deployment("1", 0), deployment("2", 0)),
        (deployment("1", 0), deployment("2", 1)),
    ],
    ids=["scaled", "asleep", "woken"],
)
def test_without_pods_to_replace_there_is_no_rollout(old: Object, new: Object) -> None:
    assert messages(old, new) == []


def test_objects_without_pods_and_new_workloads_have_no_rollout() -> None:
    service = {"kind": "Service", "metadata": {"name": "a", "namespace": "models"}, "spec": {"ports": []}}
    config = {"kind": "ConfigMap", "metadata": {"name": "a", "namespace": "models"}, "data": {}}

    assert describe_rollouts({(SERVICE, Key("models", "a")): service}, [service, config, deployment("1")]) == []


@pytest.mark.parametrize(
    ("before", "after", "planned", "messages"),
    [
        ((5, "1"), (2, "1"), 2, ["Deployment model-a was scaled by another client and is back at 2."]),
        ((2, "1"), (2, "1"), 2, []),
        ((5, "1"), (2, "2"), 2, []),
        ((2, None), (3, None), 3, []),
        # Slipway does not set the replicas: an autoscaler does.
        ((5, "1"), (2, "1"), None, []),
    ],
    ids=["another client", "unchanged", "a changed spec", "no mark", "an autoscaler"],
)
def test_a_reset_is_a_change_of_replicas_without_a_changed_plan(
    before: tuple[int, str | None], after: tuple[int, str | None], planned: int | None, messages: list[str]
) -> None:
    def children(replicas: int, mark: str | None) -> dict[tuple[Kind, Key], Object]:
        child = deployment("1", replicas)
        child["metadata"]["annotations"] = {} if mark is None else {MARK: mark}
        return {(DEPLOYMENT, Key("models", OWN)): child}

    applied = deployment("1")
    applied["spec"]["replicas"] = planned
    assert describe_resets(children(*before), children(*after), [applied], MARK) == messages
    assert describe_resets({}, children(*after), [applied], MARK) == []
    assert describe_resets(children(*before), {}, [applied], MARK) == []


def test_each_draining_pod_is_in_one_message() -> None:
    message, uids = describe_draining([pod("b"), pod("a")], frozenset(), NOW)
    assert message == "Pods a, b drain: no new requests, and at most 600 s for requests in flight."

    message, uids = describe_draining([pod("b"), pod("a"), pod("c", grace=30)], uids, NOW)
    assert message == "Pod c drains: no new requests, and at most 30 s for requests in flight."
    assert describe_draining([pod("b"), pod("a"), pod("c")], uids, NOW) == ("", uids)


def test_a_message_names_three_pods_at_most() -> None:
    message, _known = describe_draining([pod(str(number)) for number in range(5)], frozenset(), NOW)

    assert message.startswith("Pods 0, 1, 2 and 2 more drain:")


def test_pods_that_do_not_drain_and_old_terminations_have_no_message() -> None:
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "load", "uid": "u", "controller": True}
    loader = pod("loader", ownerReferences=[owner])
    over = {**pod("over"), "status": {"phase": "Failed"}}
    stays = {"metadata": {"name": "stays", "namespace": "models", "uid": "stays"}, "status": {}}

    assert describe_draining([pod("old", ago=90), loader, over, stays], frozenset(), NOW)[0] == ""


@pytest.fixture
def events(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """Reason and message of each recorded Event."""
    seen: list[tuple[str, str]] = []

    def record(_self: Recorder, _kind: Kind, _obj: Object, _type: str, reason: str, message: str) -> None:
        seen.append((reason, message))

    monkeypatch.setattr(Recorder, "record", record)
    return seen


async def test_a_changed_spec_has_one_event(server, cluster, client, session, start, eventually, rest, events):
    async with controlled(KUBEAI, client, session, start, Settings(system_namespace="system")):
        await apply_kubeai_model(server, cluster)
        await eventually(lambda: cluster.find(DEPLOYMENT, OWN))
        await rest(lambda: len(server.writes))
        assert "RolloutStarted" not in dict(events)
        await apply_kubeai_model(server, cluster, args=["--max-model-len=1024"])
        await eventually(lambda: "RolloutStarted" in dict(events))
        await rest(lambda: len(server.writes))

    [message] = [message for reason, message in events if reason == "RolloutStarted"]
    assert message.startswith("Deployment model-a: args of server changed. 1 old replica is removed")


async def test_a_draining_pod_has_one_event(server, cluster, parts, eventually, rest, events):
    await cluster.config()
    await cluster.toy()
    await eventually(lambda: cluster.find(DEPLOYMENT))
    reference = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "a-1", "uid": "1", "controller": True}
    labels = {"app.kubernetes.io/managed-by": "slipway", "pod-template-hash": "1"}
    metadata = {"labels": labels, "ownerReferences": [reference], "uid": "p", "deletionGracePeriodSeconds": 600}
    metadata["deletionTimestamp"] = timestamp(time.time() + 600)
    await server.put(cluster.path(POD, "p"), kind="Pod", metadata=metadata)
    await eventually(lambda: "Draining" in dict(events))
    parts.controller.queue.add(Key("models", "a"))
    await rest(lambda: len(server.log))

    messages = [message for reason, message in events if reason == "Draining"]
    assert messages == ["Pod p drains: no new requests, and at most 600 s for requests in flight."]


async def test_replicas_that_another_client_set_are_reported(
    server, cluster, client, session, start, eventually, rest, events
):
    async with controlled(KUBEAI, client, session, start, Settings(system_namespace="system")):
        await apply_kubeai_model(server, cluster)
        await eventually(lambda: cluster.find(DEPLOYMENT, OWN))
        await rest(lambda: len(server.writes))
        for replicas in (4, 5):
            current = cluster.find(DEPLOYMENT, OWN)
            scaled = current | {"spec": current["spec"] | {"replicas": replicas}}
            await server.store(cluster.path(DEPLOYMENT, OWN), scaled)
            await eventually(lambda: cluster.find(DEPLOYMENT, OWN)["spec"]["replicas"] == 1)
            await rest(lambda: len(server.writes))
        await apply_kubeai_model(server, cluster, minReplicas=2)
        await eventually(lambda: cluster.find(DEPLOYMENT, OWN)["spec"]["replicas"] == 2)
        await rest(lambda: len(server.writes))

    messages = [message for reason, message in events if reason == "ReplicasReset"]
    text = "Deployment model-a was scaled by another client and is back at 1. Set the replicas in Model a instead."
    assert messages == [text] * 2
