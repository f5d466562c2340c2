"""Model urls: their parts, and which texts are none."""

from __future__ import annotations

from typing import Any

import pytest

from slipway.apis.kubeai.urls import InvalidUrlError, ModelUrl, parse

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
    ("text", "expected"),
    [
        ("", "scheme://place"),
        ("acme/tiny", "scheme://place"),
        ("hf://", "scheme://place"),
        ("hf://?model=a", "scheme://place"),
        ("hF://acme/tiny", "scheme://place"),
        ("h@f://acme/tiny", "scheme://place"),
        ("ftp://acme/tiny", "unknown scheme ftp. Use hf, ollama, pvc"),
        ("hf://acme/ tiny", "spaces"),
        ("hf://acme/tiny\n", "spaces"),
        ("hf://acme/tïny", "non-ASCII"),
        ("pvc://claim/../other", "a relative path"),
        ("hf://../tiny", "a relative path"),
        ("pvc:///a", "a relative path"),
        ("ollama://--help", "a relative path"),
        ("pvc://claim?model=", "neither a model name"),
        ("pvc://claim?model=$(id)", "neither a model name"),
        ("pvc://claim?model=a%20b", "neither a model name"),
        ("pvc://claim?model=a/../../b", "neither a model name"),
        ("pvc://claim?model=/etc/passwd", "neither a model name"),
        ("pvc://claim?model=-x", "neither a model name"),
        ("ollama://gemma2?pull=never", "pull must be true or false"),
        ("ollama://gemma2?insecure=", "insecure must be true or false"),
        ("ollama://gemma2?Pull=false", r"unknown option Pull. Use model, insecure, pull; did you mean pull\?"),
        ("olama://gemma2", r"Use hf, ollama, pvc, .*; did you mean ollama\?"),
    ],
)
def test_a_url_that_names_no_model_is_refused_with_what_is_expected(text: str, expected: str) -> None:
    with pytest.raises(InvalidUrlError, match=expected.replace("$", r"\$")) as caught:
        parse(text)
    assert repr(text) in str(caught.value)


def test_its_place_is_the_url_without_options() -> None:
    assert parse("pvc://claim/a?model=b").place == "pvc://claim/a"
