"""Names, labels and paths of the objects of LLMKube's kinds, the original's where they exist. Pure."""

from __future__ import annotations

import hashlib

from slipway.kube.values.names import fitting

GROUP = "inference.llmkube.dev"
MODEL_LABEL, SERVICE_LABEL, RUNTIME_LABEL = f"{GROUP}/model", f"{GROUP}/service", f"{GROUP}/runtime"
FINALIZER = f"{GROUP}/model-cache"
"""Finalizer of a Model until its weights are removed from the cache."""
LORA_FINALIZER = "loraadapter.inference.llmkube.dev/finalizer"
"""The original's finalizer of LoRAAdapters."""
LOADED = f"{GROUP}/"
"""Prefix of a claim's annotation for each complete source on it; the rest is its cache key."""
CLAIM = "llmkube-model-cache"
"""Name of a namespace's cache claim, shared by its Models."""
OWN_CLAIM = "model-cache"
"""Ending of the name of a service's own claim."""
CACHE, SOURCE, HOST = "/models", "/model-source", "/host-model"
"""Mount paths of the cache, of a claim that a source names, and of a file of the node."""
CACHE_VOLUME, SOURCE_VOLUME, HOST_VOLUME = "model-cache", "model-source", "host-model"

GROUP_ID = 102
"""Group of the cache's files, the same as the original's: otherwise pods of two groups would keep changing the group of
all files."""


def cache_key(source: str) -> str:
    """Returns the cache folder for a source as written in the Model. It is the original's, so that new weights replace
    those that the original loaded, which are not used because they may be incomplete."""
    return hashlib.sha256(source.encode()).hexdigest()[:16]


def own_claim(service: str) -> str:
    """Returns the name of a service's own claim: the original's, with a digest if that is not valid."""
    return fitting(f"{service}-{OWN_CLAIM}")


def lora_service(adapter: str) -> str:
    """Returns the name of the Service for the pods with an adapter. It always has a digest, because a service may have
    the same name."""
    return fitting(f"lora_{adapter}")


def job_name(model: str, what: str) -> str:
    """Returns ``<model>-<what>``, with a digest if that is not a valid name of a Job."""
    return fitting(f"{model}-{what}")
