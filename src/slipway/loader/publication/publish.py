"""Publication of a source as an artifact in a registry, in one stream and without a disk.

Large files become layers; files up to 16 MiB are combined in one tar archive. Blobs that the registry already has are
not sent again. The manifest is written last, and the publication is reported only after every blob has been checked.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

import msgspec

from slipway.artifacts.documents import modelpack
from slipway.artifacts.documents.modelpack import SMALL_FILES, TAR_TYPE, Layer, Origin, raw_type
from slipway.artifacts.documents.publication import Publication
from slipway.artifacts.documents.session import TAG as SESSION
from slipway.artifacts.files.file_rules import FileChoice
from slipway.decoding import DecodingError
from slipway.loader.disk.folder import checked
from slipway.loader.disk.progress import human
from slipway.loader.download.stage import Work
from slipway.loader.publication import publication_state
from slipway.loader.publication.contents import Content, FileContent, TarContent
from slipway.loader.publication.model_metadata import Description, chosen_of, describe_model
from slipway.loader.publication.publication_state import PublicationState
from slipway.loader.publication.upload import Uploader
from slipway.loader.sources.pieces import Upload, session_of
from slipway.loader.sources.registry import Artifact
from slipway.loader.transport.errors import LoadError
from slipway.loader.transport.registry import BlobsGoneError, Registry
from slipway.loader.transport.selection import FaultError
from slipway.loader.transport.source import Listing, Retry, Source

log = logging.getLogger(__name__)
SMALL = 16 << 20
"""Maximum size in bytes of a file that goes into the tar archive. A model's only file never does."""
PUBLISHED, IMAGE = "published", "image"
TAGS = (PUBLISHED, IMAGE, SESSION)


class PublishRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The options of a publication."""

    name: str = ""
    """Name of the model in the artifact; empty: the name that the source reports."""
    url: str = ""
    """Public URL of the model's source, visible to all users who pull the artifact; empty: the source is not public."""
    image: bool = False
    """Whether to also publish the same files as a container image."""
    room: int | None = None
    """Maximum number of bytes to add to the registry, or maximum size of an existing publication; None: unlimited."""
    resume: str = ""
    """State of an unfinished upload, from the previous loader; empty: there is none."""


class _Planned(msgspec.Struct, frozen=True):
    """A layer to create. Its path is ``.`` if the content is the tar archive of the small files."""

    path: str
    media_type: str
    content: Content


def publish(source: Source, target: Registry, request: PublishRequest, work: Work) -> Publication:
    """Publish a source in the repository ``target``, and return the publication. If the repository already has this
    revision, send nothing. Raise LoadError, also if the request's limit is exceeded, or StoppedError after
    ``work.stop`` is set."""
    retry = work.retry(request.name or target.repository)
    listing = source.listing(retry)
    publication = _find_publication(target, request, listing.revision, retry)
    if publication is not None:
        log.info("%s already has this revision", target.host)
        _check_size(publication.size, request)
        return publication
    chosen = _choose_files(source, listing, retry)
    description = describe_model(source, listing, chosen, retry)
    planned = _plan_layers(source, listing, chosen, work)
    notes = PublicationState(target, work, retry, request.resume)
    notes.restore()
    uploader = Uploader(target, notes, work)
    _check_room(uploader, planned, request)
    attempts = work.policy.wrong
    while True:
        try:
            return _send(target, request, listing, description, planned, uploader, notes, work)
        except BlobsGoneError:
            attempts -= 1
            if not attempts:
                raise
            log.info("%s collected unreferenced blobs; sending them again", target.host)


