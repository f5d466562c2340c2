"""Paths that must stay inside a repository, bucket, claim or node directory. Pure."""

from __future__ import annotations


def fault_inside(path: str) -> str:
    """Returns the problem with a path inside a folder; empty: none."""
    if path.startswith("/"):
        return "begins with a slash"
    if any(part in ("", ".", "..") for part in path.split("/")):
        return "contains an empty part, . or .."
    if "\\" in path or not path.isprintable():
        return "has invalid characters"
    return ""
