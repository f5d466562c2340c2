"""Two loaders in one folder whose volume has no file locks: neither spoils what the other brings."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from aiohttp import web
from msgspec.structs import replace

from slipway.loader.disk.folder import ABANDONED, MARKER, WORK, Folder
from slipway.loader.sources.huggingface import HuggingFace
from slipway.loader.transport.errors import LoadError
from slipway.loader.transport.source import Entry

from .conftest import FILES, PATIENCE, WEIGHTS, Loading, Service, cut_after, write

HUB = "hf://acme/tiny"


@pytest.fixture
def no_locks(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(_handle: int, _operation: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", refused)


def parts(folder: Path) -> dict[str, int]:
    return {path.name: path.stat().st_size for path in (folder / WORK / "parts").iterdir()}


async def until(true: Callable[[], bool]) -> None:
    """What is waited for happens in threads, which set no event."""
    async with asyncio.timeout(PATIENCE):
        while not true():  # noqa: ASYNC110
            await asyncio.sleep(0.005)


class Slow:
    """A web server whose file has no digest. Two loaders list it, and both are half-way before either goes on."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.listed = self.began = 0
        self.halves: list[dict[str, int]] = []

    def half_way(self) -> bool:
        there = (self.folder / WORK / "parts").exists()
        return there and sum(parts(self.folder).values()) >= len(WEIGHTS) // 2

    async def get(self, request: web.Request) -> web.StreamResponse:
        headers = {"Content-Length": str(len(WEIGHTS)), "ETag": '"v1"'}
        if self.listed < 2:
            self.listed += 1
            await until(lambda: self.listed == 2)
            return web.Response(body=WEIGHTS, headers=headers)
        response = web.StreamResponse(headers=headers)
        await response.prepare(request)
        await response.write(WEIGHTS[: len(WEIGHTS) // 2])
        await until(self.half_way)
        self.began += 1
        await until(lambda: self.began >= 2)
        self.halves.append(parts(self.folder))
        await response.write(WEIGHTS[len(WEIGHTS) // 2 :])
        return response


def run_both(loads: list[Callable[[], bool]]) -> list[bool | LoadError]:
    ends: list[bool | LoadError] = []

    def run(load: Callable[[], bool]) -> None:
        try:
            ends.append(load())
        except LoadError as error:
            ends.append(error)

    threads = [threading.Thread(target=run, args=(load,), daemon=True) for load in loads]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    return ends


@pytest.mark.usefixtures("no_locks")
def test_two_loaders_without_locks_share_no_part_file_and_the_file_is_whole(
    start: Callable[[web.Application], Service], tmp_path: Path
) -> None:
    slow, app = Slow(tmp_path / "model"), web.Application()
    app.router.add_get("/tiny.gguf", slow.get)
    service = start(app)
    url = f"{service.url}/tiny.gguf"
    ends = run_both([lambda: Loading(slow.folder)(url), lambda: Loading(slow.folder)(url)])
    assert all(end is True or (isinstance(end, LoadError) and end.transient) for end in ends), ends
    assert True in ends
    assert max(len(half) for half in slow.halves) == 2, "each has its own part file"
    assert (slow.folder / "tiny.gguf").read_bytes() == WEIGHTS
    assert Folder(slow.folder).holds(url)


@pytest.mark.usefixtures("no_locks")
def test_without_locks_two_loaders_of_a_hub_end_with_the_right_files(hub: Service, from_hub: Loading) -> None:
    other = Loading(from_hub.folder, from_hub.env)
    ends = run_both([lambda: from_hub(HUB), lambda: other(HUB)])
    assert all(isinstance(end, bool) or end.transient for end in ends), ends
    assert from_hub.content == FILES
    assert Folder(from_hub.folder).holds(HUB)


def test_a_file_that_changed_in_the_meantime_is_not_called_complete(hub: Service, from_hub: Loading) -> None:
    from_hub.policy = replace(from_hub.policy, parallel=1)

    async def interfere(request: web.Request) -> web.StreamResponse | None:
        if request.path.endswith("/config.json"):  # the largest file came before
            with (from_hub.folder / "tiny.gguf").open("ab") as stream:
                stream.write(b"of another process")
        return None

    hub.interfere = interfere
    with pytest.raises(LoadError, match=r"another loader changed .*tiny\.gguf meanwhile") as caught:
        from_hub(HUB)
    assert caught.value.transient
    assert not (from_hub.folder / MARKER).exists()
    hub.interfere = None
    from_hub(HUB)
    assert from_hub.content == FILES
    assert {path.name for path in from_hub.folder.iterdir() if path.name.startswith(".")} == {MARKER}


def cut(hub: Service, loading: Loading) -> None:
    """A load that ends after 300,000 bytes of the weights."""
    ends = cut_after(300_000)

    async def interfere(request: web.Request) -> web.StreamResponse | None:
        if not request.path.endswith("tiny.gguf"):
            return None
        if "Range" in request.headers:
            return web.Response(status=503)
        return await ends(request, WEIGHTS)

    hub.interfere = interfere
    with pytest.raises(LoadError, match="gave up"):
        loading(HUB)
    hub.interfere = None
    hub.seen.clear()


def ranges(hub: Service) -> list[str]:
    return [seen.range for seen in hub.seen if seen.path.endswith("tiny.gguf")]


def test_under_the_lock_what_a_dead_loader_brought_is_taken_over(hub: Service, from_hub: Loading) -> None:
    cut(hub, from_hub)
    from_hub(HUB)
    assert ranges(hub) == ["bytes=300000-"]
    assert from_hub.content == FILES


def test_parts_of_version_0_4_0_are_taken_over_too(hub: Service, from_hub: Loading) -> None:
    cut(hub, from_hub)
    for part in (from_hub.folder / WORK / "parts").iterdir():
        part.rename(part.with_suffix(""))
    from_hub(HUB)
    assert ranges(hub) == ["bytes=300000-"]


def test_without_locks_nothing_of_another_is_continued_or_removed_while_it_may_live(
    hub: Service, from_hub: Loading, request: pytest.FixtureRequest
) -> None:
    cut(hub, from_hub)
    before = parts(from_hub.folder)
    request.getfixturevalue("no_locks")
    from_hub(HUB)
    assert ranges(hub) == [""]
    assert from_hub.content == FILES
    assert before.items() <= parts(from_hub.folder).items()


def test_without_locks_what_has_long_been_still_is_removed(
    hub: Service, from_hub: Loading, request: pytest.FixtureRequest
) -> None:
    cut(hub, from_hub)
    long_ago = time.time() - 2 * ABANDONED
    for part in (from_hub.folder / WORK / "parts").iterdir():
        os.utime(part, (long_ago, long_ago))
    request.getfixturevalue("no_locks")
    from_hub(HUB)
    assert {path.name for path in from_hub.folder.iterdir() if path.name.startswith(".")} == {MARKER}


def test_a_part_that_another_process_replaced_does_not_get_the_files_name(hub: Service, from_hub: Loading) -> None:
    """Such as one whose lock holds on its own node only."""
    from_hub.policy = replace(from_hub.policy, parallel=1)

    async def interfere(request: web.Request) -> web.StreamResponse | None:
        if not request.path.endswith("tiny.gguf"):
            return None
        for part in (from_hub.folder / WORK / "parts").iterdir():
            part.unlink()
            part.write_bytes(b"of another process")
        return None

    hub.interfere = interfere
    with pytest.raises(LoadError, match=r"another loader changed .*tiny\.gguf meanwhile"):
        from_hub(HUB)
    assert "tiny.gguf" not in from_hub.content


NAMES = [".slipway-report", ".slipway-report.new", ".slipway-complete", ".slipway", ".slipway/lock", ".slipwayX/a"]


@pytest.mark.parametrize("name", NAMES)
def test_names_that_the_loader_needs_are_refused_of_a_repository(
    from_hub: Loading, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(HuggingFace, "_entries", lambda _self, _sha: iter([Entry(name, "http://x", 1)]))
    with pytest.raises(
        LoadError, match=r"names that begin with \.slipway are reserved for the loader: remove it from the source"
    ):
        from_hub(HUB)
    assert from_hub.content == {}


@pytest.mark.parametrize("name", ["a/.slipway-complete", "a/b/.slipway-report", "a/.slipwayx", "a/.slipway"])
def test_the_loaders_names_are_reserved_at_any_depth(root: Path, from_hub: Loading, name: str) -> None:
    write(root / "acme/tiny", {name: b"x"})
    with pytest.raises(LoadError, match=r"names that begin with \.slipway are reserved for the loader"):
        from_hub(HUB)
    assert from_hub.content == {}
