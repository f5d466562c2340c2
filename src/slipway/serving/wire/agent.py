"""Agent: the protocol between controller and loader. The loader runs beside an engine, or alone in a Job that fills a
cache. It serves HTTP on :data:`PORT`, and rejects all clients but the controller (see
:mod:`slipway.serving.wire.proof`).

``GET /v1/state`` returns an :class:`AgentReport`. ``PUT /v1/adapters`` takes a list of :class:`Adapter`, all desired
ones, and returns the report as well: the work continues after the response. ``GET /healthz`` is for the kubelet,
without a proof.
"""

from __future__ import annotations

import hashlib
import re
from typing import Literal

import msgspec

PORT = 8001
CONTAINER = "loader"
CONTROLLER_KEY = re.compile(r"[A-Za-z0-9_-]{43}")
"""The controller's public key as text: base64url without padding."""
CONTROLLER_KEY_VARIABLE = "SLIPWAY_CONTROLLER_KEY"
"""Variable of a loader's container: the controller's public key, which is no secret."""
LONGEST_RESUME = 2048
"""Characters of what the next loader needs to know of a publication."""
POD_UID_VARIABLE = "SLIPWAY_POD_UID"
"""Variable of a loader's container: its pod's uid, for which the controller signs its requests."""
SERVING_LABEL = "adapter.slipway.inference/"
"""Prefix of the label that a pod has for each adapter that it serves, with the value ``SERVING`` whatever the version:
Services select by it, so that pods can go over to another version one after another while all of them serve."""
SERVING = "true"
IN_PLACE = "file://"
"""How the url of an adapter begins that lies in the engine's container already, and what follows is its path there."""
Phase = Literal["Fetching", "Fetched", "Loaded", "Failed"]
ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
"""Kubernetes' own, for words that spell nothing."""


def version(url: str) -> str:
    """Identifies a version of an adapter: the SHA-256 of its URL, in hexadecimal digits. Each side computes it itself,
    so that one URL cannot pass as another."""
    return hashlib.sha256(url.encode()).hexdigest()


def label(url: str) -> str:
    """Returns the value of a pod's label for an adapter, as in the original: FNV-1a of 32 bits. It is easy to find
    another URL with the same value, so it identifies nothing; it is for users and dashboards."""
    value = 0x811C9DC5
    for byte in url.encode():
        value = ((value ^ byte) * 0x01000193) & 0xFFFFFFFF
    return "".join(ALPHABET[ord(digit) % len(ALPHABET)] for digit in str(value))


class Adapter(msgspec.Struct, frozen=True, rename="camel"):
    """A LoRA adapter that an engine should have loaded."""

    name: str
    """Its name at the engine, which is the model id of requests: ``model_adapter``."""
    url: str
    replace: bool = True
    """Whether another version under this name may be taken out for it now; else it is only fetched."""

    @property
    def digest(self) -> str:
        """Of the URL. Distinguishes two versions with the same name."""
        return version(self.url)


class AdapterSet(msgspec.Struct, frozen=True, kw_only=True):
    """The adapters that every ready pod of a resource should have loaded, and how its labels show them."""

    adapters: tuple[Adapter, ...] = ()
    prefix: str = ""
    """What their names at the engine begin with. The rest is the adapter's own name, which labels have."""
    label: str = ""
    """Prefix of a second label for each, whose value tells the version (see :func:`label`); empty: there is none."""
    container: str = ""
    """The engine's: a pod serves adapters once it has started."""

    def short_name(self, adapter: Adapter) -> str:
        """The adapter's own name."""
        return adapter.name.removeprefix(self.prefix)


class AdapterState(msgspec.Struct, frozen=True, rename="camel"):
    """How far an adapter is. ``Fetched`` waits for ``replace``."""

    name: str
    digest: str
    """Of the version that ``phase`` speaks of."""
    phase: Phase
    message: str = ""
    loaded: str = ""
    """Digest of the version that the engine answers with now; empty: none."""
    loaded_label: str = ""
    """The same version as the pod's label says it; empty where the loader does not know it."""


class Progress(msgspec.Struct, frozen=True, rename="camel"):
    """The progress of a download. ``total_bytes`` is 0 while it is unknown."""

    done_bytes: int = 0
    total_bytes: int = 0
    message: str = ""


class AgentReport(msgspec.Struct, frozen=True, rename="camel"):
    """A loader's report."""

    adapters: tuple[AdapterState, ...] = ()
    progress: Progress | None = None
    resume: str = ""
    """Where a publication is, for the loader that goes on should this one end; at most :data:`LONGEST_RESUME`."""
