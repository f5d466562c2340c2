"""Checks the demo's TAGS and VARS before anything starts. Ansible ignores unknown tags and variables.

usage: demo_settings.py [--tags TAGS] [--vars FILE] [--stages STAGES]

TAGS and STAGES are comma-separated. STAGES are those of the stdout callback slipway.inference.stages.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Collection, Iterator
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[1]
BUILT_IN = frozenset({"all", "tagged", "untagged", "always", "never"})
"""Tags that Ansible defines."""
ALIKE = 0.7
"""Minimum similarity of two names, from 0 to 1, for a suggestion."""
MISSPELLED = 0.88
"""Minimum similarity for a name that begins as none of the collection's variables to count as one of them."""


class _Loader(yaml.SafeLoader):
    """Reads values with Ansible's tags, such as ``!vault``, as text."""


_Loader.add_multi_constructor("!", lambda loader, _suffix, node: loader.construct_scalar(node))


def find_tags(playbook: Path) -> set[str]:
    """Returns the tags in a playbook and in the playbooks that it imports."""
    tags: set[str] = set()
    for node in _mappings(yaml.load(playbook.read_text(), _Loader)):  # noqa: S506  (a safe loader)
        given = node.get("tags") or []
        tags |= {given} if isinstance(given, str) else set(given)
        if imported := node.get("ansible.builtin.import_playbook"):
            tags |= find_tags(playbook.with_name(imported))
    return tags


def _mappings(node: Any) -> Iterator[dict[str, Any]]:
    if isinstance(node, dict):
        yield node
        node = list(node.values())
    if isinstance(node, list):
        for item in node:
            yield from _mappings(item)


def check_tags(given: str, tags: Collection[str], stages: str) -> list[str]:
    """Returns a message for each tag that the demo does not have."""
    parts = {name: of.split("+") for name, _sign, of in (stage.partition("=") for stage in stages.split(","))}
    names = [name.strip() for name in given.split(",") if name.strip()]
    return [_unknown_tag(name, tags, parts) for name in names if name not in BUILT_IN | set(tags)]


def _unknown_tag(name: str, tags: Collection[str], parts: dict[str, list[str]]) -> str:
    # The screen shows other names for some stages.
    nearest = [part for part in parts.get(name, []) if part in tags] or get_close_matches(name, tags, 1, ALIKE)
    fix = f"Did you mean {' or '.join(nearest)}?" if nearest else f"Use one of {', '.join(sorted(tags))}."
    return f"TAGS: {name!r} is not a tag of the demo. {fix}"


def find_variables(root: Path) -> tuple[set[str], set[str]]:
    """Returns the variables that roles and playbooks read, and how the names of such variables begin."""
    roles = [path.name for path in (root / "roles").iterdir()]
    beginnings = {"demo_", "slipway_", *(f"{role}_" for role in roles)}
    pattern = re.compile(rf"\b(?:{'|'.join(beginnings)})\w+")
    files = [*root.glob("roles/*/defaults/*.yml"), *root.glob("roles/*/meta/*.yml"), *root.glob("playbooks/**/*.yml")]
    return {name for file in files for name in pattern.findall(file.read_text())}, beginnings


def check_variables(file: Path, variables: Collection[str], beginnings: Collection[str]) -> list[str]:
    """Returns a message for each variable in a file that nothing reads."""
    text = file.read_text()
    try:
        values = yaml.load(text, _Loader)  # noqa: S506  (a safe loader)
    except yaml.YAMLError:
        return []  # Ansible shows the line.
    names = [str(name) for name in values] if isinstance(values, dict) else []
    unread = [name for name in names if name not in variables and len(re.findall(rf"\b{re.escape(name)}\b", text)) == 1]
    return [message for name in unread if (message := _unread(file, name, variables, beginnings))]


def _unread(file: Path, name: str, variables: Collection[str], beginnings: Collection[str]) -> str:
    ours = name.startswith(tuple(beginnings))
    nearest = get_close_matches(name, sorted(variables), 1, ALIKE if ours else MISSPELLED)
    if not ours and not nearest:
        return ""
    fix = f"Did you mean {nearest[0]}?" if nearest else "Remove it."
    return f"VARS: {file}: no role and no playbook reads {name}. {fix}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tags", default="")
    parser.add_argument("--vars", type=Path)
    parser.add_argument("--stages", default="")
    arguments = parser.parse_args()
    tags = find_tags(ROOT / "playbooks/demo.yml") - BUILT_IN
    messages = check_tags(arguments.tags, tags, arguments.stages)
    if arguments.vars:
        messages += check_variables(arguments.vars, *find_variables(ROOT))
    if messages:
        sys.exit("\n".join(f"error: {message}" for message in messages))


if __name__ == "__main__":
    main()
