# Copyright: (c) 2026, The slipway.inference authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Private to this collection: it may change in any release.

"""The files of a node's containerd, and the configuration that results from them. All functions are pure."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from ansible_collections.slipway.inference.plugins.plugin_utils._runtime_state import (
    CRI_OF_VERSION,
    CRI_SINCE_3,
    RUNC,
    Request,
    State,
    cri_plugin,
    is_runc,
    state_of,
)
from ansible_collections.slipway.inference.plugins.plugin_utils._toml import Path, Table, at, read

# The role recognizes its own file by this text. If you change it, also accept the old text, which existing nodes have.
HEADER = "# Written by the role gpu_node. It is read beside the file that imports it.\n"
# The names that the role registers.
OWN_NAMES = ("nvidia", "nvidia-cdi")


@dataclass(frozen=True)
class Source:
    """A file that containerd reads. ``text`` is None if the file does not exist."""

    path: str
    text: str | None
    document: Table
    version: int

    @property
    def containerd(self) -> Path:
        return ("plugins", cri_plugin(self.version), "containerd")

    @property
    def runtimes(self) -> Table:
        runtimes: Table = at(self.document, (*self.containerd, "runtimes"), {})
        return runtimes

    @property
    def default(self) -> str:
        return str(at(self.document, (*self.containerd, "default_runtime_name"), ""))

    @property
    def written_by_us(self) -> bool:
        return (self.text or "").startswith(HEADER)


@dataclass(frozen=True)
class Node:
    """The input of a plan.

    ``sources`` are in the order in which containerd reads them, with the top file first. ``implied`` contains the
    settings of runc in containerd's default configuration.
    """

    state: State
    merges: bool
    sources: Sequence[Source]
    request: Request
    implied: Table

    @property
    def top(self) -> Source:
        return self.sources[0]

    def configured(self, name: str) -> bool:
        """Whether a file defines the runtime. The result is False for runtimes that only our own file or containerd's
        defaults define."""
        return any(name in source.runtimes for source in self.sources if not source.written_by_us)

    def is_ours(self, name: str) -> bool:
        """Whether the role registered the runtime: it runs our program, or has one of our names and uses runc."""
        settings = self.state.runtimes.get(name, {})
        names = {*self.request.handlers, *OWN_NAMES}
        return runs_by(settings, self.request.binary) or (name in names and is_runc(settings))

    @property
    def default_is_ours(self) -> bool:
        return self.is_ours(self.state.default)


def runs_by(settings: Mapping[str, Any], binary: str) -> bool:
    return bool(at(settings, ("options", "BinaryName")) == binary)


def node_of(
    dump: str, top: str | None, path: str, request: Request, imported: Mapping[str, str], defaults: str
) -> Node:
    speaks = int(read(dump).get("version", 1))
    document = _readable(top, path)
    version = int(document.get("version", 0)) if document else speaks
    if speaks >= 3 and version < 2:
        raise ValueError(
            f"{path} has no version, so it has version 1. containerd 2 ignores its settings for pods."
            f" Convert it: containerd --config {path} config migrate"
        )
    sources = [Source(path, top, document, version)]
    documents = {item: _readable(text, item) for item, text in imported.items()}
    for item in _in_read_order(path, document, documents):
        own = documents[item]
        sources.append(Source(item, imported[item], own, int(own.get("version", version))))
    _check_plugins(sources)
    implied = state_of(defaults).runtimes.get("runc", {}) if defaults else {}
    return Node(state_of(dump, path), speaks >= 3, sources, request, {"runtime_type": RUNC, **implied})


def _in_read_order(path: str, top: Table, imported: Mapping[str, Table]) -> list[str]:
    """Return the imported files in the order in which containerd reads them: breadth first, and sorted within a
    pattern.

    ``containerd config dump`` of 1.x prints them in random order. Files of a default import come last.
    """
    order: list[str] = []
    pending = _imports(path, top, imported)
    while pending:
        item = pending.pop(0)
        if item not in order:
            order.append(item)
            pending += _imports(item, imported[item], imported)
    return [*order, *sorted(set(imported).difference(order), key=_parts)]


def _imports(path: str, document: Table, imported: Mapping[str, Table]) -> list[str]:
    folder = posixpath.dirname(path)
    patterns = [posixpath.normpath(posixpath.join(folder, item)) for item in document.get("imports", [])]
    return [item for pattern in patterns for item in sorted(imported, key=_parts) if _matches(item, pattern)]


def _matches(path: str, pattern: str) -> bool:
    """Whether a path matches an import pattern, as in containerd: only a name with an asterisk is a pattern, and an
    asterisk matches no slash."""
    if "*" not in pattern:
        return path == pattern
    names, parts = _parts(path), _parts(pattern)
    return len(names) == len(parts) and all(map(fnmatchcase, names, parts))


def _parts(path: str) -> list[str]:
    return path.split("/")


def _readable(text: str | None, path: str) -> Table:
    try:
        return read(text or "")
    except ValueError as error:
        raise ValueError(f"{path} is not TOML: {error}") from error


def _check_plugins(sources: Sequence[Source]) -> None:
    names = {"cri", CRI_OF_VERSION[2], CRI_SINCE_3}
    for source in sources:
        if disabled := sorted(names & set(source.document.get("disabled_plugins", []))):
            raise ValueError(
                f"{source.path} disables the plugin {disabled[0]} (disabled_plugins), so containerd cannot run pods."
                " Remove it from the list; the kubelet needs it."
            )
