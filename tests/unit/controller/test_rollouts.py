"""What a person reads in a resource's Events when its pods are replaced, and when they begin to go."""

from __future__ import annotations

import time
from typing import Any

import pytest

from slipway.apis.kubeai import KUBEAI
from slipway.controller.rollouts import begun, draining
from slipway.kube.conditions import timestamp
from slipway.kube.events import Recorder
from slipway.kube.objects import DEPLOYMENT, POD, SERVICE, Key, Object
from slipway.serving.diagnosis import TEMPLATE
from slipway.serving.settings import Settings

from .conftest import apply_kubeai_model, controlled

OWN = "model-a"
NOW = 1767225600.0


def deployment(digest: str, replicas: int = 2, **fields: Any) -> Object:
    container = {"name": "server", "image": "vllm:1", "args": ["--model", "a"], **fields}
    template = {"metadata": {"annotations": {TEMPLATE: digest}}, "spec": {"containers": [container]}}
    metadata = {"name": "model-a", "namespace": "models"}
    return {"kind": "Deployment", "metadata": metadata, "spec": {"replicas": replicas, "template": template}}


def told(old: Object, new: Object) -> list[str]:
    return begun({(DEPLOYMENT, Key("models", "model-a")): old}, [new])


def pod(name: str, *, ago: float = 0, grace: int = 600, **fields: Any) -> Object:
    going = {"deletionTimestamp": timestamp(NOW + grace - ago), "deletionGracePeriodSeconds": grace}
    return {"metadata": {"name": name, "namespace": "models", "uid": name, **going, **fields}, "status": {}}


def test_a_rollout_is_told_with_what_changed_and_how_many_replicas_go() -> None:
    [text] = told(deployment("1"), deployment("2", image="vllm:2", args=["--model", "b"]))
    assert text == (
        "Deployment model-a: image of server, args of server changed."
        " 2 replicas of the old spec go as new ones become ready."
    )
    assert told(deployment("1", 1), deployment("2", 1))[0].startswith("Deployment model-a: its pods' template changed.")


@pytest.mark.parametrize(
    "strategy",
    [{"type": "Recreate"}, {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}}],
)
def test_without_surge_old_replicas_go_first(strategy: Object) -> None:
    new = deployment("2")
    new["spec"]["strategy"] = strategy
    assert told(deployment("1"), new)[0].endswith(" 2 replicas of the old spec go before new ones start.")


def test_nothing_is_said_of_replicas_where_none_are_wanted_any_more() -> None:
    assert told(deployment("1"), deployment("2", 0)) == ["Deployment model-a: its pods' template changed."]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (deployment("1", 2), deployment("1", 5)),
        (deployment("1", 0), deployment("2", 0)),
        (deployment("1", 0), deployment("2", 1)),
    ],
)
def test_a_change_of_scale_is_no_rollout_nor_is_one_without_pods(old: Object, new: Object) -> None:
    assert told(old, new) == []


def test_what_has_no_pods_of_its_own_rolls_nothing_out() -> None:
    service = {"kind": "Service", "metadata": {"name": "a", "namespace": "models"}, "spec": {"ports": []}}
    config = {"kind": "ConfigMap", "metadata": {"name": "a", "namespace": "models"}, "data": {}}
    assert begun({(SERVICE, Key("models", "a")): service}, [service, config, deployment("1")]) == []


def test_pods_that_begin_to_go_are_told_once_with_the_time_that_they_have() -> None:
    text, known = draining([pod("b"), pod("a")], frozenset(), NOW)
    assert text == "Pods a, b get no new requests, and have 600 s to finish their own."
    text, known = draining([pod("b"), pod("a"), pod("c", grace=30)], known, NOW)
    assert text == "Pod c gets no new requests, and has 30 s to finish its own."
    assert draining([pod("b"), pod("a"), pod("c")], known, NOW) == ("", known)


def test_many_pods_are_told_in_one_line() -> None:
    text, _known = draining([pod(str(number)) for number in range(5)], frozenset(), NOW)
    assert text.startswith("Pods 0, 1, 2 and 2 more get")


def test_what_began_long_ago_has_ended_or_is_no_engine_is_no_news() -> None:
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "load", "uid": "u", "controller": True}
    loader = pod("loader", ownerReferences=[owner])
    over = {**pod("over"), "status": {"phase": "Failed"}}
    stays = {"metadata": {"name": "stays", "namespace": "models", "uid": "stays"}, "status": {}}
    assert draining([pod("old", ago=90), loader, over, stays], frozenset(), NOW)[0] == ""


async def test_a_changed_spec_has_one_event_that_a_rollout_began(
    server, cluster, client, session, start, eventually, rest, monkeypatch
):
    seen: list[tuple[str, str]] = []
    monkeypatch.setattr(
        Recorder, "record", lambda _self, _kind, _obj, _type, reason, message: seen.append((reason, message))
    )
    async with controlled(KUBEAI, client, session, start, Settings(system_namespace="system")):
        await apply_kubeai_model(server, cluster)
        await eventually(lambda: cluster.find(DEPLOYMENT, OWN))
        await rest(lambda: len(server.writes))
        assert not [reason for reason, _message in seen if reason == "RolloutStarted"]
        await apply_kubeai_model(server, cluster, args=["--max-model-len=1024"])
        await eventually(lambda: [reason for reason, _message in seen if reason == "RolloutStarted"])
        await rest(lambda: len(server.writes))
    [message] = [message for reason, message in seen if reason == "RolloutStarted"]
    assert message.startswith("Deployment model-a: args of server changed. 1 replica of the old spec goes")


async def test_a_pod_that_begins_to_go_is_told_on_its_resource(server, cluster, parts, eventually, rest, monkeypatch):
    seen: list[tuple[str, str]] = []
    monkeypatch.setattr(
        Recorder, "record", lambda _self, _kind, _obj, _type, reason, message: seen.append((reason, message))
    )
    await cluster.config()
    await cluster.toy()
    await eventually(lambda: cluster.find(DEPLOYMENT))
    reference = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "a-1", "uid": "1", "controller": True}
    labels = {"app.kubernetes.io/managed-by": "slipway", "pod-template-hash": "1"}
    metadata = {"labels": labels, "ownerReferences": [reference], "uid": "p", "deletionGracePeriodSeconds": 600}
    metadata["deletionTimestamp"] = timestamp(time.time() + 600)
    await server.put(cluster.path(POD, "p"), kind="Pod", metadata=metadata)
    await eventually(lambda: [reason for reason, _message in seen if reason == "Draining"])
    parts.controller.queue.add(Key("models", "a"))
    await rest(lambda: len(server.log))
    told = [message for reason, message in seen if reason == "Draining"]
    assert told == ["Pod p gets no new requests, and has 600 s to finish its own."]
