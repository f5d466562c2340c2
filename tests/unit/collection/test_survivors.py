"""The collection as others package it: installed from its tarball, with only what Ansible itself reads."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest

from tests import documents

from ..roles.api_server import Kind
from ..roles.cluster_api import ClusterApi

ROOT = Path(__file__).parents[3]
CORE = ROOT / ".venv/collections/ansible_collections/kubernetes/core"
SURVIVORS = {"meta", "playbooks", "plugins", "roles", "MANIFEST.json", "FILES.json"}
OF_KUBERNETES = ("slipway.inference.k8s", "slipway.inference.k8s_info")
"""Modules with the options of ``kubernetes.core``, which documents them."""
MODULES = [f"slipway.inference.{path.stem}" for path in sorted((ROOT / "plugins/modules").glob("[a-z]*.py"))]
ROLES = [path.parents[1].name for path in sorted(ROOT.glob("roles/*/meta/argument_specs.yml"))]
PLAYBOOKS = [f"slipway.inference.{path.stem}" for path in sorted((ROOT / "playbooks").glob("*.yml"))]
# They build images, and clusters from these, with files outside the roles.
OF_SOURCES = {"images", "local_cluster"}
# The others have separate tests.
ALONE = sorted(role for role in set(ROLES) - OF_SOURCES if not (ROOT / f"tests/unit/roles/test_{role}_run.py").exists())
REQUIRED: dict[str, dict[str, Any]] = {
    "component": {"component_name": "alone", "component_containers": [{"name": "alone", "image": "example.com/a:1"}]},
    "hub": {"hub_volume": {"persistentVolumeClaim": {"claimName": "weights"}}},
}
"""Variables without which a role can do nothing."""

# Ansible loads much code for each of these: on a machine that has much else to do that takes minutes.
pytestmark = pytest.mark.plays


@pytest.fixture(scope="module")
def tarball(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The published form of the collection."""
    if shutil.which("ansible-galaxy") is None or not CORE.exists():
        pytest.skip("needs ansible-galaxy and the collection kubernetes.core")
    folder = tmp_path_factory.mktemp("tarball")
    ansible(folder, "ansible-galaxy", "collection", "build", str(ROOT), "--output-path", str(folder))
    (built,) = folder.glob("slipway-inference-*.tar.gz")
    return built


@pytest.fixture(scope="module")
def home(tarball: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A new home directory in which ansible-galaxy has installed the collection."""
    folder = tmp_path_factory.mktemp("home")
    installed = folder / ".ansible/collections/ansible_collections"
    (installed / "kubernetes").mkdir(parents=True)
    (installed / "kubernetes/core").symlink_to(CORE)
    ansible(folder, "ansible-galaxy", "collection", "install", "--offline", str(tarball))
    for path in (installed / "slipway/inference").iterdir():
        if path.name not in SURVIVORS:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    return folder


def ansible(folder: Path, *command: str, failing: bool = False, **variables: str) -> str:
    """Runs it as a user with that home, and with only the commands on the PATH that Ansible needs to start modules."""
    programs = folder / "bin"
    if not programs.exists():
        programs.mkdir()
        for name in ("chmod", "mkdir", "rm", "sleep"):
            (programs / name).symlink_to(str(shutil.which(name)))
    environment = {
        "HOME": str(folder),
        "PATH": str(programs),
        "ANSIBLE_NOCOLOR": "1",
        "ANSIBLE_REMOTE_TEMP": str(folder / "tmp"),
        "LC_ALL": "C.UTF-8",
    }
    program = str(Path(sys.executable).parent / command[0])
    done = subprocess.run(
        [program, *command[1:]],
        cwd=folder,
        env=environment | variables,
        capture_output=True,
        text=True,
        timeout=850,
        check=False,
    )
    assert (done.returncode != 0) is failing, done.stdout + done.stderr
    return done.stdout


def test_the_tarball_contains_the_image_sources_but_no_development_files(tarball: Path) -> None:
    with tarfile.open(tarball) as archive:
        present = {name.partition("/")[0] for name in archive.getnames()}
    assert {"src", "images", "requirements", "pyproject.toml", "roles", "playbooks", "plugins", "docs"} <= present
    assert not {"tests", "benchmarks", "Makefile", ".venv", ".git"} & present


def test_every_playbook_is_found_by_its_name_and_complete(home: Path) -> None:
    ansible(home, "ansible-playbook", "--inventory", "localhost,", "--syntax-check", *PLAYBOOKS)


def test_every_module_and_role_documents_itself(home: Path) -> None:
    modules = json.loads(ansible(home, "ansible-doc", "--json", *MODULES))
    roles = json.loads(
        ansible(home, "ansible-doc", "--type", "role", "--json", *(f"slipway.inference.{r}" for r in ROLES))
    )

    assert {name for name, docs in modules.items() if docs["examples"]} == set(MODULES)
    assert {name for name, docs in modules.items() if not docs["doc"]["options"]} == set(OF_KUBERNETES)
    assert {name.rpartition(".")[2] for name, docs in roles.items() if docs["entry_points"]} == set(ROLES)


def test_every_role_works_alone_and_asks_no_program(home: Path) -> None:
    """In check mode: what is missing is foretold, and what is removed was never there."""
    server = ClusterApi()
    server.kinds += (Kind("batch/v1", "Job", "jobs", namespaced=True),)
    try:
        (home / "alone.yml").write_text(json.dumps([play(role) for role in ALONE]))
        variables = {"K8S_AUTH_HOST": server.url, "K8S_AUTH_API_KEY": "no-rights"}
        output = ansible(home, "ansible-playbook", "--inventory", ",".join(ALONE), "--check", "alone.yml", **variables)
    finally:
        server.stop()

    assert server.writes == []
    assert [role for role in ALONE if f"\n{role} " not in output.split("PLAY RECAP")[1]] == []


def play(role: str) -> dict[str, Any]:
    """Installs and uninstalls with one role. Each has a separate host, so that no facts are shared."""
    entries = documents.read(ROOT / f"roles/{role}/meta/argument_specs.yml")["argument_specs"]
    return {
        "hosts": role,
        "connection": "local",
        "gather_facts": False,
        "vars": {"ansible_python_interpreter": sys.executable, **REQUIRED.get(role, {})},
        "tasks": [
            {"ansible.builtin.include_role": {"name": f"slipway.inference.{role}", "tasks_from": entry}}
            for entry in ("main", "uninstall")
            if entry in entries
        ],
    }


def test_the_role_reports_missing_build_inputs(home: Path) -> None:
    (home / "images.yml").write_text(json.dumps([play("images") | {"hosts": "localhost"}]))
    output = ansible(home, "ansible-playbook", "--inventory", "localhost,", "images.yml", failing=True)

    assert "This installation of the collection lacks" in " ".join(output.split())


def test_nothing_reads_what_is_there_for_developers_and_readers_only() -> None:
    texts = [path for name in ("meta", "playbooks", "plugins", "roles") for path in (ROOT / name).rglob("*.y*ml")]

    names = {
        path.name for path in texts for folder in ("docs", "tests", "molecule") if f"../{folder}" in path.read_text()
    }
    assert names == set()
