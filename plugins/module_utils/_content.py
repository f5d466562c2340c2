# Copyright: (c) 2026, The slipway.inference authors
# Simplified BSD License (see LICENSES/BSD-2-Clause.txt or https://opensource.org/licenses/BSD-2-Clause)
# SPDX-License-Identifier: BSD-2-Clause

# Private to this collection: it may change in any release.

"""What is uploaded: a file as it is, or a folder as one tar, which is made while it is read, from any offset on.

The same files make the same bytes: a tar tells no times, owners or rights, and has its files in the order of their
names.
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
    """Bytes that follow one another: of a file, or these."""

    size: int
    path: str = ""
    given: bytes = b""


@dataclass(frozen=True)
class Content:
    """``name``: of the file that the other side sees."""

    name: str
    parts: tuple[Part, ...]

    @property
    def size(self) -> int:
        return sum(part.size for part in self.parts)

    def chunks(self, offset: int, size: int) -> Iterator[bytes]:
        """So many bytes from there on, in chunks. Raises InferenceError where a file is shorter than it was."""
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
        """SHA-256 of so many bytes from there on."""
        checksum = hashlib.sha256()
        for chunk in self.chunks(offset, size):
            checksum.update(chunk)
        return f"sha256:{checksum.hexdigest()}"


def content(path: str) -> Content:
    """Of a file or a folder. Raises InferenceError."""
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
    """Name in the tar and path of each file. What is hidden stays out, such as .git; links to files are files."""
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
