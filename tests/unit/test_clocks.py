"""No test fails for the time that something took: another machine, or this one on another day, takes ten times that."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
CLOCKS = {"monotonic", "perf_counter", "process_time", "time"}


def bounded(source: str) -> Iterator[int]:
    """Lines with an assertion that what a clock has measured is less than something."""
    comparisons = [
        node
        for found in ast.walk(ast.parse(source))
        if isinstance(found, ast.Assert)
        for node in ast.walk(found.test)
        if isinstance(node, ast.Compare)
    ]
    for node in comparisons:
        for (left, right), sign in zip(pairwise([node.left, *node.comparators]), node.ops, strict=True):
            less, more = isinstance(sign, ast.Lt | ast.LtE), isinstance(sign, ast.Gt | ast.GtE)
            if (less and measured(left)) or (more and measured(right)):
                yield node.lineno


def measured(node: ast.expr) -> bool:
    """Whether it is a difference from what a clock shows."""
    return isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub) and any(map(asks_a_clock, ast.walk(node)))


def asks_a_clock(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in CLOCKS


@pytest.mark.parametrize(
    ("assertion", "found"),
    [
        ("time.monotonic() - began < 5", True),
        ("0.9 < time.monotonic() - began <= 10", True),
        ("5 > time.time() - began", True),
        ("time.monotonic() - began > 0.9", False),
        ("count <= 4 * (time.monotonic() - began)", False),
        ("time.monotonic() < deadline", False),
    ],
)
def test_a_bound_is_known(assertion: str, found: bool) -> None:
    assert bool(list(bounded(f"assert {assertion}, 'why'"))) is found


def test_no_test_bounds_the_time_that_something_takes() -> None:
    files = [file for file in TESTS.rglob("*.py") if "output" not in file.relative_to(TESTS).parts]
    assert {str(file.relative_to(TESTS)): lines for file in files if (lines := [*bounded(file.read_text())])} == {}
