"""Folders are removed, and nothing else is."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from slipway.loader.disk.evict import evict
from slipway.loader.transport.errors import LoadError

from .conftest import FILES, content, write


@pytest.fixture
def volume(tmp_path: Path) -> Path:
    write(tmp_path / "models/one", FILES)
    write(tmp_path / "models/two", FILES)
    return tmp_path / "models"


def test_a_folder_goes_and_its_neighbour_stays(volume: Path) -> None:
    assert evict(volume / "one", volume)
    assert not evict(volume / "one", volume)
    assert content(volume / "two") == FILES


def test_links_are_removed_and_not_followed(volume: Path, tmp_path: Path) -> None:
    write(tmp_path / "precious", {"x": b"x"})
    (volume / "one/link").symlink_to(tmp_path / "precious")
    (volume / "three").symlink_to(tmp_path / "precious")
    assert evict(volume / "one", volume)
    assert evict(volume / "three", volume)
    assert content(tmp_path / "precious") == {"x": b"x"}


@pytest.mark.parametrize("path", [".", "..", "../precious", "up/precious", "one/../../precious"])
def test_nothing_outside_of_the_volume_goes(volume: Path, tmp_path: Path, path: str) -> None:
    write(tmp_path / "precious", {"x": b"x"})
    (volume / "up").symlink_to(tmp_path)
    with pytest.raises(LoadError, match="nothing was removed"):
        evict(volume / path, volume)
    assert content(tmp_path / "precious") == {"x": b"x"}
    assert content(volume / "one") == FILES


def test_without_a_mount_nothing_goes(volume: Path) -> None:
    if not os.path.ismount("/") or any(os.path.ismount(place) for place in (volume, *volume.parents[:-1])):
        pytest.skip("the tests' own folder is on a mounted volume")
    with pytest.raises(LoadError, match="is not inside a volume"):
        evict(volume / "one")


def test_a_file_system_that_refuses_is_named(volume: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_path: Path) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("shutil.rmtree", refuse)
    with pytest.raises(LoadError, match=r"cannot remove .*: Permission denied: check the volume and its owner"):
        evict(volume / "one", volume)
