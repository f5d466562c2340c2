"""Reuse: files of the same state of a source that another folder of this volume has already are linked, not fetched.

Each folder has links of its own, so that either may go, or turn to another state, without the other. What is linked is
checked like anything else that is there before a load.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from slipway.loader.folder import MARKER, Inventory, inventory
from slipway.loader.sources.base import Entry, Listing

log = logging.getLogger(__name__)
DEEPEST = 6
"""Folders between the top and a model."""
MOST_FOLDERS = 10_000


def link_known(url: str, listing: Listing, folder: Path, below: Path) -> int:
    """Links what complete folders below ``below`` have of this state of the source into ``folder``; how many files.

    Where no links can be made, or the source does not say what state it is in, there are none.
    """
    if not listing.revision:
        return 0
    linked = 0
    for place, known in _complete(below):
        if place != folder and known.revision == listing.revision and _repository(known.url) == _repository(url):
            linked += sum(_linked(place, folder, entry, known) for entry in listing.entries)
    if linked:
        log.info("Linked %d files of %s that are on this disk already", linked, url)
    return linked


def _complete(below: Path) -> Iterator[tuple[Path, Inventory]]:
    """The folders that say that they are complete, and of what."""
    for place in _folders(below):
        if (found := inventory(place / MARKER)) is not None:
            yield place, found


def _folders(below: Path) -> Iterable[Path]:
    """Those below a folder, but for what is inside of a complete one."""
    for number, (place, folders, files) in enumerate(os.walk(below)):
        if number >= MOST_FOLDERS:
            return
        deep = len(Path(place).relative_to(below).parts) >= DEEPEST
        folders[:] = [] if deep or MARKER in files else sorted(folders)
        if MARKER in files:
            yield Path(place)


def _linked(place: Path, folder: Path, entry: Entry, known: Inventory) -> bool:
    """Whether a file of one folder has its name in the other now, and had not before."""
    if entry.size is None or known.files.get(entry.path) != entry.size:
        return False
    target = folder / entry.path
    with suppress(OSError):  # it is there already, or of another disk, or another's: then it is fetched
        target.parent.mkdir(parents=True, exist_ok=True)
        os.link(place / entry.path, target, follow_symlinks=False)
        return True
    return False


def _repository(url: str) -> str:
    """A source without what says which state of it is meant."""
    scheme, separator, rest = url.partition("://")
    return scheme + separator + rest.partition("@")[0]
