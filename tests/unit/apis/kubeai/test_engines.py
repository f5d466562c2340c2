"""Which urls each of KubeAI's engines takes, and what is said of the others."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from slipway.apis.kubeai.engines import refusal
from slipway.apis.kubeai.urls import SCHEMES, ModelUrl, parse
from slipway.engines import ENGINES

TAKEN = {
    "vllm": "hf pvc s3 oci",
    "sglang": "hf pvc s3 oci",
    "fasterwhisper": "hf pvc oci",
    "infinity": "hf pvc oci",
    "llamacpp": "hf pvc oci",
    "ollama": "ollama pvc",
}
CACHED = {engine: "hf s3 gs oss" for engine in TAKEN if engine != "ollama"} | {"ollama": ""}


def url_of(scheme: str) -> ModelUrl:
    return parse(f"{scheme}://place/folder?model=tiny")


@pytest.mark.parametrize("engine", TAKEN)
def test_every_engine_takes_the_urls_that_it_can_read(engine: str) -> None:
    taken = [scheme for scheme in SCHEMES if refusal(url_of(scheme), ENGINES[engine], cached=False) is None]
    assert set(taken) == set(TAKEN[engine].split())


@pytest.mark.parametrize("engine", CACHED)
def test_with_a_cache_every_engine_but_ollama_takes_what_the_loader_can_fetch(engine: str) -> None:
    taken = [scheme for scheme in SCHEMES if refusal(url_of(scheme), ENGINES[engine], cached=True) is None]
    assert set(taken) == set(CACHED[engine].split())


@pytest.mark.parametrize(
    ("url", "engine", "cached", "expected"),
    [
        ("gs://bucket/folder", "vllm", False, "Set cacheProfile"),
        ("s3://bucket/folder", "infinity", False, "Set cacheProfile"),
        ("ollama://gemma2", "vllm", False, "Write hf://"),
        ("hf://acme/tiny", "ollama", False, "Write ollama://"),
        ("hf://acme/tiny", "ollama", True, "Write ollama://"),
        ("pvc://claim", "vllm", True, "caches support only hf, s3, gs, oss"),
        ("pvc://claim", "ollama", False, r"\?model=<name>"),
        ("pvc://claim", "llamacpp", False, r"\?model=<path of the GGUF file>"),
        ("hf://acme/tiny", "llamacpp", True, r"\?model=<path of the GGUF file>"),
    ],
)
def test_a_refusal_says_what_to_write_instead(url: str, engine: str, cached: bool, expected: str) -> None:
    reason = refusal(parse(url), ENGINES[engine], cached=cached)
    assert reason is not None
    with pytest.raises(ValueError, match=expected):
        raise ValueError(reason)
    assert reason.startswith(repr(url))


@pytest.mark.parametrize("scheme", [scheme for scheme in SCHEMES if scheme != "pvc"])
def test_an_engine_gets_nothing_that_it_does_not_say_it_reads(scheme: str) -> None:
    new = replace(ENGINES["vllm"], name="new", schemes=frozenset({"pvc"}))
    assert refusal(url_of("pvc"), new, cached=False) is None
    assert refusal(url_of(scheme), new, cached=False) is not None
    assert (
        refusal(url_of("s3"), new, cached=True) == "'s3://place/folder': the engine does not support s3://. Use pvc://"
    )
