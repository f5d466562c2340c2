"""``kubectl wait`` works for sleeping models; tests/e2e covers all others."""

from __future__ import annotations

from .cluster import PATIENCE, Cluster, condition, unique
from .kubeai import KubeAI


def wait_for(cluster: Cluster, namespace: str, resource: str, what: str) -> None:
    """``what``: such as ``Ready``, or ``Stalled=False``."""
    cluster.kubectl(
        "wait", "--namespace", namespace, resource, f"--for=condition={what}", f"--timeout={int(PATIENCE)}s"
    )


def test_a_model_that_sleeps(kubeai: KubeAI, free_namespace: str) -> None:
    name = unique("asleep")
    kubeai.make_model(free_namespace, name, minReplicas=0)
    wait_for(kubeai, free_namespace, f"models.kubeai.org/{name}", "Ready")
    wait_for(kubeai, free_namespace, f"models.kubeai.org/{name}", "Reconciling=False")
    assert condition(kubeai.model(free_namespace, name), "Available")["reason"] == "ScaledToZero"
