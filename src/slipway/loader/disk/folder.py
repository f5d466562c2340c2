"""The directory that a load fills. The file ``.slipway-complete`` marks the directory as complete, and ``.slipway/``
contains partial files. A file gets its final name only after it has been verified and flushed to the disk."""

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
"""Prefix of file names that are reserved for the loader. A source that contains such a name, at any depth, is
rejected."""
MARKER = ".slipway-complete"
NOTES = ".slipway-report"
"""File with the report of the last load. A later load that has nothing to download returns this report."""
WORK = ".slipway"
DONE = "done-"
"""Prefix of files in the directory ``WORK``. Each of these files lists the files without a digest that one owner has
loaded, as hashes."""
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
INVENTORY_BYTES = 64 << 20
"""Maximum size in bytes of the marker, which lists every file."""
LONGEST_NAME = 255
"""Maximum length of a file name in bytes, which all common file systems support."""
ABANDONED = 1800.0
"""Seconds without a new byte after which a partial file counts as abandoned on a volume without file locks. A running
loader gives up sooner."""
VANISHED = (errno.ENOENT, errno.ESTALE)


class Inventory(msgspec.Struct, frozen=True, omit_defaults=True):
    """Content of the completion marker: the URL and revision of the source, and the size of each file in bytes, by
    path."""

    url: str
    revision: str
    files: dict[str, int]
    nonce: str = ""
    """Random text that makes the directory's seal unpredictable to other processes; empty: the directory has no
    owner."""


class Owner(msgspec.Struct, frozen=True):
    """The model that owns a directory, if other models may have owned the directory before."""

    uid: str
    """Uid of the model. Other programs can learn the uid only after they have lost access to the directory."""
    seal: str = ""
    """Seal of the directory after the owner's last load, or ``SIZE@REVISION`` for a load without a seal; empty: the
    owner has not completed a load. If the directory has another seal, its marker is not trusted. A load then compares
    all files with the source, and reuses a file without a digest only if this owner has loaded it."""


def fault(path: str) -> str | None:
    """Return the problem with the path of a file in a source, or None if the path is valid."""
    parts = path.split("/")
    if path.startswith("/") or any(part in ("", ".", "..") for part in parts):
        return "it leads outside of the folder"
    if "\0" in path or any(len(os.fsencode(part)) > LONGEST_NAME for part in parts):
        return "no file system allows the name"
    if any(part.startswith(OWN) for part in parts):
        return f"names that begin with {OWN} are reserved for the loader"
    return None


def checked(entries: Iterable[Entry]) -> tuple[Entry, ...]:
    """Return the entries, largest first, so that a load does not end with a single large file. Raise LoadError for an
    invalid path, if two files have the same path, or if the path of a file is also the path of a directory."""
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
    """Return the URL that the directory completely contains, according to its marker, or None if there is no valid
    marker."""
    marker = read_inventory(path / MARKER)
    return marker.url if marker else None


def note(path: Path, url: str) -> None:
    """Mark a directory as complete for ``url``, without any files. Raise OSError."""
    path.mkdir(parents=True, exist_ok=True)
    fresh = path / f"{MARKER}.new"
    fresh.write_bytes(msgspec.json.encode(Inventory(url, "", {})))
    fresh.replace(path / MARKER)


def disk_error(error: OSError, path: Path) -> LoadError:
    """Return the LoadError for a failed disk operation on ``path``. The error is transient if the file has vanished,
    because another loader removed it."""
    if error.errno in FULL:
        return LoadError(f"the disk is full: cannot write {path} ({error.strerror}): use a larger volume")
    reason = error.strerror or type(error).__name__
    # If a name vanishes while it is used, another loader removed it, because the volume has no locks.
    transient = error.errno in VANISHED
    return LoadError(f"cannot write {path}: {reason}: check the volume and its owner", transient=transient)


