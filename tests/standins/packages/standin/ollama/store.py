"""Names of models, and the folder ``OLLAMA_MODELS`` that holds manifests and blobs as Ollama lays them out."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

REGISTRY = "registry.ollama.ai"
MODEL_LAYER = "application/vnd.ollama.image.model"


class Name(NamedTuple):
    scheme: str
    host: str
    namespace: str
    model: str
    tag: str

    @property
    def short(self) -> str:
        """As Ollama shows it: without what is the default."""
        parts = [self.namespace, self.model] if self.namespace != "library" else [self.model]
        parts = [self.host, self.namespace, self.model] if self.host != REGISTRY else parts
        return f"{'/'.join(parts)}:{self.tag}"

    @property
    def path(self) -> Path:
        return Path(self.host, self.namespace, self.model, self.tag)


def parse_name(text: str) -> Name:
    """``[scheme://][host/][namespace/]model[:tag]``."""
    scheme, separator, rest = text.partition("://")
    if not separator:
        scheme, rest = "https", text
    *before, last = rest.split("/")
    model, _colon, tag = last.partition(":")
    host = before[0] if len(before) > 1 else REGISTRY
    namespace = before[-1] if before else "library"
    return Name(scheme, host, namespace, model, tag or "latest")


class Store:
    def __init__(self, root: str) -> None:
        self.root = Path(root)

    def manifest(self, name: Name) -> dict[str, Any] | None:
        try:
            manifest: dict[str, Any] = json.loads((self.root / "manifests" / name.path).read_bytes())
        except OSError:
            return None
        return manifest

    def keep(self, name: Name, manifest: bytes) -> None:
        path = self.root / "manifests" / name.path
        path.parent.mkdir(parents=True, exist_ok=True)
        # Several pods may share a volume, so the file appears whole.
        unfinished = path.with_name(f".{path.name}.{os.getpid()}")
        unfinished.write_bytes(manifest)
        unfinished.replace(path)

    def blob(self, digest: str) -> Path:
        return self.root / "blobs" / digest.replace(":", "-")

    def keep_blob(self, digest: str, content: bytes) -> None:
        """Raises ValueError where the content is not what the digest says."""
        if f"sha256:{hashlib.sha256(content).hexdigest()}" != digest:
            raise ValueError(f"digest mismatch, file must be downloaded again: want {digest}")
        path = self.blob(digest)
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_name(f"{path.name}-partial-{os.getpid()}")
        unfinished.write_bytes(content)
        unfinished.replace(path)

    def weights(self, name: Name) -> Path | None:
        """The file of a model's weights; None where there is no such model."""
        manifest = self.manifest(name)
        layers = manifest["layers"] if manifest else []
        return next((self.blob(layer["digest"]) for layer in layers if layer["mediaType"] == MODEL_LAYER), None)

    def names(self) -> Iterator[Name]:
        for path in sorted((self.root / "manifests").glob("*/*/*/[!.]*")):
            yield Name("https", *path.relative_to(self.root / "manifests").parts)
