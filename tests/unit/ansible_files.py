"""Files of tasks and plays as data, for tests of what is written in them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from tests import documents


class _Tagged(yaml.SafeLoader):
    """Takes values with Ansible's tags, such as ``!unsafe``, as if they had none."""


_Tagged.add_multi_constructor("!", lambda loader, _suffix, node: loader.construct_scalar(node))


def role_variables(role: Path) -> dict[str, Any]:
    """Returns a role's own variables as raw text, from vars/main.yml or all files in vars/main."""
    files = [role / "vars/main.yml", *sorted((role / "vars/main").glob("*.yml"))]
    return {name: value for file in files if file.exists() for name, value in documents.read(file).items()}


def mappings(file: Path) -> Iterator[dict[str, Any]]:
    """Every mapping in a file: plays, blocks, tasks and their arguments."""
    return _below(yaml.load(file.read_text(), _Tagged))  # noqa: S506  (a safe loader)


def _below(node: Any) -> Iterator[dict[str, Any]]:
    if isinstance(node, dict):
        yield node
        node = list(node.values())
    if isinstance(node, list):
        for item in node:
            yield from _below(item)
