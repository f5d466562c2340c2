"""Source: what every place that weights come from offers, and which place a URL names."""

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
"""Bytes that are read, hashed and written at a time, at most: past the size where the work per call counts."""
MOST_FILES = 100_000
"""Of one source. No model has as many; the listing of a bucket that was named by mistake would fill the memory."""
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
"""Scheme -> module of ``slipway.loader.sources``, which has ``open_source(url, env, access)``. Only one is imported."""


class Entry(msgspec.Struct, frozen=True):
    """One file of a source."""

    path: str
    """Where it goes in the folder: relative, ``/`` between its parts."""
    locator: str
    """By what the source finds it."""
    size: int | None
    """None: the source does not say."""
    digest: Digest | None = None
    version: str = ""
    """Tells this content from any other that the locator may stand for. Empty: unknown, so it is never resumed."""


class Listing(msgspec.Struct, frozen=True):
    revision: str
    """What a person knows this state of the source by, such as a commit; may be empty."""
    entries: tuple[Entry, ...]
    name: str = ""
    """What the source calls all of it; empty: as its address does."""
    tasks: tuple[str, ...] = ()
    """That the source declares the model to be for, in its own words."""
    features: tuple[str, ...] = ()
    licenses: tuple[str, ...] = ()

    @property
    def size(self) -> int:
        """Bytes of all files with a known size."""
        return sum(entry.size or 0 for entry in self.entries)


def bounded(entries: Iterable[Entry], name: str) -> tuple[Entry, ...]:
    """Returns all entries, read one after another. Raises LoadError if there are too many."""
    files = tuple(islice(entries, MOST_FILES + 1))
    if len(files) > MOST_FILES:
        raise LoadError(f"{name} has more than {MOST_FILES} files, more than the limit: name a folder in it")
    return files


class Access(msgspec.Struct, frozen=True):
    """The addresses and the identity that a source may use. The caller of the loader decides, not a spec."""

    address_policy: AddressPolicy | None = None
    """Of the addresses that a spec, or a Secret beside it, names; None: they are asked wherever they are."""
    node_identity: bool = False
    """Whether it may ask as the machine it runs on, where nobody else is named. Else no metadata service is asked."""

    def of(self, *, chosen: bool, allowed: tuple[str, ...] = ()) -> AddressPolicy | None:
        """The policy of a connection. ``chosen``: whoever wrote the spec says where it leads; ``allowed``: places where
        it leads by design."""
        given = self.address_policy if chosen else None
        if given is not None and allowed:
            given = msgspec.structs.replace(given, allowed=(*given.allowed, *allowed))
        return given if self.node_identity else without_metadata(given)


class Body(Protocol):
    """Bytes on their way. ``read`` raises TransientError when they stop coming."""

    start: int
    """Position in the file of the first byte; 0 when the source cannot start elsewhere."""
    verifiable: bool
    """False where the digest that was promised turns out to be of something else than these bytes."""

    def read(self, size: int) -> bytes:
        """Returns at most ``size`` bytes, as soon as there are some; none at the end."""


class Retry(Protocol):
    """Calls a function until it does not raise TransientError, within limits; then LoadError is raised."""

    def __call__(self, function: Callable[[], T], /) -> T:
        """Returns the function's last result."""


class Source(Protocol):
    """Calls raise LoadError or TransientError and may come from several threads at once."""

    def listing(self, retry: Retry) -> Listing:
        """Lists all files as they are now. Each request is wrapped in ``retry``: a page that fails affects no other
        one."""

    def read(self, entry: Entry, start: int) -> AbstractContextManager[Body]:
        """The bytes of a file from ``start`` on."""


def open_source(url: str, env: Mapping[str, str], access: Access | None = None) -> Source:
    """Opens the source of a URL, with the credentials of ``env``. Raises LoadError for an invalid URL.

    ``access``: by default any address is asked, and none as the machine."""
    match = URL.fullmatch(url)
    if match is None or match["scheme"] not in SCHEMES:
        schemes = ", ".join(f"{scheme}://" for scheme in SCHEMES)
        raise LoadError(f"cannot load from {redact_url(url)!r}: the address must begin with one of {schemes}")
    module = import_module(f"slipway.loader.sources.{SCHEMES[match['scheme']]}")
    opener: Callable[[str, Mapping[str, str], Access], Source] = module.open_source
    return opener(url, env, access or Access())
