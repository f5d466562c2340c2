"""Model pages: converts the URL of a page on the Hugging Face Hub or in Ollama's library into a source. Pure."""

from __future__ import annotations

import re
from typing import Literal
from urllib.parse import SplitResult, parse_qs, unquote, urlsplit

import msgspec

from slipway.artifacts.locations import huggingface
from slipway.artifacts.locations.redaction import redact_url

Provider = Literal["HuggingFace", "Ollama"]
OLLAMA = ("ollama.com", "www.ollama.com")
OLLAMA_ENDPOINT = "OLLAMA_ENDPOINT"
"""Environment variable of the loader with the address of a mirror of Ollama's registry."""
PAGES = ("tree", *huggingface.FILE_PAGES)
"""Third path components of the Hub's URLs, after which a revision follows."""
NAME, TAG = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}"), re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")


class UnsupportedError(ValueError):
    """The URL does not name a model. The message has the reason."""


class Page(msgspec.Struct, frozen=True):
    """The model that a page describes, and its provider."""

    provider: Provider
    source: str
    """``hf://ORG/REPO[@REVISION]`` or ``ollama://NAME:TAG``."""


def provider_of(url: str) -> Provider | None:
    """Return the provider to which the host of a URL belongs. Return None for another host, a port other than 443, or
    an invalid URL. The model may not exist."""
    host = _split(url).hostname
    return "HuggingFace" if host in huggingface.HOSTS else "Ollama" if host in OLLAMA else None


def parse(url: str) -> Page:
    """Parse the URL of a model's page. Raise UnsupportedError if the URL does not name a model."""
    parts, provider = _split(url), provider_of(url)
    if not url.isprintable() or parts.scheme != "https" or provider is None:
        advice = huggingface.what_to_write(url, "https://huggingface.co/")
        raise UnsupportedError(f"{redact_url(url)!r} is not a URL of Hugging Face or Ollama's library{advice}.")
    words = [unquote(word) for word in parts.path.strip("/").split("/")]
    if provider == "Ollama":
        return _of_library(words, redact_url(url))
    return _of_hub(words, parse_qs(parts.query).get("revision", [""])[0], redact_url(url))


def _of_hub(words: list[str], revision: str, original: str) -> Page:
    """Parse a page of the Hub. The first two components are the repository; the file after a revision is ignored."""
    if not revision and words[2:3] and words[2] in PAGES:
        rest = words[3:]
        revision = "/".join(rest[: 3 if rest[:1] == ["refs"] else 1])
        if not revision:
            raise UnsupportedError(f"{original!r} has no revision after {words[2]}.")
    try:
        reference = huggingface.reference(
            [words[0], "@".join([*words[1:2], *([revision] if revision else [])])], original
        )
    except ValueError as error:
        raise UnsupportedError(f"{error}.") from None
    return Page("HuggingFace", f"hf://{reference.pinned}")


def _of_library(words: list[str], original: str) -> Page:
    name, colon, tag = words[1].partition(":") if words[0] == "library" and len(words) > 1 else ("", "", "")
    tag = tag if colon else "latest"
    if not NAME.fullmatch(name) or not TAG.fullmatch(tag):
        raise UnsupportedError(f"{original!r} does not name a model in Ollama's library, such as library/qwen3:8b.")
    return Page("Ollama", f"ollama://{name}:{tag}")


def _split(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        return parts if parts.port in (None, 443) else SplitResult("", "", "", "", "")
    except ValueError:
        return SplitResult("", "", "", "", "")
