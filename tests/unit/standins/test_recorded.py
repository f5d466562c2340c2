"""The stand-ins answer as the engines were recorded to: tests/engines/recorded."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from slipway.engines.programs.llamacpp import LLAMACPP
from slipway.engines.programs.vllm import VLLM
from tests.engines.exchanges import SETS, differences
from tests.engines.record import ask as exchanged

from .conftest import Start, ask

RECORDED = Path(__file__).parents[2] / "engines/recorded"
VLLM_0_32 = json.loads((RECORDED / "vllm-0.32.0.json").read_text())
EXCHANGES = [exchange for name in VLLM_0_32["sets"] for exchange in SETS[name]]
UNKNOWN = {"too_long"}
"""The stand-in has no context that could be too short."""
OTHER_WORDS = {"unknown_model", "no_input"}
"""How vLLM puts these depends on the tasks of the model."""
OTHER_TASK = {"infinity-0.0.77-embeds": {"rerank"}, "infinity-0.0.77-ranks": {"embedding"}}
"""What a model of one task refuses. The stand-in has all tasks."""


def stand_in(start: Start) -> str:
    return start(
        "vllm.entrypoints.openai.api_server",
        *("--host=127.0.0.1", "--port={port}", "--model=weights/model", "--served-model-name=tiny", "--enable-lora"),
        VLLM_ALLOW_RUNTIME_LORA_UPDATING="True",
    )


@pytest.fixture(scope="module")
def url(start: Start) -> str:
    return stand_in(start)


@pytest.fixture(scope="module")
def adapter(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("adapter")
    (folder / "adapter_config.json").write_text("{}")
    return str(folder)


def test_the_answers_in_a_session_match_the_recorded_ones(start: Start, adapter: str) -> None:
    """A new stand-in replays the recorded requests in order, because an adapter must be loaded before it is used."""
    url = stand_in(start)
    reports = {
        exchange.name: differences(VLLM_0_32["answers"][exchange.name], exchanged(url, exchange, "tiny", adapter))
        for exchange in EXCHANGES
        if exchange.name not in UNKNOWN
    }
    assert {name: different for name, different in reports.items() if different} == {}


def test_its_metrics_are_some_of_the_real_ones(url: str) -> None:
    shown = dict(re.findall(r"^# TYPE (\S+) (\S+)$", ask(f"{url}/metrics").body.decode(), re.MULTILINE))
    assert shown.items() <= VLLM_0_32["metrics"].items()


def test_the_engine_knows_metrics_that_the_real_one_has() -> None:
    """Those of earlier versions come behind them."""
    metrics, real = VLLM.metrics, VLLM_0_32["metrics"]
    assert metrics is not None
    gauges = (metrics.running, metrics.waiting, metrics.cache_usage[0])
    counters = (metrics.prompt_tokens, metrics.generated_tokens)
    histograms = (metrics.ttft_seconds, metrics.request_seconds)
    kinds = [[real.get(name) for name in names] for names in (gauges, counters, histograms)]
    assert kinds == [["gauge"] * 3, ["counter"] * 2, ["histogram"] * 2]


def test_llamacpp_has_the_metrics_that_the_engine_knows() -> None:
    """It has no histograms, and no measure of its cache."""
    metrics, real = LLAMACPP.metrics, json.loads((RECORDED / "llamacpp-0.7.0.json").read_text())["metrics"]
    assert metrics is not None
    assert [real.get(name) for name in (metrics.running, metrics.waiting)] == ["gauge"] * 2
    assert [real.get(name) for name in (metrics.prompt_tokens, metrics.generated_tokens)] == ["counter"] * 2


def test_the_stand_in_is_of_the_version_that_was_recorded(url: str) -> None:
    assert ask(f"{url}/version").json == {"version": VLLM_0_32["version"]}


@pytest.mark.parametrize("task", ["embeds", "ranks"])
def test_the_stand_in_answers_as_models_of_other_tasks(url: str, task: str) -> None:
    recorded = json.loads((RECORDED / f"vllm-0.32.0-{task}.json").read_text())
    reports = {
        exchange.name: differences(recorded["answers"][exchange.name], exchanged(url, exchange, "tiny", ""))
        for exchange in (one for name in recorded["sets"] for one in SETS[name])
        if exchange.name not in OTHER_WORDS and (task, exchange.name) != ("ranks", "embedding")
    }
    assert {name: different for name, different in reports.items() if different} == {}


@pytest.mark.parametrize("name", OTHER_TASK)
def test_the_stand_in_of_infinity_answers_as_the_real_one(start: Start, name: str) -> None:
    recorded = json.loads((RECORDED / f"{name}.json").read_text())
    url = start(
        "standin.infinity",
        INFINITY_MODEL_ID="BAAI/bge-small-en-v1.5",
        INFINITY_SERVED_MODEL_NAME="tiny",
        INFINITY_URL_PREFIX="/v1",
        INFINITY_PORT="{port}",
    )
    reports = {
        exchange.name: differences(recorded["answers"][exchange.name], exchanged(url, exchange, "tiny", ""))
        for exchange in (one for name in recorded["sets"] for one in SETS[name])
        if exchange.name not in OTHER_TASK[name]
    }
    assert {exchange: different for exchange, different in reports.items() if different} == {}


def test_the_stand_in_of_faster_whisper_answers_as_one_of_its_servers(start: Start) -> None:
    """The recorded server is not the one of our default image, so that only the protocol of OpenAI is compared."""
    recorded = json.loads((RECORDED / "faster-whisper-server-0.0.3.json").read_text())["answers"]
    url = start("standin.whisper", WHISPER__MODEL="tiny", UVICORN_PORT="{port}")
    exchanges = [one for one in SETS["speech"] if one.name in ("transcription", "translation", "no_file")]
    assert [differences(recorded[one.name], exchanged(url, one, "tiny", "")) for one in exchanges] == [[], [], []]
