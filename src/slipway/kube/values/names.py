"""Derives names that Kubernetes accepts from text of any length. Pure."""

from __future__ import annotations

import hashlib
import re

NAME_LENGTH = 63
"""Maximum length of label values, of Services, and of Jobs, whose pods carry the name as a label."""
INVALID = re.compile(r"[^a-z0-9-]+")
DIGEST = 8
"""Length of the digest in shortened names."""


def fitting(name: str, longest: int = NAME_LENGTH) -> str:
    """Returns a DNS label for a name: the name itself if it is valid, otherwise its valid characters with a digest of
    the whole name."""
    plain = INVALID.sub("-", name.lower()).strip("-")
    if plain == name and len(name) <= longest:
        return name
    return f"{plain[: longest - DIGEST - 1].rstrip('-')}-{_digest(name)}".lstrip("-")


def with_ending(name: str, end: str) -> str:
    """Returns ``<name><end>`` as a DNS label, with the name shortened to fit."""
    return f"{fitting(name, NAME_LENGTH - len(end))}{end}"


def label_value(name: str) -> str:
    """Returns a label value for a resource's name: the name itself if it is short enough. Modules find pods by it."""
    return name if len(name) <= NAME_LENGTH else fitting(name)


def ending(name: str, longest: int) -> str:
    """Returns the name, or if it is too long a digest, a dash and as much of its end as fits. ``longest`` is at least
    DIGEST."""
    if len(name) <= longest:
        return name
    room = longest - DIGEST - 1
    return f"{_digest(name)}-{name[-room:].lstrip('-._')}" if room > 0 else _digest(name)


def _digest(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()[:DIGEST]
