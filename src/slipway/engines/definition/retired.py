"""Retired flags: rewrites arguments of older manifests for the default image. Pure.

A manifest without an image was written for the default image of its time. Its arguments are rewritten for the current
one: a flag that the engine no longer has is removed or replaced by its successor. The version of an author's or
operator's own image is unknown, so nothing is rewritten for it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal

import msgspec

VALUE = "{}"
"""In a successor: the value that the retired flag was given."""
LETTERS = 3
"""Of the last word of a flag, that an abbreviation needs."""
BOOLEANS = {"true": "true", "1": "true", "false": "false", "0": "false"}


class Retired(msgspec.Struct, frozen=True):
    """A flag that earlier versions of an engine had."""

    flag: str
    takes: Literal["nothing", "value", "boolean", "values"] = "nothing"
    """What followed it. A ``boolean`` may also be left out."""
    successor: tuple[str, ...] | Callable[[str], tuple[str, ...] | None] = ()
    """What to write today. Empty: nothing. A function returns None for a value that the flag still takes."""
    by_value: Mapping[str, tuple[str, ...]] | None = None
    """What to write for these values alone; the flag is not retired with others."""


class Renewal(msgspec.Struct, frozen=True):
    """Arguments for the image of our defaults."""

    args: tuple[str, ...]
    changes: Mapping[str, str] = {}
    """Flag, in the author's spelling -> what the controller does with it."""


def renewed(args: Sequence[str], table: Sequence[Retired], *, abbreviated: bool = False) -> Renewal:
    """``args`` without retired flags. ``abbreviated``: whether the engine takes the beginning of a flag for the flag,
    as argparse does."""
    kept: list[str] = []
    changes: dict[str, str] = {}
    place = 0
    while place < len(args):
        row = _row(args[place], table, abbreviated=abbreviated)
        if row is None:
            kept.append(args[place])
            place += 1
            continue
        value, following = _value(row, args, place)
        now = _successor(row, value)
        if now is None:
            kept.extend(args[place:following])
        else:
            kept.extend(now)
            written = args[place].partition("=")[0]
            changes[written] = f"replaced by {' '.join(now)}" if now else "left out"
        place = following
    return Renewal(tuple(kept), changes)


def sentence(changes: Mapping[str, str], field: str) -> str:
    """What became of the flags of ``field``, for a condition; empty: nothing changed."""
    if not changes:
        return ""
    flags = ", ".join(f"{flag} ({what})" for flag, what in changes.items())
    return f"The default image does not have these flags of {field}: {flags}."


def is_ours(image: str, images: Mapping[str, str], older: frozenset[str]) -> bool:
    """Whether an image is one of our defaults, also in a mirror: repositories of a mirror end alike. ``older``: the
    accelerators whose default is of an earlier version, which still has the flags."""
    return _version(image) in {_version(ours) for name, ours in images.items() if name not in older}


def _version(image: str) -> str:
    """The last part of the repository with its tag."""
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
    """Whether a flag is abbreviated within its last word: a shorter one may be a flag of today's."""
    return of.startswith(flag) and len(flag) >= shortest(of)


def shortest(flag: str) -> int:
    """Characters that an abbreviation of a flag needs. One with a single word is never abbreviated."""
    last = flag.rindex("-") + 1
    return len(flag) if last <= len("--") else min(last + LETTERS, len(flag))


def _value(row: Retired, args: Sequence[str], place: int) -> tuple[str, int]:
    """The flag's value, and the place behind it."""
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
    """What to write; None: the flag stays."""
    key = BOOLEANS.get(value.lower(), value) if row.takes == "boolean" else value
    if row.by_value is not None:
        return row.by_value.get(key)
    if callable(row.successor):
        return row.successor(value)
    return tuple(word.replace(VALUE, value) for word in row.successor)
