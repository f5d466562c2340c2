"""Settings: the operator's settings of only LLMKube."""

from __future__ import annotations

from typing import Literal

import msgspec

from slipway.serving.contract.settings import Settings


class ModelCache(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """The claim of each namespace with the weights of its Models."""

    persistence: Literal["Cached", "Ephemeral", "PerService"] = "Cached"
    """Ephemeral: no claim; every pod downloads its model itself. PerService: pods do so, into a claim of their
    service."""
    size: str = "100Gi"
    storage_class: str = ""
    """Empty: the cluster's default."""
    access_mode: Literal["ReadWriteOnce", "ReadWriteMany"] = "ReadWriteOnce"
    """ReadWriteOnce keeps all pods that read it on one node."""
    run_as_user: int = 65532
    """User that fills it. 0 if volumes do not support a pod's group and so belong to root, like NFS and node
    directories."""


class LLMKubeSettings(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Settings of this API. See :class:`slipway.serving.contract.settings.Settings` for those of all APIs."""

    model_cache: ModelCache = ModelCache()
    shared_gpu_nodes: dict[str, str] = {}
    """Labels of the nodes whose GPUs several services may share; empty: none."""
    revalidate_seconds: int = 3600
    """Interval between two checks of a source for changes; 0: never."""
    hugging_face_secret: str = "llmkube-huggingface"  # noqa: S105 - a name
    """Secret in a Model's namespace with the key ``token`` for gated repositories, if the Model names none."""


def llmkube(settings: Settings) -> LLMKubeSettings:
    """Returns LLMKube's part of the operator's settings. Raises msgspec.ValidationError for values that the controller
    rejects at startup."""
    return msgspec.convert(settings.of("llmkube"), LLMKubeSettings)
