"""The demo's port is looked at before anything is built."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from .conftest import IMAGES, Bench

SCRIPT = str(IMAGES.parent / "scripts/port.sh")


@pytest.fixture
def taken() -> Iterator[int]:
    """A port on which something listens."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


def settings(folder: Path, port: int) -> str:
    (folder / "demo.yml").write_text(f"gateway_replicas: 2\nlocal_cluster_gateway_port: {port}\n")
    return str(folder / "demo.yml")


def test_a_port_in_use_ends_the_script(bench: Bench, tmp_path: Path, taken: int) -> None:
    bench.stand_in("docker", "echo '127.0.0.1:1->30080/tcp'")
    ended = bench.run(SCRIPT, settings(tmp_path, taken))
    assert ended.returncode == 1
    assert f"error: port {taken} on 127.0.0.1 is in use" in ended.stderr
    assert "local_cluster_gateway_port" in ended.stderr


def test_the_demos_own_cluster_may_have_it(bench: Bench, tmp_path: Path, taken: int) -> None:
    bench.stand_in("docker", f"echo '127.0.0.1:{taken}->30080/tcp'")
    assert bench.run(SCRIPT, settings(tmp_path, taken)).returncode == 0


def test_a_free_port_is_fine_where_there_is_no_docker_yet(bench: Bench, tmp_path: Path) -> None:
    bench.stand_in("docker", "exit 127")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    assert bench.run(SCRIPT, settings(tmp_path, port)).returncode == 0


def test_a_missing_variables_file_is_reported(bench: Bench) -> None:
    assert "VARS: the file 'nowhere.yml' does not exist or is not readable." in bench.run(SCRIPT, "nowhere.yml").stderr
