"""Names, labels and paths of LLMKube's objects. They are the original's if the original has such objects. Pure."""

from __future__ import annotations

import hashlib

from slipway.kube.values.names import fitting

GROUP = "inference.llmkube.dev"
MODEL_LABEL, SERVICE_LABEL, RUNTIME_LABEL = f"{GROUP}/model", f"{GROUP}/service", f"{GROUP}/runtime"
FINALIZER = f"{GROUP}/model-cache"
"""Finalizer that a Model has until its weights are deleted from the cache or handed to another Model."""
LORA_FINALIZER = "loraadapter.inference.llmkube.dev/finalizer"
"""Finalizer that the original sets on LoRAAdapters. Slipway does not set it, but removes it on deletion."""
LOADED = f"{GROUP}/"
"""Prefix of the annotations that contain cache records. The rest of an annotation's name is the cache key."""
CLAIM = "llmkube-model-cache"
"""Name of a namespace's cache claim, shared by its Models."""
OWN_CLAIM = "model-cache"
"""Suffix of the name of a service's dedicated claim."""
CACHE, SOURCE, HOST = "/models", "/model-source", "/host-model"
"""Mount paths of the cache, of a claim that a Model's source names, and of a node path."""
CACHE_VOLUME, SOURCE_VOLUME, HOST_VOLUME = "model-cache", "model-source", "host-model"

GROUP_ID = 102
"""Group ID of the files in the cache. It is the original's group ID, because pods with two different IDs would keep
changing the group of all files."""


def cache_key(source: str) -> str:
    """Return the name of the cache directory for a source. ``source`` is the Model's source, followed by its files, if
    any, each on its own line. Without files, it is the original's name, so that new weights replace weights that the
    original loaded. The latter are never used, because they may be incomplete."""
    return hashlib.sha256(source.encode()).hexdigest()[:16]


def own_claim(service: str) -> str:
    """Return the name of a service's dedicated claim. It is the original's name, shortened with a digest if that is not
    valid."""
    return fitting(f"{service}-{OWN_CLAIM}")


def lora_service(adapter: str) -> str:
    """Return the name of the Service for the pods that have loaded an adapter. The name always has a digest, so that it
    cannot be the name of another service."""
    return fitting(f"lora_{adapter}")


def job_name(model: str, what: str) -> str:
    """Return the name of a Model's Job, ``<model>-<what>``, shortened with a digest if that is not valid."""
    return fitting(f"{model}-{what}")
