"""The JSON documents of the hub's API, created from repositories. Pure.

The documents have the fields that huggingface_hub and llama.cpp parse. Xet IDs are omitted deliberately: a client that
gets one switches from plain HTTP to another storage protocol.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from slipway.hub.repository import Directory, File, Repository, Revision, lfs_pointer

Document = dict[str, Any]


def _pointer_size(file: File) -> int:
    return len(lfs_pointer(file.sha256, file.size))


def tree_entry(entry: File | Directory) -> Document:
    """Return a file or directory as an entry of the API's ``tree`` and ``paths-info`` responses."""
    if isinstance(entry, Directory):
        return {"type": "directory", "oid": entry.oid, "size": 0, "path": entry.path}
    row: Document = {"type": "file", "oid": entry.oid, "size": entry.size, "path": entry.path}
    if entry.sha256:
        row["lfs"] = {"oid": entry.sha256, "size": entry.size, "pointerSize": _pointer_size(entry)}
    return row


def tree(revision: Revision, path: str, *, recursive: bool) -> list[Document]:
    """Return the entries of a directory: all entries below it if ``recursive``, otherwise only its direct children. An
    empty ``path`` means the root. The result is empty if ``path`` is not a directory of the revision."""
    prefix = f"{path}/" if path else ""
    below = [entry for name, entry in revision.entries.items() if name.startswith(prefix)]
    return [tree_entry(entry) for entry in below if recursive or "/" not in entry.path[len(prefix) :]]


def _sibling(file: File, *, blobs: bool) -> Document:
    row: Document = {"rfilename": file.path}
    if blobs:
        row |= {"size": file.size, "blobId": file.oid}
        if file.sha256:
            row["lfs"] = {"sha256": file.sha256, "size": file.size, "pointerSize": _pointer_size(file)}
    return row


def model(repository: Repository, revision: Revision, *, blobs: bool) -> Document:
    """Return the API's description of a model. The list of files (``siblings``) is always included, because some
    clients have no other listing. ``blobs`` adds the size and hash of each file."""
    return {**summary(repository, revision), "siblings": [_sibling(file, blobs=blobs) for file in revision.files]}


def summary(repository: Repository, revision: Revision) -> Document:
    """Return the API's description of a model without its files."""
    modified = max((file.modified_ns for file in revision.files), default=0)
    date = datetime.fromtimestamp(modified // 10**9, UTC).strftime("%Y-%m-%dT%H:%M:%S.000Z")
    return {
        "_id": hashlib.sha256(repository.name.encode()).hexdigest()[:24],
        "id": repository.name,
        "modelId": repository.name,
        "author": repository.name.partition("/")[0],
        "sha": revision.sha,
        "private": False,
        "gated": "manual" if repository.gated else False,
        "disabled": False,
        "lastModified": date,
        "createdAt": date,
        "downloads": 0,
        "likes": 0,
        "tags": sorted({file.path.rpartition(".")[2] for file in revision.files} & {"gguf", "onnx", "safetensors"}),
        "usedStorage": sum(file.size for file in revision.files),
    }


def refs(repository: Repository, *, pull_requests: bool) -> Document:
    """Return the branches, tags, conversions and, if requested, pull requests of a repository, each with its commit."""

    def rows(prefix: str) -> list[Document]:
        return [
            {"name": ref.removeprefix(prefix), "ref": ref, "targetCommit": revision.sha}
            for ref, revision in repository.refs.items()
            if ref.startswith(prefix)
        ]

    prefixes = {"branches": "refs/heads/", "tags": "refs/tags/", "converts": "refs/convert/"}
    if pull_requests:
        prefixes["pullRequests"] = "refs/pr/"
    return {field: rows(prefix) for field, prefix in prefixes.items()}


def whoami(user: str) -> Document:
    """Return the response of ``whoami-v2`` for a known user."""
    return {
        "type": "user",
        "id": hashlib.sha256(user.encode()).hexdigest()[:24],
        "name": user,
        "fullname": user,
        "orgs": [],
        "auth": {"type": "access_token", "accessToken": {"displayName": user, "role": "read"}},
    }


def paths_info(revision: Revision, paths: Iterable[str]) -> list[Document]:
    """Return the entries of the paths that exist, whether files or directories. Slashes around a path are ignored.
    Other paths are omitted, as on the public Hub."""
    requested = dict.fromkeys(path.strip("/") for path in paths)
    return [tree_entry(revision.entries[path]) for path in requested if path in revision.entries]
