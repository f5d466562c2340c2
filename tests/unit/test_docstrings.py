"""A docstring belongs to the statement before it, so no two stand together."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.tables import each

SOURCES = sorted((Path(__file__).parents[2] / "src").rglob("*.py"))


def doubled(tree: ast.AST) -> Iterator[int]:
    """The lines of docstrings that follow another one."""
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        statements = body if isinstance(body, list) else []
        texts = [isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant) for one in statements]
        for position in range(1, len(statements)):
            if texts[position - 1] and texts[position]:
                yield statements[position].lineno


@each(SOURCES, ids=str)
def test_no_docstring_follows_another_one(path: Path) -> None:
    assert list(doubled(ast.parse(path.read_text()))) == []


def test_a_docstring_after_another_one_is_found() -> None:
    module = 'A = 1\n"""Of A."""\n"""Of nothing."""\n'
    body = 'class B:\n    """Of B."""\n    c = 1\n    """Of c."""\n    """Of nothing."""\n'
    assert list(doubled(ast.parse(module + body))) == [3, 8]
