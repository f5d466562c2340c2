"""The folder that a load fills: the file ``.slipway-complete`` marks it as complete, and ``.slipway/`` holds files in
progress. A file gets its final name only when it is completely verified and on the disk."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import logging
import os
import secrets
import shutil
import stat
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from slipway.decoding import DecodingError, decode_json
from slipway.loader.disk.part import replaced_error
from slipway.loader.disk.progress import human
from slipway.loader.transport.errors import LoadError, StoppedError
from slipway.loader.transport.source import Entry

log = logging.getLogger(__name__)
OWN = ".slipway"
"""Prefix of names reserved for the loader. Sources must not contain such names at any depth."""
MARKER = ".slipway-complete"
NOTES = ".slipway-report"
"""Report of the last load, stored in the folder for later loads that find everything complete."""
WORK = ".slipway"
DONE = "done-"
"""Prefix, in the directory :data:`WORK`, of the lists of files without a digest that an owner has loaded."""
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
INVENTORY_BYTES = 64 << 20
"""Maximum size of the marker, which lists every file."""
LONGEST_NAME = 255
"""Maximum length of a path component in bytes, which every common file system supports."""
ABANDONED = 1800.0
"""Seconds without a new byte after which a part counts as abandoned if there are no locks; a running loader gives up
sooner."""
VANISHED = (errno.ENOENT, errno.ESTALE)


class Inventory(msgspec.Struct, frozen=True, omit_defaults=True):
    """Content of the marker: the source that was loaded, and the sizes that identify its files."""

    url: str
    revision: str
    files: dict[str, int]
    nonce: str = ""
    """Random text that makes the seal of an owned folder unpredictable to other processes."""


class Owner(msgspec.Struct, frozen=True):
    """The model that owns the folder, if other models may have owned it before."""

    uid: str
    """The model's uid. Other programs can learn it only after they have lost access to the folder."""
    seal: str = ""
    """Seal of the folder after the owner's last load, or its ``<bytes>@<revision>``. A folder with another seal is
    treated as new: its files are reused only if the source has a digest for them."""


def fault(path: str) -> str | None:
    """Returns the problem with a file's path from a source; None if it is valid."""
    parts = path.split("/")
    if path.startswith("/") or any(part in ("", ".", "..") for part in parts):
        return "it leads outside of the folder"
    if "\0" in path or any(len(os.fsencode(part)) > LONGEST_NAME for part in parts):
        return "no file system allows the name"
    if any(part.startswith(OWN) for part in parts):
        return f"names that begin with {OWN} are reserved for the loader"
    return None


def checked(entries: Iterable[Entry]) -> tuple[Entry, ...]:
    """Returns the entries, largest first, so that none is downloaded alone at the end. Raises LoadError for an invalid
    path."""
    sorted_entries = sorted(entries, key=lambda entry: (-(entry.size or 0), entry.path))
    files = {entry.path for entry in sorted_entries}
    for entry in sorted_entries:
        reason = fault(entry.path)
        if reason is None and any(parent in files for parent in _parents(entry.path)):
            reason = "another file has the same name as its folder"
        if reason:
            raise LoadError(f"cannot load {entry.path!r}, because {reason}: remove it from the source")
    if len(files) != len(sorted_entries):
        raise LoadError("the source has two files with the same name: remove one")
    return tuple(sorted_entries)


def loaded_url(path: Path) -> str | None:
    """Returns the URL that a folder completely contains, according to its marker; None if there is none."""
    marker = read_inventory(path / MARKER)
    return marker.url if marker else None


def note(path: Path, url: str) -> None:
    """Marks a folder as complete without any file of ``url``. Raises OSError."""
    path.mkdir(parents=True, exist_ok=True)
    fresh = path / f"{MARKER}.new"
    fresh.write_bytes(msgspec.json.encode(Inventory(url, "", {})))
    fresh.replace(path / MARKER)


def disk_error(error: OSError, path: Path) -> LoadError:
    """Returns the error for a failed disk operation."""
    if error.errno in FULL:
        return LoadError(f"the disk is full: cannot write {path} ({error.strerror}): use a larger volume")
    reason = error.strerror or type(error).__name__
    # If a name vanishes while it is used, another loader removed it, because the volume has no locks.
    transient = error.errno in VANISHED
    return LoadError(f"cannot write {path}: {reason}: check the volume and its owner", transient=transient)


