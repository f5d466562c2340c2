"""Typed settings become flags in the order of a table, and what has no effect is left out and told."""

from __future__ import annotations

import pytest

from slipway.engines.definition.flags import FlagSpec, Value, arguments, flag_names, without_effect

TABLE = (
    FlagSpec("size", "--size", ("-s",)),
    FlagSpec("fast", "--fast", on="yes", gpu=True),
    FlagSpec("each", "--each", repeats=True),
    FlagSpec("text", "--text", needs="size"),
    FlagSpec("off", "--off", unless=("--no-off",)),
)
ALL: dict[str, Value] = {"off": True, "text": "a b", "each": ("1", "2"), "fast": True, "size": 0}


def test_settings_become_flags_in_the_tables_order() -> None:
    words = ["--size", "0", "--fast", "yes", "--each", "1", "--each", "2", "--text"]
    assert arguments(TABLE, ALL, (), gpus=1) == (*words, "a b", "--off")


@pytest.mark.parametrize(
    ("extra", "gpus", "left_out"),
    [
        ((), 1, {}),
        ((), 0, {"fast": "there is no GPU"}),
        (("--size", "3"), 1, {"size": "extraArgs has --size"}),
        (("-s=3",), 1, {"size": "extraArgs has -s"}),
        (("--no_off",), 1, {"off": "extraArgs has --no-off"}),
        (("--each", "3"), 1, {}),
    ],
)
def test_a_setting_without_effect_is_omitted_and_reported(
    extra: tuple[str, ...], gpus: int, left_out: dict[str, str]
) -> None:
    assert without_effect(TABLE, ALL, extra, gpus, "extraArgs") == left_out
    given = flag_names(arguments(TABLE, ALL, extra, gpus))
    assert not {f"--{name}" for name in left_out} & given
    assert {f"--{name}" for name in ALL.keys() - left_out.keys()} <= given


def test_a_setting_that_no_engine_has_or_that_needs_another_one_is_reported() -> None:
    assert without_effect(TABLE, {"text": "x", "wing": 1}, (), 0) == {
        "text": "it needs a size",
        "wing": "the runtime has no such setting",
    }
