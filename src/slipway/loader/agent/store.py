"""Store: the adapters' folder. ``NAME/DIGEST/`` is one version of an adapter, and ``.agent`` is the agent's own state.

A version is complete if its marker contains its URL, and the folder's name is the digest of that URL. A version that is
part of the engine's container has only a marker.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from slipway.loader.agent.plan import Version
from slipway.loader.disk.evict import evict
from slipway.loader.disk.folder import disk_error, loaded_url, note
from slipway.serving.wire import agent
from slipway.serving.wire.agent import IN_PLACE, Adapter

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,250}")
"""Valid names of adapters and digests: folder names without path separators that are not hidden."""


class Memory(msgspec.Struct, frozen=True):
    """State that neither the disk nor the engine has after a restart."""

    desired: tuple[Adapter, ...] | None = None
    """Adapters that the controller requested last; None: it has not sent any request yet."""
    loaded: tuple[str, ...] = ()
    """Names that the engine has reported as loaded, and must report again before the pod gets requests."""
    order: int = 0
    """Time at which the last accepted request was signed, in Unix nanoseconds; an earlier request is a replay."""


class Store:
    def __init__(self, root: Path) -> None:
        self._root = root
        self._memory = root / ".agent"

    def path(self, version: Version) -> Path:
        """Returns the folder of a version."""
        return self._root / version.name / version.digest

    def place(self, version: Version, url: str) -> str:
        """Returns the engine's path of a complete version of this URL."""
        return url.removeprefix(IN_PLACE) if url.startswith(IN_PLACE) else str(self.path(version))

    def note(self, version: Version, url: str) -> None:
        """Records that this version, in the engine's container, is complete. Raises LoadError."""
        try:
            note(self.path(version), url)
        except OSError as error:
            raise disk_error(error, self.path(version)) from error

    def version(self, path: str) -> Version | None:
        """Returns the version of a folder; None for a folder elsewhere."""
        try:
            parts = Path(path).relative_to(self._root).parts
        except ValueError:
            return None
        return Version(*parts) if len(parts) == 2 else None

    def scan(self) -> tuple[Mapping[Version, str], frozenset[Version]]:
        """Returns complete versions -> their URLs, and the versions that are incomplete."""
        urls = {version: self._url(version) for version in self.versions()}
        complete = {version: url for version, url in urls.items() if url is not None}
        return complete, frozenset(urls.keys() - complete.keys())

    def versions(self) -> list[Version]:
        """Returns all versions, complete or not."""
        return [Version(name, digest) for name in _folders(self._root) for digest in _folders(self._root / name)]

    def size(self, version: Version) -> int:
        """Returns the bytes of a version on the disk, complete or not."""
        return sum(_sizes(self.path(version)))

    def remove(self, version: Version) -> None:
        """Removes a version, and the adapter's folder with its last version. Raises LoadError."""
        evict(self.path(version), self._root)
        try:
            (self._root / version.name).rmdir()
        except OSError:
            return  # there is another version in it

    def recall(self) -> Memory:
        """Returns the stored memory; empty if it is missing or invalid."""
        try:
            return msgspec.json.decode(self._memory.read_bytes(), type=Memory)
        except (FileNotFoundError, msgspec.DecodeError):
            return Memory()

    def remember(self, memory: Memory) -> None:
        """Writes ``memory`` atomically. Raises OSError."""
        fresh = self._memory.with_suffix(".new")
        fresh.write_bytes(msgspec.json.encode(memory))
        fresh.replace(self._memory)

    def _url(self, version: Version) -> str | None:
        """Returns the URL of a complete version; None if it is incomplete, or its marker names another URL."""
        url = loaded_url(self.path(version))
        return url if url is not None and agent.version(url) == version.digest else None


def _sizes(path: Path) -> Iterator[int]:
    for folder, _folders_in_it, files in os.walk(path):
        for name in files:
            try:
                yield os.lstat(os.path.join(folder, name)).st_size
            except FileNotFoundError:
                continue  # renamed or removed in the meantime


def _folders(path: Path) -> list[str]:
    try:
        with os.scandir(path) as entries:
            return [
                entry.name for entry in entries if NAME.fullmatch(entry.name) and entry.is_dir(follow_symlinks=False)
            ]
    except FileNotFoundError:
        return []
