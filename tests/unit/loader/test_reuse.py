"""Files of the same commit that lie on the disk already are linked instead of being fetched again."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

import msgspec
import pytest

from slipway.artifacts.documents.report import Report
from slipway.loader.disk.folder import MARKER, Inventory
from slipway.loader.disk.reuse import link_existing
from slipway.loader.download.stage import opened, stage
from slipway.loader.transport.digests import Digest, Kind
from slipway.loader.transport.errors import LoadError
from slipway.loader.transport.selection import FileRequest, Selection
from slipway.loader.transport.source import Entry, Listing

from .conftest import FILES, Service, work, write
from .conftest import content as whole_content
from .site import GGUF, SHA, Site


@pytest.fixture
def disk(tmp_path: Path) -> Path:
    return tmp_path / "raid"


def load(hub: Service, disk: Path, name: str, url: str = "hf://acme/tiny", **others: Path) -> Report:
    source = partial(opened, url, {"HF_ENDPOINT": hub.url}, None)
    return stage(url, source, disk / name, FileRequest(), work(), **others)


def content(folder: Path) -> dict[str, bytes]:
    return {name: text for name, text in whole_content(folder).items() if not name.startswith(".slipway")}


def same_file(disk: Path, path: str) -> bool:
    return os.path.samefile(disk / "one" / path, disk / "two" / path)


def fetched(hub: Service) -> int:
    """Requests for files."""
    return sum("/resolve/" in str(one) for one in hub.seen)


def test_the_same_commit_is_linked_and_nothing_of_it_is_fetched(hub: Service, disk: Path) -> None:
    first = load(hub, disk, "one")
    before = fetched(hub)
    assert before
    second = load(hub, disk, "two", "hf://acme/tiny@main", reuse=disk)
    assert fetched(hub) == before
    assert same_file(disk, "tiny.gguf")
    assert (second.size, second.revision) == (first.size, first.revision)
    assert content(disk / "two") == FILES


def test_either_folder_may_go_without_the_other(hub: Service, disk: Path) -> None:
    load(hub, disk, "one")
    load(hub, disk, "two", reuse=disk)
    for path in FILES:
        (disk / "one" / path).unlink()
    assert content(disk / "two") == FILES


def test_without_the_option_everything_is_fetched(hub: Service, disk: Path) -> None:
    load(hub, disk, "one")
    load(hub, disk, "two")
    assert not same_file(disk, "tiny.gguf")


def test_another_commit_is_fetched_and_leaves_the_first_one_alone(hub: Service, root: Path, disk: Path) -> None:
    load(hub, disk, "one")
    write(root / "acme/tiny", {"config.json": b'{"model_type": "other"}'})
    load(hub, disk, "two", reuse=disk)
    assert not same_file(disk, "tiny.gguf")
    assert content(disk / "one") == FILES


def test_a_folder_that_is_not_complete_is_not_believed(hub: Service, disk: Path) -> None:
    load(hub, disk, "one")
    (disk / "one" / MARKER).unlink()
    load(hub, disk, "two", reuse=disk)
    assert not same_file(disk, "tiny.gguf")


def test_corrupted_files_are_downloaded_again(hub: Service, disk: Path) -> None:
    load(hub, disk, "one")
    (disk / "one" / "tiny.gguf").write_bytes(b"x" * len(FILES["tiny.gguf"]))
    load(hub, disk, "two", reuse=disk)
    assert content(disk / "two") == FILES


def test_files_are_copied_if_links_are_impossible(hub: Service, disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_unused: object, **_others: object) -> None:
        raise OSError(18, "Invalid cross-device link")

    load(hub, disk, "one")
    before = fetched(hub)
    monkeypatch.setattr(os, "link", refuse)
    load(hub, disk, "two", reuse=disk / "one")
    assert content(disk / "two") == FILES
    assert fetched(hub) == before
    assert not same_file(disk, "tiny.gguf")


def test_files_without_a_digest_are_fetched(site: Site, disk: Path) -> None:
    """The marker of another folder could have been written by anybody."""
    chosen, source = FileRequest(stored_as="tiny.gguf"), partial(opened, site.url, {}, None)
    stage(site.url, source, disk / "one", chosen, work())
    (disk / "one/tiny.gguf").write_bytes(b"x" * len(GGUF))
    listing = msgspec.structs.replace(Selection(source(), chosen).listing(work().retry(site.url)), revision="v1")
    inventory = Inventory(site.url, "v1", {"tiny.gguf": len(GGUF)})
    (disk / "one" / MARKER).write_bytes(msgspec.json.encode(inventory))
    assert link_existing(site.url, listing, disk / "two", disk) == 0
    entries = [msgspec.structs.replace(one, digest=Digest(Kind.SHA256, SHA)) for one in listing.entries]
    with_digest = msgspec.structs.replace(listing, entries=tuple(entries))
    assert link_existing(site.url, with_digest, disk / "two", disk) == 1


def test_a_reused_file_cannot_leave_its_folder(hub: Service, disk: Path) -> None:
    load(hub, disk, "one")
    entry = Entry("../../outside", "x", 1, Digest(Kind.SHA256, SHA))
    with pytest.raises(LoadError, match="leads outside of the folder"):
        link_existing("hf://acme/tiny", Listing("v1", (entry,)), disk / "two", disk)
