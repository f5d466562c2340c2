# Copyright: (c) 2026, The slipway.inference authors
# Simplified BSD License (see LICENSES/BSD-2-Clause.txt or https://opensource.org/licenses/BSD-2-Clause)
# SPDX-License-Identifier: BSD-2-Clause

# Private to this collection: it may change in any release.

"""The content of an upload: an unchanged file, or a directory as a tar archive that is created while it is read, from
any offset.

The same files always give the same bytes: the archive contains no times, owners or permissions, and its files are
sorted by name.
"""

from __future__ import annotations

import hashlib
import os
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass

from ansible_collections.slipway.inference.plugins.module_utils._errors import InferenceError

CHUNK = 1 << 20
BLOCK = tarfile.BLOCKSIZE


@dataclass(frozen=True)
class Part:
    """A sequence of bytes: those of a file, or the bytes in ``given``."""

    size: int
    path: str = ""
    given: bytes = b""


@dataclass(frozen=True)
class Content:
    """The content of an upload. ``name`` is the file name that the depot sees."""

    name: str
    parts: tuple[Part, ...]

    @property
    def size(self) -> int:
        return sum(part.size for part in self.parts)

    def chunks(self, offset: int, size: int) -> Iterator[bytes]:
        """Yield ``size`` bytes from ``offset`` on, in chunks. Raise InferenceError if a file has become shorter."""
        remaining = size
        for part in self.parts:
            if remaining <= 0:
                return
            if offset >= part.size:
                offset -= part.size
                continue
            for chunk in _read(part, offset, min(remaining, part.size - offset)):
                remaining -= len(chunk)
                yield chunk
            offset = 0

    def digest(self, offset: int, size: int) -> str:
        """Return the SHA-256 of ``size`` bytes from ``offset`` on, as ``sha256:`` and hexadecimal digits."""
        checksum = hashlib.sha256()
        for chunk in self.chunks(offset, size):
            checksum.update(chunk)
        return f"sha256:{checksum.hexdigest()}"


def content(path: str) -> Content:
    """Return the content of a file or a directory. Raise InferenceError if it cannot be read or a directory has no
    files."""
    name = os.path.basename(os.path.abspath(path))
    try:
        if os.path.isdir(path):
            return Content(f"{name}.tar", tuple(_tar(path)))
        return Content(name, (Part(os.stat(path).st_size, path),))
    except (OSError, UnicodeError, ValueError) as error:
        raise InferenceError("invalid_input", f"{path} cannot be read: {error}.") from error


def _tar(folder: str) -> Iterator[Part]:
    files = sorted(_files(folder))
    if not files:
        raise ValueError("the directory has no files")
    for name, path in files:
        header = tarfile.TarInfo(name)
        header.size, header.mode = os.stat(path).st_size, 0o644
        written = header.tobuf(tarfile.PAX_FORMAT)
        yield Part(len(written), given=written)
        yield Part(header.size, path)
        yield Part(-header.size % BLOCK, given=bytes(-header.size % BLOCK))
    yield Part(2 * BLOCK, given=bytes(2 * BLOCK))


def _files(folder: str) -> Iterator[tuple[str, str]]:
    """Yield the archive name and the path of each file. Hidden files and directories, such as .git, are skipped.
    Symbolic links to files count as files."""
    for root, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in names:
            path = os.path.join(root, name)
            if not name.startswith(".") and os.path.isfile(path):
                yield os.path.relpath(path, folder).replace(os.sep, "/"), path


def _read(part: Part, offset: int, size: int) -> Iterator[bytes]:
    if not part.path:
        yield part.given[offset : offset + size]
        return
    try:
        with open(part.path, "rb") as file:
            file.seek(offset)
            while size:
                chunk = file.read(min(CHUNK, size))
                if not chunk:
                    raise InferenceError("invalid_input", f"{part.path} became shorter while it was read.")
                size -= len(chunk)
                yield chunk
    except OSError as error:
        raise InferenceError("invalid_input", f"{part.path} cannot be read: {error}.") from error
