"""Uploads: what lies in a registry in pieces is read where it lies, and what was made to do harm is refused."""

from __future__ import annotations

import gzip
import io
import json
import struct
import tarfile
import threading
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard
from aiohttp import web

from slipway.artifacts.documents.publication import Publication
from slipway.artifacts.locations.references import parse
from slipway.loader.disk.progress import Meter
from slipway.loader.download.load import load
from slipway.loader.download.stage import Work
from slipway.loader.download.transfer import Policy
from slipway.loader.publication import publish as publishing
from slipway.loader.publication.publish import PublishRequest, publish_upload
from slipway.loader.sources import archives, pieces
from slipway.loader.transport.errors import LoadError
from slipway.loader.transport.registry import Registry
from slipway.loader.transport.source import Access, open_source

from .conftest import HASTY, Service, content
from .models import BESIDE, LLAMA, gguf
from .oci import MANIFEST, Oci, sha

REPOSITORY = "namespaced/a/mine/uid"
PIECE = 70_000
ONCE = Policy(attempts=1)


@pytest.fixture(autouse=True)
def _few_bytes_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publishing, "SMALL", 100_000)
    monkeypatch.setattr(pieces, "SMALL", 100_000)
    monkeypatch.setattr("slipway.loader.publication.publication_state.WORTH", 100_000)


@pytest.fixture
def oci(start: Callable[[web.Application], Service]) -> Oci:
    fake = Oci()
    fake.service = start(fake.app())
    return fake


def uploaded(oci: Oci, text: bytes, name: str = "model", *, complete: bool = True, length: int | None = None) -> None:
    """As the depot leaves it."""
    parts = [text[at : at + PIECE] for at in range(0, len(text), PIECE)]
    oci.blobs |= {sha(part): part for part in (*parts, b"{}")}
    document = {
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "artifactType": "application/vnd.slipway.upload.v1+json",
        "config": {"mediaType": "application/vnd.oci.empty.v1+json", "digest": sha(b"{}"), "size": 2},
        "layers": [{"mediaType": "application/octet-stream", "digest": sha(part), "size": len(part)} for part in parts],
        "annotations": {
            "slipway.inference/file-name": name,
            "slipway.inference/length": str(len(text) if length is None else length),
            "slipway.inference/complete": "true" if complete else "false",
        },
    }
    raw = json.dumps(document).encode()
    oci.manifests.setdefault(REPOSITORY, {})[sha(raw)] = (raw, MANIFEST)
    oci.tags.setdefault(REPOSITORY, {})["session"] = sha(raw)


def begin(oci: Oci) -> Publication:
    registry = Registry(parse(f"{oci.host}/{REPOSITORY}"), {})
    return publish_upload(registry, PublishRequest(), Work(HASTY, threading.Event(), Meter()))


def pulled(oci: Oci, publication: Publication, folder: Path) -> dict[str, bytes]:
    url = f"registry://{oci.host}/{REPOSITORY}@{publication.digest}"
    load(url, lambda: open_source(url, {}, Access()), folder, HASTY, threading.Event(), Meter())
    return content(folder)


def tar_of(files: dict[str, bytes], *, top: str = "") -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, text in files.items():
            info = tarfile.TarInfo(top + name)
            info.size = len(text)
            archive.addfile(info, io.BytesIO(text))
    return buffer.getvalue()


def zip_of(files: dict[str, bytes], *, method: int = zipfile.ZIP_DEFLATED, top: str = "") -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as archive:
        for name, text in files.items():
            archive.writestr(top + name, text)
    return buffer.getvalue()


ALL = {**LLAMA, **BESIDE}
ARCHIVES: dict[str, Callable[[dict[str, bytes]], bytes]] = {
    "zip": zip_of,
    "stored.zip": lambda files: zip_of(files, method=zipfile.ZIP_STORED),
    "tar": tar_of,
    "tar.gz": lambda files: gzip.compress(tar_of(files)),
    "tar.zst": lambda files: zstandard.compress(tar_of(files)),
    "folder.tar": lambda files: tar_of(files, top="llama/"),
    "dotted.tar": lambda files: tar_of(files, top="./"),
    "folder.zip": lambda files: zip_of(files, top="llama/"),
}


@pytest.mark.parametrize("kind", ARCHIVES)
def test_an_archive_is_published_from_where_it_lies_and_its_pieces_go(oci: Oci, kind: str, tmp_path: Path) -> None:
    uploaded(oci, ARCHIVES[kind](ALL))
    publication = begin(oci)

    assert pulled(oci, publication, tmp_path / "pulled") == LLAMA
    assert publication.facts.parameters == 350_000
    assert set(oci.tags[REPOSITORY]) == {"published"}


