"""Ollama's server: its own API under ``/api``, OpenAI's under ``/v1``."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

from ..generation import Generator
from ..openai import OpenAI
from ..web import Answer, Handler, Refused, Request, as_json, routes, serve
from .registry_client import PullError, pull
from .runner import Runners, passed_on
from .store import Store, parse_name


def address(for_client: bool) -> tuple[str, int]:
    """Host and port of ``OLLAMA_HOST``; a client reaches a server on all addresses by the local one."""
    host, _colon, port = os.environ.get("OLLAMA_HOST", "127.0.0.1:11434").removeprefix("http://").partition(":")
    return "127.0.0.1" if for_client and host in ("0.0.0.0", "") else host, int(port or 11434)


def serve_models() -> None:
    root = os.environ.get("OLLAMA_MODELS", str(Path.home() / ".ollama" / "models"))
    host, port = address(for_client=False)
    print(f"Listening on {host}:{port} (version 0.11.11)", flush=True)
    serve(application(Store(root)), host, port)


def application(store: Store) -> Handler:
    own = Ollama(store)
    table = routes(
        {
            "GET /": own.running,
            "HEAD /": own.running,
            "GET /api/version": lambda _request: as_json({"version": "0.11.11"}),
            "GET /api/tags": own.tags,
            "POST /api/pull": own.pull,
            "POST /api/copy": own.copy,
            "POST /api/generate": own.generate,
            "GET /v1/models": own.models,
            **{f"POST /v1/{path}": own.openai for path in ("chat/completions", "completions", "embeddings")},
        }
    )

    def handle(request: Request) -> Answer:
        """Errors of Ollama's own API are a bare text."""
        try:
            return table(request)
        except Refused as refused:
            if not request.path.startswith("/api/"):
                raise
            message = json.loads(refused.answer.body)["error"]["message"]
            return as_json({"error": message}, refused.answer.status)

    return handle


class Ollama:
    def __init__(self, store: Store) -> None:
        self.store = store
        self.runners = Runners()
        self.without = OpenAI(Generator(), lambda _model: "base").table()

    def running(self, _request: Request) -> Answer:
        return Answer(b"Ollama is running", kind="text/plain; charset=utf-8")

    def tags(self, _request: Request) -> Answer:
        return as_json({"models": [{"name": name.short, "model": name.short} for name in self.store.names()]})

    def models(self, _request: Request) -> Answer:
        cards = [
            {"id": name.short, "object": "model", "created": 0, "owned_by": name.namespace}
            for name in self.store.names()
        ]
        return as_json({"object": "list", "data": cards})

    def pull(self, request: Request) -> Answer:
        body = request.json()
        name = parse_name(body.get("model") or body.get("name") or "")

        def lines() -> Iterator[bytes]:
            try:
                for status in pull(self.store, name, bool(body.get("insecure"))):
                    yield json.dumps({"status": status}).encode() + b"\n"
            except PullError as error:
                yield json.dumps({"error": str(error)}).encode() + b"\n"

        return Answer(kind="application/x-ndjson", chunks=lines())

    def copy(self, request: Request) -> Answer:
        body = request.json()
        source = body["source"]
        manifest = self.store.manifest(parse_name(source))
        if manifest is None:
            raise Refused(404, "api_error", f"model '{source}' not found")
        self.store.keep(parse_name(body["destination"]), json.dumps(manifest).encode())
        return Answer()

    def generate(self, request: Request) -> Answer:
        body = request.json()
        model = body["model"]
        chat = {"model": model, "max_tokens": 4, "messages": [{"role": "user", "content": body.get("prompt", "")}]}
        target = "/v1/chat/completions"
        answer = self.openai(Request("POST", target, {}, {}, json.dumps(chat).encode(), target))
        text = json.loads(b"".join(answer.chunks) if answer.chunks is not None else answer.body)
        reply = text["choices"][0]["message"]["content"]
        return as_json({"model": model, "response": reply, "done": True, "done_reason": "stop"})

    def openai(self, request: Request) -> Answer:
        model = str(request.json().get("model", ""))
        weights = self.store.weights(parse_name(model))
        if weights is None:
            raise Refused(404, "not_found_error", f'model "{model}" not found, try pulling it first')
        if self.runners.fits(weights):
            return passed_on(request, self.runners.port(model, weights))
        return self.without[f"POST {request.path}"](request)
