"""Fixtures of the cluster tests: the cluster, and a namespace for each test, which is deleted in the background."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from .cluster import Cluster
from .fixtures import cluster, kubeai, llmkube, ome
from .kubeai import KubeAI
from .llmkube import LLMKube, Shelf
from .ome import OME

__all__ = ["cluster", "kubeai", "llmkube", "ome"]
SECONDS = 900
"""For a test whose own mark says nothing else."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Several waits, each with its patience, may take longer than a test without a cluster is given.

    Tests with a longer time limit come first: the others run in parallel.
    """
    for item in items:
        if item.path.parent == Path(__file__).parent:
            item.add_marker(pytest.mark.timeout(SECONDS))
    items.sort(key=lambda item: max((mark.args[0] for mark in item.iter_markers("timeout")), default=0) <= SECONDS)


@pytest.fixture
def new_namespace(cluster: Cluster) -> Iterator[Callable[[], str]]:
    """Makes namespaces; they are deleted after the test, without waiting for it."""
    namespaces: list[str] = []

    def make() -> str:
        namespaces.append(cluster.namespace())
        return namespaces[-1]

    yield make
    for name in namespaces:
        cluster.delete("Namespace", "", name)


@pytest.fixture
def namespace(new_namespace: Callable[[], str]) -> str:
    return new_namespace()


@pytest.fixture
def free_namespace(kubeai: KubeAI) -> Iterator[str]:
    """A separate namespace for KubeAI Models. It is deleted after the test, without waiting."""
    name = kubeai.namespace()
    yield name
    kubeai.delete("Namespace", "", name)


@pytest.fixture
def shared_volume(kubeai: KubeAI, free_namespace: str) -> Iterator[None]:
    """A volume for the namespace's cache. As on a network file system, only root may write at first."""
    name = kubeai.shared_volume(free_namespace)
    yield
    kubeai.delete("PersistentVolume", "", name)


@pytest.fixture
def llmkube_namespace(llmkube: LLMKube) -> Iterator[str]:
    """A separate namespace for LLMKube Models. It is deleted after the test, without waiting."""
    name = llmkube.namespace()
    yield name
    llmkube.delete("Namespace", "", name)


@pytest.fixture
def shelf(llmkube: LLMKube, llmkube_namespace: str) -> Shelf:
    """A file on the web that no other test asks for."""
    return Shelf(llmkube, llmkube_namespace)


@pytest.fixture
def ome_namespace(ome: OME) -> Iterator[str]:
    """A separate namespace for OME InferenceServices. It is deleted after the test, without waiting."""
    name = ome.namespace()
    yield name
    ome.delete("Namespace", "", name)
