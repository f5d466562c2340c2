"""The registry's client against one that cuts, refuses and lies."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from aiohttp import web

from slipway.artifacts.locations.references import parse
from slipway.loader.transport import registry as client
from slipway.loader.transport.errors import LoadError, StoppedError, TransientError
from slipway.loader.transport.registry import DigestMismatchError, Progress, Registry, UploadGoneError

from .conftest import Service
from .oci import Oci, sha

CONTENT = bytes(range(256)) * 4096


@pytest.fixture
def oci(start: Callable[[web.Application], Service]) -> Oci:
    fake = Oci()
    fake.service = start(fake.app())
    return fake


def registry(oci: Oci, env: dict[str, str] | None = None, **options: object) -> Registry:
    return Registry(parse(f"{oci.host}/a/model"), env or {}, **options)  # type: ignore[arg-type]


def pieces(content: bytes = CONTENT) -> Iterator[bytes]:
    yield from (content[at : at + 65536] for at in range(0, len(content), 65536))


def test_a_blob_is_sent_as_a_stream_and_read_from_any_position(oci: Oci) -> None:
    here = registry(oci)
    done = here.send(Progress(here.begin(), 0), pieces(), len(CONTENT))
    here.commit(done.location, sha(CONTENT))

    assert here.size(sha(CONTENT)) == len(CONTENT)
    with here.blob(sha(CONTENT), 1000) as body:
        assert (body.start, body.read(10)) == (1000, CONTENT[1000:1010])


def test_an_upload_that_is_cut_goes_on_at_the_offset_of_the_registry(oci: Oci) -> None:
    oci.cuts = [300_000]
    here = registry(oci)
    location = here.begin()
    with pytest.raises(TransientError):
        here.send(Progress(location, 0), pieces(), len(CONTENT))
    progress = here.progress(location)
    assert progress.offset == 300_000
    done = here.send(progress, pieces(CONTENT[300_000:]), len(CONTENT) - 300_000)
    here.commit(done.location, sha(CONTENT))

    assert oci.received == len(CONTENT)


def test_an_upload_that_the_registry_does_not_know_starts_again(oci: Oci) -> None:
    here = registry(oci)
    location = here.begin()
    oci.uploads.clear()

    with pytest.raises(UploadGoneError):
        here.progress(location)
    with pytest.raises(UploadGoneError):
        here.send(Progress(location, 0), pieces(), len(CONTENT))


def test_a_blob_is_only_taken_for_what_its_digest_says(oci: Oci) -> None:
    here = registry(oci)
    done = here.send(Progress(here.begin(), 0), pieces(), len(CONTENT))

    with pytest.raises(DigestMismatchError):
        here.commit(done.location, sha(b"other"))


def test_a_blob_of_one_request_that_the_registry_lost_can_be_sent_again(oci: Oci) -> None:
    here, digest = registry(oci), sha(CONTENT)
    oci.commit_error = "BLOB_UPLOAD_UNKNOWN", 404
    with pytest.raises(TransientError, match=f"lost the upload of {digest}"):
        here.put_blob(CONTENT, digest)
    oci.commit_error = None
    here.put_blob(CONTENT, digest)

    assert here.size(digest) == len(CONTENT)


def test_a_token_is_asked_for_with_the_service_accounts_and_for_what_is_to_be_done(oci: Oci, tmp_path: Path) -> None:
    own = tmp_path / "token"
    own.write_text("of-the-pod\n")
    oci.token, oci.realm = "opens", f"{oci.service and oci.service.url}/token"
    here = registry(oci, {"SLIPWAY_DEPOT_TOKEN_FILE": str(own)})
    here.put_blob(b"{}", sha(b"{}"))

    assert sha(b"{}") in oci.blobs
    assert {
        "who": ["Bearer of-the-pod"],
        "service": ["registry"],
        "scope": ["repository:a/model:pull,push"],
    } in oci.asked
    assert len(oci.asked) == 2  # to look, then to write


@pytest.mark.parametrize("realm", ["https://elsewhere.example/token", "http://10.0.0.1/token", "https://u@127.0.0.1/t"])
def test_the_service_accounts_token_is_given_to_no_service_that_is_not_known(
    oci: Oci, tmp_path: Path, realm: str
) -> None:
    own = tmp_path / "token"
    own.write_text("of-the-pod")
    oci.token, oci.realm = "opens", realm

    with pytest.raises(LoadError, match="not trusted") as raised:
        registry(oci, {"SLIPWAY_DEPOT_TOKEN_FILE": str(own)}).size(sha(b""))
    assert "of-the-pod" not in str(raised.value)


@pytest.mark.parametrize(
    ("host", "is_known"),
    [
        ("slipway-depot.system.svc:8443", True),
        ("slipway-depot.other.svc:8443", False),
        ("slipway-depot.system.svc.evil.example", False),
        ("depot.example", False),
    ],
)
def test_the_token_service_may_be_a_service_of_the_registrys_namespace(host: str, is_known: bool) -> None:
    here = Registry(parse("slipway-registry.system.svc:5000/a"), {})
    if is_known:
        here._check_realm(f"https://{host}/token")
        return
    with pytest.raises(LoadError, match="not trusted"):
        here._check_realm(f"https://{host}/token")


def test_a_token_service_elsewhere_is_known_by_the_variable() -> None:
    Registry(parse("r.example/a"), {"SLIPWAY_REGISTRY_REALM": "t.example:8443"})._check_realm(
        "https://t.example:8443/x"
    )


def test_a_registry_that_is_read_only_is_waited_for(oci: Oci, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "READ_ONLY_PAUSE", 0.01)
    oci.read_only = 3
    notes: list[str] = []
    registry(oci, note=notes.append).put_blob(b"{}", sha(b"{}"))

    assert sha(b"{}") in oci.blobs
    assert "read-only" in notes[0]


def test_a_wait_for_a_registry_can_be_stopped(oci: Oci) -> None:
    oci.read_only, stop = 99, threading.Event()
    stop.set()

    with pytest.raises(StoppedError):
        registry(oci, stop=stop).begin()


@pytest.mark.parametrize(("status", "text"), [(507, ""), (500, "write /x: no space left on device")])
def test_a_full_registry_is_distinguished_from_one_that_is_not_well(oci: Oci, status: int, text: str) -> None:
    async def full(_request: web.Request) -> web.Response:
        return web.json_response({"errors": [{"code": "UNKNOWN", "detail": text}]}, status=status)

    assert oci.service
    oci.service.interfere = full
    with pytest.raises(LoadError, match="InsufficientStorage") as raised:
        registry(oci).begin()
    assert not raised.value.transient


@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_registry_that_is_busy_may_be_asked_again(oci: Oci, status: int) -> None:
    async def busy(_request: web.Request) -> web.Response:
        return web.Response(status=status, headers={"Retry-After": "7"})

    assert oci.service
    oci.service.interfere = busy
    with pytest.raises(TransientError) as raised:
        registry(oci).begin()
    assert raised.value.retry_after == 7


def test_an_address_of_something_else_is_not_followed(oci: Oci) -> None:
    async def elsewhere(_request: web.Request) -> web.Response:
        return web.Response(status=202, headers={"Location": "https://evil.example/v2/b/blobs/uploads/1"})

    assert oci.service
    oci.service.interfere = elsewhere
    with pytest.raises(LoadError, match="no upload"):
        registry(oci).begin()


def test_a_manifest_is_checked_by_its_digest(oci: Oci) -> None:
    async def other(_request: web.Request) -> web.Response:
        return web.Response(body=b"{}")

    assert oci.service
    oci.service.interfere = other
    with pytest.raises(LoadError, match="IntegrityCheckFailed"):
        registry(oci).manifest(sha(b"wanted"))


def test_a_manifest_without_an_end_is_refused(oci: Oci, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "LARGEST_MANIFEST", 1000)

    async def long(_request: web.Request) -> web.Response:
        return web.Response(body=b"x" * 5000)

    assert oci.service
    oci.service.interfere = long
    with pytest.raises(LoadError, match="more than"):
        registry(oci).manifest("published")


def test_a_blob_is_taken_over_from_another_repository(oci: Oci) -> None:
    oci.blobs[sha(b"x")] = b"x"

    assert registry(oci).mount(sha(b"x"), "b/model")
    assert not registry(oci).mount(sha(b"y"), "b/model")
    assert not oci.uploads


def test_only_this_machine_is_asked_without_tls() -> None:
    assert Registry(parse("registry.example:5000/a"), {})._base == "https://registry.example:5000"
    assert Registry(parse("127.0.0.1:5000/a"), {})._base == "http://127.0.0.1:5000"


@pytest.mark.parametrize(
    "text", ["a/b", "host:5000", "host:5000/UPPER", "h/a@sha256:00", "h/a/../b", "h/a//b", "h/a b", "http://h/a", ""]
)
def test_an_invalid_reference_is_rejected(text: str) -> None:
    if text == "a/b":
        assert parse(text).host == "a"
        return
    with pytest.raises(ValueError, match="does not"):
        parse(text)
