"""The keys of a bucket that a URL selects, and the paths of their objects in the target directory. Pure."""

from __future__ import annotations

import re

from slipway.artifacts.files.copies import PART
from slipway.artifacts.files.soundness import parts_of
from slipway.loader.transport.errors import LoadError

BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
"""Pattern of bucket names that can be part of a host name without leading to another host."""


def split(url: str) -> tuple[str, str]:
    """Return the bucket and the key prefix of a URL. The prefix has no surrounding slashes. Raise LoadError for an
    invalid bucket name."""
    scheme, _separator, rest = url.partition("://")
    bucket, _slash, prefix = rest.partition("/")
    if not BUCKET.fullmatch(bucket):
        raise LoadError(f"{url!r} does not name a bucket: write {scheme}://BUCKET/FOLDER")
    return bucket, prefix.strip("/")


def beginning(prefix: str) -> str:
    """Return the prefix of the keys to list. If ``prefix`` names one part of a split file, the result covers all
    parts."""
    return PART.split(prefix)[0] if parts_of(prefix) else prefix


def path_of_key(key: str, prefix: str) -> str | None:
    """Return the path in the target directory for the object ``key``. If ``prefix`` is the whole key, or names another
    part of the same file, the path is the file's name.

    Return None for a key that is not selected: the placeholder of a folder, or a key outside of the directory
    ``prefix``, even if it begins with the same characters.
    """
    if key.endswith("/"):
        return None
    if not prefix:
        return key
    if key == prefix or key in parts_of(prefix):
        return key.rpartition("/")[2]
    return key.removeprefix(f"{prefix}/") if key.startswith(f"{prefix}/") else None


def no_files_error(url: str) -> LoadError:
    """Return the error for a URL below which the bucket has no files."""
    return LoadError(f"nothing found below {url}: check bucket and folder")


def changed_error(url: str) -> LoadError:
    """Return the error for a listed object that was replaced or deleted before it was read."""
    return LoadError(f"{url} changed during the download: retry", transient=True)
