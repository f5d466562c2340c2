"""Paths that must stay inside a repository, bucket, claim or node directory. Pure."""

from __future__ import annotations


def fault_inside(path: str) -> str:
    """Return the problem with a path that must stay inside a directory, such as ``begins with a slash``. Empty if
    there is none."""
    if path.startswith("/"):
        return "begins with a slash"
    if any(part in ("", ".", "..") for part in path.split("/")):
        return "contains an empty part, . or .."
    if "\\" in path or not path.isprintable():
        return "has invalid characters"
    return ""
