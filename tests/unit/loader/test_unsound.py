"""What has the name of a model and is none: neither published nor loaded, and the file that is to blame is named."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from aiohttp import web

from slipway.artifacts.locations.references import parse
from slipway.loader.disk.folder import MARKER
from slipway.loader.download.headers import model_files
from slipway.loader.download.load import load
from slipway.loader.download.stage import Work, inspect, opened, stage
from slipway.loader.download.verification import fault_in
from slipway.loader.publication.model_metadata import chosen_of
from slipway.loader.publication.publish import PublishRequest, publish
from slipway.loader.transport.errors import LoadError
from slipway.loader.transport.registry import Registry
from slipway.loader.transport.selection import FileRequest
from slipway.loader.transport.source import Access, open_source
from slipway.weights.facts import describe_header
from tests.tables import each

from .conftest import HASTY, Service, work, write
from .models import LLAMA, gguf, tensors
from .oci import Oci

POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"a" * 64 + b"\nsize 4976698672\n"
PAGE = b"<!DOCTYPE html>\n<html><head><title>Log in</title></head></html>"
CONFIG = LLAMA["config.json"]
WEIGHTS = tensors("a", 1000)
GGUF = gguf(1000)
BROKEN = WEIGHTS.replace(b"BF16", b"bf16")
LONG = (20 << 20).to_bytes(8, "little") + b'{"a"' + bytes(1000)
"""Its header is longer than is read here, and not than the format allows."""
INDEX = "model.safetensors.index.json"
FIRST, SECOND = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"
Files = dict[str, bytes]


def index(*names: str) -> bytes:
    return json.dumps({"metadata": {}, "weight_map": {str(place): name for place, name in enumerate(names)}}).encode()


def llama(**files: bytes) -> Files:
    return {"config.json": CONFIG} | {name.replace("__", "."): content for name, content in files.items()}


UNSOUND: list[tuple[str, Files, str]] = [
    ("pointer", llama(model__safetensors=POINTER), "model.safetensors is a Git LFS pointer, not the weights"),
    ("page", llama(model__safetensors=PAGE), "model.safetensors is a web page, not the weights"),
    ("page of another kind", llama(model__safetensors=b"\n <html>"), "model.safetensors is a web page"),
    ("answer", llama(model__safetensors=b'{"error":"Invalid username or password."}'), "error message of a server"),
    ("answer of a gateway", llama(model__safetensors=b'{"detail": "Not authenticated"}'), "error message of a server"),
    ("no such entry", llama(model__safetensors=b"Entry not found"), "error message of a server"),
    ("no such user", llama(model__safetensors=b"Invalid username or password."), "error message of a server"),
    ("gated", {"m.gguf": b"Access to model acme/m is restricted."}, "error message of a server"),
    ("garbage", llama(model__safetensors=bytes(range(256)) * 64), "model.safetensors is not a valid file of its type"),
    ("header that is none", llama(model__safetensors=BROKEN), "model.safetensors is not a valid file of its type"),
    ("GGUF, garbage", {"m.gguf": bytes(range(256)) * 64}, "m.gguf is not a valid file of its type"),
    ("GGUF, ends early", {"m.gguf": b"no"}, "m.gguf"),
    ("XML", llama(model__safetensors=b"<?xml version='1.0'?><Error/>"), "error message of a server"),
    ("empty", llama(model__safetensors=b""), "model.safetensors is empty"),
    ("cut off", llama(model__safetensors=WEIGHTS[:-1]), "model.safetensors has 2"),
    ("half", llama(model__safetensors=WEIGHTS[:1000]), "model.safetensors has 1000 bytes"),
    ("something behind", llama(model__safetensors=WEIGHTS + b"x"), "model.safetensors has 2"),
    ("one of two", {"config.json": CONFIG, FIRST: WEIGHTS}, f"{SECOND} is missing"),
    ("one of two and an index", {"config.json": CONFIG, FIRST: WEIGHTS, INDEX: index(FIRST, SECOND)}, SECOND),
    (
        "an index alone names it",
        llama(model__safetensors=WEIGHTS) | {INDEX: index("model.safetensors", "extra.safetensors")},
        "extra.safetensors is missing",
    ),
    ("none of an index", {"config.json": CONFIG, INDEX: index(FIRST), "adapter_model.safetensors": WEIGHTS}, FIRST),
    ("one pointer", {"config.json": CONFIG, FIRST: WEIGHTS, SECOND: POINTER}, f"{SECOND} is a Git LFS pointer"),
    ("GGUF, pointer", {"m.gguf": POINTER}, "m.gguf is a Git LFS pointer"),
    ("GGUF, page", {"m.gguf": PAGE}, "m.gguf is a web page"),
    ("GGUF, empty", {"m.gguf": b""}, "m.gguf is empty"),
    ("GGUF, cut off", {"m.gguf": GGUF[:-1]}, "m.gguf"),
    ("GGUF, header cut off", {"m.gguf": GGUF[:60]}, "m.gguf"),
    ("GGUF, one of two", {"m-00001-of-00002.gguf": GGUF}, "m-00002-of-00002.gguf is missing"),
    ("GGUF, second of two", {"m-00002-of-00002.gguf": GGUF}, "m-00001-of-00002.gguf is missing"),
    ("projector, cut off", {"m.gguf": GGUF, "mmproj-m.gguf": GGUF[:-1]}, "mmproj-m.gguf"),
    ("projector", {"m.gguf": GGUF, "mmproj-m.gguf": POINTER}, "mmproj-m.gguf is a Git LFS pointer"),
    ("tokenizer", llama(model__safetensors=WEIGHTS, tokenizer__json=POINTER), "tokenizer.json is a Git LFS pointer"),
    (
        "configuration",
        llama(model__safetensors=WEIGHTS) | {"config.json": PAGE + b" " * 2000},
        "config.json is a web page, not the file itself",
    ),
    ("merges", llama(model__safetensors=WEIGHTS, merges__txt=POINTER), "merges.txt is a Git LFS pointer, not the file"),
    (
        "new tokenizer",
        llama(model__safetensors=WEIGHTS) | {"tokenizer.model.v3": POINTER},
        "tokenizer.model.v3 is a Git LFS pointer",
    ),
    ("no ending", llama(model__safetensors=WEIGHTS, dict=PAGE), "dict is a web page, not the file itself"),
    (
        "long page",
        llama(model__safetensors=WEIGHTS, tokenizer__json=PAGE + b" " * 2000),
        "tokenizer.json is a web page, not the file itself",
    ),
    *(
        (f"{kind}, {name}", llama(model__safetensors=WEIGHTS) | {name: content}, f"{name} is {why}")
        for kind, name, content, why in (
            ("nothing", "tokenizer.json", b"", "empty"),
            ("blanks", "config.json", b"\n", "empty"),
            ("half", "config.json", CONFIG[: CONFIG.index(b"]") + 1], "cut off"),
            ("half", "tokenizer.json", b'{"model": {"vocab": {' + b'"a": 1, ' * 200, "cut off"),
            ("half", INDEX, b'{"weight_map": {"a": "model-0', "cut off"),
            ("error", "config.json", b'{"error": "Repository not found"}', "an error message of a server"),
            ("XML", "tokenizer.json", b"<Error><Code>AccessDenied</Code></Error>", "an error message of a server"),
            ("sentence", "tokenizer_config.json", b"Entry not found", "an error message of a server"),
            ("sentence", "merges.txt", b"404: Not Found\n", "an error message of a server"),
            ("zeros", "tokenizer.json", bytes(2000), "not a valid file of its type: it is not JSON"),
            ("annex", "tokenizer.model", b"/annex/objects/SHA256E-s9--aa.model\n", "a git-annex pointer"),
            ("annex, link", "tokenizer.model", b"../.git/annex/objects/Xx/9z/SHA256E-s9--aa", "a git-annex pointer"),
            ("comment", "tokenizer.json", b"<!-- 1 --><html>", "a web page"),
            ("Xet", "tokenizer.json", b"# xet version 0\nfilesize = 9\n", "a git-xet pointer"),
        )
    ),
    ("annex", {"m.gguf": b"/annex/objects/SHA256E-s4976698672--aaaa.gguf\n"}, "m.gguf is a git-annex pointer"),
    (
        "pipeline",
        {"model_index.json": b'{"_class_name": "X"}', "unet/model.bin": POINTER},
        "unet/model.bin is a Git LFS pointer",
    ),
]


@pytest.fixture
def oci(start: Callable[[web.Application], Service]) -> Oci:
    fake = Oci()
    fake.service = start(fake.app())
    return fake


def published(oci: Oci, hub: Service) -> None:
    source = open_source("hf://acme/m", {"HF_ENDPOINT": hub.url}, Access())
    target = Registry(parse(f"{oci.host}/models/m"), {})
    publish(source, target, PublishRequest(name="m"), Work(HASTY, threading.Event(), work().meter))


@pytest.mark.parametrize(("kind", "files", "why"), UNSOUND, ids=[row[0] for row in UNSOUND])
def test_files_that_are_not_a_model_are_not_published(
    oci: Oci, hub: Service, root: Path, kind: str, files: Files, why: str
) -> None:
    write(root / "acme/m", files)
    with pytest.raises(LoadError) as raised:
        published(oci, hub)
    assert str(raised.value).startswith("UnsupportedSource: ")
    assert why in str(raised.value)
    assert not raised.value.transient
    assert not oci.received, kind


@pytest.mark.parametrize(("kind", "files", "why"), UNSOUND, ids=[row[0] for row in UNSOUND])
def test_files_that_are_not_a_model_are_not_loaded(
    hub: Service, root: Path, folder: Path, kind: str, files: Files, why: str
) -> None:
    """By any of the APIs: KubeAI's Models and adapters are loaded, LLMKube's and OME's are staged."""
    write(root / "acme/m", files)
    env = {"HF_ENDPOINT": hub.url}
    source = partial(opened, "hf://acme/m", env, None)
    for name, load_into in {
        "load": lambda to: load("hf://acme/m", source, to, HASTY, threading.Event(), work().meter),
        "stage": lambda to: stage("hf://acme/m", source, to, FileRequest(), work("model")),
    }.items():
        with pytest.raises(LoadError) as raised:
            load_into(folder / name)
        assert str(raised.value).startswith("UnsupportedSource: "), kind
        assert why in str(raised.value)
        assert not raised.value.transient
        assert not (folder / name / MARKER).exists()


