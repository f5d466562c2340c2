"""The stand-in of vLLM does what vLLM does, as far as controllers, loaders and gateways see it."""

from __future__ import annotations

import http.client
import json
import re
import signal
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import openai
import pytest

from slipway.apis.llmkube.rules.engines import ENGINES
from slipway.artifacts.locations.weights import HubRepository
from slipway.engines.definition.engine import Draft, Launch

from .conftest import PACKAGES, Reply, Start, ask, launch, run, wait_for

sys.path.insert(0, str(PACKAGES))
from standin import generation

MODULE = "vllm.entrypoints.openai.api_server"
FLAGS = ("--host=127.0.0.1", "--port={port}", "--model=acme/base", "--served-model-name=base")


@pytest.fixture(scope="module")
def url(start: Start) -> str:
    return start(
        MODULE,
        *FLAGS,
        "--enable-lora",
        "--enable-prompt-tokens-details",
        VLLM_ALLOW_RUNTIME_LORA_UPDATING="True",
        STANDIN_PREFILL_SECONDS="0.001",
        STANDIN_CACHE_BLOCKS="50",
    )


def chat(url: str, content: str, model: str = "base", **more: object) -> Reply:
    body = {"model": model, "messages": [{"role": "user", "content": content}], "max_tokens": 3}
    return ask(f"{url}/v1/chat/completions", body | more)


def metric(url: str, name: str) -> float:
    match = re.search(rf"^{name}\{{[^}}]*\}} (\S+)$", ask(f"{url}/metrics").body.decode(), re.MULTILINE)
    assert match, name
    return float(match[1])


def test_openais_client_gets_its_answers(url: str) -> None:
    client = openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)
    assert [card.id for card in client.models.list()][:1] == ["base"]
    messages = [{"role": "user", "content": "hello"}]
    answer = client.chat.completions.create(model="base", messages=messages, max_tokens=3)
    assert answer.choices[0].message.content.split()[1:] == ["base", "word2"]
    assert answer.usage.completion_tokens == 3
    stream = client.chat.completions.create(
        model="base", messages=messages, max_tokens=3, stream=True, stream_options={"include_usage": True}
    )
    chunks = list(stream)
    assert "".join(chunk.choices[0].delta.content for chunk in chunks if chunk.choices).endswith("base word2")
    assert chunks[-1].usage.completion_tokens == 3
    assert client.completions.create(model="base", prompt="Once", max_tokens=2).choices[0].text.endswith("base")
    assert client.responses.create(model="base", input="hello", max_output_tokens=2).output_text.endswith("base")
    vectors = client.embeddings.create(model="base", input=["one", "two"], encoding_format="float")
    assert [len(item.embedding) for item in vectors.data] == [64, 64]


def test_documents_are_ranked_and_scored(url: str) -> None:
    body = {"model": "base", "query": "red fish", "documents": ["a bird", "one red fish", "two fish"]}
    results = ask(f"{url}/v1/rerank", body).json["results"]
    assert [result["index"] for result in results] == [1, 2, 0]
    scored = ask(f"{url}/score", {"model": "base", "text_1": "red fish", "text_2": ["red", "blue"]}).json
    assert [item["score"] for item in scored["data"]] == [0.5, 0.0]


def test_an_unknown_model_is_not_found(url: str) -> None:
    answer = chat(url, "hello", model="other")
    assert (answer.status, answer.json["error"]) == (
        404,
        {
            "message": "The model `other` does not exist. Valid aliases: base.",
            "type": "NotFoundError",
            "param": "model",
            "code": 404,
        },
    )


def test_an_adapter_is_loaded_once_answers_and_is_unloaded(url: str, tmp_path: Path) -> None:
    (tmp_path / "adapter_config.json").write_text("{}")
    adapter = {"lora_name": "base_wiki", "lora_path": str(tmp_path)}
    assert ask(f"{url}/v1/load_lora_adapter", adapter).body == b"Success: LoRA adapter 'base_wiki' added successfully."
    again = ask(f"{url}/v1/load_lora_adapter", adapter)
    assert (again.status, again.json["error"]["type"]) == (400, "InvalidUserInput")
    assert again.json["error"]["message"].startswith("The lora adapter 'base_wiki' has already been loaded. ")
    assert chat(url, "hello", model="base_wiki").json["choices"][0]["message"]["content"].split()[1].startswith("lora-")
    cards = {card["id"]: card["parent"] for card in ask(f"{url}/v1/models").json["data"]}
    assert cards == {"base": None, "base_wiki": "base"}
    assert ask(f"{url}/v1/unload_lora_adapter", {"lora_name": "base_wiki"}).status == 200
    missing = ask(f"{url}/v1/unload_lora_adapter", {"lora_name": "base_wiki"})
    assert (missing.status, missing.json["error"]["message"]) == (404, "The lora adapter 'base_wiki' cannot be found.")
    assert chat(url, "hello", model="base_wiki").status == 404


