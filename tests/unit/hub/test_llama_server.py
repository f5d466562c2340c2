"""The hub as the real llama-server sees it: by its four calls a model is found, fetched with the token, and served.

Needs Docker and the engine's image (`make docker` and the local cluster's images give both).
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import aiohttp
import pytest

from tests.ports import quiet_port

from .conftest import TOKEN, RunningHub, write

IMAGE = "ghcr.io/ggml-org/llama.cpp:server-v0.5.0"
SCRIPT = Path(__file__).parents[3] / "scripts/tiny_gguf.py"
MODEL = "acme/generated"


def docker(*arguments: str) -> str:
    done = subprocess.run(["docker", *arguments], capture_output=True, text=True, check=False, timeout=180)
    if done.returncode:
        pytest.fail(f"docker {arguments[0]}: {done.stderr.strip()}")
    return done.stdout.strip()


@pytest.fixture(scope="module")
def image() -> str:
    """Fails, rather than skips, where the image is missing: this test is the only one with the engine itself."""
    docker("image", "inspect", "--format", "{{.Id}}", IMAGE)
    return IMAGE


@pytest.fixture
def weights(root: Path) -> Path:
    target = root / MODEL / "tiny.gguf"
    write(root / MODEL, {"README.md": "# Generated\n", ".hub.yaml": "gated: true"})
    subprocess.run([sys.executable, SCRIPT, target, "--seed", "7"], check=True, timeout=180)
    return target


@pytest.fixture
def engine(image: str, hub: RunningHub, weights: Path, tmp_path: Path) -> Iterator[str]:
    """Base URL of a llama-server that was started with only a repository and a file."""
    secret, port = tmp_path / "engine.env", quiet_port()
    secret.write_text(f"HF_TOKEN={TOKEN}\nHF_ENDPOINT={hub.endpoint}\nHOME=/tmp\n")
    options = ["--detach", "--rm", "--network", "host", "--user", "65532", "--env-file", str(secret)]
    flags = ["--hf-repo", MODEL, "--hf-file", weights.name, "--host", "127.0.0.1", "--port", str(port)]
    container = docker("run", *options, image, *flags, "--threads", "1", "--ctx-size", "512", "--embeddings")
    yield f"http://127.0.0.1:{port}"
    subprocess.run(["docker", "rm", "--force", container], capture_output=True, check=False, timeout=180)


@pytest.fixture
async def ready(engine: str) -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(engine) as session:
        for _unused in range(1200):
            try:
                async with session.get("/health") as answer:
                    if answer.status == 200:
                        break
            except aiohttp.ClientConnectionError:
                pass
            await asyncio.sleep(0.1)
        else:
            pytest.fail("llama-server was not healthy within 120 s")
        yield session


async def test_llama_server_fetches_a_gated_model_by_four_calls_and_serves_it(
    hub: RunningHub, ready: aiohttp.ClientSession, weights: Path
) -> None:
    sha = hub.sha(MODEL)
    file = f"/{MODEL}/resolve/{sha}/tiny.gguf"
    assert hub.calls() == [
        ("GET", f"/api/models/{MODEL}/refs"),
        ("GET", f"/api/models/{MODEL}/tree/{sha}"),
        ("HEAD", file),
        ("GET", file),
    ]
    assert {entry.status for entry in hub.seen} == {200}
    async with ready.post("/v1/embeddings", json={"input": "Hello", "model": "any"}) as answer:
        assert answer.status == 200, await answer.text()
        (row,) = (await answer.json())["data"]
        assert len(row["embedding"]) == 64
    async with ready.get("/v1/models") as answer:
        assert json.loads(await answer.text())["data"][0]["meta"]["n_params"] > 100_000


def test_generated_model_is_small_and_the_same_for_a_seed(weights: Path, tmp_path: Path) -> None:
    assert weights.stat().st_size < 700_000, "fits into a ConfigMap, whose base64 may hold 1 MiB"
    again = tmp_path / "again.gguf"
    subprocess.run([sys.executable, SCRIPT, again, "--seed", "7"], check=True, timeout=180)
    assert again.read_bytes() == weights.read_bytes()
