"""The hub as the real huggingface_hub sees it: what downloads, by which calls, and what a failure raises."""

from __future__ import annotations

import asyncio
import hashlib
from pathlib import Path

import pytest
from aiohttp import web
from huggingface_hub import HfFileSystem, hf_hub_download, snapshot_download
from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    RemoteEntryNotFoundError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from huggingface_hub.hf_api import RepoFile, RepoFolder

from .conftest import REPOSITORY, TOKEN, WEIGHTS, RunningHub, write

ODD = "sub dir/deeper/100% #1 ünïcode+&.txt"
MAIN = {"README.md", "config.json", "empty.txt", "tiny.gguf", "sub dir/x.txt", ODD}


async def snapshot(hub: RunningHub, cache: Path, repository: str = REPOSITORY, **options: object) -> Path:
    defaults = {"endpoint": hub.endpoint, "cache_dir": cache, "token": False}
    return Path(await hub.call(snapshot_download, repository, **(defaults | options)))


def paths(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


async def test_snapshot_of_main_has_every_file_byte_for_byte(hub: RunningHub, tmp_path: Path) -> None:
    folder = await snapshot(hub, tmp_path / "cache")
    assert folder.name == hub.sha()
    assert paths(folder) == MAIN
    assert all((folder / path).read_bytes() == (hub.root / REPOSITORY / path).read_bytes() for path in MAIN)


async def test_snapshot_makes_the_calls_of_the_protocol(hub: RunningHub, tmp_path: Path) -> None:
    await snapshot(hub, tmp_path / "cache", allow_patterns="sub dir/x.txt")
    file = f"/{REPOSITORY}/resolve/{hub.sha()}/sub%20dir/x.txt"
    assert hub.calls() == [
        ("GET", f"/api/models/{REPOSITORY}/revision/main"),
        ("GET", f"/api/models/{REPOSITORY}/tree/{hub.sha()}"),
        ("HEAD", file),
        ("GET", file),
    ]


async def test_second_snapshot_of_a_complete_cache_is_one_call(hub: RunningHub, tmp_path: Path) -> None:
    await snapshot(hub, tmp_path / "cache")
    hub.seen.clear()
    await snapshot(hub, tmp_path / "cache")
    assert hub.calls() == [("GET", f"/api/models/{REPOSITORY}/revision/main")]


@pytest.mark.parametrize(
    ("revision", "content"),
    [("v1", "older"), ("refs/pr/1", "proposed"), ("refs/tags/v1", "older"), ("next", "llama")],
)
async def test_snapshot_by_tag_pull_request_and_branch(
    hub: RunningHub, tmp_path: Path, revision: str, content: str
) -> None:
    folder = await snapshot(hub, tmp_path / "cache", revision=revision)
    assert folder.name == hub.sha(ref=revision)
    assert content in (folder / "config.json").read_text()


async def test_snapshot_by_commit_needs_no_lookup_of_the_revision(hub: RunningHub, tmp_path: Path) -> None:
    sha = hub.sha(ref="v1")
    folder = await snapshot(hub, tmp_path / "cache", revision=sha)
    assert paths(folder) == {"config.json"}
    assert hub.calls()[0] == ("GET", f"/api/models/{REPOSITORY}/tree/{sha}")


async def test_patterns_choose_files(hub: RunningHub, tmp_path: Path) -> None:
    folder = await snapshot(hub, tmp_path / "cache", allow_patterns=["*.json", "sub dir/*"], ignore_patterns="*x.txt")
    assert paths(folder) == {"config.json", ODD}


async def test_local_folder_gets_plain_files(hub: RunningHub, tmp_path: Path) -> None:
    folder = await snapshot(hub, tmp_path / "cache", local_dir=tmp_path / "plain")
    assert {path for path in paths(folder) if not path.startswith(".cache/")} == MAIN
    assert not (folder / "tiny.gguf").is_symlink()


async def test_a_mirrored_folder_shows_the_same_commit(hub: RunningHub, tmp_path: Path) -> None:
    """What the client downloads into a folder can itself be served: its own notes are no part of the repository."""
    mirror = RunningHub(tmp_path / "mirror", "")
    await snapshot(hub, tmp_path / "cache", local_dir=mirror.root / REPOSITORY)
    assert mirror.sha() == hub.sha()


async def test_lfs_files_are_cached_by_sha256_and_others_by_git_blob_id(hub: RunningHub, tmp_path: Path) -> None:
    folder = await snapshot(hub, tmp_path / "cache")
    config = (hub.root / REPOSITORY / "config.json").read_bytes()
    assert (folder / "tiny.gguf").resolve().name == hashlib.sha256(WEIGHTS).hexdigest()
    blob = hashlib.sha1(b"blob %d\0%s" % (len(config), config), usedforsecurity=False).hexdigest()
    assert (folder / "config.json").resolve().name == blob


def begun(folder: Path) -> bool:
    """Whether the client has started to write a file."""
    return any(part.stat().st_size for part in folder.rglob("*.incomplete"))


async def test_cut_connection_is_resumed_by_range(hub: RunningHub, tmp_path: Path) -> None:
    # The client writes, and resumes from, whole pieces of 10 MiB.
    content, sent = WEIGHTS * 24, 22 << 20
    write(hub.root / "acme/large", {"large.gguf": content})

    async def cut_first_download(request: web.Request) -> web.StreamResponse | None:
        if request.method != "GET" or "resolve" not in request.path or "Range" in request.headers:
            return None
        response = web.StreamResponse(headers={"ETag": '"x"', "X-Repo-Commit": hub.sha("acme/large")})
        response.content_length = len(content)
        await response.prepare(request)
        await response.write(content[:sent])
        async with asyncio.timeout(60):
            while not begun(tmp_path):  # noqa: ASYNC110  # a thread writes it
                await asyncio.sleep(0.01)
        assert request.transport is not None
        request.transport.abort()
        return response

    hub.interfere = cut_first_download
    folder = await snapshot(hub, tmp_path / "cache", "acme/large")
    assert (folder / "large.gguf").read_bytes() == content
    (resumed,) = [entry for entry in hub.seen if entry.method == "GET" and entry.range]
    assert resumed.status == 206
    assert 0 < int(resumed.range.removeprefix("bytes=").partition("-")[0]) <= sent


async def test_lfs_by_redirect_to_another_origin_goes_there_without_the_token(hub: RunningHub, tmp_path: Path) -> None:
    async def redirect(request: web.Request) -> web.StreamResponse | None:
        if not request.path.endswith(".gguf") or request.url.host == "localhost":
            return None
        linked = {"X-Linked-Etag": f'"{hashlib.sha256(WEIGHTS).hexdigest()}"', "X-Linked-Size": str(len(WEIGHTS))}
        location = str(request.url.with_host("localhost"))
        return web.Response(status=302, headers={"Location": location, "X-Repo-Commit": hub.sha(), **linked})

    hub.interfere = redirect
    folder = await snapshot(hub, tmp_path / "cache", allow_patterns="tiny.gguf", token=TOKEN)
    assert (folder / "tiny.gguf").read_bytes() == WEIGHTS
    final = hub.seen[-1]
    assert (final.method, final.status, final.authorization) == ("GET", 200, "")
    assert all(entry.authorization == f"Bearer {TOKEN}" for entry in hub.seen[:-1])


async def test_eight_workers_get_many_files_right(hub: RunningHub, tmp_path: Path) -> None:
    files = {f"part-{number:03}.safetensors": bytes([number]) * (number * 1999) for number in range(64)}
    write(hub.root / "acme/many", files)
    folder = await snapshot(hub, tmp_path / "cache", "acme/many", max_workers=8)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == files


async def test_long_tree_comes_in_pages(hub: RunningHub) -> None:
    write(hub.root / "acme/long", {f"file-{number:04}.txt": "" for number in range(2500)})
    listed = await hub.call(lambda: list(hub.api().list_repo_tree("acme/long")))
    assert [entry.path for entry in listed] == [f"file-{number:04}.txt" for number in range(2500)]
    assert len(hub.seen) == 3


async def test_moved_main_gives_a_new_snapshot(hub: RunningHub, tmp_path: Path) -> None:
    before = await snapshot(hub, tmp_path / "cache")
    write(hub.root / REPOSITORY, {"config.json": '{"model_type": "newer"}'})
    after = await snapshot(hub, tmp_path / "cache")
    assert before != after
    assert "newer" in (after / "config.json").read_text()
    assert "llama" in (before / "config.json").read_text()


async def test_single_file_download_is_head_then_get(hub: RunningHub, tmp_path: Path) -> None:
    def read() -> str:
        file = hf_hub_download(REPOSITORY, ODD, endpoint=hub.endpoint, cache_dir=tmp_path / "cache", token=False)
        return Path(file).read_text()

    assert await hub.call(read) == "odd"
    assert [method for method, _unused in hub.calls()] == ["HEAD", "GET"]


async def test_unknown_repository_revision_and_file_raise_their_own_errors(hub: RunningHub, tmp_path: Path) -> None:
    with pytest.raises(RepositoryNotFoundError):
        await snapshot(hub, tmp_path / "cache", "acme/nothing")
    with pytest.raises(RevisionNotFoundError):
        await snapshot(hub, tmp_path / "cache", revision="v2")
    with pytest.raises(RemoteEntryNotFoundError):
        await hub.call(
            hf_hub_download, REPOSITORY, "no.txt", endpoint=hub.endpoint, cache_dir=tmp_path / "cache", token=False
        )
    assert (tmp_path / f"cache/models--acme--tiny/.no_exist/{hub.sha()}/no.txt").exists()


async def test_gated_repository_is_listed_to_all_and_read_with_a_token(hub: RunningHub, tmp_path: Path) -> None:
    info = await hub.call(hub.api().model_info, "acme/closed")
    assert info.gated == "manual"
    with pytest.raises(GatedRepoError) as refused:
        await snapshot(hub, tmp_path / "cache", "acme/closed")
    assert refused.value.response.status_code == 403
    folder = await snapshot(hub, tmp_path / "cache", "acme/closed", token=TOKEN)
    assert paths(folder) == {"config.json"}


async def test_wrong_token_is_refused_even_for_open_repositories(hub: RunningHub, tmp_path: Path) -> None:
    with pytest.raises(HfHubHTTPError) as refused:
        await snapshot(hub, tmp_path / "cache", token="hf_wrong")
    assert refused.value.response.status_code == 401
    assert not isinstance(refused.value, RepositoryNotFoundError)


async def test_exchanged_tokens_take_effect_at_once(hub: RunningHub, tmp_path: Path) -> None:
    (tmp_path / "tokens").write_text("reader hf_the_next_one\n")
    with pytest.raises(HfHubHTTPError):
        await hub.call(hub.api(TOKEN).whoami)
    assert (await hub.call(hub.api("hf_the_next_one").whoami))["name"] == "reader"


async def test_busy_hub_is_tried_again(hub: RunningHub, tmp_path: Path) -> None:
    async def busy_once(request: web.Request) -> web.StreamResponse | None:
        if "/tree/" not in request.path or any(entry.status == 429 for entry in hub.seen):
            return None
        return web.Response(status=429, headers={"Retry-After": "0"})

    hub.interfere = busy_once
    folder = await snapshot(hub, tmp_path / "cache", allow_patterns="config.json")
    assert paths(folder) == {"config.json"}
    assert 429 in {entry.status for entry in hub.seen}


async def test_whoami_names_the_owner_of_the_token(hub: RunningHub) -> None:
    assert (await hub.call(hub.api(TOKEN).whoami))["name"] == "reader"


async def test_model_info_and_refs(hub: RunningHub) -> None:
    info = await hub.call(hub.api().model_info, REPOSITORY, files_metadata=True)
    assert (info.id, info.sha, info.gated, info.private) == (REPOSITORY, hub.sha(), False, False)
    assert {file.rfilename: file.size for file in info.siblings}["tiny.gguf"] == len(WEIGHTS)
    refs = await hub.call(hub.api().list_repo_refs, REPOSITORY, include_pull_requests=True)
    assert {(ref.name, ref.target_commit) for ref in refs.branches} == {("main", hub.sha()), ("next", hub.sha())}
    assert [(ref.name, ref.ref, ref.target_commit) for ref in refs.tags] == [("v1", "refs/tags/v1", hub.sha(ref="v1"))]
    assert [ref.ref for ref in refs.pull_requests] == ["refs/pr/1"]


async def test_paths_info_and_one_folder_of_the_tree(hub: RunningHub) -> None:
    entries = await hub.call(hub.api().get_paths_info, REPOSITORY, ["tiny.gguf", "sub dir", "absent"])
    weights, folder = entries
    assert isinstance(weights, RepoFile)
    assert weights.lfs is not None
    assert weights.lfs.sha256 == hashlib.sha256(WEIGHTS).hexdigest()
    assert isinstance(folder, RepoFolder)
    listed = await hub.call(lambda: list(hub.api().list_repo_tree(REPOSITORY, "sub dir")))
    assert [entry.path for entry in listed] == ["sub dir/deeper", "sub dir/x.txt"]


async def test_search_finds_models_by_name_and_author(hub: RunningHub) -> None:
    write(hub.root / "other/tiny-too", {"config.json": "{}"})
    by_name = await hub.call(lambda: [model.id for model in hub.api().list_models(search="TINY")])
    assert by_name == [REPOSITORY, "other/tiny-too"]
    by_author = await hub.call(lambda: [model.id for model in hub.api().list_models(author="other")])
    assert by_author == ["other/tiny-too"]


async def test_file_system_view_reads_ranges(hub: RunningHub) -> None:
    def read() -> bytes:
        with HfFileSystem(endpoint=hub.endpoint, token=False, skip_instance_cache=True).open(
            f"{REPOSITORY}/tiny.gguf", block_size=1024
        ) as file:
            file.seek(70_000)
            return bytes(file.read(10))

    assert await hub.call(read) == WEIGHTS[70_000:70_010]
