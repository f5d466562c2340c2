"""Publications: from the hub to a registry that cuts, forgets and fills up, and out of it again."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from slipway.artifacts.documents.publication import Facts, Publication
from slipway.artifacts.locations.references import parse
from slipway.loader.disk.progress import Meter
from slipway.loader.download.load import load
from slipway.loader.download.stage import Work
from slipway.loader.download.transfer import Policy
from slipway.loader.publication import publish as publishing
from slipway.loader.publication.publish import PublishRequest, publish, unpublish
from slipway.loader.transport.errors import LoadError
from slipway.loader.transport.registry import Registry
from slipway.loader.transport.source import Access, open_source

from .conftest import HASTY, Service, content, write
from .models import BESIDE, LLAMA
from .oci import Oci, sha

SOURCE = "hf://acme/llama"
REPOSITORY = "namespaced/a/llama/uid"
BIG = sum(len(text) for name, text in LLAMA.items() if name.endswith(".safetensors"))
ONCE = Policy(attempts=1, first_pause=0.001, longest_pause=0.01)
Begin = Callable[..., Publication]


@pytest.fixture(autouse=True)
def _few_bytes_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publishing, "SMALL", 100_000)
    monkeypatch.setattr("slipway.loader.publication.publication_state.WORTH", 100_000)
    monkeypatch.setattr("slipway.loader.download.transfer.LONG", 100_000)


@pytest.fixture
def oci(start: Callable[[web.Application], Service]) -> Oci:
    fake = Oci()
    fake.service = start(fake.app())
    return fake


@pytest.fixture
def hub_url(hub: Service, root: Path) -> str:
    write(root / "acme/llama", {**LLAMA, **BESIDE})
    return hub.url


def target(oci: Oci, repository: str = REPOSITORY) -> Registry:
    return Registry(parse(f"{oci.host}/{repository}"), {})


@pytest.fixture
def begin(oci: Oci, hub_url: str) -> Begin:
    """A loader that publishes, as a pod starts one. Each has nothing but what the registry keeps."""

    def run(
        policy: Policy = HASTY, repository: str = REPOSITORY, meter: Meter | None = None, **fields: Any
    ) -> Publication:
        source = open_source(SOURCE, {"HF_ENDPOINT": hub_url}, Access())
        work = Work(policy, threading.Event(), meter or Meter())
        return publish(source, target(oci, repository), PublishRequest(name="acme/llama", url=SOURCE, **fields), work)

    return run


def pulled(oci: Oci, digest: str, folder: Path, repository: str = REPOSITORY) -> dict[str, bytes]:
    url = f"registry://{oci.host}/{repository}@{digest}"
    load(url, lambda: open_source(url, {}, Access()), folder, HASTY, threading.Event(), Meter())
    return content(folder)


def test_a_model_is_published_with_what_belongs_to_it_and_pulled_as_it_was(
    begin: Begin, oci: Oci, tmp_path: Path
) -> None:
    publication = begin()

    assert pulled(oci, publication.digest, tmp_path / "pulled") == LLAMA
    assert publication.facts == Facts(
        format="Safetensors",
        family="llama",
        architecture="LlamaForCausalLM",
        parameters=350_000,
        context=4096,
        features=("tools",),
        endpoint_types=("Chat", "TextGeneration"),
        supported_features=("ToolCalling",),
    )
    assert publication.size == sum(len(oci.blobs[layer["digest"]]) for layer in blobs(oci))
    assert oci.tags[REPOSITORY] == {"published": publication.digest}
    assert not oci.uploads


def blobs(oci: Oci, tag: str = "published") -> list[dict[str, Any]]:
    manifest: Any = oci.artifact(REPOSITORY, tag)
    return [manifest["config"], *manifest["layers"]]


def test_the_manifest_is_one_of_the_specification(begin: Begin, oci: Oci) -> None:
    publication = begin()
    manifest: Any = oci.artifact(REPOSITORY)
    config = json.loads(oci.blobs[manifest["config"]["digest"]])

    assert publication.media_type == manifest["artifactType"] == "application/vnd.cncf.model.manifest.v1+json"
    assert (manifest["schemaVersion"], manifest["mediaType"]) == (2, "application/vnd.oci.image.manifest.v1+json")
    assert manifest["config"]["mediaType"] == "application/vnd.cncf.model.config.v1+json"
    layers = {layer["annotations"]["org.cncf.model.filepath"]: layer for layer in manifest["layers"]}
    assert {path: layer["mediaType"].removeprefix("application/vnd.cncf.model.") for path, layer in layers.items()} == {
        ".": "weight.config.v1.tar",
        "model-00001-of-00002.safetensors": "weight.v1.raw",
        "model-00002-of-00002.safetensors": "weight.v1.raw",
    }
    metadata = json.loads(layers["."]["annotations"]["org.cncf.model.file.metadata+json"])
    assert set(metadata) == {"name", "mode", "uid", "gid", "size", "mtime", "typeflag"}
    assert layers["."]["annotations"]["org.opencontainers.image.title"] == "small-files.tar"
    assert config["modelfs"] == {"type": "layers", "diffIds": [layer["digest"] for layer in manifest["layers"]]}
    assert config["config"] == {
        "architecture": "transformer",
        "format": "safetensors",
        "paramSize": "350k",
        "precision": "bfloat16",
        "capabilities": {"inputTypes": ["text"], "outputTypes": ["text"], "toolUsage": True},
    }
    assert config["descriptor"] == {
        "name": "acme/llama",
        "family": "llama",
        "sourceURL": SOURCE,
        "revision": publication.revision,
    }


def test_equal_content_has_an_equal_digest_wherever_it_lies(begin: Begin) -> None:
    assert begin().digest == begin(repository="cluster/llama/other").digest


def test_published_blobs_are_not_sent_again(begin: Begin, oci: Oci) -> None:
    first, sent = begin(), oci.received
    again = begin()

    assert again == first
    assert oci.received == sent


def test_blobs_that_are_there_are_not_sent_again_for_another_revision(begin: Begin, oci: Oci, root: Path) -> None:
    begin()
    sent = oci.received
    write(root / "acme/llama", {"generation_config.json": b"{}"})
    begin()

    assert oci.received - sent < 100_000


@pytest.mark.parametrize("image", [False, True])
def test_a_publisher_that_is_killed_again_and_again_sends_no_byte_twice(
    begin: Begin, oci: Oci, image: bool, tmp_path: Path
) -> None:
    """Each kill is a connection that ends, and a new process."""
    whole = begin(repository="other", image=image)
    sent, oci.received = oci.received, 0
    oci.blobs.clear()
    for cut in (1, 70_000, 3, 200_000, 100_001, 1000, 65_536, 50_000, 2000, 131_072):
        oci.cuts = [cut]
        with pytest.raises(LoadError) as raised:
            begin(ONCE, image=image)
        assert raised.value.transient
        oci.collect()
    publication = begin(image=image)

    assert publication == whole
    # An upload of one byte, or of the configuration, is not worth going on with.
    assert oci.received - sent < 200
    assert pulled(oci, publication.digest, tmp_path / "pulled") == LLAMA


def test_an_earlier_report_of_the_loader_is_enough_to_continue(begin: Begin, oci: Oci) -> None:
    meter = Meter()
    oci.cuts = [150_000]
    with pytest.raises(LoadError):
        begin(ONCE, meter=meter)
    resume_note, sent = meter.resume, oci.received
    oci.manifests.clear()
    oci.tags.clear()
    begin(resume=resume_note)

    assert len(resume_note) <= 2048
    assert oci.received - sent < BIG - 150_000 + 20_000


@pytest.mark.parametrize("text", ["{}", "[", '{"key": "k", "location": "https://evil.example/x"}', "x" * 5000])
def test_an_invalid_report_is_not_trusted(begin: Begin, oci: Oci, text: str) -> None:
    assert begin(resume=text).digest == oci.tags[REPOSITORY]["published"]


def test_a_connection_that_is_cut_within_one_process_goes_on(begin: Begin, oci: Oci) -> None:
    oci.cuts = [100, 70_000, 100_000, 5000, 300]
    begin()
    small = sum(len(text) for name, text in LLAMA.items() if not name.endswith(".safetensors"))

    assert oci.received < BIG + small + 20_000


def test_an_upload_that_a_registry_forgot_starts_again(begin: Begin, oci: Oci, tmp_path: Path) -> None:
    oci.cuts = [150_000]
    with pytest.raises(LoadError):
        begin(ONCE)
    oci.uploads.clear()

    assert pulled(oci, begin().digest, tmp_path / "pulled") == LLAMA


def test_bytes_that_are_not_what_the_hub_promises_are_not_published(
    begin: Begin, oci: Oci, hub: Service, root: Path
) -> None:
    path = "model-00001-of-00002.safetensors"
    wrong = LLAMA[path][:-1] + b"?"

    async def lie(request: web.Request) -> web.StreamResponse | None:
        return web.Response(body=wrong) if request.path.endswith(path) and not request.headers.get("Range") else None

    hub.interfere = lie
    with pytest.raises(LoadError, match=f"IntegrityCheckFailed: {path}"):
        begin()
    assert not oci.tags.get(REPOSITORY, {}).get("published")
    assert sha(wrong) not in oci.blobs


def test_small_files_that_are_not_what_the_hub_promises_are_not_published(begin: Begin, oci: Oci, hub: Service) -> None:
    async def lie(request: web.Request) -> web.StreamResponse | None:
        return web.Response(body=b"[]") if request.path.endswith("/tokenizer.json") else None

    hub.interfere = lie
    with pytest.raises(LoadError, match=r"IntegrityCheckFailed: tokenizer\.json"):
        begin()
    assert not oci.tags.get(REPOSITORY, {}).get("published")


def test_the_hub_may_fail_for_a_moment(begin: Begin, oci: Oci, hub: Service, tmp_path: Path) -> None:
    failures = iter([503, 429, 500] * 3)

    async def busy(request: web.Request) -> web.StreamResponse | None:
        status = next(failures, None) if "/resolve/" in request.path and "Range" in request.headers else None
        return web.Response(status=status) if status else None

    hub.interfere = busy
    assert pulled(oci, begin().digest, tmp_path / "pulled") == LLAMA


@pytest.mark.parametrize("free", [0, 1000, BIG])
def test_nothing_is_sent_where_it_would_not_fit(begin: Begin, oci: Oci, free: int) -> None:
    with pytest.raises(LoadError, match="InsufficientStorage") as raised:
        begin(room=free)
    assert not raised.value.transient
    assert not oci.received


def test_existing_files_need_no_room(begin: Begin, root: Path) -> None:
    begin()
    write(root / "acme/llama", {"generation_config.json": b"{}"})

    assert begin(room=100_000)


def rewrite(oci: Oci, change: Callable[[Any], None]) -> None:
    """Changes the manifest that is published, as its author may while the publisher runs."""
    manifest: Any = oci.artifact(REPOSITORY)
    change(manifest)
    text = json.dumps(manifest).encode()
    oci.manifests[REPOSITORY][sha(text)] = (text, "application/vnd.oci.image.manifest.v1+json")
    oci.tags[REPOSITORY]["published"] = sha(text)


def test_a_blob_that_a_manifest_names_a_hundred_times_has_its_size_once(begin: Begin, oci: Oci) -> None:
    first = begin()
    rewrite(oci, lambda manifest: manifest["layers"].extend(manifest["layers"][-1:] * 100))

    again = begin()

    assert again.digest != first.digest
    assert again.size == first.size


@pytest.mark.parametrize("claimed", [1, 1 << 50])
def test_a_manifest_that_gives_a_blob_two_sizes_is_published_again(begin: Begin, oci: Oci, claimed: int) -> None:
    first = begin()
    rewrite(oci, lambda manifest: manifest["layers"].append(manifest["layers"][-1] | {"size": claimed}))

    assert begin() == first


@pytest.mark.parametrize("claimed", [1, 1 << 50])
def test_a_manifest_that_claims_another_size_than_its_blob_is_published_again(
    begin: Begin, oci: Oci, claimed: int
) -> None:
    first = begin()
    rewrite(oci, lambda manifest: manifest["layers"][-1].update(size=claimed))

    assert begin() == first


def test_an_artifact_that_is_there_is_not_taken_over_without_room(begin: Begin) -> None:
    size = begin().size

    with pytest.raises(LoadError, match="InsufficientStorage"):
        begin(room=size - 1)
    assert begin(room=size).size == size


def test_a_blob_that_vanishes_before_the_end_is_no_success(
    begin: Begin, oci: Oci, monkeypatch: pytest.MonkeyPatch
) -> None:
    victim = sha(LLAMA["model-00002-of-00002.safetensors"])
    real = Registry.put_manifest

    def put(self: Registry, version: str, text: bytes, kind: str) -> None:
        real(self, version, text, kind)
        if version == "published":
            oci.blobs.pop(victim)

    monkeypatch.setattr(Registry, "put_manifest", put)
    with pytest.raises(LoadError, match="lost a blob") as raised:
        begin()
    assert raised.value.transient


def test_blobs_that_are_collected_before_the_manifest_are_sent_again(
    begin: Begin, oci: Oci, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    real, collections = Registry.commit, iter([True, False, True])

    def commit(self: Registry, location: str, digest: str) -> None:
        real(self, location, digest)
        if next(collections, False):
            oci.collect()

    monkeypatch.setattr(Registry, "commit", commit)
    meter = Meter()

    assert pulled(oci, begin(meter=meter).digest, tmp_path / "pulled") == LLAMA
    assert meter.progress().done_bytes == meter.progress().total_bytes


def test_unpublishing_leaves_nothing(begin: Begin, oci: Oci) -> None:
    begin(image=True)
    work = Work(HASTY, threading.Event(), Meter())

    assert unpublish(target(oci), work.retry("x")) == 2
    assert unpublish(target(oci), work.retry("x")) == 0
    assert not oci.manifests[REPOSITORY]


def test_unpublishing_ends_the_upload_of_a_publication_under_way(begin: Begin, oci: Oci) -> None:
    oci.cuts = [150_000]
    with pytest.raises(LoadError):
        begin(ONCE)
    assert oci.uploads
    unpublish(target(oci), Work(HASTY, threading.Event(), Meter()).retry("x"))

    assert not oci.uploads
    assert not oci.manifests[REPOSITORY]


def test_an_image_has_the_same_files_as_tars(begin: Begin, oci: Oci) -> None:
    import io
    import tarfile

    publication = begin(image=True)
    manifest: Any = oci.artifact(REPOSITORY, "image")
    files = {}
    for layer in manifest["layers"]:
        assert layer["mediaType"] == "application/vnd.oci.image.layer.v1.tar"
        with tarfile.open(fileobj=io.BytesIO(oci.blobs[layer["digest"]])) as archive:
            for member in archive:
                stream = archive.extractfile(member)
                assert stream
                files[member.name] = stream.read()
                assert (member.uid, member.gid, member.mtime, member.mode) == (0, 0, 0, 0o644)
    config = json.loads(oci.blobs[manifest["config"]["digest"]])

    assert files == LLAMA
    assert config["rootfs"]["diff_ids"] == [layer["digest"] for layer in manifest["layers"]]
    assert publication.image == oci.tags[REPOSITORY]["image"]


def test_progress_reaches_its_end(begin: Begin, oci: Oci) -> None:
    meter = Meter()
    oci.cuts = [100, 70_000]
    begin(meter=meter)

    assert meter.progress().done_bytes == meter.progress().total_bytes > BIG


@pytest.mark.parametrize(
    ("files", "why"),
    [
        ({"libx.so": b"x"}, "libx.so"),
        ({"more.zip": b"x"}, "more.zip"),
        ({"model.gguf": b"GGUF"}, "two formats"),
    ],
)
def test_a_source_that_is_no_model_fails_for_good(begin: Begin, oci: Oci, root: Path, files: Any, why: str) -> None:
    write(root / "acme/llama", files)

    with pytest.raises(LoadError, match=f"UnsupportedSource: .*{why}") as raised:
        begin()
    assert not raised.value.transient
    assert not oci.received


@pytest.mark.parametrize(
    ("code", "status", "message", "transient"),
    [
        ("DIGEST_INVALID", 400, r"IntegrityCheckFailed: \S+ did not match its checksum in attempt 3 of 3: ", False),
        ("SIZE_INVALID", 400, r"IntegrityCheckFailed: \S+ did not match its checksum in attempt 3 of 3: ", False),
        ("BLOB_UPLOAD_UNKNOWN", 404, r"\S+ lost the upload of \S+ in attempt 3 of 3: check the registry's log", True),
        ("BLOB_UPLOAD_INVALID", 400, r"\S+ lost the upload of \S+ in attempt 3 of 3: check the registry's log", True),
        ("RANGE_INVALID", 416, r"\S+ lost the upload of \S+ in attempt 3 of 3: check the registry's log", True),
    ],
)
def test_an_upload_that_the_registry_lost_at_its_end_is_not_called_corrupt(
    begin: Begin, oci: Oci, code: str, status: int, message: str, transient: bool
) -> None:
    oci.commit_error = code, status

    with pytest.raises(LoadError, match=message) as raised:
        begin()
    assert raised.value.transient == transient


def test_a_pull_resumes_and_believes_no_byte(begin: Begin, oci: Oci, tmp_path: Path) -> None:
    publication = begin()
    oci.spoil = sha(LLAMA["model-00001-of-00002.safetensors"])
    with pytest.raises(LoadError, match="did not match its checksum"):
        pulled(oci, publication.digest, tmp_path / "pulled")
    assert not (tmp_path / "pulled/.slipway-complete").exists()
    oci.spoil = ""

    assert pulled(oci, publication.digest, tmp_path / "pulled") == LLAMA


def test_a_pull_believes_no_tar(begin: Begin, oci: Oci, tmp_path: Path) -> None:
    publication = begin()
    oci.spoil = next(layer["digest"] for layer in blobs(oci) if layer["mediaType"].endswith("tar"))

    with pytest.raises(LoadError, match=r"IntegrityCheckFailed: .*different data"):
        pulled(oci, publication.digest, tmp_path / "pulled")


def test_an_artifact_is_imported_from_another_registry(
    begin: Begin, oci: Oci, start: Callable[[web.Application], Service], tmp_path: Path
) -> None:
    publication = begin()
    here = Oci()
    here.service = start(here.app())
    url = f"registry://{oci.host}/{REPOSITORY}@{publication.digest}"
    work = Work(HASTY, threading.Event(), Meter())
    imported = publish(open_source(url, {}, Access()), target(here, "cluster/x/uid"), PublishRequest(), work)

    assert pulled(here, imported.digest, tmp_path / "pulled", "cluster/x/uid") == LLAMA
    assert imported.facts == publication.facts
    assert imported.revision == publication.digest
    layers = [here.artifact("cluster/x/uid")["layers"], oci.artifact(REPOSITORY)["layers"]]
    assert layers[0] == layers[1]


def test_an_artifact_that_is_not_what_its_digest_says_is_not_imported(begin: Begin, oci: Oci, tmp_path: Path) -> None:
    publication = begin()
    text, kind = oci.manifests[REPOSITORY][publication.digest]
    oci.manifests[REPOSITORY][publication.digest] = (text.replace(b"llama", b"other"), kind)

    with pytest.raises(LoadError, match="IntegrityCheckFailed"):
        pulled(oci, publication.digest, tmp_path / "pulled")
