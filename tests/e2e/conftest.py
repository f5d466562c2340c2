"""Fixtures for a cluster on which molecule/site has installed everything, with a model of each API."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cluster.cluster import Cluster
from tests.cluster.kubeai import KubeAI
from tests.cluster.llmkube import LLMKube
from tests.cluster.ome import OME


@pytest.fixture(scope="session")
def cluster(kubeconfig: str) -> Cluster:
    return Cluster(kubeconfig)


@pytest.fixture(scope="session")
def kubeai(kubeconfig: str) -> KubeAI:
    return KubeAI(kubeconfig)


@pytest.fixture(scope="session")
def llmkube(kubeconfig: str) -> LLMKube:
    return LLMKube(kubeconfig)


@pytest.fixture(scope="session")
def ome(kubeconfig: str) -> OME:
    return OME(kubeconfig)


@pytest.fixture
def namespace(cluster: Cluster) -> Iterator[str]:
    """A separate namespace for models of any API. Its deletion starts after the test and is not awaited."""
    name = cluster.namespace("e2e", restricted=False)
    yield name
    cluster.delete("Namespace", "", name)
