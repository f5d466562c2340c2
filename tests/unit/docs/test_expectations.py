"""The page of expectations names what there is."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest
from runner import checkout
from runner.table import Table, stage_tests

from ...docs.pages import ROOT

PAGE = (ROOT / "docs/explain/expectations.md").read_text()
PROMISES = [int(number) for number in re.findall(r"^(\d+)\. ", PAGE, re.MULTILINE)]
TABLE = re.findall(r"^\| (\d+) \| (\w+) \| (.+) \|$", PAGE, re.MULTILINE)
ROWS = {int(number): re.findall(r"`([^`]+)`", proofs) for number, _runs, proofs in TABLE}
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def test_there_are_fifty() -> None:
    assert PROMISES == list(ROWS) == list(range(1, 51))


@pytest.mark.parametrize("number", ROWS)
def test_every_proof_of_a_row_exists(number: int) -> None:
    assert ROWS[number]
    assert [proof for proof in ROWS[number] if not is_there(proof)] == []


@pytest.mark.parametrize(("number", "shown"), [(int(number), shown) for number, shown, _proofs in TABLE])
def test_the_page_shows_how_much_of_it_ci_runs(number: int, shown: str) -> None:
    assert shown == in_ci(number)


def in_ci(row: int) -> str:
    """How many of its checks CI runs. Pages and settings are shown, not run."""
    runs = {runs_in_ci(proof) for proof in ROWS[row] if proof.startswith(("make ", "tests/", "molecule/", "bench"))}
    return "all" if runs == {True} else "none" if runs == {False} else "some"


def runs_in_ci(proof: str) -> bool:
    if proof.startswith("molecule/"):
        return proof == "molecule/site"
    path, _colons, name = proof.partition("::")
    return proof in ("make lint", "make test") or (path in ci_tests() and name not in left_out(ROOT / path))


@cache
def ci_tests() -> set[str]:
    """The test files of all CI stages."""
    table, files = Table.read((ROOT / "tests/lanes.toml").read_text()), checkout.present()
    return {path for stage in table.stages for path in stage_tests(stage, table, files)}


@cache
def left_out(file: Path) -> set[str]:
    """The tests in a file that only its lane runs."""
    marks = re.compile(r"pytest\.mark\.(full|plays)\b")
    tree = ast.parse(file.read_text())
    marked = any(isinstance(node, ast.Assign) and marks.search(ast.unparse(node)) for node in tree.body)
    return {
        node.name
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (marked or any(marks.match(ast.unparse(mark)) for mark in node.decorator_list))
    }


def is_there(proof: str) -> bool:
    if proof.startswith("make "):
        return proof.removeprefix("make ") in TARGETS
    path, _colons, name = proof.partition("::")
    if name:
        return (ROOT / path).is_file() and name in functions(ROOT / path)
    if path.startswith("molecule/"):
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
