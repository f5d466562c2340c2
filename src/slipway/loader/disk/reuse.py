"""Reuse of files: a load takes files of the same source revision from another directory of the disk instead of
downloading them.

Each directory has its own links or copies, so one can be removed or updated without affecting the other. Only files
with a digest are reused, and the load verifies all of them like any other existing file.
"""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from slipway.loader.disk.folder import MARKER, Inventory, checked, read_inventory
from slipway.loader.transport.source import Entry, Listing

log = logging.getLogger(__name__)
MOST_FOLDERS = 10_000


def link_existing(url: str, listing: Listing, folder: Path, donor: Path) -> int:
    """Link or copy files of this source revision into ``folder``, from ``donor`` if it is complete, or otherwise from
    the complete directories directly below it. Return the number of files.

    Return 0 if the source does not report its revision. Raise LoadError if ``listing`` has an invalid path.
    """
    if not listing.revision:
        return 0
    entries, count = [entry for entry in checked(listing.entries) if entry.digest is not None], 0
    for place, marker in _complete(donor):
        if place != folder and marker.revision == listing.revision and _repository(marker.url) == _repository(url):
            count += sum(_reuse_file(place, folder, entry, marker) for entry in entries)
    if count:
        log.info("Reused %d files of %s from this disk", count, url)
    return count


def _complete(donor: Path) -> Iterator[tuple[Path, Inventory]]:
    """Yield complete directories with their markers: ``donor`` if it is complete, otherwise the complete ones among the
    first ``MOST_FOLDERS`` entries of ``donor``."""
    if (own := read_inventory(donor / MARKER)) is not None:
        yield donor, own
        return
    with suppress(OSError):
        for _number, entry in zip(range(MOST_FOLDERS), os.scandir(donor), strict=False):
            if entry.is_dir(follow_symlinks=False) and (marker := read_inventory(Path(entry.path, MARKER))) is not None:
                yield Path(entry.path), marker


def _reuse_file(place: Path, folder: Path, entry: Entry, marker: Inventory) -> bool:
    """Link or copy one file from the directory ``place`` to ``folder``. Return whether the file is now in ``folder``
    because of this call."""
    if entry.size is None or marker.files.get(entry.path) != entry.size:
        return False
    source, target = place / entry.path, folder / entry.path
    with suppress(OSError):  # it exists already, or cannot be read, and is then downloaded
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.link(source, target, follow_symlinks=False)
        except FileExistsError:
            return False
        except OSError:  # another disk, or the same one mounted twice
            _copy(source, target)
        return True
    return False


def _copy(source: Path, target: Path) -> None:
    """Copy a file to ``target``, which must not exist. If the copy fails, remove the incomplete ``target`` and raise
    OSError."""
    handle = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(handle, "rb", buffering=0) as stream, target.open("xb", buffering=0) as fresh:
        try:
            shutil.copyfileobj(stream, fresh, 1 << 20)
        except OSError:
            target.unlink(missing_ok=True)
            raise


def _repository(url: str) -> str:
    """Return the URL of a source without its revision."""
    scheme, separator, rest = url.partition("://")
    return scheme + separator + rest.partition("@")[0]