class Folder:
    """The folder of a load. If its volume has no file locks, several loaders may work in it at once. So each has its
    own part files with unique names, and takes over those of a dead loader only under a lock."""

    def __init__(self, path: Path, owner: Owner | None = None) -> None:
        """``owner``: use only this owner's marker, parts and files. None: use those of all loaders."""
        self.path = path
        self._owner, self._foreign = owner, False
        self._done = path / WORK / f"{DONE}{_digest(owner.uid)}" if owner else None
        self._marker, self._work = path / MARKER, path / WORK
        self._parts, self._previous = self._work / "parts", self._work / "previous"
        self._self = secrets.token_hex(8)
        self._locked = False

    def holds(self, url: str) -> bool:
        """Whether ``url`` was completely loaded into the folder, judging by names and sizes."""
        marker = read_inventory(self._marker)
        if marker is None or marker.url != url or not self._knows(marker):
            return False
        return all(_size(self.path / name) == size for name, size in marker.files.items())

    def _knows(self, marker: Inventory | None) -> bool:
        """Whether the owner's last load left this marker."""
        if self._owner is None:
            return True
        if marker is None or not self._owner.seal:
            return False
        return self._owner.seal in (self.seal(), f"{sum(marker.files.values())}@{marker.revision}")

    def seal(self) -> str:
        """Returns the seal that the last load left; empty if there is none."""
        texts = [_bytes(self.path / name) for name in (MARKER, NOTES)]
        parts = b"".join(hashlib.sha256(text).digest() for text in texts)
        return hashlib.sha256(parts).hexdigest() if any(texts) else ""

    def doubtful(self, entries: Iterable[Entry]) -> frozenset[str]:
        """Returns the files without a digest that the owner did not load into this folder."""
        if self._done is None:
            return frozenset()
        done = set(_bytes(self._done).decode("ascii", "replace").split())
        return frozenset(entry.path for entry in entries if entry.digest is None and self._key(entry) not in done)

    def note_done(self, entry: Entry) -> None:
        """Records that the owner loaded a version of a file without a digest. Raises OSError."""
        if self._done is not None and entry.digest is None and entry.version:
            with self._done.open("ab") as stream:
                stream.write(f"{self._key(entry)}\n".encode("ascii"))

    def _sweep(self, names: Collection[str], *, plain: bool) -> None:
        """Removes links and special files and, if ``plain``, everything not in ``names``. The loader's own regular
        files are kept. Raises OSError."""
        folders = {parent for name in names for parent in _parents(name)}
        for top, below, files in os.walk(self.path):
            inside = Path(top).relative_to(self.path)
            for name in files:
                place = (inside / name).as_posix()
                unknown = plain and place not in names and not place.startswith(OWN)
                if unknown or _size(self.path / place) is None:
                    (self.path / place).unlink(missing_ok=True)
            for name in list(below):
                place = (inside / name).as_posix()
                if (self.path / place).is_symlink():
                    (self.path / place).unlink(missing_ok=True)
                elif place == WORK:
                    below.remove(name)
                elif plain and place not in folders:
                    shutil.rmtree(self.path / place)
                    below.remove(name)

    @contextmanager
    def opened(self, stop: threading.Event, waiting: Callable[[str], None]) -> Iterator[None]:
        """Creates and locks the folder. Only one loader works in it at a time; others wait.

        Raises LoadError, or StoppedError after ``stop``.
        """
        try:
            self._work.mkdir(parents=True, exist_ok=True)
            handle = self._lock(stop, waiting)
        except OSError as error:
            raise LoadError(f"cannot write {self.path}: {error.strerror}: check the volume and its owner") from error
        try:
            yield
        finally:
            os.close(handle)

    def begin(self, entries: Iterable[Entry]) -> None:
        """Removes the completion marker, and parts of files that are no longer needed.

        Under the lock, it takes over the parts of interrupted loaders.
        """
        self._foreign = not self._knows(read_inventory(self._marker))
        if self._foreign:
            self._sweep((), plain=False)
        with suppress(FileNotFoundError):
            self._marker.replace(self._previous)
        self._parts.mkdir(parents=True, exist_ok=True)
        if self._done is not None:
            for other in self._leftovers(self._work, DONE):
                if other != self._done:
                    other.unlink(missing_ok=True)
        for unfinished in self._leftovers(self.path, f"{MARKER}."):
            unfinished.unlink(missing_ok=True)
        expected = {self.part(entry) for entry in entries if entry.version}
        leftovers = self._leftovers(self._parts)
        for part in sorted(leftovers, key=lambda path: _size(path) or 0, reverse=True):
            mine = part.with_name(f"{part.name.partition('.')[0]}.{self._self}")
            if self._locked and mine in expected and not mine.exists():
                part.replace(mine)
            else:
                part.unlink(missing_ok=True)

    def final(self, entry: Entry) -> Path:
        """Returns the final path of an entry."""
        return self.path / entry.path

    def part(self, entry: Entry) -> Path:
        """Returns the path of this loader's part file for an entry, which is different for each version of the file."""
        return self._parts / f"{self._key(entry)}.{self._self}"

    def _key(self, entry: Entry) -> str:
        """Identifies a version of a file, and its owner."""
        owner = (self._owner.uid,) if self._owner else ()
        return _digest("\0".join((entry.path, str(entry.version), str(entry.size), *owner)))

    def _leftovers(self, folder: Path, prefix: str = "") -> list[Path]:
        """Returns abandoned files of other loaders: all of them under the lock, otherwise those that have not changed
        for a long time."""
        try:
            candidates = [path for path in folder.iterdir() if path.name.startswith(prefix) and _size(path) is not None]
            if self._locked:
                return candidates
            # Use the volume's clock, which may differ from this machine's.
            os.utime(self._work)
            now = self._work.stat().st_mtime
        except FileNotFoundError:  # another loader removed it
            return []
        return [path for path in candidates if now - _modified(path, now) > ABANDONED]

    def room(self, entries: Iterable[Entry], existing: Collection[Entry]) -> None:
        """Raises LoadError if the disk has no room for the missing bytes. ``existing``: entries whose final file may
        already be there; all others are downloaded next to existing files."""
        present = ((entry, self._present(entry, finished=entry in existing)) for entry in entries)
        needed = sum(max((entry.size or 0) - size, 0) for entry, size in present)
        volume = os.statvfs(self.path)
        free = volume.f_bavail * volume.f_frsize
        if volume.f_blocks and needed > free:
            raise LoadError(f"{human(needed)} are needed and {self.path} has {human(free)} free: use a larger volume")

    def finish(self, url: str, revision: str, sizes: Mapping[str, int]) -> None:
        """Removes the remains of earlier loads, then marks the folder as complete once everything is on the disk.

        ``sizes``: path -> required size of each file. Raises LoadError if a size differs.
        """
        old = read_inventory(self._previous)
        for folder in sorted({self.path / parent for name in sizes for parent in _parents(name)} | {self.path}):
            _sync(folder)
        fresh = self.path / f"{MARKER}.{self._self}"
        with fresh.open("wb") as stream:
            nonce = secrets.token_hex(16) if self._owner else ""
            text = msgspec.json.encode(Inventory(url, revision, dict(sizes), nonce))
            stream.write(msgspec.json.format(text, indent=1))
            stream.flush()
            os.fsync(stream.fileno())
        for name in sorted(old.files.keys() - sizes.keys()) if old else ():
            self._drop(name)
        if self._foreign:
            self._sweep(sizes.keys(), plain=True)
        self._clear()
        other = next((name for name, size in sizes.items() if _size(self.path / name) != size), None)
        if other is not None:
            fresh.unlink(missing_ok=True)
            raise replaced_error(self.path / other)
        fresh.replace(self._marker)
        _sync(self.path)

    def _clear(self) -> None:
        """Removes the working files: all of them under the lock, otherwise those that no other loader may need."""
        for part in self._leftovers(self._parts):
            part.unlink(missing_ok=True)
        with suppress(OSError):  # another loader has parts in it
            self._parts.rmdir()
            for path in (self._previous, self._work / "lock"):
                path.unlink(missing_ok=True)
            self._work.rmdir()

    def _drop(self, name: str) -> None:
        """Removes a file of an earlier load, and the folders that become empty."""
        if fault(name):
            return
        (self.path / name).unlink(missing_ok=True)
        for parent in _parents(name):
            try:
                (self.path / parent).rmdir()
            except OSError:
                return

    def _present(self, entry: Entry, *, finished: bool) -> int:
        return (_size(self.final(entry)) if finished else 0) or _size(self.part(entry)) or 0

    def _lock(self, stop: threading.Event, waiting: Callable[[str], None]) -> int:
        path = self._work / "lock"
        while True:
            self._work.mkdir(exist_ok=True)
            handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            try:
                self._locked = _await_lock(handle, stop, waiting)
                # The previous holder removes the lock file at the end; a lock on the removed file would exclude no
                # other loader.
                if _is_same_file(handle, path):
                    return handle
            except BaseException:
                os.close(handle)
                raise
            os.close(handle)


