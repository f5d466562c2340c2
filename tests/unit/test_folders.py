"""A folder of src has few entries, so that a reader finds a module without a search."""

from __future__ import annotations

from pathlib import Path

from tests.tables import each

SOURCE = Path(__file__).parents[2] / "src/slipway"
FOLDERS = [SOURCE, *(path for path in sorted(SOURCE.rglob("*")) if path.is_dir() and path.name != "__pycache__")]
LIMIT = 12
LARGER = {".": 15}
"""Folder -> how many entries it may have: the packages themselves are the first thing to learn."""


@each(FOLDERS, ids=lambda path: str(path.relative_to(SOURCE)))
def test_a_folder_has_few_entries(path: Path) -> None:
    entries = sorted(one.name for one in path.iterdir() if one.name != "__pycache__")
    assert len(entries) <= LARGER.get(str(path.relative_to(SOURCE)), LIMIT), entries
