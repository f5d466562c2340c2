# Copyright: (c) 2026, The slipway.inference authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Private to this collection: it may change in any release.

"""TOML as text: new documents, and changes of single lines in a file of another author. All functions are pure.

The result of a change is always parsed and compared with the expected document.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

Table: TypeAlias = dict[str, Any]
Path: TypeAlias = tuple[str, ...]

BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")


class NotEditable(ValueError):
    """The text has a form that cannot be changed line by line."""


def read(text: str) -> Table:
    """Return the document in a TOML text. Raise ValueError if it is not TOML."""
    return tomllib.loads(text)


def at(table: Mapping[str, Any], path: Sequence[str], default: Any = None) -> Any:
    """Return the value at ``path`` below ``table``, or ``default`` if there is none."""
    node: Any = table
    for key in path:
        if not isinstance(node, Mapping) or key not in node:
            return default
        node = node[key]
    return node


def laid_over(below: Mapping[str, Any], above: Mapping[str, Any]) -> Table:
    """Return ``above`` merged over ``below``, table by table. Neither is changed."""
    both = dict(below)
    for key, value in above.items():
        under = both.get(key)
        both[key] = laid_over(under, value) if isinstance(under, Mapping) and isinstance(value, Mapping) else value
    return both


def without(table: Mapping[str, Any], path: Path) -> Table:
    """Return a copy of ``table`` without the value at ``path``."""
    if len(path) == 1:
        return {key: value for key, value in table.items() if key != path[0]}
    under = table.get(path[0])
    return {**table, path[0]: without(under, path[1:])} if isinstance(under, Mapping) else dict(table)


# ---- writing -------------------------------------------------------------------------------------------------------


def written(document: Mapping[str, Any]) -> str:
    """Return the document as TOML text: single values first, then a section for each table that has values."""
    return "\n".join(_sections(document, ())).strip("\n") + "\n" if document else ""


def _sections(table: Mapping[str, Any], path: Path) -> Iterator[str]:
    values = [f"{key_of(key)} = {value_of(value)}" for key, value in table.items() if not isinstance(value, Mapping)]
    if path and (values or not table):
        yield f"\n{header_of(path)}"
    yield from values
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from _sections(value, (*path, key))


def header_of(path: Path) -> str:
    return f"[{'.'.join(key_of(key) for key in path)}]"


def key_of(key: str) -> str:
    return key if BARE_KEY.fullmatch(key) else json.dumps(key, ensure_ascii=False)


def value_of(value: Any) -> str:
    """Return a boolean, number, text, list, or table within a list as TOML. Raise TypeError for other values, such as
    dates."""
    if isinstance(value, bool | int | float | str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{key_of(key)} = {value_of(item)}' for key, item in value.items())}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(value_of(item) for item in value)}]"
    raise TypeError(f"{value!r} cannot be written")


# ---- changing ------------------------------------------------------------------------------------------------------


def changed(text: str, changes: Mapping[str, Any], removed: Sequence[Path] = ()) -> str:
    """Return ``text`` with the values of ``changes`` and without the tables at ``removed``. Everything else stays as it
    is.

    Raise NotEditable if the text does not contain the affected tables with a header, but in another form, such as
    inline.
    """
    before = read(text)
    meant = before
    for path in removed:
        meant = without(meant, path)
    meant = laid_over(meant, changes)
    if meant == before:
        return text
    lines = text.splitlines()
    for path in removed:
        lines = _without_tables(lines, path)
    for path, key, value in _leaves(changes, ()):
        if at(before, (*path, key)) != value or any(_below((*path, key), gone) for gone in removed):
            lines = _with_value(lines, path, key, value)
    after = "\n".join(lines).strip("\n") + "\n"
    if not _says(after, meant):
        raise NotEditable("its format does not allow changes of single lines")
    return after


def _says(text: str, meant: Table) -> bool:
    try:
        return _pruned(read(text)) == _pruned(meant)
    except ValueError:
        return False


def _pruned(table: Mapping[str, Any]) -> Table:
    """Return a copy without empty tables, because an empty section has no meaning."""
    kept = {key: _pruned(value) if isinstance(value, Mapping) else value for key, value in table.items()}
    return {key: value for key, value in kept.items() if value != {}}


def _leaves(table: Mapping[str, Any], path: Path) -> Iterator[tuple[Path, str, Any]]:
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, (*path, key))
        else:
            yield path, key, value


def _below(path: Path, above: Path) -> bool:
    return path[: len(above)] == above


@dataclass(frozen=True)
class Statement:
    """One header, or one key with its value. ``first`` and ``end`` are its first line and the line after its last.
    ``key`` is empty for a header."""

    first: int
    end: int
    table: Path
    key: Path


def _statements(lines: Sequence[str]) -> list[Statement]:
    """Return the headers and keys in the lines of a valid TOML text."""
    statements: list[Statement] = []
    table: Path = ()
    first = 0
    while first < len(lines):
        end = _end(lines, first)
        parsed = read("\n".join(lines[first:end]))
        if lines[first].lstrip().startswith("["):
            table = _way(parsed)
            statements.append(Statement(first, end, table, ()))
        elif parsed:
            statements.append(Statement(first, end, table, _way(parsed)))
        first = end
    return statements


def _end(lines: Sequence[str], first: int) -> int:
    """Return the line after the last line of the statement that begins in line ``first``. Texts and lists may span
    several lines."""
    for end in range(first + 1, len(lines)):
        try:
            read("\n".join(lines[first:end]))
        except ValueError:
            continue
        return end
    return len(lines)


def _way(parsed: Mapping[str, Any]) -> Path:
    """Return the keys that lead to the single value or table of a statement."""
    [(key, value)] = parsed.items()
    return (key, *_way(value)) if isinstance(value, Mapping) and len(value) == 1 else (key,)


def _without_tables(lines: list[str], path: Path) -> list[str]:
    """Return the lines without the tables at or below ``path``. Comments stay, because it is unknown to which table
    they belong."""
    gone = {
        number
        for statement in _statements(lines)
        if _below(statement.table, path)
        for number in range(statement.first, statement.end)
    }
    spaced = {number - 1 for number in gone if number > 0 and not lines[number - 1].strip()}
    return [line for number, line in enumerate(lines) if number not in gone | spaced]


def _with_value(lines: list[str], path: Path, key: str, value: Any) -> list[str]:
    own = [statement for statement in _statements(lines) if statement.table == path]
    text = f"{key_of(key)} = {value_of(value)}"
    for statement in own:
        if statement.key == (key,):
            comment = _comment("\n".join(lines[statement.first : statement.end]))
            line = f"{_indent(lines[statement.first])}{text}{comment}"
            return [*lines[: statement.first], line, *lines[statement.end :]]
    if own:
        last = own[-1]
        indent = _indent(lines[last.first])
        deeper = "" if last.key or not indent else "  "
        return [*lines[: last.end], f"{indent}{deeper}{text}", *lines[last.end :]]
    if not path:
        return [text, *lines]
    return [*lines, "", header_of(path), text]


def _comment(statement: str) -> str:
    """Return the comment after a statement, with the preceding space. The result is empty if there is none."""
    parsed = read(statement)
    for match in re.finditer(r"[ \t]*#", statement):
        try:
            if read(statement[: match.start()]) == parsed:
                return statement[match.start() :]
        except ValueError:
            continue
    return ""


def _indent(line: str) -> str:
    return line[: len(line) - len(line.lstrip())]
