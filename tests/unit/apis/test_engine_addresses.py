"""Engines listen on the family of addresses that the cluster has."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from slipway.controller.main import in_cluster
from slipway.controller.settings import ControllerSettings
from slipway.serving.contract.api import World
from tests import worlds

from . import test_krypton as krypton
from .kubeai import test_kubeai as kubeai
from .llmkube import services as llmkube

INFINITY = {"engine": "Infinity", "features": ["TextEmbedding"]}
WHISPER = {"engine": "FasterWhisper", "features": ["SpeechToText"]}
OLLAMA = {"engine": "OLlama", "url": "ollama://tiny", "features": ["TextGeneration"]}
SGLANG = {"runtime": "sglang", "model": llmkube.HUB}
ENGINES = [
    (krypton.world(), "--host ::", "--host 0.0.0.0"),
    (kubeai.world(engine="LlamaCpp", url="hf://acme/tiny-GGUF"), "--host ::", "--host 0.0.0.0"),
    (kubeai.world(), "--host=::", ""),
    (kubeai.world(engine="SGLang"), "--host=::", "--host=0.0.0.0"),
    (kubeai.world(**OLLAMA), "OLLAMA_HOST=[::]:8000", "OLLAMA_HOST=0.0.0.0:8000"),
    (kubeai.world(**INFINITY), "INFINITY_HOST=::", ""),
    (kubeai.world(**WHISPER), "UVICORN_HOST=::", ""),
    (llmkube.world(), "--host ::", "--host ::"),
    (llmkube.world(**SGLANG), "--host ::", "--host 0.0.0.0"),
    (llmkube.world(**SGLANG, bindAddress="127.0.0.1"), "--host 127.0.0.1", "--host 127.0.0.1"),
]


def command_line(world: World, address: str) -> str:
    """The command line and the variables of the engine."""
    had: Any = world.listers
    settings = msgspec.structs.replace(world.settings, engine_address=address)
    planned = worlds.plan(had.api, msgspec.structs.replace(world, settings=settings))
    (deployment,) = (one for one in planned.children if one["kind"] == "Deployment")
    container = deployment["spec"]["template"]["spec"]["containers"][0]
    variables = (f"{one['name']}={one.get('value', '')}" for one in container.get("env", ()))
    return " ".join((*container.get("args", ()), *variables))


@pytest.mark.parametrize(("world", "six", "four"), ENGINES)
def test_an_engine_listens_on_the_clusters_addresses(world: World, six: str, four: str) -> None:
    assert six in command_line(world, "::")
    for address in ("", "0.0.0.0"):
        assert four in command_line(world, address)
        assert four or "::" not in command_line(world, address)


@pytest.mark.parametrize(
    ("given", "api_server", "address"),
    [
        ("", "fd00::1", "::"),
        ("", "10.96.0.1", ""),
        ("", "kubernetes.default", ""),
        ("", "", ""),
        ("0.0.0.0", "fd00::1", "0.0.0.0"),
        ("::", "10.96.0.1", "::"),
    ],
)
def test_the_family_is_that_of_the_clusters_services(given: Any, api_server: str, address: str) -> None:
    assert in_cluster(ControllerSettings(engine_address=given), api_server).engine_address == address
