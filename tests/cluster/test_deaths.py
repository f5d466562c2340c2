"""Deaths of the controller and the gateway go unnoticed. These tests run alone, because they stop shared components."""

from __future__ import annotations

import random
import time
from collections.abc import Callable

import openai
import pytest

from .cluster import GATEWAY, PATIENCE, SYSTEM, Cluster, Object, observed, owners, site, unique, wait
from .load import Load

pytestmark = pytest.mark.disruptive

CONTROLLER = "app.kubernetes.io/name=slipway-controller"
KINDS = ("Deployment", "Service", "ServiceAccount")


def running(cluster: Cluster, labels: str) -> list[Object]:
    """The pods that are ready."""
    pods = [pod for pod in cluster.list("Pod", SYSTEM, labels) if "deletionTimestamp" not in pod["metadata"]]
    return [
        pod
        for pod in pods
        if any(
            condition["type"] == "Ready" and condition["status"] == "True"
            for condition in pod["status"].get("conditions", [])
        )
    ]


def restarts(cluster: Cluster, pod: str, container: str) -> int:
    live_pod = cluster.get("Pod", SYSTEM, pod)
    statuses: list[Object] = live_pod["status"].get("containerStatuses", []) if live_pod else []
    return next((status["restartCount"] for status in statuses if status["name"] == container), 0)


def both_gateways(cluster: Cluster) -> None:
    """Waits until both gateway pods are ready."""
    wait("two gateway pods", PATIENCE, lambda: running(cluster, GATEWAY), lambda pods: len(pods) == 2)


def kill_and_see_it_back(cluster: Cluster, pod: str, container: str, meanwhile: Callable[[], None]) -> None:
    """Kills a container and waits for its restart. Readiness is not enough: the kubelet reports deaths with a delay."""
    before = restarts(cluster, pod, container)
    cluster.kill(SYSTEM, pod, container)
    meanwhile()
    wait(f"{container} runs again", PATIENCE, lambda: restarts(cluster, pod, container), lambda count: count > before)
    both_gateways(cluster)


def test_a_controller_that_is_killed_at_any_time_leaves_nothing_half_done(cluster: Cluster, namespace: str) -> None:
    chance = random.Random(7)
    cluster.create(
        {"kind": "ResourceQuota", "metadata": {"name": "none", "namespace": namespace}, "spec": {"hard": {"pods": "1"}}}
    )
    names = [unique("killed") for _number in range(24)]
    for round_, name in enumerate(names):
        cluster.make_model(namespace, name)
        if round_ % 6 == 5:
            time.sleep(chance.uniform(0.0, 0.2))  # the moment of the death is what is varied here
            for pod in running(cluster, CONTROLLER):
                if round_ % 12 == 5:
                    cluster.kill(SYSTEM, pod["metadata"]["name"], "controller")
                else:
                    cluster.delete("Pod", SYSTEM, pod["metadata"]["name"], grace=0)

    def settled() -> dict[str, list[str]]:
        """Kind -> models of which it is missing, or whose status is old."""
        models = {model["metadata"]["name"]: model for model in cluster.list("Model", namespace)}
        uids = {
            kind: {child["metadata"]["name"]: owners(child) for child in cluster.list(kind, namespace)}
            for kind in KINDS
        }
        missing = {
            kind: [name for name in names if uids[kind].get(name) != [("Model", models[name]["metadata"]["uid"], True)]]
            for kind in KINDS
        }
        return missing | {"status": [name for name in names if not observed(models[name])]}

    wait("every model has its children and a status", PATIENCE, settled, lambda seen: not any(seen.values()))
    assert len(cluster.list("Deployment", namespace)) == len(names)
    assert len(cluster.list("Service", namespace)) == len(names)


def test_a_model_that_is_deleted_while_no_controller_lives_is_gone(cluster: Cluster, namespace: str) -> None:
    name = unique("orphan")
    cluster.make_model(namespace, name)
    cluster.wait_ready(namespace, name)
    for pod in running(cluster, CONTROLLER):
        cluster.kill(SYSTEM, pod["metadata"]["name"], "controller")
    cluster.delete("Model", namespace, name)
    wait("the children are gone", PATIENCE, lambda: cluster.children(namespace, name), lambda children: not children)


