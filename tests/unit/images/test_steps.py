"""A build that fails halfway ends there, says why, and leaves nothing under a final name."""

from __future__ import annotations

import re

import pytest

from .conftest import IMAGES, Bench


def test_a_step_ends_at_its_first_command_that_fails(bench: Bench) -> None:
    ended = bench.script("""
        broken() { echo "reading"; ls /nowhere/at-all; touch "$CACHE/went-on"; }
        step "make it" broken
        touch "$CACHE/went-on"
    """)

    assert ended.returncode == 1
    assert not (bench.cache / "went-on").exists()
    assert "/nowhere/at-all" in ended.stderr
    assert "error: make it failed" in ended.stderr


def test_the_error_of_a_failed_step_is_shown(bench: Bench) -> None:
    ended = bench.script("""
        refuse() { die "apt offers none"; }
        step "install it" refuse
    """)

    assert ended.returncode == 1
    assert "error: apt offers none\nerror: install it failed" in ended.stderr


def test_a_step_that_succeeds_is_quiet_and_the_run_goes_on(bench: Bench) -> None:
    ended = bench.script("""
        fine() { echo "a lot of words"; }
        step "make it" fine
        say "went on"
    """)

    assert ended.returncode == 0
    assert "a lot of words" not in ended.stdout + ended.stderr
    assert ended.stdout.endswith("went on\n")


def test_a_step_below_a_condition_is_refused(bench: Bench) -> None:
    ended = bench.script("""
        broken() { false; touch "$CACHE/went-on"; }
        make() { step "make it" broken; }
        make || say "handled"
    """)

    assert "part of a condition" in ended.stderr
    assert not (bench.cache / "went-on").exists()


def test_a_failure_inside_a_command_substitution_ends_the_run(bench: Bench) -> None:
    ended = bench.script("""
        path() { false; say /some/path; }
        found=$(path)
        say "found $found"
    """)

    assert ended.returncode == 1
    assert "found" not in ended.stdout


def test_a_binary_that_did_not_compile_is_not_kept(bench: Bench) -> None:
    compile_half = """
        [[ $1 == build ]] || exit 0
        while [[ $1 != -o ]]; do shift; done
        echo half > "$2/pause"; chmod 755 "$2/pause"; echo "no space left" >&2; exit 1
    """
    bench.stand_in("go", compile_half)

    ended = bench.script("path=$(go_binaries pause pause '' .)\nsay went on")

    assert ended.returncode == 1
    assert "no space left" in ended.stderr
    assert "went on" not in ended.stdout
    assert list((bench.cache / "bin").iterdir()) == []


def test_a_debian_root_that_was_not_packed_whole_is_not_kept(bench: Bench) -> None:
    bench.stand_in("id", "echo 0")
    bench.stand_in("debootstrap", "")
    bench.stand_in("unshare", 'mkdir -p "${@: -2:1}"')
    bench.stand_in("tar", "echo half; echo 'tar: no space left' >&2; exit 2")

    ended = bench.script("archive=$(debian_base bookworm)\nsay went on")

    assert ended.returncode == 2
    assert "no space left" in ended.stderr
    assert "went on" not in ended.stdout
    assert list((bench.cache / "roots").iterdir()) == []


def test_an_image_of_files_that_could_not_be_read_gets_no_name(bench: Bench) -> None:
    bench.stand_in("tar", "echo half; exit 2")
    bench.stand_in("docker", "[[ $1 != import ]] || { cat > /dev/null; echo sha256:half; }")

    ended = bench.script("import_root / some/image:1 key\nsay went on")

    assert ended.returncode == 1
    assert "error: some/image:1 could not be created from its files" in ended.stderr
    assert "docker image rm sha256:half" in bench.calls
    assert not [call for call in bench.calls if call.startswith("docker tag")]


def test_a_node_image_without_its_inner_images_is_not_committed(bench: Bench) -> None:
    bench.stand_in("tar", "")
    bench.stand_in(
        "docker",
        """
        [[ $1 != import ]] || { cat > /dev/null; echo sha256:base; }
        [[ "$*" != *"images import"* ]] || { echo "ctr: disk full" >&2; exit 1; }
        """,
    )

    ended = bench.script(f"""
        source "{IMAGES}/closed-network/recipes/node.sh"
        step "assemble it" assemble "$CACHE" key
        say went on
    """)

    assert ended.returncode == 1
    assert "ctr: disk full" in ended.stderr
    assert "went on" not in ended.stdout
    assert not [call for call in bench.calls if call.startswith("docker commit")]
    assert bench.calls[-2:] == ["docker rm --force slipway-node-build-key", "docker image rm slipway-node-base:key"]


APT_LOG = """\
0 upgraded, 4 newly installed, 0 to remove and 0 not upgraded.
Unpacking libc6 (2.36) ...
Unpacking jq (1.6) ...
Setting up libc6 (2.36) ...
"""


