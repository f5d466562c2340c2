"""Catalogs of models that other clusters share: the part of the wire format that Slipway reads, and the state of each
catalog. Pure.

``GET <url>/v1/catalog`` returns a :class:`Document`. ``POST <url>/v1/grants`` takes a :class:`GrantRequest` and returns
a :class:`Grant`, which gives access to one repository of the other cluster's registry for a few minutes. Unknown fields
are ignored. The documentation describes both endpoints for other implementations.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

import msgspec

from slipway.decoding import DecodingError, decode_json

VERSION: Literal["catalog.slipway.inference/v1"] = "catalog.slipway.inference/v1"
"""Version of the wire format."""
CATALOG, GRANTS = "/v1/catalog", "/v1/grants"
"""Paths of the catalog and of grants, relative to a catalog's URL."""
IMPORTS = "/v1/imports"
"""Path prefix on the depot. Below this path, a publisher requests the grant for the model that it imports, at
``/<namespace>/<name>/<uid>``. ``-`` stands for the namespace of a cluster-scoped model."""
CATALOG_BYTES = 8 << 20
ENTRIES = 10_000
GRANT_BYTES = 64 << 10

_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
Name = Annotated[str, msgspec.Meta(max_length=253, pattern=rf"\A{_LABEL}(\.{_LABEL})*\Z")]
Version = Annotated[str, msgspec.Meta(max_length=128)]
Digest = Annotated[str, msgspec.Meta(pattern=r"\Asha256:[0-9a-f]{64}\Z")]
Revision = Annotated[str, msgspec.Meta(min_length=1, max_length=128, pattern=r"\A[\x21\x23-\x7e]+\Z")]
Registry = Annotated[
    str, msgspec.Meta(max_length=259, pattern=r"\A([A-Za-z0-9.-]+|\[[0-9A-Fa-f:.]+\])(:[0-9]{1,5})?\Z")
]
Repository = Annotated[str, msgspec.Meta(max_length=255, pattern=r"\A[a-z0-9]+([._/-]+[a-z0-9]+)*\Z")]
Token = Annotated[str, msgspec.Meta(min_length=1, max_length=16384, pattern=r"\A[\x21-\x7e]+\Z")]


