"""Ollama's library, or a mirror of it: ``ollama://NAME[:TAG]``, read with the protocol of container registries.

A model is a single GGUF file. Every blob is identified and verified by its SHA-256.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Annotated

import msgspec
import requests

from slipway.artifacts.documents.publication import Digest as BlobDigest
from slipway.artifacts.headers.gguf import MAGIC
from slipway.decoding import DecodingError, decode_json
from slipway.loader.transport import http
from slipway.loader.transport.digests import Digest, Kind
from slipway.loader.transport.errors import LoadError, TransientError
from slipway.loader.transport.selection import FaultError
from slipway.loader.transport.source import Access, Body, Entry, Listing, Retry, Source

ENDPOINT = "OLLAMA_ENDPOINT"
"""Environment variable with the URL of a mirror of Ollama's library."""
PUBLIC = "https://registry.ollama.ai"
ACCEPT = "application/vnd.docker.distribution.manifest.v2+json, application/vnd.oci.image.manifest.v1+json"
PREFIX = "application/vnd.ollama.image."
MODEL, TEMPLATE, LICENSE = f"{PREFIX}model", f"{PREFIX}template", f"{PREFIX}license"
MOST_CONFIG, MOST_TEXT = 1 << 20, 256 << 10
"""Maximum size in bytes of a model's manifest or configuration, and of its template or license."""
REFERENCE = re.compile(r"(?:library/)?([A-Za-z0-9][A-Za-z0-9._-]{0,127})(?::([A-Za-z0-9][A-Za-z0-9._-]{0,127}))?")
LICENSES: tuple[tuple[str, str], ...] = (
    ("Apache License", "Apache-2.0"),
    ("MIT License", "MIT"),
    ("Permission is hereby granted, free of charge", "MIT"),
)
"""Text in a license -> SPDX name of the license."""
TOOLS = ".Tools"
EMBEDDING = "bert"


class _Layer(msgspec.Struct, frozen=True, rename="camel"):
    media_type: str
    digest: BlobDigest
    size: Annotated[int, msgspec.Meta(ge=0)]


class _Manifest(msgspec.Struct, frozen=True):
    config: _Layer
    layers: tuple[_Layer, ...]


class _Config(msgspec.Struct, frozen=True):
    model_format: str = ""
    model_family: str = ""


class Ollama:
    def __init__(self, name: str, tag: str, env: Mapping[str, str], access: Access) -> None:
        self._name, self._tag = name, tag
        self._endpoint = (env.get(ENDPOINT) or PUBLIC).rstrip("/")
        self._client = http.session(env, address_policy=access.of(chosen=bool(env.get(ENDPOINT))))
        self._root = f"{self._endpoint}/v2/library/{name}"

    def listing(self, retry: Retry) -> Listing:
        """List the model's only file. Raise LoadError if the model is not a single GGUF file."""
        content = retry(self._manifest)
        try:
            manifest = decode_json(content, _Manifest, most=MOST_CONFIG)
        except DecodingError as error:
            raise FaultError(
                "UnsupportedSource", f"{self._display_name()} has a manifest that cannot be read"
            ) from error
        models = [layer for layer in manifest.layers if layer.media_type == MODEL]
        if len(models) != 1:
            raise FaultError(
                "UnsupportedSource", f"{self._display_name()} has {len(models)} models in it instead of one"
            )
        config = self._document(retry(lambda: self._blob(manifest.config, MOST_CONFIG)))
        entry = self._entry(models[0])
        if config.model_format not in ("", "gguf") or retry(lambda: self._magic(entry)) != MAGIC:
            raise FaultError("UnsupportedSource", f"{self._display_name()} is not in the format GGUF")
        texts = {
            kind: retry(lambda layer=layer: self._blob(layer, MOST_TEXT)).decode("utf-8", "replace")  # type: ignore[misc]
            for kind in (TEMPLATE, LICENSE)
            for layer in manifest.layers
            if layer.media_type == kind and layer.size <= MOST_TEXT
        }
        features = ("tools",) if TOOLS in texts.get(TEMPLATE, "") else ()
        license_ = next((spdx for words, spdx in LICENSES if words in texts.get(LICENSE, "")), "")
        task = "embedding" if EMBEDDING in config.model_family else "text-generation"
        return Listing(
            revision=f"sha256:{hashlib.sha256(content).hexdigest()}",
            entries=(entry,),
            tasks=(task,) if config.model_family else (),
            features=features,
            licenses=(license_,) if license_ else (),
        )

    def read(self, entry: Entry, start: int) -> AbstractContextManager[Body]:
        """Open the model's file at offset ``start``. Raise LoadError or TransientError."""
        return http.open_body(self._client, entry.locator, start, self._explain)

    def _entry(self, layer: _Layer) -> Entry:
        value = layer.digest.partition(":")[2]
        name = f"{self._name}.gguf"
        return Entry(name, f"{self._root}/blobs/{layer.digest}", layer.size, Digest(Kind.SHA256, value), layer.digest)

    def _manifest(self) -> bytes:
        with http.get(self._client, f"{self._root}/manifests/{self._tag}", self._explain, {"Accept": ACCEPT}) as answer:
            return http.content(answer, MOST_CONFIG)

    def _blob(self, layer: _Layer, most: int) -> bytes:
        """Return a small blob. Raise FaultError if it is larger than ``most`` bytes, or TransientError if it does not
        match its digest."""
        if layer.size > most:
            raise FaultError("UnsupportedSource", f"{self._display_name()} has a configuration of {layer.size} bytes")
        with http.get(self._client, f"{self._root}/blobs/{layer.digest}", self._explain) as answer:
            content = http.content(answer, most)
        if f"sha256:{hashlib.sha256(content).hexdigest()}" != layer.digest:
            raise TransientError(f"{http.host_of(self._endpoint)} sent data that does not match {layer.digest}")
        return content

    def _magic(self, entry: Entry) -> bytes:
        magic = bytearray()
        with self.read(entry, 0) as body:
            while len(magic) < len(MAGIC) and (chunk := body.read(len(MAGIC) - len(magic))):
                magic += chunk
        return bytes(magic)

    def _document(self, content: bytes) -> _Config:
        try:
            return decode_json(content, _Config, most=MOST_CONFIG)
        except DecodingError as error:
            raise FaultError(
                "UnsupportedSource", f"{self._display_name()} has a configuration that cannot be read"
            ) from error

    def _display_name(self) -> str:
        return f"ollama://{self._name}:{self._tag}"

    def _explain(self, response: requests.Response) -> str:
        host, status = http.host_of(self._endpoint), response.status_code
        if status in (401, 404):
            return f"SourceNotFound: {host} has no model {self._name}:{self._tag}: check its name and tag"
        return f"{host} answers {status} for {self._display_name()}: check the address"


def open_source(url: str, env: Mapping[str, str], access: Access) -> Source:
    """Return the source of an ``ollama://`` URL. Raise LoadError if the URL is invalid."""
    match = REFERENCE.fullmatch(url.partition("://")[2])
    if match is None:
        raise LoadError(f"{url!r} does not name a model of Ollama's library: write ollama://NAME[:TAG]")
    return Ollama(match[1], match[2] or "latest", env, access)
