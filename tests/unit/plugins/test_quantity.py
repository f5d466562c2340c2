"""Kubernetes quantities as whole numbers."""

from __future__ import annotations

import pytest
from ansible_collections.slipway.inference.plugins.filter.whole_quantity import whole_quantity

NUMBERS = {
    "8": 8,
    "0": 0,
    "1.9": 1,
    "2.": 2,
    ".5": 0,
    "1000000000n": 1,
    "2500000u": 2,
    "1500m": 1,
    "500m": 0,
    "1k": 1000,
    "2M": 2 * 1000**2,
    "3G": 3 * 1000**3,
    "4T": 4 * 1000**4,
    "5P": 5 * 1000**5,
    "6E": 6 * 1000**6,
    "1Ki": 1024,
    "1.5Mi": 1024**2 * 3 // 2,
    "15Gi": 15 * 1024**3,
    "1Ti": 1024**4,
    "1Pi": 1024**5,
    "7Ei": 7 * 1024**6,
    "2e3": 2000,
    "2E3": 2000,
    "25e-1": 2,
    "1e+2": 100,
}
INVALID = [
    "",
    "-1",
    "many",
    "1K",
    "1ki",
    "1 k",
    "1kk",
    "1e",
    "1e99999",
    "\u00b2",
    "\u0663",
    "9" * 33,
    "1k\n",
    None,
    True,
]


@pytest.mark.parametrize(("quantity", "number"), NUMBERS.items())
def test_a_quantity_is_a_whole_number(quantity: str, number: int) -> None:
    assert whole_quantity(quantity) == number


@pytest.mark.parametrize("value", INVALID)
def test_an_invalid_quantity_counts_as_nothing(value: object) -> None:
    assert whole_quantity(value) == 0
