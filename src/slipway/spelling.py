"""Suggestions for misspelled names. Pure. The names are untrusted, so the cost is limited."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from itertools import islice

NAMES = 200
"""Maximum number of names to compare. Further names are ignored."""
CHARACTERS = 100
"""Maximum number of characters in a name to compare. Longer names are ignored."""
SUGGESTED = 3
ALIKE = 0.7
"""Minimum similarity of two names, from 0 to 1."""


def unknown(noun: str, name: str, choices: Iterable[str]) -> str:
    """Return an error message for an unknown name, with the similar names, if any, and all valid names. ``noun``
    describes the name, such as ``engine``."""
    names = sorted(choices, key=str.lower)
    suggestion = did_you_mean(name, names) or "."
    return f"this version does not know the {noun} {name[:CHARACTERS]!r}{suggestion} Known {noun}s: {', '.join(names)}"


def did_you_mean(name: str, choices: Iterable[str]) -> str:
    """Return ``; did you mean a or b?`` for the end of a message, with the most similar name first. Return an empty
    string if no name is similar."""
    names = nearest(name, choices)
    return f"; did you mean {' or '.join(names)}?" if names else ""


def nearest(name: str, choices: Iterable[str]) -> list[str]:
    """Return at most ``SUGGESTED`` of the choices that are similar to ``name``, the most similar first. Case is
    ignored, and only the first ``NAMES`` choices are compared."""
    if len(name) > CHARACTERS:
        return []
    compared: dict[str, str] = {}
    for one in islice(choices, NAMES):
        if len(one) <= CHARACTERS:
            compared.setdefault(one.lower(), one)
    return [compared[one] for one in get_close_matches(name.lower(), compared, SUGGESTED, ALIKE)]
