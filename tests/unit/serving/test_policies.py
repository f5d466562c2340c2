"""What Kubernetes itself is asked to do for a server."""

from __future__ import annotations

from typing import Any

import pytest

from slipway.kube.objects import Object
from slipway.serving.containers.drain import Drain
from slipway.serving.contract.settings import Settings
from slipway.serving.pods.policies import Target, autoscaler, disruption_budget, priority_class
from slipway.serving.pods.server import Container, ModelServer, Probe, Probes, Scale

PROBE = Probe(path="/health", period=1, timeout=1, failures=3)
SERVER = ModelServer(
    name="tiny",
    namespace="models",
    labels={"app": "tiny", "model": "m"},
    selector={"app": "tiny"},
    engine=Container(name="engine", image="engine:1"),
    port=8080,
    probes=Probes(PROBE, PROBE, PROBE),
    drain=Drain(seconds=15),
)


@pytest.mark.parametrize(
    ("target", "metric"),
    [
        (
            Target("Pods", "queue", "2"),
            {"pods": {"metric": {"name": "queue"}, "target": {"type": "AverageValue", "averageValue": "2"}}},
        ),
        (
            Target("Resource", "cpu", "80"),
            {"resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}}},
        ),
    ],
)
def test_an_autoscaler_scales_the_servers_deployment_slowly_down_and_not_wildly_up(
    target: Target, metric: Object
) -> None:
    manifest: dict[str, Any] = autoscaler(SERVER, 1, 4, (target,))
    spec = manifest["spec"]
    assert manifest["metadata"] == {"name": "tiny", "namespace": "models", "labels": dict(SERVER.labels)}
    assert spec["scaleTargetRef"] == {"apiVersion": "apps/v1", "kind": "Deployment", "name": "tiny"}
    assert spec["metrics"] == [{"type": target.type, **metric}]
    down = spec["behavior"]["scaleDown"]
    assert (down["stabilizationWindowSeconds"], down["policies"][0]["value"]) == (300, 1)
    assert spec["behavior"]["scaleUp"]["stabilizationWindowSeconds"] > 0


@pytest.mark.parametrize(("protected", "unavailable"), [(True, 0), (False, 1)])
def test_a_budget_keeps_pods_that_serve_and_lets_the_others_go(protected: bool, unavailable: int) -> None:
    [budget] = disruption_budget(SERVER, Scale(2), Settings(), protected=protected)
    spec = budget["spec"]
    assert spec["selector"] == {"matchLabels": {"app": "tiny"}}
    assert spec["maxUnavailable"] == unavailable
    assert spec["unhealthyPodEvictionPolicy"] == "AlwaysAllow"


@pytest.mark.parametrize(("replicas", "budgets"), [(0, 0), (1, 0), (2, 1), (None, 1)])
def test_a_single_pod_needs_no_budget_unless_it_is_protected(replicas: int | None, budgets: int) -> None:
    assert len(disruption_budget(SERVER, Scale(replicas), Settings())) == budgets
    assert len(disruption_budget(SERVER, Scale(replicas), Settings(), protected=True)) == 1


def test_if_pods_have_foreign_budgets_only_a_protected_server_gets_ours() -> None:
    """Two budgets for a pod would block its eviction indefinitely."""
    others = Settings(disruption_budgets=False)
    assert disruption_budget(SERVER, Scale(2), others) == ()
    assert len(disruption_budget(SERVER, Scale(2), others, protected=True)) == 1


@pytest.mark.parametrize("limit", [{"minAvailable": "50%"}, {"maxUnavailable": 2}])
def test_a_budget_says_what_the_spec_says_even_of_one_pod(limit: Object) -> None:
    for settings in (Settings(), Settings(disruption_budgets=False)):
        [budget] = disruption_budget(SERVER, Scale(1), settings, limit=limit)
        assert {name: budget["spec"].get(name) for name in ("minAvailable", "maxUnavailable")} == {
            "minAvailable": None,
            "maxUnavailable": None,
            **limit,
        }


@pytest.mark.parametrize(("preempts", "policy"), [(True, "PreemptLowerPriority"), (False, "Never")])
def test_a_priority_class_is_cluster_scoped_and_never_the_default(preempts: bool, policy: str) -> None:
    manifest = priority_class("first", 7, "Before others.", preempts=preempts)
    assert manifest["metadata"] == {"name": "first"}
    assert (manifest["value"], manifest["globalDefault"], manifest["preemptionPolicy"]) == (7, False, policy)
