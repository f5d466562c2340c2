"""A build that cannot succeed fails early with one clear message, and leaves nothing behind."""

from __future__ import annotations

import fcntl
import os
import re
import signal
import subprocess
from pathlib import Path

import pytest

from .conftest import IMAGES, Bench, until

BUILD = f"{IMAGES}/closed-network/build.sh"
LIB = f"{IMAGES}/closed-network/lib.sh"
# A Docker that responds but has no images.
EMPTY = "[[ $1 != image && $1 != pull ]]"


def errors(ended: subprocess.CompletedProcess[str]) -> list[str]:
    return [line for line in ended.stderr.splitlines() if line.startswith("error: ")]


# ---- a held lock ---------------------------------------------------------------------------------------------------


def test_a_held_lock_is_reported_with_its_time_before_anything_starts(bench: Bench) -> None:
    bench.stand_in("docker", "")
    bench.cache.mkdir()
    printed = bench.folder / "printed"
    with (bench.cache / "lock").open("w") as lock, printed.open("w") as output:
        fcntl.flock(lock, fcntl.LOCK_EX)
        lock.write("since 14:03, process 7: build.sh\n")
        lock.flush()
        waiting = bench.start("bash", "-c", f'source "{LIB}"; open_cache; say started', stdout=output)
        message = f"another build is using {bench.cache} (since 14:03, process 7: build.sh), waiting\n"
        until(lambda: printed.read_text() == message)
        fcntl.flock(lock, fcntl.LOCK_UN)
        assert waiting.wait(60) == 0
    assert printed.read_text().endswith("waiting\nstarted\n")


def test_the_lock_names_its_holder_and_the_time(bench: Bench) -> None:
    ended = bench.script('cat "$CACHE/lock"; echo "$$"')

    line, process = ended.stdout.splitlines()
    assert re.fullmatch(rf"since \d\d:\d\d, process {process}: bash", line)


def test_the_demo_waits_for_another_build_before_its_playbook(bench: Bench) -> None:
    root = IMAGES.parent
    dry_run = bench.run("make", "--directory", str(root), "--dry-run", "demo", "TAGS=gateway")
    before, _playbook, _after = dry_run.stdout.partition("ansible-playbook playbooks/demo.yml")
    assert before.count("scripts/cache.sh") == 1

    bench.cache.mkdir()
    printed = bench.folder / "printed"
    with (bench.cache / "lock").open("w") as lock, printed.open("w") as output:
        fcntl.flock(lock, fcntl.LOCK_EX)
        lock.write("since 14:03, process 7: build.sh\n")
        lock.flush()
        waiting = bench.start(str(root / "scripts/cache.sh"), stdout=output)
        until(lambda: bool(printed.read_text()))
        assert printed.read_text() == (
            f"another build is using {bench.cache} (since 14:03, process 7: build.sh), waiting\n"
        )
        fcntl.flock(lock, fcntl.LOCK_UN)
        assert waiting.wait(60) == 0


# ---- missing prerequisites -----------------------------------------------------------------------------------------


def test_one_message_lists_all_missing_programs(bench: Bench) -> None:
    ended = bench.script("need bash no-such-tool nor-this")

    assert ended.returncode == 1
    assert errors(ended) == [
        "error: not found on PATH: no-such-tool nor-this. Install the missing programs and run this again."
    ]


def test_an_image_with_compiled_programs_is_not_started_without_go(bench: Bench) -> None:
    bench.stand_in("docker", EMPTY)
    bench.stand_in("id", "echo 0")
    # All programs of this machine except Go.
    for folder in os.environ["PATH"].split(":"):
        for program in Path(folder).glob("*"):
            if program.name not in ("go", "docker", "id") and not (bench.folder / "bin" / program.name).exists():
                (bench.folder / "bin" / program.name).symlink_to(program)

    ended = bench.run("env", f"PATH={bench.folder}/bin", "bash", BUILD, "haproxy:3.4.6", "kindest/node:v1.36.4")

    assert ended.returncode == 1
    assert errors(ended) == [
        "error: compiling kindest/node:v1.36.4 needs Go 1.26.4 or newer on PATH. Install it and run this again."
    ]
    assert "haproxy:3.4.6: building" not in ended.stdout


def test_too_little_disk_space_fails_before_the_first_image(bench: Bench) -> None:
    bench.stand_in("docker", EMPTY)
    bench.stand_in("id", "echo 0")
    bench.stand_in("df", "echo Avail; echo 1")

    ended = bench.run(BUILD, "haproxy:3.4.6")

    assert ended.returncode == 1
    (error,) = errors(ended)
    assert error == (
        f"error: the disk of {bench.cache} has only 1 GB free; this build needs 3 GB. "
        "Free some space, or set SLIPWAY_CACHE to a directory on another disk."
    )
    assert "building\n" not in ended.stdout


def test_the_last_line_reports_a_disk_that_fills_up(bench: Bench) -> None:
    ended = bench.script("""
        write() { echo "cp: error writing 'x': No space left on device"; false; }
        step "copy it" write
    """)

    assert ended.returncode == 1
    assert ended.stderr.splitlines()[-1].endswith("the disk is full. Free some space and run it again.")


