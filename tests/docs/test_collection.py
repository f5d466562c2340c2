"""The collection as the README installs it: built, installed without a network, and used from there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from .pages import ROOT

# Built and installed once.
pytestmark = pytest.mark.xdist_group("collection")

COLLECTIONS = Path(os.environ.get("ANSIBLE_COLLECTIONS_PATH", ROOT / ".venv/collections"))


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of collections with this one, from its tarball, beside those that it needs."""
    folder = tmp_path_factory.mktemp("collection")
    others = folder / "collections/ansible_collections"
    others.mkdir(parents=True)
    (others / "kubernetes").symlink_to(COLLECTIONS / "ansible_collections/kubernetes")
    ansible(folder, "ansible-galaxy", "collection", "build", str(ROOT), "--output-path", str(folder))
    (tarball,) = folder.glob("slipway-inference-*.tar.gz")
    install = ("--offline", "--no-deps", "--collections-path", str(folder / "collections"))
    ansible(folder, "ansible-galaxy", "collection", "install", *install, str(tarball))
    return folder


def test_the_playbooks_are_found_by_their_names(installed: Path) -> None:
    names = [f"slipway.inference.{playbook.stem}" for playbook in (ROOT / "playbooks").glob("*.yml")]
    ansible(installed, "ansible-playbook", "--syntax-check", *names)


def test_the_modules_document_themselves(installed: Path) -> None:
    names = {f"slipway.inference.{module.stem}" for module in (ROOT / "plugins/modules").glob("[a-z]*.py")}
    told = json.loads(ansible(installed, "ansible-doc", "--json", *names))
    assert {name for name, found in told.items() if found["examples"]} == names


def test_the_tarball_has_what_the_image_is_built_of_and_nothing_for_developers(installed: Path) -> None:
    collection = installed / "collections/ansible_collections/slipway/inference"
    present = {path.name for path in collection.iterdir()}
    assert {"src", "images", "requirements", "pyproject.toml", "roles", "playbooks", "plugins", "docs"} <= present
    assert not {"tests", "benchmarks", "Makefile", ".venv", ".git"} & present


def ansible(folder: Path, *command: str) -> str:
    kept = {name: value for name, value in os.environ.items() if name != "ANSIBLE_CONFIG"}
    environment = kept | {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "HOME": str(folder),
        "ANSIBLE_COLLECTIONS_PATH": str(folder / "collections"),
        "ANSIBLE_NOCOLOR": "1",
    }
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, f"{' '.join(command)}:\n{done.stdout[-2000:]}{done.stderr[-2000:]}"
    return done.stdout
