"""ModelPack: the manifest and configuration of a model in an OCI registry, in the CNCF's format. Pure.

The module also builds an ordinary image with the model's files, which Kubernetes can mount. Equal content gives equal
bytes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

import msgspec

from slipway.artifacts.documents.publication import Digest, Facts
from slipway.artifacts.facts.parameters import UNITS
from slipway.decoding import DecodingError, decode_json

MANIFEST = "application/vnd.oci.image.manifest.v1+json"
ARTIFACT = "application/vnd.cncf.model.manifest.v1+json"
CONFIG = "application/vnd.cncf.model.config.v1+json"
IMAGE_CONFIG = "application/vnd.oci.image.config.v1+json"
IMAGE_LAYER = "application/vnd.oci.image.layer.v1.tar"
FILEPATH = "org.cncf.model.filepath"
METADATA = "org.cncf.model.file.metadata+json"
UNTESTED = "org.cncf.model.file.mediatype.untested"
TITLE = "org.opencontainers.image.title"
REVISION, SOURCE = "org.opencontainers.image.revision", "org.opencontainers.image.source"
FACTS = "slipway.inference/facts"
"""Manifest annotation with the facts about the model as JSON."""
SMALL_FILES = "small-files.tar"
"""Title of the layer that contains all small files as a tar. The layer's path is the model's directory."""
MOST_BYTES = 4 << 20
"""Maximum size of a manifest in bytes; registries have the same limit."""
MOST_LAYERS = 20_000
LAYER_TYPE = r"\Aapplication/vnd\.cncf\.model\.(weight|weight\.config|dataset|code|doc)\.v1\.(raw|tar)\Z"
MODE = 0o644
EPOCH = "1970-01-01T00:00:00Z"
PRECISIONS: Mapping[str, str] = {
    "F64": "float64",
    "F32": "float32",
    "F16": "float16",
    "BF16": "bfloat16",
    "F8_E4M3": "float8_e4m3",
    "F8_E5M2": "float8_e5m2",
    "I64": "int64",
    "I32": "int32",
    "I16": "int16",
    "I8": "int8",
    "U8": "uint8",
}
"""Data type in safetensors -> its name in the ModelPack specification."""
INPUTS: Mapping[str, str] = {"VisionInput": "image", "AudioInput": "audio", "VideoInput": "video"}
OUTPUTS: Mapping[str, str] = {"AudioOutput": "audio", "ImageOutput": "image", "VideoOutput": "video"}
EMBEDDING = ("Embeddings", "Rerank")


class Layer(msgspec.Struct, frozen=True):
    """A layer of an artifact: a single file, or a tar of several files."""

    path: str
    """Path relative to the model's directory; ``.`` for a tar of several files."""
    media_type: str
    digest: str
    size: int

    @property
    def packed(self) -> bool:
        """Whether the layer is a tar."""
        return self.media_type.endswith(".tar")


class Origin(msgspec.Struct, frozen=True, kw_only=True):
    """The source of a model, as the model's artifact describes it."""

    name: str
    url: str = ""
    revision: str = ""
    licenses: tuple[str, ...] = ()
    """SPDX identifiers."""


