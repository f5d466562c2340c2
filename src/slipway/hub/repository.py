"""What a repository of the hub is: named revisions of files, with the identities that git and git LFS give them. Pure.

The files come from ``folder``; ``documents`` and ``server`` show them to clients. Tree and commit ids are computed as
git does, from the content alone, so that equal content has an equal commit on every mirror and after every restart.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path, PurePosixPath

MAIN = "refs/heads/main"
"""The branch that everybody reads who names no other."""

LFS_SUFFIXES = frozenset(
    [".7z", ".bin", ".bz2", ".ckpt", ".gguf", ".gz", ".h5", ".model", ".msgpack", ".npy", ".npz", ".onnx", ".ot"]
).union(
    [".parquet", ".pb", ".pickle", ".pkl", ".pt", ".pth", ".safetensors", ".tar", ".tflite", ".tgz", ".xz", ".zip"],
    [".zst"],
)
"""Files that the public hub keeps in git LFS by the rules which it puts into every new repository."""

LFS_SIZE = 10_000_000
"""Bytes. Whatever is larger is an LFS file under any name, as on the public hub."""


def is_lfs(path: str, size: int) -> bool:
    """Whether a client shall see this file as an LFS file: identified by SHA-256 instead of by git's blob id."""
    return size > LFS_SIZE or PurePosixPath(path).suffix.lower() in LFS_SUFFIXES


def lfs_pointer(sha256: str, size: int) -> bytes:
    """The text that git stores in place of an LFS file; its format is fixed by the git LFS specification."""
    return f"version https://git-lfs.github.com/spec/v1\noid sha256:{sha256}\nsize {size}\n".encode()


def git_object(kind: str, content: bytes) -> str:
    """Git's id of an object: SHA-1 over a header of kind and length, and the content."""
    return hashlib.sha1(f"{kind} {len(content)}\0".encode() + content, usedforsecurity=False).hexdigest()


@dataclass(frozen=True, slots=True)
class File:
    """One file of a revision and where its bytes lie."""

    path: str
    """Inside the repository, with slashes."""
    size: int
    oid: str
    """Git blob id, 40 hex digits; of the pointer where the file is an LFS file."""
    sha256: str
    """Of the content, 64 hex digits, for LFS files; empty for others."""
    source: Path
    modified_ns: int
    """Modification time of the source when it was hashed: by this and the size a later change is noticed."""

    @property
    def etag(self) -> str:
        """What identifies the content to clients, and names it in their caches."""
        return self.sha256 or self.oid


@dataclass(frozen=True, slots=True)
class Directory:
    path: str
    oid: str
    """Git tree id."""


@dataclass(frozen=True)
class Revision:
    """The content of a repository at one commit."""

    sha: str
    entries: Mapping[str, File | Directory]
    """By path, sorted by path."""

    @cached_property
    def files(self) -> tuple[File, ...]:
        """All files, sorted by path."""
        return tuple(entry for entry in self.entries.values() if isinstance(entry, File))


@dataclass(frozen=True)
class Repository:
    """A model repository: its name ``org/name`` and what each of its refs shows."""

    name: str
    gated: bool
    """Whether files are for known tokens only. Names, sizes and ids are public even then, as on the public hub."""
    refs: Mapping[str, Revision]
    """By full name, such as ``refs/heads/main``, ``refs/tags/v1`` or ``refs/pr/1``."""

    @property
    def main(self) -> Revision:
        """The branch ``main``."""
        return self.refs[MAIN]

    def revision(self, name: str) -> Revision | None:
        """The revision that a client means by a branch, a tag, a full ref or a commit id."""
        for ref in (name, f"refs/heads/{name}", f"refs/tags/{name}", f"refs/{name}"):
            if ref in self.refs:
                return self.refs[ref]
        return next((revision for revision in self.refs.values() if revision.sha == name), None)


@dataclass
class _Tree:
    files: dict[str, File] = field(default_factory=dict)
    trees: dict[str, _Tree] = field(default_factory=dict)


def revision_of(files: Iterable[File]) -> Revision:
    """The revision whose content is these files, with the folders that lie between them."""
    root = _Tree()
    for file in files:
        *folders, name = file.path.split("/")
        tree = root
        for folder in folders:
            tree = tree.trees.setdefault(folder, _Tree())
        tree.files[name] = file
    entries: dict[str, File | Directory] = {}
    tree_oid = _collect(root, "", entries)
    # Author and date are constants: the commit then says nothing but what the content is.
    person = "slipway <slipway@localhost> 0 +0000"
    commit = f"tree {tree_oid}\nauthor {person}\ncommitter {person}\n\nmirror\n".encode()
    return Revision(git_object("commit", commit), dict(sorted(entries.items())))


def _collect(tree: _Tree, prefix: str, entries: dict[str, File | Directory]) -> str:
    """Put all that lies in ``tree`` into ``entries`` and return the tree's git id."""
    rows: list[tuple[bytes, bytes, str]] = []
    for name, file in tree.files.items():
        entries[file.path] = file
        rows.append((name.encode(), b"100644", file.oid))
    for name, child in tree.trees.items():
        path = f"{prefix}{name}"
        oid = _collect(child, f"{path}/", entries)
        entries[path] = Directory(path, oid)
        rows.append((name.encode(), b"40000", oid))
    # Git sorts a folder as if its name ended with a slash.
    rows.sort(key=lambda row: row[0] + (b"/" if row[1] == b"40000" else b""))
    return git_object("tree", b"".join(b"%s %s\0%s" % (mode, name, bytes.fromhex(oid)) for name, mode, oid in rows))
