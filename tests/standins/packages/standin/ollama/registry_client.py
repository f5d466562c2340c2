"""Pulls a model from a registry by Ollama's protocol: a manifest, then the blobs that it names.

``STANDIN_OLLAMA_REGISTRY`` names the registry in place of the public one, which tests do not reach.
"""

from __future__ import annotations

import json
import os
import urllib.error
import urllib.request
from collections.abc import Iterator

from .store import REGISTRY, Name, Store


class PullError(Exception):
    """The message is Ollama's."""


def pull(store: Store, name: Name, insecure: bool) -> Iterator[str]:
    """Yields what happens; raises PullError."""
    base = registry_of(name, insecure)
    yield "pulling manifest"
    text = fetch(f"{base}/manifests/{name.tag}", "pull model manifest")
    manifest = json.loads(text)
    for layer in [*manifest["layers"], manifest["config"]]:
        digest = layer["digest"]
        if not store.blob(digest).exists():
            yield f"pulling {digest[7:19]}"
            try:
                store.keep_blob(digest, fetch(f"{base}/blobs/{digest}", "max retries exceeded"))
            except ValueError as error:
                raise PullError(str(error)) from error
    yield "verifying sha256 digest"
    yield "writing manifest"
    store.keep(name, text)
    yield "success"


def registry_of(name: Name, insecure: bool) -> str:
    """Address of the repository; raises PullError where it would be asked without TLS against the caller's will."""
    scheme, host = name.scheme, name.host
    public = os.environ.get("STANDIN_OLLAMA_REGISTRY")
    if host == REGISTRY and public:
        return f"{public.rstrip('/')}/v2/{name.namespace}/{name.model}"
    if scheme == "http" and not insecure:
        raise PullError("insecure protocol http")
    return f"{'http' if insecure else scheme}://{host}/v2/{name.namespace}/{name.model}"


def fetch(url: str, step: str) -> bytes:
    try:
        with urllib.request.urlopen(url, timeout=30) as answer:
            content: bytes = answer.read()
    except urllib.error.HTTPError as error:
        raise PullError(f"{step}: {'file does not exist' if error.code == 404 else error}") from error
    except OSError as error:
        raise PullError(f'{step}: Get "{url}": {error}') from error
    return content
