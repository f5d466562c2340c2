"""vLLM's OpenAI server, without a model: ``python3 -m vllm.entrypoints.openai.api_server --model=...``.

It answers what vLLM 0.32.0 was recorded to (tests/engines/recorded), but for every task at once. On SIGTERM it
ends all answers with what they have, and then itself; with ``--shutdown-timeout`` it finishes first.

It listens once the model is loaded, which takes ``STANDIN_LOAD_SECONDS`` (0). A folder must hold a ``config.json``; a
repository's is asked for at ``HF_ENDPOINT`` where that is set, and taken for granted where it is not.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path

from standin.generation import Generator
from standin.openai import OpenAI, missing
from standin.web import Answer, Handler, Refused, Request, as_json, routes, serve

from vllm.entrypoints.anthropic import Messages
from vllm.entrypoints.openai.flags import parse

VERSION = "0.32.0"
CONTEXT = 4096
"""Tokens of a prompt and its answer where ``--max-model-len`` says nothing."""


class CannotLoad(Exception):
    """The model cannot be loaded; the message is the last line of vLLM's traceback."""


def check_model(model: str, load_format: str) -> None:
    """Raises CannotLoad where vLLM would not find the model."""
    if model.startswith("s3://"):
        if load_format != "runai_streamer":
            raise CannotLoad(f"OSError: {model} is not a valid model identifier: it needs --load-format=runai_streamer")
    elif model.startswith("/"):
        if not (Path(model) / "config.json").is_file():
            raise CannotLoad(
                f"ValueError: Invalid repository ID or local directory specified: '{model}'.\n"
                "Please verify the following requirements:\n1. Provide a valid Hugging Face repository ID.\n"
                "2. Specify a local directory that contains a recognized configuration file."
            )
    elif endpoint := os.environ.get("HF_ENDPOINT"):
        check_repository(endpoint.rstrip("/"), model)


def check_repository(endpoint: str, repository: str) -> None:
    request = urllib.request.Request(f"{endpoint}/{repository}/resolve/main/config.json")
    if token := os.environ.get("HF_TOKEN"):
        request.add_header("Authorization", f"Bearer {token}")
    try:
        urllib.request.urlopen(request, timeout=60).close()
    except urllib.error.HTTPError as error:
        if error.code in (401, 403):
            raise CannotLoad(
                f"OSError: You are trying to access a gated repo.\nMake sure to have access to it at "
                f"{endpoint}/{repository}.\n{error.code} Client Error."
            ) from error
        raise CannotLoad(
            f"OSError: {repository} is not a local folder and is not a valid model identifier listed on "
            f"'{endpoint}/models'"
        ) from error
    except OSError as error:
        raise CannotLoad(
            f"OSError: We couldn't connect to '{endpoint}' to load the files, and couldn't find them in the cached "
            f"files: {error}"
        ) from error


