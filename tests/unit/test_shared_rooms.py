"""The shared rooms of src know no API by name: what one needs of them is passed in, or declared by its folder."""

from __future__ import annotations

import re
from pathlib import Path

from slipway.apis import APIS
from tests.tables import each

SOURCE = Path(__file__).parents[2] / "src/slipway"
FILES = [
    path
    for path in sorted(SOURCE.rglob("*"))
    if path.is_file()
    and path.suffix not in (".pyc", ".json")
    and not path.is_relative_to(SOURCE / "apis")
    and "__pycache__" not in path.parts
]
PLANNED = ("ome.io", "OME", "deckhouse")
NAMES = (
    *(rf"(?<![a-z]){re.escape(api.name)}" for api in APIS),
    *(re.escape(api.resource.kind.group) for api in APIS),
    *(rf"\b{name}\b" for name in PLANNED),
)
NAMED = re.compile("|".join(dict.fromkeys(NAMES)), re.IGNORECASE)
ALLOWED: dict[str, str] = {}
"""File -> why it names an API."""


def names_in(path: Path) -> list[str]:
    return [
        f"{number}: {line.strip()}"
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1)
        if NAMED.search(line)
    ]


@each(FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_a_shared_room_names_no_api(path: Path) -> None:
    if str(path.relative_to(SOURCE)) not in ALLOWED:
        assert names_in(path) == []


def test_every_file_that_may_name_an_api_still_names_one() -> None:
    assert [name for name in ALLOWED if not names_in(SOURCE / name)] == []
