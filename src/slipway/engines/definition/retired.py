"""Retired flags: rewrites arguments of older manifests for the default image. Pure.

A manifest without an image was written for the default image of its time. The controller rewrites its arguments for the
current default image: it removes or replaces a flag that the engine no longer has. It does not rewrite arguments for an
author's or operator's own image, whose version is unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal

import msgspec

VALUE = "{}"
"""Placeholder for the value of a retired flag in the arguments of ``Retired.successor``."""
LETTERS = 3
"""Minimum number of characters of a flag's last word that an abbreviation must contain."""
BOOLEANS = {"true": "true", "1": "true", "false": "false", "0": "false"}


class Retired(msgspec.Struct, frozen=True):
    """A flag that only earlier versions of an engine support."""

    flag: str
    takes: Literal["nothing", "value", "boolean", "values"] = "nothing"
    """Kind of value that follows the flag. The value of a ``boolean`` is optional."""
    successor: tuple[str, ...] | Callable[[str], tuple[str, ...] | None] = ()
    """Arguments that replace the flag; empty to remove it. A function gets the flag's value, and returns None for a
    value that the flag still accepts."""
    by_value: Mapping[str, tuple[str, ...]] | None = None
    """Value of the flag -> arguments that replace both. With other values the flag is not retired. None to use
    ``successor``."""


class Renewal(msgspec.Struct, frozen=True):
    """Arguments that the default image supports, and the changes that led to them."""

    args: tuple[str, ...]
    changes: Mapping[str, str] = {}
    """Flag, as the author spelled it -> the change: ``left out``, or ``replaced by`` and the new arguments."""


def renewed(args: Sequence[str], table: Sequence[Retired], *, abbreviated: bool = False) -> Renewal:
    """Remove or replace the retired flags in ``args``. ``abbreviated``: whether the engine accepts abbreviated flags,
    as argparse does."""
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
    """Describe the changes to the flags in ``field`` for a condition's message; empty if there are no changes."""
    if not changes:
        return ""
    flags = ", ".join(f"{flag} ({what})" for flag, what in changes.items())
    return f"The default image does not have these flags of {field}: {flags}."


def is_ours(image: str, images: Mapping[str, str], older: frozenset[str]) -> bool:
    """Whether an image is one of Slipway's default images, possibly from a mirror, which keeps the last part of the
    name. ``older``: accelerators to ignore, because their default image still supports the retired flags."""
    return _version(image) in {_version(ours) for name, ours in images.items() if name not in older}


def _version(image: str) -> str:
    """Return the last component of an image's repository, with the tag."""
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
    """Whether ``flag`` abbreviates ``of`` within its last word. A shorter abbreviation may mean a current flag."""
    return of.startswith(flag) and len(flag) >= shortest(of)


def shortest(flag: str) -> int:
    """Return the minimum length of an abbreviation of ``flag`` in characters. A flag of a single word cannot be
    abbreviated."""
    last = flag.rindex("-") + 1
    return len(flag) if last <= len("--") else min(last + LETTERS, len(flag))


def _value(row: Retired, args: Sequence[str], place: int) -> tuple[str, int]:
    """Return the value of the flag at the index ``place``, and the index after the value."""
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
    """Return the arguments that replace a flag with ``value``, or None if the engine still supports both."""
    key = BOOLEANS.get(value.lower(), value) if row.takes == "boolean" else value
    if row.by_value is not None:
        return row.by_value.get(key)
    if callable(row.successor):
        return row.successor(value)
    return tuple(word.replace(VALUE, value) for word in row.successor)
