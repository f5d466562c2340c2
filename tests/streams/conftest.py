"""Fixtures: the cluster that scripts/streams.sh has created, and a namespace for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.cluster import Cluster
from tests.cluster.fixtures import cluster

__all__ = ["cluster"]
SECONDS = 1500
"""For a test: its streams alone take minutes."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.parent == Path(__file__).parent:
            item.add_marker(pytest.mark.timeout(SECONDS))


@pytest.fixture
def namespace(cluster: Cluster) -> Iterator[str]:
    """Its deletion starts after the test and is not awaited."""
    name = cluster.namespace("streams")
    yield name
    cluster.delete("Namespace", "", name)
