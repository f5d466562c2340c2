"""Nothing that pip fetches for the image, the checks or the tests is taken for more than its hash."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PINS = sorted(
    path
    for pattern in ("requirements/**/*.txt", "tests/standins/requirements.txt", "images/closed-network/python/*.txt")
    for path in ROOT.glob(pattern)
)
PINS.remove(ROOT / "requirements/matrix.txt")  # the table of rows: each has its own file
ENTRY = re.compile(r"^([A-Za-z0-9][\w.-]*)==(\S+) \\\n((?:    --hash=sha256:[0-9a-f]{64}(?: \\)?\n)+)", re.MULTILINE)
# Resolving is what writes the hashes: it takes what the index has.
RESOLVERS = {"scripts/matrix-requirements.sh", "scripts/vllm-requirements.sh"}
SAFE = ("--require-hashes", "--no-index", "--no-build-isolation")


def pins(path: Path) -> dict[str, str]:
    return {name: version for name, version, _hashes in ENTRY.findall(path.read_text())}


def shell_files() -> list[Path]:
    folders = ("images", "scripts", "tests", "benchmarks", "molecule", "roles", ".ci")
    files = [path for folder in folders for path in (ROOT / folder).rglob("*") if path.is_file()]
    return [ROOT / "Makefile", *(path for path in files if path.suffix == ".sh" or path.name in {"Dockerfile", "run"})]


@pytest.mark.parametrize("path", PINS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_requirement_has_a_version_and_the_hashes_of_its_files(path: Path) -> None:
    text = path.read_text()
    rest = [line for line in ENTRY.sub("", text).splitlines() if line.strip() and not line.lstrip().startswith("#")]

    assert ENTRY.findall(text)
    assert rest == []


@pytest.mark.parametrize("path", PINS, ids=lambda path: str(path.relative_to(ROOT)))
def test_pin_files_name_no_package_index(path: Path) -> None:
    assert [line for line in path.read_text().splitlines() if "://" in line or "index-url" in line.split("#")[0]] == []


def test_pip_fetches_by_hash_everywhere() -> None:
    commands = {
        (str(path.relative_to(ROOT)), command.replace("\\\n", " "))
        for path in shell_files()
        for command in re.findall(
            r"^[^#\n]*\bpip\"? (?:install|download|wheel)(?:[^\n]*\\\n)*[^\n]*$", path.read_text(), re.MULTILINE
        )
    }
    bare = [(path, command) for path, command in commands if not any(option in command for option in SAFE)]

    assert len(commands) >= 8
    assert [each for each in bare if each[0] not in RESOLVERS] == []


def test_every_row_of_the_matrix_has_its_pins() -> None:
    rows = [line.split() for line in (ROOT / "requirements/matrix.txt").read_text().splitlines() if line[:1] != "#"]
    written = {path.stem: pins(path) for path in (ROOT / "requirements/matrix").iterdir()}

    assert sorted(written) == sorted(row[0] for row in rows)
    for core, kubernetes, *_pythons in rows:
        versions = written[core]
        assert (versions["ansible-core"], versions["kubernetes"]) == (core, kubernetes)
        assert {"pip", "coverage", "pytest", "mock"} <= set(versions)


def test_the_build_backend_is_the_pinned_one() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())

    assert project["build-system"]["requires"] == [f"setuptools=={pins(ROOT / 'requirements/build.txt')['setuptools']}"]


def test_the_checks_run_what_the_image_runs() -> None:
    image, checks = pins(ROOT / "requirements/runtime.txt"), pins(ROOT / "requirements/dev.txt")

    assert {name: checks.get(name) for name in image} == image


def test_a_wheel_of_collections_that_is_not_the_promised_one_is_not_unpacked(tmp_path: Path) -> None:
    version = pins(ROOT / "requirements/collections.txt")["ansible"]
    offered = tmp_path / "offered"
    offered.mkdir()
    with zipfile.ZipFile(offered / f"ansible-{version}-py3-none-any.whl", "w") as wheel:
        wheel.writestr(
            f"ansible-{version}.dist-info/METADATA", f"Metadata-Version: 2.1\nName: ansible\nVersion: {version}\n"
        )
        wheel.writestr(
            f"ansible-{version}.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        wheel.writestr(f"ansible-{version}.dist-info/RECORD", "")
        wheel.writestr("ansible_collections/kubernetes/core/MANIFEST.json", ' "version": "6.6.0",\n')

    ended = offline(["scripts/collections.sh", str(tmp_path / "into")], tmp_path, offered)

    assert ended.returncode != 0
    assert "DO NOT MATCH THE HASHES" in ended.stderr
    assert not (tmp_path / "into").exists()
    assert list((tmp_path / "cache").rglob("*.tar")) == []


def test_a_wheel_for_the_image_that_is_not_the_promised_one_ends_the_build(tmp_path: Path) -> None:
    offered = tmp_path / "offered"
    offered.mkdir()
    for name, version in pins(ROOT / "requirements/runtime.txt").items():
        folder = f"{name.replace('-', '_')}-{version}"
        with zipfile.ZipFile(offered / f"{folder}-py3-none-any.whl", "w") as wheel:
            wheel.writestr(f"{folder}.dist-info/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    docker = tmp_path / "bin/docker"
    docker.parent.mkdir()
    docker.write_text('#!/bin/sh\necho "docker $*" >> "$0.calls"\n')
    docker.chmod(0o755)

    ended = offline(["images/slipway/build.sh", "some/image:1", "some/base:1", "amd64"], tmp_path, offered)

    assert ended.returncode != 0
    assert "DO NOT MATCH THE HASHES" in ended.stderr
    assert "docker build" not in (tmp_path / "bin/docker.calls").read_text()
    assert list((tmp_path / "cache/wheels").iterdir()) == []


def offline(command: list[str], folder: Path, offered: Path) -> subprocess.CompletedProcess[str]:
    """Runs a script of ours where pip finds only what a folder offers."""
    assert shutil.which("pip")
    environment = {
        **os.environ,
        "PATH": f"{folder}/bin:{os.environ['PATH']}",
        "SLIPWAY_CACHE": str(folder / "cache"),
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(offered),
        "PIP_NO_CACHE_DIR": "1",
    }
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=180, check=False)
