"""The command ``ollama``: ``serve``, and those that ask the server at ``OLLAMA_HOST``."""

from __future__ import annotations

import argparse
import http.client
import json
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from .server import address, serve_models


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="ollama")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("serve")
    commands.add_parser("list")
    pull = commands.add_parser("pull")
    pull.add_argument("--insecure", action="store_true")
    pull.add_argument("model")
    copy = commands.add_parser("cp")
    copy.add_argument("source")
    copy.add_argument("destination")
    run = commands.add_parser("run")
    run.add_argument("model")
    run.add_argument("prompt", nargs="*")
    chosen = parser.parse_args(arguments)
    if chosen.command == "serve":
        serve_models()
    try:
        ask(chosen)
    except OllamaError as error:
        sys.exit(f"Error: {error}")


class OllamaError(Exception):
    """What the server refused, or that there is none."""


def ask(chosen: argparse.Namespace) -> None:
    """Prints what a command says; raises OllamaError."""
    if chosen.command == "pull":
        for line in call("POST", "/api/pull", {"model": chosen.model, "insecure": chosen.insecure}):
            print(line["status"], file=sys.stderr)
    elif chosen.command == "cp":
        list(call("POST", "/api/copy", {"source": chosen.source, "destination": chosen.destination}))
        print(f"copied '{chosen.source}' to '{chosen.destination}'")
    elif chosen.command == "run":
        body = {"model": chosen.model, "prompt": " ".join(chosen.prompt), "stream": False}
        print("".join(line["response"] for line in call("POST", "/api/generate", body)))
    elif chosen.command == "list":
        for line in call("GET", "/api/tags", None):
            print("\n".join(["NAME", *(model["name"] for model in line["models"])]))


def call(method: str, path: str, body: Any) -> Iterator[dict[str, Any]]:
    """The lines of an answer; raises OllamaError at one that tells an error."""
    connection = http.client.HTTPConnection(*address(for_client=True), timeout=600)
    try:
        connection.request(method, path, json.dumps(body) if body else None)
        answer = connection.getresponse()
    except OSError as error:
        raise OllamaError("could not connect to ollama server, run 'ollama serve' to start it") from error
    for text in answer:
        line = json.loads(text)
        if "error" in line:
            raise OllamaError(line["error"])
        yield line


if __name__ == "__main__":
    main(sys.argv[1:])