class Descriptor(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """An OCI descriptor, with which a manifest refers to a blob. The size is in bytes."""

    media_type: Annotated[str, msgspec.Meta(max_length=255)]
    digest: Digest
    size: Annotated[int, msgspec.Meta(ge=0, le=(1 << 62))]
    annotations: Mapping[str, str] = {}


class Manifest(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The OCI manifest of an image or of a model's artifact."""

    schema_version: Literal[2]
    media_type: str = ""
    artifact_type: str = ""
    config: Descriptor
    layers: tuple[Descriptor, ...]
    annotations: Mapping[str, str] = {}

    @property
    def blobs(self) -> dict[str, int]:
        """Digest -> size of each blob in bytes. A registry stores a blob once, even if a manifest lists it twice."""
        return {blob.digest: blob.size for blob in (self.config, *self.layers)}

    @property
    def size(self) -> int:
        """Total size of all blobs in bytes."""
        return sum(self.blobs.values())


def raw_type(*, weights: bool) -> str:
    """Return the media type of a layer with a single file. ``weights``: whether the file contains weights."""
    return f"application/vnd.cncf.model.{'weight' if weights else 'weight.config'}.v1.raw"


TAR_TYPE = "application/vnd.cncf.model.weight.config.v1.tar"


def configuration(facts: Facts, origin: Origin, precisions: Sequence[str], layers: Sequence[Layer]) -> bytes:
    """Return the configuration of a model's artifact as JSON. ``precisions`` are the data types of the tensors, as
    named in safetensors. Ignore types that are not in ``PRECISIONS``."""
    precision = ",".join(PRECISIONS[name] for name in precisions if name in PRECISIONS)
    inputs = [word for feature, word in INPUTS.items() if feature in facts.supported_features]
    outputs = [word for feature, word in OUTPUTS.items() if feature in facts.supported_features]
    embeds = any(kind in facts.endpoint_types for kind in EMBEDDING)
    has_endpoints = bool(facts.endpoint_types)
    capabilities = {
        "inputTypes": (["text", *inputs] if has_endpoints else inputs),
        "outputTypes": outputs or (["embedding"] if embeds else ["text"] if has_endpoints else []),
        "toolUsage": "ToolCalling" in facts.supported_features,
    }
    descriptor = {
        "name": origin.name,
        "family": facts.family,
        "sourceURL": origin.url,
        "revision": origin.revision,
        "licenses": list(origin.licenses),
    }
    config = {
        "architecture": "transformer" if facts.format in ("Safetensors", "GGUF") else "",
        "format": facts.format.lower(),
        "paramSize": _size(facts.parameters),
        "precision": precision,
        "quantization": facts.quantization,
        "capabilities": _omit_empty(capabilities),
    }
    whole = {
        "descriptor": _omit_empty(descriptor),
        "config": _omit_empty(config),
        "modelfs": {"type": "layers", "diffIds": [layer.digest for layer in layers]},
    }
    return msgspec.json.encode(whole, order="sorted")


def manifest(config: bytes, facts: Facts, origin: Origin, layers: Sequence[Layer]) -> bytes:
    """Return the manifest of a model's artifact as JSON. ``config`` is the result of :func:`configuration`."""
    whole = Manifest(
        schema_version=2,
        media_type=MANIFEST,
        artifact_type=ARTIFACT,
        config=descriptor(CONFIG, config),
        layers=tuple(_layer(layer) for layer in layers),
        annotations=_omit_empty(
            {
                TITLE: origin.name,
                SOURCE: origin.url,
                REVISION: origin.revision,
                FACTS: msgspec.json.encode(facts, order="sorted").decode(),
            }
        ),
    )
    return msgspec.json.encode(whole, order="sorted")


def image(layers: Sequence[Layer]) -> tuple[bytes, bytes]:
    """Return the configuration and the manifest of an OCI image as JSON. ``layers`` must be uncompressed tar
    archives."""
    config = msgspec.json.encode(
        {
            "architecture": "amd64",
            "os": "linux",
            "config": {},
            "rootfs": {"type": "layers", "diff_ids": [layer.digest for layer in layers]},
            "history": [{"created": EPOCH, "created_by": "slipway loader publish"} for _layer in layers],
        },
        order="sorted",
    )
    whole = Manifest(
        schema_version=2,
        media_type=MANIFEST,
        config=descriptor(IMAGE_CONFIG, config),
        layers=tuple(
            Descriptor(media_type=IMAGE_LAYER, digest=layer.digest, size=layer.size, annotations={FILEPATH: layer.path})
            for layer in layers
        ),
    )
    return config, msgspec.json.encode(whole, order="sorted")


def parse_manifest(content: bytes) -> Manifest:
    """Parse an OCI manifest. Raise DecodingError if it is invalid or exceeds a limit."""
    oci_manifest = decode_json(content, Manifest, most=MOST_BYTES)
    if len(oci_manifest.layers) > MOST_LAYERS:
        raise DecodingError(f"it has {len(oci_manifest.layers)} layers")
    sizes: dict[str, int] = {}
    for blob in (oci_manifest.config, *oci_manifest.layers):
        if sizes.setdefault(blob.digest, blob.size) != blob.size:
            raise DecodingError(f"it names the blob {blob.digest} with two sizes")
    return oci_manifest


def layers_of(oci_manifest: Manifest) -> tuple[Layer, ...]:
    """Return the layers of a model's manifest. Raise DecodingError if the manifest is not that of a model, or has a
    layer that is not a model file."""
    if oci_manifest.artifact_type != ARTIFACT and oci_manifest.config.media_type != CONFIG:
        raise DecodingError("it is not a model: it has a different type")
    layers = []
    for layer in oci_manifest.layers:
        path = layer.annotations.get(FILEPATH, "")
        if not path or not _is_layer(layer.media_type):
            raise DecodingError(f"it has a layer of the type {layer.media_type[:100]!r} or without a path")
        layers.append(Layer(path, layer.media_type, layer.digest, layer.size))
    return tuple(layers)


def facts_of(oci_manifest: Manifest) -> Facts:
    """Return the facts in a manifest's annotation. If the annotation is missing or invalid, all facts are empty. If it
    is invalid, they are also marked as partial."""
    try:
        return decode_json(oci_manifest.annotations.get(FACTS, "{}"), Facts, most=MOST_BYTES)
    except DecodingError:
        return Facts(partial=True)


def digest(content: bytes) -> str:
    """Return the SHA-256 digest of a blob in the form ``sha256:HEX``."""
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def descriptor(media_type: str, content: bytes) -> Descriptor:
    """Return the OCI descriptor of a blob: its media type, digest and size."""
    return Descriptor(media_type=media_type, digest=digest(content), size=len(content))


def _layer(layer: Layer) -> Descriptor:
    name = SMALL_FILES if layer.packed else layer.path
    metadata = {"name": name, "mode": MODE, "uid": 0, "gid": 0, "size": layer.size, "mtime": EPOCH, "typeflag": 48}
    return Descriptor(
        media_type=layer.media_type,
        digest=layer.digest,
        size=layer.size,
        annotations={
            FILEPATH: layer.path,
            METADATA: msgspec.json.encode(metadata, order="sorted").decode(),
            UNTESTED: "false",
            TITLE: name,
        },
    )


def _is_layer(media_type: str) -> bool:
    try:
        msgspec.convert(media_type, Annotated[str, msgspec.Meta(pattern=LAYER_TYPE)])
    except msgspec.ValidationError:
        return False
    return True


def _size(parameters: int) -> str:
    """Format a number of parameters with at most one decimal: ``8b`` or ``1.5b``. Empty below 1000."""
    for unit, letter in UNITS:
        if parameters >= unit:
            return f"{parameters / unit:.1f}".removesuffix(".0") + letter.lower()
    return ""


def _omit_empty(words: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields that are not empty."""
    return {name: value for name, value in words.items() if value}