def _send(
    target: Registry,
    request: PublishRequest,
    listing: Listing,
    description: Description,
    planned: Sequence[_Planned],
    uploader: Uploader,
    notes: PublicationState,
    work: Work,
) -> Publication:
    """Send the layers and the manifest, and return the publication. Raise BlobsGoneError if the registry has deleted
    blobs in the meantime."""
    retry, times = work.retry(request.name or target.repository), 2 if request.image else 1
    work.meter.expect(times * sum(one.content.size for one in planned), times * len(planned))
    layers = sorted((_layer(uploader, one) for one in planned), key=lambda layer: layer.path)
    publication = _finish(target, request, listing, description, layers, retry)
    if request.image:
        publication = msgspec.structs.replace(publication, image=_image(target, layers, uploader, work, retry))
    notes.clear()
    return publication


def publish_upload(target: Registry, request: PublishRequest, work: Work) -> Publication:
    """Publish the file that a user uploaded to the target repository, remove the upload, and return the publication. If
    there is no upload, but an earlier loader has published the file, only return the publication. Raise LoadError or
    StoppedError."""
    retry = work.retry(target.repository)
    session = session_of(target, retry)
    if session is None:
        manifest = retry(lambda: target.manifest(PUBLISHED))
        if manifest is None:
            raise FaultError("SourceNotFound", "nothing was uploaded")
        previous = _publication(manifest.content, retry, target)  # an earlier loader finished, but its report was lost
        _check_size(previous.size, request)
        return previous
    publication = publish(Upload(target, session), target, request, work)
    retry(lambda: target.delete_manifest(session.digest))
    return publication


def unpublish(target: Registry, retry: Retry, resume: str = "") -> int:
    """Delete the manifests that publications and uploads leave in the repository, and cancel unfinished uploads. Return
    the number of deleted manifests, without that of an unfinished publication. For ``resume``, see
    ``publication_state.cancel``."""
    publication_state.cancel(target, retry, resume)
    deleted = 0
    for tag in TAGS:
        manifest = retry(lambda tag=tag: target.manifest(tag))  # type: ignore[misc] # only a default argument
        if manifest is not None:
            deleted += retry(lambda digest=manifest.digest: target.delete_manifest(digest))  # type: ignore[misc]
    return deleted


def _choose_files(source: Source, listing: Listing, retry: Retry) -> FileChoice:
    """Return the files of the model. Raise LoadError if they are not a complete model, or a path is invalid."""
    chosen = chosen_of(source, listing, retry)
    checked([entry for entry in listing.entries if entry.path in chosen.files])
    return chosen


def _plan_layers(source: Source, listing: Listing, chosen: FileChoice, work: Work) -> list[_Planned]:
    """Return the layers to create: the tar archive of the small files, if there are any, and the large files in the
    source's order. A single file is always its own layer."""
    files = [FileContent(source, entry, work) for entry in listing.entries if entry.path in chosen.files]
    small = [file for file in files if file.size <= SMALL]
    big = [
        _Planned(file.name, raw_type(weights=file.name in chosen.weights), file) for file in files if file.size > SMALL
    ]
    if len(files) == 1:
        return [_Planned(files[0].name, raw_type(weights=True), files[0])]
    return [*([_Planned(".", TAR_TYPE, TarContent(SMALL_FILES, small))] if small else []), *big]


def _check_room(uploader: Uploader, planned: Sequence[_Planned], request: PublishRequest) -> None:
    """Raise LoadError if the missing bytes, and those of the image if one is requested, exceed the limit in
    ``request``. Nothing has been sent before this check."""
    if request.room is None:
        return
    needed = sum(one.content.size for one in planned if uploader.missing(one.content))
    needed += sum(one.content.size for one in planned) if request.image else 0
    _check_size(needed, request)


def _check_size(size: int, request: PublishRequest) -> None:
    """Raise LoadError if ``size``, in bytes, exceeds the limit in ``request``."""
    if request.room is not None and size > request.room:
        raise FaultError(
            "InsufficientStorage",
            f"{human(size)} are needed and {human(request.room)} are left: delete models, or ask for a higher limit",
        )


def _layer(uploader: Uploader, planned: _Planned) -> Layer:
    log.info("Sending %s, %s", planned.content.name, human(planned.content.size))
    return Layer(planned.path, planned.media_type, uploader.put(planned.content), planned.content.size)


