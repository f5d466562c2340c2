"""Names, labels and annotations of a KubeAI Model's objects, with the original KubeAI values if they exist. Pure."""

from __future__ import annotations

import hashlib

from slipway.serving.wire.agent import SERVING, SERVING_LABEL

ADAPTER_LABEL = "adapter.kubeai.org/"
"""Prefix of the label that a pod has for each adapter that it serves, as in the original KubeAI. The rest of the label
is the adapter's name without its model's name, and the value identifies the adapter's version."""
FEATURE = "features.kubeai.org/"
"""Prefix of a Model's label for each of its features."""
FINALIZER = "kubeai.org/cache-eviction"
PROFILE = "slipway.inference/cache-profile"
"""Annotation of a Model with the cache profile of the volume that contains its weights. It stays after the Model's spec
no longer names the profile, until the weights are removed."""
FILES = "slipway.inference/files"
"""Annotation of a Model that has or had files, and may therefore have a ConfigMap."""
LOADED = "models.kubeai.org/"
"""Prefix of a claim's annotation for each Model whose weights on the claim are complete."""
ROOT = "models"
"""Directory on a cache's claim, with a subdirectory for each Model."""
SERVICE_LENGTH = 63


def workload_name(model: str) -> str:
    return f"model-{model}"


def claim_name(profile: str) -> str:
    """Return the name of a cache profile's claim, which all Models of a namespace share."""
    return f"shared-model-cache-{profile}"


def load_name(model: str) -> str:
    return f"load-cache-{model}"


def evict_name(model: str) -> str:
    return f"evict-cache-{model}"


def service_name(model: str) -> str:
    """Return the name of a Model's Service. Service names cannot contain dots, so dots are replaced and a digest keeps
    the name unique."""
    name = workload_name(model)
    return _with_digest(name.replace(".", "-"), model) if "." in name else name


def adapter_service_name(model: str, adapter: str) -> str:
    """Return the name of an adapter's Service. The name contains a digest, because ``model-a-b`` could otherwise be the
    adapter b of the Model a, or the Model a-b."""
    return _with_digest(f"{workload_name(model).replace('.', '-')}-{adapter}", f"{model}/{adapter}")


def _with_digest(name: str, whole: str) -> str:
    digest = hashlib.blake2b(whole.encode(), digest_size=3).hexdigest()
    return f"{name[: SERVICE_LENGTH - len(digest) - 1].rstrip('-')}-{digest}"


def selector(model: str) -> dict[str, str]:
    return {"app": "model", "model": model}


def adapter_selector(model: str, adapter: str) -> dict[str, str]:
    return {"model": model, f"{SERVING_LABEL}{adapter}": SERVING}


def public_name(model: str, adapter: str) -> str:
    """Return the model ID that clients send for an adapter: ``<model>_<adapter>``."""
    return f"{model}_{adapter}"