def test_a_gateway_pod_that_is_killed_costs_no_client_its_answer(
    cluster: Cluster, namespace: str, gateway_url: str
) -> None:
    """With the retries that OpenAI's client makes by itself."""
    name = unique("gateway")
    cluster.make_model(namespace, name)
    cluster.wait_ready(namespace, name)
    both_gateways(cluster)
    client = openai.OpenAI(base_url=f"{gateway_url}/v1", api_key="none", max_retries=5)

    def ask() -> bool:
        chat = [{"role": "user", "content": "hello"}]
        return bool(client.chat.completions.create(model=name, messages=chat, max_tokens=1).choices)

    wait("it answers", PATIENCE, ask)
    cluster.delete("Pod", SYSTEM, running(cluster, GATEWAY)[0]["metadata"]["name"], grace=0)
    assert all(ask() for _request in range(30))
    both_gateways(cluster)

    def keep_asking() -> None:
        assert all(ask() for _request in range(30))

    kill_and_see_it_back(cluster, running(cluster, GATEWAY)[0]["metadata"]["name"], "haproxy", keep_asking)


def test_a_dead_control_process_stops_no_request(cluster: Cluster, namespace: str, gateway_url: str) -> None:
    name = unique("control")
    cluster.make_model(namespace, name)
    cluster.wait_ready(namespace, name)
    both_gateways(cluster)
    with Load(gateway_url, name) as load:
        # One after another: a pod whose process is away is unready, and with none ready no connection is let in.
        for pod in running(cluster, GATEWAY):
            kill_and_see_it_back(cluster, pod["metadata"]["name"], "control", lambda: load.more(30))
    assert load.failures == []


END_CONTROL = """
import os, time
while not (found := open("/proc/1/task/1/children").read().split()):
    time.sleep(0.1)
os.kill(int(found[0]), 9)
"""


def test_a_control_process_that_dies_below_its_supervisor_leaves_the_pods_ready(
    cluster: Cluster, namespace: str, gateway_url: str
) -> None:
    """In all gateways at once, as an object of the cluster that it cannot bear would have it."""
    name = unique("supervised")
    cluster.make_model(namespace, name)
    cluster.wait_ready(namespace, name)
    both_gateways(cluster)
    pods = [pod["metadata"]["name"] for pod in running(cluster, GATEWAY)]
    before = [restarts(cluster, pod, "control") for pod in pods]
    with Load(gateway_url, name) as load:
        for _unused in range(2):
            for pod in pods:
                cluster.kubectl(
                    *("exec", "--namespace", SYSTEM, pod, "--container", "control", "--", "python3", "-c", END_CONTROL)
                )
            assert len(running(cluster, GATEWAY)) == 2
            load.more(30)
    assert load.failures == []
    assert [restarts(cluster, pod, "control") for pod in pods] == before


def test_keys_are_turned_on_and_off_without_a_lost_request(cluster: Cluster, namespace: str, gateway_url: str) -> None:
    name = unique("keys")
    cluster.make_model(namespace, name)
    cluster.wait_ready(namespace, name)
    chat = [{"role": "user", "content": "hello"}]
    with Load(gateway_url, name, clients=1, headers={"Authorization": "Bearer key-of-the-tests"}) as load:
        try:
            site("--tags", "gateway", "-e", '{"gateway_api_keys": {"tests": "key-of-the-tests"}}')
            load.more(10)
            stranger = openai.OpenAI(base_url=f"{gateway_url}/v1", api_key="wrong", max_retries=0)
            with pytest.raises(openai.AuthenticationError):
                stranger.chat.completions.create(model=name, messages=chat)
            with pytest.raises(openai.AuthenticationError):
                stranger.models.list()
            cluster.patch("Secret", SYSTEM, "slipway-gateway", {"stringData": {"two": "wrong"}})
            wait("a second key is known, without a restart", PATIENCE, lambda: works(stranger, name))
        finally:
            site("--tags", "gateway")
        load.more(10)
    assert load.failures == []


def works(client: openai.OpenAI, model: str) -> bool:
    try:
        client.chat.completions.create(model=model, messages=[{"role": "user", "content": "hello"}], max_tokens=1)
    except openai.AuthenticationError:
        return False
    return True
