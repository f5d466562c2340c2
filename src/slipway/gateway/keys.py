"""API keys: a Secret in, hashes out. Keys themselves are never kept, written or logged."""

from __future__ import annotations

import base64
import hashlib
import re

from slipway.kube.objects import Object


def hashes(secret: Object | None) -> tuple[tuple[str, str], ...]:
    """Upper-case SHA-256 of each value, as HAProxy's ``hex`` writes it, and the name of the value in the Secret.

    Whitespace around a key is not part of it; empty values and such as are no base64 are no keys. Of equal keys the
    first name counts.
    """
    found: dict[str, str] = {}
    for name, value in sorted(((secret or {}).get("data") or {}).items()):
        key = _decoded(value)
        if key:
            found.setdefault(hashlib.sha256(key).hexdigest().upper(), _plain(name))
    return tuple(sorted(found.items()))


def _decoded(value: object) -> bytes:
    try:
        return base64.b64decode(value).strip() if isinstance(value, str) else b""
    except ValueError:
        return b""


def _plain(name: str) -> str:
    """The name as a map file can hold it. Kubernetes allows little else in the keys of a Secret."""
    return re.sub(r"[^A-Za-z0-9._-]", "_", name)
