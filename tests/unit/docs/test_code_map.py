"""docs/dev/code-map.md shows the packages as they import each other, and names files that exist."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

from ...docs.pages import ROOT

SPEC = importlib.util.spec_from_file_location("package_map", ROOT / "scripts/package_map.py")
assert SPEC is not None
assert SPEC.loader is not None
package_map = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(package_map)
SOURCE = ROOT / "src/slipway"
ROOTS = (
    SOURCE,
    SOURCE / "gateway",
    SOURCE / "gateway/haproxy/lua",
    SOURCE / "apis/kubeai",
    SOURCE / "apis/kubeai/models",
    SOURCE / "apis/ome",
)
"""Folders that the page's names of files are relative to."""


def test_the_picture_is_current() -> None:
    page = package_map.PAGE.read_text()
    current = package_map.write(page, package_map.draw(package_map.packages()))
    assert page == current, "Run `make generate`."


def test_an_import_of_a_new_package_changes_the_picture(tmp_path: Path) -> None:
    for name, text in (("high", "from slipway.low import x"), ("low", ""), ("lowest", "")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text(f'"""The package {name}."""\n{text}\n')
    before = package_map.draw(package_map.packages(tmp_path))
    (tmp_path / "low/module.py").write_text("import slipway.lowest.module")
    after = package_map.draw(package_map.packages(tmp_path))
    assert "  high --> low\n" in before
    assert "| `lowest` | The package lowest. | - |" in before
    assert "  low --> lowest\n" not in before
    assert "  low --> lowest\n" in after
    (tmp_path / "low/module.py").write_text("import slipway.high")
    with pytest.raises(ValueError, match="high, low import each other"):
        package_map.draw(package_map.packages(tmp_path))


def test_the_page_names_files_that_exist() -> None:
    text = package_map.PAGE.read_text()
    names = [one for one in re.findall(r"`([\w/.]+(?:\.py|\.lua|/))`", text) if "src/" not in one]
    assert len(names) > 40
    missing = [one for one in names if not any((root / one).exists() for root in ROOTS)]
    assert missing == []
