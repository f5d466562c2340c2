"""An artifact in an OCI registry: ``registry://HOST[:PORT]/REPOSITORY@sha256:...``, a model in ModelPack format.

The digest in the URL verifies the manifest, and the manifest verifies every layer. A tar layer is first read
completely, to verify it and to compute the hash of each file in it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from slipway.artifacts.documents import modelpack
from slipway.artifacts.documents.modelpack import Layer
from slipway.artifacts.locations import references
from slipway.artifacts.locations.references import Reference
from slipway.decoding import DecodingError
from slipway.loader.sources.archives import ArchiveError, Forward, tar_members
from slipway.loader.transport.digests import Digest, Kind
from slipway.loader.transport.errors import LoadError, TransientError
from slipway.loader.transport.registry import Registry
from slipway.loader.transport.selection import FaultError
from slipway.loader.transport.source import CHUNK, Access, Body, Entry, Listing, Retry, Source

LONGEST_NAME = 256
LARGEST_TAR = 1 << 30
"""Maximum size in bytes of a layer that is a tar archive of small files. The tar archives that Slipway publishes have a
few MB."""


class Artifact:
    """The source of the files in an artifact's layers."""

    def __init__(self, registry: Registry, layers: Sequence[Layer] = (), digest: str = "") -> None:
        """Use ``layers`` or, if it is empty, let ``listing`` read the layers from the manifest with this ``digest``."""
        self._registry, self._layers, self._digest = registry, layers, digest

    @staticmethod
    def entry(layer: Layer) -> Entry:
        """Return the entry for a layer that is a single file."""
        value = layer.digest.partition(":")[2]
        return Entry(layer.path, layer.digest, layer.size, Digest(Kind.SHA256, value), layer.digest)

    def listing(self, retry: Retry) -> Listing:
        """List the files of the artifact. Raise LoadError if the artifact does not exist or is not a model."""
        manifest = retry(lambda: self._registry.manifest(self._digest))
        if manifest is None:
            raise FaultError("SourceNotFound", f"{self._registry.host} has nothing with the digest {self._digest}")
        try:
            model = modelpack.parse_manifest(manifest.content)
            self._layers = modelpack.layers_of(model)
        except DecodingError as error:
            raise FaultError("UnsupportedSource", f"{self._digest} is not a model: {error}") from error
        entries: list[Entry] = []
        for layer in self._layers:
            if layer.packed:
                entries += retry(lambda layer=layer: self._unpacked(layer))  # type: ignore[misc] # a default argument
            else:
                entries.append(self.entry(layer))
        facts, name = modelpack.facts_of(model), model.annotations.get(modelpack.TITLE, "")
        return Listing(self._digest, tuple(entries), name[:LONGEST_NAME], facts.tasks, facts.features)

    @contextmanager
    def read(self, entry: Entry, start: int) -> Iterator[Body]:
        """Open a file at offset ``start``. If the file is in a tar layer, the entry's locator contains its offset in
        the layer."""
        digest, _plus, place = entry.locator.partition("+")
        offset = int(place or 0)
        with self._registry.blob(digest, offset + start) as body:
            if not place:
                yield body
                return
            yield _Part(body, offset, start, entry.size or 0)

    def _unpacked(self, layer: Layer) -> list[Entry]:
        """Read a tar layer completely, verify its digest, and return its files. Raise FaultError or TransientError."""
        if layer.size > LARGEST_TAR:
            raise FaultError("UnsupportedSource", f"the layer {layer.path} has {layer.size} bytes, more than the limit")
        with self._registry.blob(layer.digest) as body:
            checked = _Checked(body, layer.size)
            try:
                entries = list(_entries(layer, Forward(checked.chunks())))
            except ArchiveError as error:
                raise FaultError("UnsupportedSource", f"a layer of {self._digest} is rejected: {error}") from error
            for _rest in checked.chunks():
                pass
        if checked.position != layer.size:
            raise TransientError("the connection ended early")
        if checked.digest != layer.digest:
            raise FaultError("IntegrityCheckFailed", f"{self._registry.host} has different data under {layer.digest}")
        return entries


def _entries(layer: Layer, stream: Forward) -> Iterator[Entry]:
    base = "" if layer.path == "." else f"{layer.path.rstrip('/')}/"
    values: list[str] = []
    for member in tar_members(stream, lambda member: values.append(_sha256(stream, member.size))):
        digest, path = Digest(Kind.SHA256, values[-1]), base + member.path
        yield Entry(path, f"{layer.digest}+{member.offset}", member.size, digest, f"{layer.digest}+{path}")


def _sha256(stream: Forward, size: int) -> str:
    checksum = hashlib.sha256()
    while size and (chunk := stream.chunk(min(CHUNK, size))):
        checksum.update(chunk)
        size -= len(chunk)
    return checksum.hexdigest()


class _Checked:
    """A body of known length that is hashed while it is read."""

    def __init__(self, body: Body, size: int) -> None:
        self._body, self._size, self._sha256 = body, size, hashlib.sha256()
        self.position = 0

    @property
    def digest(self) -> str:
        """SHA-256 of the bytes read so far, in a registry's format: ``sha256:HEX``."""
        return f"sha256:{self._sha256.hexdigest()}"

    def chunks(self) -> Iterator[bytes]:
        """Yield the remaining bytes, and hash them."""
        while self.position < self._size and (chunk := self._body.read(min(CHUNK, self._size - self.position))):
            self._sha256.update(chunk)
            self.position += len(chunk)
            yield chunk


class _Part:
    """The bytes of one file inside a tar layer."""

    verifiable = True

    def __init__(self, body: Body, offset: int, start: int, size: int) -> None:
        """Skip to the first byte to read. ``body`` begins at ``offset + start`` of the layer, or at 0."""
        self._body, self._remaining = body, size - start
        self.start = start
        skip = offset + start if body.start == 0 else 0
        while skip and (chunk := body.read(min(skip, CHUNK))):
            skip -= len(chunk)

    def read(self, size: int) -> bytes:
        """Return the next bytes of the file, at most ``size``. An empty result means that the file has ended."""
        chunk = self._body.read(min(size, self._remaining)) if self._remaining else b""
        self._remaining -= len(chunk)
        return chunk


def reference_of(url: str) -> Reference:
    """Parse a ``registry://`` URL. Raise LoadError if the URL is invalid or has no digest."""
    try:
        reference = references.parse(url.partition("://")[2])
    except ValueError as error:
        raise LoadError(str(error)) from error
    if not reference.digest:
        raise LoadError(f"{url!r} does not name an artifact: write registry://HOST/REPOSITORY@sha256:...")
    return reference


def open_source(url: str, env: Mapping[str, str], _access: Access) -> Source:
    """Return the source of a ``registry://`` URL. Raise LoadError if the URL is invalid."""
    reference = reference_of(url)
    return Artifact(Registry(reference, env), digest=reference.digest)
