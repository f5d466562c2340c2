"""Source: the interface of every source of weights, and the source for a URL."""

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
"""Maximum bytes to read, hash and write at a time. At this size, the overhead per call no longer matters."""
MOST_FILES = 100_000
"""Maximum files of one source. No model has as many, but the listing of a bucket named by mistake would fill the
memory."""
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
    """Relative path in the folder, with ``/`` as separator."""
    locator: str
    """Identifies the file in the source."""
    size: int | None
    """Size in bytes; None: unknown."""
    digest: Digest | None = None
    version: str = ""
    """Distinguishes this content from other contents of the same locator. Empty: unknown, so that downloads are never
    resumed."""


class Listing(msgspec.Struct, frozen=True):
    revision: str
    """Name of this state of the source for people, such as a commit; may be empty."""
    entries: tuple[Entry, ...]
    name: str = ""
    """The source's name for the whole model; empty: the one in its URL."""
    tasks: tuple[str, ...] = ()
    """Tasks of the model as the source declares them."""
    features: tuple[str, ...] = ()
    licenses: tuple[str, ...] = ()

    @property
    def size(self) -> int:
        """Total size of all files with a known size."""
        return sum(entry.size or 0 for entry in self.entries)


def bounded(entries: Iterable[Entry], name: str) -> tuple[Entry, ...]:
    """Collects all entries. Raises LoadError if there are too many."""
    files = tuple(islice(entries, MOST_FILES + 1))
    if len(files) > MOST_FILES:
        raise LoadError(f"{name} has more than {MOST_FILES} files, more than the limit: name a folder in it")
    return files


class Access(msgspec.Struct, frozen=True):
    """The addresses and the identity that a source may use. The loader's caller decides about them, not a spec."""

    address_policy: AddressPolicy | None = None
    """Policy for addresses that a spec, or its Secret, names; None: all addresses are allowed."""
    node_identity: bool = False
    """Whether it may use the machine's identity if there are no other credentials. Otherwise no metadata service is
    contacted."""

    def of(self, *, chosen: bool, allowed: tuple[str, ...] = ()) -> AddressPolicy | None:
        """Returns the policy for a connection; None if all addresses are allowed. ``chosen``: whether the author of the
        spec chooses its target; ``allowed``: addresses that it needs by design."""
        policy = self.address_policy if chosen else None
        if policy is not None and allowed:
            policy = msgspec.structs.replace(policy, allowed=(*policy.allowed, *allowed))
        return policy if self.node_identity else without_metadata(policy)


class Body(Protocol):
    """The bytes of a file while they are received. ``read`` raises TransientError if the connection breaks."""

    start: int
    """Position of the first byte in the file; 0 if the source cannot start elsewhere."""
    verifiable: bool
    """False if the declared digest turns out not to apply to the bytes that are received."""

    def read(self, size: int) -> bytes:
        """Returns at most ``size`` bytes, as soon as there are some; none at the end."""


class Retry(Protocol):
    """Calls a function until it no longer raises TransientError, within limits; after that, raises LoadError."""

    def __call__(self, function: Callable[[], T], /) -> T:
        """Returns the function's result."""


class Source(Protocol):
    """A place with weights. Calls raise LoadError or TransientError, and may come from several threads at once."""

    def listing(self, retry: Retry) -> Listing:
        """Lists all current files. Each request is wrapped in ``retry``, so that only a failed page is requested
        again."""

    def read(self, entry: Entry, start: int) -> AbstractContextManager[Body]:
        """Opens a file from ``start`` on."""


def open_source(url: str, env: Mapping[str, str], access: Access | None = None) -> Source:
    """Opens the source of a URL, with the credentials of ``env``. Raises LoadError for an invalid URL.

    ``access``: by default all addresses are allowed, but not the machine's identity.
    """
    match = URL.fullmatch(url)
    if match is None or match["scheme"] not in SCHEMES:
        schemes = ", ".join(f"{scheme}://" for scheme in SCHEMES)
        raise LoadError(f"cannot load from {redact_url(url)!r}: the address must begin with one of {schemes}")
    module = import_module(f"slipway.loader.sources.{SCHEMES[match['scheme']]}")
    opener: Callable[[str, Mapping[str, str], Access], Source] = module.open_source
    return opener(url, env, access or Access())
