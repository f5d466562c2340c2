"""Names, labels and paths of the objects of LLMKube's kinds, the original's where they exist. Pure."""

from __future__ import annotations

import hashlib

from slipway.kube.values.names import fitting

GROUP = "inference.llmkube.dev"
MODEL_LABEL, SERVICE_LABEL, RUNTIME_LABEL = f"{GROUP}/model", f"{GROUP}/service", f"{GROUP}/runtime"
FINALIZER = f"{GROUP}/model-cache"
"""Kept on a Model until its weights have left the cache."""
LORA_FINALIZER = "loraadapter.inference.llmkube.dev/finalizer"
"""The original's, on LoRAAdapters."""
LOADED = f"{GROUP}/"
"""Prefix of a claim's annotation for each source that is complete on it; what follows is its cache key."""
CLAIM = "llmkube-model-cache"
"""The cache of a namespace: a claim, shared by its Models."""
OWN_CLAIM = "model-cache"
"""What the name of a claim ends with that one service has for itself."""
CACHE, SOURCE, HOST = "/models", "/model-source", "/host-model"
"""Where containers find the cache, a claim that a source names, and a file of the node."""
CACHE_VOLUME, SOURCE_VOLUME, HOST_VOLUME = "model-cache", "model-source", "host-model"

GROUP_ID = 102
"""Of the cache's files: that of the original's. Pods of two groups would give all files from one to the other."""


def cache_key(source: str) -> str:
    """Returns the folder of the cache for a source, as the Model writes it. It is the original's, so that new weights
    replace those that the original loaded, which are not used because they may be incomplete."""
    return hashlib.sha256(source.encode()).hexdigest()[:16]


def own_claim(service: str) -> str:
    """Returns the name of a service's own claim: the original's, with a digest if that is not a valid name."""
    return fitting(f"{service}-{OWN_CLAIM}")


def lora_service(adapter: str) -> str:
    """Of the Service that leads to the pods with an adapter: always with a digest, as a service may be called so."""
    return fitting(f"lora_{adapter}")


def job_name(model: str, what: str) -> str:
    """Returns ``<model>-<what>``, with a digest if that is not a valid name of a Job."""
    return fitting(f"{model}-{what}")
