"""The interface of every source of weights, and the function that opens the source of a URL."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from importlib import import_module
from itertools import islice
from typing import Protocol, TypeVar

import msgspec

from slipway.artifacts.locations.address_policy import AddressPolicy, without_metadata
from slipway.artifacts.locations.redaction import redact_url
from slipway.loader.transport.digests import Digest
from slipway.loader.transport.errors import LoadError

CHUNK = 1 << 20
"""Maximum number of bytes to read, hash and write at a time. At this size, the overhead per call no longer matters."""
MOST_FILES = 100_000
"""Maximum number of files of one source. No model has as many, but the listing of a bucket named by mistake would fill
the memory."""
T = TypeVar("T")
URL = re.compile(r"(?P<scheme>[a-z0-9]+)://(?P<rest>\S+)")
SCHEMES = {
    "hf": "huggingface",
    "s3": "buckets",
    "oss": "buckets",
    "gs": "google",
    "http": "web",
    "https": "web",
    "registry": "registry",
    "ollama": "ollama",
    "catalog": "catalog",
}
"""Scheme -> module in ``slipway.loader.sources`` with ``open_source(url, env, access)``. Only the required module is
imported."""


class Entry(msgspec.Struct, frozen=True):
    """One file of a source."""

    path: str
    """Path relative to the target directory, with ``/`` as separator."""
    locator: str
    """Text by which the source finds the file, such as a URL or a key."""
    size: int | None
    """Size in bytes; None: unknown."""
    digest: Digest | None = None
    """Digest of the content; None: the source declares none."""
    version: str = ""
    """Text that changes with the content of the file, such as an ETag; empty: unknown, so a download cannot be
    resumed."""


class Listing(msgspec.Struct, frozen=True):
    revision: str
    """Name of the source's current state, such as a commit; empty: the source has none."""
    entries: tuple[Entry, ...]
    name: str = ""
    """Name that the source gives the model; empty: the name in the source's URL."""
    tasks: tuple[str, ...] = ()
    """Tasks of the model as the source declares them."""
    features: tuple[str, ...] = ()
    licenses: tuple[str, ...] = ()

    @property
    def size(self) -> int:
        """Total size in bytes of all files whose size is known."""
        return sum(entry.size or 0 for entry in self.entries)


def bounded(entries: Iterable[Entry], name: str) -> tuple[Entry, ...]:
    """Collect all entries of a listing. Raise LoadError if there are more than ``MOST_FILES``. ``name`` identifies the
    source in the message."""
    files = tuple(islice(entries, MOST_FILES + 1))
    if len(files) > MOST_FILES:
        raise LoadError(f"{name} has more than {MOST_FILES} files, more than the limit: name a folder in it")
    return files


class Access(msgspec.Struct, frozen=True):
    """The addresses and the identity that a source may use. The options of the loader's command decide this, not a
    spec."""

    address_policy: AddressPolicy | None = None
    """Policy for addresses that a spec or its Secret names; None: all addresses are allowed. In both cases, metadata
    services are blocked unless ``node_identity`` is True."""
    node_identity: bool = False
    """Whether the source may use the machine's identity if there are no other credentials. If not, no metadata service
    is contacted."""

    def of(self, *, chosen: bool, allowed: tuple[str, ...] = ()) -> AddressPolicy | None:
        """Return the address policy for a connection, or None if all addresses are allowed. ``chosen``: whether the
        author of the spec chooses the connection's target, so ``address_policy`` applies. ``allowed``: addresses that
        the connection needs by design. Without ``node_identity``, the result blocks metadata services."""
        policy = self.address_policy if chosen else None
        if policy is not None and allowed:
            policy = msgspec.structs.replace(policy, allowed=(*policy.allowed, *allowed))
        return policy if self.node_identity else without_metadata(policy)


class Body(Protocol):
    """The bytes of a file while they are received. ``read`` raises TransientError if the connection breaks."""

    start: int
    """Offset of the body's first byte in the file; 0 if the source cannot start at another offset."""
    verifiable: bool
    """Whether the declared digest applies to the bytes of this body."""

    def read(self, size: int) -> bytes:
        """Return the next bytes, at most ``size``, as soon as there are some. An empty result means that the body has
        ended."""


class Retry(Protocol):
    """A function that repeats a call until it no longer raises TransientError. After the last permitted attempt, it
    raises LoadError, and if the load is stopped, StoppedError."""

    def __call__(self, function: Callable[[], T], /) -> T:
        """Return the result of ``function``, which may be called several times."""


class Source(Protocol):
    """A location with weights, such as a bucket or a repository. Its methods raise LoadError or TransientError, and
    several threads may call them at once."""

    def listing(self, retry: Retry) -> Listing:
        """List all current files. Each request is wrapped in ``retry``, so that only a failed page is requested
        again."""

    def read(self, entry: Entry, start: int) -> AbstractContextManager[Body]:
        """Open a file at offset ``start``, or at 0 if the source cannot start there: see ``Body.start``."""


def open_source(url: str, env: Mapping[str, str], access: Access | None = None) -> Source:
    """Return the source of a URL, with the credentials in ``env``. Raise LoadError for an invalid URL.

    The default ``access`` allows all addresses except metadata services, and does not allow the machine's identity.
    """
    match = URL.fullmatch(url)
    if match is None or match["scheme"] not in SCHEMES:
        schemes = ", ".join(f"{scheme}://" for scheme in SCHEMES)
        raise LoadError(f"cannot load from {redact_url(url)!r}: the address must begin with one of {schemes}")
    module = import_module(f"slipway.loader.sources.{SCHEMES[match['scheme']]}")
    opener: Callable[[str, Mapping[str, str], Access], Source] = module.open_source
    return opener(url, env, access or Access())
