"""The agent's plan: the next actions, derived from the desired adapters and the state of the disk and the engine. Pure.

The agent makes a new plan after each observation. A plan does not contain actions that depend on other actions in it.
For example, a plan removes an adapter's files only after the engine has unloaded the adapter. Running downloads are not
part of the input, so the agent skips all actions for their versions.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec

from slipway.serving.wire.agent import Adapter


class Version(NamedTuple):
    """One version of an adapter: its name, and the SHA-256 of its URL. Its directory is ``name/digest``."""

    name: str
    digest: str


class Fetch(msgspec.Struct, frozen=True):
    adapter: Adapter

    @property
    def version(self) -> Version:
        """The version that the adapter's URL identifies."""
        return Version(self.adapter.name, self.adapter.digest)


class Load(msgspec.Struct, frozen=True):
    version: Version
    swap: bool = False
    """Whether the engine has another version of the adapter loaded, which the new version replaces."""


class Unload(msgspec.Struct, frozen=True):
    version: Version


class Remove(msgspec.Struct, frozen=True):
    """The removal of a version from the disk."""

    version: Version


Action = Fetch | Load | Unload | Remove


def plan(
    adapters: Sequence[Adapter],
    complete: Collection[Version],
    partial: Collection[Version],
    engine: Mapping[str, str] | None,
) -> list[Action]:
    """Return the next actions for the desired ``adapters``.

    ``complete`` and ``partial`` are the versions on the disk. ``engine`` maps the name of each adapter that the engine
    has loaded from one of these versions to its digest; None: the engine is not running, or has not responded yet.
    """
    desired = {Version(adapter.name, adapter.digest): adapter for adapter in adapters}
    actions: list[Action] = [Fetch(adapter) for version, adapter in desired.items() if version not in complete]
    stand_ins: set[Version] = set()
    if engine is not None:
        for version, adapter in desired.items():
            load = _load(version, adapter, complete, engine.get(version.name))
            if load:
                actions.append(load)
                stand_ins.add(load.version)
        names = {version.name for version in desired}
        actions += [Unload(Version(name, digest)) for name, digest in engine.items() if name not in names]
    actions += _removals(desired, complete, partial, stand_ins, engine)
    return actions


def _load(version: Version, adapter: Adapter, complete: Collection[Version], loaded: str | None) -> Load | None:
    if loaded == version.digest:
        return None
    if loaded is not None:
        return Load(version, swap=True) if adapter.replace and version in complete else None
    if version in complete:
        return Load(version)
    # A restarted engine serves its previous version until the next one is complete.
    return next((Load(other) for other in sorted(complete) if other.name == version.name), None)


def _removals(
    desired: Collection[Version],
    complete: Collection[Version],
    partial: Collection[Version],
    stand_ins: Collection[Version],
    engine: Mapping[str, str] | None,
) -> Iterator[Remove]:
    yield from (Remove(version) for version in sorted(partial) if version not in desired)
    if engine is None:
        return  # the engine's loaded versions are unknown
    for version in sorted(complete):
        if version not in desired and version not in stand_ins and engine.get(version.name) != version.digest:
            yield Remove(version)
