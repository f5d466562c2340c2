"""Publication: the artifact that a registry has now, and the facts about its model.

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
"""Kinds of requests that a model may be for."""
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
"""What a model may take and give beside text."""
Digest = Annotated[str, msgspec.Meta(pattern=r"\Asha256:[0-9a-f]{64}\Z")]


class Facts(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Facts about a model. Empty and 0: unknown, or only estimated."""

    format: Format = ""
    family: Word = ""
    architecture: Word = ""
    parameters: Count = 0
    quantization: Word = ""
    context: Count = 0
    """Tokens."""
    tasks: Words = ()
    """As the source has them."""
    features: Words = ()
    """As the source has them."""
    endpoint_types: Words = ()
    """The tasks as :data:`ENDPOINT_TYPES`."""
    supported_features: Words = ()
    """The features as :data:`FEATURES`."""
    partial: bool = False
    """Whether something that ought to be known is not."""


class Publication(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A complete artifact in the registry, of which each blob was checked by its digest."""

    digest: Digest
    """Of the manifest."""
    media_type: Word
    """The manifest's artifact type."""
    size: Annotated[int, msgspec.Meta(ge=1)]
    """Bytes of all that the manifest describes."""
    revision: Annotated[str, msgspec.Meta(max_length=256)] = ""
    """Of the source: a commit, or a digest."""
    image: Annotated[str, msgspec.Meta(pattern=r"\A(sha256:[0-9a-f]{64})?\Z")] = ""
    """Digest of the same files as an ordinary image, where one was asked for."""
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
