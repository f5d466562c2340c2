"""Weights of every kind of source come into a cache's folder with a report: hash, header, state; some are refused."""

from __future__ import annotations

import hashlib
import json
import os
import struct
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from slipway.artifacts.documents.report import Report
from slipway.artifacts.headers import safetensors
from slipway.loader.download.stage import inspect, opened, probe, stage
from slipway.loader.transport.errors import LoadError
from slipway.loader.transport.selection import FileRequest
from slipway.loader.transport.source import Entry, Listing, Retry

from .conftest import FILES, Service, content, cut_after, work, write
from .site import GGUF, OTHER, SHA, TEXTS, WHOLE, Site, text


def tensors(count: int) -> bytes:
    header = json.dumps({"a": {"dtype": "BF16", "shape": [count], "data_offsets": [0, 2 * count]}}).encode()
    return len(header).to_bytes(8, "little") + header + bytes(2 * count)


def staged(
    url: str, folder: Path, chosen: FileRequest = WHOLE, env: dict[str, str] | None = None, **others: Any
) -> Report:
    header = others.pop("header", "gguf")
    return stage(url, partial(opened, url, env or {}, None), folder, chosen, work(header), **others)


def visible(folder: Path) -> dict[str, bytes]:
    return {name: whole for name, whole in content(folder).items() if not name.startswith(".")}


def test_a_file_of_the_web_comes_under_the_name_that_it_is_to_have(site: Site, folder: Path) -> None:
    report = staged(site.url, folder, FileRequest(stored_as="other.gguf"))
    assert visible(folder) == {"other.gguf": GGUF}
    assert (report.file, report.files, report.size) == ("other.gguf", 1, len(GGUF))
    assert (report.sha256, report.etag) == (SHA, '"v1"')
    assert report.gguf is not None
    assert (report.gguf.name, report.gguf.tensor_count, report.gguf.license) == ("Tiny", 7, "mit")


def test_the_second_time_nothing_is_requested_and_the_result_is_the_same(site: Site, folder: Path) -> None:
    first = staged(site.url, folder)
    assert site.service
    count = len(site.service.seen)
    assert staged(site.url, folder, FileRequest(sha256=SHA)) == first
    assert len(site.service.seen) == count
    (folder / ".slipway-report").unlink()
    assert staged(site.url, folder) == first


def test_a_loader_repeats_a_lost_report_even_if_the_source_has_changed(site: Site, folder: Path) -> None:
    first = staged(site.url, folder)
    (folder / ".slipway-report").unlink()
    assert staged(site.url, folder) == first
    (folder / ".slipway-report").unlink()
    site.content, site.etag = GGUF + bytes(5), '"v2"'
    assert staged(site.url, folder).size == len(GGUF) + 5
    assert visible(folder) == {"tiny.gguf": GGUF + bytes(5)}


def test_a_hash_of_a_file_of_the_web_is_checked(site: Site, folder: Path) -> None:
    """The original looks at it for local files only."""
    assert staged(site.url, folder, FileRequest(sha256=SHA)).sha256 == SHA


def test_a_file_of_another_hash_never_gets_its_name(site: Site, folder: Path) -> None:
    with pytest.raises(
        LoadError, match=rf"^IntegrityCheckFailed: tiny.gguf has the SHA-256 {SHA}, not {OTHER}$"
    ) as raised:
        staged(site.url, folder, FileRequest(sha256=OTHER))
    assert not raised.value.transient
    assert visible(folder) == {}


def test_a_cut_download_goes_on_and_its_hash_is_right(site: Site, folder: Path) -> None:
    assert site.service
    service = site.service

    async def interfere(request: web.Request) -> web.StreamResponse | None:
        return await cut_after(100_000)(request, GGUF) if len(service.seen) == 2 else None

    service.interfere = interfere
    assert staged(site.url, folder, FileRequest(sha256=SHA)).sha256 == SHA
    assert [seen.range for seen in service.seen][-1] == "bytes=100000-"


