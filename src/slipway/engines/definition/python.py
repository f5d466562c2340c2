"""Python engines: the model arguments that they share, and the error messages of their libraries for failed loads."""

from __future__ import annotations

from collections.abc import Mapping

from slipway.artifacts.locations.weights import BucketFolder, HubRepository, MountedFolder, Weights, describe_weights
from slipway.engines.definition.log_patterns import (
    ARGUMENT,
    DOWNLOAD,
    GATED,
    GPU_MEMORY,
    NO_FILE,
    NO_SPACE,
    TOO_LARGE,
    UNKNOWN_ARGUMENT,
    UNREACHABLE,
    UNSUPPORTED,
    log_patterns,
)


def model_of(weights: Weights) -> str:
    """Return the model's name for ``from_pretrained`` and similar functions: a repository ID, a directory or a bucket
    URL. Raise ValueError for other weights."""
    if isinstance(weights, HubRepository):
        return weights.reference
    if isinstance(weights, MountedFolder):
        return weights.path
    if isinstance(weights, BucketFolder):
        return weights.url
    raise ValueError(f"{describe_weights(weights)} is neither a repository nor a directory")


def revision_of(weights: Weights) -> tuple[str, ...]:
    """Return the arguments for a repository's revision, which all Python engines share; empty without a revision."""
    if isinstance(weights, HubRepository) and weights.revision:
        return ("--revision", weights.revision)
    return ()


def adapter_pairs(adapters: Mapping[str, str]) -> tuple[str, ...]:
    """Return the values that load LoRA adapters (name -> path), in the form ``NAME=PATH`` of all Python engines."""
    return tuple(f"{name}={path}" for name, path in adapters.items())


NO_REPOSITORY = "The repository does not exist, or it requires a token (HF_TOKEN): check its name"
NO_MODEL = "The repository has no model that this engine can read"
REFUSED = "The model's credentials do not allow reading the bucket"
UNKNOWN = "This version of the engine does not support the model's architecture"
ABSENT = "A file or directory in the engine's arguments does not exist in the container"
NO_GPU = "The container has no GPU that its image supports"
INNER = "An engine process exited; see the cause earlier in its log (kubectl logs --previous)"

PYTHON = log_patterns(
    # If a repository does not exist, the hub's client adds "If you are trying to access a private or gated repo".
    (r"(?<!private or )[Gg]ated repo|is restricted(?: and|\.)", DOWNLOAD, GATED),
    (r"RepositoryNotFoundError|Repository Not Found|is not a valid model identifier", DOWNLOAD, NO_REPOSITORY),
    (r"EntryNotFoundError: 404|does not appear to have a file named", DOWNLOAD, NO_MODEL),
    (r"(?P<status>4\d\d|50\d) (?:Client|Server) Error", DOWNLOAD, "The model cannot be downloaded"),
    (r"LocalEntryNotFound|couldn't connect to|Max retries exceeded|ConnectError", DOWNLOAD, UNREACHABLE, True),
    (r"Name or service not known|Temporary failure in name resolution", DOWNLOAD, UNREACHABLE, True),
    (r"No space left on device", DOWNLOAD, NO_SPACE),
    (r"NoSuchBucket|NoSuchKey", DOWNLOAD, "The bucket has no objects under this URL"),
    (r"Unable to locate credentials|AccessDenied|InvalidAccessKeyId|SignatureDoesNotMatch", DOWNLOAD, REFUSED),
    (r"out of memory|OutOfMemoryError|Not enough memory", GPU_MEMORY, TOO_LARGE),
    (r"No available memory for the cache blocks|is less than desired GPU memory", GPU_MEMORY, TOO_LARGE),
    (r"larger than the (?:maximum number of tokens|available KV cache memory)", GPU_MEMORY, TOO_LARGE),
    (r"No (?:CUDA|HIP) GPUs are available|No XPU devices are available", "NoGpu", NO_GPU),
    (r"Found no NVIDIA driver|driver on your system is too old", "NoGpu", NO_GPU),
    (r"Failed to infer device type|no kernel image is available", "NoGpu", NO_GPU),
    (r"architectures? .* (?:not supported|failed to be inspected)|not supported for now", UNSUPPORTED, UNKNOWN),
    (r"does not recognize this architecture", UNSUPPORTED, UNKNOWN),
    (r"unrecognized arguments|error: argument |No such option|Invalid value for", ARGUMENT, UNKNOWN_ARGUMENT),
    (r"FileNotFoundError|No such file or directory|is not a directory", NO_FILE, ABSENT),
    (r"Repo id must be in the form", NO_FILE, ABSENT),
    (r"Engine core initialization failed", "CrashLoopBackOff", INNER, True),
)
"""Patterns for messages of the Hub's client, boto3, torch and argparse. The first match counts."""
