"""Model urls: ``scheme://place?options``, what they say and which engines can take which. Pure.

The same text tells the engine, the loader and the pod's volumes where the weights are.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from urllib.parse import parse_qsl

import msgspec

FORM = re.compile(r"([a-z0-9]+)://([^?]+)(?:\?(.*))?")
UNPRINTABLE = re.compile(r"[^!-~]")
PARAMETER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/+@-]*")
WORDS = {"true": True, "false": False}

BUCKETS = ("s3", "gs", "oss")
CACHED = ("hf", *BUCKETS)
"""What the loader can fetch: for a cache, or as an adapter."""
SCHEMES = ("hf", "ollama", "pvc", *BUCKETS, "oci")


class InvalidUrl(ValueError):
    """The url names no model; the message says what is wrong and what is expected."""


class ModelUrl(msgspec.Struct, frozen=True, kw_only=True):
    """A model url in parts."""

    scheme: str
    ref: str
    """All between ``://`` and ``?``."""
    name: str
    """``ref`` up to its first slash: claim, bucket, owner."""
    path: str
    """``ref`` behind its first slash; empty where there is none."""
    model: str = ""
    """What to serve of a place that holds several: Ollama's model name, or a GGUF file's path."""
    insecure: bool = False
    """Whether Ollama may take its registry's certificate unseen."""
    pull: bool = True
    """Whether Ollama asks its registry; else the model must be there."""

    @property
    def place(self) -> str:
        """The url without its options."""
        return f"{self.scheme}://{self.ref}"


def parse(text: str) -> ModelUrl:
    """Raises InvalidUrl."""
    matched = FORM.fullmatch(text)
    if not matched:
        raise InvalidUrl(f"{text!r} is not of the form scheme://place, such as hf://Qwen/Qwen2.5-0.5B-Instruct")
    scheme, ref, query = matched.groups()
    if scheme not in SCHEMES:
        raise InvalidUrl(f"{text!r}: the scheme {scheme} is not known, but {', '.join(SCHEMES)}")
    if UNPRINTABLE.search(text):
        raise InvalidUrl(f"{text!r}: spaces and characters beyond ASCII have no place in a url")
    if ref.startswith(("-", "/")) or ".." in ref.split("/"):
        raise InvalidUrl(f"{text!r}: {ref!r} must begin with a name and stay below it")
    name, _slash, path = ref.partition("/")
    plain = ModelUrl(scheme=scheme, ref=ref, name=name, path=path)
    try:
        return _with_options(plain, query or "")
    except InvalidUrl as error:
        raise InvalidUrl(f"{text!r}: {error}") from error


def _with_options(url: ModelUrl, query: str) -> ModelUrl:
    for option, value in parse_qsl(query, keep_blank_values=True):
        if option == "model":
            if not PARAMETER.fullmatch(value) or ".." in value.split("/"):
                raise InvalidUrl(f"model={value} is neither a model's name nor a file's path")
            url = msgspec.structs.replace(url, model=value)
        elif option in ("insecure", "pull"):
            if value.lower() not in WORDS:
                raise InvalidUrl(f"{option} must be true or false")
            url = msgspec.structs.replace(url, **{option: WORDS[value.lower()]})
        else:
            raise InvalidUrl(f"the option {option} is not known, but model, insecure and pull")
    return url


OWN_REGISTRY = (
    "Ollama keeps models in a format of its own: write ollama://<model>, or ollama://hf.co/<owner>/<repository>"
)
OLLAMA_ONLY = "only the engine OLlama reads Ollama's registry: write hf://<owner>/<repository>"
CACHE_FIRST = "the engine does not read buckets itself: name a cacheProfile"

DIRECT: Mapping[str, Mapping[str, str]] = {
    "ollama": dict.fromkeys((*CACHED, "oci"), OWN_REGISTRY),
    "vllm": {"ollama": OLLAMA_ONLY, "gs": CACHE_FIRST, "oss": CACHE_FIRST},
    **{
        engine: {"ollama": OLLAMA_ONLY} | dict.fromkeys(BUCKETS, CACHE_FIRST)
        for engine in ("fasterwhisper", "infinity", "sglang", "llamacpp")
    },
}
"""Engine -> scheme that it cannot take -> why. What is not named here it takes."""

NAMES_MODEL: Mapping[str, str] = {
    "ollama": "the claim may hold several models: add ?model=<name>, such as pvc://claim?model=qwen2:0.5b",
    "llamacpp": "llama.cpp needs a file: add ?model=<path of the GGUF file>, such as pvc://claim?model=qwen.gguf",
}
"""Engine -> what to say where a folder alone does not name the model."""


def refusal(url: ModelUrl, engine: str, *, cached: bool) -> str | None:
    """Why an engine (``vllm``, ``ollama`` ...) cannot take a url, or None; ``cached`` says whether the loader fetches
    the weights into a cache beforehand."""
    if cached and url.scheme not in CACHED:
        return f"{url.place}: a cache can be filled from {', '.join(CACHED)} only"
    fault = DIRECT.get(engine, {}).get(url.scheme)
    if fault and not (cached and fault == CACHE_FIRST):
        return f"{url.place}: {fault}"
    folder = cached or url.scheme in ("pvc", "oci")
    if folder and not url.model and engine in NAMES_MODEL:
        return f"{url.place}: {NAMES_MODEL[engine]}"
    return None
