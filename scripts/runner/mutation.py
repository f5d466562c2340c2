"""Small changes to a program, each of which a test should notice."""

from __future__ import annotations

import ast
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

OPPOSITES: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}
LUA_WORDS = {"==": "~=", "~=": "==", "<": "<=", ">": ">=", "and": "or", "or": "and", "not": "", "true": "false"}
LUA_WORD = re.compile(r"(?<=[\s(])(==|~=|<|>|and|or|not|true)(?=[\s,)])")
SMALLEST_FILE = 300
"""Bytes. Smaller files hold hardly more than imports."""


@dataclass(frozen=True)
class Mutant:
    """One change to one file."""

    path: str
    begin: int
    """Byte offset of the text to replace."""
    end: int
    line: int
    old: str
    new: str

    def apply(self, source: bytes) -> bytes:
        return source[: self.begin] + self.new.encode() + source[self.end :]


def list_mutants(path: str, source: bytes) -> list[Mutant]:
    """Lists every change to a Python or Lua file, in the order of the text. The result compiles in each case."""
    changes = _change_lua(source) if path.endswith(".lua") else _change_python(source)
    mutants = [
        Mutant(path, begin, end, source.count(b"\n", 0, begin) + 1, source[begin:end].decode(), new)
        for begin, end, new in changes
    ]
    return sorted(mutants, key=lambda mutant: (mutant.begin, mutant.end, mutant.new))


def _change_python(source: bytes) -> Iterator[tuple[int, int, str]]:
    """Flips comparisons, conditions and `and`/`or`, adds one to numbers, and returns None."""
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    for node in _walk(ast.parse(source)):
        for place, replacement in _change_node(node):
            if place.end_lineno is not None and place.end_col_offset is not None:
                begin = starts[place.lineno - 1] + place.col_offset
                end = starts[place.end_lineno - 1] + place.end_col_offset
                yield begin, end, f"({ast.unparse(replacement)})"


def _change_node(node: ast.AST) -> Iterator[tuple[ast.expr, ast.expr]]:
    match node:
        case ast.Compare(ops=[first, *rest]) if type(first) in OPPOSITES:
            yield node, ast.Compare(node.left, [OPPOSITES[type(first)](), *rest], node.comparators)
        case ast.BoolOp():
            yield node, ast.BoolOp(ast.Or() if isinstance(node.op, ast.And) else ast.And(), node.values)
        case ast.UnaryOp(op=ast.Not()):
            yield node, node.operand
        case ast.Constant(value=int() as number) if not isinstance(number, bool) and number:
            yield node, ast.Constant(number + 1)
        case ast.Return(value=ast.expr() as value) if not isinstance(value, ast.Constant):
            yield value, ast.Constant(None)
        case ast.If() | ast.IfExp() | ast.While():
            yield node.test, ast.UnaryOp(ast.Not(), node.test)


def _walk(tree: ast.AST) -> Iterator[ast.AST]:
    """Visits all nodes except those in f-strings, whose places Python 3.11 does not know."""
    yield tree
    for child in ast.iter_child_nodes(tree):
        if not isinstance(child, ast.JoinedStr):
            yield from _walk(child)


def _change_lua(source: bytes) -> Iterator[tuple[int, int, str]]:
    """Flips operators and words outside comments and strings."""
    offset = 0
    for line in source.splitlines(keepends=True):
        code = line.decode("latin-1").partition("--")[0]
        for word in LUA_WORD.finditer(code):
            if code[: word.start()].count('"') % 2 == 0:
                yield offset + word.start(1), offset + word.end(1), LUA_WORDS[word[1]]
        offset += len(line)


def room_of(path: str) -> str:
    """Names the package of a file below src/slipway: ``kube``, ``apis/ome``, or empty for files of no package."""
    parts = path.removeprefix("src/slipway/").split("/")[:-1]
    return "/".join(parts[: 2 if parts[:1] == ["apis"] else 1])


def choose_mutants(sources: Mapping[str, bytes], number: int, seed: int) -> list[Mutant]:
    """Chooses mutants, spread evenly over the rooms. The same sources, number and seed give the same list.

    Args:
        sources: Path below src/slipway -> content.
        number: How many to choose.
        seed: Start of the random sequence.
    """
    chance = random.Random(seed)
    pools: dict[str, list[Mutant]] = {}
    for path in sorted(sources):
        if len(sources[path]) > SMALLEST_FILE:
            pools.setdefault(room_of(path), []).extend(list_mutants(path, sources[path]))
    for pool in pools.values():
        chance.shuffle(pool)
    return list(_take_in_turns([pools[room] for room in sorted(pools)], number))


def _take_in_turns(pools: Sequence[list[Mutant]], number: int) -> Iterator[Mutant]:
    while number and any(pools):
        for pool in pools:
            if pool and number:
                yield pool.pop()
                number -= 1
