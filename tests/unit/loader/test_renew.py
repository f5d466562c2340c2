"""A folder of a node never goes from one namespace to another: a container that outlives its pod has the old one."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from slipway.loader.disk import owner
from slipway.loader.disk.evict import evict
from slipway.loader.disk.folder import MARKER, WORK
from slipway.loader.disk.owner import MARK, own, renew
from slipway.loader.main import main
from slipway.loader.transport.errors import LoadError

from .conftest import FILES, content, write


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder as the kubelet creates it."""
    path = tmp_path / "models/tiny"
    path.mkdir(parents=True)
    return path


@pytest.fixture
def container(folder: Path) -> Iterator[int]:
    """A container that has the folder mounted: it keeps the folder itself, whatever has its name later."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    yield handle
    os.close(handle)


def seen(container: int) -> list[str]:
    return sorted(os.listdir(container))


def is_mounted(container: int, folder: Path) -> bool:
    return os.path.samestat(os.fstat(container), folder.stat())


def leftovers(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.parent.iterdir() if path != folder)


def test_a_container_of_another_namespace_sees_nothing_of_the_next_files(folder: Path, container: int) -> None:
    renew(folder, "chat", is_known=True)
    write(folder, FILES)
    assert renew(folder, "search")
    write(folder, {"secret": b"1"})
    assert seen(container) == []
    assert sorted(content(folder)) == [MARK, "secret"]
    assert leftovers(folder) == []


def test_a_folder_that_was_emptied_is_a_new_one_even_for_a_namespace_of_the_same_name(
    folder: Path, container: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    renew(folder, "chat", is_known=True)
    monkeypatch.setattr(Path, "is_mount", lambda path: path == folder)
    evict(folder, folder.parent)
    assert renew(folder, "chat")
    assert not is_mounted(container, folder)


def test_the_next_load_of_a_namespace_finds_its_files(folder: Path, container: int) -> None:
    renew(folder, "chat", is_known=True)
    write(folder, FILES)
    assert not renew(folder, "chat")
    assert is_mounted(container, folder)
    assert content(folder) == {**FILES, MARK: b"chat"}


def test_files_that_were_there_before_go_to_the_new_folder(folder: Path, container: int, tmp_path: Path) -> None:
    """As those that another program loaded. What they are, the load verifies."""
    write(folder, FILES | {"sub/deep/x": b"2", MARKER: b"{}", f"{WORK}/parts/y": b"3"})
    (folder / "link").symlink_to(tmp_path)
    below = os.open(folder / "sub", os.O_RDONLY | os.O_DIRECTORY)
    assert renew(folder, "chat")
    assert content(folder) == FILES | {"sub/deep/x": b"2", MARK: b"chat"}
    write(folder, {"sub/secret": b"1"})
    assert (seen(container), os.listdir(below)) == ([], [])
    os.close(below)


def test_the_operators_models_take_a_folder_as_it_is_and_the_next_namespace_does_not(
    folder: Path, container: int
) -> None:
    write(folder, FILES)
    renew(folder, "chat", is_known=True)
    assert not renew(folder, "")
    assert is_mounted(container, folder)
    assert content(folder) == {**FILES, MARK: b""}
    assert renew(folder, "chat")
    assert seen(container) == []
    assert sorted(content(folder)) == [MARK]


def test_only_a_folder_without_a_mark_is_known(folder: Path, container: int) -> None:
    renew(folder, "chat", is_known=True)
    assert renew(folder, "search", is_known=True)
    assert seen(container) == []


def test_a_mark_that_another_user_wrote_does_not_count(
    folder: Path, container: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The user who fills the folder."""
    (folder / MARK).write_text("search")
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    assert renew(folder, "search")
    assert not is_mounted(container, folder)


@pytest.mark.parametrize("kind", ["link", "folder", "pipe"])
def test_a_mark_that_is_no_file_does_not_count(folder: Path, container: int, kind: str) -> None:
    elsewhere = folder.parent / "elsewhere"
    elsewhere.write_text("chat")
    match kind:
        case "link":
            (folder / MARK).symlink_to(elsewhere)
        case "folder":
            (folder / MARK).mkdir()
        case _:
            os.mkfifo(folder / MARK)
    assert renew(folder, "chat")
    assert not is_mounted(container, folder)
    assert (folder / MARK).read_text() == "chat"


@pytest.mark.parametrize("step", range(1, 7))
def test_an_interrupted_renewal_is_repeated(
    folder: Path, container: int, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    """At whichever of its renames."""
    write(folder, {"a": b"1", "sub/b": b"2"})
    rename, calls = Path.rename, list[Path]()

    def fail(path: Path, target: Path) -> Path:
        calls.append(path)
        if len(calls) == step:
            raise OSError(5, "Input/output error")
        return rename(path, target)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "rename", fail)
        if step <= 5:
            with pytest.raises(LoadError, match="Input/output error"):
                renew(folder, "chat")
        else:
            renew(folder, "chat")
    folder.mkdir(exist_ok=True)  # the kubelet creates it again
    renew(folder, "chat")
    assert content(folder) == {"a": b"1", "sub/b": b"2", MARK: b"chat"}
    assert seen(container) == []
    assert leftovers(folder) == []


def test_leftovers_of_an_interrupted_renewal_for_another_namespace_are_removed(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(folder, {"theirs": b"1"})
    rename = Path.rename

    def fail(path: Path, target: Path) -> Path:
        if path == folder:
            raise OSError(5, "Input/output error")
        return rename(path, target)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "rename", fail)
        with pytest.raises(LoadError):
            renew(folder, "chat")
    assert len(leftovers(folder)) == 1
    assert renew(folder, "search")
    assert content(folder) == {MARK: b"search"}
    assert leftovers(folder) == []


def test_two_loads_that_begin_at_once_have_the_same_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, move = threading.Event(), owner._move
    results = list[bool]()

    def slow(source: Path, target: Path, *, excluded: str = "") -> None:
        begun.set()
        other.join(0.2)
        move(source, target, excluded=excluded)

    monkeypatch.setattr(owner, "_move", slow)
    other = threading.Thread(target=lambda: (begun.wait(), results.append(renew(folder, "chat"))))
    other.start()
    assert renew(folder, "chat")
    other.join()
    assert results == [False]


def test_a_folder_that_cannot_be_replaced_is_not_used(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder is a separate disk."""

    def refuse(_path: Path, _target: Path) -> Path:
        raise OSError(16, "Device or resource busy")

    monkeypatch.setattr(Path, "rename", refuse)
    with pytest.raises(LoadError, match=r"cannot replace .*tiny.*: Device or resource busy: use another path"):
        renew(folder, "chat")


def test_the_mark_stays_with_the_user_who_wrote_it(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    renew(folder, "chat", is_known=True)
    write(folder, {f"sub/{MARK}": b""})
    given = list[str]()
    monkeypatch.setattr(os, "chown", lambda name, *_ids, **_options: given.append(name))
    monkeypatch.setattr(os, "fchown", lambda *_arguments: None)
    own(folder, 7)
    assert sorted(given) == [MARK, "sub"], "only that of the folder itself is one"


def test_the_command_makes_a_folder_that_of_a_namespace(folder: Path, container: int) -> None:
    assert main(["own", str(folder), "--namespace=chat", "--known"]) == 0
    assert is_mounted(container, folder)
    assert main(["own", str(folder), f"--user={os.getuid() or 1}", "--namespace=search"]) == 0
    assert content(folder) == {MARK: b"search"}
    assert not is_mounted(container, folder)