@pytest.mark.parametrize(("kind", "files", "why"), UNSOUND, ids=[row[0] for row in UNSOUND])
def test_files_on_a_claim_or_a_node_that_are_not_a_model_are_reported(
    tmp_path: Path, kind: str, files: Files, why: str
) -> None:
    write(tmp_path / "claim", files)
    report = inspect(tmp_path / "claim", "", work("gguf"))
    assert why in report.fault, kind
    assert why in describe_header("The weights are on the claim x", report)
    assert inspect(tmp_path / "claim", "", work("model")).fault == report.fault


@each(
    [
        ({"pytorch_model.bin": b"404: Not Found"}, "pytorch_model.bin is an error message of a server"),
        ({"pytorch_model.bin": b"Access denied"}, "pytorch_model.bin is an error message of a server"),
        ({"pytorch_model.bin": b"<!-- 1 --><html>"}, "pytorch_model.bin is a web page"),
        (
            {"pytorch_model.bin": b"PK", "pytorch_model.bin.index.json": index("pytorch_model.bin", "extra.bin")},
            "extra.bin is missing, but pytorch_model.bin.index.json names it",
        ),
    ]
)
def test_a_file_in_place_of_a_pickle_is_reported(files: Files, why: str) -> None:
    """No pickle is published."""
    with TemporaryDirectory() as folder:
        write(Path(folder), {"config.json": CONFIG, **files})
        assert why in fault_in(Path(folder), ["config.json", *files])


