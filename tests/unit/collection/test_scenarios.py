"""Molecule's scenarios find their shared files, and plain ``molecule test`` touches no existing cluster."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests import documents
from tests.tables import each

ROOT = Path(__file__).parents[3]
MOLECULE = ROOT / "molecule"
SCENARIOS = sorted(path.parent for path in MOLECULE.glob("*/molecule.yml"))
PLAYBOOKS = sorted(path for path in MOLECULE.rglob("*.yml") if "import_playbook" in path.read_text())


@each(PLAYBOOKS, ids=lambda path: str(path.relative_to(MOLECULE)))
def test_a_playbook_that_is_imported_is_there(path: Path) -> None:
    imported = re.findall(r"import_playbook: (\S+)", path.read_text())

    assert imported
    assert [name for name in imported if not (path.parent / name).is_file()] == []


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda path: path.name)
def test_a_playbook_that_stands_for_a_step_is_there(scenario: Path) -> None:
    steps = re.findall(r"\.\./\S+\.yml", (scenario / "molecule.yml").read_text())

    assert [name for name in steps if not (scenario / name).is_file()] == []


def test_the_default_scenario_has_a_cluster_of_its_own() -> None:
    settings = documents.read(MOLECULE / "default/molecule.yml")
    sequence = settings["scenario"]["test_sequence"]

    assert settings["ansible"]["env"]["K8S_AUTH_KUBECONFIG"].startswith("${MOLECULE_EPHEMERAL_DIRECTORY}/")
    assert (sequence[:3], sequence[-1]) == (["syntax", "destroy", "create"], "destroy")