def test_a_hash_is_found_of_what_was_fetched_in_two_parts(site: Site, folder: Path) -> None:
    assert site.service
    service = site.service

    async def interfere(request: web.Request) -> web.StreamResponse | None:
        return await cut_after(100_000)(request, GGUF) if len(service.seen) == 2 else None

    service.interfere = interfere
    assert staged(site.url, folder).sha256 == SHA


def test_a_folder_that_is_complete_is_held_against_the_hash_and_left_alone(site: Site, folder: Path) -> None:
    staged(site.url, folder)
    with pytest.raises(LoadError, match="IntegrityCheckFailed"):
        staged(site.url, folder, FileRequest(sha256=OTHER))
    assert visible(folder) == {"tiny.gguf": GGUF}


@pytest.mark.parametrize("etag", ['"v2"', ""])
def test_a_refresh_brings_what_the_source_has_now_even_of_the_same_size(site: Site, folder: Path, etag: str) -> None:
    staged(site.url, folder)
    site.content, site.etag = GGUF[:-5] + b"other", etag
    assert staged(site.url, folder).etag == '"v1"'
    report = staged(site.url, folder, refresh=True)
    assert visible(folder) == {"tiny.gguf": site.content}
    assert report.sha256 == hashlib.sha256(site.content).hexdigest()
    assert report.etag == etag


def test_a_file_without_a_hash_is_there_until_the_newer_one_is_whole(site: Site, folder: Path) -> None:
    """Pods read it, and more of them may start meanwhile."""
    staged(site.url, folder)
    assert site.service
    before, seen = site.content, []
    site.content, site.etag = GGUF[:-5] + b"other", '"v2"'

    async def interfere(request: web.Request) -> web.StreamResponse | None:
        seen.append(visible(folder))
        return await cut_after(100_000)(request, site.content) if len(seen) == 2 else None

    site.service.interfere = interfere
    staged(site.url, folder, refresh=True)
    assert seen == [{"tiny.gguf": before}] * 3
    assert visible(folder) == {"tiny.gguf": site.content}


def test_a_refresh_that_was_cut_off_is_done_by_the_next_one(site: Site, folder: Path) -> None:
    staged(site.url, folder)
    assert site.service
    before = site.content
    site.content, site.etag = GGUF[:-5] + b"other", '"v2"'

    async def interfere(request: web.Request) -> web.StreamResponse | None:
        return web.Response(status=404) if request.method == "GET" and request.headers.get("Range") is None else None

    site.service.interfere = interfere
    with pytest.raises(LoadError):
        staged(site.url, folder, refresh=True)
    assert visible(folder) == {"tiny.gguf": before}
    site.service.interfere = None
    report = staged(site.url, folder, refresh=True)
    assert visible(folder) == {"tiny.gguf": site.content}
    assert report.etag == '"v2"'


def test_files_that_the_source_has_no_longer_go_with_the_refresh(tmp_path: Path, folder: Path) -> None:
    write(tmp_path / "host", {"a.gguf": GGUF, "b.gguf": GGUF})
    staged(f"file://{tmp_path}/host", folder)
    assert set(visible(folder)) == {"a.gguf", "b.gguf"}
    (tmp_path / "host/b.gguf").unlink()
    write(tmp_path / "host", {"a.gguf": GGUF + b"more"})
    staged(f"file://{tmp_path}/host", folder, refresh=True)
    assert visible(folder) == {"a.gguf": GGUF + b"more"}


def test_a_refresh_of_a_source_that_is_as_it_was_fetches_nothing(site: Site, folder: Path) -> None:
    first = staged(site.url, folder)
    assert site.service
    count = len(site.service.seen)
    assert staged(site.url, folder, refresh=True) == first
    assert len(site.service.seen) == count + 1


def test_a_source_is_asked_what_it_has_and_nothing_is_fetched(site: Site) -> None:
    url = site.url
    report = probe(url, opened(url, {}, None), WHOLE, work())
    assert (report.etag, report.size, report.sha256) == ('"v1"', len(GGUF), "")
    site.etag = '"v2"'
    assert probe(url, opened(url, {}, None), WHOLE, work()).etag == '"v2"'


