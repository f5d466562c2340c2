"""Names that Kubernetes accepts, derived from text of any length. Pure."""

from __future__ import annotations

import hashlib
import re

NAME_LENGTH = 63
"""Maximum length of a label value, a Service name, or the name of a Job, whose pods have the name as a label."""
INVALID = re.compile(r"[^a-z0-9-]+")
DIGEST = 8
"""Length of the digest in shortened names, in hexadecimal digits."""


def fitting(name: str, longest: int = NAME_LENGTH) -> str:
    """Return a DNS label of at most ``longest`` characters for a name: the name itself if it is valid and short enough,
    and otherwise its valid characters and a digest of the whole name."""
    plain = INVALID.sub("-", name.lower()).strip("-")
    if plain == name and len(name) <= longest:
        return name
    return f"{plain[: longest - DIGEST - 1].rstrip('-')}-{_digest(name)}".lstrip("-")


def with_ending(name: str, end: str) -> str:
    """Return ``<name><end>`` as a DNS label. A name that is too long or invalid is replaced as in :func:`fitting`."""
    return f"{fitting(name, NAME_LENGTH - len(end))}{end}"


def label_value(name: str) -> str:
    """Return a label value for a resource's name: the name itself if it is short enough. The Ansible modules find pods
    by labels with such values."""
    return name if len(name) <= NAME_LENGTH else fitting(name)


def ending(name: str, longest: int) -> str:
    """Return the name if it is short enough, and otherwise a digest, a dash and as much of its end as fits. ``longest``
    must be at least DIGEST."""
    if len(name) <= longest:
        return name
    room = longest - DIGEST - 1
    return f"{_digest(name)}-{name[-room:].lstrip('-._')}" if room > 0 else _digest(name)


def _digest(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()[:DIGEST]
