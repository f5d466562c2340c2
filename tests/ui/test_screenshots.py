"""The script that takes the screenshots for README and docs."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import screenshots

from tests.ui.conftest import Stage
from tests.ui.worlds import every_state


def test_the_list_and_a_failed_model_are_taken_in_both_schemes(stage: Stage, browser: Any, tmp_path: Path) -> None:
    stage.show(every_state())
    screenshots.shoot(browser, stage.url, tmp_path)
    files = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert sorted(files) == ["ui-failed-dark.png", "ui-failed-light.png", "ui-list-dark.png", "ui-list-light.png"]
    assert {struct.unpack(">II", content[16:24]) for content in files.values()} == {screenshots.SIZE}
    assert len(set(files.values())) == len(files)


def test_the_screenshots_are_those_of_the_docs() -> None:
    names = {path.name for path in screenshots.FOLDER.glob("ui-*.png")}
    assert names == {f"ui-{view}-{scheme}.png" for view in ("failed", "list") for scheme in ("dark", "light")}
