"""The stand-in of vLLM answers as vLLM was recorded to: tests/engines/recorded."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from slipway.engines.vllm import VLLM
from tests.engines.exchanges import SETS, Exchange, differences
from tests.engines.record import ask as exchanged

from .conftest import Start, ask

RECORDED = Path(__file__).parents[2] / "engines/recorded"
VLLM_0_32 = json.loads((RECORDED / "vllm-0.32.0.json").read_text())
ASKED = [exchange for name in VLLM_0_32["sets"] for exchange in SETS[name]]
UNKNOWN = {"too_long", "message_stream"}
"""The stand-in has no context that could be too short, and the recorded stream had no text to show."""


@pytest.fixture(scope="module")
def url(start: Start) -> str:
    return start(
        "vllm.entrypoints.openai.api_server",
        *("--host=127.0.0.1", "--port={port}", "--model=weights/model", "--served-model-name=tiny", "--enable-lora"),
        VLLM_ALLOW_RUNTIME_LORA_UPDATING="True",
    )


@pytest.fixture(scope="module")
def adapter(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("adapter")
    (folder / "adapter_config.json").write_text("{}")
    return str(folder)


@pytest.mark.parametrize("exchange", [one for one in ASKED if one.name not in UNKNOWN], ids=lambda one: one.name)
def test_an_answer_is_as_the_real_one(exchange: Exchange, url: str, adapter: str) -> None:
    """In the order of the record: an adapter is loaded before it is asked."""
    assert differences(VLLM_0_32["answers"][exchange.name], exchanged(url, exchange, "tiny", adapter)) == []


def test_its_metrics_are_some_of_the_real_ones(url: str) -> None:
    shown = dict(re.findall(r"^# TYPE (\S+) (\S+)$", ask(f"{url}/metrics").body.decode(), re.MULTILINE))
    assert shown.items() <= VLLM_0_32["metrics"].items()


def test_the_engine_knows_metrics_that_the_real_one_has() -> None:
    """Those of earlier versions come behind them."""
    known, real = VLLM.metrics, VLLM_0_32["metrics"]
    assert known is not None
    gauges = (known.running, known.waiting, known.cache_usage[0])
    counters = (known.prompt_tokens, known.generated_tokens)
    histograms = (known.ttft_seconds, known.request_seconds)
    found = [[real.get(name) for name in names] for names in (gauges, counters, histograms)]
    assert found == [["gauge"] * 3, ["counter"] * 2, ["histogram"] * 2]


def test_the_stand_in_is_of_the_version_that_was_recorded(url: str) -> None:
    assert ask(f"{url}/version").json == {"version": VLLM_0_32["version"]}
