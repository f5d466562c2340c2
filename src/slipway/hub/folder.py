"""Reads repositories from the directories ``ROOT/<org>/<name>``. Apart from sending files and reading tokens, this is
the hub's only disk access.

Files may change at any time. Each call of ``Library.load`` reads all names, sizes and times of a repository again, but
hashes a file only if it is new, or if its inode, size or modification time has changed. A repository may contain a file
``.hub.yaml``:

    gated: true              # files require a known token
    refs:                    # additional revisions: ref -> directory in the repository; "." has the content of main
      refs/tags/v1: .
      refs/pr/1: proposals/1

The directory of an additional revision is not part of any other revision. The repository's author writes ``.hub.yaml``,
not the operator. The file can restrict access to its own repository and add revisions, but it cannot grant access to a
repository that the operator gates.

The hub follows symbolic links that stay inside their own repository, because the volume of a ConfigMap consists of such
links. It ignores other links, directories whose names begin with a dot, files named ``.git``, and all names that begin
with two dots or are not valid UTF-8.
"""

from __future__ import annotations

import errno
import hashlib
import logging
import os
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import IO, NamedTuple

from slipway.decoding import decode_yaml
from slipway.hub.repository import MAIN, File, Repository, git_object, is_lfs, lfs_pointer, revision_of

log = logging.getLogger(__name__)

SETTINGS = ".hub.yaml"
CHUNK = 1 << 20
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
"""Valid names of organizations and repositories. They do not start with a dot, so no name can leave the root."""
REF = re.compile(r"refs/(heads|tags|pr|convert)/[A-Za-z0-9][A-Za-z0-9._/-]*")
PATTERN = re.compile(r"[A-Za-z0-9*?][A-Za-z0-9._*?-]*/[A-Za-z0-9*?][A-Za-z0-9._*?-]*")
GIT = ".git"
"""Name of git's own directory, or of a file that refers to one. The hub does not serve it."""
MOST_REPOSITORIES = 10_000
MOST_ENTRIES = 10_000
"""Maximum number of files and directories of one repository, including ignored ones, because the hub checks each of
them whenever it reads the repository. An entry that is in several revisions counts several times."""
MOST_REFS = 64
DEEPEST = 32
"""Maximum nesting of directories."""
LONGEST_SETTINGS = 16 << 10


class UnstableError(Exception):
    """An error for a file that changed or disappeared while it was read, or since it was hashed. Clients retry the
    request, which reads the repository again."""


class UnservableError(Exception):
    """An error for a repository that cannot be served. Its message contains paths on the disk, so it is only logged."""


class InvalidSettingsError(UnservableError):
    """An error for an invalid ``.hub.yaml``."""


class _Stamp(NamedTuple):
    """The attributes of a file that change with its content."""

    device: int
    inode: int
    size: int
    modified_ns: int


class _Digest(NamedTuple):
    stamp: _Stamp
    oid: str
    sha256: str


@dataclass(frozen=True)
class _Settings:
    gated: bool
    refs: Mapping[str, Path]
    """Ref, other than main -> directory of its files: a path without symbolic links, which may be the repository
    itself."""


