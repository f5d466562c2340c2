"""Redaction: addresses without credentials, for statuses and logs. Pure."""

from __future__ import annotations

WEB = ("http", "https")


def redact_url(url: str) -> str:
    """The URL without what may be secret in it: for web addresses user information, and the query, which may sign it.
    Others have no secrets."""
    scheme, separator, rest = url.partition("://")
    if scheme.lower() not in WEB:
        return url
    place, slash, path = rest.partition("/")
    bare = scheme + separator + place.rpartition("@")[2] + slash + path
    return bare.partition("?")[0].partition("#")[0]
