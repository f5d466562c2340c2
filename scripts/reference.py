#!/usr/bin/env python3
"""Writes docs/reference/ansible/collection.md, the list of everything in the collection, from the code.

usage: scripts/reference.py
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import yaml

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs/reference/ansible/collection.md"
HEAD = """\
# What is in the collection

`make generate` writes this page from the descriptions in the code. `ansible-doc slipway.inference.NAME` shows the options of a plugin, and `ansible-doc --type role slipway.inference.NAME` the variables of a role. See also the [playbooks](../../../playbooks/README.md).

Authentication options and environment variables of the modules are those of `kubernetes.core`. The action group `slipway.inference.slipway` sets them once for all modules that access the cluster.
"""  # noqa: E501
PLUGINS = (
    ("Modules", "plugins/modules"),
    ("Filters", "plugins/filter"),
    ("Lookups", "plugins/lookup"),
    ("Inventory plugins", "plugins/inventory"),
    ("Callbacks", "plugins/callback"),
    ("Event sources for Event-Driven Ansible", "extensions/eda/plugins/event_source"),
)


class Entry(NamedTuple):
    """A role or a plugin."""

    name: str
    description: str
    link: str = ""


def read_roles(root: Path) -> Iterator[Entry]:
    for path in sorted((root / "roles").glob("*/meta/argument_specs.yml")):
        name = path.parts[-3]
        specs = yaml.safe_load(path.read_text())["argument_specs"]
        yield Entry(name, specs["main"]["short_description"], f"../../../roles/{name}/README.md")


def read_plugins(folder: Path) -> Iterator[Entry]:
    """Yields an entry for each public plugin. Raises ValueError if one has no DOCUMENTATION."""
    for path in sorted(folder.glob("[!_]*.py")):
        yield Entry(path.stem, read_documentation(path)["short_description"])


def read_documentation(path: Path) -> dict[str, Any]:
    for node in ast.parse(path.read_text()).body:
        match node:
            case ast.Assign(targets=[ast.Name(id="DOCUMENTATION")], value=ast.Constant(value=str() as text)):
                documentation: dict[str, Any] = yaml.safe_load(text)
                return documentation
    raise ValueError(f"{path} has no DOCUMENTATION")


def render(root: Path) -> str:
    sections = [("Roles", list(read_roles(root)))]
    sections += [(title, list(read_plugins(root / folder))) for title, folder in PLUGINS]
    return HEAD + "".join(f"\n## {title}\n\n{render_table(entries)}" for title, entries in sections)


def render_table(entries: list[Entry]) -> str:
    rows = [f"| {name_of(entry)} | {entry.description} |" for entry in entries]
    return "\n".join(["| name | description |", "| --- | --- |", *rows]) + "\n"


def name_of(entry: Entry) -> str:
    return f"[{entry.name}]({entry.link})" if entry.link else f"`slipway.inference.{entry.name}`"


if __name__ == "__main__":
    PAGE.write_text(render(ROOT))
