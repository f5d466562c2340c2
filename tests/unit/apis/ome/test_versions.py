"""Versions: the grammar, and which versions of a runtime and a model go together."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from slipway.apis.ome.runtimes.versions import EQUAL, GREATER, GREATER_OR_EQUAL, agrees, parse

REFERENCE = Path(__file__).parents[5] / "shared/reference/samples/ome/selector-cases"
COMPARED: list[dict[str, Any]] = [
    row for path in REFERENCE.glob("TestVersionComparison.json") for row in json.loads(path.read_text())
]


@pytest.mark.parametrize(
    ("text", "release", "precision", "suffixes"),
    [
        ("1", (1, 0, 0), 1, (None, None, None)),
        ("1.12", (1, 12, 0), 2, (None, None, None)),
        ("v0.8.0", (0, 8, 0), 3, (None, None, None)),
        ("4.51.0.dev0", (4, 51, 0), 3, (("0",), None, None)),
        ("1.8.0-rc.1", (1, 8, 0), 3, (None, ("rc", "1"), None)),
        ("1.8.0+2024-07", (1, 8, 0), 3, (None, None, ("2024-07",))),
        ("1.8.0.dev3-rc+b.7", (1, 8, 0), 3, (("3",), ("rc",), ("b", "7"))),
    ],
)
def test_a_version_is_read_as_the_original_reads_it(
    text: str, release: tuple[int, ...], precision: int, suffixes: tuple[Any, ...]
) -> None:
    version = parse(text)
    assert (version.release, version.precision) == (release, precision)
    assert (version.dev, version.pre, version.build) == suffixes


@pytest.mark.parametrize(
    "text",
    ["", "latest", "V1.0.0", "1.", "1..0", "01.0.0", "1.02.0", "1.0-rc", "1.0.0.0", "\u0661.0.0", "1" * 40, "1.0.0-"],
)
def test_a_malformed_version_is_rejected_and_does_not_agree_with_itself(text: str) -> None:
    with pytest.raises(ValueError, match="is not a version"):
        parse(text)
    assert agrees(text, text) is (text == "")


@pytest.mark.parametrize(
    ("runtime", "model", "operator", "expected"),
    [
        ("", "", EQUAL, True),
        ("1.0.0", "", EQUAL, False),
        ("", "1.0.0", EQUAL, False),
        ("1.0.0", "1", EQUAL, True),
        ("v1", "1.0.0", EQUAL, True),
        ("1.0.0", "1.0.1", EQUAL, False),
        ("2.0.0", "1.0.0", GREATER, True),
        ("1.0.0", "1.0.0", GREATER, False),
        ("1.0.0", "2.0.0", GREATER, False),
        ("1.0.0", "1.0.0", GREATER_OR_EQUAL, True),
        ("1.9.0", "1.10.0", GREATER_OR_EQUAL, False),
        ("2.0", "1.0.0", GREATER, False),
        ("v2.0.0", "1.0.0", GREATER, False),
        ("2.0.0.dev0", "1.0.0", GREATER, False),
        ("2.0.0", "1.0.0-rc1", GREATER_OR_EQUAL, False),
        ("2.0.0-rc1", "2.0.0-rc1", GREATER, True),
        ("2.0.0", "1.0.0", "LessThan", False),
        ("1.0.0", "1.0.0", "LessThan", True),
    ],
)
def test_the_operator_is_read_from_the_runtimes_side(runtime: str, model: str, operator: str, expected: bool) -> None:
    assert agrees(runtime, model, operator) is expected


@pytest.mark.parametrize("row", COMPARED, ids=lambda row: row["name"])
def test_versions_compare_as_the_original_compares_them(row: dict[str, Any]) -> None:
    assert agrees(row["v1"], row["v2"], EQUAL) is row["equal"]
    if parse(row["v1"]).official:  # others no operator orders, there as here
        assert agrees(row["v1"], row["v2"], GREATER) is row["greaterThan"]
