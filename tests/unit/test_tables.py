"""A table test reports every failing row with its line; slow files run first."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests import conftest
from tests.tables import each


def outcome(check: Any) -> str:
    """The failure message of a test; empty if it passes."""
    try:
        check()
    except pytest.fail.Exception as failure:
        return str(failure)
    return ""


def test_only_failing_rows_are_reported_with_their_lines() -> None:
    @each([1, 2, 3, 4], ids="row {}".format)
    def check(row: int) -> None:
        assert row != 2, "two is wrong"
        with pytest.raises(ZeroDivisionError):
            print(1 // (3 - row) if row == 4 else 1 // 0)

    report = outcome(check)
    assert report.startswith("2 of 4 rows:\nrow 2\n    line ")
    assert 'assert row != 2, "two is wrong"' in report
    assert "row 4" in report
    assert "DID NOT RAISE" in report
    assert not {"row 1", "row 3"} & set(report.splitlines())


def test_rows_with_several_items_are_unpacked_and_passing_rows_are_not_reported() -> None:
    seen = []

    @each([("a", 1), ("b", 2)])
    def check(name: str, number: int) -> None:
        seen.append((name, number))

    assert outcome(check) == ""
    assert seen == [("a", 1), ("b", 2)]


def test_the_slowest_files_run_first_and_each_keeps_the_order_of_its_tests(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(conftest, "DURATIONS", tmp_path / "durations.json")
    (tmp_path / "durations.json").write_text(json.dumps({"tests/b.py": 9.5, "tests/c.py": 20, "tests/gone.py": 99}))
    names = [("a", 1), ("b", 1), ("b", 2), ("c", 1), ("d", 1)]
    items: list[Any] = [SimpleNamespace(path=conftest.HERE / f"{name}.py", number=number) for name, number in names]
    conftest.longest_first(items)
    assert [(item.path.stem, item.number) for item in items] == [("c", 1), ("b", 1), ("b", 2), ("a", 1), ("d", 1)]
