"""Model urls: their parts, what is refused and why, and which engine takes which."""

from __future__ import annotations

from typing import Any

import pytest

from slipway.artifacts.urls import SCHEMES, InvalidUrl, ModelUrl, parse, refusal

PARTS: dict[str, dict[str, Any]] = {
    "hf://acme/tiny": {"ref": "acme/tiny", "name": "acme", "path": "tiny"},
    "hf://acme/tiny-GGUF:q4_k_m": {"ref": "acme/tiny-GGUF:q4_k_m", "name": "acme", "path": "tiny-GGUF:q4_k_m"},
    "hf://tiny": {"ref": "tiny", "name": "tiny", "path": ""},
    "s3://bucket/deep/folder": {"ref": "bucket/deep/folder", "name": "bucket", "path": "deep/folder"},
    "s3://bucket": {"ref": "bucket", "name": "bucket", "path": ""},
    "gs://bucket/a://b/c": {"ref": "bucket/a://b/c", "name": "bucket", "path": "a://b/c"},
    "oss://bucket/folder": {"ref": "bucket/folder", "name": "bucket", "path": "folder"},
    "ollama://gemma2:2b": {"ref": "gemma2:2b", "name": "gemma2:2b", "path": ""},
    "ollama://hf.co/acme/tiny": {"ref": "hf.co/acme/tiny", "name": "hf.co", "path": "acme/tiny"},
    "ollama://gemma2?pull=false": {"ref": "gemma2", "name": "gemma2", "path": "", "pull": False},
    "ollama://gemma2?pull=FALSE": {"ref": "gemma2", "name": "gemma2", "path": "", "pull": False},
    "ollama://gemma2?pull=True": {"ref": "gemma2", "name": "gemma2", "path": ""},
    "ollama://host:5000/m?insecure=true": {"ref": "host:5000/m", "name": "host:5000", "path": "m", "insecure": True},
    "ollama://m?insecure=true&pull=false": {"ref": "m", "name": "m", "path": "", "insecure": True, "pull": False},
    "pvc://claim": {"ref": "claim", "name": "claim", "path": ""},
    "pvc://claim/": {"ref": "claim/", "name": "claim", "path": ""},
    "pvc://claim//": {"ref": "claim//", "name": "claim", "path": "/"},
    "pvc://claim/a/b": {"ref": "claim/a/b", "name": "claim", "path": "a/b"},
    "pvc://claim?model=qwen2:0.5b": {"ref": "claim", "name": "claim", "path": "", "model": "qwen2:0.5b"},
    "pvc://claim/a?model=b/c.gguf": {"ref": "claim/a", "name": "claim", "path": "a", "model": "b/c.gguf"},
    "oci://registry/team/model:1": {"ref": "registry/team/model:1", "name": "registry", "path": "team/model:1"},
}


@pytest.mark.parametrize("text", PARTS)
def test_a_url_has_these_parts(text: str) -> None:
    assert parse(text) == ModelUrl(scheme=text.partition("://")[0], **PARTS[text])


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "scheme://place"),
        ("acme/tiny", "scheme://place"),
        ("hf://", "scheme://place"),
        ("hf://?model=a", "scheme://place"),
        ("hF://acme/tiny", "scheme://place"),
        ("h@f://acme/tiny", "scheme://place"),
        ("ftp://acme/tiny", "the scheme ftp is not known, but hf, ollama, pvc"),
        ("hf://acme/ tiny", "spaces"),
        ("hf://acme/tiny\n", "spaces"),
        ("hf://acme/tïny", "beyond ASCII"),
        ("pvc://claim/../other", "stay below it"),
        ("hf://../tiny", "stay below it"),
        ("pvc:///a", "begin with a name"),
        ("ollama://--help", "begin with a name"),
        ("pvc://claim?model=", "neither a model's name"),
        ("pvc://claim?model=$(id)", "neither a model's name"),
        ("pvc://claim?model=a%20b", "neither a model's name"),
        ("pvc://claim?model=a/../../b", "neither a model's name"),
        ("pvc://claim?model=/etc/passwd", "neither a model's name"),
        ("pvc://claim?model=-x", "neither a model's name"),
        ("ollama://gemma2?pull=never", "pull must be true or false"),
        ("ollama://gemma2?insecure=", "insecure must be true or false"),
        ("ollama://gemma2?Pull=false", "the option Pull is not known, but model, insecure and pull"),
    ],
)
def test_a_url_that_names_no_model_is_refused_with_what_is_expected(text: str, told: str) -> None:
    with pytest.raises(InvalidUrl, match=told.replace("$", r"\$")) as caught:
        parse(text)
    assert repr(text) in str(caught.value)


def test_its_place_is_the_url_without_options() -> None:
    assert parse("pvc://claim/a?model=b").place == "pvc://claim/a"


TAKEN = {
    "vllm": "hf pvc s3 oci",
    "sglang": "hf pvc oci",
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
    taken = [scheme for scheme in SCHEMES if refusal(url_of(scheme), engine, cached=False) is None]
    assert set(taken) == set(TAKEN[engine].split())


@pytest.mark.parametrize("engine", CACHED)
def test_with_a_cache_every_engine_but_ollama_takes_what_the_loader_can_fetch(engine: str) -> None:
    taken = [scheme for scheme in SCHEMES if refusal(url_of(scheme), engine, cached=True) is None]
    assert set(taken) == set(CACHED[engine].split())


@pytest.mark.parametrize(
    ("url", "engine", "cached", "told"),
    [
        ("gs://bucket/folder", "vllm", False, "name a cacheProfile"),
        ("s3://bucket/folder", "infinity", False, "name a cacheProfile"),
        ("ollama://gemma2", "vllm", False, "write hf://"),
        ("hf://acme/tiny", "ollama", False, "write ollama://"),
        ("hf://acme/tiny", "ollama", True, "write ollama://"),
        ("pvc://claim", "vllm", True, "a cache can be filled from hf, s3, gs, oss only"),
        ("pvc://claim", "ollama", False, r"\?model=<name>"),
        ("pvc://claim", "llamacpp", False, r"\?model=<path of the GGUF file>"),
        ("hf://acme/tiny", "llamacpp", True, r"\?model=<path of the GGUF file>"),
    ],
)
def test_a_refusal_says_what_to_write_instead(url: str, engine: str, cached: bool, told: str) -> None:
    reason = refusal(parse(url), engine, cached=cached)
    assert reason is not None
    with pytest.raises(ValueError, match=told):
        raise ValueError(reason)
    assert reason.startswith(url)
