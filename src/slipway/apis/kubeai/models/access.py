"""Access: the volumes and credentials with which a container reads a model URL, and the weights for the engine. Pure.

The credentials are in Secrets of the Model's namespace. The system configuration contains the names of these Secrets.
"""

from __future__ import annotations

from collections.abc import Iterable

from slipway.apis.kubeai.settings import SecretNames
from slipway.apis.kubeai.urls import ModelUrl
from slipway.artifacts.locations.huggingface import TOKEN, HuggingFaceFile
from slipway.artifacts.locations.weights import BucketFolder, HubRepository, MountedFolder, OllamaModel, Weights
from slipway.serving.containers import volumes
from slipway.weights.sources.credentials import OSS_KEYS, S3_KEYS, Access, from_google, from_secret, mounted

FOLDER, VOLUME = "/model", "model"
"""Mount path and name of the volume with the weights."""
KEYS, OSS_SECRET_KEYS = ("accessKeyID", "secretAccessKey"), ("accessKeyID", "accessKeySecret")
"""Keys in the Secrets for S3 and OSS buckets."""


def credentials(schemes: Iterable[str], secrets: SecretNames) -> Access:
    """Return the credentials for URLs with the given schemes, without duplicates."""
    return sum((_credentials(scheme, secrets) for scheme in sorted(set(schemes))), Access())


def _credentials(scheme: str, secrets: SecretNames) -> Access:
    match scheme:
        case "hf":
            return Access(env=from_secret(secrets.huggingface, {TOKEN: "token"}))
        case "s3":
            return Access(env=from_secret(secrets.aws, dict(zip(S3_KEYS, KEYS, strict=True))))
        case "oss":
            return Access(env=from_secret(secrets.alibaba, dict(zip(OSS_KEYS, OSS_SECRET_KEYS, strict=True))))
        case "gs":
            return from_google(secrets.gcp, "jsonKeyfile")
        case _:
            return Access()


def volume(url: ModelUrl, secrets: SecretNames) -> Access:
    """Return access to the volume with the weights. Empty if the URL names no volume."""
    if url.scheme == "pvc":
        return mounted(volumes.claim(VOLUME, url.name), FOLDER, sub_path=url.path.strip("/"))
    if url.scheme == "oci":
        pulled = mounted(volumes.image(VOLUME, url.ref), FOLDER, read_only=True)
        return pulled + Access(image_pull_secrets=(secrets.oci,) if secrets.oci else ())
    return Access()


def weights(url: ModelUrl, reads: str, cached_at: str) -> Weights:
    """Return the weights for the engine: a mounted directory, or a source that the engine reads itself. ``reads``: what
    the engine reads, see Engine; ``cached_at``: path of the Model's directory in the cache, in the engine's container,
    or empty without a cache."""
    if cached_at or url.scheme in ("pvc", "oci"):
        return MountedFolder(cached_at or FOLDER, url.model)
    if url.scheme == "ollama":
        return OllamaModel(url.ref, url.insecure, url.pull)
    if url.scheme == "hf":
        file = url.model if reads == "file" else ""
        return HuggingFaceFile(url.ref, file) if file else HubRepository(url.ref)
    return BucketFolder(url.place)
