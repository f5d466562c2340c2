"""What to do next about an engine's adapters: wish, disk and engine in, actions out. Pure.

A plan is made of each new look at the world, so it holds only what may be done at once: files are removed by the plan
that is made when the engine has let go of them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from slipway.serving.agent import Adapter


class Version(NamedTuple):
    """An adapter's name and the SHA-256 of its url: a folder ``name/digest``."""

    name: str
    digest: str


@dataclass(frozen=True)
class Fetch:
    adapter: Adapter

    @property
    def version(self) -> Version:
        return Version(self.adapter.name, self.adapter.digest)


@dataclass(frozen=True)
class Load:
    version: Version
    swap: bool = False
    """Whether the engine has another version of it now."""


@dataclass(frozen=True)
class Unload:
    version: Version


@dataclass(frozen=True)
class Remove:
    """From the disk."""

    version: Version


Action = Fetch | Load | Unload | Remove


def plan(
    wish: Sequence[Adapter],
    complete: Collection[Version],
    partial: Collection[Version],
    engine: Mapping[str, str] | None,
) -> list[Action]:
    """``complete`` and ``partial`` are the versions on the disk; ``engine`` maps the adapters that it has from there to
    their digests, and is None while it cannot be asked.
    """
    wished = {Version(adapter.name, adapter.digest): adapter for adapter in wish}
    actions: list[Action] = [Fetch(adapter) for version, adapter in wished.items() if version not in complete]
    stand_ins: set[Version] = set()
    if engine is not None:
        for version, adapter in wished.items():
            load = _load(version, adapter, complete, engine.get(version.name))
            if load:
                actions.append(load)
                stand_ins.add(load.version)
        names = {version.name for version in wished}
        actions += [Unload(Version(name, digest)) for name, digest in engine.items() if name not in names]
    actions += _removals(wished, complete, partial, stand_ins, engine)
    return actions


def _load(version: Version, adapter: Adapter, complete: Collection[Version], loaded: str | None) -> Load | None:
    if loaded == version.digest:
        return None
    if loaded is not None:
        return Load(version, swap=True) if adapter.replace and version in complete else None
    if version in complete:
        return Load(version)
    # A restarted engine answers with the version that it had, until the next one is there.
    return next((Load(other) for other in sorted(complete) if other.name == version.name), None)


def _removals(
    wished: Collection[Version],
    complete: Collection[Version],
    partial: Collection[Version],
    stand_ins: Collection[Version],
    engine: Mapping[str, str] | None,
) -> Iterator[Remove]:
    yield from (Remove(version) for version in sorted(partial) if version not in wished)
    if engine is None:
        return  # what it has loaded is not known
    for version in sorted(complete):
        if version not in wished and version not in stand_ins and engine.get(version.name) != version.digest:
            yield Remove(version)
