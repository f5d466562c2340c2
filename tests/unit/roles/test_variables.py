"""A role's own variables can be read: files of a page or two, and no programs in Jinja."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.tables import each

ROOT = Path(__file__).parents[3]
ROLES = ROOT / "roles"
FILES = sorted(ROLES.glob("*/vars/**/*.yml"))
LINES = 150
WRITTEN = [path for path in (*ROLES.rglob("*"), *(ROOT / "playbooks").glob("*.yml")) if path.suffix in (".yml", ".j2")]
# Expressions that loop and fill a list or dictionary, by role. There is to be no new one: that is what filters are for.
PROGRAMS = {
    "device_plugin": 5, "gateway": 4, "gpu_node": 4, "hub": 1, "leader_worker_set": 1, "local_cluster": 1,
    "model_registry": 1, "monitoring": 3, "preflight": 17, "runtime_class": 1, "status": 7,
}  # fmt: skip


@each(FILES, ids=lambda file: str(file.relative_to(ROLES)))
def test_a_file_is_not_long(file: Path) -> None:
    assert len(file.read_text().splitlines()) <= LINES


@each(WRITTEN, ids=lambda file: str(file.relative_to(ROOT)))
def test_a_role_uses_no_private_variable_of_another(file: Path) -> None:
    roles = "|".join(sorted((path.name for path in ROLES.iterdir()), key=len, reverse=True))
    owners = set(re.findall(rf"\b__({roles})_", file.read_text()))

    assert owners <= {file.relative_to(ROOT).parts[1]}


@pytest.mark.parametrize("role", sorted(path.name for path in ROLES.iterdir()))
def test_programs_are_written_in_python(role: str) -> None:
    texts = [path.read_text() for folder in ("vars", "tasks") for path in (ROLES / role / folder).rglob("*.yml")]

    assert sum(len(re.findall(r"set (?:_|_added) = |set all\.", text)) for text in texts) <= PROGRAMS.get(role, 0)
