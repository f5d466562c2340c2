"""Names and labels of a KubeAI Model's objects, the original's where they exist. Pure."""

from __future__ import annotations

import hashlib

from slipway.serving.wire.agent import SERVING, SERVING_LABEL

ADAPTER_LABEL = "adapter.kubeai.org/"
"""Prefix of the label that a pod has for each adapter that it serves, as in the original; the value shows the version.
The rest is the adapter's own name, without its model's."""
FEATURE = "features.kubeai.org/"
"""Prefix of a Model's label for each of its features."""
FINALIZER = "kubeai.org/cache-eviction"
PROFILE = "slipway.inference/cache-profile"
"""Annotation of a Model: the cache profile of the volume with its weights, even if the Model no longer names it."""
FILES = "slipway.inference/files"
"""Annotation of a Model that has or had files: there may be a ConfigMap with them."""
LOADED = "models.kubeai.org/"
"""Prefix of the claim's annotation for each Model whose weights are complete on it."""
ROOT = "models"
"""Folder on a cache's claim with a subfolder for each Model."""
SERVICE_LENGTH = 63


def workload_name(model: str) -> str:
    return f"model-{model}"


def claim_name(profile: str) -> str:
    """Returns the name of a profile's claim, which all Models of a namespace share."""
    return f"shared-model-cache-{profile}"


def load_name(model: str) -> str:
    return f"load-cache-{model}"


def evict_name(model: str) -> str:
    return f"evict-cache-{model}"


def service_name(model: str) -> str:
    """Returns the Service's name. It cannot contain dots: they are replaced, and a digest keeps it unique."""
    name = workload_name(model)
    return _with_digest(name.replace(".", "-"), model) if "." in name else name


def adapter_service_name(model: str, adapter: str) -> str:
    """Returns the name of an adapter's Service. It always has a digest, because ``model-a-b`` may be the adapter b of
    a, or the model a-b."""
    return _with_digest(f"{workload_name(model).replace('.', '-')}-{adapter}", f"{model}/{adapter}")


def _with_digest(name: str, whole: str) -> str:
    digest = hashlib.blake2b(whole.encode(), digest_size=3).hexdigest()
    return f"{name[: SERVICE_LENGTH - len(digest) - 1].rstrip('-')}-{digest}"


def selector(model: str) -> dict[str, str]:
    return {"app": "model", "model": model}


def adapter_selector(model: str, adapter: str) -> dict[str, str]:
    return {"model": model, f"{SERVING_LABEL}{adapter}": SERVING}


def public_name(model: str, adapter: str) -> str:
    """Returns the model ID of an adapter."""
    return f"{model}_{adapter}"
