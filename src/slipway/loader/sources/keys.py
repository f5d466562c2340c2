"""Which objects of a bucket a URL means, and where they go. Pure."""

from __future__ import annotations

from slipway.loader.errors import LoadError


def split(url: str) -> tuple[str, str]:
    """Bucket, and prefix without slashes around it. Raises LoadError without a bucket."""
    scheme, _separator, rest = url.partition("://")
    bucket, _slash, prefix = rest.partition("/")
    if not bucket:
        raise LoadError(f"{url!r} names no bucket: it is {scheme}://BUCKET/FOLDER")
    return bucket, prefix.strip("/")


def place(key: str, prefix: str) -> str | None:
    """Path in the folder of the object ``key``; of a prefix that is a whole key, the file's name alone.

    None for what is not meant: the mark of a folder, or a neighbour whose name only begins alike.
    """
    if key.endswith("/"):
        return None
    if not prefix:
        return key
    if key == prefix:
        return key.rpartition("/")[2]
    return key.removeprefix(f"{prefix}/") if key.startswith(f"{prefix}/") else None


def nothing(url: str) -> LoadError:
    return LoadError(f"there is nothing below {url}: check bucket and folder")
