"""Engines of KubeAI Models: their names, their images, and the URLs that each of them can read. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import get_args

from msgspec.structs import replace

from slipway import engines
from slipway.apis.kubeai import types
from slipway.apis.kubeai.urls import BUCKETS, CACHED, ModelUrl
from slipway.engines.definition.engine import Engine

ENGINES: Mapping[str, Engine] = {name: engines.ENGINES[name.lower()] for name in get_args(types.Engine)}
"""``spec.engine`` -> engine."""
IMAGE_NAMES = {
    "default": "",
    "cpu": "cpu",
    "nvidia-gpu": "cuda",
    "gh200": "gh200",
    "amd-gpu": "rocm",
    "google-tpu": "tpu",
}
"""Image name in the system configuration -> accelerator. An empty accelerator stands for the default image."""

WITHOUT_SECURITY_CONTEXT = frozenset({"Infinity"})
"""Engines whose containers ignore ``modelServerPods.securityContext`` in KubeAI."""

HUB = "hf"
OWN_REGISTRY = "Ollama has its own model format. Write ollama://<model>, or ollama://hf.co/<owner>/<repository>"
OLLAMA_ONLY = "only the engine OLlama reads Ollama's registry. Write hf://<owner>/<repository>"
CACHE_FIRST = "the engine does not read buckets. Set cacheProfile"
NAMES_MODEL = {
    "store": "the PVC can contain several models. Add ?model=<name>, such as pvc://claim?model=qwen2:0.5b",
    "file": "llama.cpp needs a file. Add ?model=<path of the GGUF file>, such as pvc://claim?model=qwen.gguf",
}
"""What an engine reads, ``store`` or ``file`` -> advice for URLs of volumes that do not identify the model."""


def images(engine: Engine) -> dict[str, str]:
    """Return the public images of an engine, by image name in the system configuration."""
    return {
        name: engine.images[accelerator] for name, accelerator in IMAGE_NAMES.items() if accelerator in engine.images
    }


def located(url: ModelUrl, engine: Engine) -> ModelUrl:
    """Split the path of a URL such as ``pvc://claim/folder/model.gguf`` into directory and file if the engine reads a
    file. Pods then mount the directory. Return other URLs unchanged."""
    folder, _slash, file = url.path.rpartition("/")
    if url.scheme != "pvc" or url.model or engine.reads != "file" or not file.lower().endswith(".gguf"):
        return url
    return replace(url, path=folder, model=file)


def refusal(url: ModelUrl, engine: Engine, *, cached: bool) -> str | None:
    """Return the reason why an engine cannot use a URL, or None if it can. ``cached``: whether the loader first
    downloads the weights into a cache."""
    if cached and url.scheme not in CACHED:
        return f"{url.place!r}: caches support only {', '.join(CACHED)}"
    # A cache has the layout of a Hub repository, even if the weights came from a bucket.
    if (HUB if cached else url.scheme) not in engine.schemes:
        return f"{url.place!r}: {_advice(url.scheme, engine)}"
    if url.scheme == HUB and ":" in url.ref and (cached or engine.reads != "file"):
        repository = url.ref.partition(":")[0]
        reader = "a cache" if cached else "the engine"
        return f"{url.place!r}: {reader} does not support quantizations. Write {HUB}://{repository}"
    mounted = cached or url.scheme in ("pvc", "oci")
    if mounted and not url.model and engine.reads in NAMES_MODEL:
        return f"{url.place!r}: {NAMES_MODEL[engine.reads]}"
    return None


def _advice(scheme: str, engine: Engine) -> str:
    if engine.reads == "store":
        return OWN_REGISTRY
    if scheme == "ollama":
        return OLLAMA_ONLY
    if scheme in BUCKETS and HUB in engine.schemes:
        return CACHE_FIRST
    schemes = ", ".join(f"{one}://" for one in sorted(engine.schemes))
    return f"the engine does not support {scheme}://. Use {schemes}"
