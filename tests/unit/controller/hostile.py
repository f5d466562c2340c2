"""Text that no honest program writes, by the dice: nested, cut off, huge, of the wrong types, with odd bytes."""

from __future__ import annotations

import copy
import json
from random import Random
from typing import Any

NESTED = "NESTED-HERE"
"""Stands in an object for a value that is nested deeper than a decoder goes; see ``encoded``."""
RAW = {
    "FLOAT-HERE": "1e999",
    "SURROGATE-HERE": '"\\ud800"',
    "DIGITS-HERE": "9" * 5000,
    "NAN-HERE": "NaN",
}
"""What Python's own encoder would not write."""


def value(random: Random, depth: int = 3) -> Any:
    """Any value that can stand in an object."""
    plain = (
        None,
        True,
        0,
        -1,
        2**63,
        2**70,
        1.5,
        "",
        "x",
        "\0",
        "\x1b[31m",
        "../..",
        "é" * 300,
        "x" * random.choice((1, 300, 20_000)),
        "9" * 400,
        "1e999",
        "2026-01-01T00:00:00Z",
        "{",
        "[" * 3000,
        "a\nb",
        NESTED,
        *RAW,
    )
    if depth and random.random() < 0.35:
        if random.random() < 0.5:
            return [value(random, depth - 1) for _unused in range(random.randrange(4))]
        return {str(value(random, 0))[:300]: value(random, depth - 1) for _unused in range(random.randrange(4))}
    return random.choice(plain)


def changed(random: Random, obj: Any, keep: frozenset[str] = frozenset(), times: int = 1) -> Any:
    """A copy of an object with something in it replaced or gone; fields named in ``keep`` stay."""
    obj = copy.deepcopy(obj)
    for _unused in range(times):
        holder, steps = obj, random.randrange(6)
        while True:
            names: list[Any] = []
            if isinstance(holder, dict):
                names = [name for name in holder if name not in keep]
            elif isinstance(holder, list):
                names = list(range(len(holder)))
            if not names:
                break
            name = random.choice(names)
            if steps and isinstance(holder[name], dict | list) and holder[name]:
                holder, steps = holder[name], steps - 1
                continue
            if name != "metadata" and random.random() < 0.2:
                del holder[name]
            elif name != "metadata":
                holder[name] = value(random)
            break
    return obj


def encoded(obj: Any, depth: int = 1500) -> bytes:
    """As JSON, with what stands for something else replaced by it."""
    text = json.dumps(obj, ensure_ascii=False)
    text = text.replace(f'"{NESTED}"', "[" * depth + "]" * depth)
    for name, raw in RAW.items():
        text = text.replace(f'"{name}"', raw)
    return text.encode(errors="surrogatepass")


def text(random: Random, obj: Any) -> bytes:
    """An object as text, and sometimes not even that."""
    content = encoded(changed(random, obj, times=random.randrange(1, 4)))
    return damaged(random, content) if random.random() < 0.5 else content


def damaged(random: Random, observed: bytes) -> bytes:
    """Text that is cut off, doubled, or has a byte too many or too few."""
    place = random.randrange(len(observed) + 1)
    return random.choice(
        (
            observed[:place],
            observed[:place] + bytes([random.randrange(256)]) + observed[place:],
            observed[:place] + observed[place + 1 :],
            observed[:place] + b'"a":1,"a":[],' + observed[place:],
            observed + observed,
            observed[:place] + b"\xed\xa0\x80" + observed[place:],
            b"[" * random.choice((10, 2000, 200_000)),
            b'{"a":' * 3000,
            b"",
        )
    )
