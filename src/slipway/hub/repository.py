"""Repositories of the hub: named revisions of files, with IDs as in git and git LFS. Pure.

``folder`` reads the files, and ``documents`` and ``server`` present them to clients. Tree and commit IDs depend only on
the content, so equal content has the same commit on every mirror and after every restart.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path, PurePosixPath

MAIN = "refs/heads/main"
"""Full name of the default branch."""

LFS_SUFFIXES = frozenset(
    [".7z", ".bin", ".bz2", ".ckpt", ".gguf", ".gz", ".h5", ".model", ".msgpack", ".npy", ".npz", ".onnx", ".ot"]
).union(
    [".parquet", ".pb", ".pickle", ".pkl", ".pt", ".pth", ".safetensors", ".tar", ".tflite", ".tgz", ".xz", ".zip"],
    [".zst"],
)
"""Extensions of the files that the public Hub stores in git LFS by default."""

LFS_SIZE = 10_000_000
"""Size in bytes above which any file is an LFS file, as on the public Hub."""


def is_lfs(path: str, size: int) -> bool:
    """Whether clients see a file of ``size`` bytes as an LFS file, because of its size or the extension of ``path``.
    SHA-256 identifies an LFS file, instead of git's blob ID."""
    return size > LFS_SIZE or PurePosixPath(path).suffix.lower() in LFS_SUFFIXES


def lfs_pointer(sha256: str, size: int) -> bytes:
    """Return the text that git stores in place of an LFS file, in the format of the git LFS specification."""
    return f"version https://git-lfs.github.com/spec/v1\noid sha256:{sha256}\nsize {size}\n".encode()


def git_object(kind: str, content: bytes) -> str:
    """Return git's ID of an object: the SHA-1 of its content after a header with its kind and length."""
    return hashlib.sha1(f"{kind} {len(content)}\0".encode() + content, usedforsecurity=False).hexdigest()


@dataclass(frozen=True, slots=True)
class File:
    """One file of a revision, and the location of its bytes."""

    path: str
    """Path inside the revision, with slashes."""
    size: int
    oid: str
    """Git blob ID, 40 hex digits. For an LFS file, this is the blob ID of its pointer."""
    sha256: str
    """SHA-256 of an LFS file's content, 64 hex digits; empty: not an LFS file."""
    source: Path
    """Path of the file on the disk, without symbolic links."""
    modified_ns: int
    """Modification time of the source when it was hashed, in nanoseconds since 1970. A different time or size shows
    that the file has changed."""

    @property
    def etag(self) -> str:
        """The ID of the content, for clients and their caches, without quotes."""
        return self.sha256 or self.oid


@dataclass(frozen=True, slots=True)
class Directory:
    path: str
    oid: str
    """Git tree ID."""


@dataclass(frozen=True)
class Revision:
    """The content of a repository at one commit."""

    sha: str
    entries: Mapping[str, File | Directory]
    """Path inside the revision -> entry, sorted by path."""

    @cached_property
    def files(self) -> tuple[File, ...]:
        """All files of the revision, sorted by path."""
        return tuple(entry for entry in self.entries.values() if isinstance(entry, File))


@dataclass(frozen=True)
class Repository:
    """A model repository: its name ``org/name``, and the revision of each of its refs."""

    name: str
    gated: bool
    """Whether files require a known token. Names, sizes and IDs are public even then, as on the public Hub."""
    refs: Mapping[str, Revision]
    """Full name, such as ``refs/heads/main``, ``refs/tags/v1`` or ``refs/pr/1`` -> revision."""

    @property
    def main(self) -> Revision:
        """The revision of the branch ``main``."""
        return self.refs[MAIN]

    def revision(self, name: str) -> Revision | None:
        """Return the revision of a branch, a tag, a ref with or without ``refs/``, or a full commit ID, or None if the
        repository has no such revision. A branch takes precedence over a tag of the same name."""
        for ref in (name, f"refs/heads/{name}", f"refs/tags/{name}", f"refs/{name}"):
            if ref in self.refs:
                return self.refs[ref]
        return next((revision for revision in self.refs.values() if revision.sha == name), None)


@dataclass
class _Tree:
    files: dict[str, File] = field(default_factory=dict)
    trees: dict[str, _Tree] = field(default_factory=dict)


def revision_of(files: Iterable[File]) -> Revision:
    """Build the revision that contains these files and their directories."""
    root = _Tree()
    for file in files:
        *folders, name = file.path.split("/")
        tree = root
        for folder in folders:
            tree = tree.trees.setdefault(folder, _Tree())
        tree.files[name] = file
    entries: dict[str, File | Directory] = {}
    tree_oid = _collect(root, "", entries)
    # Author and date are constants, so the commit depends only on the content.
    person = "slipway <slipway@localhost> 0 +0000"
    commit = f"tree {tree_oid}\nauthor {person}\ncommitter {person}\n\nmirror\n".encode()
    return Revision(git_object("commit", commit), dict(sorted(entries.items())))


def _collect(tree: _Tree, prefix: str, entries: dict[str, File | Directory]) -> str:
    """Add all files and directories of ``tree`` to ``entries``, and return the tree's git ID. ``prefix`` is the path of
    the tree with a slash at the end; empty for the root."""
    rows: list[tuple[bytes, bytes, str]] = []
    for name, file in tree.files.items():
        entries[file.path] = file
        rows.append((name.encode(), b"100644", file.oid))
    for name, child in tree.trees.items():
        path = f"{prefix}{name}"
        oid = _collect(child, f"{path}/", entries)
        entries[path] = Directory(path, oid)
        rows.append((name.encode(), b"40000", oid))
    # Git sorts a directory as if its name ended with a slash.
    rows.sort(key=lambda row: row[0] + (b"/" if row[1] == b"40000" else b""))
    return git_object("tree", b"".join(b"%s %s\0%s" % (mode, name, bytes.fromhex(oid)) for name, mode, oid in rows))