@each(
    [
        {"cover.png": POINTER, "README.md": PAGE, "assets/cover.bin": b"", "m.gguf": GGUF},
        {"m.bin": b"GGUF" + bytes(100), "m.onnx": bytes(range(256)), "m.pt": bytes(100)},
        llama(model__safetensors=LONG),
        {"config.json": CONFIG, "model.safetensors": WEIGHTS, "pytorch_model-00001-of-00002.bin": b"x"},
        {"config.json": CONFIG, "model.safetensors": WEIGHTS, "original/model-00001-of-00002.safetensors": b"x"},
        {"adapter_config.json": b"{}", "adapter_model.safetensors": WEIGHTS},
        {"config.json": CONFIG, "pytorch_model.bin": b"PK"},
        {"config.json": CONFIG, FIRST: WEIGHTS, SECOND: WEIGHTS, INDEX: index(FIRST, SECOND)},
        {"x-Q4_K_M.gguf": GGUF, INDEX: index(FIRST, SECOND)},
        llama(model__safetensors=WEIGHTS) | {INDEX: index(FIRST, SECOND)},
        {"config.json": CONFIG, "pytorch_model.bin": b"PK", INDEX: index(FIRST, SECOND)},
        llama(model__safetensors=WEIGHTS) | {"pytorch_model.bin.index.json": index("pytorch_model-1-of-2.bin")},
        llama(model__safetensors=WEIGHTS)
        | {"tokenizer.json": b"\xef\xbb\xbf[]\r\n", "vocab.txt": b"forbidden\nnot found\n" * 9, "notes.json": b""},
        {"config.json": b"", "m.gguf": GGUF},
        {"config.json": b"", "adapter_config.json": b"{}", "adapter_model.safetensors": WEIGHTS},
        *(
            llama(model__safetensors=WEIGHTS) | {name: content}
            for name, content in {
                "x_config.json": b'"a"',
                "generation_config.json": b"null",
                "special_tokens_map.json": b"",
                "tokenizer.model": b"",
                "checkpoint-500/trainer_config.json": b"",
                "checkpoint-500/config.json": b"",
                "latest": b"500 steps",
                "resolution.txt": b"512 x 512",
                "prompt.txt": b"Forbidden words are allowed.",
                "added_tokens.json": b'{"error": 5}',
                "chat_template.jinja": b"<!-- Licence: MIT -->{{ messages }}",
                "openvino_model.xml": b"<!-- Licence: MIT --><net/>",
                "config.json": b" " * 600 + CONFIG,
                "tokenizer_config.json": b'{"error": "e", "model_max_length": 9}',
            }.items()
        ),
        *(
            {"config.json": CONFIG, name: content, "pytorch_model.bin.index.json": index("pytorch_model-1-of-2.bin")}
            for name, content in {
                "model.bin": b"PK",
                "model.onnx": b"x",
                "onnx/model.onnx": b"x",
                "consolidated.00.pth": b"PK",
            }.items()
        ),
    ]
)
def test_possible_models_are_left_to_the_engine(files: Files) -> None:
    with TemporaryDirectory() as folder:
        write(Path(folder), files)
        assert fault_in(Path(folder), list(files)) == ""