def _finish(
    target: Registry,
    request: PublishRequest,
    listing: Listing,
    description: Description,
    layers: Sequence[Layer],
    retry: Retry,
) -> Publication:
    """Write the manifest, check that the registry has everything in it, and return the publication."""
    origin = Origin(
        name=request.name or listing.name, url=request.url, revision=listing.revision, licenses=listing.licenses
    )
    config = modelpack.configuration(description.facts, origin, description.precisions, layers)
    content = modelpack.manifest(config, description.facts, origin, layers)
    retry(lambda: target.put_blob(config, modelpack.digest(config)))
    _put(target, PUBLISHED, content, retry)
    return _publication(content, retry, target)


def _publication(content: bytes, retry: Retry, target: Registry) -> Publication:
    """Return the publication that a manifest describes. Raise LoadError if the manifest is invalid, or if one of its
    blobs is missing or has another size."""
    try:
        whole = modelpack.parse_manifest(content)
    except DecodingError as error:
        raise LoadError(f"{target.host} has a manifest that is not a model's: {error}") from error
    for digest, size in whole.blobs.items():
        if retry(lambda digest=digest: target.size(digest)) != size:  # type: ignore[misc]
            raise LoadError(f"{target.host} has lost a blob that was just sent: retry", transient=True)
    return Publication(
        digest=modelpack.digest(content),
        media_type=whole.artifact_type,
        size=whole.size,
        revision=whole.annotations.get(modelpack.REVISION, "")[:256],
        facts=modelpack.facts_of(whole),
    )


def _put(target: Registry, tag: str, content: bytes, retry: Retry) -> str:
    """Write a manifest under a tag, and return its digest. Raise LoadError if the registry does not have the manifest
    afterwards."""
    digest = modelpack.digest(content)
    retry(lambda: target.put_manifest(tag, content, modelpack.MANIFEST))
    manifest = retry(lambda: target.manifest(digest))
    if manifest is None or manifest.content != content:
        raise LoadError(f"{target.host} does not have the manifest that it accepted: retry", transient=True)
    return digest


def _image(
    target: Registry, layers: Sequence[Layer], uploader: Uploader, work: Work, retry: Callable[..., object]
) -> str:
    """Publish the files in ``layers`` as a container image, and return its digest. Read layers that are not tar
    archives yet from the registry."""
    image_layers = []
    for layer in layers:
        if layer.packed:
            image_layers.append(layer)
            work.meter.reused(layer.size)
            work.meter.file_done()
            continue
        file = FileContent(Artifact(target, layers), Artifact.entry(layer), work)
        tar = TarContent(f"{layer.path}.tar", [file])
        image_layers.append(Layer(layer.path, modelpack.IMAGE_LAYER, uploader.put(tar), tar.size))
    config, content = modelpack.image(image_layers)
    retry(lambda: target.put_blob(config, modelpack.digest(config)))
    return _put(target, IMAGE, content, retry)  # type: ignore[arg-type] # a Retry


def _find_publication(target: Registry, request: PublishRequest, revision: str, retry: Retry) -> Publication | None:
    """Return the existing publication of this revision from the URL in ``request``, or None if it is missing or
    incomplete. A publication without an image is incomplete if ``request`` requires one. Return None if ``revision`` is
    empty."""
    manifest = retry(lambda: target.manifest(PUBLISHED))
    if manifest is None or not revision:
        return None
    try:
        whole = modelpack.parse_manifest(manifest.content)
        same = whole.annotations.get(modelpack.REVISION) == revision
        if not same or whole.annotations.get(modelpack.SOURCE, "") != request.url or not modelpack.layers_of(whole):
            return None
        publication = _publication(manifest.content, retry, target)
    except (DecodingError, LoadError):
        return None
    if not request.image:
        return publication
    image = retry(lambda: target.manifest(IMAGE))
    return msgspec.structs.replace(publication, image=image.digest) if image else None