def test_a_header_is_read_from_afar_by_a_range_and_nothing_else(site: Site) -> None:
    url = site.url
    report = probe(url, opened(url, {}, None), WHOLE, work())
    assert report.gguf is not None
    assert report.gguf.name == "Tiny"
    site.content = b"<!DOCTYPE html>"
    assert probe(url, opened(url, {}, None), WHOLE, work()).header_fault == "it does not begin with GGUF"
    assert probe(url, opened(url, {}, None), WHOLE, work("")).header_fault == ""


@pytest.mark.parametrize("ranges", [True, False])
def test_a_header_with_a_long_list_is_read_with_and_without_ranges(site: Site, ranges: bool) -> None:
    numbers = 2_000_000
    scores = text("tokenizer.ggml.scores") + struct.pack("<IIQ", 9, 6, numbers) + bytes(4 * numbers)
    pairs = b"".join(text(key) + struct.pack("<I", 8) + text(value) for key, value in TEXTS.items())
    site.content = b"GGUF" + struct.pack("<IQQ", 3, 7, len(TEXTS) + 1) + scores + pairs
    site.ranges = ranges
    report = probe(site.url, opened(site.url, {}, None), WHOLE, work())
    assert report.gguf is not None
    assert report.gguf.license == "mit"


def test_files_of_a_repository_come_by_name_with_the_hash_that_the_hub_tells(
    hub: Service, root: Path, folder: Path
) -> None:
    write(root / "acme/tiny", {"model.gguf": GGUF})
    env = {"HF_ENDPOINT": hub.url}
    report = staged("hf://acme/tiny@main", folder, FileRequest(files=("model.gguf",), stored_as="model.gguf"), env)
    assert visible(folder) == {"model.gguf": GGUF}
    assert (report.sha256, len(report.etag), len(report.revision)) == (SHA, len(report.etag), 40)
    with pytest.raises(LoadError, match="IntegrityCheckFailed"):
        staged("hf://acme/tiny", folder / "x", FileRequest(files=("model.gguf",), sha256=OTHER), env)
    assert not (folder / "x" / "model.gguf").exists()


def test_a_set_of_files_keeps_its_paths_and_patterns_mean_what_they_fit(hub: Service, root: Path, folder: Path) -> None:
    parts = {f"a-0000{part}-of-00002.safetensors": tensors(part) for part in (1, 2)}
    write(root / "acme/tiny", parts)
    chosen = FileRequest(files=("*.safetensors", "config.json", "sub dir/*/*"))
    report = staged("hf://acme/tiny", folder, chosen, {"HF_ENDPOINT": hub.url}, header="safetensors")
    odd = "sub dir/deeper/100% #1 ünïcode+&.txt"
    assert visible(folder) == parts | {name: FILES[name] for name in ("config.json", odd)}
    assert (report.file, report.files) == ("a-00001-of-00002.safetensors", 4)
    assert report.safetensors is not None
    assert (report.safetensors.tensor_count, report.safetensors.parameters) == (2, {"BF16": 3})
    assert len(report.etag) == 64


LLAMA = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "transformers_version": "4.45.0",
    "max_position_embeddings": 8192,
}


def test_the_common_facts_of_a_models_files_are_reported(hub: Service, root: Path, folder: Path) -> None:
    weights = {f"model-0000{part}-of-00002.safetensors": tensors(500 * part) for part in (1, 2)}
    twice = {"consolidated.safetensors": tensors(1500), "original/a.safetensors": tensors(1500)}
    write(root / "acme/llama", {"config.json": json.dumps(LLAMA).encode(), **weights, **twice})
    report = staged("hf://acme/llama", folder, FileRequest(), {"HF_ENDPOINT": hub.url}, header="model")
    assert report.model is not None
    assert (report.model.model_type, report.model.architecture) == ("llama", "LlamaForCausalLM")
    assert (report.model.parameters, report.model.exact, report.model.max_tokens) == (1500, True, 8192)
    assert report.model.format is not None
    assert report.model.format.name == "safetensors"


