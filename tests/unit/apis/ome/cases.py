"""The original's own tables, where its reference folder is present."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[5] / "shared/reference/samples/ome/other-cases"


def rows(table: str) -> list[dict[str, Any]]:
    """The rows of a table; none where it is not here."""
    path = FOLDER / f"{table}.json"
    records: list[dict[str, Any]] = json.loads(path.read_text()) if path.is_file() else []
    return records
