"""The stand-in of Ollama: its commands, its server, and the registry that it pulls from."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest

from .conftest import Start, ask, run

WEIGHTS = b"not a real model, so that no llama-server is needed" * 100


class Setup(NamedTuple):
    url: str
    registry: str
    """Host and port."""
    folder: Path

    def ollama(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return run("standin.ollama.cli", *arguments, OLLAMA_HOST=self.url.replace("127.0.0.1", "0.0.0.0"))


@pytest.fixture(scope="module")
def setup(start: Start, tmp_path_factory: pytest.TempPathFactory) -> Setup:
    folder = tmp_path_factory.mktemp("ollama")
    (folder / "weights").write_bytes(WEIGHTS)
    registry = start(
        "standin.registry", "--port={port}", f"--weights={folder}/weights", "qwen2:0.5b", "acme/tiny", "acme/broken"
    )
    url = start(
        "standin.ollama.cli",
        "serve",
        OLLAMA_HOST="0.0.0.0:{port}",
        OLLAMA_MODELS=str(folder / "models"),
        OLLAMA_KEEP_ALIVE="999999h",
        STANDIN_OLLAMA_REGISTRY=registry,
    )
    return Setup(url, registry.removeprefix("http://"), folder)


def test_the_server_answers_that_it_runs(setup: Setup) -> None:
    assert ask(setup.url).body == b"Ollama is running"
    assert ask(setup.url, method="HEAD").status == 200


def test_a_model_is_pulled_copied_and_run(setup: Setup) -> None:
    for command in (("pull", "qwen2:0.5b"), ("cp", "qwen2:0.5b", "my-model"), ("run", "my-model", "hi")):
        done = setup.ollama(*command)
        assert done.returncode == 0, done.stderr
    chat = {"model": "my-model", "messages": [{"role": "user", "content": "hello"}]}
    answer = ask(f"{setup.url}/v1/chat/completions", chat)
    assert (answer.status, answer.json["model"]) == (200, "my-model")
    listed = [card["id"] for card in ask(f"{setup.url}/v1/models").json["data"]]
    assert listed == ["my-model:latest", "qwen2:0.5b"]
    assert [path.read_bytes() for path in (setup.folder / "models" / "blobs").iterdir()].count(WEIGHTS) == 1


def test_another_registry_is_asked_without_tls_only_on_demand(setup: Setup) -> None:
    name = f"{setup.registry}/acme/tiny:latest"
    refused = setup.ollama("pull", f"http://{name}")
    assert (refused.returncode, refused.stderr.strip()) == (1, "Error: insecure protocol http")
    assert setup.ollama("pull", "--insecure", name).returncode == 0
    assert name in setup.ollama("list").stdout


def test_a_missing_model_or_server_is_reported(setup: Setup) -> None:
    missing = setup.ollama("pull", "no-such-model")
    assert (missing.returncode, missing.stderr.splitlines()[-1]) == (
        1,
        "Error: pull model manifest: file does not exist",
    )
    assert setup.ollama("cp", "no-such-model", "other").stderr.strip() == "Error: model 'no-such-model' not found"
    answer = ask(f"{setup.url}/v1/chat/completions", {"model": "no-such-model", "messages": []})
    assert (answer.status, answer.json["error"]["message"]) == (
        404,
        'model "no-such-model" not found, try pulling it first',
    )
    alone = run("standin.ollama.cli", "list", OLLAMA_HOST="127.0.0.1:1")
    assert "could not connect to ollama server" in alone.stderr


def test_a_folder_that_was_filled_elsewhere_is_served(setup: Setup, start: Start) -> None:
    assert setup.ollama("pull", "acme/tiny").returncode == 0
    other = start("standin.ollama.cli", "serve", OLLAMA_HOST="127.0.0.1:{port}", OLLAMA_MODELS=f"{setup.folder}/models")
    second = Setup(other, setup.registry, setup.folder)
    assert second.ollama("cp", "acme/tiny", "shared").returncode == 0
    assert ask(f"{other}/v1/embeddings", {"model": "shared", "input": "text"}).status == 200


def test_the_registry_gives_parts_of_blobs(setup: Setup) -> None:
    repository = f"http://{setup.registry}/v2/library/qwen2"
    digest = ask(f"{repository}/manifests/0.5b").json["layers"][0]["digest"]
    part = ask(f"{repository}/blobs/{digest}", headers={"Range": "bytes=10-19"})
    assert (part.status, part.body) == (206, WEIGHTS[10:20])
    assert part.headers["Content-Range"] == f"bytes 10-19/{len(WEIGHTS)}"
    assert ask(f"{repository}/manifests/7b").json["errors"][0]["code"] == "MANIFEST_UNKNOWN"
    assert ask(f"{repository}/blobs/sha256:00").status == 404
