"""Settings: the operator's choices for LLMKube alone."""

from __future__ import annotations

from typing import Literal

import msgspec

from slipway.serving.contract.settings import Settings


class ModelCache(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """The claim of each namespace on which Models are kept."""

    persistence: Literal["Cached", "Ephemeral", "PerService"] = "Cached"
    """Ephemeral: there is no claim; every pod loads its model itself. PerService: so it does, into a claim that its
    service has for itself."""
    size: str = "100Gi"
    storage_class: str = ""
    """Empty: the cluster's default."""
    access_mode: Literal["ReadWriteOnce", "ReadWriteMany"] = "ReadWriteOnce"
    """ReadWriteOnce keeps the pods that read it on one node."""
    run_as_user: int = 65532
    """Who fills it. 0 where volumes take no group from pods and so belong to root, as on NFS and in nodes' folders."""


class LLMKubeSettings(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """See :class:`slipway.serving.contract.settings.Settings` for what every API reads."""

    model_cache: ModelCache = ModelCache()
    shared_gpu_nodes: dict[str, str] = {}
    """Labels of the nodes whose GPUs several services may share; empty: there are none."""
    revalidate_seconds: int = 3600
    """How often a source is asked whether it has changed; 0: never."""
    hugging_face_secret: str = "llmkube-huggingface"  # noqa: S105 - a name
    """Secret of a Model's namespace whose key ``token`` opens gated repositories, where the Model names none."""


def llmkube(settings: Settings) -> LLMKubeSettings:
    """Returns LLMKube's part of the operator's settings. Raises msgspec.ValidationError for values that the controller
    rejects at startup."""
    return msgspec.convert(settings.of("llmkube"), LLMKubeSettings)
