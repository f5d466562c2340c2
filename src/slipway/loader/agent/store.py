"""The adapters' folder: ``NAME/DIGEST/`` is one version of an adapter, ``.agent`` what the agent has to remember."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import msgspec

from slipway.loader.agent.plan import Version
from slipway.loader.evict import evict
from slipway.loader.folder import MARKER
from slipway.serving.agent import Adapter

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,250}")
"""An adapter or a digest: a folder's name that leads nowhere else and is not hidden."""


class Memory(msgspec.Struct, frozen=True):
    """What neither disk nor engine tell after a restart."""

    wish: tuple[Adapter, ...] | None = None
    """None: nobody has told one yet."""
    loaded: tuple[str, ...] = ()
    """Names that the engine has answered with, and has to again before the pod takes requests."""


class Store:
    def __init__(self, root: Path) -> None:
        self._root = root
        self._memory = root / ".agent"

    def path(self, version: Version) -> Path:
        return self._root / version.name / version.digest

    def version(self, path: str) -> Version | None:
        """Of which version this is the folder; None for a folder elsewhere."""
        try:
            parts = Path(path).relative_to(self._root).parts
        except ValueError:
            return None
        return Version(*parts) if len(parts) == 2 else None

    def look(self) -> tuple[frozenset[Version], frozenset[Version]]:
        """Versions that are complete, and others that were begun."""
        found = list(self._versions())
        complete = frozenset(version for version in found if (self.path(version) / MARKER).is_file())
        return complete, frozenset(found) - complete

    def remove(self, version: Version) -> None:
        """Raises LoadError. The adapter's own folder goes with its last version."""
        evict(self.path(version), self._root)
        try:
            (self._root / version.name).rmdir()
        except OSError:
            return  # another version is in it

    def recall(self) -> Memory:
        try:
            return msgspec.json.decode(self._memory.read_bytes(), type=Memory)
        except (FileNotFoundError, msgspec.DecodeError):
            return Memory()

    def remember(self, memory: Memory) -> None:
        fresh = self._memory.with_suffix(".new")
        fresh.write_bytes(msgspec.json.encode(memory))
        fresh.replace(self._memory)

    def _versions(self) -> Iterator[Version]:
        for name in _folders(self._root):
            for digest in _folders(self._root / name):
                yield Version(name, digest)


def _folders(path: Path) -> list[str]:
    try:
        with os.scandir(path) as entries:
            return [
                entry.name for entry in entries if NAME.fullmatch(entry.name) and entry.is_dir(follow_symlinks=False)
            ]
    except FileNotFoundError:
        return []
