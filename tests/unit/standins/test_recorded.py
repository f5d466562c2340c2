"""The stand-in of vLLM answers as vLLM was recorded to: tests/engines/recorded."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from slipway.engines.programs.vllm import VLLM
from tests.engines.exchanges import SETS, differences
from tests.engines.record import ask as exchanged

from .conftest import Start, ask

RECORDED = Path(__file__).parents[2] / "engines/recorded"
VLLM_0_32 = json.loads((RECORDED / "vllm-0.32.0.json").read_text())
EXCHANGES = [exchange for name in VLLM_0_32["sets"] for exchange in SETS[name]]
UNKNOWN = {"too_long", "message_stream"}
"""The stand-in has no context that could be too short, and the recorded stream had no text to show."""


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


def test_the_stand_in_is_of_the_version_that_was_recorded(url: str) -> None:
    assert ask(f"{url}/version").json == {"version": VLLM_0_32["version"]}
