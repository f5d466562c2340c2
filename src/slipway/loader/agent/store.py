"""The directory of adapters. ``NAME/DIGEST/`` contains one version of an adapter, and the file ``.agent`` contains the
state of the agent.

A version is complete if its marker contains a URL and its directory is named after the digest of that URL. A version
that is part of the engine's container has only a marker.
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
"""Pattern of valid adapter names and digests: directory names that have no path separators and are not hidden."""


class Memory(msgspec.Struct, frozen=True):
    """The agent's state that must survive a restart of the loader."""

    desired: tuple[Adapter, ...] | None = None
    """Adapters of the controller's last request; None: the controller has not sent a request yet."""
    loaded: tuple[str, ...] = ()
    """Names of the desired adapters that the engine has loaded, now or before its last restart. After a restart of the
    engine, the pod gets no requests until it has loaded them again (see ``Agent.missing_adapters``)."""
    order: int = 0
    """Time at which the controller signed the last accepted request, in Unix nanoseconds. A request that is not newer
    is a replay."""


class Store:
    def __init__(self, root: Path) -> None:
        self._root = root
        self._memory = root / ".agent"

    def path(self, version: Version) -> Path:
        """Return the directory of a version."""
        return self._root / version.name / version.digest

    def place(self, version: Version, url: str) -> str:
        """Return the path from which the engine loads a complete version: its directory or, for a version that is part
        of the engine's container, the path in ``url``."""
        return url.removeprefix(IN_PLACE) if url.startswith(IN_PLACE) else str(self.path(version))

    def note(self, version: Version, url: str) -> None:
        """Mark a version that is part of the engine's container as complete. Raise LoadError if the marker cannot be
        written."""
        try:
            note(self.path(version), url)
        except OSError as error:
            raise disk_error(error, self.path(version)) from error

    def version(self, path: str) -> Version | None:
        """Return the version whose directory would be ``path``, or None if ``path`` is not two levels below the root.
        The directory need not exist."""
        try:
            parts = Path(path).relative_to(self._root).parts
        except ValueError:
            return None
        return Version(*parts) if len(parts) == 2 else None

    def scan(self) -> tuple[Mapping[Version, str], frozenset[Version]]:
        """Return the complete versions with their URLs, and the incomplete versions."""
        urls = {version: self._url(version) for version in self.versions()}
        complete = {version: url for version, url in urls.items() if url is not None}
        return complete, frozenset(urls.keys() - complete.keys())

    def versions(self) -> list[Version]:
        """Return all versions on the disk, complete or not."""
        return [Version(name, digest) for name in _folders(self._root) for digest in _folders(self._root / name)]

    def size(self, version: Version) -> int:
        """Return the total size of a version's files in bytes, whether or not the version is complete."""
        return sum(_sizes(self.path(version)))

    def remove(self, version: Version) -> None:
        """Remove a version, and the adapter's directory if no other version is in it. Raise LoadError."""
        evict(self.path(version), self._root)
        try:
            (self._root / version.name).rmdir()
        except OSError:
            return  # there is another version in it

    def recall(self) -> Memory:
        """Return the stored state, or an empty one if the file is missing or invalid. Raise OSError if the file is
        unreadable."""
        try:
            return msgspec.json.decode(self._memory.read_bytes(), type=Memory)
        except (FileNotFoundError, msgspec.DecodeError):
            return Memory()

    def remember(self, memory: Memory) -> None:
        """Store the agent's state atomically. Raise OSError."""
        fresh = self._memory.with_suffix(".new")
        fresh.write_bytes(msgspec.json.encode(memory))
        fresh.replace(self._memory)

    def _url(self, version: Version) -> str | None:
        """Return the URL of a complete version, or None if the version is incomplete or its marker contains the URL of
        another version."""
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
