"""`scripts/docker.sh` starts Docker, and takes away the one that it installed and no other."""

from __future__ import annotations

from pathlib import Path

import pytest

from .conftest import IMAGES, Bench

SCRIPT = str(IMAGES.parent / "scripts/docker.sh")


@pytest.fixture
def etc(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine's /etc. No real package is touched and no process ended."""
    folder = bench.folder / "etc"
    for part in ("apt/sources.list.d", "apt/preferences.d"):
        (folder / part).mkdir(parents=True)
    monkeypatch.setenv("SLIPWAY_ETC", str(folder))
    monkeypatch.delenv("DOCKER_HOST", raising=False)
    bench.stand_in("id", "echo 0")
    bench.stand_in("apt-get", "")
    bench.stand_in("pkill", "")
    bench.stand_in("systemctl", "")
    return folder


def test_a_foreign_docker_installation_is_not_removed(bench: Bench, etc: Path) -> None:
    ended = bench.run(SCRIPT, "--remove")

    assert ended.returncode == 1
    assert "has not installed Docker on this machine" in ended.stderr
    assert not [call for call in bench.calls if call.startswith("apt-get")]


def test_docker_that_was_installed_for_the_demo_is_taken_away_whole(bench: Bench, etc: Path) -> None:
    before = sorted(etc.rglob("*"))
    (etc / "slipway-docker.packages").write_text("docker.io\ndocker-cli\n")
    (etc / "apt/sources.list.d/slipway-docker.sources").touch()
    (etc / "apt/preferences.d/slipway-docker").touch()

    removed = bench.run(SCRIPT, "--remove")

    assert removed.returncode == 0, removed.stderr
    assert sorted(etc.rglob("*")) == before
    (removal,) = [call for call in bench.calls if call.startswith("apt-get")]
    assert removal.startswith("apt-get remove")
    assert removal.endswith(" docker.io docker-cli")


def test_the_log_of_a_daemon_that_ends_at_once_is_shown(
    bench: Bench, etc: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLIPWAY_DOCKERD_LOG", str(bench.folder / "dockerd.log"))
    bench.stand_in("docker", "exit 1")
    bench.stand_in("dockerd", "echo no iptables here")
    bench.stand_in("setsid", 'shift; "$@"')
    bench.stand_in("systemctl", "dockerd > $SLIPWAY_DOCKERD_LOG")
    bench.stand_in("pgrep", "exit 1")

    ended = bench.run(SCRIPT)

    assert ended.returncode == 1
    assert "no iptables here" in ended.stderr
    assert "does not answer" in ended.stderr
