"""Arguments: merges flags into a command line, which may be a list of words or a script. Pure.

In a list, an existing flag gets its new value in place, and new flags are appended. The same applies to a single
argument with one flag per line and a backslash at the end of each line, which keeps its format. In a shell script, all
flags are appended, because the last one counts.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence

from slipway.engines.recognition import is_flag, recognise, script_of, spelling, values_of_flags
from slipway.kube.objects import Object

CONFIG = "--config"
"""Flag of vLLM and SGLang for a file with flags, one per line."""
SETTING = re.compile(r"^[\"']?([A-Za-z][\w-]{0,63})[\"']?[ \t]*:[ \t]*[\"']?([^\s\"'#]*)", re.MULTILINE)
JOINED = " \\\n"
"""The end of each line, except the last, of a string with one flag per line."""


def merged(args: Sequence[str], flags: Sequence[str]) -> list[str]:
    """Return ``args`` with ``flags`` set. Both are lists of words, in which a flag is ``--name=value``, ``--name``
    before its values, or only ``--name``. If ``args`` is one string with a flag per line, the result is such a
    string."""
    if len(args) == 1 and "\n" in args[0] and flags:
        lines = _override_flags(_lines(args[0]), _groups(flags))
        return [JOINED.join(" ".join(words) for words in lines)]
    return [word for words in _override_flags(_groups(args), _groups(flags)) for word in words]


def with_flags(container: Object, flags: Sequence[str]) -> Object | None:
    """Return the container with ``flags`` for its program. They take precedence over existing flags of the same names.
    Return None for a shell script that does not end with the program's arguments, or that contains ``#``."""
    script = script_of(container)
    command, args = list(container.get("command") or ()), list(container.get("args") or ())
    if script is None:
        return _split_command(container, command, args, flags)
    field, place = script
    words = command if field == "command" else args
    if not recognise(container).last or "#" in words[place]:
        return None
    # If a flag occurs twice, the last one counts.
    words[place] = " ".join((words[place].rstrip().rstrip("\\").rstrip(), shlex.join(flags)))
    return {**container, field: words}


def configured(args: Sequence[str], files: Mapping[str, str]) -> tuple[str, ...]:
    """Return the flags in the file that ``--config`` names, as ``--name=value`` with only the first word of each value.
    ``files``: path -> text. Empty if there is no ``--config``, or its file is not one of ``files``."""
    words = values_of_flags(args, CONFIG)
    text = files.get(words[0], "") if words else ""
    return tuple(f"--{name}={value}" for name, value in SETTING.findall(text))


def _split_command(container: Object, command: Sequence[str], args: Sequence[str], flags: Sequence[str]) -> Object:
    """Set flags in a container without a script: in ``command`` if it already has the flag, and otherwise in
    ``args``."""
    own = {_flag(words) for words in _groups(command)}
    there = [word for words in _groups(flags) if _flag(words) in own for word in words]
    here = [word for words in _groups(flags) if _flag(words) not in own for word in words]
    changed = {"command": merged(command, there)} if there else {}
    return {**container, **changed, "args": merged(args, here)}


def _groups(words: Sequence[str]) -> list[list[str]]:
    """Group words: each flag with its values. A word that belongs to no flag forms its own group."""
    groups: list[list[str]] = []
    for word in words:
        if is_flag(word) or not groups or not is_flag(groups[-1][0]) or "=" in groups[-1][0]:
            groups.append([word])
        else:
            groups[-1].append(word)
    return groups


def _lines(script: str) -> list[list[str]]:
    """Return each line of a script as a group of one word, without the backslash at the end. Omit empty lines."""
    plain = (line.strip().removesuffix("\\").rstrip() for line in script.splitlines())
    return [[line] for line in plain if line]


def _flag(group: Sequence[str]) -> str:
    """Return the normalized flag at the beginning of a group; empty if there is none."""
    word = group[0].split(maxsplit=1)[0] if group[0].strip() else ""
    return spelling(word.partition("=")[0]) if is_flag(word) else ""


def _override_flags(base: Sequence[list[str]], over: Sequence[list[str]]) -> list[list[str]]:
    overrides = {_flag(group): group for group in over if _flag(group)}
    here = {_flag(group) for group in base}
    new = [group for group in over if _flag(group) not in here or not _flag(group)]
    return [*(overrides.get(_flag(group), group) for group in base), *new]
