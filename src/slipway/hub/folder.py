"""Reads repositories from a folder ``ROOT/<org>/<name>/...``: the hub's only look at the disk, but for sending files.

The tree may change at any time: each call looks at all names, sizes and times anew, while a file is hashed once for as
long as these stay. A repository may hold a file ``.hub.yaml``:

    gated: true              # files are for known tokens only
    refs:                    # further revisions: ref -> folder below the repository; "." has the content of main
      refs/tags/v1: .
      refs/pr/1: proposals/1

Such a folder is no part of main. Symbolic links are followed as far as they stay inside the root (the volume of a
ConfigMap consists of them); others are left out.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, NamedTuple

import yaml

from slipway.hub.repository import MAIN, File, Repository, git_object, is_lfs, lfs_pointer, revision_of

LOG = logging.getLogger(__name__)

SETTINGS = ".hub.yaml"
CHUNK = 1 << 20
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
"""An organisation or a repository. It starts with no dot, so that no name leads out of the root."""
REF = re.compile(r"refs/(heads|tags|pr|convert)/[A-Za-z0-9][A-Za-z0-9._/-]*")
NOT_CONTENT = frozenset({".git", ".cache", SETTINGS})
"""At the top of a repository: what git, or the hub's client when it downloads into a folder, keeps for itself."""


class UnstableError(Exception):
    """A file changed while it was read; the same request will succeed once it has settled."""


class InvalidSettingsError(Exception):
    """A ``.hub.yaml`` that does not say what it should."""


class _Stamp(NamedTuple):
    """What tells one content of a file from the next."""

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
    refs: Mapping[str, str]
    """Ref -> folder relative to the repository, normalised; ``.`` is the repository itself."""


class Library:
    """All repositories below one root.

    Calls block on the disk; two calls for one repository must not run at once (the second would hash the files again).
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._digests: dict[str, dict[Path, _Digest]] = {}

    def names(self) -> list[str]:
        """``org/name`` of every repository, sorted."""
        organisations = [entry for entry in _listing(self._root) if NAME.fullmatch(entry.name) and entry.is_dir()]
        return sorted(
            f"{organisation.name}/{entry.name}"
            for organisation in organisations
            for entry in _listing(Path(organisation.path))
            if NAME.fullmatch(entry.name) and entry.is_dir()
        )

    def has(self, name: str) -> bool:
        """Whether there is such a repository. Any text may be asked for."""
        organisation, _unused, model = name.partition("/")
        if not (NAME.fullmatch(organisation) and NAME.fullmatch(model)):
            return False
        folder = self._root / organisation / model
        return folder.is_dir() and self._inside(folder)

    def load(self, name: str) -> Repository | None:
        """The repository as it is now, every file hashed; None when there is none.

        Raises UnstableError when a file changes meanwhile, InvalidSettingsError, and OSError for what cannot be read.
        """
        if not self.has(name):
            return None
        top = self._root / name
        settings = _settings(top / SETTINGS)
        known, digests = self._digests.get(name, {}), dict[Path, _Digest]()
        apart = {top / folder for folder in settings.refs.values() if folder != "."}
        refs = {}
        for ref, folder in {MAIN: ".", **settings.refs}.items():
            files = [self._file(path, inside, known, digests) for path, inside in self._walk(top / folder, apart)]
            refs[ref] = revision_of(files)
        self._digests[name] = digests
        return Repository(name, settings.gated, refs)

    def _walk(self, top: Path, apart: set[Path]) -> Iterator[tuple[Path, str]]:
        """(path on disk, path inside the revision) of each file below ``top``, leaving out what is not its content."""
        pending: list[tuple[Path, str, frozenset[str]]] = [(top, "", frozenset({os.path.realpath(top)}))]
        while pending:
            folder, prefix, above = pending.pop()
            for entry in _listing(folder):
                path, inside = Path(entry.path), prefix + entry.name
                hidden = inside in NOT_CONTENT or entry.name.startswith("..") or path in apart
                if hidden or not _is_text(entry.name) or (entry.is_symlink() and not self._inside(path)):
                    continue
                if entry.is_file():
                    yield path, inside
                elif entry.is_dir() and (real := os.path.realpath(path)) not in above:
                    pending.append((path, f"{inside}/", above | {real}))

    def _inside(self, path: Path) -> bool:
        root = os.path.realpath(self._root)
        return os.path.commonpath([root, os.path.realpath(path)]) == root

    def _file(self, path: Path, inside: str, known: Mapping[Path, _Digest], digests: dict[Path, _Digest]) -> File:
        digest = digests.get(path) or known.get(path)
        stamp = _stamp(path.stat())
        if digest is None or digest.stamp != stamp:
            digest = _digest(path, inside)
        digests[path] = digest
        return File(inside, digest.stamp.size, digest.oid, digest.sha256, path, digest.stamp.modified_ns)


def open_file(file: File) -> IO[bytes]:
    """The bytes of a file that ``Library.load`` gave. Raises UnstableError when it has changed since."""
    try:
        stream = file.source.open("rb")
    except FileNotFoundError as error:
        raise UnstableError(f"{file.path} is gone") from error
    found = os.fstat(stream.fileno())
    if (found.st_size, found.st_mtime_ns) != (file.size, file.modified_ns):
        stream.close()
        raise UnstableError(f"{file.path} has changed")
    return stream


def _digest(path: Path, inside: str) -> _Digest:
    with path.open("rb") as stream:
        stamp = _stamp(os.fstat(stream.fileno()))
        if is_lfs(inside, stamp.size):
            LOG.info("hashing %s (%d bytes)", path, stamp.size)
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


def _stamp(found: os.stat_result) -> _Stamp:
    return _Stamp(found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)


def _listing(folder: Path) -> list[os.DirEntry[str]]:
    with os.scandir(folder) as entries:
        return list(entries)


def _is_text(name: str) -> bool:
    """Whether a file name is valid UTF-8, as every path of the protocol is."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _settings(path: Path) -> _Settings:
    if not path.is_file():
        return _Settings(gated=False, refs={})
    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise InvalidSettingsError(f"{path}: {error}") from error
    if not isinstance(document, dict) or document.keys() - {"gated", "refs"}:
        raise InvalidSettingsError(f"{path}: only 'gated' and 'refs' are known")
    gated, refs = document.get("gated", False), document.get("refs") or {}
    if not isinstance(gated, bool) or not isinstance(refs, dict):
        raise InvalidSettingsError(f"{path}: 'gated' is true or false, 'refs' maps refs to folders")
    return _Settings(gated, {_ref(path, ref): _folder(path, folder) for ref, folder in refs.items()})


def _ref(path: Path, ref: object) -> str:
    if not isinstance(ref, str) or not REF.fullmatch(ref) or ref == MAIN:
        raise InvalidSettingsError(f"{path}: {ref!r} is not a full ref such as refs/tags/v1 or refs/pr/1")
    return ref


def _folder(path: Path, folder: object) -> str:
    inside = PurePosixPath(folder) if isinstance(folder, str) else None
    if inside is None or inside.is_absolute() or ".." in inside.parts or not (path.parent / inside).is_dir():
        raise InvalidSettingsError(f"{path}: {folder!r} is not a folder of this repository")
    return str(inside)
