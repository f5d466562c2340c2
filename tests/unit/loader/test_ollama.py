"""Ollama's library: one GGUF model by the protocol of its registry, every byte checked by its digest."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from typing import Any

import pytest
from aiohttp import web

from slipway.artifacts.documents.publication import Publication
from slipway.artifacts.locations.references import parse
from slipway.loader.disk.progress import Meter
from slipway.loader.download.stage import Work
from slipway.loader.publication.publish import PublishRequest, publish
from slipway.loader.transport.errors import LoadError
from slipway.loader.transport.registry import Registry
from slipway.loader.transport.source import Access, open_source

from .conftest import HASTY, Service
from .models import gguf
from .oci import Oci, sha

MODEL = gguf(40_000)
KIND = "application/vnd.ollama.image."


class Library:
    """One model, which tests change."""

    def __init__(self) -> None:
        self.config: dict[str, Any] = {"model_format": "gguf", "model_family": "qwen3", "model_type": "4B"}
        self.layers = [("model", MODEL), ("template", b"{{ .Tools }}"), ("license", b"  Apache License\nVersion 2.0")]
        self.lies: dict[str, bytes] = {}

    @property
    def manifest(self) -> dict[str, Any]:
        def descriptor(kind: str, text: bytes) -> dict[str, Any]:
            return {"mediaType": kind, "digest": sha(text), "size": len(text)}

        config = json.dumps(self.config).encode()
        return {
            "schemaVersion": 2,
            "config": descriptor("application/vnd.docker.container.image.v1+json", config),
            "layers": [descriptor(KIND + kind, text) for kind, text in self.layers],
        }

    def app(self) -> web.Application:
        async def manifest(request: web.Request) -> web.Response:
            if request.match_info["name"] != "qwen3":
                return web.Response(status=404)
            return web.json_response(self.manifest)

        async def blob(request: web.Request) -> web.Response:
            blobs = {sha(text): text for text in (json.dumps(self.config).encode(), *(t for _k, t in self.layers))}
            digest = request.match_info["digest"]
            text = self.lies.get(digest, blobs.get(digest, b""))
            start = request.http_range.start or 0
            headers = {"Content-Range": f"bytes {start}-{len(text) - 1}/{len(text)}"} if start else {}
            return web.Response(body=text[start:], status=206 if start else 200, headers=headers)

        app = web.Application()
        app.router.add_get("/v2/library/{name}/manifests/{tag}", manifest)
        app.router.add_get("/v2/library/{name}/blobs/{digest}", blob)
        return app


@pytest.fixture
def library() -> Library:
    return Library()


@pytest.fixture
def oci(start: Callable[[web.Application], Service]) -> Oci:
    fake = Oci()
    fake.service = start(fake.app())
    return fake


@pytest.fixture
def begin(library: Library, oci: Oci, start: Callable[[web.Application], Service]) -> Callable[[str], Publication]:
    mirror = start(library.app())

    def run(url: str) -> Publication:
        source = open_source(url, {"OLLAMA_ENDPOINT": mirror.url}, Access())
        registry = Registry(parse(f"{oci.host}/cluster/q/uid"), {})
        return publish(source, registry, PublishRequest(name="qwen3", url=url), Work(HASTY, threading.Event(), Meter()))

    return run


def test_a_model_of_the_library_is_published_as_one_file(begin: Any, oci: Oci, library: Library) -> None:
    publication = begin("ollama://qwen3:4b")
    manifest: Any = oci.artifact("cluster/q/uid")

    assert [layer["digest"] for layer in manifest["layers"]] == [sha(MODEL)]
    assert manifest["layers"][0]["annotations"]["org.cncf.model.filepath"] == "qwen3.gguf"
    assert publication.revision == sha(json.dumps(library.manifest).encode())
    assert (publication.facts.architecture, publication.facts.quantization, publication.facts.context) == (
        "qwen3",
        "Q4_K_M",
        40960,
    )
    assert publication.facts.parameters == 40_000
    assert publication.facts.tasks == ("text-generation",)
    assert publication.facts.supported_features == ("ToolCalling",)
    assert json.loads(oci.blobs[manifest["config"]["digest"]])["descriptor"]["licenses"] == ["Apache-2.0"]


def test_an_embedding_model_has_the_endpoint_type_embeddings(begin: Any, library: Library) -> None:
    library.config["model_family"] = "nomic-bert"

    assert begin("ollama://qwen3").facts.endpoint_types == ("Embeddings",)


@pytest.mark.parametrize(
    ("layers", "why"),
    [
        ([], "0 models"),
        ([("model", MODEL), ("model", MODEL + b"x")], "2 models"),
        ([("model", b"not a model")], "not in the format GGUF"),
    ],
)
def test_anything_but_one_gguf_model_is_refused(begin: Any, library: Library, layers: Any, why: str) -> None:
    library.layers = layers
    with pytest.raises(LoadError, match=f"UnsupportedSource: .*{why}"):
        begin("ollama://qwen3")


def test_a_model_of_another_format_is_refused(begin: Any, library: Library) -> None:
    library.config["model_format"] = "safetensors"
    with pytest.raises(LoadError, match="UnsupportedSource"):
        begin("ollama://qwen3")


@pytest.mark.parametrize("which", ["model", "config"])
def test_bytes_that_are_not_what_their_digest_says_are_not_published(
    begin: Any, library: Library, oci: Oci, which: str
) -> None:
    config = json.dumps(library.config).encode()
    text = MODEL if which == "model" else config
    library.lies[sha(text)] = text[:-1] + b"?" if which == "model" else text.replace(b"4B", b"9B")
    with pytest.raises(LoadError):
        begin("ollama://qwen3")
    assert "published" not in oci.tags.get("cluster/q/uid", {})


def test_an_unknown_model_fails_with_its_name(begin: Any) -> None:
    with pytest.raises(LoadError, match=r"SourceNotFound: .*no model other:latest"):
        begin("ollama://other")


@pytest.mark.parametrize(
    "url", ["ollama://:x", "ollama://a/b", "ollama://../x", "ollama://a:b:c", "ollama://a@sha256:0"]
)
def test_a_request_without_a_model_is_rejected(url: str) -> None:
    with pytest.raises(LoadError, match="does not name a model"):
        open_source(url, {}, Access())
