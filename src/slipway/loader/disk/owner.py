"""Ownership of a directory on a node: the namespace that may see its files, and the user that writes them.

A container can outlive its pod, and keeps the directory that it has mounted. Therefore a directory never passes from
one namespace to another: the next namespace gets a new directory with the same name, which the old container does not
see.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from slipway.loader.disk.folder import OWN
from slipway.loader.transport.errors import LoadError

MARK = f"{OWN}-owner"
"""File with the name of the namespace that owns the directory. The file is valid only if it belongs to the user that
creates directories; another user fills them. Removing the content of a directory also removes this file."""
LONGEST = 256
"""Maximum size of the file ``MARK`` in bytes."""


def own(path: Path, user: int) -> None:
    """Make a user, and the group with the same number, the owner of a directory and its content. The file ``MARK`` and
    everything that the user already owns stay unchanged. Links are not followed. Raise LoadError."""
    try:
        for top, folders, files, handle in os.fwalk(path, onerror=_raise):
            if os.fstat(handle).st_uid != user:
                os.fchown(handle, user, user)
            for name in (*folders, *files):
                marks = name == MARK and Path(top) == path
                if not marks and os.stat(name, dir_fd=handle, follow_symlinks=False).st_uid != user:
                    os.chown(name, user, user, dir_fd=handle, follow_symlinks=False)
    except OSError as error:
        raise LoadError(f"cannot give {path} to the user {user}: {error.strerror}: check the volume") from error


def renew(path: Path, namespace: str, *, is_known: bool = False) -> bool:
    """Make a namespace the owner of a directory, and return whether the directory is a new one. A directory that may
    belong to another namespace is replaced by a new one with the same name. A missing directory is created.

    An empty ``namespace`` means the operator, whose files all users may read, so an existing directory is kept. With
    ``is_known``, a directory without a mark belongs to the namespace and is kept. Without ``is_known``, the files of an
    unmarked directory move to the new one, where the load verifies them. The files of another namespace, or of the
    operator, are removed. Raise LoadError.
    """
    digest = hashlib.sha256(path.name.encode()).hexdigest()[:16]
    fresh, old = (path.with_name(f"{OWN}-{digest}.{part}") for part in ("new", "old"))
    try:
        with _alone(path.parent):
            _remove(old)  # left by an interrupted run, whose other steps are repeated below
            before = _namespace_of(path)
            if before == namespace:
                return False
            if not namespace or (is_known and before is None):
                path.mkdir(exist_ok=True)
                _mark(path, namespace)
                return False
            if _namespace_of(fresh) != namespace:
                _remove(fresh)
                fresh.mkdir()
                _mark(fresh, namespace)
            if before is None and path.exists():
                _move(path, fresh, excluded=OWN)
            with suppress(FileNotFoundError):
                path.rename(old)
            fresh.rename(path)
            _remove(old)
            return True
    except OSError as error:
        text = f"cannot replace {path}, which containers of another namespace may still read: {error.strerror}"
        raise LoadError(f"{text}: use another path, or a directory below it") from error


def _namespace_of(folder: Path) -> str | None:
    """Return the namespace in the mark of a directory, or None if there is no valid mark. An empty string means the
    operator."""
    try:
        handle = os.open(folder / MARK, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid():
            return None
        return os.read(handle, LONGEST).decode(errors="replace")
    finally:
        os.close(handle)


def _mark(folder: Path, namespace: str) -> None:
    """Record in a directory that it belongs to ``namespace``. Raise OSError."""
    unfinished = folder / f"{MARK}.new"
    _remove(unfinished)
    handle = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644)
    with os.fdopen(handle, "wb") as stream:
        stream.write(namespace.encode())
    _remove(folder / MARK)
    unfinished.rename(folder / MARK)


def _move(source: Path, target: Path, *, excluded: str = "") -> None:
    """Move files into new directories with the same names below ``target``, because a container may have the old
    directories open. Links and special files stay, and also entries of ``source`` itself whose names begin with
    ``excluded``, unless it is empty. Raise OSError."""
    for entry in list(os.scandir(source)):
        if excluded and entry.name.startswith(excluded):
            continue
        if entry.is_dir(follow_symlinks=False):
            (target / entry.name).mkdir(exist_ok=True)
            _move(source / entry.name, target / entry.name)
        elif entry.is_file(follow_symlinks=False):
            (source / entry.name).rename(target / entry.name)


def _remove(path: Path) -> None:
    """Remove the file or directory ``path`` if it exists. Raise OSError."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Lock a directory while the context is open, so that no other process replaces directories in it. Do nothing if
    the file system has no locks. Raise OSError."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with suppress(OSError):
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _raise(error: OSError) -> None:
    raise error
