"""faster-whisper behind the gateway: it transcribes what was said."""

from __future__ import annotations

import json

import pytest

from tests.cluster.kubeai import KubeAI

from .conftest import OWN, RECORDED, kubeai_model
from .exchanges import SPEECH, SPOKEN, Exchange, differences
from .record import ask

ANSWERS = json.loads((RECORDED / "faster-whisper-server-0.0.3.json").read_text())["answers"]


@pytest.fixture(scope="module")
def whisper(kubeai: KubeAI, kubeai_namespace: str) -> str:
    spec = {"url": "hf://Systran/faster-whisper-tiny.en", "engine": "FasterWhisper", "features": ["SpeechToText"]}
    return kubeai_model(kubeai, kubeai_namespace, "whisper", **spec)


@pytest.mark.parametrize("exchange", [one for one in SPEECH if one.name not in OWN], ids=lambda one: one.name)
def test_faster_whisper_answers_through_the_gateway_as_it_was_recorded(
    whisper: str, gateway_url: str, exchange: Exchange
) -> None:
    assert differences(ANSWERS[exchange.name], ask(gateway_url, exchange, whisper, "")) == []


def test_it_hears_most_of_the_words(whisper: str, gateway_url: str) -> None:
    [exchange] = [one for one in SPEECH if one.name == "transcription"]
    heard = set(words(ask(gateway_url, exchange, whisper, "")["body"]["text"]))
    assert len(heard & set(words(SPOKEN))) >= 3


def words(text: str) -> list[str]:
    return "".join(letter for letter in text.lower() if letter.isalpha() or letter == " ").split()