class Library:
    """All repositories below one root directory.

    Calls block on the disk. Two concurrent calls of ``load`` for one repository would hash its files twice.
    """

    def __init__(self, root: Path, gated: Sequence[str] = ()) -> None:
        """``gated`` contains the names or patterns of repositories that the operator gates, such as ``acme/*``."""
        self._root, self._gated = root, tuple(gated)
        self._digests: dict[str, dict[Path, _Digest]] = {}

    def names(self) -> list[str]:
        """Return the first ``MOST_REPOSITORIES`` names of repositories, ``org/name``, in alphabetical order. Raise
        OSError for unreadable directories."""
        organisations = [entry for entry in _listing(self._root) if NAME.fullmatch(entry.name) and entry.is_dir()]
        candidates = (
            f"{organisation.name}/{entry.name}"
            for organisation in organisations
            for entry in _listing(Path(organisation.path))
            if NAME.fullmatch(entry.name) and entry.is_dir()
        )
        return sorted(name for name in candidates if self._place(name))[:MOST_REPOSITORIES]

    def has(self, name: str) -> bool:
        """Whether a repository named ``name`` exists. The name may be any text."""
        return self._place(name) is not None

    def load(self, name: str) -> Repository | None:
        """Return the current content of a repository, with every file hashed, or None if the repository does not exist.

        Raise UnstableError if a file changes during the call, UnservableError if ``.hub.yaml`` is invalid or the
        repository has too many or too deeply nested entries, and OSError for unreadable or vanished files.
        """
        top = self._place(name)
        if top is None:
            return None
        settings = _settings(top)
        cached, digests = self._digests.get(name, {}), dict[Path, _Digest]()
        apart = {folder for folder in settings.refs.values() if folder != top}
        walk = _Walk(top, apart)
        refs = {}
        for ref, folder in {MAIN: top, **settings.refs}.items():
            refs[ref] = revision_of(self._file(path, inside, cached, digests) for path, inside in walk.files(folder))
        self._digests[name] = digests
        gated = settings.gated or any(fnmatchcase(name, pattern) for pattern in self._gated)
        return Repository(name, gated, refs)

    def _place(self, name: str) -> Path | None:
        """Return a repository's path without symbolic links. Return None if the name is invalid, if the repository does
        not exist, or if its name is a link to another place. Links to the directories that the kubelet inserts in a
        ConfigMap's volume are allowed."""
        organisation, _unused, model = name.partition("/")
        if not (NAME.fullmatch(organisation) and NAME.fullmatch(model)):
            return None
        root = Path(os.path.realpath(self._root))
        real = Path(os.path.realpath(self._root / organisation / model))
        if not real.is_relative_to(root) or not real.is_dir():
            return None
        return real if _visible_parts(real.relative_to(root)) == (organisation, model) else None

    def _file(self, path: Path, inside: str, cached: Mapping[Path, _Digest], digests: dict[Path, _Digest]) -> File:
        digest = digests.get(path) or cached.get(path)
        stamp = _stamp(path.stat())
        if digest is None or digest.stamp != stamp:
            digest = _digest(path, inside)
        digests[path] = digest
        return File(inside, digest.stamp.size, digest.oid, digest.sha256, path, digest.stamp.modified_ns)


class _Walk:
    """A search for the files of a repository's revisions. ``MOST_ENTRIES`` limits all revisions together."""

    def __init__(self, top: Path, others: set[Path]) -> None:
        """``top`` is the repository's path without symbolic links, and ``others`` are the directories of its other
        revisions."""
        self._top, self._others, self._remaining = top, others, MOST_ENTRIES

    def files(self, folder: Path) -> Iterator[tuple[Path, str]]:
        """Yield each file of the revision whose directory is ``folder``, as its path on disk without symbolic links and
        its path inside the revision. Omit ignored files and the directories of other revisions.

        Raise UnservableError if there are too many files and directories, or if they are nested too deep.
        """
        pending: list[tuple[Path, str, frozenset[Path]]] = [(folder, "", frozenset({folder}))]
        while pending:
            current, prefix, above = pending.pop()
            if len(above) > DEEPEST:
                raise UnservableError(f"{current}: the hub serves at most {DEEPEST} nested folders")
            for entry in _listing(current):
                self._remaining -= 1
                if self._remaining < 0:
                    raise UnservableError(f"{self._top}: the hub serves at most {MOST_ENTRIES} files per repository")
                real, inside = self._content(entry), prefix + entry.name
                if real is None or inside == SETTINGS:
                    continue
                if entry.is_file():
                    yield real, inside
                elif entry.is_dir() and real not in above and real not in self._others:
                    pending.append((real, f"{inside}/", above | {real}))

    def _content(self, entry: os.DirEntry[str]) -> Path | None:
        """Return the path of an entry without symbolic links, or None if the entry is not content of this
        repository."""
        if entry.name.startswith("..") or not _is_text(entry.name):
            return None
        real = Path(os.path.realpath(entry.path)) if entry.is_symlink() else Path(entry.path)
        hidden = entry.name == GIT or (entry.name.startswith(".") and entry.is_dir())
        return None if hidden or not _contains(self._top, real) else real


def _visible_parts(path: Path) -> tuple[str, ...]:
    """Return the parts of a path without the directories, such as ``..data``, that the kubelet inserts in a ConfigMap's
    volume."""
    return tuple(part for part in path.parts if not part.startswith(".."))


def _contains(top: Path, real: Path) -> bool:
    """Whether a path without symbolic links is content of the repository ``top``. Files outside of the repository,
    hidden directories with their files, git's own files and ``.hub.yaml`` are not."""
    if not real.is_relative_to(top):
        return False
    parts = _visible_parts(real.relative_to(top))
    if any(part.startswith(".") for part in parts[:-1]) or GIT in parts:
        return False
    return parts != (SETTINGS,) and not (parts and parts[-1].startswith(".") and real.is_dir())


