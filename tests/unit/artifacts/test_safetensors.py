"""Safetensors headers: counts and sizes of good ones, and that no bad one does any harm."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

import pytest

from slipway.artifacts.headers.range_reader import PIECE, MalformedFileError, UnreadableError
from slipway.artifacts.headers.safetensors import LONGEST, MOST_BYTES, MOST_FIELDS, Budget, Safetensors, parse

from .pieces import Bytes

TENSORS: dict[str, Any] = {
    "__metadata__": {"format": "pt"},
    "b": {"dtype": "F32", "shape": [2], "data_offsets": [24, 32]},
    "a": {"dtype": "BF16", "shape": [3, 4], "data_offsets": [0, 24]},
    "scalar": {"dtype": "BF16", "shape": [], "data_offsets": [32, 34]},
    "none": {"dtype": "BF16", "shape": [0, 7], "data_offsets": [34, 34]},
}


def written(document: object) -> bytes:
    text = document if isinstance(document, bytes) else json.dumps(document).encode()
    return len(text).to_bytes(8, "little") + text


def test_a_header_says_how_many_numbers_of_which_type_there_are() -> None:
    file = Bytes(written(TENSORS), size=1 << 40)
    assert parse(file) == Safetensors(
        tensor_count=4, parameters={"BF16": 13, "F32": 2}, size=len(written(TENSORS)) + 34
    )
    assert file.taken <= PIECE


def test_a_header_without_tensors_is_one() -> None:
    assert parse(Bytes(written({}))) == Safetensors(tensor_count=0, parameters={}, size=10)


def test_every_header_that_is_cut_off_is_refused() -> None:
    whole = written(TENSORS)
    for length in range(len(whole)):
        with pytest.raises(MalformedFileError):
            parse(Bytes(whole[:length]))


def tensor(**changed: object) -> dict[str, object]:
    return {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]} | changed


HOSTILE: dict[str, bytes] = {
    "empty": b"",
    "length without end": b"\xff" * 64,
    "length beyond the bound": (LONGEST + 1).to_bytes(8, "little"),
    "length beyond the format": (100_000_001).to_bytes(8, "little") + b"{",
    "no document of such a length": (LONGEST + 1).to_bytes(8, "little") + b"x",
    "no length": bytes(64),
    "no JSON": written(b"<!DOCTYPE html>"),
    "a list": written([1, 2]),
    "no text": written(b'{"\xff": 1}'),
    "a tensor that is none": written({"a": 5}),
    "a type that is none": written({"a": tensor(dtype="x" * 99)}),
    "countless types": written({f"{n}": tensor(dtype=f"F{n}", shape=[0], data_offsets=[0, 0]) for n in range(99)}),
    "no shape": written({"a": {"dtype": "F32", "data_offsets": [0, 4]}}),
    "a shape of words": written({"a": tensor(shape=["x"])}),
    "a negative shape": written({"a": tensor(shape=[-4])}),
    "a shape beyond numbers": written({"a": tensor(shape=[1 << 62, 1 << 62])}),
    "a shape of many dimensions": written({"a": tensor(shape=[1] * 99)}),
    "offsets backwards": written({"a": tensor(data_offsets=[4, 0])}),
    "three offsets": written({"a": tensor(data_offsets=[0, 4, 8])}),
    "a gap at the beginning": written({"a": tensor(data_offsets=[4, 8])}),
    "an end beyond int64": written({"a": tensor(data_offsets=[0, 1 << 63])}),
    "an end beyond all numbers": written({"a": tensor(data_offsets=[0, 10**30])}),
    "a size beyond int64": written({"a": tensor(data_offsets=[0, (1 << 63) - 1])}),
    "a shape with a zero behind many digits": written({"a": tensor(shape=[1 << 63] * 63 + [0])}),
    "tensors in one place": written({"a": tensor(), "b": tensor()}),
    "depth": written(b'{"a":' + b"[" * 100_000),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_an_invalid_header_is_rejected_at_once(case: str) -> None:
    file = Bytes(HOSTILE[case])
    with pytest.raises(MalformedFileError):
        parse(file)
    assert file.taken <= 2 * PIECE


UNREADABLE = {
    "a long header": (LONGEST + 1).to_bytes(8, "little") + b"{",
    "countless types": HOSTILE["countless types"],
    "many dimensions": HOSTILE["a shape of many dimensions"],
}


@pytest.mark.parametrize("case", UNREADABLE)
def test_a_header_beyond_our_limits_may_be_sound(case: str) -> None:
    with pytest.raises(UnreadableError):
        parse(Bytes(UNREADABLE[case]))


def refusal(file: Bytes) -> str:
    """What is said of a file; empty: it is taken for a good one."""
    try:
        parse(file)
    except MalformedFileError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("seed", range(4))
def test_damaged_bytes_never_do_more_than_being_refused(seed: int) -> None:
    dice, whole = random.Random(seed), written(TENSORS)
    for _unused in range(400):
        damaged = bytearray(whole)
        for _place in range(dice.randint(1, 6)):
            damaged[dice.randrange(len(damaged))] = dice.randrange(256)
        assert len(refusal(Bytes(bytes(damaged)))) < 600


def crowded(tensors: int) -> bytes:
    rows = (f'"{number:x}":{{"dtype":"F32","shape":[0],"data_offsets":[0,0]}}' for number in range(tensors))
    return written(f"{{{','.join(rows)}}}".encode())


def until_refused(one: bytes, take: Callable[[bytes], object]) -> int:
    """How often ``take`` takes it before it is too much; at most a thousand times."""
    for taken in range(1000):
        try:
            take(one)
        except MalformedFileError as error:
            assert "its files are too long" in str(error)  # noqa: PT017
            return taken
    return 1000


def test_the_files_of_one_source_have_one_budget() -> None:
    """A thousand files of a million values each would take an hour."""
    budget = Budget()
    files = until_refused(crowded(10_000), lambda one: parse(Bytes(one), budget))
    assert 10 <= files <= MOST_FIELDS / 4 / 10_000


def test_a_model_of_a_hundred_thousand_tensors_is_read() -> None:
    one, budget = crowded(20_000), Budget()
    assert sum(parse(Bytes(one), budget).tensor_count for _unused in range(5)) == 100_000


@pytest.mark.parametrize("filler", [b" ", b'"a":0,', b'"a":{},'])
def test_header_entries_without_a_tensor_count_too(filler: bytes) -> None:
    size = 8 << 20
    document = b"{" + filler * (size // len(filler)) + b'"z":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}}'
    assert until_refused(document, Budget().spend) * len(document) <= MOST_BYTES
