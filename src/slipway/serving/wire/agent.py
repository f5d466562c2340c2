"""Agent: the protocol between controller and loader. The loader runs beside an engine, or alone in a Job that fills a
cache. It serves HTTP on :data:`PORT`, and rejects all clients but the controller (see
:mod:`slipway.serving.wire.proof`).

``GET /v1/state`` returns an :class:`AgentReport`. ``PUT /v1/adapters`` takes the complete list of desired
:class:`Adapter`, and also returns the report; loading continues after the response. ``GET /healthz`` is for the
kubelet, without a proof.
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
"""Variable of a loader's container with the controller's public key, which is not a secret."""
LONGEST_RESUME = 2048
"""Maximum length of the state that the next loader needs to resume a publication, in characters."""
POD_UID_VARIABLE = "SLIPWAY_POD_UID"
"""Variable of a loader's container with its pod's uid, for which the controller signs its requests."""
SERVING_LABEL = "adapter.slipway.inference/"
"""Prefix of the label that a pod has for each adapter that it serves, with the value ``SERVING`` for every version:
Services select by it, so that pods can switch to another version one by one while all of them serve."""
SERVING = "true"
IN_PLACE = "file://"
"""Prefix of the URL of an adapter that is already in the engine's container, followed by its path there."""
Phase = Literal["Fetching", "Fetched", "Loaded", "Failed"]
ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
"""Kubernetes' alphabet for random names, which cannot form words."""


def version(url: str) -> str:
    """Returns the ID of an adapter's version: the SHA-256 of its URL, in hexadecimal digits. Each side computes it
    itself, so one URL cannot pass as another."""
    return hashlib.sha256(url.encode()).hexdigest()


def label(url: str) -> str:
    """Returns the label value for an adapter, as in the original system: the 32-bit FNV-1a hash. Collisions are easy to
    construct, so it identifies nothing; it is for users and dashboards."""
    value = 0x811C9DC5
    for byte in url.encode():
        value = ((value ^ byte) * 0x01000193) & 0xFFFFFFFF
    return "".join(ALPHABET[ord(digit) % len(ALPHABET)] for digit in str(value))


class Adapter(msgspec.Struct, frozen=True, rename="camel"):
    """A LoRA adapter that an engine should have loaded."""

    name: str
    """Its name in the engine, which is the model ID of requests: ``model_adapter``."""
    url: str
    replace: bool = True
    """Whether another version of this name may be unloaded for it now; otherwise it is only downloaded."""

    @property
    def digest(self) -> str:
        """Digest of the URL, which distinguishes two versions with the same name."""
        return version(self.url)


class AdapterSet(msgspec.Struct, frozen=True, kw_only=True):
    """The adapters that every ready pod of a resource should have loaded, and how its labels show them."""

    adapters: tuple[Adapter, ...] = ()
    prefix: str = ""
    """Prefix of the adapters' names in the engine. The rest is the adapter's own name, which the labels contain."""
    label: str = ""
    """Prefix of a second label for each adapter, whose value shows the version (see :func:`label`); empty: no such
    label."""
    container: str = ""
    """Name of the engine's container: a pod serves adapters once it has started."""

    def short_name(self, adapter: Adapter) -> str:
        """Returns the adapter's own name."""
        return adapter.name.removeprefix(self.prefix)


class AdapterState(msgspec.Struct, frozen=True, rename="camel"):
    """The state of an adapter. It stays ``Fetched`` until it may ``replace`` the loaded version."""

    name: str
    digest: str
    """Digest of the version that ``phase`` describes."""
    phase: Phase
    message: str = ""
    loaded: str = ""
    """Digest of the version that the engine currently serves; empty: none."""
    loaded_label: str = ""
    """The version in ``loaded`` as the value of the pod's label; empty if the loader does not know it."""


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
    """State of a publication, with which the next loader can resume if this one ends; at most
    :data:`LONGEST_RESUME`."""
