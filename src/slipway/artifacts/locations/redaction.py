"""Redaction: removes credentials from URLs, for statuses and logs. Pure."""

from __future__ import annotations

WEB = ("http", "https")


def redact_url(url: str) -> str:
    """Remove possible secrets from an HTTP or HTTPS URL: user information, query and fragment. A query may contain a
    signature. Return URLs with other schemes unchanged."""
    scheme, separator, rest = url.partition("://")
    if scheme.lower() not in WEB:
        return url
    place, slash, path = rest.partition("/")
    bare = scheme + separator + place.rpartition("@")[2] + slash + path
    return bare.partition("?")[0].partition("#")[0]
