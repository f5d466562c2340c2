"""What the tests of every folder share: the cluster that scripts/test.sh makes, and a skip where there is none."""

from __future__ import annotations

import os

import pytest


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "disruptive: takes the controller or the gateway away from other tests; runs alone"
    )
    config.addinivalue_line("markers", "plays: runs ansible-playbook, which takes many seconds of a processor")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("plays"):
            item.add_marker(pytest.mark.timeout(900))


@pytest.fixture(scope="session")
def kubeconfig() -> str:
    """Path of the test cluster's kubeconfig."""
    path = os.environ.get("SLIPWAY_TEST_KUBECONFIG", "")
    if not path:
        pytest.skip("needs a cluster: scripts/test.sh makes one and sets SLIPWAY_TEST_KUBECONFIG")
    return path


@pytest.fixture(scope="session")
def gateway_url(kubeconfig: str) -> str:
    """Where this machine reaches the test cluster's gateway, without ``/v1``."""
    return f"http://127.0.0.1:{os.environ.get('SLIPWAY_TEST_GATEWAY_PORT', '8080')}"
