"""Infinity's server, without a model: ``v2`` with its settings in ``INFINITY_*``."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Mapping, Sequence

from .generation import Generator
from .openai import OpenAI
from .web import Answer, Handler, Refused, Request, as_json, routes, serve

DIMENSIONS = 384


def application(model: str, prefix: str) -> Handler:
    """``prefix`` stands before every address but the health check."""

    def mark(model_name: str) -> str:
        if model_name not in (model, "default/not-specified"):
            raise Refused(400, "BadRequestError", f"Invalid model: {model_name}, available models: ['{model}']")
        return "base"

    def models(_request: Request) -> Answer:
        card = {"id": model, "object": "model", "created": int(time.time()), "owned_by": "infinity", "backend": "torch"}
        return as_json({"object": "list", "data": [card]})

    openai = OpenAI(Generator(), mark, DIMENSIONS)
    return routes(
        {
            "GET /health": lambda _request: as_json({"unix": time.time()}),
            f"GET {prefix}/models": models,
            f"POST {prefix}/embeddings": openai.embeddings,
            f"POST {prefix}/rerank": openai.rerank,
        }
    )


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
