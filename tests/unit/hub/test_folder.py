"""Repositories read from the disk: git's own ids, ConfigMap volumes, links, changing files, settings."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from slipway.hub.folder import InvalidSettingsError, Library, UnstableError, open_file
from slipway.hub.repository import Directory, File, Repository, is_lfs

from .conftest import write

NAME = "acme/tiny"


def load(root: Path, name: str = NAME) -> Repository:
    found = Library(root).load(name)
    assert found is not None
    return found


def files(root: Path) -> set[str]:
    return {file.path for file in load(root).main.files}


def git(folder: Path, *arguments: str) -> str:
    environment = os.environ | {"GIT_DIR": str(folder / ".git"), "GIT_WORK_TREE": str(folder)}
    return subprocess.run(["git", *arguments], env=environment, check=True, capture_output=True, text=True).stdout


def test_ids_are_those_of_git(tmp_path: Path) -> None:
    folder = tmp_path / NAME
    write(folder, {"a.txt": "1", "a/b.txt": "2", "a/c/d.txt": "3", "a-b/e.txt": "4", "ü.json": "{}", "empty": ""})
    git(folder, "init", "--quiet")
    git(folder, "add", ".")
    listed = git(folder, "-c", "core.quotePath=off", "ls-tree", "-r", "-t", git(folder, "write-tree").strip())
    expected = {line.partition("\t")[2]: line.split()[2] for line in listed.splitlines()}
    assert {path: entry.oid for path, entry in load(tmp_path).main.entries.items()} == expected
    person = {f"GIT_{who}_{what}": text for who in ("AUTHOR", "COMMITTER") for what, text in PERSON.items()}
    command = ["git", "commit-tree", "-m", "mirror", git(folder, "write-tree").strip()]
    commit = subprocess.run(command, cwd=folder, env=os.environ | person, check=True, capture_output=True, text=True)
    assert load(tmp_path).main.sha == commit.stdout.strip()


PERSON = {"NAME": "slipway", "EMAIL": "slipway@localhost", "DATE": "@0 +0000"}


def test_commit_depends_on_content_alone(tmp_path: Path) -> None:
    write(tmp_path / "one" / NAME, {"b.txt": "b", "a.gguf": "a"})
    write(tmp_path / "two" / NAME, {"a.gguf": "a", "b.txt": "b"})
    os.utime(tmp_path / "two" / NAME / "b.txt", (1, 1))
    assert load(tmp_path / "one").main.sha == load(tmp_path / "two").main.sha
    write(tmp_path / "two" / NAME, {"a.gguf": "A"})
    assert load(tmp_path / "one").main.sha != load(tmp_path / "two").main.sha


def test_volume_of_a_config_map_is_a_repository(tmp_path: Path) -> None:
    """The kubelet writes a folder named by time and exchanges the link ..data, by which all files are reached."""
    write(tmp_path / "..2026_11_21" / NAME, {"tiny.gguf": "old", "config.json": "{}"})
    (tmp_path / "..data").symlink_to("..2026_11_21")
    (tmp_path / "acme").symlink_to("..data/acme")
    library = Library(tmp_path)
    assert library.names() == [NAME]
    before = library.load(NAME)
    assert before is not None
    assert {file.path for file in before.main.files} == {"tiny.gguf", "config.json"}
    write(tmp_path / "..2026_11_22" / NAME, {"tiny.gguf": "new", "config.json": "{}"})
    (tmp_path / "..data").unlink()
    (tmp_path / "..data").symlink_to("..2026_11_22")
    after = library.load(NAME)
    assert after is not None
    assert after.main.sha != before.main.sha


def test_config_map_mounted_as_one_repository(tmp_path: Path) -> None:
    write(tmp_path / NAME / "..2026_11_21", {"tiny.gguf": "weights"})
    (tmp_path / NAME / "..data").symlink_to("..2026_11_21")
    (tmp_path / NAME / "tiny.gguf").symlink_to("..data/tiny.gguf")
    assert files(tmp_path) == {"tiny.gguf"}


def test_links_that_leave_the_root_or_run_in_circles_are_left_out(tmp_path: Path) -> None:
    write(tmp_path, {"secret.txt": "not yours", f"root/{NAME}/config.json": "{}"})
    folder = tmp_path / "root" / NAME
    (folder / "secret.txt").symlink_to(tmp_path / "secret.txt")
    (folder / "outside").symlink_to(tmp_path)
    (folder / "again").symlink_to(".")
    (folder / "nowhere").symlink_to("missing")
    assert files(tmp_path / "root") == {"config.json"}


@pytest.mark.parametrize("name", ["..", "../tiny", "acme/..", "acme", "/acme", "acme/", "..data/acme", "acme/tiny/x"])
def test_names_that_are_no_repository_are_not_found(tmp_path: Path, name: str) -> None:
    write(tmp_path / NAME, {"config.json": "{}", "x/y": ""})
    assert Library(tmp_path).load(name) is None


def test_repository_that_links_out_of_the_root_is_not_found(tmp_path: Path) -> None:
    write(tmp_path / "outside", {"config.json": "{}"})
    (tmp_path / "root/acme").mkdir(parents=True)
    (tmp_path / "root" / NAME).symlink_to(tmp_path / "outside")
    assert Library(tmp_path / "root").load(NAME) is None


def test_files_are_hashed_once_until_they_change(tmp_path: Path) -> None:
    write(tmp_path / NAME, {"tiny.gguf": "weights"})
    library = Library(tmp_path)
    first = library.load(NAME)
    path = tmp_path / NAME / "tiny.gguf"
    before = path.stat()
    path.write_text("WEIGHTS")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert library.load(NAME) == first, "same name, size and time: nothing is read"
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns + 1))
    assert library.load(NAME) != first


def test_file_that_changed_since_it_was_hashed_is_not_sent(tmp_path: Path) -> None:
    write(tmp_path / NAME, {"config.json": "{}"})
    entry = load(tmp_path).main.entries["config.json"]
    assert isinstance(entry, File)
    write(tmp_path / NAME, {"config.json": "{ }"})
    with pytest.raises(UnstableError):
        open_file(entry)
    (tmp_path / NAME / "config.json").unlink()
    with pytest.raises(UnstableError):
        open_file(entry)


def test_empty_repository_has_a_commit(tmp_path: Path) -> None:
    (tmp_path / NAME).mkdir(parents=True)
    assert load(tmp_path).main.files == ()
    assert len(load(tmp_path).main.sha) == 40


def test_folders_of_other_revisions_are_no_part_of_main(tmp_path: Path) -> None:
    write(tmp_path / NAME, {"a": "1", "old/a": "0", ".hub.yaml": "refs: {refs/tags/v1: old}"})
    repository = load(tmp_path)
    assert list(repository.main.entries) == ["a"]
    tagged = repository.revision("v1")
    assert tagged is not None
    assert [file.path for file in tagged.files] == ["a"]
    assert repository.revision(tagged.sha) is tagged
    assert repository.revision("v2") is None


def test_directories_lie_between(tmp_path: Path) -> None:
    write(tmp_path / NAME, {"a/b/c.txt": ""})
    entries = load(tmp_path).main.entries
    assert list(entries) == ["a", "a/b", "a/b/c.txt"]
    assert isinstance(entries["a/b"], Directory)


@pytest.mark.parametrize(
    "settings",
    [
        "gated: perhaps",
        "refs: [main]",
        "refs: {v1: .}",
        "refs: {refs/heads/main: .}",
        "refs: {refs/tags/v1: ../../other}",
        "refs: {refs/tags/v1: /etc}",
        "refs: {refs/tags/v1: missing}",
        "secret: true",
        "- a list",
        "{broken",
    ],
)
def test_wrong_settings_are_named(tmp_path: Path, settings: str) -> None:
    write(tmp_path / NAME, {"a": "", ".hub.yaml": settings})
    with pytest.raises(InvalidSettingsError, match=r"\.hub\.yaml"):
        load(tmp_path)


@pytest.mark.parametrize(
    ("path", "size", "lfs"),
    [
        ("a/tiny.gguf", 1, True),
        ("MODEL.SAFETENSORS", 1, True),
        ("config.json", 1, False),
        ("vocab.json", 1 << 30, True),
    ],
)
def test_weights_and_large_files_are_lfs(path: str, size: int, lfs: bool) -> None:
    assert is_lfs(path, size) is lfs