def _open_file(path: Path) -> IO[bytes]:
    """Open the regular file at ``path``. Raise UnstableError if it no longer exists or is no longer a regular file, or
    if the path now contains a symbolic link. Raise OSError if it is unreadable."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ELOOP, errno.ENOTDIR):
            raise UnstableError(f"{path.name} is gone") from error
        raise
    stream = os.fdopen(handle, "rb")
    if not stat.S_ISREG(os.fstat(handle).st_mode) or _place_of(handle, path) != str(path):
        stream.close()
        raise UnstableError(f"{path.name} has moved")
    return stream


def _place_of(handle: int, path: Path) -> str:
    """Return the actual path of an open file. It differs from ``path`` if a directory in the path has just become a
    symbolic link."""
    try:
        return os.readlink(f"/proc/self/fd/{handle}")
    except FileNotFoundError:  # only Linux provides this
        return os.path.realpath(path)


def open_file(file: File) -> IO[bytes]:
    """Open a file that ``Library.load`` returned. Raise UnstableError if its size or modification time has changed
    since then, or if it is gone."""
    stream = _open_file(file.source)
    status = os.fstat(stream.fileno())
    if (status.st_size, status.st_mtime_ns) != (file.size, file.modified_ns):
        stream.close()
        raise UnstableError(f"{file.path} has changed")
    return stream


def _digest(path: Path, inside: str) -> _Digest:
    with _open_file(path) as stream:
        stamp = _stamp(os.fstat(stream.fileno()))
        if is_lfs(inside, stamp.size):
            log.info("Hashing %s (%d bytes)", path, stamp.size)
            content = hashlib.sha256()
            while chunk := stream.read(CHUNK):
                content.update(chunk)
            sha256 = content.hexdigest()
            oid = git_object("blob", lfs_pointer(sha256, stamp.size))
        else:
            sha256, oid = "", git_object("blob", stream.read())
        if _stamp(os.fstat(stream.fileno())) != stamp:
            raise UnstableError(f"{inside} is being written")
    return _Digest(stamp, oid, sha256)


def _stamp(status: os.stat_result) -> _Stamp:
    return _Stamp(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)


def _listing(folder: Path) -> list[os.DirEntry[str]]:
    with os.scandir(folder) as entries:
        return list(entries)


def _is_text(name: str) -> bool:
    """Whether a file name is valid UTF-8, which the protocol requires."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _settings(top: Path) -> _Settings:
    path = top / SETTINGS
    if path.is_symlink() and not Path(os.path.realpath(path)).is_relative_to(top):
        raise InvalidSettingsError(f"{path}: it is a symbolic link that leaves the repository")
    if not path.is_file():
        return _Settings(gated=False, refs={})
    try:
        with _open_file(Path(os.path.realpath(path))) as stream:
            text = stream.read(LONGEST_SETTINGS + 1)
        document = decode_yaml(text.decode(), most=LONGEST_SETTINGS) or {}
    except ValueError as error:  # a DecodingError, or bytes that are not text
        raise InvalidSettingsError(f"{path}: {error}") from error
    if not isinstance(document, dict) or document.keys() - {"gated", "refs"}:
        raise InvalidSettingsError(f"{path}: unknown key: only 'gated' and 'refs' are allowed")
    gated, refs = document.get("gated", False), document.get("refs") or {}
    if not isinstance(gated, bool) or not isinstance(refs, dict):
        raise InvalidSettingsError(f"{path}: 'gated' must be true or false, and 'refs' must map refs to folders")
    if len(refs) > MOST_REFS:
        raise InvalidSettingsError(f"{path}: the hub serves at most {MOST_REFS} further revisions")
    return _Settings(gated, {_ref(path, ref): _folder(path, folder) for ref, folder in refs.items()})


def _ref(path: Path, ref: object) -> str:
    if not isinstance(ref, str) or not REF.fullmatch(ref) or ref == MAIN:
        raise InvalidSettingsError(f"{path}: {ref!r} is not a full ref such as refs/tags/v1 or refs/pr/1")
    return ref


def _folder(path: Path, folder: object) -> Path:
    top, inside = path.parent, PurePosixPath(folder) if isinstance(folder, str) and "\0" not in folder else None
    if inside is not None and not inside.is_absolute() and ".." not in inside.parts:
        real = Path(os.path.realpath(top / inside))
        if real == top or (real.is_dir() and _contains(top, real)):
            return real
    raise InvalidSettingsError(f"{path}: {folder!r} is not a folder of this repository")
