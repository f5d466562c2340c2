"""Repositories read from the disk: git's own ids, ConfigMap volumes, links, changing files, settings."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from slipway.hub import folder as folder_module
from slipway.hub.folder import InvalidSettingsError, Library, UnservableError, UnstableError, open_file
from slipway.hub.repository import Directory, File, Repository, is_lfs

from .conftest import write

NAME = "acme/tiny"


def load(root: Path, name: str = NAME) -> Repository:
    repository = Library(root).load(name)
    assert repository is not None
    return repository


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


# --- What a writer of one repository cannot open ---------------------------------------------------------------------

SECRET = "alice sekret-token"


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    """A hub of two teams, with the hub's token file in the same folder."""
    write(tmp_path, {"tokens/tokens": SECRET})
    write(tmp_path / "root/teamB/gated", {"model.gguf": "secretweights", ".hub.yaml": "gated: true"})
    write(tmp_path / "root/teamA/pub", {"config.json": "{}"})
    return tmp_path / "root"


@pytest.mark.parametrize("target", ["../../../tokens", "../../teamB/gated", "../../teamB", "..", "../..", "/etc"])
def test_a_ref_leads_to_no_folder_outside_of_its_repository(shared: Path, target: str) -> None:
    folder = shared / "teamA/pub"
    (folder / "out").symlink_to(target)
    write(folder, {".hub.yaml": "refs: {refs/pr/1: out}"})
    with pytest.raises(InvalidSettingsError, match="'out' is not a folder of this repository"):
        load(shared, "teamA/pub")


@pytest.mark.parametrize("target", ["../../teamB/gated", "../../../tokens"])
def test_a_ref_leads_through_no_link_outside_of_its_repository(shared: Path, target: str) -> None:
    folder = shared / "teamA/pub"
    write(folder, {"sub/x": "", ".hub.yaml": "refs: {refs/pr/1: sub}"})
    for name in ("model.gguf", "tokens"):
        (folder / "sub" / name).symlink_to(f"../{target}/{name}")
    (folder / "sub/all").symlink_to(f"../{target}")
    revision = load(shared, "teamA/pub").revision("refs/pr/1")
    assert revision is not None
    assert list(revision.entries) == ["x"]


def test_a_link_shows_no_file_of_another_repository(shared: Path) -> None:
    folder = shared / "teamA/pub"
    (folder / "stolen.gguf").symlink_to("../../teamB/gated/model.gguf")
    (folder / "all").symlink_to("../../teamB/gated")
    (folder / "mine.json").symlink_to("config.json")
    assert {file.path for file in load(shared, "teamA/pub").main.files} == {"config.json", "mine.json"}


def test_a_repository_that_is_a_link_to_another_is_none(shared: Path) -> None:
    (shared / "teamA/alias").symlink_to("../teamB/gated")
    (shared / "teamC").symlink_to("teamB")
    library = Library(shared)
    assert library.names() == ["teamA/pub", "teamB/gated"]
    assert library.load("teamA/alias") is None
    assert library.load("teamC/gated") is None


@pytest.mark.parametrize("hidden", [".git", "sub/.git", ".cache", "sub/.aws", "sub/deeper/.ssh"])
def test_folders_that_begin_with_a_dot_are_never_served(tmp_path: Path, hidden: str) -> None:
    write(tmp_path / NAME, {"config.json": "{}", "sub/x": "", f"{hidden}/config": "[remote] url = https://token@host"})
    (tmp_path / NAME / "by-link").symlink_to(f"{hidden}/config")
    (tmp_path / NAME / "folder-by-link").symlink_to(hidden)
    assert files(tmp_path) == {"config.json", "sub/x"}
    write(tmp_path / NAME, {".hub.yaml": f"refs: {{refs/pr/1: {hidden}}}"})
    with pytest.raises(InvalidSettingsError):
        load(tmp_path)


