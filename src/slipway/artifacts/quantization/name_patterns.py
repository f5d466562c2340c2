"""Name patterns: which tensors belong to a group of a quantization, by the patterns in its configuration. Pure.

They are untrusted regular expressions, whose matching may take forever. The few features that occur in practice become
wildcards. An expression with any other feature is not supported.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from fnmatch import fnmatchcase

LONGEST = 512
MOST = 64
"""Wildcard patterns that one expression may become."""
_TOKEN = re.compile(
    r"(?P<many>(?:\.|\\d|\\w|\[0-9\]|\[\\d\])[*+]\??)|(?P<one>\.|\\d|\\w|\[0-9\])|\\(?P<escaped>[.\-_/])"
    r"|(?P<literal>[A-Za-z0-9_\-/:]+)|\((?:\?:)?(?P<choice>[A-Za-z0-9_\-|\\.]+)\)"
)


def wildcards(expression: str) -> tuple[str, ...] | None:
    """Wildcard patterns for the texts that begin as a regular expression says. None: it is not understood."""
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
        patterns = [begun + piece for begun in patterns for piece in _pieces(token)]
        position = token.end()
        if len(patterns) > MOST:
            return None
    return tuple(patterns if ends else [f"{one}*" for one in patterns])


def fits(name: str, patterns: Iterable[str]) -> bool:
    """Whether a name is one of those that wildcard patterns mean."""
    return any(len(pattern) <= LONGEST and fnmatchcase(name, pattern) for pattern in patterns)


def _pieces(token: re.Match[str]) -> list[str]:
    if token["many"]:
        return ["*"]
    if token["one"]:
        return ["?"]
    if token["choice"]:
        return [one.replace("\\", "") for one in token["choice"].split("|")]
    return [token["escaped"] or token["literal"]]
