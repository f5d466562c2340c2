"""Retired flags: rewrites arguments of older manifests for the default image. Pure.

A manifest without an image was written for the default image of its time. Its arguments are rewritten for the current
one: a flag that the engine no longer has is removed or replaced. The version of an author's or operator's own image is
unknown, so nothing is rewritten for it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal

import msgspec

VALUE = "{}"
"""Placeholder in a successor for the value of the retired flag."""
LETTERS = 3
"""Characters of a flag's last word that an abbreviation must contain."""
BOOLEANS = {"true": "true", "1": "true", "false": "false", "0": "false"}


class Retired(msgspec.Struct, frozen=True):
    """A flag of earlier versions of an engine."""

    flag: str
    takes: Literal["nothing", "value", "boolean", "values"] = "nothing"
    """What follows the flag. The value of a ``boolean`` is optional."""
    successor: tuple[str, ...] | Callable[[str], tuple[str, ...] | None] = ()
    """The replacement. Empty: remove the flag. A function returns None for a value that the flag still accepts."""
    by_value: Mapping[str, tuple[str, ...]] | None = None
    """Value -> its replacement; with other values the flag is not retired. None: ``successor`` applies."""


class Renewal(msgspec.Struct, frozen=True):
    """Arguments for the default image."""

    args: tuple[str, ...]
    changes: Mapping[str, str] = {}
    """Flag, as spelled by the author -> what the controller does with it."""


def renewed(args: Sequence[str], table: Sequence[Retired], *, abbreviated: bool = False) -> Renewal:
    """Returns ``args`` without retired flags. ``abbreviated``: whether the engine accepts abbreviated flags, as
    argparse does."""
    remaining: list[str] = []
    changes: dict[str, str] = {}
    place = 0
    while place < len(args):
        row = _row(args[place], table, abbreviated=abbreviated)
        if row is None:
            remaining.append(args[place])
            place += 1
            continue
        value, following = _value(row, args, place)
        now = _successor(row, value)
        if now is None:
            remaining.extend(args[place:following])
        else:
            remaining.extend(now)
            spelled = args[place].partition("=")[0]
            changes[spelled] = f"replaced by {' '.join(now)}" if now else "left out"
        place = following
    return Renewal(tuple(remaining), changes)


def sentence(changes: Mapping[str, str], field: str) -> str:
    """Describes the changes to the flags in ``field``, for a condition; empty: no changes."""
    if not changes:
        return ""
    flags = ", ".join(f"{flag} ({what})" for flag, what in changes.items())
    return f"The default image does not have these flags of {field}: {flags}."


def is_ours(image: str, images: Mapping[str, str], older: frozenset[str]) -> bool:
    """Whether an image is one of our default images, possibly from a mirror, which keeps the end of the repository's
    name. ``older``: accelerators whose default image has an earlier version, which still has the flags."""
    return _version(image) in {_version(ours) for name, ours in images.items() if name not in older}


def _version(image: str) -> str:
    """Returns the last component of the repository, with its tag."""
    return image.partition("@")[0].rsplit("/", 1)[-1]


def _row(word: str, table: Sequence[Retired], *, abbreviated: bool) -> Retired | None:
    flag = word.partition("=")[0]
    if flag.startswith("--"):
        flag = flag.replace("_", "-")
    exact = next((row for row in table if flag in _spellings(row)), None)
    if exact or not abbreviated:
        return exact
    return next((row for row in table if _is_beginning(flag, row.flag)), None)


def _spellings(row: Retired) -> tuple[str, ...]:
    switch = row.takes == "nothing" or (row.takes == "boolean" and row.by_value is None)
    return (row.flag, row.flag.replace("--", "--no-", 1)) if switch else (row.flag,)


def _is_beginning(flag: str, of: str) -> bool:
    """Whether a flag is abbreviated within its last word. A shorter abbreviation may be one of a current flag."""
    return of.startswith(flag) and len(flag) >= shortest(of)


def shortest(flag: str) -> int:
    """Returns the minimum length of an abbreviation. A flag with a single word cannot be abbreviated."""
    last = flag.rindex("-") + 1
    return len(flag) if last <= len("--") else min(last + LETTERS, len(flag))


def _value(row: Retired, args: Sequence[str], place: int) -> tuple[str, int]:
    """Returns the flag's value, and the index after it."""
    _flag, equals, value = args[place].partition("=")
    if equals or row.takes == "nothing":
        return value, place + 1
    end = place + 1
    most = len(args) if row.takes == "values" else place + 2
    while end < min(most, len(args)) and _belongs(row, args[end]):
        end += 1
    return " ".join(args[place + 1 : end]), end


def _belongs(row: Retired, word: str) -> bool:
    if row.takes == "boolean":
        return word.lower() in BOOLEANS
    return not word.startswith("-") or word[1:2].isdigit()


def _successor(row: Retired, value: str) -> tuple[str, ...] | None:
    """Returns the replacement; None: the flag stays."""
    key = BOOLEANS.get(value.lower(), value) if row.takes == "boolean" else value
    if row.by_value is not None:
        return row.by_value.get(key)
    if callable(row.successor):
        return row.successor(value)
    return tuple(word.replace(VALUE, value) for word in row.successor)