def _await_lock(handle: int, stop: threading.Event, waiting: Callable[[str], None]) -> bool:
    """Waits until no other loader works in the folder. Returns False immediately on a file system without locks."""
    while (ours := _try_lock(handle)) is False:
        waiting("waiting for another loader in this folder")
        if stop.wait(0.2):
            raise StoppedError
    if ours is None:
        log.warning("The volume has no file locks: not resuming an earlier run")
    return ours is True


def _try_lock(handle: int) -> bool | None:
    """Tries to take the lock. Returns whether it is ours now; None: there are no locks."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True


def _is_same_file(handle: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(handle), path.stat())
    except FileNotFoundError:
        return False


def _parents(path: str) -> Iterator[str]:
    """Yields the folders above a path, nearest first."""
    while "/" in path:
        path = path.rpartition("/")[0]
        yield path


def read_inventory(path: Path) -> Inventory | None:
    """Reads a folder's marker. Returns None if there is none or it is invalid."""
    try:
        return decode_json(path.read_bytes(), Inventory, most=INVENTORY_BYTES)
    except (FileNotFoundError, NotADirectoryError, DecodingError):
        return None


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:32]


def _bytes(path: Path) -> bytes:
    """Returns the content of a regular file, up to the maximum size; empty for anything else."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return b""
    with open(handle, "rb") as stream:
        return stream.read(INVENTORY_BYTES) if stat.S_ISREG(os.fstat(handle).st_mode) else b""


def _size(path: Path) -> int | None:
    """Returns the size of a regular file; None for anything else, including links."""
    try:
        status = path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return status.st_size if stat.S_ISREG(status.st_mode) else None


def _modified(path: Path, otherwise: float) -> float:
    """Returns the modification time in Unix seconds; ``otherwise`` for a file that no longer exists."""
    try:
        return path.lstat().st_mtime
    except FileNotFoundError:
        return otherwise


def _sync(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
