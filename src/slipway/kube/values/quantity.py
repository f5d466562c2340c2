"""Resource quantities as Kubernetes writes them, multiplied without loss. Pure."""

from __future__ import annotations

import math
import re
from fractions import Fraction

FORM = re.compile(r"((?:\d+\.?\d*|\.\d+))(?:([numkMGTPE]|[KMGTPE]i)|[eE]([+-]?\d+))?")
BINARY = {f"{letter}i": 1024**power for power, letter in enumerate("KMGTPE", start=1)}
DECIMAL = {letter: 1000**power for power, letter in enumerate("kMGTPE", start=1)}
SMALL = {"": Fraction(1), "m": Fraction(1, 10**3), "u": Fraction(1, 10**6), "n": Fraction(1, 10**9)}
UNITS: dict[str, Fraction] = SMALL | {suffix: Fraction(size) for suffix, size in (BINARY | DECIMAL).items()}


def multiply(quantity: str, count: int) -> str:
    """Return ``count`` times a quantity in the API server's canonical form: 3 x ``500m`` is ``1500m``, and 2 x
    ``512Mi`` is ``1Gi``. Raise ValueError, with the expected form, for an invalid quantity."""
    single, suffix = _parsed(quantity)
    value = single * count
    if suffix in BINARY and value >= 1024:
        return _in_units(math.ceil(value), BINARY)
    return _decimal(value)


def amount(quantity: str) -> Fraction:
    """Return the value of a quantity: 1/2 for ``500m``, 1024 for ``1Ki``. Raise ValueError, with the expected form, for
    an invalid quantity."""
    return _parsed(quantity)[0]


def _parsed(quantity: str) -> tuple[Fraction, str]:
    """Return the value and the suffix of a quantity. Raise ValueError if it is invalid."""
    matched = FORM.fullmatch(quantity)
    if not matched or len(quantity) > 64:
        raise ValueError(f"{quantity[:64]!r} is not a quantity such as 2, 500m or 24Gi")
    number, suffix, exponent = matched.groups()
    unit = Fraction(10) ** _exponent(exponent) if exponent else UNITS[suffix or ""]
    return Fraction(number) * unit, suffix or ""


def _exponent(text: str) -> int:
    if abs(int(text)) > 18:
        raise ValueError(f"the exponent {text} of a quantity is larger than 18")
    return int(text)


def _decimal(value: Fraction) -> str:
    """Format a value with the largest decimal unit that gives a whole number. As in Kubernetes, a fraction of a
    billionth is rounded up."""
    if value.denominator == 1:
        return _in_units(int(value), DECIMAL)
    for suffix in ("m", "u"):
        if (scaled := value / UNITS[suffix]).denominator == 1:
            return f"{scaled}{suffix}"
    return f"{math.ceil(value / UNITS['n'])}n"


def _in_units(value: int, units: dict[str, int]) -> str:
    for suffix, size in sorted(units.items(), key=lambda unit: -unit[1]):
        if value and value % size == 0:
            return f"{value // size}{suffix}"
    return str(value)
