"""The protocol between the controller and the loader.

The loader runs next to an engine, or alone in a Job that fills a cache. It serves HTTP on :data:`PORT` and rejects all
clients except the controller (see :mod:`slipway.serving.wire.proof`).

``GET /v1/state`` returns an :class:`AgentReport`. ``PUT /v1/adapters`` takes the complete list of desired
:class:`Adapter` objects and also returns the report; loading continues after the response. ``GET /healthz`` is for the
kubelet and needs no proof.
"""

from __future__ import annotations

import hashlib
import re
from typing import Literal

import msgspec

PORT = 8001
CONTAINER = "loader"
CONTROLLER_KEY = re.compile(r"[A-Za-z0-9_-]{43}")
"""Pattern of the controller's public key as text: base64url without padding."""
CONTROLLER_KEY_VARIABLE = "SLIPWAY_CONTROLLER_KEY"
"""Environment variable of a loader's container with the controller's public key, which is not a secret."""
LONGEST_RESUME = 2048
"""Maximum length, in characters, of the state with which the next loader resumes a publication."""
POD_UID_VARIABLE = "SLIPWAY_POD_UID"
"""Environment variable of a loader's container with its pod's UID. The controller's signature covers this UID."""
SERVING_LABEL = "adapter.slipway.inference/"
"""Prefix of the pod label for each adapter that the pod serves. The value is ``SERVING`` for every version of the
adapter.

Services select by this label, so pods can switch to another version one by one while all of them serve the adapter.
"""
SERVING = "true"
IN_PLACE = "file://"
"""Prefix of the URL of an adapter that is already in the engine's container, followed by the adapter's path there."""
Phase = Literal["Fetching", "Fetched", "Loaded", "Failed"]
ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
"""Alphabet of Kubernetes for random names. Names from these characters contain no words."""


def version(url: str) -> str:
    """Return the ID of an adapter's version: the SHA-256 of its URL, in hexadecimal digits.

    The controller and the loader both compute the ID, so one URL cannot pass as another.
    """
    return hashlib.sha256(url.encode()).hexdigest()


def label(url: str) -> str:
    """Return the label value for an adapter's version: the 32-bit FNV-1a hash of its URL, as in the original system. A
    character of :data:`ALPHABET` stands for each decimal digit.

    Collisions are easy to construct, so the value identifies nothing. It is for users and dashboards.
    """
    value = 0x811C9DC5
    for byte in url.encode():
        value = ((value ^ byte) * 0x01000193) & 0xFFFFFFFF
    return "".join(ALPHABET[ord(digit) % len(ALPHABET)] for digit in str(value))


class Adapter(msgspec.Struct, frozen=True, rename="camel"):
    """A LoRA adapter that an engine should have loaded."""

    name: str
    """Name of the adapter in the engine, which is the model ID in requests: ``model_adapter``."""
    url: str
    replace: bool = True
    """Whether the loader may now unload another version with this name. If not, it only downloads this version."""

    @property
    def digest(self) -> str:
        """ID of this version: the digest of the URL."""
        return version(self.url)


class AdapterSet(msgspec.Struct, frozen=True, kw_only=True):
    """The adapters that every ready pod of a resource should have loaded, and the pod labels that show them."""

    adapters: tuple[Adapter, ...] = ()
    prefix: str = ""
    """Prefix of the adapters' names in the engine. The rest of such a name is the adapter's own name, which the labels
    contain."""
    label: str = ""
    """Prefix of the name of a second label for each adapter. The label's value is the version (see :func:`label`).
    Empty means no such label."""
    container: str = ""
    """Name of the engine's container. A pod serves adapters only once this container has started."""

    def short_name(self, adapter: Adapter) -> str:
        """Return the adapter's own name, without ``prefix``."""
        return adapter.name.removeprefix(self.prefix)


class AdapterState(msgspec.Struct, frozen=True, rename="camel"):
    """The state of an adapter in one pod. Its phase stays ``Fetched`` while the engine is not reachable, or until the
    adapter may replace the loaded version."""

    name: str
    digest: str
    """Digest of the version that ``phase`` describes."""
    phase: Phase
    message: str = ""
    loaded: str = ""
    """Digest of the version that the engine serves. The value is empty if the engine serves none."""
    loaded_label: str = ""
    """Label value of the version in ``loaded`` (see :func:`label`). The value is empty if the loader does not know the
    version's URL."""


class Progress(msgspec.Struct, frozen=True, rename="camel"):
    """The progress of a download or a publication. ``total_bytes`` is 0 while the size is unknown."""

    done_bytes: int = 0
    total_bytes: int = 0
    message: str = ""


class AgentReport(msgspec.Struct, frozen=True, rename="camel"):
    """The state of a loader, which its HTTP endpoints return."""

    adapters: tuple[AdapterState, ...] = ()
    progress: Progress | None = None
    """Progress of the current downloads or the publication. The value is None if there is none."""
    resume: str = ""
    """State with which the next loader can resume a publication if this loader ends. At most :data:`LONGEST_RESUME`
    characters."""
