"""A registry of Ollama models: ``python3 -m standin.registry --weights FILE MODEL...``; all have the same weights."""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from .files import file_answer
from .ollama.store import MODEL_LAYER, parse_name
from .web import Answer, Handler, Request, as_json, serve

MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
CONFIG = "application/vnd.docker.container.image.v1+json"


def application(weights: bytes, models: Iterable[str]) -> Handler:
    config = json.dumps({"model_format": "gguf", "model_family": "llama", "os": "linux"}).encode()
    blobs = {f"sha256:{hashlib.sha256(content).hexdigest()}": content for content in (weights, config)}
    kinds = zip(blobs, (MODEL_LAYER, CONFIG), strict=True)
    layer, configuration = ({"mediaType": kind, "digest": digest, "size": len(blobs[digest])} for digest, kind in kinds)
    manifest = {"schemaVersion": 2, "mediaType": MANIFEST, "config": configuration, "layers": [layer]}
    tags = {(name.namespace, name.model, name.tag) for name in map(parse_name, models)}

    def handle(request: Request) -> Answer:
        parts = request.path.split("/")
        if len(parts) != 6 or parts[1] != "v2":
            return unknown("NAME_UNKNOWN")
        namespace, model, what, reference = parts[2:]
        if what == "manifests" and (namespace, model, reference) in tags:
            return Answer(json.dumps(manifest).encode(), kind=MANIFEST)
        if what == "blobs" and reference in blobs and any((namespace, model) == name[:2] for name in tags):
            return file_answer(request, blobs[reference], {"Docker-Content-Digest": reference})
        return unknown("MANIFEST_UNKNOWN" if what == "manifests" else "BLOB_UNKNOWN")

    return handle


def unknown(code: str) -> Answer:
    return as_json({"errors": [{"code": code, "message": code.replace("_", " ").lower()}]}, 404)


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="standin.registry")
    parser.add_argument("--port", type=int, default=5000)
    parser.add_argument("--weights", type=Path, required=True)
    parser.add_argument("models", nargs="+")
    flags = parser.parse_args(arguments)
    serve(application(flags.weights.read_bytes(), flags.models), "0.0.0.0", flags.port)


if __name__ == "__main__":
    main(sys.argv[1:])
