"""Every command of the pages that runs a playbook of the collection gives it what it takes: options, tags, variables.

Those that go through a whole installation are not run for each page that shows them: the first one of the README is
(tests/docs), and molecule/site and upgrade run what the others do.
"""

from __future__ import annotations

import json
import re
import shlex
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from ansible.cli.playbook import PlaybookCLI
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator

from tests import documents

from ...docs.pages import PAGES, ROOT, blocks, commands
from ..ansible_files import mappings

PREFIX = "slipway.inference."
KEPT = {"type", "elements", "choices"}
"""The parts of an option in argument specs that define its values."""


class Command(NamedTuple):
    """One that a page shows, and what ansible-playbook reads of it."""

    name: str
    playbook: Path
    options: Namespace


def shown() -> Iterator[Command]:
    for block in (block for page in PAGES for block in blocks(page) if block.language in ("bash", "text")):
        for text in commands(block):
            if not text.startswith("ansible-playbook "):
                continue
            words = shlex.split(text.replace("\\\n", " "))[1:]
            options = read(words)
            for name in options.args:
                if name.startswith(PREFIX):
                    playbook = ROOT / "playbooks" / f"{name.removeprefix(PREFIX)}.yml"
                    yield Command(f"{block.name}: {shlex.join(words)}", playbook, options)


def read(words: list[str]) -> Namespace:
    """The options as ansible-playbook has them. Raises ValueError where it does not know one."""
    program = PlaybookCLI(["ansible-playbook"])
    program.init_parser()
    try:
        options: Namespace = program.parser.parse_args(words)
    except SystemExit as end:
        raise ValueError(f"ansible-playbook does not take {shlex.join(words)}") from end
    return options


COMMANDS = list(shown())
every = pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)


def tags(playbook: Path) -> set[str]:
    """Of its tasks, and of those of the playbooks that it imports."""
    tag_names = set()
    for node in mappings(playbook):
        given = node.get("tags", [])
        tag_names |= {given} if isinstance(given, str) else set(given)
        if imported := node.get("ansible.builtin.import_playbook"):
            tag_names |= tags(playbook.parent / imported)
    return tag_names


def specified() -> dict[str, dict[str, Any]]:
    """What variables of the roles take."""
    files = [documents.read(file) for file in ROOT.glob("roles/*/meta/argument_specs.yml")]
    entries = [entry for file in files for entry in file["argument_specs"].values()]
    return {
        name: {key: option[key] for key in KEPT & set(option)}
        for entry in entries
        for name, option in entry.get("options", {}).items()
    }


def shared() -> set[str]:
    """Variables that several roles and playbooks read."""
    files = [*ROOT.glob("roles/*/defaults/main.yml"), *ROOT.glob("playbooks/*.yml")]
    return {name for file in files for name in re.findall(r"\bslipway_[a-z_]+", file.read_text())}


def variables(command: Command) -> dict[str, Any]:
    """What ``--extra-vars`` sets."""
    given: dict[str, Any] = {}
    for text in command.options.extra_vars:
        pairs = (pair.split("=", 1) for pair in shlex.split(text))
        given |= json.loads(text) if text.startswith("{") else dict(pairs)
    return given


def test_the_pages_show_each_way_through_an_installation() -> None:
    assert {"site", "upgrade", "uninstall"} <= {command.playbook.stem for command in COMMANDS}


@every
def test_its_playbook_is_there(command: Command) -> None:
    assert command.playbook.is_file()


@every
def test_its_tags_are_those_of_the_playbook(command: Command) -> None:
    chosen = {tag for text in command.options.tags for tag in text.split(",")} - {"all"}
    assert chosen - tags(command.playbook) == set()


@every
def test_its_variables_are_taken_by_the_roles(command: Command) -> None:
    specification, given = specified(), variables(command)
    assert set(given) - set(specification) - shared() == set()
    options = {name: specification[name] for name in set(given) & set(specification)}
    checked = ArgumentSpecValidator(options).validate({name: given[name] for name in options})
    assert checked.error_messages == []
