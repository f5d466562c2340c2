"""LLMKube services scale on CPU, measured by the real metrics-server, and on requests, reported by llama.cpp.

Kubernetes' own autoscaler takes a replica away only after some time without need: five minutes by itself, half a minute
in the test cluster (up.yml). Both are looked at together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from .cluster import PATIENCE, Object, holds, unique, wait
from .llmkube import LLMKube
from .load import Load

UP_SECONDS = 360.0
"""Metrics arrive every 15 seconds and must be stable for 30; then a replica must start on a busy machine."""
DOWN_SECONDS = 360.0
"""Half a minute of rest, after metrics that may be a minute old, on a busy machine."""
CPU = {"type": "Resource", "name": "cpu", "targetAverageUtilization": 100}
METRICS = Path(__file__).parent / "custom_metrics.yml"
METRICS_API = "v1beta2.custom.metrics.k8s.io"


@pytest.fixture
def custom_metrics(llmkube: LLMKube, llmkube_namespace: str) -> Iterator[None]:
    """The custom metrics API for the namespace of the test. It is deleted before the namespace: an
    API that does not answer would block the deletion of every namespace."""
    llmkube.kubectl("apply", "-f", "-", stdin=METRICS.read_text().replace("TESTS", llmkube_namespace))
    available = ("--for=condition=Available", f"--timeout={int(PATIENCE)}s")
    try:
        llmkube.kubectl("wait", f"apiservices/{METRICS_API}", *available)
        yield
    finally:
        llmkube.kubectl("delete", "apiservice", METRICS_API, "--ignore-not-found")


def prepare(llmkube: LLMKube, namespace: str) -> None:
    """A Model, and a namespace whose containers leave other tests something of two cores."""
    limit = {"type": "Container", "default": {"cpu": "250m"}, "defaultRequest": {"cpu": "5m"}}
    metadata = {"name": "cores", "namespace": namespace}
    llmkube.create({"kind": "LimitRange", "metadata": metadata, "spec": {"limits": [limit]}})
    llmkube.make_model(namespace, "tiny")


def make(llmkube: LLMKube, namespace: str, prefix: str, **spec: Any) -> str:
    """A service on llama.cpp with four slots, whose replicas share no volume; returns its name."""
    name = unique(prefix)
    settings: Object = {
        "resources": {"cpu": "50m", "memory": "64Mi"},
        "modelCache": {"persistence": "Ephemeral"},
        "parallelSlots": 4,
        "extraArgs": ["--threads", "1"],
    }
    llmkube.make_service(namespace, name, "tiny", **settings, **spec)
    return name


def replicas(llmkube: LLMKube, namespace: str, name: str) -> int:
    """Returns the desired replicas in the Deployment."""
    deployment = llmkube.get("Deployment", namespace, name)
    assert deployment, f"no Deployment {namespace}/{name}"
    count: int = deployment["spec"]["replicas"]
    return count


def wait_count(llmkube: LLMKube, namespace: str, name: str, count: int, seconds: float) -> None:
    """Waits until this number of replicas is desired, and all of them answer."""

    def look() -> Object:
        return {
            "service": llmkube.service(namespace, name).get("status"),
            "deployment": replicas(llmkube, namespace, name),
            "autoscaler": (llmkube.get("HorizontalPodAutoscaler", namespace, name) or {}).get("status"),
        }

    def reached(seen: Object) -> bool:
        status = seen["service"] or {}
        return (seen["deployment"], status.get("replicas"), status.get("readyReplicas")) == (count, count, count)

    wait(f"{name} has {count} replicas", seconds, look, reached)


def writers_of_replicas(llmkube: LLMKube, namespace: str, name: str) -> set[str]:
    """Returns the field manager that owns the number of replicas in the Deployment."""
    deployment = llmkube.get("Deployment", namespace, name)
    assert deployment
    written = deployment["metadata"]["managedFields"]
    return {entry["manager"] for entry in written if "f:replicas" in entry["fieldsV1"].get("f:spec", {})}


@pytest.mark.timeout(2000)
@pytest.mark.usefixtures("custom_metrics")
def test_replicas_follow_cpu_and_requests_up_and_down_again(
    llmkube: LLMKube, llmkube_namespace: str, gateway_url: str
) -> None:
    namespace = llmkube_namespace
    prepare(llmkube, namespace)
    by_cpu = make(llmkube, namespace, "cpu", autoscaling={"minReplicas": 1, "maxReplicas": 2, "metrics": [CPU]})
    by_requests = make(llmkube, namespace, "requests", autoscaling={"maxReplicas": 2})
    both = (by_cpu, by_requests)
    for name in both:
        llmkube.wait_serving(namespace, name)
        assert replicas(llmkube, namespace, name) == 1
    llmkube.wait_routed(namespace, *both)
    with ExitStack() as stack:
        # Three long requests at a time, so that each sample shows more than two in-flight requests per replica.
        endless = {"max_tokens": 900, "ignore_eos": True}
        loads = [
            stack.enter_context(Load(gateway_url, by_cpu, clients=1, settings=endless)),
            stack.enter_context(Load(gateway_url, by_requests, clients=4, settings=endless)),
        ]
        for name in both:
            wait_count(llmkube, namespace, name, 2, UP_SECONDS)
        holds(
            "the autoscaler's number stays",
            20,
            lambda: [replicas(llmkube, namespace, name) for name in both],
            lambda counts: counts == [2, 2],
        )
    assert [load.failures for load in loads] == [[], []]
    for name in both:
        assert "slipway" not in "".join(writers_of_replicas(llmkube, namespace, name))
        wait_count(llmkube, namespace, name, 1, DOWN_SECONDS)


@pytest.mark.timeout(2000)
def test_a_person_the_autoscaler_and_the_controller_do_not_fight(llmkube: LLMKube, llmkube_namespace: str) -> None:
    namespace = llmkube_namespace
    prepare(llmkube, namespace)
    name = make(llmkube, namespace, "held", autoscaling={"minReplicas": 1, "maxReplicas": 3, "metrics": [CPU]})
    llmkube.wait_serving(namespace, name)
    wait(
        "the autoscaler knows how much its pods use",
        UP_SECONDS,
        lambda: llmkube.get("HorizontalPodAutoscaler", namespace, name) or {},
        knows,
    )

    # More than the load needs: the autoscaler removes them one by one, and they stay removed.
    llmkube.kubectl("scale", "--namespace", namespace, f"deployment/{name}", "--replicas=2")
    wait_count(llmkube, namespace, name, 1, DOWN_SECONDS)
    steady(llmkube, namespace, name, lambda: replicas(llmkube, namespace, name) == 1)

    # Where a service begins says nothing about where it is.
    scale(llmkube, namespace, name, 3)
    steady(llmkube, namespace, name, lambda: replicas(llmkube, namespace, name) == 1)

    # None at all is the person's to say, and to take back.
    scale(llmkube, namespace, name, 0)
    llmkube.wait_phase(namespace, name, "Stopped")
    steady(llmkube, namespace, name, lambda: replicas(llmkube, namespace, name) == 0)
    scale(llmkube, namespace, name, 1)
    llmkube.wait_serving(namespace, name)

    # Without an autoscaler the number is the person's again.
    llmkube.change_service(namespace, name, autoscaling=None)
    llmkube.wait_gone("HorizontalPodAutoscaler", namespace, name)
    scale(llmkube, namespace, name, 2)
    wait_count(llmkube, namespace, name, 2, UP_SECONDS)


def knows(autoscaler: Object) -> bool:
    conditions = autoscaler.get("status", {}).get("conditions") or []
    return any((condition["type"], condition["status"]) == ("ScalingActive", "True") for condition in conditions)


def scale(llmkube: LLMKube, namespace: str, name: str, count: int) -> None:
    kind = "inferenceservices.inference.llmkube.dev"
    llmkube.kubectl("scale", "--namespace", namespace, f"{kind}/{name}", f"--replicas={count}")


def steady(llmkube: LLMKube, namespace: str, name: str, good: Callable[[], bool]) -> None:
    """Fails the test if any client writes another number, even if it is reverted immediately."""

    def generation() -> int:
        deployment = llmkube.get("Deployment", namespace, name)
        assert deployment
        number: int = deployment["metadata"]["generation"]
        return number

    begun = generation()
    holds("the number stays", 20, lambda: (good(), generation()), lambda seen: seen == (True, begun))