def test_files_that_begin_with_a_dot_are_content_but_for_gits_own(tmp_path: Path) -> None:
    write(
        tmp_path / NAME, {".gitattributes": "", "sub/.keep": "", "module/.git": "gitdir: /elsewhere", ".hub.yaml": ""}
    )
    (tmp_path / NAME / "settings").symlink_to(".hub.yaml")
    assert files(tmp_path) == {".gitattributes", "sub/.keep"}


@pytest.mark.parametrize("own", ["", "gated: false", "gated: true"])
@pytest.mark.parametrize(
    ("pattern", "gated"), [(NAME, True), ("acme/*", True), ("*/tiny", True), ("acme/t", False), ("other/*", False)]
)
def test_a_repository_cannot_open_what_the_operator_gates(tmp_path: Path, own: str, pattern: str, gated: bool) -> None:
    write(tmp_path / NAME, {"config.json": "{}", ".hub.yaml": own})
    repository = Library(tmp_path, [pattern]).load(NAME)
    assert repository is not None
    assert repository.gated == (gated or own == "gated: true")


@pytest.mark.parametrize(
    "settings", ["[" * 5000, "gated: " + "x" * 70_000, "a: 2001-99-99", 'refs: {refs/pr/1: "a\\0b"}', "\xff"]
)
def test_hostile_settings_are_refused_and_named(tmp_path: Path, settings: str) -> None:
    write(tmp_path / NAME, {"a": "", ".hub.yaml": settings.encode("latin-1")})
    with pytest.raises(InvalidSettingsError, match=r"\.hub\.yaml"):
        load(tmp_path)


def test_settings_that_are_a_link_are_of_this_repository(shared: Path) -> None:
    (shared / "teamA/pub/.hub.yaml").symlink_to(shared.parent / "tokens/tokens")
    with pytest.raises(InvalidSettingsError) as caught:
        load(shared, "teamA/pub")
    assert SECRET not in str(caught.value)


def test_a_folder_that_becomes_a_link_is_not_followed(shared: Path) -> None:
    """Between the look at a repository and the request for its file."""
    folder = shared / "teamA/pub"
    write(folder, {"sub/tokens": "x" * len(SECRET)})
    entry = load(shared, "teamA/pub").main.entries["sub/tokens"]
    assert isinstance(entry, File)
    stamp = (folder / "sub/tokens").stat().st_mtime_ns
    os.utime(shared.parent / "tokens/tokens", ns=(stamp, stamp))
    (folder / "sub").rename(folder / "was")
    (folder / "sub").symlink_to(shared.parent / "tokens")
    with pytest.raises(UnstableError):
        open_file(entry)


def test_a_repository_of_countless_files_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder_module, "MOST_ENTRIES", 20)
    write(tmp_path / NAME, {f"{number}.txt": "" for number in range(12)})
    assert len(files(tmp_path)) == 12
    write(tmp_path / NAME, {".hub.yaml": "refs: {refs/tags/v1: .}"})
    with pytest.raises(UnservableError, match="at most 20 files"):
        load(tmp_path)


def test_links_that_lead_to_one_another_are_not_multiplied_without_end(tmp_path: Path) -> None:
    """Twenty folders with two links each to the next one are a million paths."""
    for number in range(20):
        write(tmp_path / NAME / f"{number}", {"x": ""})
        for way in ("a", "b"):
            (tmp_path / NAME / f"{number}/{way}").symlink_to(f"../{number + 1}")
    with pytest.raises(UnservableError, match="at most"):
        load(tmp_path)


def test_folders_in_one_another_are_served_to_a_depth(tmp_path: Path) -> None:
    write(tmp_path / NAME, {"/".join("d" * 30) + "/x": ""})
    assert len(files(tmp_path)) == 1
    write(tmp_path / NAME, {"/".join("e" * 100) + "/x": ""})
    with pytest.raises(UnservableError, match="nested folders"):
        load(tmp_path)
