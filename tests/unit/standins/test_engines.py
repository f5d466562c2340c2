"""The stand-ins of Infinity, faster-whisper and SGLang, and the image's way to choose between engines."""

from __future__ import annotations

import hashlib
import signal
import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.ports import reserved_port

from .conftest import Reply, Start, ask, launch, run, wait_for

BOUNDARY = "a-boundary"


def form(**parts: str | bytes) -> bytes:
    """Fields, and a file where the value is bytes."""
    lines = []
    for name, value in parts.items():
        file = '; filename="speech.wav"\r\nContent-Type: audio/wav' if isinstance(value, bytes) else ""
        content = value if isinstance(value, bytes) else value.encode()
        head = f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="{name}"{file}\r\n\r\n'
        lines.append(head.encode() + content + b"\r\n")
    return b"".join(lines) + f"--{BOUNDARY}--\r\n".encode()


def transcribe(url: str, **parts: str | bytes) -> Reply:
    kind = {"Content-Type": f"multipart/form-data; boundary={BOUNDARY}"}
    return ask(f"{url}/v1/audio/transcriptions", form(**parts), kind)


@pytest.fixture(scope="module")
def whisper(start: Start) -> str:
    return start("standin.whisper", WHISPER__MODEL="Systran/tiny", UVICORN_HOST="127.0.0.1", UVICORN_PORT="{port}")


def test_a_transcript_describes_the_received_file(whisper: str) -> None:
    sound = bytes(range(256)) * 9
    text = transcribe(whisper, file=sound, language="en").json["text"]
    assert text == f"speech.wav {len(sound)} bytes sha256 {hashlib.sha256(sound).hexdigest()} language=en"
    assert transcribe(whisper, file=sound, response_format="text").body.startswith(b"speech.wav")
    assert transcribe(whisper, file=sound, model="Systran/tiny").status == 200
    assert ask(f"{whisper}/health").body == b"OK"


def test_a_connection_without_another_request_is_closed_as_by_uvicorn(whisper: str) -> None:
    host, port = whisper.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=60) as connection:
        connection.sendall(b"GET /health HTTP/1.1\r\nHost: here\r\n\r\n")
        received = b""
        while chunk := connection.recv(4096):
            received += chunk
    assert received.startswith(b"HTTP/1.1 200")
    assert b"connection: close" not in received.lower()


def test_a_form_that_names_another_model_or_has_no_file_fails(whisper: str) -> None:
    assert transcribe(whisper, file=b"sound", model="my-model").status == 404
    assert transcribe(whisper, language="en").status == 422


def test_infinity_embeds_and_ranks_under_its_prefix(start: Start) -> None:
    url = start(
        "standin.infinity",
        INFINITY_MODEL_ID="BAAI/bge-small-en-v1.5",
        INFINITY_SERVED_MODEL_NAME="bge",
        INFINITY_URL_PREFIX="/v1",
        INFINITY_ENGINE="torch",
        INFINITY_PORT="{port}",
    )
    assert ask(f"{url}/health").json.keys() == {"unix"}
    assert [card["id"] for card in ask(f"{url}/v1/models").json["data"]] == ["bge"]
    data = ask(f"{url}/v1/embeddings", {"model": "bge", "input": "text"}).json["data"]
    assert [len(item["embedding"]) for item in data] == [384]
    ranked = ask(f"{url}/v1/rerank", {"model": "bge", "query": "red", "documents": ["blue", "red"]}).json
    assert ranked["results"][0]["index"] == 1
    assert ask(f"{url}/v1/embeddings", {"model": "other", "input": "text"}).json["model"] == "bge"
    assert ask(f"{url}/embeddings", {"model": "bge", "input": "text"}).status == 404


def test_infinity_refuses_a_folder_without_a_model(tmp_path: Path) -> None:
    assert run("standin.infinity", INFINITY_MODEL_ID=str(tmp_path)).returncode == 1


def test_sglang_generates_or_embeds(start: Start) -> None:
    flags = ("--host=127.0.0.1", "--port={port}", "--model-path=acme/base", "--served-model-name=base")
    generating = start("sglang.launch_server", *flags, "--enable-metrics")
    chat = {"model": "whatever", "messages": [{"role": "user", "content": "hello"}]}
    assert ask(f"{generating}/v1/chat/completions", chat).status == 200
    assert ask(f"{generating}/v1/embeddings", {"model": "base", "input": "text"}).status == 404
    assert b'sglang:num_running_reqs{model_name="base"} 0' in ask(f"{generating}/metrics").body
    embedding = start("sglang.launch_server", *flags, "--is-embedding")
    assert ask(f"{embedding}/v1/embeddings", {"model": "base", "input": "text"}).status == 200
    assert ask(f"{embedding}/v1/chat/completions", chat).status == 404
    assert run("sglang.launch_server", "--model-path=acme/base", "--no-such-flag").returncode == 2


def test_a_decode_server_of_sglang_waits_for_what_its_prefill_server_read(start: Start) -> None:
    flags, rooms = ("--host=127.0.0.1", "--port={port}", "--model-path=acme/base"), str(reserved_port())
    prefill = start(
        "sglang.launch_server", *flags, "--disaggregation-mode=prefill", f"--disaggregation-bootstrap-port={rooms}"
    )
    decode = start("sglang.launch_server", *flags, "--disaggregation-mode=decode")
    chat = {"model": "base", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 4}
    assert ask(f"{decode}/v1/chat/completions", chat).status == 400
    both = {**chat, "bootstrap_host": "127.0.0.1", "bootstrap_port": int(rooms), "bootstrap_room": 7}
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(ask, f"{decode}/v1/chat/completions", both)
        assert ask(f"{prefill}/v1/chat/completions", both).status == 200
        words = waiting.result().json["choices"][0]["message"]["content"].split()
    assert words[:2] == [socket.gethostname()] * 2


def test_a_leader_of_sglang_waits_for_its_workers_and_all_end_as_one() -> None:
    address = f"127.0.0.1:{reserved_port()}"
    flags = ("--host=127.0.0.1", "--port={port}", "--model-path=acme/base", "--nnodes=3", "--dist-init-addr", address)
    leader, url = launch("sglang.launch_server", *flags, "--node-rank=0")
    first, _none = launch("sglang.launch_server", *flags, "--node-rank=1")
    with pytest.raises(OSError, match="refused"):
        ask(f"{url}/health")
    second, _none = launch("sglang.launch_server", *flags, "--node-rank=2")
    wait_for(leader, f"{url}/health")
    second.kill()
    assert [process.wait(60) for process in (leader, first)] == [1, 1]


@pytest.mark.parametrize(
    ("arguments", "environment", "path", "expected"),
    [
        ([], {"WHISPER__MODEL": "tiny", "UVICORN_PORT": "{port}"}, "/health", b"OK"),
        ([], {"OLLAMA_HOST": "127.0.0.1:{port}"}, "/", b"Ollama is running"),
        (["v2"], {"INFINITY_MODEL_ID": "acme/vectors", "INFINITY_PORT": "{port}"}, "/health", b"unix"),
    ],
)
def test_the_images_entrypoint_is_the_engine_that_is_meant(
    arguments: list[str], environment: dict[str, str], path: str, expected: bytes, tmp_path: Path
) -> None:
    process, url = launch("standin", *arguments, **environment, OLLAMA_MODELS=str(tmp_path))
    wait_for(process, f"{url}{path}")
    assert expected in ask(f"{url}{path}").body
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 0