class Entry(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One version of a model in a catalog."""

    name: Name
    version: Version = ""
    """Version of the model. The value is empty if the model has no versions."""
    active: bool = True
    """Whether new imports may use the entry."""
    digest: Digest
    """Digest of the manifest in the other cluster's registry."""
    media_type: Annotated[str, msgspec.Meta(max_length=128)] = ""
    size: Annotated[int, msgspec.Meta(ge=1)]
    """Total size in bytes of everything that the manifest describes."""


class Document(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A catalog in the wire format."""

    api_version: Literal["catalog.slipway.inference/v1"]
    revision: Revision
    """Revision of the catalog, which changes whenever an entry changes. Equal to the response's ETag without quotes."""
    entries: Annotated[tuple[Entry, ...], msgspec.Meta(max_length=ENTRIES)]


class GrantRequest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The catalog entry for which a publisher requests a grant."""

    name: Name
    version: Version = ""
    digest: Digest


class Grant(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The location of an entry's content, and credentials that are valid for a few minutes. A grant is secret."""

    api_version: Literal["catalog.slipway.inference/v1"]
    registry: Registry
    """Registry as ``HOST[:PORT]``. Clients always use TLS."""
    repository: Repository
    digest: Digest
    token: Token
    """Token for the header ``Authorization: Bearer`` at the registry."""
    expires_at: Annotated[str, msgspec.Meta(max_length=64)]
    """Time at which the token expires, in RFC 3339 format."""


class Import(Grant, frozen=True, kw_only=True, rename="camel"):
    """A grant as the depot returns it to a publisher."""

    ca: str = ""
    """PEM of the certificate authority that signed the registry's certificate. Empty means a public one."""


class CatalogAddress(msgspec.Struct, frozen=True, kw_only=True):
    """A catalog that the controller reads at intervals for a resource."""

    url: str
    """URL without a trailing slash."""
    credentials: str
    """Name of a Secret in the controller's namespace with ``token``, or with ``username`` and ``password``."""
    authority: str = ""
    """Name of a Secret in the same namespace with ``ca.crt``. Empty means the public certificate authorities."""
    refresh_seconds: float


class Catalog(msgspec.Struct, frozen=True, kw_only=True):
    """The state of one catalog after at least one request."""

    address: CatalogAddress
    revision: str = ""
    entries: tuple[Entry, ...] = ()
    refreshed: float | None = None
    """Unix time of the last valid response, or None if there was none."""
    fault: str = ""
    """Why the last request failed, as a condition's reason. The value is empty if it succeeded."""
    message: str = ""
    passing: bool = False
    """Whether the fault may resolve itself. In this case, the last valid content remains in use."""

    @property
    def ready(self) -> bool:
        """Whether models may be selected from the catalog."""
        return self.refreshed is not None and (not self.fault or self.passing)

    @property
    def active(self) -> Sequence[Entry]:
        """The entries that new imports may use."""
        return [entry for entry in self.entries if entry.active]


class UndecidedError(Exception):
    """No catalog or entry can be selected. The message contains the reason and the fix."""

    def __init__(self, message: str, *, passing: bool) -> None:
        super().__init__(message)
        self.message = message
        self.passing = passing
        """Whether the problem may resolve once a catalog is added, removed or read. Otherwise a person must change the
        spec."""


def choose_catalog(catalogs: Mapping[str, Catalog | None], source: str | None) -> str:
    """Return the name of the catalog to select from: ``source``, or the only ready catalog if ``source`` is None.

    The candidates are ``source``, or all catalogs if ``source`` is None. A catalog is None until it has been read.
    Raise UndecidedError while a candidate is None, because it may become ready, and unless exactly one candidate is
    ready.
    """
    candidates = catalogs if source is None else {source: catalogs[source]} if source in catalogs else {}
    unread = next((name for name, catalog in candidates.items() if catalog is None), None)
    if unread is not None:
        raise UndecidedError(f"The catalog {unread} has not been read yet.", passing=True)
    ready = sorted(name for name, catalog in candidates.items() if catalog is not None and catalog.ready)
    if len(ready) == 1:
        return ready[0]
    if ready:
        raise UndecidedError(f"Several catalogs are ready: set sourceName to one of {', '.join(ready)}.", passing=True)
    if source is None:
        raise UndecidedError("No catalog is ready.", passing=True)
    unready = candidates.get(source)
    text = f"The catalog {source} is not ready: {unready.message}" if unready else f"There is no catalog {source}."
    raise UndecidedError(text, passing=True)


def choose_entry(catalog: Catalog, place: str, name: str, version: str | None) -> Entry:
    """Return the active entry with this name and version. If ``version`` is None, the catalog must have exactly one
    active version of the model.

    ``place`` is the catalog's name for messages. Raise UndecidedError unless exactly one entry matches.
    """
    there = [entry for entry in catalog.active if entry.name == name]
    matches = [entry for entry in there if version in (None, entry.version)]
    if len(matches) == 1:
        return matches[0]
    versions = ", ".join(sorted(entry.version or '""' for entry in there))
    if matches:
        text = f"The catalog {place} has {name} in several versions: set version to one of {versions}."
    elif there:
        text = f"The catalog {place} has no version {version} of {name}: set version to one of {versions}."
    else:
        text = f"The catalog {place} has no active model {name}."
    raise UndecidedError(text, passing=False)


def read_catalog(body: bytes | bytearray) -> Document:
    """Parse a catalog. Raise DecodingError if it is invalid or contains a version of a model twice."""
    document = decode_json(body, Document, most=CATALOG_BYTES)
    versions: set[tuple[str, str]] = set()
    for entry in document.entries:
        if (entry.name, entry.version) in versions:
            raise DecodingError(f"it has {entry.name} in version {entry.version or 'none'} more than once")
        versions.add((entry.name, entry.version))
    return document


def read_grant(body: bytes | bytearray, request: GrantRequest) -> Grant:
    """Parse a grant. Raise DecodingError if it is invalid or is for another digest than that of ``request``."""
    grant = decode_json(body, Grant, most=GRANT_BYTES)
    if grant.digest != request.digest:
        raise DecodingError("it is for a different digest than requested")
    return grant
