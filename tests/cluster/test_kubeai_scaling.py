"""Replicas follow requests: from none, up, never past their bounds, and back."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime

import pytest

from .cluster import PATIENCE, SYSTEM, Object, holds, unique, wait
from .kubeai import MODEL, KubeAI, chat
from .load import Load

LOAD_SECONDS = 2.0
"""How long the engine of the test takes to start."""


def replicas(kubeai: KubeAI, namespace: str, name: str) -> int:
    count: int = kubeai.model(namespace, name)["spec"].get("replicas", 0)
    return count


def test_the_first_request_starts_a_model_and_is_served(
    kubeai: KubeAI, free_namespace: str, gateway_url: str, record_property: Callable[[str, object], None]
) -> None:
    name = unique("zero")
    kubeai.make_model(
        free_namespace,
        name,
        minReplicas=0,
        maxReplicas=2,
        scaleDownDelaySeconds=10,  # its pod is looked at before it goes
        env={"STANDIN_LOAD_SECONDS": str(LOAD_SECONDS)},
    )
    model = kubeai.wait_ready(free_namespace, name)
    assert (model["spec"]["replicas"], kubeai.pods(free_namespace, name)) == (0, [])
    kubeai.wait_routed(free_namespace, name)
    sent = time.time()
    answer = chat(gateway_url, name, stream=True)
    answered = time.time()
    assert answer.status == 200
    [pod] = kubeai.pods(free_namespace, name)
    log = kubeai.kubectl("logs", "--timestamps", "--namespace", free_namespace, pod["metadata"]["name"], "server")
    listening = next(line.split()[0] for line in log.splitlines() if "Started server" in line)
    after = answered - datetime.fromisoformat(listening).timestamp()
    record_property("seconds", f"in all {answered - sent:.2f}, from the engine's start to the answer {after:.2f}")
    print(f"in all {answered - sent:.2f} s, from the engine's start to the answer {after:.2f} s")
    kubeai.wait_replicas(free_namespace, name, 0)


def test_a_burst_brings_all_the_replicas_that_are_allowed(
    kubeai: KubeAI, free_namespace: str, gateway_url: str
) -> None:
    name = unique("burst")
    kubeai.make_model(
        free_namespace,
        name,
        minReplicas=1,
        maxReplicas=3,
        targetRequests=1,
        scaleDownDelaySeconds=1,
        env={"STANDIN_DECODE_SECONDS": "0.5"},
    )
    kubeai.wait_ready(free_namespace, name)
    kubeai.wait_routed(free_namespace, name)
    seen: list[int] = []

    def reached(count: int) -> bool:
        seen.append(count)
        return count == 3

    with Load(gateway_url, name, clients=8) as load:
        wait("three replicas", PATIENCE, lambda: replicas(kubeai, free_namespace, name), reached)
        # Eight clients need the maximum number of replicas. The autoscaler's unit tests cover the timing of scale-down.
        for _answer in range(10):
            load.more(8)
            seen.append(replicas(kubeai, free_namespace, name))
    assert load.failures == []
    assert max(seen) == 3, "no more than three"
    kubeai.wait_replicas(free_namespace, name, 1)


def test_a_person_who_scales_is_held_to_the_bounds(kubeai: KubeAI, free_namespace: str) -> None:
    name = unique("bounds")
    kubeai.make_model(free_namespace, name, minReplicas=1, maxReplicas=2, scaleDownDelaySeconds=600)
    kubeai.wait_ready(free_namespace, name)
    for target, held in ((2, 2), (5, 2), (0, 1)):
        kubeai.kubectl("scale", "--namespace", free_namespace, f"models.kubeai.org/{name}", f"--replicas={target}")
        kubeai.wait_replicas(free_namespace, name, held)


def test_without_autoscaling_replicas_are_the_users(kubeai: KubeAI, free_namespace: str, gateway_url: str) -> None:
    name = unique("manual")
    kubeai.make_model(free_namespace, name, autoscalingDisabled=True, minReplicas=0, replicas=0)
    kubeai.wait_ready(free_namespace, name)
    kubeai.wait_routed(free_namespace, name)
    with Load(gateway_url, name, clients=1, held=True) as load:
        wait("the gateway holds the request", PATIENCE, lambda: kubeai.waiting(free_namespace, f"model-{name}") == 1)
        holds("no replica starts", 3, lambda: replicas(kubeai, free_namespace, name), lambda count: count == 0)
        assert (load.answered, load.failures) == (0, [])
        kubeai.change_model(free_namespace, name, replicas=2)
        kubeai.wait_replicas(free_namespace, name, 2)
        load.more(1)
    assert load.failures == []
    holds("no busy replica is removed", 8, lambda: replicas(kubeai, free_namespace, name), lambda count: count == 2)


@pytest.mark.disruptive
def test_a_controller_that_is_replaced_under_load_takes_no_replica_away(
    kubeai: KubeAI, free_namespace: str, gateway_url: str
) -> None:
    name = unique("restart")
    kubeai.make_model(
        free_namespace,
        name,
        minReplicas=0,
        maxReplicas=3,
        targetRequests=1,
        scaleDownDelaySeconds=0,
        env={"STANDIN_DECODE_SECONDS": "0.2"},
    )
    kubeai.wait_ready(free_namespace, name)
    kubeai.wait_routed(free_namespace, name)
    with Load(gateway_url, name, clients=4) as load:
        kubeai.wait_replicas(free_namespace, name, 3)
        for pod in kubeai.list("Pod", SYSTEM, "app.kubernetes.io/name=slipway-controller"):
            kubeai.delete("Pod", SYSTEM, pod["metadata"]["name"])

        def spec(model: Object) -> bool:
            return bool(model["spec"]["replicas"] == 3)

        holds("three replicas", 20, lambda: kubeai.model(free_namespace, name), spec)
        load.more(10)
    assert load.failures == []
    kubeai.wait_replicas(free_namespace, name, 0)
    assert kubeai.get(MODEL, free_namespace, name)
