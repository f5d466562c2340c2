"""A public image whose digest is known is pulled by it; one that Debian's packages stand in for says what it is."""

from __future__ import annotations

import re
import subprocess

import pytest

from .conftest import IMAGES, Bench

KNOWN = dict(re.findall(r"^([^#\s]+) (sha256:\S+)$", (IMAGES / "digests.txt").read_text(), re.MULTILINE))
RECIPES = IMAGES / "closed-network/recipes"
# A registry from which each image comes, and a Docker that lacks it.
PULLS = "[[ $1 != image ]] || exit 1"
# In place of what needs root and a mirror: a root file system whose programs say the given versions.
ROOT = """
    debian_root() { mkdir -p "$1/usr/local/bin" "$1/usr/lib/python3.11"; }
    install() { :; }
    in_root() { case $2 in haproxy) echo "HAProxy version %s-1 2026/10/14";; python3) echo "Python %s";;
      llama-server) echo "version: %s (build 11669, commit Debian)" >&2;; esac; }
    import_root() { printf '%%s\\n' "$@" > "$CACHE/imported"; }
"""


@pytest.mark.parametrize("image", KNOWN)
def test_an_image_whose_digest_is_known_is_pulled_by_it_and_gets_its_name(bench: Bench, image: str) -> None:
    bench.stand_in("docker", PULLS)

    ended = bench.run(f"{IMAGES}/public.sh", "open", image)

    whole = f"{image.rpartition(':')[0]}@{KNOWN[image]}"
    assert ended.returncode == 0
    assert bench.calls[1:] == [f"docker pull --quiet {whole}", f"docker tag {whole} {image}"]


def test_another_image_is_pulled_by_its_tag(bench: Bench) -> None:
    bench.stand_in("docker", PULLS)

    bench.run(f"{IMAGES}/public.sh", "open", "mirror.example:5000/haproxy:3.4.6")

    assert bench.calls[1:] == ["docker pull --quiet mirror.example:5000/haproxy:3.4.6"]


def test_an_image_of_another_digest_gets_no_name(bench: Bench) -> None:
    bench.stand_in("docker", PULLS + '\n[[ $1 != pull ]] || { echo "manifest unknown" >&2; exit 1; }')

    ended = bench.run(f"{IMAGES}/public.sh", "open", next(iter(KNOWN)))

    assert ended.returncode != 0
    assert "manifest unknown" in ended.stderr
    assert not [call for call in bench.calls if call.startswith("docker tag")]


@pytest.mark.parametrize(
    ("recipe", "version"), [("haproxy", "3.4.9"), ("haproxy", "3.4.0"), ("llama-cpp", "0.9.1"), ("python", "3.11.2")]
)
def test_a_stand_in_of_another_patch_release_is_built_and_labelled_with_it(
    bench: Bench, recipe: str, version: str
) -> None:
    ended = build(bench, recipe, version)

    assert ended.returncode == 0, ended.stderr
    assert f"LABEL org.opencontainers.image.version={version}" in (bench.cache / "imported").read_text().splitlines()
    assert f"{version}\n" in ended.stdout


@pytest.mark.parametrize(("recipe", "version"), [("haproxy", "3.5.1"), ("haproxy", "3.41.0"), ("python", "3.13.5")])
def test_a_stand_in_of_another_series_is_refused(bench: Bench, recipe: str, version: str) -> None:
    ended = build(bench, recipe, version)

    assert ended.returncode == 1
    assert version in ended.stderr
    assert not (bench.cache / "imported").exists()


def test_a_stand_in_that_says_no_version_is_refused(bench: Bench) -> None:
    ended = build(bench, "llama-cpp", "unknown")

    assert ended.returncode == 1
    assert not (bench.cache / "imported").exists()


def build(bench: Bench, recipe: str, version: str) -> subprocess.CompletedProcess[str]:
    programs = ROOT % (version, version, version)
    return bench.script(f'{programs}\nsource "{RECIPES}/{recipe}.sh"\nmkdir "$CACHE/dir"\nbuild "$CACHE/dir" key')