def test_the_order_of_an_archive_makes_no_difference_to_its_layers(oci: Oci) -> None:
    layers = []
    for files in (ALL, dict(reversed(ALL.items()))):
        uploaded(oci, gzip.compress(tar_of(files)))
        begin(oci)
        layers.append(oci.artifact(REPOSITORY)["layers"])

    assert layers[0] == layers[1]


def test_a_gguf_file_is_a_model_by_itself(oci: Oci, tmp_path: Path) -> None:
    text = gguf(40_000)
    uploaded(oci, text, "Qwen3-4B-Q4_K_M.gguf")
    publication = begin(oci)

    assert pulled(oci, publication, tmp_path / "pulled") == {"Qwen3-4B-Q4_K_M.gguf": text}
    assert (publication.facts.architecture, publication.facts.quantization, publication.facts.context) == (
        "qwen3",
        "Q4_K_M",
        40960,
    )
    assert publication.facts.parameters == 40_000
    assert [layer["digest"] for layer in oci.artifact(REPOSITORY)["layers"]] == [sha(text)]  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", ["../../x.gguf", "a\\b.gguf", "", ".gguf/", "x\n.gguf"])
def test_the_name_of_an_upload_leads_nowhere(oci: Oci, name: str, tmp_path: Path) -> None:
    uploaded(oci, gguf(), name)
    names = set(pulled(oci, begin(oci), tmp_path / "pulled"))

    assert len(names) == 1
    assert "/" not in next(iter(names))


def test_a_publisher_that_was_not_heard_of_says_the_same_again(oci: Oci) -> None:
    uploaded(oci, gguf(), "m.gguf")
    assert begin(oci) == begin(oci)


@pytest.mark.parametrize("cuts", [[1000], [1000, 130_000], [50_000, 1, 1]])
@pytest.mark.parametrize("kind", ["zip", "tar.gz"])
def test_a_publication_from_an_archive_goes_on_where_it_was_cut(
    oci: Oci, kind: str, cuts: list[int], tmp_path: Path
) -> None:
    uploaded(oci, ARCHIVES[kind](ALL))
    for cut in cuts:
        oci.cuts = [cut]
        with pytest.raises(LoadError):
            publish_upload(
                Registry(parse(f"{oci.host}/{REPOSITORY}"), {}),
                PublishRequest(),
                Work(ONCE, threading.Event(), Meter()),
            )
    publication = begin(oci)

    assert pulled(oci, publication, tmp_path / "pulled") == LLAMA
    # One note of the blobs that are there is sent for each, and a little for the rest.
    assert oci.received < sum(map(len, LLAMA.values())) + 70_000


def test_nothing_is_published_before_all_is_there(oci: Oci) -> None:
    uploaded(oci, gguf(), complete=False)
    with pytest.raises(LoadError, match="InvalidFileSet: the upload is not complete"):
        begin(oci)
    uploaded(oci, gguf(), length=1)
    with pytest.raises(LoadError, match="InvalidFileSet: the upload is not complete"):
        begin(oci)


def test_nothing_was_uploaded(oci: Oci) -> None:
    with pytest.raises(LoadError, match="SourceNotFound"):
        begin(oci)


def special(name: str, kind: bytes, link: str = "") -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        info = tarfile.TarInfo(name)
        info.type, info.linkname = kind, link
        archive.addfile(info)
    return buffer.getvalue()


def zip_link() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        info = zipfile.ZipInfo("config.json")
        info.external_attr = 0o120777 << 16
        archive.writestr(info, "/etc/passwd")
    return buffer.getvalue()


def long_header() -> bytes:
    """A header that announces 8 GB of further headers."""
    info = tarfile.TarInfo("x")
    info.type, info.size = tarfile.XHDTYPE, 8 << 30
    return info.tobuf(tarfile.GNU_FORMAT) + bytes(1024)


