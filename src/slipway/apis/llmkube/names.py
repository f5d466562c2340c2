"""Names, labels and places of what LLMKube's kinds become. The original's, as far as it has them. Pure."""

from __future__ import annotations

import hashlib
import re

GROUP = "inference.llmkube.dev"
MODEL_LABEL, SERVICE_LABEL, RUNTIME_LABEL = f"{GROUP}/model", f"{GROUP}/service", f"{GROUP}/runtime"
FINALIZER = f"{GROUP}/model-cache"
"""Kept on a Model until its weights have left the cache."""
LOADED = f"{GROUP}/"
"""Prefix of a claim's annotation for each source that is complete on it; what follows is its cache key."""
CLAIM = "llmkube-model-cache"
"""The cache of a namespace: a claim, shared by its Models."""
CACHE, SOURCE, HOST = "/models", "/model-source", "/host-model"
"""Where containers find the cache, a claim that a source names, and a file of the node."""
CACHE_VOLUME, SOURCE_VOLUME, HOST_VOLUME = "model-cache", "model-source", "host-model"

GROUP_ID = 102
"""Of the cache's files: that of the original's. Pods of two groups would give all files from one to the other."""
NAME_LENGTH = 63
"""Of labels' values, Services, and Jobs, whose pods carry the name as a label."""
KEPT = re.compile(r"[^A-Za-z0-9._-]+")
INVALID = re.compile(r"[^a-z0-9-]+")
SUFFIX = ".gguf"


def cache_key(source: str) -> str:
    """Folder of the cache for a source, as the Model writes it. Neither namespace nor revision are in it, so that a
    cache that the original filled is of use."""
    return hashlib.sha256(source.encode()).hexdigest()[:16]


def file_name(told: str, model: str) -> str:
    """Name of a GGUF file in the cache: what its source calls it, without what shells and engines trip over, else the
    Model's name, else ``model``."""
    stem = told[: -len(SUFFIX)] if told.lower().endswith(SUFFIX) else told
    return (clean(stem) or clean(model) or "model") + SUFFIX


def clean(text: str) -> str:
    """Letters, digits, dots, underscores and hyphens; one hyphen for whatever lies between."""
    return KEPT.sub("-", text).strip("-._")


def job_name(model: str, what: str) -> str:
    """``<model>-<what>``, told apart by a digest where that is no name of a Job."""
    return fitting(f"{model}-{what}", NAME_LENGTH)


def fitting(name: str, longest: int = NAME_LENGTH) -> str:
    """A DNS label for a name: the name itself where it is one, else what is left of it with a digest of all of it."""
    plain = INVALID.sub("-", name.lower()).strip("-")
    if plain == name and len(name) <= longest:
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:8]
    return f"{plain[: longest - len(digest) - 1].rstrip('-')}-{digest}".lstrip("-")


def label_value(name: str) -> str:
    """A name as the value of a label: itself wherever that may be."""
    return name if len(name) <= NAME_LENGTH else fitting(name)
