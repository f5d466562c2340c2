"""Names that Kubernetes accepts, derived from texts of any length. Pure."""

from __future__ import annotations

import hashlib
import re

NAME_LENGTH = 63
"""Of labels' values, Services, and Jobs, whose pods carry the name as a label."""
INVALID = re.compile(r"[^a-z0-9-]+")
DIGEST = 8
"""Characters of the digest of a name that is cut."""


def fitting(name: str, longest: int = NAME_LENGTH) -> str:
    """Returns a DNS label for a name: the name itself if it is valid, else its valid characters with a digest of all of
    it."""
    plain = INVALID.sub("-", name.lower()).strip("-")
    if plain == name and len(name) <= longest:
        return name
    return f"{plain[: longest - DIGEST - 1].rstrip('-')}-{_digest(name)}".lstrip("-")


def with_ending(name: str, end: str) -> str:
    """``<name><end>`` as a DNS label: as much of the name as there is room for."""
    return f"{fitting(name, NAME_LENGTH - len(end))}{end}"


def label_value(name: str) -> str:
    """A resource's name as the value of a label: itself wherever that may be. Modules find pods by it."""
    return name if len(name) <= NAME_LENGTH else fitting(name)


def ending(name: str, longest: int) -> str:
    """Returns a name, or for a longer one a digest of it, a dash and as much of its end as fits. ``longest`` is at
    least DIGEST."""
    if len(name) <= longest:
        return name
    room = longest - DIGEST - 1
    return f"{_digest(name)}-{name[-room:].lstrip('-._')}" if room > 0 else _digest(name)


def _digest(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()[:DIGEST]
