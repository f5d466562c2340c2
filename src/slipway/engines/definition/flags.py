"""Flags: maps an engine's typed settings to its command line, in the order of a table. Pure.

An API sets values by name, such as ``context_size``, and the table defines the flag for each name. A flag that the user
already sets is not set a second time, unless it can be repeated.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

Value = bool | int | float | str | tuple[str, ...]
"""Value of a setting: a switch, a number, a string, or several strings."""
NO_GPU = "there is no GPU"
UNSUPPORTED_SETTING = "the runtime has no such setting"


class FlagSpec(msgspec.Struct, frozen=True):
    """One row of an engine's flag table: a typed setting and its flag."""

    name: str
    """Name of the setting in an API, such as ``context_size``."""
    flag: str
    """Flag of the engine; empty if the setting is always enabled."""
    short: tuple[str, ...] = ()
    """Further spellings of the flag."""
    on: str = ""
    """Value after the flag of an enabled switch; empty if the flag has no value."""
    gpu: bool = False
    """Whether the setting has an effect only with GPUs."""
    needs: str = ""
    """Another setting without which the setting has no effect."""
    unless: tuple[str, ...] = ()
    """Further flags that replace ``flag`` if the user sets them."""
    repeats: bool = False
    """Whether the same flag in the user's arguments adds a value, instead of replacing the value."""
    listed: bool = False
    """Whether several strings follow a single flag, instead of one flag per string."""


FlagTable = tuple[FlagSpec, ...]


def arguments(table: FlagTable, settings: Mapping[str, Value], extra: Sequence[str], gpus: int) -> tuple[str, ...]:
    """Return the arguments for ``settings`` in the order of the table. Omit settings without effect. ``extra`` are the
    user's arguments, and ``gpus`` is the number of GPUs."""
    ineffective = without_effect(table, settings, extra, gpus)
    rows = (row for row in table if row.name in settings and row.name not in ineffective)
    return tuple(word for row in rows for word in _to_arguments(row, settings[row.name]))


def without_effect(
    table: FlagTable, settings: Mapping[str, Value], extra: Sequence[str], gpus: int, field: str = "args"
) -> dict[str, str]:
    """Return the reason for each setting that has no effect, by the name of the setting. ``extra`` are the user's
    arguments, and ``field`` is the spec's field with them."""
    rows, flags = {row.name: row for row in table}, flag_names(extra)
    reasons = {}
    for name in settings:
        row = rows.get(name)
        why = UNSUPPORTED_SETTING if row is None else _reason(row, settings, flags, gpus, field)
        if why:
            reasons[name] = why
    return reasons


def _reason(row: FlagSpec, settings: Mapping[str, Value], flags: frozenset[str], gpus: int, field: str) -> str:
    if row.gpu and not gpus:
        return NO_GPU
    if row.needs and row.needs not in settings:
        return f"it needs a {row.needs.replace('_', ' ')}"
    own = () if row.repeats else (row.flag, *row.short)
    conflict = next((flag for flag in (*own, *row.unless) if flag in flags), "")
    return f"{field} has {conflict}" if conflict else ""


def _to_arguments(row: FlagSpec, value: Value) -> tuple[str, ...]:
    if not row.flag:
        return ()
    if isinstance(value, bool):
        return (row.flag, row.on) if row.on else (row.flag,)
    if isinstance(value, tuple) and row.listed:
        return (row.flag, *value)
    if isinstance(value, tuple):
        return tuple(word for one in value for word in (row.flag, one))
    return (row.flag, str(value))


def flag_names(args: Sequence[str]) -> frozenset[str]:
    """Return the flags in arguments, normalized: long flags have hyphens instead of underscores."""
    spelled = (arg.partition("=")[0] for arg in args if arg.startswith("-"))
    return frozenset(flag.replace("_", "-") if flag.startswith("--") else flag for flag in spelled)


def names_flag(spelled: str, flag: str, *, abbreviated: bool) -> bool:
    """Whether ``spelled``, such as ``--api_key``, means ``flag``. ``abbreviated``: whether the engine also accepts
    abbreviated flags, such as ``--api-k``, as argparse does."""
    if not spelled.startswith("--"):
        return spelled == flag
    plain = spelled.replace("_", "-")
    return plain == flag or (abbreviated and len(plain) > len("--") and flag.startswith(plain))
