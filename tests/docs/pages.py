"""The pages as the tests see them: fenced blocks, their marks, links and headings.

A block may have marks, comments in the lines right above its fence, which no reader sees:

- ``file: NAME``: readers save it under this name; later commands of the page find it there.
- ``elsewhere: PATH``: a command that needs another cluster, a registry, or the end of this one, or the manifest of a
  program that the test cluster has not; PATH is what runs or checks it.
- ``settings: PROGRAM``: the settings file of a program.
- ``untested: REASON``: a command that no test runs.
- ``variables: ROLE ...``: variables of roles, or ``shared`` ones.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
PAGES = (
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "CODE_OF_CONDUCT.md",
    ROOT / "SECURITY.md",
    *sorted((ROOT / "docs").rglob("*.md")),
)
FENCE = re.compile(r"^(?P<indent> *)```(?P<language>\w*)$")
MARK = re.compile(r"^ *<!-- (?P<name>[a-z]+): (?P<value>.+) -->$")
LINK = re.compile(r"\[[^\]]*\]\((?P<target>[^)\s]+)\)")
HEADING = re.compile(r"^#+ (?P<text>.+)$")
WHOLE = re.compile(r"ansible-playbook\b.*\bslipway\.inference\.(site|upgrade|uninstall)\b", re.DOTALL)
"""A command that goes through a whole installation, for a minute or more."""
NOT_RUN = {"elsewhere", "untested"}
"""Marks of commands that tests/docs does not run."""


class Block(NamedTuple):
    """A fenced block. ``line``: where its text begins, from 1. ``adjoins``: whether another one is directly above."""

    page: Path
    line: int
    language: str
    text: str
    marks: dict[str, str]
    adjoins: bool = False

    @property
    def name(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def blocks(page: Path) -> list[Block]:
    """Every fenced block of the page, in order. Raises ValueError where a fence does not end."""
    return parse(page, page.read_text())


def parse(page: Path, text: str) -> list[Block]:
    page_blocks: list[Block] = []
    lines = iter(enumerate(text.splitlines(), 1))
    marks: dict[str, str] = {}
    adjoins = False
    for number, line in lines:
        mark, fence = MARK.match(line), FENCE.match(line)
        if mark:
            marks[mark["name"]] = mark["value"]
        elif fence:
            content = _until_fence(lines, fence["indent"], f"{page}:{number}")
            page_blocks.append(Block(page, number + 1, fence["language"], content, marks, adjoins))
        if not mark:
            marks = {}
        adjoins = bool(fence or (adjoins and (mark or not line.strip())))
    return page_blocks


def commands(block: Block) -> list[str]:
    """The commands of the block. One that goes on after a backslash is one, with its line breaks."""
    candidates = re.findall(r"(?:.*\\\n)*.+", block.text)
    return [command for command in candidates if command.strip()]


def to_run(block: Block) -> list[str]:
    """The commands of a block that tests/docs runs."""
    if block.language != "bash" or NOT_RUN & set(block.marks):
        return []
    return [command for command in commands(block) if not WHOLE.match(command)]


def _until_fence(lines: Iterator[tuple[int, str]], indent: str, where: str) -> str:
    taken: list[str] = []
    for _number, line in lines:
        if line == f"{indent}```":
            return "\n".join(taken) + "\n"
        taken.append(line.removeprefix(indent))
    raise ValueError(f"{where}: the block does not end")


def prose(page: Path) -> list[str]:
    """The lines outside of fenced blocks."""
    kept, inside = [], False
    for line in page.read_text().splitlines():
        if line.lstrip().startswith("```"):
            inside = not inside
        elif not inside:
            kept.append(line)
    return kept


def count_words(page: Path) -> int:
    """The words that a reader sees, also those in blocks."""
    return len(re.sub(r"<!--.*?-->", "", page.read_text(), flags=re.DOTALL).split())


def links(page: Path) -> list[str]:
    """Targets of the links in the page's prose."""
    return [match["target"] for line in prose(page) for match in LINK.finditer(line)]


def anchors(page: Path) -> set[str]:
    """Fragments by which the page's headings can be linked, as GitHub makes them."""
    headings = (HEADING.match(line) for line in prose(page))
    texts = (re.sub(r"[^\w\- ]", "", heading["text"].lower()) for heading in headings if heading)
    return {text.replace(" ", "-") for text in texts}
