"""Weights: the location of a model in an engine's command line. Pure."""

from __future__ import annotations

import msgspec

from slipway.artifacts.locations.huggingface import HuggingFaceFile

FETCHED = ("hf", "s3", "gs", "oss")
"""Schemes of URLs that the loader downloads, for every engine."""


class HubRepository(msgspec.Struct, frozen=True):
    """A repository of the Hugging Face Hub that the engine downloads itself."""

    reference: str
    """``owner/name``, followed by ``:quantization`` for GGUF files."""
    revision: str = ""
    """Branch, tag or commit; empty for the default branch."""


class MountedFolder(msgspec.Struct, frozen=True):
    """A directory in the engine's container."""

    path: str
    model: str = ""
    """The model to use if the directory contains several: a file name, or the engine's name for the model."""


class BucketFolder(msgspec.Struct, frozen=True):
    """A bucket directory that the engine reads itself: ``s3://bucket/path``."""

    url: str


class Unnamed(msgspec.Struct, frozen=True):
    """Weights for which Slipway adds no argument: they are in the engine's image, or the user's arguments name them."""


class OllamaModel(msgspec.Struct, frozen=True):
    """A model of an Ollama registry."""

    reference: str
    insecure: bool = False
    """Whether the registry uses plain HTTP or an untrusted certificate."""
    pull: bool = True
    """Whether the engine downloads the model. False if the model is in the image."""


Weights = HuggingFaceFile | HubRepository | MountedFolder | BucketFolder | OllamaModel | Unnamed


def describe_weights(weights: Weights) -> str:
    """Return a phrase for messages that names the location of weights."""
    if isinstance(weights, HuggingFaceFile):
        return f"the file {weights}"
    if isinstance(weights, HubRepository):
        return f"the repository {weights.reference}{f' at {weights.revision}' if weights.revision else ''}"
    if isinstance(weights, MountedFolder):
        return f"the folder {weights.path}"
    if isinstance(weights, BucketFolder):
        return f"the bucket folder {weights.url}"
    if isinstance(weights, OllamaModel):
        return f"the Ollama model {weights.reference}"
    return "weights that nothing names"
