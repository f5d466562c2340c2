"""Repositories of the hub in the words of browsers, llama.cpp and Ollama: taken, or refused with what to write."""

from __future__ import annotations

from typing import Any

import pytest

from slipway.apis.kubeai.engines import refusal
from slipway.apis.kubeai.urls import InvalidUrlError
from slipway.apis.kubeai.urls import parse as kubeai_url
from slipway.apis.ome.models.storage import parse_storage as ome_storage
from slipway.artifacts.locations.huggingface import HuggingFaceFile, parse_foreign_name
from slipway.artifacts.locations.model_pages import UnsupportedError
from slipway.artifacts.locations.model_pages import parse as deckhouse_page
from slipway.engines import ENGINES
from slipway.serving.contract.api import InvalidSpecError
from slipway.serving.contract.settings import Settings, Sources
from slipway.weights.sources.source import Request, SourceError
from slipway.weights.sources.source import parse as source

from .ome import services as ome

REPOSITORY = "acme/tiny-GGUF"
WITH_HOST = [
    f"{before}{host}/{REPOSITORY}"
    for host in ("hf.co", "huggingface.co", "www.huggingface.co", "HF.co", "hf.co:443")
    for before in ("", "hf://")
]


@pytest.mark.parametrize("text", [*WITH_HOST, f"https://hf.co/{REPOSITORY}"])
def test_llmkube_takes_a_repository_with_its_host(text: str) -> None:
    assert source(Request(text=text), Sources()).repository == REPOSITORY


@pytest.mark.parametrize(
    "text", [f"hf.co/{REPOSITORY}/resolve/main/a.gguf", f"huggingface.co/{REPOSITORY}/blob/main/a.gguf"]
)
def test_llmkube_takes_a_file_with_its_host(text: str) -> None:
    resolved_source = source(Request(text=text, gguf=True), Sources())
    assert (resolved_source.url, resolved_source.files) == (f"hf://{REPOSITORY}@main", ("a.gguf",))


@pytest.mark.parametrize("text", [f"{REPOSITORY}:Q4_K_M", f"hf://{REPOSITORY}:Q4_K_M", f"hf.co/{REPOSITORY}:Q4_K_M"])
def test_llmkube_names_the_quantization(text: str) -> None:
    with pytest.raises(SourceError, match=rf"Write {REPOSITORY}, and quantization: Q4_K_M"):
        source(Request(text=text, gguf=True), Sources())


@pytest.mark.parametrize("text", ["hf.co/tiny", "hf.co", "hf.co/", "huggingface.co/datasets/acme/x", "hf.co//"])
def test_a_host_alone_is_no_owner(text: str) -> None:
    with pytest.raises(SourceError):
        source(Request(text=text), Sources())


@pytest.mark.parametrize(
    "text",
    [*WITH_HOST, f"https://huggingface.co/{REPOSITORY}", f"hf:{REPOSITORY}", f"https://hf.co/{REPOSITORY}/tree/main"],
)
def test_krypton_and_kubeai_say_what_to_write(text: str) -> None:
    fault = HuggingFaceFile(text, "a.gguf").fault("source.huggingface", "source.file")
    assert fault is not None
    assert fault.endswith(f". Write {REPOSITORY}.")
    with pytest.raises(InvalidUrlError, match=f"write hf://{REPOSITORY}$"):
        kubeai_url(text)


def test_krypton_names_the_file_of_a_quantization() -> None:
    fault = HuggingFaceFile(f"{REPOSITORY}:Q4_K_M", "a.gguf").fault("source.huggingface", "source.file")
    assert fault is not None
    assert f"Write {REPOSITORY}, and name its Q4_K_M file" in fault


@pytest.mark.parametrize(("engine", "cached", "refused"), [("vllm", False, True), ("llamacpp", False, False)])
def test_kubeai_takes_a_quantization_where_the_engine_does(engine: str, cached: bool, refused: bool) -> None:
    error = refusal(kubeai_url(f"hf://{REPOSITORY}:Q4_K_M"), ENGINES[engine], cached=cached)
    assert bool(error) is refused
    assert not refused or f"Write hf://{REPOSITORY}" in str(error)


@pytest.mark.parametrize(
    "host",
    [
        *("docker.io", "ghcr.io", "localhost:5000", "registry.ollama.ai", "modelscope.cn", "1.dkr.ecr.amazonaws.com"),
        *("mcr.microsoft.com", "public.ecr.aws", "registry.k8s.io", "europe-docker.pkg.dev", "hf-mirror.com"),
    ],
)
@pytest.mark.parametrize("rest", ["acme", "acme/tiny", "acme/tiny:1"])
def test_another_host_is_no_owner(host: str, rest: str) -> None:
    text, words = f"{host}/{rest}", f"is on {host}, not on the Hugging Face Hub"
    for given in (text, f"hf://{text}"):
        with pytest.raises(SourceError, match=words):
            source(Request(text=given), Sources())
    assert words in str(HuggingFaceFile(text, "a.gguf").fault("source.huggingface", "source.file"))
    with pytest.raises(InvalidUrlError, match=words):
        kubeai_url(f"hf://{text}")
    with pytest.raises(InvalidSpecError, match=words):
        ome_storage(model(f"hf://{text}"), Settings())


@pytest.mark.parametrize("text", ["docker/tiny", "github/tiny", "acme.io/tiny", "localhosts/tiny", "localhost/tiny"])
def test_an_owner_may_be_called_like_a_host(text: str) -> None:
    assert source(Request(text=text), Sources()).repository == text


@pytest.mark.parametrize(
    "text", [f"hf.co/{REPOSITORY}", f"huggingface.co/{REPOSITORY}", REPOSITORY + ":Q4", f"hf:{REPOSITORY}"]
)
def test_ome_reports_what_to_write_instead(text: str) -> None:
    with pytest.raises(InvalidSpecError, match=f"rite hf://{REPOSITORY}"):
        ome_storage(model(text), Settings())


def test_ome_takes_a_repository_with_its_host() -> None:
    assert ome_storage(model(f"hf://hf.co/{REPOSITORY}"), Settings()).url == f"hf://{REPOSITORY}"
    with pytest.raises(InvalidSpecError, match="quantization: Q4"):
        ome_storage(model(f"hf://{REPOSITORY}:Q4"), Settings())


@pytest.mark.parametrize("text", [f"hf.co/{REPOSITORY}", f"hf://{REPOSITORY}", f"http://huggingface.co/{REPOSITORY}"])
def test_deckhouse_reports_what_to_write_instead(text: str) -> None:
    with pytest.raises(UnsupportedError, match=f"write https://huggingface.co/{REPOSITORY}"):
        deckhouse_page(text)


@pytest.mark.parametrize(
    "text", ["", "acme", REPOSITORY, "a b/c", "s3://bucket/x", "hf.co/acme", "x" * 5000 + "/y", "/mnt/x/y"]
)
def test_other_texts_mean_nothing(text: str) -> None:
    assert parse_foreign_name(text) is None


def model(uri: str) -> Any:
    return {**ome.model(), "spec": {**ome.model()["spec"], "storage": {"storageUri": uri}}}
