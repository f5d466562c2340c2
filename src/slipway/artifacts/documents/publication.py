"""Publication: the artifact that is now in a registry, and the facts about its model.

The loader writes it as its container's termination message, like a :class:`slipway.artifacts.documents.report.Report`.
Its content comes from untrusted files, so an invalid one counts as missing.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from slipway.artifacts.documents.report import LONGEST, MESSAGE_BYTES
from slipway.decoding import DecodingError, decode_json

Format = Literal["", "Safetensors", "GGUF", "Diffusers"]
Count = Annotated[int, msgspec.Meta(ge=0)]
Word = Annotated[str, msgspec.Meta(max_length=128)]
Words = Annotated[tuple[Annotated[str, msgspec.Meta(min_length=1, max_length=128)], ...], msgspec.Meta(max_length=32)]
ENDPOINT_TYPES = (
    "Chat",
    "TextGeneration",
    "Embeddings",
    "Rerank",
    "SpeechToText",
    "TextToSpeech",
    "Translation",
    "ImageClassification",
    "ObjectDetection",
    "ImageSegmentation",
    "ImageToText",
    "VisualQuestionAnswering",
    "ImageGeneration",
    "VideoGeneration",
    "AudioGeneration",
)
"""Kinds of requests that a model may support."""
FEATURES = (
    "VisionInput",
    "AudioInput",
    "AudioOutput",
    "ImageOutput",
    "VideoInput",
    "VideoOutput",
    "MultiModalInput",
    "ToolCalling",
)
"""Inputs and outputs that a model may support besides text."""
Digest = Annotated[str, msgspec.Meta(pattern=r"\Asha256:[0-9a-f]{64}\Z")]


class Facts(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Facts about a model. Empty and 0: unknown, or only estimated."""

    format: Format = ""
    family: Word = ""
    architecture: Word = ""
    parameters: Count = 0
    quantization: Word = ""
    context: Count = 0
    """Context length in tokens."""
    tasks: Words = ()
    """Tasks in the source's terms."""
    features: Words = ()
    """Features in the source's terms."""
    endpoint_types: Words = ()
    """The tasks, mapped to :data:`ENDPOINT_TYPES`."""
    supported_features: Words = ()
    """The features, mapped to :data:`FEATURES`."""
    partial: bool = False
    """Whether a fact that should be known is missing."""


class Publication(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A complete artifact in the registry, whose blobs have all been verified by digest."""

    digest: Digest
    """Digest of the manifest."""
    media_type: Word
    """The manifest's artifact type."""
    size: Annotated[int, msgspec.Meta(ge=1)]
    """Total size of everything that the manifest describes, in bytes."""
    revision: Annotated[str, msgspec.Meta(max_length=256)] = ""
    """Revision of the source: a commit or a digest."""
    image: Annotated[str, msgspec.Meta(pattern=r"\A(sha256:[0-9a-f]{64})?\Z")] = ""
    """Digest of the same files as an ordinary image, if one was requested."""
    facts: Facts = Facts()


def encode_publication(publication: Publication) -> bytes:
    """Encodes a publication as JSON, without the facts if they are too long."""
    text = msgspec.json.encode(publication)
    if len(text) <= LONGEST:
        return text
    return msgspec.json.encode(msgspec.structs.replace(publication, facts=Facts(partial=True)))


def parse_publication(message: str) -> Publication | None:
    """Parses a publication. Returns None if the message is not a publication."""
    try:
        return decode_json(message, Publication, most=MESSAGE_BYTES)
    except DecodingError:
        return None
