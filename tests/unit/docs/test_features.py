"""The tables of the originals' features name what is there, and what shows it."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from ...docs.pages import ROOT

VERDICTS = {"works", "part", "refused", "ignored", "absent"}
SHOWN = VERDICTS - {"absent"}
"""What a test has to show."""
TABLE = re.compile(r"^\| feature \| of \| here \| test \|\n\| --- \| --- \| --- \| --- \|\n((?:\|.+\n)+)", re.MULTILINE)
TESTS = {"kubeai": "tests/unit/apis/kubeai", "llmkube": "tests/unit/apis/llmkube"}
"""Page -> where its tests lie."""


def rows(page: str) -> list[list[str]]:
    [table] = TABLE.findall((ROOT / f"docs/{page}.md").read_text())
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()]


ROWS = [pytest.param(page, *row, id=f"{page}-{row[0]}") for page in TESTS for row in rows(page)]


@pytest.mark.parametrize("page", TESTS)
def test_each_row_has_a_cell_for_each_column(page: str) -> None:
    assert {len(row) for row in rows(page)} == {4}
    assert all(feature and version for feature, version, _here, _test in rows(page))


@pytest.mark.parametrize(("page", "feature", "version", "here", "test"), ROWS)
def test_a_row_says_what_becomes_of_the_feature_and_which_tests_show_it(
    page: str, feature: str, version: str, here: str, test: str
) -> None:
    verdict = re.split(r"\W", here)[0]
    named = re.findall(r"`([^`]+)`", test)
    assert verdict in VERDICTS
    assert bool(named) == (verdict in SHOWN)
    assert [proof for proof in named if not is_there(proof, TESTS[page])] == []


def is_there(proof: str, folder: str) -> bool:
    path, _colons, name = proof.partition("::")
    file = ROOT / (path if "/" in path else f"{folder}/{path}")
    return file.is_file() and (not name or name in functions(file))


@cache
def functions(file: Path) -> set[str]:
    return {node.name for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.FunctionDef)}
