"""The advice for each reason of a condition. ``scripts/advice.py`` generates ``advice.json`` from
docs/reference/troubleshooting.md."""

from __future__ import annotations

from functools import cache
from importlib import resources

import msgspec


class Advice(msgspec.Struct, frozen=True, omit_defaults=True):
    """The advice for one reason of a condition."""

    do: str = ""
    """Advice if no case matches."""
    cases: dict[str, str] = {}
    """Part of a message -> advice for conditions whose messages contain it, ignoring case. The first match counts."""


@cache
def _load_advice() -> dict[str, Advice]:
    return msgspec.json.decode((resources.files(__package__) / "advice.json").read_bytes(), type=dict[str, Advice])


def advise(reason: str, message: str) -> str:
    """Return the advice for a condition with the given reason and message; empty if there is none."""
    advice = _load_advice().get(reason)
    if advice is None:
        return ""
    lower = message.lower()
    return next((do for text, do in advice.cases.items() if text.lower() in lower), advice.do)
