"""Which parts of split weights are missing, by the names of the files."""

from __future__ import annotations

import pytest

from slipway.artifacts.files.soundness import missing_part, parts_of


def named(pattern: str, numbers: range) -> list[str]:
    return [pattern.format(number) for number in numbers]


DEEPSEEK, KIMI, GPT_OSS = (
    "model-{:05}-of-000163.safetensors",
    "model-{}-of-61.safetensors",
    "model-{:05}-of-00002.safetensors",
)


@pytest.mark.parametrize(("pattern", "first", "last"), [(DEEPSEEK, 1, 163), (KIMI, 1, 61), (GPT_OSS, 0, 2)])
def test_a_missing_part_is_named_as_the_others_are(pattern: str, first: int, last: int) -> None:
    names = named(pattern, range(first, last + 1))
    assert missing_part(names) == ""
    assert missing_part([names[0], *names[2:]]) == names[1]


def test_parts_are_counted_from_one_unless_one_is_zero() -> None:
    assert missing_part(named(KIMI, range(2, 62))) == KIMI.format(1)
    assert missing_part(named(GPT_OSS, range(2))) == ""


@pytest.mark.parametrize(("pattern", "first", "last"), [(DEEPSEEK, 1, 163), (KIMI, 1, 61), (GPT_OSS, 0, 2)])
def test_a_part_names_the_others(pattern: str, first: int, last: int) -> None:
    assert list(parts_of(pattern.format(first))) == named(pattern, range(first, last + 1))


@pytest.mark.parametrize(
    "name", ["model-of-2.safetensors", "a-1-of-2.json", "a-1-of-1234567.safetensors", "a-1-of-1.bin"]
)
def test_another_file_is_no_part(name: str) -> None:
    assert parts_of(name) == ()
    assert missing_part([name]) == ""
