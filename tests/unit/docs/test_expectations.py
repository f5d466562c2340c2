"""The page of expectations names what there is."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from ...docs.pages import ROOT

ROWS = {
    int(number): proofs
    for number, _told, proofs in re.findall(
        r"^\| (\d+) \| (.+) \| (.+) \|$", (ROOT / "docs/expectations.md").read_text(), re.MULTILINE
    )
}
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def test_there_are_fifty() -> None:
    assert list(ROWS) == list(range(1, 51))


@pytest.mark.parametrize("number", ROWS)
def test_what_shows_it_is_there(number: int) -> None:
    named = re.findall(r"`([^`]+)`", ROWS[number])

    assert named
    assert [proof for proof in named if not is_there(proof)] == []


def is_there(proof: str) -> bool:
    if proof.startswith("make "):
        return proof.removeprefix("make ") in TARGETS
    path, _colons, name = proof.partition("::")
    if name:
        return (ROOT / path).is_file() and name in functions(ROOT / path)
    if path.startswith("extensions/molecule/"):
        return (ROOT / path / "molecule.yml").is_file()
    return (ROOT / path).is_file()


@cache
def functions(file: Path) -> set[str]:
    return {
        node.name
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }


def test_no_sanity_test_is_ignored() -> None:
    assert list((ROOT / "tests/sanity").glob("ignore*")) == []
