"""Quantities are multiplied exactly, and written as the API server writes them."""

from __future__ import annotations

import pytest

from slipway.kube.values.quantity import amount, multiply


@pytest.mark.parametrize(
    ("quantity", "count", "product"),
    [
        ("1", 3, "3"),
        ("2Gi", 3, "6Gi"),
        ("24Gi", 8, "192Gi"),
        ("512Mi", 2, "1Gi"),
        ("512Mi", 3, "1536Mi"),
        ("1.5Gi", 1, "1536Mi"),
        ("0.5Ki", 1, "512"),
        ("0.1Gi", 1, "107374183"),
        ("500m", 2, "1"),
        ("500m", 3, "1500m"),
        ("0.5", 1, "500m"),
        ("0.5", 3, "1500m"),
        ("0.1", 3, "300m"),
        (".25", 1, "250m"),
        ("1.", 1, "1"),
        ("0.0001", 1, "100u"),
        ("1n", 1, "1n"),
        ("0.0000000001", 1, "1n"),
        ("500", 2, "1k"),
        ("1500k", 2, "3M"),
        ("1e3", 1, "1k"),
        ("1E3", 2, "2k"),
        ("1E", 1, "1E"),
        ("25e-1", 2, "5"),
        ("9007199254740993", 1, "9007199254740993"),
        ("0", 5, "0"),
        ("0Gi", 5, "0"),
    ],
)
def test_the_product_is_exact_and_canonical(quantity: str, count: int, product: str) -> None:
    assert multiply(quantity, count) == product


@pytest.mark.parametrize(
    "text", ["", "Gi", "1 Gi", "1gi", "1KiB", "lots", "1.2.3", "NaN", "inf", "0x10", "1_000", "1e99", "-1"]
)
def test_an_invalid_quantity_is_rejected(text: str) -> None:
    with pytest.raises(ValueError, match="quantity"):
        multiply(text, 1)


def test_a_quantity_comes_to_an_exact_number() -> None:
    assert amount("1Ki") == 1024
    assert amount("500m") * 2 == 1
    with pytest.raises(ValueError, match="24Gi"):
        amount("24GiB")
