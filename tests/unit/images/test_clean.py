"""``make clean`` deletes the clusters, or reports why it cannot."""

from __future__ import annotations

from pathlib import Path

import pytest

from .conftest import IMAGES, Bench

SCRIPT = str(IMAGES.parent / "scripts/clean.sh")
DOCKER = """case "$*" in
  info) exit 0 ;;
  "ps --all --quiet --filter label=io.x-k8s.kind.cluster=slipway") printf 'a\\nb\\n' ;;
esac"""


@pytest.fixture
def kubeconfig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The demo's kubeconfig in a new home directory."""
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".kube").mkdir()
    file = tmp_path / ".kube/slipway.config"
    file.write_text("clusters:\n- cluster:\n    server: https://127.0.0.1:40000\n  name: kind-slipway\n")
    return file


def test_the_containers_of_a_cluster_and_its_kubeconfig_are_deleted(bench: Bench, kubeconfig: Path) -> None:
    bench.stand_in("docker", DOCKER)
    ended = bench.run(SCRIPT)
    assert (ended.returncode, ended.stdout) == (0, "slipway: deleted\n")
    assert [call for call in bench.calls if call.startswith("docker rm")] == ["docker rm --force --volumes a b"]
    assert not kubeconfig.exists()


def test_a_kubeconfig_with_other_clusters_is_kept(bench: Bench, kubeconfig: Path) -> None:
    bench.stand_in("docker", DOCKER)
    kubeconfig.write_text(f"{kubeconfig.read_text()}- cluster:\n    server: https://api.example.com\n  name: mine\n")
    assert bench.run(SCRIPT).returncode == 0
    assert kubeconfig.exists()


def test_a_kubeconfig_of_another_cluster_is_kept(bench: Bench, kubeconfig: Path) -> None:
    bench.stand_in("docker", "")
    kubeconfig.write_text("clusters:\n- cluster:\n    server: https://api.example.com\n  name: production\n")
    assert bench.run(SCRIPT).returncode == 0
    assert kubeconfig.exists()


def test_without_an_answer_from_docker_it_reports_that_clusters_remain(bench: Bench, kubeconfig: Path) -> None:
    bench.stand_in("docker", "exit 1")
    ended = bench.run(SCRIPT)
    assert (ended.returncode, ended.stdout) == (1, "")
    assert ended.stderr == (
        "error: Docker does not answer, so the clusters were not deleted. Start Docker, or run make clean"
        " as a user who may use it (group docker).\n"
    )
    assert kubeconfig.exists()
