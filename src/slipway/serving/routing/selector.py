"""Parser for label selectors in Kubernetes' syntax. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

_NAME = r"[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?"
KEY = re.compile(rf"(?:(?=[a-z0-9.-]{{1,253}}/)[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?/)?{_NAME}")
VALUE = re.compile(rf"(?:{_NAME})?")
_INTEGER = re.compile(r"[+-]?[0-9]{1,18}")
_REQUIREMENT = re.compile(
    r"""\s*(?:
        (?P<absent>!)\s*(?P<missing>[^\s!=<>,()]+)
        | (?P<key>[^\s!=<>,()]+)
          (?: \s*(?P<sign>==?|!=|[<>])\s*(?P<value>[^\s!=<>,()]*)
            | \s+(?P<word>in|notin)\s*\((?P<values>[^!=<>()]*)\)
          )?
    )\s*(?:,|\Z)""",
    re.VERBOSE | re.ASCII,
)


class InvalidSelectorError(ValueError):
    """The text is not a label selector."""


class Requirement(NamedTuple):
    """One requirement of a selector. ``operator`` is ``exists``, ``absent``, ``in``, ``notin``, ``<`` or ``>``."""

    key: str
    operator: str
    values: tuple[str, ...] = ()

    def holds(self, labels: Mapping[str, str]) -> bool:
        """Whether ``labels`` meet the requirement. ``<`` and ``>`` only hold for labels whose values are integers."""
        label = labels.get(self.key)
        if self.operator in ("absent", "notin"):
            return label is None or (self.operator == "notin" and label not in self.values)
        if label is None or self.operator in ("exists", "in"):
            return label is not None and (self.operator == "exists" or label in self.values)
        if not _INTEGER.fullmatch(label):
            return False
        bound = int(self.values[0])
        return int(label) > bound if self.operator == ">" else int(label) < bound


def parse(*selectors: str) -> tuple[Requirement, ...]:
    """Return the requirements of all selectors, which must all hold. An empty selector has no requirements. Raise
    InvalidSelectorError if a text is not a label selector."""
    return tuple(requirement for text in selectors if text.strip() for requirement in _parse(text))


def _parse(text: str) -> Iterable[Requirement]:
    requirements, at = [], 0
    while True:
        match = _REQUIREMENT.match(text, at)
        if not match:
            raise InvalidSelectorError("not a label selector")
        requirements.append(_requirement(match))
        at = match.end()
        if not match[0].endswith(","):
            return requirements


def chosen(requirements: Iterable[Requirement], labels: Mapping[str, str]) -> bool:
    """Whether the labels meet all requirements."""
    return all(requirement.holds(labels) for requirement in requirements)


def _requirement(match: re.Match[str]) -> Requirement:
    key = match["missing"] or match["key"]
    if not KEY.fullmatch(key):
        raise InvalidSelectorError("a key is not a valid label key")
    if match["absent"]:
        return Requirement(key, "absent")
    sign, word = match["sign"], match["word"]
    if not sign and not word:
        return Requirement(key, "exists")
    values = tuple(value.strip() for value in match["values"].split(",")) if word else (match["value"],)
    if not all(VALUE.fullmatch(value) for value in values) or (word and not match["values"].strip()):
        raise InvalidSelectorError("a value is not a valid label value")
    if sign in ("<", ">"):
        if not _INTEGER.fullmatch(values[0]):
            raise InvalidSelectorError("a bound is not a number")
        return Requirement(key, sign, values)
    return Requirement(key, word or ("notin" if sign == "!=" else "in"), values)
