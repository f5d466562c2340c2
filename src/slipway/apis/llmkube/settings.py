"""The operator's settings for LLMKube."""

from __future__ import annotations

from typing import Literal

import msgspec

from slipway.serving.contract.settings import Settings


class ModelCache(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Settings of the claims that Slipway creates for weights: one in each namespace, or one for each InferenceService.
    A service can choose another claim, or downloads by each pod, with ``spec.modelCache``."""

    persistence: Literal["Cached", "Ephemeral", "PerService"] = "Cached"
    """``Cached``: the Models of each namespace share a claim. ``Ephemeral``: there is no claim, and every pod downloads
    its weights itself. ``PerService``: every pod downloads its weights into a claim of its service."""
    size: str = "100Gi"
    storage_class: str = ""
    """StorageClass of the claim; empty: the cluster's default."""
    access_mode: Literal["ReadWriteOnce", "ReadWriteMany"] = "ReadWriteOnce"
    """Access mode of the claim. ``ReadWriteOnce`` keeps all pods that read the claim on one node."""
    run_as_user: int = 65532
    """ID of the user that writes to the claim. Set 0 for volumes that belong to root and ignore a pod's group, such as
    NFS and node directories."""


class LLMKubeSettings(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Settings of only LLMKube. :class:`slipway.serving.contract.settings.Settings` has the settings of all APIs."""

    model_cache: ModelCache = ModelCache()
    shared_gpu_nodes: dict[str, str] = {}
    """Labels of the nodes whose GPUs several services may share; empty: none."""
    revalidate_seconds: int = 3600
    """Seconds between two checks of a source for changes; 0: no checks."""
    hugging_face_secret: str = "llmkube-huggingface"  # noqa: S105 - a name
    """Name of the Secret, in a Model's namespace, with the key ``token`` for gated repositories, if the Model names no
    Secret."""


def llmkube(settings: Settings) -> LLMKubeSettings:
    """Return LLMKube's part of the operator's settings. Raise msgspec.ValidationError for invalid values, which the
    controller rejects at startup."""
    return msgspec.convert(settings.of("llmkube"), LLMKubeSettings)
