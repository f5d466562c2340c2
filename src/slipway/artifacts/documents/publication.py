"""Publication: a model's artifact in a registry, and the facts about the model.

The loader writes a publication into its container's termination message, like a
:class:`slipway.artifacts.documents.report.Report`. The content comes from untrusted files, so an invalid publication
counts as missing.
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
    """Facts about a model. A fact is empty or 0 if it is unknown or only estimated."""

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
    """Features in the source's terms, and ``tools`` if the chat template can call tools."""
    endpoint_types: Words = ()
    """The tasks, mapped to :data:`ENDPOINT_TYPES`. Without a specific task, the task that the files imply counts."""
    supported_features: Words = ()
    """Inputs and outputs of the same tasks, from :data:`FEATURES`, and ``ToolCalling`` if a chat model has the feature
    ``tools``."""
    partial: bool = False
    """Whether the facts are incomplete, because an essential fact is unknown."""


class Publication(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A complete artifact in a registry. The loader has verified all its blobs by digest."""

    digest: Digest
    """Digest of the manifest."""
    media_type: Word
    """The manifest's artifact type."""
    size: Annotated[int, msgspec.Meta(ge=1)]
    """Total size of all blobs of the manifest in bytes."""
    revision: Annotated[str, msgspec.Meta(max_length=256)] = ""
    """Revision of the source: a commit or a digest."""
    image: Annotated[str, msgspec.Meta(pattern=r"\A(sha256:[0-9a-f]{64})?\Z")] = ""
    """Digest of an ordinary image with the model's files; empty if no image was requested."""
    facts: Facts = Facts()


def encode_publication(publication: Publication) -> bytes:
    """Encode a publication as JSON. If it is too long, omit the facts, and mark them as partial."""
    text = msgspec.json.encode(publication)
    if len(text) <= LONGEST:
        return text
    return msgspec.json.encode(msgspec.structs.replace(publication, facts=Facts(partial=True)))


def parse_publication(message: str) -> Publication | None:
    """Parse a publication. Return None if the message is not a publication."""
    try:
        return decode_json(message, Publication, most=MESSAGE_BYTES)
    except DecodingError:
        return None
