"""Store: the adapters' folder. ``NAME/DIGEST/`` is one version of an adapter, and ``.agent`` is the agent's own state.

A version is complete if its marker contains its URL, and the folder's name is the digest of that URL. A version that is
already in the engine's container has only a marker.
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
"""An adapter or a digest: a folder's name that leads nowhere else and is not hidden."""


class Memory(msgspec.Struct, frozen=True):
    """State that neither disk nor engine have after a restart."""

    desired: tuple[Adapter, ...] | None = None
    """None: the controller has not named any yet."""
    loaded: tuple[str, ...] = ()
    """Names that the engine has answered with, and has to again before the pod takes requests."""
    order: int = 0
    """When the last order was signed that was taken, in nanoseconds of Unix time; an earlier one is a replay."""


class Store:
    def __init__(self, root: Path) -> None:
        self._root = root
        self._memory = root / ".agent"

    def path(self, version: Version) -> Path:
        """The folder of a version."""
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

    def look(self) -> tuple[Mapping[Version, str], frozenset[Version]]:
        """Versions that are complete -> the url of each, and others that were begun."""
        urls = {version: self._url(version) for version in self.versions()}
        complete = {version: url for version, url in urls.items() if url is not None}
        return complete, frozenset(urls.keys() - complete.keys())

    def versions(self) -> list[Version]:
        """All of which there is anything."""
        return [Version(name, digest) for name in _folders(self._root) for digest in _folders(self._root / name)]

    def size(self, version: Version) -> int:
        """Returns the bytes of a version on the disk, complete or not."""
        return sum(_sizes(self.path(version)))

    def remove(self, version: Version) -> None:
        """Raises LoadError. The adapter's own folder is removed with its last version."""
        evict(self.path(version), self._root)
        try:
            (self._root / version.name).rmdir()
        except OSError:
            return  # another version is in it

    def recall(self) -> Memory:
        """Returns the stored memory; an empty one if there is none that can be read."""
        try:
            return msgspec.json.decode(self._memory.read_bytes(), type=Memory)
        except (FileNotFoundError, msgspec.DecodeError):
            return Memory()

    def remember(self, memory: Memory) -> None:
        """Writes ``memory`` in one step. Raises OSError."""
        fresh = self._memory.with_suffix(".new")
        fresh.write_bytes(msgspec.json.encode(memory))
        fresh.replace(self._memory)

    def _url(self, version: Version) -> str | None:
        """Where a complete version came from; None for one that is not complete, or whose marker tells of another."""
        url = loaded_url(self.path(version))
        return url if url is not None and agent.version(url) == version.digest else None


def _sizes(path: Path) -> Iterator[int]:
    for folder, _folders_in_it, files in os.walk(path):
        for name in files:
            try:
                yield os.lstat(os.path.join(folder, name)).st_size
            except FileNotFoundError:
                continue  # renamed or removed meanwhile


def _folders(path: Path) -> list[str]:
    try:
        with os.scandir(path) as entries:
            return [
                entry.name for entry in entries if NAME.fullmatch(entry.name) and entry.is_dir(follow_symlinks=False)
            ]
    except FileNotFoundError:
        return []