def test_a_pull_from_an_unresponsive_registry_times_out(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLIPWAY_PULL_SECONDS", "1")
    bench.stand_in("docker", "[[ $1 != image ]] || exit 1\n[[ $1 != pull ]] || exec sleep 1000")

    ended = bench.run(f"{IMAGES}/public.sh", "open", "mirror.example/slow:1")

    assert ended.returncode == 1
    (error,) = errors(ended)
    assert error == (
        "error: mirror.example/slow:1 was not pulled within 1 s: its registry responds too slowly. "
        "Set SLIPWAY_PULL_SECONDS to wait longer."
    )


# ---- what will be built --------------------------------------------------------------------------------------------


def test_the_first_line_reports_what_is_built_why_and_for_how_long(bench: Bench) -> None:
    bench.stand_in("docker", EMPTY)
    bench.stand_in("id", "echo 0")
    bench.stand_in("unshare", "exit 1")
    bench.stand_in("debootstrap", "")

    ended = bench.run(f"{IMAGES}/public.sh", "auto", "haproxy:3.4.6", "python:3.11.16-slim-bookworm")

    assert ended.stdout.splitlines()[:2] == [
        "docker.io is not reachable: building 2 images from source, about 1 min on 2 cores, once",
        "[1/2] haproxy:3.4.6: building",
    ]


def test_only_missing_images_are_counted(bench: Bench) -> None:
    bench.stand_in("docker", "[[ $1 != image || $* == *haproxy* ]]")
    bench.stand_in("id", "echo 0")
    bench.stand_in("unshare", "exit 1")
    bench.stand_in("debootstrap", "")

    ended = bench.run(BUILD, "haproxy:3.4.6", "python:3.11.16-slim-bookworm")

    assert ended.stdout.splitlines()[:3] == [
        "Requested: building 1 image from source, about 1 min on 2 cores, once",
        "haproxy:3.4.6: present, not built by this script, so kept",
        "[1/1] python:3.11.16-slim-bookworm: building",
    ]


def test_every_recipe_has_a_duration() -> None:
    folder = IMAGES / "closed-network"
    lines = [line for line in (folder / "seconds.txt").read_text().splitlines() if not line.startswith("#")]

    assert {line.split()[0] for line in lines} == {path.stem for path in (folder / "recipes").glob("*.sh")}


# ---- an interrupted run --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP], ids=lambda sent: sent.name)
def test_an_interrupted_build_ends_all_its_processes(bench: Bench, sent: signal.Signals) -> None:
    """The step has running child processes and a container to remove, like the one of the node image."""
    messages, out = bench.folder / "messages", bench.folder / "out"
    bench.stand_in("docker", "")
    text = f"""
        source "{LIB}"
        open_cache
        compile() {{
          trap "docker rm --force builder" EXIT
          touch "$CACHE/tmp/half"
          /bin/sleep 1000 & echo $! > "{bench.folder}/first"
          sh -c 'echo $$ > "{bench.folder}/second"; exec /bin/sleep 1000'
        }}
        make() {{ step "compile it" compile; }}
        interruptible drop_halves make
        say "went on"
    """
    with messages.open("w") as errors, out.open("w") as output:
        # A shell cannot trap a signal that its parent ignores, as a background test runner does.
        command = ("env", "--default-signal=INT,TERM,HUP", "bash", "-c", text)
        running = bench.start(*command, stdout=output, stderr=errors)
        started = [bench.folder / "first", bench.folder / "second"]
        until(lambda: all(path.exists() and path.read_text().strip() for path in started))
        running.send_signal(sent)
        status = running.wait(60)

    assert status == (130 if sent == signal.SIGINT else 143)
    assert messages.read_text() == "error: interrupted. Run it again to continue; finished steps are kept.\n"
    assert "went on" not in out.read_text()
    assert bench.calls == ["docker rm --force builder"]
    assert not [path.name for path in (bench.cache / "tmp").iterdir() if not path.name.startswith("log.")]
    for path in started:
        with pytest.raises(ProcessLookupError):
            os.kill(int(path.read_text()), 0)
    with (bench.cache / "lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_an_interrupted_pull_ends(bench: Bench) -> None:
    messages, pulling = bench.folder / "messages", bench.folder / "pulling"
    bench.stand_in("docker", f'[[ $1 == pull ]] || exit 1\necho $$ > "{pulling}"\nexec sleep 1000')
    with messages.open("w") as errors:
        running = bench.start(f"{IMAGES}/public.sh", "open", "mirror.example/slow:1", stdout=errors, stderr=errors)
        until(lambda: pulling.exists() and bool(pulling.read_text().strip()))
        running.terminate()
        status = running.wait(60)

    assert status == 143
    assert messages.read_text().endswith("error: interrupted. Run it again to continue; finished steps are kept.\n")
    with pytest.raises(ProcessLookupError):
        os.kill(int(pulling.read_text()), 0)


def test_a_failing_command_ends_the_run_with_its_status_and_leaves_no_unfinished_files(bench: Bench) -> None:
    ended = bench.script("""
        give_up() { touch "$CACHE/tmp/half" "$CACHE/tmp/log.1"; exit 7; }
        interruptible drop_halves give_up
        say went on
    """)

    assert (ended.returncode, ended.stdout) == (7, "")
    assert [path.name for path in (bench.cache / "tmp").iterdir()] == ["log.1"]
