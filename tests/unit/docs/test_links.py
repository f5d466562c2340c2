"""Every link of the pages leads somewhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from ...docs.pages import PAGES, ROOT, anchors, links


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_resolve(page: Path) -> None:
    dead = [target for target in links(page) if not _resolves(page, target)]
    assert dead == []


def _resolves(page: Path, target: str) -> bool:
    if target.startswith("https://"):
        return True
    path, _hash, fragment = target.partition("#")
    file = page.parent / path if path else page
    if not file.exists() or not file.resolve().is_relative_to(ROOT):
        return False
    return not fragment or fragment in anchors(file)
