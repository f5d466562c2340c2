"""A folder that others may have filled before is searched, and only the files of its owner's last load are trusted."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from slipway.artifacts.documents.report import Report
from slipway.loader.disk.evict import evict
from slipway.loader.disk.folder import MARKER, NOTES, Folder, Inventory, Owner
from slipway.loader.disk.owner import own
from slipway.loader.download.stage import opened, stage
from slipway.loader.transport.errors import LoadError
from slipway.loader.transport.selection import FileRequest, Selection

from .conftest import FILES, Service, content, work
from .site import GGUF, Site

FOREIGN = GGUF.replace(b"Tiny", b"Evil")
MINE = "1b4e28ba-2fa1-11d2-883f-0016d3cca427"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "raid/models/x"


def load(url: str, folder: Path, seal: str = "", owner: str = MINE, env: dict[str, str] | None = None) -> Report:
    chosen = FileRequest(stored_as="tiny.gguf") if url.startswith("http") else FileRequest()
    return stage(url, partial(opened, url, env or {}, None), folder, chosen, work(), owner=Owner(owner, seal))


def visible(folder: Path) -> dict[str, bytes]:
    return {name: text for name, text in content(folder).items() if not name.startswith(".slipway")}


def plant(folder: Path, url: str, **files: bytes) -> None:
    """What another author's load may have left: the very files of a complete folder, with other content."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_bytes(text)
    sizes = {"tiny.gguf": len(GGUF)}
    (folder / MARKER).write_bytes(msgspec.json.encode(Inventory(url, "", sizes)))
    (folder / NOTES).write_bytes(msgspec.json.encode({"file": "tiny.gguf", "size": len(GGUF), "etag": '"v1"'}))


def count_requests(site: Site) -> int:
    assert site.service
    return len(site.service.seen)


def test_a_planted_marker_is_not_believed(site: Site, folder: Path) -> None:
    plant(folder, site.url, tiny__gguf=FOREIGN, modeling_evil__py=b"evil")
    load(site.url, folder)
    assert visible(folder) == {"tiny.gguf": GGUF}


def test_a_planted_marker_is_not_believed_of_files_with_a_digest_either(hub: Service, folder: Path) -> None:
    env = {"HF_ENDPOINT": hub.url}
    first = load("hf://acme/tiny", folder, env=env)
    (folder / "tiny.gguf").write_bytes(b"x" * len(FILES["tiny.gguf"]))
    (folder / "more.safetensors").write_bytes(b"evil")
    (folder / "sub dir" / "evil").mkdir(parents=True)
    (folder / "sub dir" / "evil" / "modeling.py").write_bytes(b"evil")
    load("hf://acme/tiny", folder, owner="another", env=env)
    assert visible(folder) == FILES
    assert first.seal


def test_the_owner_finds_its_folder_again_and_asks_for_nothing(site: Site, folder: Path) -> None:
    first = load(site.url, folder)
    before = count_requests(site)
    again = load(site.url, folder, first.seal)
    assert (count_requests(site), again.seal) == (before, first.seal)


def test_a_folder_that_an_earlier_version_filled_is_known_by_size_and_revision(site: Site, folder: Path) -> None:
    plant(folder, site.url, tiny__gguf=GGUF)
    before = count_requests(site) if site.service else 0
    load(site.url, folder, f"{len(GGUF)}@")
    assert (count_requests(site) if site.service else 0) == before
    load(site.url, folder, f"{len(GGUF) + 1}@")
    assert count_requests(site) > before


@pytest.mark.parametrize("name", [MARKER, NOTES])
def test_a_folder_whose_notes_were_changed_is_not_known(site: Site, folder: Path, name: str) -> None:
    first = load(site.url, folder)
    (folder / "tiny.gguf").write_bytes(FOREIGN)
    (folder / name).write_bytes((folder / name).read_bytes() + b" ")
    load(site.url, folder, first.seal, owner="another")
    assert visible(folder) == {"tiny.gguf": GGUF}


def test_no_two_loads_have_the_same_seal(site: Site, folder: Path, tmp_path: Path) -> None:
    assert load(site.url, folder).seal != load(site.url, tmp_path / "raid/models/y").seal


@pytest.mark.parametrize(("owner", "resumed"), [(MINE, True), ("another", False), (None, False)])
def test_a_part_is_resumed_only_by_its_owner(site: Site, folder: Path, owner: str | None, resumed: bool) -> None:
    source = Selection(opened(site.url, {}, None), FileRequest(stored_as="tiny.gguf"))
    (entry,) = source.listing(work().retry(site.url)).entries
    part = Folder(folder, Owner(owner) if owner else None).part(entry)
    part.parent.mkdir(parents=True)
    part.write_bytes(FOREIGN[:1000])
    load(site.url, folder)
    file_content = visible(folder)["tiny.gguf"]
    assert (file_content[:1000] == FOREIGN[:1000]) is resumed
    assert file_content == GGUF or resumed


def test_files_of_the_owner_survive_a_load_that_ended_early(site: Site, folder: Path) -> None:
    load(site.url, folder)
    fetched = []
    for owner in (MINE, "another"):
        (folder / MARKER).unlink()
        (folder / "tiny.gguf").write_bytes(FOREIGN)
        load(site.url, folder, owner=owner)
        fetched.append(visible(folder)["tiny.gguf"] == GGUF)
    assert fetched == [False, True]


@pytest.mark.parametrize("link", ["tiny.gguf", "other", "sub"])
def test_links_that_were_planted_lead_nowhere(site: Site, folder: Path, tmp_path: Path, link: str) -> None:
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "kept").write_bytes(GGUF)
    folder.mkdir(parents=True)
    (folder / link).symlink_to(victim / "kept" if link != "sub" else victim)
    load(site.url, folder)
    assert visible(folder) == {"tiny.gguf": GGUF}
    assert not (folder / "tiny.gguf").is_symlink()
    assert (victim / "kept").read_bytes() == GGUF


# The folder itself


def test_a_mounted_folder_is_emptied_and_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "x"
    (folder / "sub").mkdir(parents=True)
    (folder / "sub/file").write_bytes(b"1")
    (folder / "link").symlink_to(tmp_path)
    monkeypatch.setattr(Path, "is_mount", lambda path: path == folder)
    assert evict(folder, tmp_path)
    assert list(folder.iterdir()) == []
    assert not evict(folder, tmp_path)


def test_all_of_a_folder_is_given_to_a_user_but_not_what_its_links_lead_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, given = tmp_path / "x", set[str]()
    (folder / "sub").mkdir(parents=True)
    (folder / "sub/file").write_bytes(b"1")
    (folder / "link").symlink_to("/etc")

    def chown(path: Any, user: int, group: int, **options: Any) -> None:
        assert (user, group, options["follow_symlinks"]) == (7, 7, False)
        given.add(path)

    monkeypatch.setattr(os, "chown", chown)
    monkeypatch.setattr(os, "fchown", lambda _handle, _user, _group: given.add("."))
    own(folder, 7)
    assert given == {".", "sub", "file", "link"}
    with pytest.raises(LoadError, match="cannot give"):
        own(tmp_path / "missing", 7)
