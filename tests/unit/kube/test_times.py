"""Durations and stamps as Kubernetes writes them."""

from __future__ import annotations

import pytest

from slipway.kube.values.times import parse_duration, unix_time


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        *(("600s", 600), ("1h30m", 5400), ("0s", 0), ("0", 0), ("1.5m", 90), ("250ms", 0.25)),
        *(("0" * 62 + "1s", 1), ("1h" * 32, 32 * 3600)),
        *((".5h", 1800), ("1.h", 3600), ("+90s", 90), ("2000\u00b5s", 0.002), ("2000\u03bcs", 0.002)),
    ],
)
def test_a_go_duration_is_read_in_seconds(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    "text", ["", "600", "ten minutes", "1d", "5 m", "-3s", "3s!", ".s", "+", "1e3s", "0s0", "0" * 63 + "1s"]
)
def test_anything_else_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match="such as 90s"):
        parse_duration(text)


def test_a_stamp_is_utc() -> None:
    assert unix_time("1970-01-01T00:01:00Z") == 60