def test_a_changed_adapter_is_loaded_in_place_and_changes_the_answers(url: str, tmp_path: Path) -> None:
    marks = []
    for version in ("{}", '{"r": 8}'):
        (tmp_path / "adapter_config.json").write_text(version)
        body = {"lora_name": "changing", "lora_path": str(tmp_path), "load_inplace": True}
        assert ask(f"{url}/v1/load_lora_adapter", body).status == 200
        marks.append(chat(url, "hello", model="changing").json["choices"][0]["message"]["content"].split()[1])
    assert len(set(marks)) == 2


def test_an_adapter_that_is_not_there_is_refused(url: str, tmp_path: Path) -> None:
    answer = ask(f"{url}/v1/load_lora_adapter", {"lora_name": "none", "lora_path": str(tmp_path)})
    assert (answer.status, answer.json["error"]["type"]) == (404, "NotFoundError")
    assert "No adapter found for" in answer.json["error"]["message"]
    assert ask(f"{url}/v1/load_lora_adapter", {"lora_name": "none"}).status == 400


def test_adapters_are_loaded_only_where_that_is_allowed(start: Start, tmp_path: Path) -> None:
    closed = start(MODULE, *FLAGS, "--enable-lora")
    assert ask(f"{closed}/v1/load_lora_adapter", {"lora_name": "a", "lora_path": str(tmp_path)}).status == 404
    without = start(MODULE, *FLAGS, VLLM_ALLOW_RUNTIME_LORA_UPDATING="True")
    (tmp_path / "adapter_config.json").write_text("{}")
    answer = ask(f"{without}/v1/load_lora_adapter", {"lora_name": "a", "lora_path": str(tmp_path)})
    assert (answer.status, "not enabled" in answer.json["error"]["message"]) == (400, True)


def test_a_prompt_takes_time_for_each_token_that_is_not_cached(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(generation, "time", SimpleNamespace(sleep=pauses.append))
    generator, tokens = generation.Generator(), [f"word{number}" for number in range(64)]
    generator.prefill_seconds = 0.5
    assert generator.prefill("", tokens) == 0
    cached = generator.prefill("", [*tokens, "more"])
    assert cached > 32
    assert pauses == [0.5 * 64, 0.5 * (65 - cached)]


def test_a_prompt_that_is_known_counts_as_hit(url: str) -> None:
    text = "a conversation that goes on and on. " * 20
    queries, hits = metric(url, "vllm:prefix_cache_queries_total"), metric(url, "vllm:prefix_cache_hits_total")
    first = chat(url, text).json["usage"]
    second = chat(url, text + "More?").json["usage"]
    assert first["prompt_tokens_details"]["cached_tokens"] == 0
    cached = second["prompt_tokens_details"]["cached_tokens"]
    assert cached >= 0.9 * first["prompt_tokens"]
    assert cached % 16 == 0
    assert metric(url, "vllm:prefix_cache_hits_total") - hits == cached
    looked_up = metric(url, "vllm:prefix_cache_queries_total") - queries
    assert looked_up == first["prompt_tokens"] + second["prompt_tokens"]


def test_the_least_recently_used_blocks_go_first(url: str) -> None:
    chat(url, "old " * 100)
    for number in range(3):
        chat(url, f"{number} new " * 200)
    assert chat(url, "old " * 100).json["usage"]["prompt_tokens_details"]["cached_tokens"] == 0


def test_requests_beyond_its_slots_wait_and_are_counted(start: Start) -> None:
    busy = start(MODULE, *FLAGS, STANDIN_SLOTS="1", STANDIN_DECODE_SECONDS="0.1")
    seen: set[tuple[float, float]] = set()
    for _round in range(20):  # in one of them the three meet, however slow the machine is
        clients = [threading.Thread(target=chat, args=(busy, "hello")) for _client in range(3)]
        for client in clients:
            client.start()
        while any(client.is_alive() for client in clients) and (1, 2) not in seen:
            seen.add((metric(busy, "vllm:num_requests_running"), metric(busy, "vllm:num_requests_waiting")))
        for client in clients:
            client.join()
        if (1, 2) in seen:
            break
    assert (1, 2) in seen
    assert max(running for running, _waiting in seen) == 1
    assert metric(busy, "vllm:num_requests_running") == 0


def test_it_listens_only_once_the_model_is_loaded() -> None:
    started = time.monotonic()
    process, url = launch(MODULE, *FLAGS, STANDIN_LOAD_SECONDS="0.8")
    wait_for(process, f"{url}/health")
    assert time.monotonic() - started > 0.75
    process.terminate()
    assert process.wait(60) == 0


def terminated(tokens: int, seconds: str, *arguments: str) -> list[bytes]:
    """The lines of a stream of ``tokens`` words, ``seconds`` apart, whose server got SIGTERM after the first one."""
    process, url = launch(MODULE, *FLAGS, *arguments, STANDIN_DECODE_SECONDS=seconds)
    body = {"model": "base", "prompt": "hello", "max_tokens": tokens, "ignore_eos": True, "stream": True}
    try:
        wait_for(process, f"{url}/health")
        connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=120)
        connection.request("POST", "/v1/completions", json.dumps(body))
        answer = connection.getresponse()
        lines = [answer.readline()]
        process.send_signal(signal.SIGTERM)
        lines.extend(answer)
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait(60)
    return [line for line in lines if line.strip()]