@pytest.mark.parametrize(
    ("log", "total", "expected"),
    [
        ("I: Retrieving libc6\nI: Unpacking libc6\n", "", "2 packages"),
        (APT_LOG, "", "37%"),
        ("go: downloading k8s.io/api v0.34.4\n", "", "1 modules"),
        ("internal/abi\nruntime\nk8s.io/api/core/v1\n", "12", "3 of 12 packages"),
        ("Reading package lists...\n# k8s.io/api\n", "", ""),
        ("Sending build context to Docker daemon\n", "", ""),
    ],
    ids=["debootstrap", "apt", "go modules", "go build", "notes of a compiler", "unknown"],
)
def test_progress_is_counted_from_what_the_programs_print(bench: Bench, log: str, total: str, expected: str) -> None:
    (bench.folder / "log").write_text(log)

    ended = bench.script(f'STEP_TOTAL={total} progress_of "{bench.folder}/log"')

    assert ended.stdout.strip() == expected


def test_a_step_of_minutes_says_how_far_it_is(bench: Bench) -> None:
    """The pause between two lines is the test's own; nothing that counts is left running when the step ends."""
    bench.stand_in("sleep", "exec /bin/sleep 0.05")

    ended = bench.script("""
        compile() { echo k8s.io/api; until [[ -e $CACHE/go-on ]]; do /bin/sleep 0.05; done; }
        (until grep -q "1 of 2 packages" "$CACHE/out" 2> /dev/null; do /bin/sleep 0.05; done; touch "$CACHE/go-on") &
        STEP_TOTAL=2 step "compile it" compile > "$CACHE/out"
        wait
        cat "$CACHE/out"
        jobs -p
    """)

    lines = ended.stdout.splitlines()
    assert ended.returncode == 0
    assert lines[0] == "  compile it ..."
    assert re.fullmatch(r"  compile it: \d+ s, 1 of 2 packages \.\.\.", lines[1])
    assert re.fullmatch(r"  compile it: \d+ s", lines[-1])


MIRRORED = """
    debian_mirror() { say "http://mirror.invalid/debian"; }
    mkdir -p "$CACHE/roots/x/etc/apt/sources.list.d" "$CACHE/roots/x/etc/apt/apt.conf.d" "$CACHE/roots/x/usr/sbin"
    debian_base() { say base; }
    tar() { mkdir -p "$2"; cp -R "$CACHE/roots/x/." "$2/"; }
    in_root() { shift; printf '%s\\n' "$*" >> "$CACHE/inside"; }
"""


def test_a_host_without_the_archives_keys_bootstraps_nothing(bench: Bench) -> None:
    bench.stand_in("id", "echo 0")
    for program in ("debootstrap", "gpgv", "apt-get", "unshare"):
        bench.stand_in(program, "")

    ended = bench.script(
        'DEBIAN_KEYRING="$CACHE/no-keys.gpg"\narchive=$(debian_base bookworm)\nsay went on',
    )

    assert ended.returncode == 1
    assert "no-keys.gpg. Install the package debian-archive-keyring" in ended.stderr
    assert any(call.startswith("apt-get install") and "debian-archive-keyring" in call for call in bench.calls)
    assert not [call for call in bench.calls if "bookworm" in call]


def test_the_debian_keyring_is_installed_on_a_machine_without_package_lists(bench: Bench) -> None:
    lists, keys = bench.folder / "lists", bench.folder / "keys.gpg"
    bench.stand_in("id", "echo 0")
    bench.stand_in("gpgv", "")
    bench.stand_in(
        "apt-get",
        f"""case $1 in
          update) touch "{lists}" ;;
          install) [[ -e "{lists}" ]] || exit 100; touch "{keys}" ;;
        esac""",
    )

    ended = bench.script(f'DEBIAN_KEYRING="{keys}"\nneed_debootstrap')

    assert ended.returncode == 0, ended.stderr
    assert keys.exists()


def test_debian_is_bootstrapped_of_signed_lists_only(bench: Bench) -> None:
    keys = bench.folder / "keys.gpg"
    keys.touch()
    bench.stand_in("id", "echo 0")
    for program in ("debootstrap", "gpgv"):
        bench.stand_in(program, "")
    bench.stand_in(
        "unshare", '[[ "$*" == *"--force-check-gpg --keyring=' + str(keys) + ' "* ]] && mkdir -p "${@: -2:1}"'
    )

    ended = bench.script(f'DEBIAN_KEYRING="{keys}"\narchive=$(debian_base bookworm)\nsay "$archive"')

    assert ended.returncode == 0, ended.stderr
    assert [path.suffix for path in (bench.cache / "roots").iterdir()] == [".tar"]


def test_lists_that_cannot_be_verified_or_are_too_old_are_an_error(bench: Bench) -> None:
    ended = bench.script(f'DEBIAN_MAX_AGE=10\n{MIRRORED}\ndebian_root "$CACHE/tmp/r" sid haproxy')

    assert ended.returncode == 0, ended.stderr
    update = (bench.cache / "inside").read_text().splitlines()[0]
    assert "APT::Update::Error-Mode=any" in update
    assert f"Acquire::Min-ValidTime={10 * 86400} " in update
    assert "Check-Valid-Until" not in update


def test_an_age_of_lists_that_is_no_number_is_refused(bench: Bench) -> None:
    ended = bench.script(f'DEBIAN_MAX_AGE=forever\n{MIRRORED}\ndebian_root "$CACHE/tmp/r" sid haproxy')

    assert ended.returncode == 1
    assert "SLIPWAY_DEBIAN_MAX_AGE: 'forever' is not a number of days" in ended.stderr
