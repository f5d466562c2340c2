"""URLs of models, in the form ``scheme://place?options``. Pure.

The engine, the loader and the pod volumes all get the location of the weights from the same URL.
"""

from __future__ import annotations

import re
from urllib.parse import parse_qsl

import msgspec

from slipway.artifacts.locations.huggingface import fault_of_host, is_host, what_to_write
from slipway.artifacts.locations.weights import FETCHED
from slipway.spelling import did_you_mean

FORM = re.compile(r"([a-z0-9]+)://([^?]+)(?:\?(.*))?")
UNPRINTABLE = re.compile(r"[^!-~]")
PARAMETER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/+@-]*")
WORDS = {"true": True, "false": False}

BUCKETS = ("s3", "gs", "oss")
CACHED = FETCHED
"""Schemes from which caches and adapters can be loaded."""
SCHEMES = ("hf", "ollama", "pvc", *BUCKETS, "oci")
OPTIONS = ("model", "insecure", "pull")


class InvalidUrlError(ValueError):
    """Error for a URL that does not name a model. The message contains the reason and the expected form."""


class ModelUrl(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of a model URL."""

    scheme: str
    ref: str
    """The part of the URL between ``://`` and ``?``."""
    name: str
    """``ref`` up to its first slash: the name of a claim, bucket or owner, depending on the scheme."""
    path: str
    """``ref`` after its first slash. Empty if ``ref`` has no slash."""
    model: str = ""
    """The model to serve if the location contains several: an Ollama model name, or the path of a GGUF file."""
    insecure: bool = False
    """Whether Ollama may connect to the registry without verifying its certificate."""
    pull: bool = True
    """Whether Ollama pulls the model from its registry. If not, the model must already exist."""

    @property
    def place(self) -> str:
        """The URL without its options."""
        return f"{self.scheme}://{self.ref}"


def parse(text: str) -> ModelUrl:
    """Parse a model URL. Raise InvalidUrlError for an invalid or unsupported one."""
    matched = FORM.fullmatch(text)
    if not matched:
        usual = "such as hf://Qwen/Qwen2.5-0.5B-Instruct"
        advice = what_to_write(text, "hf://")
        raise InvalidUrlError(f"{text!r} is not of the form scheme://place, {usual}{advice}")
    scheme, ref, query = matched.groups()
    if scheme in ("http", "https") or (scheme == "hf" and (is_host(ref.partition("/")[0]) or "://" in ref)):
        advice = what_to_write(text, "hf://")
        if advice:
            raise InvalidUrlError(f"{text!r} contains the hub's host{advice}")
    if elsewhere := scheme == "hf" and fault_of_host(ref):
        raise InvalidUrlError(elsewhere)
    if scheme not in SCHEMES:
        suggestion = did_you_mean(scheme, SCHEMES)
        raise InvalidUrlError(f"{text!r}: unknown scheme {scheme}. Use {', '.join(SCHEMES)}{suggestion}")
    if UNPRINTABLE.search(text):
        raise InvalidUrlError(f"{text!r}: URLs cannot contain spaces or non-ASCII characters")
    if ref.startswith(("-", "/")) or ".." in ref.split("/"):
        raise InvalidUrlError(f"{text!r}: {ref!r} must be a relative path without ..")
    name, _slash, path = ref.partition("/")
    plain = ModelUrl(scheme=scheme, ref=ref, name=name, path=path)
    try:
        return _with_options(plain, query or "")
    except InvalidUrlError as error:
        raise InvalidUrlError(f"{text!r}: {error}") from error


def _with_options(url: ModelUrl, query: str) -> ModelUrl:
    for option, value in parse_qsl(query, keep_blank_values=True):
        if option == "model":
            if not PARAMETER.fullmatch(value) or ".." in value.split("/"):
                raise InvalidUrlError(f"model={value} is neither a model name nor a file path")
            url = msgspec.structs.replace(url, model=value)
        elif option in ("insecure", "pull"):
            if value.lower() not in WORDS:
                raise InvalidUrlError(f"{option} must be true or false")
            url = msgspec.structs.replace(url, **{option: WORDS[value.lower()]})
        else:
            suggestion = did_you_mean(option, OPTIONS)
            raise InvalidUrlError(f"unknown option {option}. Use {', '.join(OPTIONS)}{suggestion}")
    return url