class Server:
    """The base model, its names, and the adapters that were loaded into it."""

    def __init__(self, flags: argparse.Namespace) -> None:
        self.root = flags.model
        self.names = flags.served_model_name or [flags.model]
        self.context = int(flags.max_model_len) if flags.max_model_len.isdecimal() else CONTEXT
        self.takes_adapters = flags.enable_lora
        self.tells_cached = flags.enable_prompt_tokens_details
        self.created = int(time.time())
        self.generator = Generator()
        self.adapters: dict[str, tuple[str, str]] = {}
        """Name -> (path, mark of what was found there)."""
        self._lock = threading.Lock()
        for module in flags.lora_modules:
            name, _equals, path = module.partition("=")
            self.adapters[name] = (path, self.read(name, path))

    def application(self) -> Handler:
        openai = OpenAI(self.generator, self.mark)
        openai.fingerprint = f"vllm-{VERSION}-standin"
        openai.tells_cached = self.tells_cached
        messages = Messages(openai, self.context)
        table = openai.table() | {
            "POST /v1/messages": messages.message,
            "POST /v1/messages/count_tokens": messages.count,
            "POST /tokenize": messages.tokenize,
            "GET /health": lambda _request: Answer(kind=""),
            "GET /ping": lambda _request: Answer(kind=""),
            "GET /version": lambda _request: as_json({"version": VERSION}),
            "GET /v1/models": self.models,
            "GET /metrics": self.metrics,
        }
        if os.environ.get("VLLM_ALLOW_RUNTIME_LORA_UPDATING", "").lower() in ("1", "true"):
            table |= {"POST /v1/load_lora_adapter": self.load, "POST /v1/unload_lora_adapter": self.unload}
        return routes(table)

    def mark(self, model: str) -> str:
        if not model or model in self.names:
            return "base"
        adapter = self.adapters.get(model)
        if adapter is None:
            text = f"The model `{model}` does not exist. Valid aliases: {', '.join(self.names)}."
            raise Refused(404, "NotFoundError", text, "model")
        return adapter[1]

    def models(self, _request: Request) -> Answer:
        base = [self._card(name, self.root, None) for name in self.names]
        adapters = [self._card(name, path, self.names[0]) for name, (path, _mark) in self.adapters.items()]
        return as_json({"object": "list", "data": base + adapters})

    def _card(self, name: str, root: str, parent: str | None) -> dict[str, object]:
        card = {"id": name, "object": "model", "created": self.created, "owned_by": "vllm"}
        length = self.context if parent is None else None
        return card | {"root": root, "parent": parent, "max_model_len": length, "permission": [self._permission()]}

    def _permission(self) -> dict[str, object]:
        allowed = ("sampling", "logprobs", "view")
        others = ("create_engine", "search_indices", "fine_tuning")
        rights = {f"allow_{name}": name in allowed for name in (*allowed, *others)}
        head = {"id": "modelperm-1", "object": "model_permission", "created": self.created}
        return head | rights | {"organization": "*", "group": None, "is_blocking": False}

    # --- adapters ---------------------------------------------------------------------------------------------------

    def load(self, request: Request) -> Answer:
        body = request.json()
        for field in ("lora_name", "lora_path"):
            if field not in body:
                raise missing(body, field)
        name, path = body["lora_name"], body["lora_path"]
        with self._lock:
            if name in self.adapters and not body.get("load_inplace"):
                text = f"The lora adapter '{name}' has already been loaded. "
                text += "If you want to load the adapter in place, set 'load_inplace' to True."
                raise Refused(400, "InvalidUserInput", text)
            self.adapters[name] = (path, self.read(name, path))
        return Answer(f"Success: LoRA adapter '{name}' added successfully.".encode(), kind="")

    def read(self, name: str, path: str) -> str:
        """The mark of an adapter."""
        if not self.takes_adapters:
            raise Refused(400, "BadRequestError", "LoRA is not enabled. Use --enable-lora to enable LoRA.")
        config = Path(path) / "adapter_config.json"
        if not config.is_file():
            raise Refused(404, "NotFoundError", f"Loading lora {name} failed: No adapter found for {path}")
        return digest_of(config.parent)

    def unload(self, request: Request) -> Answer:
        body = request.json()
        if "lora_name" not in body:
            raise missing(body, "lora_name")
        name = body["lora_name"]
        with self._lock:
            if name not in self.adapters:
                raise Refused(404, "NotFoundError", f"The lora adapter '{name}' cannot be found.")
            del self.adapters[name]
        return Answer(f"Success: LoRA adapter '{name}' removed successfully.".encode(), kind="")

    # --- metrics ----------------------------------------------------------------------------------------------------

    def metrics(self, _request: Request) -> Answer:
        generator, cache = self.generator, self.generator.cache
        rows = [
            ("gauge", "num_requests_running", "", generator.running),
            ("gauge", "num_requests_waiting", "", generator.waiting),
            ("counter", "prefix_cache_queries", "_total", cache.queries),
            ("counter", "prefix_cache_hits", "_total", cache.hits),
            ("counter", "prompt_tokens", "_total", cache.queries),
            ("counter", "generation_tokens", "_total", generator.generated),
            ("gauge", "kv_cache_usage_perc", "", cache.usage()),
        ]
        labels = f'{{engine="0",model_name="{self.names[0]}"}}'
        lines = [
            f"# TYPE vllm:{name}{suffix} {kind}\nvllm:{name}{suffix}{labels} {float(value)}\n"
            for kind, name, suffix, value in rows
        ]
        return Answer("".join(lines).encode(), kind="text/plain; version=0.0.4; charset=utf-8")


def digest_of(folder: Path) -> str:
    """A short name for what a folder holds, so that answers tell which version of an adapter made them."""
    digest = hashlib.sha256()
    for path in sorted(file for file in folder.rglob("*") if file.is_file() and not file.name.startswith(".")):
        digest.update(path.read_bytes())
    return f"lora-{digest.hexdigest()[:8]}"


def main(arguments: Sequence[str]) -> None:
    flags = parse(arguments)
    template = flags.chat_template
    if template.startswith("/") and not Path(template).is_file():
        message = f"The supplied chat template string ({template}) appears path-like, but doesn't exist!"
        sys.exit(f"vllm.exceptions.VLLMValidationError: {message} Tried: {template} (parameter=chat_template)")
    try:
        check_model(flags.model or "Qwen/Qwen3-0.6B", flags.load_format)
        server = Server(flags)
    except (CannotLoad, Refused) as error:
        sys.exit(str(error))
    time.sleep(float(os.environ.get("STANDIN_LOAD_SECONDS", "0")))
    print(f"INFO:     Started server on {flags.host or '0.0.0.0'}:{flags.port}", flush=True)
    finishes = int(flags.shutdown_timeout or 0) > 0
    stop = (lambda: None) if finishes else server.generator.stopped.set
    serve(server.application(), flags.host or "0.0.0.0", flags.port, ending=stop, keep_alive=5)


if __name__ == "__main__":
    main(sys.argv[1:])
