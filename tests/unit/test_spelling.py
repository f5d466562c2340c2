"""Suggestions for misspelled names."""

from __future__ import annotations

from itertools import count, islice

import pytest

from slipway.spelling import NAMES, did_you_mean

PROFILES = ("amd-gpu-mi300x", "cpu", "demo", "nvidia-gpu-l4", "nvidia-gpu-l40s")


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("dmo", "; did you mean demo?"),
        ("CPU", "; did you mean cpu?"),
        ("nvidia-gpu-l4O", "; did you mean nvidia-gpu-l4 or nvidia-gpu-l40s?"),
        ("tpu", ""),
        ("tpu-v5", ""),
        ("", ""),
    ],
)
def test_it_names_what_is_written_alike(written: str, expected: str) -> None:
    assert did_you_mean(written, PROFILES) == expected


def test_a_name_keeps_its_case() -> None:
    assert did_you_mean("tinyllama-q4_k_m.gguf", ["TinyLlama-Q4_K_M.gguf"]) == "; did you mean TinyLlama-Q4_K_M.gguf?"


def test_names_without_end_cost_no_more_than_a_few() -> None:
    counter = count()
    names = (f"name-{next(counter)}" for _ in range(100_000))
    assert "name-7" in did_you_mean("name-7", names)
    assert next(counter) == NAMES


def test_a_name_of_any_length_is_taken() -> None:
    assert did_you_mean("a" * 1_000_000, PROFILES) == ""
    assert did_you_mean("cpu", ["cpu" * 1_000_000, *islice(PROFILES, 2)]) == "; did you mean cpu?"
