"""The advice on a reason. scripts/advice.py writes advice.json from docs/reference/troubleshooting.md."""

from __future__ import annotations

from functools import cache
from importlib import resources

import msgspec


class Advice(msgspec.Struct, frozen=True, omit_defaults=True):
    """Of one reason."""

    do: str = ""
    cases: dict[str, str] = {}
    """What to do where the message holds a text."""


@cache
def _load_advice() -> dict[str, Advice]:
    return msgspec.json.decode((resources.files(__package__) / "advice.json").read_bytes(), type=dict[str, Advice])


def advise(reason: str, message: str) -> str:
    """What to do about a condition of this reason; empty where nothing is known, or to be done."""
    advice = _load_advice().get(reason)
    if advice is None:
        return ""
    lower = message.lower()
    return next((do for text, do in advice.cases.items() if text.lower() in lower), advice.do)
