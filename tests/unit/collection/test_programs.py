"""What roles and playbooks ask of the machine that Ansible runs on: as good as nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..ansible_files import mappings

ROOT = Path(__file__).parents[3]
# They are about machines: their own programs are what they are for.
OF_MACHINES = {"images", "local_cluster", "gpu_node"}
EXCEPTIONS = {
    "roles/preflight/tasks/look.yml",  # asks the Python that Ansible runs on what it has
    "roles/preflight/tasks/node.yml",  # runs on the node
}
# Playbooks that bring up a cluster on this machine first.
OF_THIS_MACHINE = {"demo.yml", "local.yml"}
PROGRAMS = {f"ansible.builtin.{name}" for name in ("command", "shell", "raw", "script", "expect")}
ASKS = {"vars_prompt", "ansible.builtin.pause"}


def using(words: set[str], files: list[Path]) -> set[str]:
    """The files in which a task or a play has one of these keys."""
    return {str(file.relative_to(ROOT)) for file in files for node in mappings(file) if words & node.keys()}


TASKS = [*ROOT.glob("roles/*/tasks/**/*.yml"), *ROOT.glob("roles/*/handlers/*.yml")]
PLAYBOOKS = [*ROOT.glob("playbooks/**/*.yml"), *ROOT.glob("examples/**/*.yml")]


def test_no_program_is_run_to_speak_to_a_cluster() -> None:
    files = [file for file in TASKS if file.relative_to(ROOT / "roles").parts[0] not in OF_MACHINES]
    files += [file for file in PLAYBOOKS if file.name not in OF_THIS_MACHINE]

    assert using(PROGRAMS, files) == EXCEPTIONS


def test_nothing_waits_for_a_person() -> None:
    assert using(ASKS, TASKS + PLAYBOOKS) == set()


def test_every_stage_of_the_site_playbook_is_a_tag() -> None:
    page = (ROOT / "playbooks/README.md").read_text()
    section = page.split("## Stages of site.yml")[1].split("\n#")[0]
    tags = {tag for node in mappings(ROOT / "playbooks/site.yml") for tag in _listed(node.get("tags"))}

    assert sorted(tag for tag in tags - {"always", "never"} if f"`{tag}`" not in section) == []


def _listed(value: Any) -> list[str]:
    return value if isinstance(value, list) else [value] if value else []
