"""The weights of a hub are copied to the nodes of a kind cluster once."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from .conftest import IMAGES, Bench

SCRIPT = str(IMAGES.parent / "scripts/hub_files.sh")
FILE = "acme/tiny/tiny.gguf"


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.gguf"
    path.write_bytes(b"weights")
    os.utime(path, (1_700_000_000, 1_700_000_000))
    return path


def cluster(bench: Bench, facts: str) -> None:
    """Two nodes, which have a file of these facts."""
    bench.stand_in(
        "docker",
        f"""case "$1 $3" in
          "ps "*) printf 'two\\none\\n' ;;
          "exec stat") printf '%s\\n' '{facts}' ;;
          *) cat > "{bench.folder}/copied" ;;
        esac""",
    )


def copies(bench: Bench) -> int:
    return sum(call.startswith("docker exec --interactive") for call in bench.calls)


@pytest.mark.parametrize("facts", ["", "6 1700000000", "7 1699999999"])
def test_a_file_that_a_node_lacks_or_has_in_another_version_is_copied(bench: Bench, source: Path, facts: str) -> None:
    cluster(bench, facts)
    ended = bench.run(SCRIPT, "slipway", f"{FILE}={source}")
    assert ended.stdout.splitlines() == [f"one: {FILE}: copied", f"two: {FILE}: copied"]
    assert copies(bench) == 2
    assert (bench.folder / "copied").read_bytes() == b"weights"


def test_a_file_that_a_node_has_is_left_alone(bench: Bench, source: Path) -> None:
    cluster(bench, "7 1700000000")
    ended = bench.run(SCRIPT, "slipway", f"{FILE}={source}")
    assert ended.stdout.splitlines() == [f"one: {FILE}: present", f"two: {FILE}: present"]
    assert copies(bench) == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["slipway"], "usage:"),
        (["slipway", "tiny.gguf"], "'tiny.gguf' is not REPOSITORY/FILE=SOURCE."),
        (["slipway", f"../{FILE}=/etc/hosts"], "is not REPOSITORY/FILE=SOURCE."),
        (["slipway", f"{FILE}=/nowhere"], "/nowhere cannot be read."),
        (["slipway", f"{FILE}=/etc/hosts"], "the kind cluster slipway is not running."),
    ],
)
def test_bad_input_ends_with_one_message(bench: Bench, arguments: list[str], message: str) -> None:
    bench.stand_in("docker", "true")
    ended = bench.run(SCRIPT, *arguments)
    assert ended.returncode == 1
    assert message in ended.stderr
    assert len(ended.stderr.splitlines()) == 1