def test_the_header_of_a_gguf_file_determines_the_format_of_the_model(tmp_path: Path) -> None:
    write(tmp_path / "claim", {"tiny.gguf": GGUF, "README.md": b""})
    report = inspect(tmp_path / "claim", "", work("model"))
    assert report.model is not None
    assert report.model.format is not None
    assert report.model.format.name == "gguf"


def test_the_parameters_of_a_gguf_file_are_counted(tmp_path: Path) -> None:
    shapes = [text(f"blk.{number}.weight") + struct.pack("<IQQIQ", 2, 64, 500, 0, 0) for number in range(7)]
    write(tmp_path / "claim", {"tiny.gguf": GGUF.rstrip(b"\0") + b"".join(shapes)})
    report = inspect(tmp_path / "claim", "", work("model"))
    assert report.model is not None
    assert (report.model.parameters, report.model.parameter_size) == (224_000, "224K")


@pytest.mark.parametrize("config", [b"{", b"[]", b"{" * 100_000, b'"' + b"x" * (5 << 20), b'{"model_type": 7}'])
def test_a_configuration_that_is_none_spoils_no_load(tmp_path: Path, config: bytes) -> None:
    write(tmp_path / "claim", {"config.json": config, "model.safetensors": b"\xff" * 20})
    report = inspect(tmp_path / "claim", "", work("model"))
    assert report.files == 2
    assert report.header_fault or report.model is not None


def test_a_file_that_the_source_has_not_is_named(hub: Service, folder: Path) -> None:
    with pytest.raises(LoadError, match=r"^SourceNotFound: the source has no file 'b.gguf'; it has config.json, "):
        staged("hf://acme/tiny", folder, FileRequest(files=("tiny.gguf", "b.gguf")), {"HF_ENDPOINT": hub.url})
    with pytest.raises(LoadError, match=r"no file 'tinny.gguf'; it has .*; did you mean tiny.gguf\?$"):
        staged("hf://acme/tiny", folder, FileRequest(files=("tinny.gguf",)), {"HF_ENDPOINT": hub.url})
    with pytest.raises(LoadError, match=r"^InvalidFileSet"):
        staged("hf://acme/tiny", folder, FileRequest(stored_as="x"), {"HF_ENDPOINT": hub.url})


def test_a_file_of_the_machine_is_copied_and_checked(tmp_path: Path, folder: Path) -> None:
    write(tmp_path / "host", {"any name.gguf": GGUF})
    url = f"file://{tmp_path}/host/any name.gguf"
    assert staged(url, folder, FileRequest(stored_as="tiny.gguf", sha256=SHA)).sha256 == SHA
    assert visible(folder) == {"tiny.gguf": GGUF}
    with pytest.raises(LoadError, match=r"^IntegrityCheckFailed"):
        staged(url, folder / "x", FileRequest(stored_as="tiny.gguf", sha256=OTHER))
    assert not (folder / "x" / "tiny.gguf").exists()


def test_a_folder_of_the_machine_is_copied_with_all_that_is_in_it(tmp_path: Path, folder: Path) -> None:
    write(tmp_path / "host", {"a/b.json": b"{}", "model.safetensors": tensors(4)})
    (tmp_path / "host" / "link.json").symlink_to("a/b.json")
    report = staged(f"file://{tmp_path}/host", folder, header="safetensors")
    assert visible(folder) == {"a/b.json": b"{}", "link.json": b"{}", "model.safetensors": tensors(4)}
    assert report.safetensors is not None
    assert report.sha256 == ""


