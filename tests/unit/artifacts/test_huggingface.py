"""What a reference to the Hugging Face hub may name."""

from __future__ import annotations

import pytest

from slipway.artifacts.locations.huggingface import HuggingFaceFile, chosen_token, reference


@pytest.mark.parametrize("repository", ["acme/tiny", "Qwen/Qwen2.5-0.5B-Instruct-GGUF", "0x/a_b.c-d"])
def test_a_repository_has_letters_digits_and_few_signs(repository: str) -> None:
    assert HuggingFaceFile(repository, "tiny.gguf").fault("source.huggingface", "source.file") is None
    assert reference(repository.split("/"), repository).repository == repository


@pytest.mark.parametrize("repository", ["acme/ti\u0144y", "acm\u00e9/tiny", "acme/tiny\u0661", "acme/-tiny", "acme"])
def test_letters_of_other_scripts_name_no_repository(repository: str) -> None:
    message = HuggingFaceFile(repository, "tiny.gguf").fault("source.huggingface", "source.file")
    assert message is not None
    assert message.startswith("source.huggingface")
    with pytest.raises(ValueError, match="is not a repository"):
        reference(repository.split("/"), repository)


def test_letters_of_other_scripts_name_no_revision() -> None:
    assert reference(["acme", "tiny@v1.0_b"], "acme/tiny@v1.0_b").revision == "v1.0_b"
    with pytest.raises(ValueError, match="v\u00e9"):
        reference(["acme", "tiny@v\u00e9"], "acme/tiny@v\u00e9")


@pytest.mark.parametrize(
    ("given", "token"),
    [
        ({}, None),
        ({"SLIPWAY_HUB_TOKEN_0": "a", "SLIPWAY_HUB_TOKEN_1": "b"}, "a"),
        ({"SLIPWAY_HUB_TOKEN_0": " ", "SLIPWAY_HUB_TOKEN_1": "b\n", "SLIPWAY_HUB_TOKEN_2": "c"}, "b"),
        ({"SLIPWAY_HUB_TOKEN_2": "c", "HF_TOKEN": "d"}, "c"),
    ],
)
def test_the_first_matching_key_of_a_secret_provides_the_token(given: dict[str, str], token: str | None) -> None:
    assert chosen_token(given).get("HF_TOKEN") == token
