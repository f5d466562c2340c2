"""The tables of the originals' features name tests that exist."""

from __future__ import annotations

import ast
import re
from functools import cache

import pytest

from ...docs.pages import ROOT

PAGES = ("kubeai", "llmkube")
TABLE = re.compile(r"^\| feature \| supported \| test \|\n\| --- \| --- \| --- \|\n((?:\|.+\n)+)", re.MULTILINE)
SUPPORTED = {"yes", "partial"}
"""Verdicts that need a test. ``no`` may have one, for what happens instead."""


def rows(page: str) -> list[list[str]]:
    [table] = TABLE.findall((ROOT / f"docs/reference/apis/{page}.md").read_text())
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()]


ROWS = [pytest.param(page, row, id=f"{page}-{row[0]}") for page in PAGES for row in rows(page)]


@pytest.mark.parametrize(("page", "row"), ROWS)
def test_a_supported_feature_names_tests_that_exist(page: str, row: list[str]) -> None:
    _feature, supported, test = row
    verdict = re.findall(r"\w+", supported)[0]
    tests = re.findall(r"`([^`]+)`", test)
    assert verdict in SUPPORTED | {"no"}
    assert tests or verdict not in SUPPORTED
    assert [name for name in tests if name not in names_of_tests(page)] == []


@cache
def names_of_tests(page: str) -> set[str]:
    """Names of the test files of an API, and of the tests in them."""
    files = [*(ROOT / f"tests/unit/apis/{page}").glob("test_*.py")]
    trees = (ast.parse(file.read_text()) for file in files)
    tests = {node.name for tree in trees for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    return tests | {file.name for file in files}
