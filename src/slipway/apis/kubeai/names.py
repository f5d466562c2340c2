"""Names and labels of what a KubeAI Model becomes. The original's, as far as it has them. Pure."""

from __future__ import annotations

import hashlib

from slipway.serving.agent import SERVING, SERVING_LABEL

FEATURE = "features.kubeai.org/"
"""Prefix of the label that a Model has for each of its features."""
FINALIZER = "kubeai.org/cache-eviction"
PROFILE = "slipway.inference/cache-profile"
"""Annotation of a Model: the cache profile whose volume has its weights, also when the Model names it no longer."""
FILES = "slipway.inference/files"
"""Annotation of a Model that has files, or had some: there may be a ConfigMap with them."""
SERVICE_LENGTH = 63


def workload_name(model: str) -> str:
    return f"model-{model}"


def service_name(model: str) -> str:
    """A Service's name takes no dots: where they had to go, a digest keeps names apart."""
    name = workload_name(model)
    return _told_apart(name.replace(".", "-"), model) if "." in name else name


def adapter_service_name(model: str, adapter: str) -> str:
    """Always with a digest, as ``model-a-b`` may be the adapter b of a or the model a-b."""
    return _told_apart(f"{workload_name(model).replace('.', '-')}-{adapter}", f"{model}/{adapter}")


def _told_apart(name: str, whole: str) -> str:
    digest = hashlib.blake2b(whole.encode(), digest_size=3).hexdigest()
    return f"{name[: SERVICE_LENGTH - len(digest) - 1].rstrip('-')}-{digest}"


def selector(model: str) -> dict[str, str]:
    return {"app": "model", "model": model}


def adapter_selector(model: str, adapter: str) -> dict[str, str]:
    return {"model": model, f"{SERVING_LABEL}{adapter}": SERVING}


def public_name(model: str, adapter: str) -> str:
    """The model id of an adapter."""
    return f"{model}_{adapter}"
