"""Roles use filters of the collection: their tests import them as Ansible does."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ..plugins.importable import make_importable
from .cluster_api import ClusterApi

make_importable()


@pytest.fixture
def api() -> Iterator[ClusterApi]:
    """An API server that roles can be run against."""
    server = ClusterApi()
    yield server
    server.stop()
