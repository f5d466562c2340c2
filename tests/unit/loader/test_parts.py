"""A file that is split comes with all of its parts, wherever the first came from, or the load reports what is wrong."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from aiohttp import web

from slipway.loader.download.stage import inspect, opened, stage
from slipway.loader.transport.errors import LoadError
from slipway.loader.transport.selection import FileRequest

from .conftest import Service, content, work, write
from .models import gguf
from .s3 import KEYS, Store

FIRST, SECOND = "tiny-Q4_K_M-00001-of-00002.gguf", "tiny-Q4_K_M-00002-of-00002.gguf"
BOTH = {FIRST: gguf(100, seed=1), SECOND: gguf(100, seed=2)}
SHA = hashlib.sha256(BOTH[FIRST]).hexdigest()
Staged = Callable[..., dict[str, bytes]]


@pytest.fixture
def staged(folder: Path) -> Staged:
    def run(url: str, chosen: FileRequest = FileRequest(), **env: str) -> dict[str, bytes]:  # noqa: B008 - it is frozen
        report = stage(url, partial(opened, url, env, None), folder, chosen, work())
        assert report.file == FIRST
        return {name: text for name, text in content(folder).items() if not name.startswith(".")}

    return run


def site(start: Callable[[web.Application], Service], files: dict[str, bytes]) -> str:
    app = web.Application()

    async def get(request: web.Request) -> web.Response:
        body = files.get(request.match_info["name"])
        return web.Response(status=404) if body is None else web.Response(body=body)

    app.router.add_get("/Q4/{name}", get)
    return f"{start(app).url}/Q4"


def test_of_a_repository(staged: Staged, hub: Service, root: Path) -> None:
    write(root / "acme/tiny", {f"Q4/{name}": text for name, text in BOTH.items()} | {"Q8/other.gguf": gguf(5)})
    chosen = FileRequest(files=(f"Q4/{FIRST}",), stored_as=FIRST)
    assert staged("hf://acme/tiny", chosen, HF_ENDPOINT=hub.url) == BOTH


def test_of_a_repository_by_a_pattern(staged: Staged, hub: Service, root: Path) -> None:
    write(root / "acme/tiny", BOTH)
    assert staged("hf://acme/tiny", FileRequest(files=("*-00001-of-*.gguf",)), HF_ENDPOINT=hub.url) == BOTH


def test_of_a_web_site(staged: Staged, start: Callable[[web.Application], Service]) -> None:
    assert staged(f"{site(start, BOTH)}/{FIRST}", FileRequest(stored_as=FIRST)) == BOTH


def test_of_a_bucket(staged: Staged, start: Callable[[web.Application], Service]) -> None:
    store = Store({f"Q4/{name}": text for name, text in BOTH.items()} | {f"Q4/{FIRST}.md": b"words"})
    env = {"AWS_ACCESS_KEY_ID": KEYS.key, "AWS_SECRET_ACCESS_KEY": KEYS.secret}
    endpoint = start(store.application()).url
    assert staged(f"s3://models/Q4/{FIRST}", FileRequest(stored_as=FIRST), AWS_ENDPOINT_URL=endpoint, **env) == BOTH


def test_of_a_disk(staged: Staged, tmp_path: Path) -> None:
    write(tmp_path / "disk", BOTH | {"other.gguf": gguf(5)})
    assert staged(f"file://{tmp_path}/disk/{FIRST}", FileRequest(stored_as=FIRST)) == BOTH


def test_a_part_that_is_not_the_first_is_refused(staged: Staged, hub: Service, root: Path) -> None:
    write(root / "acme/tiny", BOTH)
    with pytest.raises(LoadError, match=f"^InvalidFileSet: {SECOND} is one of 2 parts: name the first one, {FIRST}"):
        staged("hf://acme/tiny", FileRequest(files=(SECOND,), stored_as=SECOND), HF_ENDPOINT=hub.url)


def test_a_part_that_its_source_lacks_is_named(staged: Staged, hub: Service, root: Path) -> None:
    write(root / "acme/tiny", {FIRST: BOTH[FIRST]})
    with pytest.raises(LoadError, match=f"^UnsupportedSource: {SECOND} is missing"):
        staged("hf://acme/tiny", FileRequest(files=(FIRST,), stored_as=FIRST), HF_ENDPOINT=hub.url)


def test_a_signed_address_opens_one_part_only(staged: Staged, start: Callable[[web.Application], Service]) -> None:
    with pytest.raises(LoadError, match=f"^UnsupportedSource: {SECOND} is missing"):
        staged(f"{site(start, BOTH)}/{FIRST}?signature=x", FileRequest(stored_as=FIRST))


def test_an_address_that_only_asks_for_a_download_opens_every_part(
    staged: Staged, start: Callable[[web.Application], Service]
) -> None:
    assert staged(f"{site(start, BOTH)}/{FIRST}?download=true", FileRequest(stored_as=FIRST)) == BOTH


def test_a_part_that_a_web_site_lacks_is_named(staged: Staged, start: Callable[[web.Application], Service]) -> None:
    with pytest.raises(LoadError, match=f"/{SECOND}: no such file"):
        staged(f"{site(start, {FIRST: BOTH[FIRST]})}/{FIRST}", FileRequest(stored_as=FIRST))


def test_the_hash_is_that_of_the_first_part(staged: Staged, start: Callable[[web.Application], Service]) -> None:
    url = site(start, BOTH)
    assert staged(f"{url}/{FIRST}", FileRequest(stored_as=FIRST, sha256=SHA)) == BOTH
    with pytest.raises(LoadError, match=r"^IntegrityCheckFailed"):
        staged(f"{url}/{FIRST}", FileRequest(stored_as=FIRST, sha256="ab" * 32))


def test_a_part_on_a_claim_is_reported_with_the_others(tmp_path: Path) -> None:
    write(tmp_path, BOTH)
    report = inspect(tmp_path / FIRST, SHA, work())
    assert (report.file, report.files, report.sha256, report.fault) == (FIRST, 2, SHA, "")
    write(tmp_path / "other", BOTH)
    (tmp_path / SECOND).unlink()
    assert inspect(tmp_path / FIRST, SHA, work()).fault.startswith(f"{SECOND} is missing")
    with pytest.raises(LoadError, match="name the first one"):
        inspect(tmp_path / "other" / SECOND, "", work())


def test_a_file_that_the_loader_may_not_read_is_left_to_the_engine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, {"tiny.gguf": BOTH[FIRST]})

    def refuse(_folder: Path, _paths: list[str]) -> str:
        raise PermissionError

    monkeypatch.setattr("slipway.loader.download.stage.fault_in", refuse)
    assert inspect(tmp_path / "tiny.gguf", "", work()).fault == ""
