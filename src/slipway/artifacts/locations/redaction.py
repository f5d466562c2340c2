"""Redaction: removes credentials from URLs, for statuses and logs. Pure."""

from __future__ import annotations

WEB = ("http", "https")


def redact_url(url: str) -> str:
    """Returns the URL without possible secrets: for web addresses without user information and query, which may be a
    signature. Other URLs have no secrets."""
    scheme, separator, rest = url.partition("://")
    if scheme.lower() not in WEB:
        return url
    place, slash, path = rest.partition("/")
    bare = scheme + separator + place.rpartition("@")[2] + slash + path
    return bare.partition("?")[0].partition("#")[0]
