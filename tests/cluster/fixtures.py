"""Fixtures of all tests on a cluster with Slipway installed. A conftest.py imports those that its tests use."""

from __future__ import annotations

import pytest

from .cluster import Cluster
from .kubeai import KubeAI
from .llmkube import LLMKube
from .ome import OME


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