def huge_header() -> bytes:
    """A sound model behind headers of 2 MiB."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT, pax_headers={"comment": "x" * (2 << 20)}):
        pass
    return buffer.getvalue().rstrip(b"\0") + bytes(512) + tar_of(LLAMA)


def lying_size() -> bytes:
    info = tarfile.TarInfo("model.safetensors")
    info.size = 1 << 40
    return info.tobuf(tarfile.GNU_FORMAT) + bytes(2048)


def nested_headers() -> bytes:
    info = tarfile.TarInfo("x")
    info.type = tarfile.XHDTYPE
    return info.tobuf(tarfile.PAX_FORMAT) * 5000 + bytes(1024)


def huge_directory() -> bytes:
    """A zip whose end record announces a directory of 3 GB."""
    return b"PK\x03\x04" + bytes(100) + b"PK\x05\x06" + struct.pack("<HHHHIIH", 0, 0, 60000, 60000, 3 << 30, 4, 0)


REFUSED: dict[str, tuple[bytes, str]] = {
    "a name that leads out of a tar": (tar_of({"../x.json": b""}), "rejected"),
    "an absolute name in a tar": (tar_of({"/etc/x.json": b""}), "rejected"),
    "a name that leads out of a zip": (zip_of({"a/../../x.json": b""}), "rejected"),
    "a symbolic link in a tar": (special("config.json", tarfile.SYMTYPE, "/etc/passwd"), "link"),
    "a hard link in a tar": (special("config.json", tarfile.LNKTYPE, "x"), "link"),
    "a device in a tar": (special("null", tarfile.CHRTYPE), "device"),
    "a fifo in a tar": (special("pipe", tarfile.FIFOTYPE), "device"),
    "a symbolic link in a zip": (zip_link(), "link"),
    "an archive in an archive": (tar_of({**LLAMA, "more.tar.gz": b"x"}), "more.tar.gz"),
    "a program": (zip_of({**LLAMA, "lib/x.so": b"x"}), "x.so"),
    "a header without an end": (long_header(), "rejected"),
    "headers of megabytes": (huge_header(), "too long"),
    "a size that is a lie": (lying_size(), "rejected"),
    "headers in headers": (nested_headers(), "rejected"),
    "a directory without an end": (huge_directory(), "rejected"),
    "a tar that is cut off": (tar_of(LLAMA)[:200_000], "rejected"),
    "a zip that is cut off": (zip_of(LLAMA)[:-30], "rejected"),
    "a gzip file that is cut off": (gzip.compress(tar_of(LLAMA))[:-1000], "rejected"),
    "no gzip file": (b"\x1f\x8b" + bytes(2000), "rejected"),
    "no zstd file": (b"\x28\xb5\x2f\xfd" + b"\xff" * 2000, "rejected"),
    "no archive at all": (b"hello", "neither GGUF"),
    "nothing in it": (tar_of({}), "neither GGUF|no weights"),
    "a pickle": (tar_of({"config.json": b"{}", "pytorch_model.bin": b"x"}), "pickle"),
    "two formats": (tar_of({**LLAMA, "x.gguf": gguf()}), "two formats"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_refused(oci: Oci, what: str) -> None:
    text, why = REFUSED[what]
    uploaded(oci, text)

    with pytest.raises(LoadError, match=rf"UnsupportedSource: .*({why})") as raised:
        begin(oci)
    assert not raised.value.transient
    assert "published" not in oci.tags[REPOSITORY]


@pytest.mark.parametrize("kind", ["tar.gz", "zip", "tar.zst"])
def test_a_bomb_is_refused_before_it_is_unpacked(oci: Oci, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archives, "SLACK", 1 << 20)
    uploaded(oci, ARCHIVES[kind]({"config.json": b"{}", "model.safetensors": bytes(32 << 20)}))

    with pytest.raises(LoadError, match="times its size"):
        begin(oci)


@pytest.mark.parametrize("kind", ["zip", "tar", "tar.gz"])
def test_more_files_than_any_model_has_are_refused(oci: Oci, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archives, "MOST_FILES", 50)
    uploaded(oci, ARCHIVES[kind]({f"{number}.json": b"" for number in range(60)}))

    with pytest.raises(LoadError, match="more than 50 files"):
        begin(oci)


def test_a_directory_longer_than_any_models_is_not_read(oci: Oci, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archives, "LARGEST_DIRECTORY", 1000)
    uploaded(oci, zip_of({f"{number}.json": b"" for number in range(60)}))

    with pytest.raises(LoadError, match="directory is too long"):
        begin(oci)


def test_a_file_of_a_zip_that_is_damaged_is_not_published(oci: Oci) -> None:
    whole = bytearray(zip_of(LLAMA, method=zipfile.ZIP_STORED))
    place = whole.find(LLAMA["model-00002-of-00002.safetensors"][-100:])
    whole[place] ^= 1
    uploaded(oci, bytes(whole))

    with pytest.raises(LoadError, match="damaged"):
        begin(oci)
