"""Versions of formats and frameworks, and whether a runtime's version accepts a model's version. Pure.

The grammar is OME's: an optional ``v`` and one to three numbers. A third number may be followed by a development
release, a pre-release and a build, as in ``4.51.0.dev0`` and ``1.8.0-beta+7``.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

import msgspec

NUMBER = r"(0|[1-9][0-9]{0,17})"
WORDS = r"[^+]{1,64}"
VERSION = re.compile(
    rf"(?P<prefix>v?)(?P<major>{NUMBER})(\.(?P<minor>{NUMBER})"
    rf"(\.(?P<patch>{NUMBER})(\.dev(?P<dev>[^-+]{{0,64}}))?(-(?P<pre>{WORDS}))?(\+(?P<build>.{{1,64}}))?)?)?",
    re.ASCII,
)
LONGEST = 256
"""Maximum number of characters in two compared versions together. Longer versions never match, so that authors cannot
fill the cache with long texts."""
EQUAL, GREATER, GREATER_OR_EQUAL = "Equal", "GreaterThan", "GreaterThanOrEqual"


class Version(msgspec.Struct, frozen=True):
    """A parsed version of a format or a framework."""

    prefix: str
    precision: int
    """Number of components in the text, 1 to 3: major, minor and patch."""
    release: tuple[int, int, int]
    dev: tuple[str, ...] | None
    """Dot-separated identifiers of the development release, or None if the version is no development release. ``pre``
    and ``build`` have the same form."""
    pre: tuple[str, ...] | None
    build: tuple[str, ...] | None

    @property
    def official(self) -> bool:
        """Whether the version is a release: not a development release, a pre-release or a build."""
        return self.dev is None and self.pre is None and self.build is None

    @property
    def identity(self) -> tuple[Any, ...]:
        """The parts that equal versions share: all except the prefix and the precision."""
        return self.release, self.dev, self.pre, self.build


def parse(text: str) -> Version:
    """Parse a version such as ``v1.0.0``. Raise ValueError for any other string."""
    match = VERSION.fullmatch(text)
    if match is None:
        raise ValueError(f"{text[:64]!r} is not a version such as 1.0.0")
    numbers = [match[name] for name in ("major", "minor", "patch")]
    major, minor, patch = (int(number or 0) for number in numbers)
    return Version(
        prefix=match["prefix"],
        precision=sum(number is not None for number in numbers),
        release=(major, minor, patch),
        dev=_words(match["dev"]),
        pre=_words(match["pre"]),
        build=_words(match["build"]),
    )


def agrees(runtime: str | None, model: str | None, operator: str = EQUAL) -> bool:
    """Whether a runtime declared for version ``runtime`` accepts a model of version ``model``. None or an empty string
    means that no version is specified, which only matches another unspecified version.

    The operator applies from the runtime's side: with GreaterThan, the runtime's version must be greater than the
    model's. With GreaterThan and GreaterThanOrEqual, two releases only match if they have the same prefix and the same
    number of components, and a development release, pre-release or build only matches an equal version. With any other
    operator, versions must be equal. Equal versions may differ in prefix and number of components. An invalid version
    matches no version.
    """
    if not runtime or not model:
        return not runtime and not model
    return len(runtime) + len(model) <= LONGEST and _remembered(runtime, model, operator)


def _compared(runtime: str, model: str, operator: str) -> bool:
    try:
        ours, theirs = parse(runtime), parse(model)
    except ValueError:
        return False
    if operator not in (GREATER, GREATER_OR_EQUAL) or not (ours.official and theirs.official):
        return ours.identity == theirs.identity
    if (ours.precision, ours.prefix) != (theirs.precision, theirs.prefix):
        return False
    return ours.release > theirs.release or (operator == GREATER_OR_EQUAL and ours.release == theirs.release)


_remembered = lru_cache(maxsize=4096)(_compared)


def _words(text: str | None) -> tuple[str, ...] | None:
    return None if text is None else tuple(text.split("."))