def test_a_terminated_server_cuts_its_streams() -> None:
    """vLLM 0.32.0: an answer ends at once; only its reason shows that it is incomplete."""
    lines = terminated(1_000_000, "0.01")  # hours, however busy the machine is
    last = json.loads(lines[-2].removeprefix(b"data: "))["choices"][0]
    assert (last["finish_reason"], lines[-1]) == ("abort", b"data: [DONE]\n")


def test_a_terminated_server_finishes_running_requests_with_a_shutdown_timeout() -> None:
    lines = terminated(10, "0.2", "--shutdown-timeout=60")
    assert lines[-1] == b"data: [DONE]\n"
    assert len(lines) == 11


@pytest.mark.parametrize("flag", ["--no-such-flag=1", "--enable-loraX"])
def test_an_unknown_flag_is_refused(flag: str) -> None:
    ended = run(MODULE, "--model=acme/base", flag)
    assert ended.returncode == 2
    assert f"api_server.py: error: unrecognized arguments: {flag}" in ended.stderr


def test_abbreviated_and_underscored_flags_are_taken(start: Start) -> None:
    url = start(MODULE, *FLAGS, "--max-num-batched-token=32768", "--max_model_len=32768", "-tp", "1")
    assert ask(f"{url}/health").status == 200


def test_a_folder_without_a_model_is_refused(tmp_path: Path, start: Start) -> None:
    ended = run(MODULE, f"--model={tmp_path}")
    assert ended.returncode == 1
    assert f"Invalid repository ID or local directory specified: '{tmp_path}'" in ended.stderr
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "opt"}))
    url = start(MODULE, "--host=127.0.0.1", "--port={port}", f"--model={tmp_path}")
    assert [card["id"] for card in ask(f"{url}/v1/models").json["data"]] == [str(tmp_path)]


def test_a_missing_template_or_repository_is_refused(start: Start) -> None:
    assert "chat template" in run(MODULE, "--model=acme/base", "--chat-template=/no/such.jinja").stderr
    hub = start(MODULE, *FLAGS)  # any server that does not know the repository
    ended = run(MODULE, "--model=acme/none", HF_ENDPOINT=hub)
    assert (ended.returncode, "is not a valid model identifier" in ended.stderr) == (1, True)
    assert "runai_streamer" in run(MODULE, "--model=s3://bucket/model").stderr


def test_a_service_with_every_setting_is_served_by_its_command_line(start: Start) -> None:
    """The whole command line that LLMKube's services make, names and draft model included."""
    settings = {
        "parallel_slots": 4,
        "tensor_parallel_size": 2,
        "max_model_len": 4096,
        "quantization": "fp8",
        "dtype": "bfloat16",
        "kv_cache_dtype": "fp8_e4m3",
        "enable_prefix_caching": True,
        "enable_chunked_prefill": True,
        "enable_expert_parallel": True,
        "max_num_batched_tokens": 4096,
        "attention_backend": "FLASHINFER",
        "cpu_offload_gb": 4,
        "gpu_memory_utilization": 0.9,
    }
    full_launch = Launch(
        weights=HubRepository("acme/base", "v2"),
        served_name="base",
        port=8000,
        bind="127.0.0.1",
        settings=settings,
        gpus=2,
        draft=Draft(HubRepository("acme/draft"), 4),
        extra_args=("--served-model-name", "mine", "--seed", "1"),
    )
    args = ["{port}" if word == "8000" else word for word in ENGINES["vllm"].args(full_launch)]
    assert ENGINES["vllm"].command == ("vllm", "serve")
    url = start(MODULE, "serve", *args)
    listed = json.loads(ask(f"{url}/v1/models").body)["data"]
    assert [card["id"] for card in listed] == ["base", "acme/base", "mine"]
    assert chat(url, "hello", "base").status == chat(url, "hello", "mine").status == 200


def test_adapters_that_are_named_at_the_start_answer_by_their_names(start: Start, tmp_path: Path) -> None:
    (tmp_path / "adapter_config.json").write_text("{}")
    url = start(MODULE, *FLAGS, "--enable-lora", "--lora-modules", f"wiki={tmp_path}")
    body = {"model": "wiki", "prompt": "hello", "max_tokens": 4}
    assert ask(f"{url}/v1/completions", body).json["choices"][0]["text"].split()[1].startswith("lora-")
    missing = run(MODULE, "--model=acme/base", "--enable-lora", "--lora-modules", f"wiki={tmp_path}/none")
    assert (missing.returncode, "No adapter found for" in missing.stderr) == (1, True)
