"""The role's metrics-server answers, and the role leaves a foreign installation alone."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from .cluster import PATIENCE, SYSTEM, Cluster, site, wait

API = "v1beta1.metrics.k8s.io"
OURS = "app.kubernetes.io/part-of"


@pytest.fixture
def of_another(cluster: Cluster) -> Iterator[None]:
    """The registration looks like a foreign one. The registered server continues to run."""
    cluster.kubectl("label", "apiservice", API, f"{OURS}-")
    yield
    cluster.kubectl("label", "apiservice", API, f"{OURS}=slipway", "--overwrite")


def test_metrics_server_reports_the_usage_of_nodes_and_pods(cluster: Cluster) -> None:
    wait(
        "there are metrics of the node",
        PATIENCE,
        lambda: top(cluster, "nodes"),
        lambda shown: re.search(r"-control-plane +\d+m ", shown) is not None,
    )
    wait(
        "there are metrics of the gateway",
        PATIENCE,
        lambda: top(cluster, "pods", "--namespace", SYSTEM),
        lambda shown: "slipway-gateway" in shown,
    )


def top(cluster: Cluster, *what: str) -> str:
    """The output; empty as long as kubectl fails because there are no metrics yet."""
    try:
        return cluster.kubectl("top", *what)
    except AssertionError:
        return ""


def test_a_person_who_may_look_at_pods_may_look_at_what_they_use(cluster: Cluster) -> None:
    person = ("--as=viewer", "--as-group=viewers")
    rules = cluster.kubectl("get", "clusterrole", "view", "--output=jsonpath={.rules}")
    assert "metrics.k8s.io" in rules
    assert cluster.kubectl("auth", "can-i", "list", "pods.metrics.k8s.io", "--quiet") == ""
    with pytest.raises(AssertionError):
        cluster.kubectl("auth", "can-i", "list", "pods.metrics.k8s.io", *person)


def test_a_second_run_changes_nothing(cluster: Cluster) -> None:
    assert re.search(r"changed=0 .* failed=0", site("--tags", "metrics_server"))


@pytest.mark.disruptive
@pytest.mark.usefixtures("of_another")
def test_if_a_foreign_one_serves_it_is_named_and_nothing_is_installed(cluster: Cluster) -> None:
    shown = site("--tags", "metrics_server")
    assert (
        f"{API} is already served by Service slipway-metrics-server in namespace {SYSTEM}, so nothing was installed"
        in " ".join(shown.split())
    )
    assert re.search(r"changed=0 .* failed=0", shown)
    labels = cluster.kubectl("get", "apiservice", API, "--output=jsonpath={.metadata.labels}")
    assert OURS not in labels
