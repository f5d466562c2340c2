"""No test fails for the time that something took: another machine, or this one on another day, takes ten times that."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator
from itertools import pairwise
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
CLOCKS = {"monotonic", "perf_counter", "process_time", "time"}


def bounded(source: str) -> Iterator[int]:
    """Lines with an assertion that what a clock has measured is less than something."""
    tree = ast.parse(source)
    parts = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)] or [tree]
    yield from sorted({line for part in parts for line in bounded_in(part)})


def bounded_in(part: ast.AST) -> Iterator[int]:
    """The lines in one function or module."""
    names = {name for node in ast.walk(part) for name in named(node)}
    comparisons = [
        node
        for statement in ast.walk(part)
        if isinstance(statement, ast.Assert)
        for node in ast.walk(statement.test)
        if isinstance(node, ast.Compare)
    ]
    for node in comparisons:
        for (left, right), sign in zip(pairwise([node.left, *node.comparators]), node.ops, strict=True):
            less, more = isinstance(sign, ast.Lt | ast.LtE), isinstance(sign, ast.Gt | ast.GtE)
            if (less and measured(left, names)) or (more and measured(right, names)):
                yield node.lineno


def named(node: ast.AST) -> Iterator[str]:
    """Names of measured times: variables with one time, and lists to which times are added."""
    match node:
        case ast.Assign(targets=[ast.Name(name)], value=value) if measured(value):
            yield name
        case ast.Call(ast.Attribute(ast.Name(name), "append" | "add"), [value]) if measured(value):
            yield name


def measured(node: ast.expr, names: Collection[str] = ()) -> bool:
    """Whether an expression is a time difference, a name of one, or a function call on one."""
    match node:
        case ast.BinOp(op=ast.Sub()):
            return any(map(asks_a_clock, ast.walk(node)))
        case ast.Name(name):
            return name in names
        case ast.Call(args=args):
            return any(measured(arg, names) for arg in args)
    return False


def asks_a_clock(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in CLOCKS


@pytest.mark.parametrize(
    ("assertion", "is_bounded"),
    [
        ("time.monotonic() - began < 5", True),
        ("0.9 < time.monotonic() - began <= 10", True),
        ("5 > time.time() - began", True),
        ("time.monotonic() - began > 0.9", False),
        ("count <= 4 * (time.monotonic() - began)", False),
        ("time.monotonic() < deadline", False),
        ("took < 5", True),
        ("median(all) < 0.5", True),
        ("max(all) < 0.5 and count == 3", True),
        ("took >= 1", False),
        ("deadline < 5", False),
        ("len(others) < 5", False),
    ],
)
def test_a_bound_is_known(assertion: str, is_bounded: bool) -> None:
    before = "took = time.monotonic() - began; all.append(time.monotonic() - began); others.append(1)"
    assert bool(list(bounded(f"{before}; assert {assertion}, 'why'"))) is is_bounded
    assert bool(list(bounded(f"async def f():\n  {before}\n  assert {assertion}"))) is is_bounded


def test_no_test_bounds_the_time_that_something_takes() -> None:
    files = [file for file in TESTS.rglob("*.py") if "output" not in file.relative_to(TESTS).parts]
    assert {str(file.relative_to(TESTS)): lines for file in files if (lines := [*bounded(file.read_text())])} == {}
