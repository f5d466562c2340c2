"""Name patterns: selects the tensors of a quantization group, by the patterns in its configuration. Pure.

The patterns are untrusted regular expressions, which may take forever to evaluate. This module converts the few
features used in practice to wildcards. Expressions with other features are not supported.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from fnmatch import fnmatchcase

LONGEST = 512
MOST = 64
"""Maximum number of wildcard patterns for one expression."""
_TOKEN = re.compile(
    r"(?P<many>(?:\.|\\d|\\w|\[0-9\]|\[\\d\])[*+]\??)|(?P<one>\.|\\d|\\w|\[0-9\])|\\(?P<escaped>[.\-_/])"
    r"|(?P<literal>[A-Za-z0-9_\-/:]+)|\((?:\?:)?(?P<choice>[A-Za-z0-9_\-|\\.]+)\)"
)


def wildcards(expression: str) -> tuple[str, ...] | None:
    """Convert a regular expression, which matches the beginning of a text, to wildcard patterns, which match the whole
    text. Return None if the expression is too long or not supported."""
    text = expression.removeprefix("^")
    ends = text.endswith("$") and not text.endswith("\\$")
    text = text[:-1] if ends else text
    patterns, position = [""], 0
    if len(text) > LONGEST:
        return None
    while position < len(text):
        token = _TOKEN.match(text, position)
        if token is None or text[token.end() : token.end() + 1] in ("*", "+", "?", "{"):
            return None
        patterns = [prefix + piece for prefix in patterns for piece in _pieces(token)]
        position = token.end()
        if len(patterns) > MOST:
            return None
    return tuple(patterns if ends else [f"{one}*" for one in patterns])


def matches_any(name: str, patterns: Iterable[str]) -> bool:
    """Whether a name matches one of the wildcard patterns. Ignore patterns longer than ``LONGEST``."""
    return any(len(pattern) <= LONGEST and fnmatchcase(name, pattern) for pattern in patterns)


def _pieces(token: re.Match[str]) -> list[str]:
    if token["many"]:
        return ["*"]
    if token["one"]:
        return ["?"]
    if token["choice"]:
        return [one.replace("\\", "") for one in token["choice"].split("|")]
    return [token["escaped"] or token["literal"]]
