"""Fixtures for a cluster on which molecule/site has installed everything, with a model of each API."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cluster.cluster import Cluster
from tests.cluster.fixtures import cluster, kubeai, llmkube, ome

__all__ = ["cluster", "kubeai", "llmkube", "ome"]


@pytest.fixture
def namespace(cluster: Cluster) -> Iterator[str]:
    """A separate namespace for models of any API. Its deletion starts after the test and is not awaited."""
    name = cluster.namespace("e2e", restricted=False)
    yield name
    cluster.delete("Namespace", "", name)
