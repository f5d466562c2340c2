"""A page that leads through a task is short, shows what its commands print, and what to do if they fail."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.tables import each

from ...docs.outputs import shown_outputs
from ...docs.pages import ROOT, blocks, commands, count_words, parse, prose

HOW_TO = sorted((ROOT / "docs/how-to").rglob("*.md"))
TASKS = [*HOW_TO, *sorted((ROOT / "docs/start").rglob("*.md"))]
WORDS = 600
PROGRAMS = re.compile(r"^(?:\$ |(?:ansible|curl|docker|helm|hf|kubectl|make|mokutil|oc|sudo)\b[\w-]* )")
"""How a line of commands begins."""


@each(TASKS, ids=str)
def test_a_task_is_short(page: Path) -> None:
    assert count_words(page) <= WORDS


@each(HOW_TO, ids=str)
def test_an_output_stands_below_its_commands(page: Path) -> None:
    """Otherwise, no test would compare it with what they print."""
    shown = [output for _commands, output in shown_outputs(blocks(page))]
    assert shown
    assert [block.name for block in blocks(page) if block.language == "text" and block not in shown] == []


@each(HOW_TO, ids=str)
def test_a_page_says_what_to_do_if_it_fails(page: Path) -> None:
    assert [line for line in prose(page) if re.match(r"## If ", line)]


@each(TASKS, ids=str)
def test_commands_are_blocks_of_commands(page: Path) -> None:
    """Otherwise, no test would run or check them."""
    assert hidden_commands(page, page.read_text()) == []


def hidden_commands(page: Path, text: str) -> list[str]:
    shown = [block for block in parse(page, text) if block.language == "text"]
    return [command for block in shown for command in commands(block) if PROGRAMS.match(command)]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("$ oc get nodes", True),
        ("kubectl get nodes", True),
        ("ansible-playbook slipway.inference.site", True),
        ("gpu-1   4", False),
        ("namespace/kubectl created", False),
    ],
)
def test_a_command_in_a_text_is_noticed(line: str, expected: bool) -> None:
    assert bool(hidden_commands(HOW_TO[0], f"```text\n{line}\n```\n")) is expected
