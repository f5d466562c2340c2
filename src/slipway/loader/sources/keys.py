"""Keys: the bucket objects that a URL selects, and their paths in the folder. Pure."""

from __future__ import annotations

import re

from slipway.artifacts.files.copies import PART
from slipway.artifacts.files.soundness import parts_of
from slipway.loader.transport.errors import LoadError

BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
"""Characters that a host name may contain without leading to another host."""


def split(url: str) -> tuple[str, str]:
    """Returns the bucket, and the prefix without surrounding slashes. Raises LoadError for an invalid bucket name."""
    scheme, _separator, rest = url.partition("://")
    bucket, _slash, prefix = rest.partition("/")
    if not BUCKET.fullmatch(bucket):
        raise LoadError(f"{url!r} does not name a bucket: write {scheme}://BUCKET/FOLDER")
    return bucket, prefix.strip("/")


def beginning(prefix: str) -> str:
    """Returns the prefix of the keys to list. If the URL names one part of a split file, it covers all parts."""
    return PART.split(prefix)[0] if parts_of(prefix) else prefix


def path_of_key(key: str, prefix: str) -> str | None:
    """Returns the path in the folder for the object ``key``. If the prefix is a whole key, or a part of the same file,
    the path is the file's name.

    None for keys that are not selected: a folder's placeholder, or a neighbour whose name merely begins the same way.
    """
    if key.endswith("/"):
        return None
    if not prefix:
        return key
    if key == prefix or key in parts_of(prefix):
        return key.rpartition("/")[2]
    return key.removeprefix(f"{prefix}/") if key.startswith(f"{prefix}/") else None


def no_files_error(url: str) -> LoadError:
    """Returns the error for a bucket without files below the URL."""
    return LoadError(f"nothing found below {url}: check bucket and folder")


def changed_error(url: str) -> LoadError:
    """Returns the error for a listed object that was replaced or deleted before it was read."""
    return LoadError(f"{url} changed during the download: retry", transient=True)
