"""Flags: an engine's typed settings as a table in the order of its command line. Pure.

An API sets values by name (``context_size``); the table says which flag each one is. A flag that the user's own
arguments contain is not set a second time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

Value = bool | int | float | str | tuple[str, ...]
"""A switch, a number, a text, or several texts of which each gets a flag."""
NO_GPU = "there is no GPU"
UNSUPPORTED_SETTING = "the runtime has no such setting"


class FlagSpec(msgspec.Struct, frozen=True):
    """One row of an engine's table."""

    name: str
    """What an API calls it: ``context_size``."""
    flag: str
    """Empty: the engine does it in any case."""
    short: tuple[str, ...] = ()
    """Further spellings of the flag."""
    on: str = ""
    """What stands behind the flag of a switch that is on; empty: nothing does."""
    gpu: bool = False
    """Whether it means anything with GPUs only."""
    needs: str = ""
    """Another setting, without which it means nothing."""
    unless: tuple[str, ...] = ()
    """Further flags that leave the whole matter to the user's arguments."""
    repeats: bool = False
    """Whether a flag of the user's own is one more, and not another value."""
    listed: bool = False
    """Whether several texts stand behind one flag."""


FlagTable = tuple[FlagSpec, ...]


def arguments(table: FlagTable, settings: Mapping[str, Value], extra: Sequence[str], gpus: int) -> tuple[str, ...]:
    """The flags of these settings in the table's order."""
    ineffective = without_effect(table, settings, extra, gpus)
    rows = (row for row in table if row.name in settings and row.name not in ineffective)
    return tuple(word for row in rows for word in _words(row, settings[row.name]))


def without_effect(
    table: FlagTable, settings: Mapping[str, Value], extra: Sequence[str], gpus: int, field: str = "args"
) -> dict[str, str]:
    """The settings that have no effect, and why. ``field``: of the spec, that has the user's arguments."""
    rows, given = {row.name: row for row in table}, given_flags(extra)
    reasons = {}
    for name in settings:
        row = rows.get(name)
        why = UNSUPPORTED_SETTING if row is None else _why(row, settings, given, gpus, field)
        if why:
            reasons[name] = why
    return reasons


def _why(row: FlagSpec, settings: Mapping[str, Value], given: frozenset[str], gpus: int, field: str) -> str:
    if row.gpu and not gpus:
        return NO_GPU
    if row.needs and row.needs not in settings:
        return f"it needs a {row.needs.replace('_', ' ')}"
    own = () if row.repeats else (row.flag, *row.short)
    taken = next((flag for flag in (*own, *row.unless) if flag in given), "")
    return f"{field} has {taken}" if taken else ""


def _words(row: FlagSpec, value: Value) -> tuple[str, ...]:
    if not row.flag:
        return ()
    if isinstance(value, bool):
        return (row.flag, row.on) if row.on else (row.flag,)
    if isinstance(value, tuple) and row.listed:
        return (row.flag, *value)
    if isinstance(value, tuple):
        return tuple(word for one in value for word in (row.flag, one))
    return (row.flag, str(value))


def given_flags(args: Sequence[str]) -> frozenset[str]:
    """The flags among arguments; an underscore in a long one is a hyphen."""
    spelled = (arg.partition("=")[0] for arg in args if arg.startswith("-"))
    return frozenset(flag.replace("_", "-") if flag.startswith("--") else flag for flag in spelled)


def names_flag(spelled: str, flag: str, *, abbreviated: bool) -> bool:
    """Whether an argument's flag, ``--api-k``, means this one. ``abbreviated``: whether the engine takes the beginning
    of a flag for the flag, as argparse does."""
    if not spelled.startswith("--"):
        return spelled == flag
    plain = spelled.replace("_", "-")
    return plain == flag or (abbreviated and len(plain) > len("--") and flag.startswith(plain))
