"""Runs a large table of cases as one test, and provides seeds for tests with generated cases.

A separate test for each row would take longer than the rows themselves. A failure still reports every failing row
with its line.
"""

from __future__ import annotations

import inspect
import os
import traceback
from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any

import pytest

TIMES = int(os.environ.get("SLIPWAY_FUZZ", "1"))
"""Factor for the number of seeds; the lane fuzz increases it."""
MOST_REPORTED = 20


def seeds(number: int) -> range:
    """``number`` seeds in CI, more in the lane fuzz."""
    return range(number * TIMES)


def each(rows: Iterable[Any], ids: Callable[[Any], str] = repr) -> Callable[[Callable[..., None]], Callable[[], None]]:
    """Turns a check into one test for all rows. A check with several parameters gets the items of a row."""

    def decorate(check: Callable[..., None]) -> Callable[[], None]:
        several = len(inspect.signature(check).parameters) > 1

        @wraps(check)
        def test() -> None:
            table = list(rows)
            if not table:
                pytest.skip("the table has no rows")
            failures = []
            for row in table:
                try:
                    check(*row) if several else check(row)
                except (Exception, pytest.fail.Exception) as error:  # noqa: BLE001  # reported below
                    failures.append(f"{ids(row):.200}\n{describe(error, check)}")
            if failures:
                more = f"\n... and {len(failures) - MOST_REPORTED} more" if len(failures) > MOST_REPORTED else ""
                report = "\n".join(failures[:MOST_REPORTED])
                pytest.fail(f"{len(failures)} of {len(table)} rows:\n{report}{more}", pytrace=False)

        # Without this, pytest would take the parameters of the check for fixtures.
        test.__signature__ = inspect.Signature()  # type: ignore[attr-defined]
        return test

    return decorate


def describe(error: BaseException, check: Callable[..., None]) -> str:
    """The innermost line of the test file in the traceback, and the error message."""
    frames = traceback.extract_tb(error.__traceback__)
    (place,) = [frame for frame in frames if frame.filename == check.__code__.co_filename][-1:]
    text = "\n".join(traceback.format_exception_only(error)).strip()
    return "\n".join(f"    {line}" for line in (f"line {place.lineno}: {place.line}", *text.splitlines()))