@pytest.mark.parametrize(
    "files",
    [
        {"config.json": b"", "m.gguf": GGUF},
        llama(model__safetensors=WEIGHTS)
        | {"x_config.json": b'"a"', "generation_config.json": b"null", "special_tokens_map.json": b""}
        | {"chat_template.jinja": b"<!-- Licence: MIT -->{{ messages }}", "resolution.txt": b"512 x 512"},
    ],
    ids=["GGUF", "safetensors"],
)
def test_files_that_an_engine_may_not_read_are_published_unchecked(
    oci: Oci, hub: Service, root: Path, files: Files
) -> None:
    write(root / "acme/m", files)
    published(oci, hub)
    assert oci.received


def test_a_header_beyond_the_limits_here_is_published(oci: Oci, hub: Service, root: Path) -> None:
    write(root / "acme/m", llama(model__safetensors=LONG))
    published(oci, hub)
    assert oci.received


@each(
    [
        (["config.json", "model.safetensors", "model.fp16.safetensors"], ["model.safetensors"]),
        (["config.json", FIRST, SECOND, "model.safetensors", INDEX], [FIRST, SECOND]),
        (["config.json", "model.safetensors", "consolidated.safetensors"], ["model.safetensors"]),
        (["config.json", "model.safetensors", "4bit/model.safetensors"], ["model.safetensors"]),
        (["test/config.json", "test/model.safetensors"], ["test/model.safetensors"]),
    ]
)
def test_only_one_copy_of_the_same_weights_is_counted(names: list[str], expected: list[str]) -> None:
    main = next(name for name in names if name.endswith("config.json"))
    assert model_files(names, main) == expected


def test_only_one_copy_of_duplicate_weights_is_published(hub: Service, root: Path) -> None:
    files = {"config.json": CONFIG, FIRST: WEIGHTS, SECOND: tensors("b", 500), INDEX: index(FIRST, SECOND)}
    write(root / "acme/m", {**files, "consolidated.safetensors": WEIGHTS, "tokenizer.model.v3": b"t"})
    source, retry = open_source("hf://acme/m", {"HF_ENDPOINT": hub.url}, Access()), work().retry("m")
    assert chosen_of(source, source.listing(retry), retry).files == {*files, "tokenizer.model.v3"}


@pytest.mark.parametrize(
    ("name", "content"), [("x-Q4_K_M.gguf", GGUF), ("model.safetensors", WEIGHTS)], ids=["GGUF", "merged"]
)
def test_an_index_of_another_model_is_not_published(hub: Service, root: Path, name: str, content: bytes) -> None:
    write(root / "acme/m", {"config.json": CONFIG, name: content, INDEX: index(FIRST, SECOND)})
    source, retry = open_source("hf://acme/m", {"HF_ENDPOINT": hub.url}, Access()), work().retry("m")
    assert chosen_of(source, source.listing(retry), retry).files == {"config.json", name}