def test_a_folder_that_was_named_by_mistake_is_not_read_to_its_end(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("slipway.loader.transport.source.MOST_FILES", 2)
    write(tmp_path / "home", {"a": b"", "b": b"", "c": b""})
    with pytest.raises(LoadError, match="more than 2 files"):
        staged(f"file://{tmp_path}/home", folder)


def test_a_missing_or_unreadable_file_of_the_machine_is_reported(tmp_path: Path, folder: Path) -> None:
    """Once, and for good: the original asked again without a pause."""
    with pytest.raises(LoadError, match=r"^SourceNotFound: .*/none.gguf does not exist$") as raised:
        staged(f"file://{tmp_path}/none.gguf", folder)
    assert not raised.value.transient
    if os.geteuid():
        write(tmp_path, {"closed.gguf": GGUF})
        (tmp_path / "closed.gguf").chmod(0)
        with pytest.raises(LoadError, match=r"cannot be read: permission denied"):
            staged(f"file://{tmp_path}/closed.gguf", folder)


def test_an_inspection_reads_a_file_in_place_and_checks_its_hash_if_one_is_expected(tmp_path: Path) -> None:
    write(tmp_path, {"tiny.gguf": GGUF})
    report = inspect(tmp_path / "tiny.gguf", "", work())
    assert (report.file, report.size, report.sha256) == ("tiny.gguf", len(GGUF), "")
    assert report.gguf is not None
    assert inspect(tmp_path / "tiny.gguf", SHA, work()).sha256 == SHA
    with pytest.raises(LoadError, match=r"^IntegrityCheckFailed"):
        inspect(tmp_path / "tiny.gguf", OTHER, work())
    with pytest.raises(LoadError, match=r"^SourceNotFound"):
        inspect(tmp_path / "none.gguf", "", work())
    write(tmp_path, {"second.gguf": GGUF})
    with pytest.raises(LoadError, match=r"^InvalidFileSet"):
        inspect(tmp_path, SHA, work())


def test_a_header_that_cannot_be_read_is_reported_and_fails_nothing(tmp_path: Path) -> None:
    write(tmp_path, {"page.gguf": b"<!DOCTYPE html>"})
    assert inspect(tmp_path / "page.gguf", "", work()).header_fault == "it does not begin with GGUF"


class Hostile:
    """A source that lists a file outside of the folder, as a bucket may."""

    def listing(self, _patiently: Retry) -> Listing:
        return Listing("", tuple(Entry(path=path, locator=path, size=1) for path in ("a.gguf", "../other/x.gguf")))

    def read(self, entry: Entry, start: int) -> Any:
        raise AssertionError((entry, start))


def test_a_refresh_touches_nothing_outside_of_its_folder(folder: Path) -> None:
    write(folder.parent, {"other/x.gguf": GGUF})
    folder.mkdir()
    with pytest.raises(LoadError, match="leads outside of the folder"):
        stage("s3://bucket/a", Hostile, folder, WHOLE, work(), refresh=True)
    assert (folder.parent / "other/x.gguf").read_bytes() == GGUF


@pytest.mark.parametrize(
    "forged", ['{"file":"../../etc/passwd","sha256":"aaaa"}', f'{{"file":"/etc/passwd","sha256":"{OTHER}"}}']
)
def test_a_forged_note_in_a_folder_is_not_believed(site: Site, folder: Path, forged: str) -> None:
    first = staged(site.url, folder)
    (folder / ".slipway-report").write_text(forged)
    assert staged(site.url, folder) == first


def test_a_folder_that_a_loader_filled_is_read_where_it_lies_without_the_loaders_own_files(
    site: Site, folder: Path
) -> None:
    staged(site.url, folder)
    report = inspect(folder, SHA, work())
    assert (report.file, report.files, report.size) == ("tiny.gguf", 1, len(GGUF))


@pytest.mark.parametrize("name", [".slipway/parts/ab", ".slipway-else", ".slipway-complete.ab"])
def test_a_claim_with_other_names_of_the_loaders_is_refused(tmp_path: Path, name: str) -> None:
    write(tmp_path / "claim", {"tiny.gguf": GGUF, name: b"x"})
    with pytest.raises(LoadError, match=r"names that begin with \.slipway are reserved for the loader"):
        inspect(tmp_path / "claim", "", work())


def test_a_source_whose_headers_would_take_for_ever_is_stored_all_the_same(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(safetensors, "MOST_FIELDS", 40)
    write(tmp_path / "source", {f"{number}.safetensors": tensors(1) for number in range(20)})
    report = staged(f"file://{tmp_path}/source", folder, header="safetensors")
    assert (report.files, report.safetensors) == (20, None)
    assert "its files are too long" in report.header_fault
