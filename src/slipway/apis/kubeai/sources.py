"""Sources: what a container needs to read each kind of url: credentials from Secrets, a volume, a place to look. Pure.

The Secrets are those that the system configuration names, in the Model's namespace; a missing one is no error, as what
is public needs none.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from slipway.apis.kubeai.config import SecretNames
from slipway.artifacts.huggingface import TOKEN, HuggingFaceFile
from slipway.artifacts.urls import ModelUrl
from slipway.artifacts.weights import (
    BucketFolder,
    HubRepository,
    MountedFolder,
    OllamaModel,
    Weights,
)
from slipway.kube.objects import Object
from slipway.serving import volumes
from slipway.serving.server import Mount, variables

FOLDER = "/model"
"""Where a volume with the weights is mounted."""
VOLUME = "model"
GOOGLE_FOLDER, GOOGLE_VOLUME, GOOGLE_FILE = "/secrets/gcp-credentials", "gcp-credentials", "credentials.json"


class Access(msgspec.Struct, frozen=True, kw_only=True):
    """What is added to a container, and to its pod."""

    env: tuple[Object, ...] = ()
    volumes: tuple[Object, ...] = ()
    mounts: tuple[Mount, ...] = ()
    image_pull_secrets: tuple[str, ...] = ()

    def __add__(self, other: Access) -> Access:
        return Access(
            env=self.env + other.env,
            volumes=self.volumes + other.volumes,
            mounts=self.mounts + other.mounts,
            image_pull_secrets=self.image_pull_secrets + other.image_pull_secrets,
        )


def credentials(schemes: Iterable[str], secrets: SecretNames) -> Access:
    """For all of these schemes, each once."""
    return sum((_credentials(scheme, secrets) for scheme in sorted(set(schemes))), Access())


def _credentials(scheme: str, secrets: SecretNames) -> Access:
    if scheme == "hf":
        return Access(env=_from_secret(secrets.huggingface, {TOKEN: "token"}))
    if scheme == "s3":
        keys = {"AWS_ACCESS_KEY_ID": "accessKeyID", "AWS_SECRET_ACCESS_KEY": "secretAccessKey"}
        return Access(env=_from_secret(secrets.aws, keys))
    if scheme == "oss":
        keys = {"OSS_ACCESS_KEY_ID": "accessKeyID", "OSS_ACCESS_KEY_SECRET": "accessKeySecret"}
        return Access(env=_from_secret(secrets.alibaba, keys))
    if scheme == "gs" and secrets.gcp:
        return Access(
            env=variables({"GOOGLE_APPLICATION_CREDENTIALS": f"{GOOGLE_FOLDER}/{GOOGLE_FILE}"}),
            volumes=(volumes.secret(GOOGLE_VOLUME, secrets.gcp, {"jsonKeyfile": GOOGLE_FILE}),),
            mounts=(Mount(GOOGLE_VOLUME, GOOGLE_FOLDER, read_only=True),),
        )
    return Access()


def _from_secret(name: str, keys: dict[str, str]) -> tuple[Object, ...]:
    if not name:
        return ()
    return tuple(
        {"name": variable, "valueFrom": {"secretKeyRef": {"name": name, "key": key, "optional": True}}}
        for variable, key in keys.items()
    )


def mounted(url: ModelUrl, secrets: SecretNames) -> Access:
    """The volume that has the weights, where the url names one."""
    if url.scheme == "pvc":
        mount = Mount(VOLUME, FOLDER, sub_path=url.path.strip("/"))
        return Access(volumes=(volumes.claim(VOLUME, url.name),), mounts=(mount,))
    if url.scheme == "oci":
        return Access(
            volumes=(volumes.image(VOLUME, url.ref),),
            mounts=(Mount(VOLUME, FOLDER, read_only=True),),
            image_pull_secrets=(secrets.oci,) if secrets.oci else (),
        )
    return Access()


def weights(url: ModelUrl, engine: str, cached_at: str) -> Weights:
    """What the engine is told; ``cached_at``: the folder in its container that the cache is mounted at, or empty."""
    if cached_at or url.scheme in ("pvc", "oci"):
        return MountedFolder(cached_at or FOLDER, url.model)
    if url.scheme == "ollama":
        return OllamaModel(url.ref, url.insecure, url.pull)
    if url.scheme == "hf":
        file = url.model if engine == "llamacpp" else ""
        return HuggingFaceFile(url.ref, file) if file else HubRepository(url.ref)
    return BucketFolder(url.place)
