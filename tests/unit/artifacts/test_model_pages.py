"""URLs of model pages, and the loader's arguments for them."""

from __future__ import annotations

import pytest

from slipway.artifacts.locations.model_pages import Page, UnsupportedError, parse, provider_of

HUB = "https://huggingface.co"


@pytest.mark.parametrize(
    ("url", "source"),
    [
        (f"{HUB}/acme/tiny", "hf://acme/tiny"),
        (f"{HUB}/acme/tiny/", "hf://acme/tiny"),
        ("https://www.huggingface.co/acme/tiny", "hf://acme/tiny"),
        ("https://hf.co/acme/tiny", "hf://acme/tiny"),
        (f"{HUB}/acme/tiny?revision=v1", "hf://acme/tiny@v1"),
        (f"{HUB}/acme/tiny?library=vllm&revision=refs%2Fpr%2F1", "hf://acme/tiny@refs/pr/1"),
        (f"{HUB}/acme/tiny/tree/main", "hf://acme/tiny@main"),
        (f"{HUB}/acme/tiny/tree/refs%2Fpr%2F1", "hf://acme/tiny@refs/pr/1"),
        (f"{HUB}/acme/tiny/tree/refs/pr/1/folder", "hf://acme/tiny@refs/pr/1"),
        (f"{HUB}/acme/tiny/tree/main/folder", "hf://acme/tiny@main"),
        (f"{HUB}/acme/tiny/blob/0123abc/config.json", "hf://acme/tiny@0123abc"),
        (f"{HUB}/acme/tiny/resolve/v1.0/a/b.gguf?download=true", "hf://acme/tiny@v1.0"),
        (f"{HUB}/acme/tiny/tree/main?revision=v2", "hf://acme/tiny@v2"),
        (f"{HUB}/acme/tiny/discussions/3", "hf://acme/tiny"),
        (f"{HUB}/acme/tiny#files", "hf://acme/tiny"),
        ("https://ollama.com/library/qwen3", "ollama://qwen3:latest"),
        ("https://www.ollama.com/library/qwen3.6:8b-q4_K_M", "ollama://qwen3.6:8b-q4_K_M"),
        ("https://ollama.com/library/qwen3:8b/blobs/abc", "ollama://qwen3:8b"),
        ("https://ollama.com/library/qwen3:8b?x=y#z", "ollama://qwen3:8b"),
    ],
)
def test_an_address_names_a_model(url: str, source: str) -> None:
    provider = "Ollama" if source.startswith("ollama") else "HuggingFace"
    assert parse(url) == Page(provider, source)
    assert provider_of(url) == provider


@pytest.mark.parametrize(
    "url",
    [
        "",
        "x",
        "http://huggingface.co/acme/tiny",
        "https://huggingface.co.evil.example/acme/tiny",
        "https://evil.example/huggingface.co/acme/tiny",
        "https://huggingface.co:8443/acme/tiny",
        "https://[huggingface.co/acme/tiny",
        f"{HUB}/tiny",
        f"{HUB}/datasets/acme/tiny",
        f"{HUB}/spaces/acme/tiny",
        f"{HUB}/acme/tiny/tree",
        f"{HUB}/acme/tiny/tree/..",
        f"{HUB}/acme/tiny?revision=../../x",
        f"{HUB}/acme/tiny?revision=a b",
        f"{HUB}/acme/tiny\n",
        f"{HUB}/acme/..%2f..%2fx",
        f"{HUB}/--x/y",
        "https://ollama.com/qwen3",
        "https://ollama.com/user/qwen3",
        "https://ollama.com/library/",
        "https://ollama.com/library/qwen3:",
        "https://ollama.com/library/..:a",
        "https://ollama.com/library/a%2Fb",
    ],
)
def test_a_request_without_a_model_is_rejected(url: str) -> None:
    with pytest.raises(UnsupportedError):
        parse(url)


def test_a_refusal_shows_no_query() -> None:
    with pytest.raises(UnsupportedError) as refused:
        parse(f"{HUB}/tiny?token=secret")
    assert "secret" not in str(refused.value)
