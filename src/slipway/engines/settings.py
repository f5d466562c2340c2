"""Settings: an engine's typed settings as data, in the order of its command line, and what becomes of them. Pure.

An API names what it sets; the engine's table says which flag that is. A flag that the user's own arguments have is left
to them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

Value = bool | int | float | str | tuple[str, ...]
"""A switch, a number, a text, or several texts of which each gets a flag."""
NO_GPU = "there is no GPU"
NOT_KNOWN = "the runtime has no such setting"


class Setting(msgspec.Struct, frozen=True):
    """One row of an engine's table."""

    name: str
    """What an API calls it: ``context_size``."""
    flag: str
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


Table = tuple[Setting, ...]


def arguments(table: Table, settings: Mapping[str, Value], extra: Sequence[str], gpus: int) -> tuple[str, ...]:
    """The flags of these settings in the table's order."""
    unused = idle(table, settings, extra, gpus)
    rows = (row for row in table if row.name in settings and row.name not in unused)
    return tuple(word for row in rows for word in _words(row, settings[row.name]))


def idle(table: Table, settings: Mapping[str, Value], extra: Sequence[str], gpus: int) -> dict[str, str]:
    """The settings that have no effect, and why."""
    rows, given = {row.name: row for row in table}, flags(extra)
    found = {}
    for name in settings:
        row = rows.get(name)
        why = NOT_KNOWN if row is None else _why(row, settings, given, gpus)
        if why:
            found[name] = why
    return found


def _why(row: Setting, settings: Mapping[str, Value], given: frozenset[str], gpus: int) -> str:
    if row.gpu and not gpus:
        return NO_GPU
    if row.needs and row.needs not in settings:
        return f"it needs a {row.needs.replace('_', ' ')}"
    own = () if row.repeats else (row.flag, *row.short)
    taken = next((flag for flag in (*own, *row.unless) if flag in given), "")
    return f"extraArgs has {taken}" if taken else ""


def _words(row: Setting, value: Value) -> tuple[str, ...]:
    if isinstance(value, bool):
        return (row.flag, row.on) if row.on else (row.flag,)
    if isinstance(value, tuple):
        return tuple(word for one in value for word in (row.flag, one))
    return (row.flag, str(value))


def flags(args: Sequence[str]) -> frozenset[str]:
    """The flags among arguments; an underscore in a long one is a hyphen."""
    spelled = (arg.partition("=")[0] for arg in args if arg.startswith("-"))
    return frozenset(flag.replace("_", "-") if flag.startswith("--") else flag for flag in spelled)
