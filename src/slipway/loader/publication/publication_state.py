"""The progress of an unfinished publication, stored in a tagged manifest of the target repository.

The manifest lists the blobs that exist, so that garbage collection does not delete them and the next loader does not
send them again. The manifest also contains the location of the unfinished upload. It is deleted when the publication is
complete or cancelled.
"""

from __future__ import annotations

from contextlib import suppress

import msgspec

from slipway.artifacts.documents import modelpack
from slipway.artifacts.documents.modelpack import FILEPATH, Descriptor, Manifest
from slipway.decoding import DecodingError, decode_json
from slipway.loader.download.stage import Work
from slipway.loader.publication.contents import Content, promised_digest
from slipway.loader.transport.errors import LoadError, TransientError
from slipway.loader.transport.registry import BlobsGoneError, Registry, UploadGoneError
from slipway.loader.transport.source import Retry
from slipway.serving.wire.agent import LONGEST_RESUME

TAG = "publishing"
TYPE = "application/vnd.slipway.publishing.v1+json"
KEY = "slipway.inference/key"
UPLOAD, UPLOAD_KEY = "slipway.inference/upload", "slipway.inference/upload-key"
EMPTY, EMPTY_TYPE = b"{}", "application/vnd.oci.empty.v1+json"
WORTH = 16 << 20
"""Number of new bytes after which the state is written. Each file that becomes its own layer is larger, except a
model's only file. Blobs whose digest is known only after sending are recorded in any case."""


class Resume(msgspec.Struct, frozen=True):
    """An unfinished upload that one loader passes to the next: the key of its content, and its location."""

    key: str
    location: str


class PublicationState:
    """The state of a publication that survives this process, stored in the target repository. It implements
    ``slipway.loader.publication.upload.Notes``."""

    def __init__(self, registry: Registry, work: Work, retry: Retry, resume: str = "") -> None:
        """Resume the upload in ``resume``, the JSON text from the previous loader. An empty or invalid text means that
        there is no upload. An upload that ``restore`` reads from the repository takes precedence."""
        self._registry, self._work, self._retry = registry, work, retry
        self._layers: dict[str, Descriptor] = {}
        self._previous = _resume(resume)
        """The unfinished upload of the previous loader; None: there is none."""
        self._mine: Resume | None = None
        self._digest = ""
        self._unwritten = 0

    def restore(self) -> None:
        """Read the state that the previous loader stored. Do nothing if there is none, or if it is invalid."""
        manifest = self._retry(lambda: self._registry.manifest(TAG))
        if manifest is None:
            return
        self._digest = manifest.digest
        try:
            whole = modelpack.parse_manifest(manifest.content)
        except DecodingError:
            return
        self._layers = {layer.annotations.get(KEY, ""): layer for layer in whole.layers}
        location = whole.annotations.get(UPLOAD, "")
        if location:
            self._previous = Resume(whole.annotations.get(UPLOAD_KEY, ""), location)

    def blob(self, content: Content) -> str:
        """Return the digest of a blob that was stored earlier with this content, or an empty string if there is
        none."""
        layer = self._layers.get(content.key) if content.key else None
        return layer.digest if layer is not None and layer.size == content.size else ""

    def upload(self, content: Content) -> str:
        """Return the location of an unfinished upload of this content, or an empty string if there is none."""
        uploads = (one for one in (self._mine, self._previous) if one is not None and one.key == content.key != "")
        return next((one.location for one in uploads), "")

    def record_upload(self, content: Content, location: str) -> None:
        """Record the location of a new upload of this content, so that another loader can resume it. Do nothing if the
        content's version is unknown."""
        if not content.key:
            return
        self._mine = Resume(content.key, location)
        if self._previous is not None and self._previous.key == content.key:
            self._previous = None
        text = msgspec.json.encode(self._mine).decode()
        self._work.meter.resume = text if len(text) <= LONGEST_RESUME else ""
        if content.size > WORTH:
            self._write()

    def done(self, content: Content, digest: str) -> None:
        """Record that the repository now has this content as a blob."""
        duplicate = content.key in self._layers
        note = Descriptor(
            media_type="application/octet-stream",
            digest=digest,
            size=content.size,
            annotations={KEY: content.key, FILEPATH: content.name},
        )
        self._layers[content.key or digest] = note
        self._mine, self._work.meter.resume = None, ""
        if self._previous is not None and self._previous.key == content.key:
            self._previous = None
        if duplicate:
            return
        self._unwritten += content.size
        if self._unwritten > WORTH or not promised_digest(content):
            self._write()

    def _write(self) -> None:
        open_ = self._mine or self._previous
        upload = {UPLOAD: open_.location, UPLOAD_KEY: open_.key} if open_ else {}
        whole = Manifest(
            schema_version=2,
            media_type=modelpack.MANIFEST,
            artifact_type=TYPE,
            config=modelpack.descriptor(EMPTY_TYPE, EMPTY),
            layers=tuple(self._layers.values()),
            annotations=upload,
        )
        content = msgspec.json.encode(whole, order="sorted")
        digest = modelpack.digest(content)
        if digest == self._digest:
            return
        try:
            self._retry(lambda: self._registry.put_blob(EMPTY, whole.config.digest))
            self._retry(lambda: self._registry.put_manifest(TAG, content, modelpack.MANIFEST))
        except BlobsGoneError:
            # Missing blobs are sent again at the end; until then, none of the others are recorded.
            self._layers.clear()
            return
        old, self._digest, self._unwritten = self._digest, digest, 0
        if old:
            self._retry(lambda: self._registry.delete_manifest(old))

    def clear(self) -> None:
        """Delete the stored state after the publication is complete."""
        if self._digest:
            self._retry(lambda: self._registry.delete_manifest(self._digest))
        self._digest = ""


def cancel(registry: Registry, retry: Retry, resume: str = "") -> None:
    """Delete the stored state of an unfinished publication, and cancel its uploads, if they exist. ``resume`` is the
    JSON text from the previous loader; empty or invalid: there is none."""
    notes = _resume(resume)
    locations = [notes.location] if notes else []
    manifest = retry(lambda: registry.manifest(TAG))
    if manifest is not None:
        with suppress(DecodingError):
            locations.append(modelpack.parse_manifest(manifest.content).annotations.get(UPLOAD, ""))
        retry(lambda: registry.delete_manifest(manifest.digest))
    for location in filter(None, dict.fromkeys(locations)):
        with suppress(LoadError, TransientError, UploadGoneError):
            registry.cancel(location)


def _resume(text: str) -> Resume | None:
    try:
        return decode_json(text, Resume, most=LONGEST_RESUME) if text else None
    except DecodingError:
        return None