class Folder:
    """The directory of a load. If the volume has no file locks, several loaders may work in the directory at the same
    time. Therefore each loader has partial files with unique names, and takes over those of a dead loader only while it
    holds the lock."""

    def __init__(self, path: Path, owner: Owner | None = None) -> None:
        """Use the directory ``path``. Without ``owner``, trust the marker and the complete files of all loads. With
        ``owner``, trust only the marker of this owner's last load, and files without a digest only if this owner has
        loaded them. Partial files are continued only if they belong to the same owner."""
        self.path = path
        self._owner, self._foreign = owner, False
        self._done = path / WORK / f"{DONE}{_digest(owner.uid)}" if owner else None
        self._marker, self._work = path / MARKER, path / WORK
        self._parts, self._previous = self._work / "parts", self._work / "previous"
        self._self = secrets.token_hex(8)
        self._locked = False

    def holds(self, url: str) -> bool:
        """Whether the directory contains all files of ``url``, a URL without secrets, judging by the marker and the
        names and sizes of the files. False if the directory has an owner whose last load did not write the marker."""
        marker = read_inventory(self._marker)
        if marker is None or marker.url != url or not self._knows(marker):
            return False
        return all(_size(self.path / name) == size for name, size in marker.files.items())

    def _knows(self, marker: Inventory | None) -> bool:
        """Whether the owner's last load wrote this marker. Always True if no owner is set."""
        if self._owner is None:
            return True
        if marker is None or not self._owner.seal:
            return False
        return self._owner.seal in (self.seal(), f"{sum(marker.files.values())}@{marker.revision}")

    def seal(self) -> str:
        """Return the seal of the last load: a hash of its marker and its report. Return an empty string if neither
        exists."""
        texts = [_bytes(self.path / name) for name in (MARKER, NOTES)]
        parts = b"".join(hashlib.sha256(text).digest() for text in texts)
        return hashlib.sha256(parts).hexdigest() if any(texts) else ""

    def doubtful(self, entries: Iterable[Entry]) -> frozenset[str]:
        """Return the paths of the files that have no digest and that the owner did not load into this directory in this
        version; empty if no owner is set."""
        if self._done is None:
            return frozenset()
        done = set(_bytes(self._done).decode("ascii", "replace").split())
        return frozenset(entry.path for entry in entries if entry.digest is None and self._key(entry) not in done)

    def note_done(self, entry: Entry) -> None:
        """Record that the owner loaded this version of a file. Do nothing if no owner is set, or if the file has a
        digest or no version. Raise OSError."""
        if self._done is not None and entry.digest is None and entry.version:
            with self._done.open("ab") as stream:
                stream.write(f"{self._key(entry)}\n".encode("ascii"))

    def _sweep(self, names: Collection[str], *, plain: bool) -> None:
        """Remove links and special files and, with ``plain``, also all files and directories that are not in ``names``.
        The loader's own regular files stay. Raise OSError."""
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
        """Create the directory, and lock it while the context is open. If another loader holds the lock, wait, and call
        ``waiting`` with the reason. On a volume without file locks, continue without the lock.

        Raise LoadError, or StoppedError after ``stop`` is set.
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
        """Prepare a load of ``entries``: set the completion marker aside, and remove partial files and records of other
        owners that are no longer needed. If the owner's last load did not write the marker, also remove links and
        special files.

        If this loader holds the lock, it takes over the partial files of interrupted loaders. Raise OSError.
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
        """Return the path of an entry's file once it is complete."""
        return self.path / entry.path

    def part(self, entry: Entry) -> Path:
        """Return the path of this loader's partial file for an entry, which is different for each version of the
        file."""
        return self._parts / f"{self._key(entry)}.{self._self}"

    def _key(self, entry: Entry) -> str:
        """Return a hash that identifies a version of a file and, if one is set, the directory's owner."""
        owner = (self._owner.uid,) if self._owner else ()
        return _digest("\0".join((entry.path, str(entry.version), str(entry.size), *owner)))

    def _leftovers(self, folder: Path, prefix: str = "") -> list[Path]:
        """Return the abandoned files in ``folder`` whose names begin with ``prefix``: all of them if this loader holds
        the lock, otherwise those that have not changed for ``ABANDONED`` seconds."""
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
        """Raise LoadError if the disk does not have enough free space for the missing bytes. ``existing`` contains the
        entries whose complete file may already exist; the others are downloaded in addition to existing files."""
        present = ((entry, self._present(entry, finished=entry in existing)) for entry in entries)
        needed = sum(max((entry.size or 0) - size, 0) for entry, size in present)
        volume = os.statvfs(self.path)
        free = volume.f_bavail * volume.f_frsize
        if volume.f_blocks and needed > free:
            raise LoadError(f"{human(needed)} are needed and {self.path} has {human(free)} free: use a larger volume")

    def finish(self, url: str, revision: str, sizes: Mapping[str, int]) -> None:
        """Remove the files of earlier loads that are not in ``sizes``, and mark the directory as complete once
        everything is on the disk.

        ``sizes`` maps each path to the size in bytes that its file must have. Raise LoadError if a size differs, or
        OSError.
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
        """Remove partial files, the marker of the earlier load, and the lock: all of them if this loader holds the
        lock, otherwise only those that no other loader may need."""
        for part in self._leftovers(self._parts):
            part.unlink(missing_ok=True)
        with suppress(OSError):  # another loader has parts in it
            self._parts.rmdir()
            for path in (self._previous, self._work / "lock"):
                path.unlink(missing_ok=True)
            self._work.rmdir()

    def _drop(self, name: str) -> None:
        """Remove a file of an earlier load, and the directories that become empty. Ignore an invalid path."""
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
    """Wait until this process has the lock, and return True. Return False immediately on a file system without locks.
    Raise StoppedError after ``stop`` is set."""
    while (ours := _try_lock(handle)) is False:
        waiting("waiting for another loader in this folder")
        if stop.wait(0.2):
            raise StoppedError
    if ours is None:
        log.warning("The volume has no file locks: not resuming an earlier run")
    return ours is True


def _try_lock(handle: int) -> bool | None:
    """Try to lock an open file. Return True on success, False if another process holds the lock, and None if the file
    system has no locks."""
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
    """Yield the directories above a relative path, nearest first."""
    while "/" in path:
        path = path.rpartition("/")[0]
        yield path


def read_inventory(path: Path) -> Inventory | None:
    """Read the marker at ``path``. Return None if the marker is missing or invalid."""
    try:
        return decode_json(path.read_bytes(), Inventory, most=INVENTORY_BYTES)
    except (FileNotFoundError, NotADirectoryError, DecodingError):
        return None


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:32]


def _bytes(path: Path) -> bytes:
    """Return the content of a regular file, at most ``INVENTORY_BYTES``. Return no bytes for anything else, including
    links."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return b""
    with open(handle, "rb") as stream:
        return stream.read(INVENTORY_BYTES) if stat.S_ISREG(os.fstat(handle).st_mode) else b""


def _size(path: Path) -> int | None:
    """Return the size of a regular file in bytes, or None for anything else, including links."""
    try:
        status = path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return status.st_size if stat.S_ISREG(status.st_mode) else None


def _modified(path: Path, otherwise: float) -> float:
    """Return the modification time of a file in Unix seconds, or ``otherwise`` if the file no longer exists."""
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
