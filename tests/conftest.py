"""Shared by all tests: the test cluster, a skip if there is none, markers, and the order of test files."""

from __future__ import annotations

import gc
import json
import os
import ssl
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

HERE = Path(__file__).parent
DURATIONS = HERE / "durations.json"
"""Seconds of each slow test file; scripts/durations.py writes it."""


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "disruptive: takes the controller or the gateway away from other tests; runs alone"
    )
    config.addinivalue_line("markers", "plays: runs ansible-playbook, which takes many seconds of a processor")
    config.addinivalue_line("markers", "full: only its lane runs it; CI runs the rest of the file as a sample")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None]:
    """Collects without garbage collection: thousands of tests with their tables stay, and each run looked at all."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("plays"):
            item.add_marker(pytest.mark.timeout(900))
    longest_first(items)


def longest_first(items: list[pytest.Item]) -> None:
    """Starts slow files first, so that no worker ends late. Hooks of the folders run later and win."""
    seconds: dict[str, float] = json.loads(DURATIONS.read_text()) if DURATIONS.exists() else {}
    items.sort(key=lambda item: -seconds.get(name_of(item.path), 0.0))


def name_of(path: Path) -> str:
    """The path from the top of the checkout, as in the list of durations."""
    return path.relative_to(HERE.parent).as_posix() if path.is_relative_to(HERE.parent) else str(path)


@pytest.fixture(scope="session", autouse=True)
def no_public_authorities() -> Iterator[None]:
    """To read the certificates of all public CAs takes longer than most tests. No test connects to a public server."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ssl.SSLContext, "load_default_certs", lambda *_unused: None)
        yield


@pytest.fixture(scope="session")
def kubeconfig() -> str:
    """Path of the test cluster's kubeconfig."""
    path = os.environ.get("SLIPWAY_TEST_KUBECONFIG", "")
    if not path:
        pytest.skip("needs a cluster: run scripts/cluster.sh make, and evaluate what scripts/cluster.sh env prints")
    return path


@pytest.fixture(scope="session")
def gateway_url(kubeconfig: str) -> str:
    """Where this machine reaches the test cluster's gateway, without ``/v1``."""
    return f"http://127.0.0.1:{os.environ.get('SLIPWAY_TEST_GATEWAY_PORT', '8080')}"
