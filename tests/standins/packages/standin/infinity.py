"""Infinity's server, without a model: ``v2`` with its settings in ``INFINITY_*``."""

from __future__ import annotations

import argparse
import os
import sys
import time
import uuid
from collections.abc import Mapping, Sequence

from .openai import encoded, likeness, text_of, vector
from .web import Answer, Handler, Request, as_json, routes, serve

DIMENSIONS = 384
STATS = {"queue_fraction": 0.0, "queue_absolute": 0, "results_pending": 0, "batch_size": 32}


def application(model: str, prefix: str) -> Handler:
    """``prefix`` stands before every address but the health check. Like the real one, which has one model, it answers
    for whatever model a request names."""

    def models(_request: Request) -> Answer:
        card = {"id": model, "stats": STATS, "object": "model", "owned_by": "infinity", "created": int(time.time())}
        card |= {"backend": "torch", "capabilities": ["embed", "rerank"]}
        return as_json({"data": [card], "object": "list"})

    def embeddings(request: Request) -> Answer:
        body = request.json()
        if "input" not in body:
            return lacking(body, ("body", "text", "input"))
        texts = body["input"] if isinstance(body["input"], list) else [body["input"]]
        data = [
            {"object": "embedding", "embedding": encoded(vector(text_of(text), DIMENSIONS), body), "index": at}
            for at, text in enumerate(texts)
        ]
        return as_json({"object": "list", "data": data} | ending(model, texts))

    def rerank(request: Request) -> Answer:
        body = request.json()
        missing = [("body", name) for name in ("query", "documents") if name not in body]
        if missing:
            return lacking(body, *missing)
        texts = [text_of(text) for text in body["documents"]]
        scores = sorted((-likeness(body["query"], text), at) for at, text in enumerate(texts))
        results = [
            {"relevance_score": -score, "index": at, "document": texts[at] if body.get("return_documents") else None}
            for score, at in scores[: body.get("top_n") or None]
        ]
        return as_json({"object": "rerank", "results": results} | ending(model, [body["query"], *texts]))

    return routes(
        {
            "GET /health": lambda _request: as_json({"unix": time.time()}),
            f"GET {prefix}/models": models,
            f"POST {prefix}/embeddings": embeddings,
            f"POST {prefix}/rerank": rerank,
        }
    )


def lacking(body: Mapping[str, object], *places: tuple[str, ...]) -> Answer:
    """What FastAPI says of fields that a body has to have."""
    faults = [{"type": "missing", "loc": list(place), "msg": "Field required", "input": body} for place in places]
    return as_json({"detail": faults}, 422)


def ending(model: str, texts: Sequence[object]) -> dict[str, object]:
    """The model, the usage and the id of an answer."""
    count = sum(len(text_of(text)) for text in texts)
    usage = {"prompt_tokens": count, "total_tokens": count}
    return {"model": model, "usage": usage, "id": f"infinity-{uuid.uuid4()}", "created": int(time.time())}


def main(arguments: Sequence[str], environment: Mapping[str, str]) -> None:
    parser = argparse.ArgumentParser(prog="infinity_emb v2")
    for flag, default in (("model-id", ""), ("served-model-name", ""), ("url-prefix", ""), ("engine", "torch")):
        parser.add_argument(f"--{flag}", default=environment.get(f"INFINITY_{flag.upper().replace('-', '_')}", default))
    parser.add_argument("--port", type=int, default=int(environment.get("INFINITY_PORT", "7997")))
    for flag in (
        "batch-size",
        "device",
        "dtype",
        "revision",
        "host",
        "pooling-method",
        "compile",
        "lengths-via-tokenize",
    ):
        parser.add_argument(f"--{flag}")
    flags = parser.parse_args(arguments)
    model = flags.model_id
    if not model or (model.startswith("/") and not os.path.isfile(f"{model}/config.json")):
        sys.exit(f"ValueError: Repo id must be in the form 'repo_name' or 'namespace/repo_name': '{model}'.")
    time.sleep(float(environment.get("STANDIN_LOAD_SECONDS", "0")))
    serve(application(flags.served_model_name or model, flags.url_prefix), "0.0.0.0", flags.port, keep_alive=5)


if __name__ == "__main__":
    main(sys.argv[1:], os.environ)
