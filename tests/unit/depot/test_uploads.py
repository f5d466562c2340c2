"""The upload door: whole files, resumed ones, two at once, and everything that is refused."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import io
import json
import logging
import random
import tarfile
import time
import zipfile
from collections.abc import AsyncIterator, Iterator
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from yarl import URL

from slipway.depot.handlers import uploads as uploads_module
from slipway.depot.handlers.uploads import Uploads
from slipway.depot.http import server as listener
from slipway.depot.http.app import application
from slipway.depot.storage import models as models_module
from slipway.depot.storage import writer as writer_module
from slipway.depot.storage.models import Models
from slipway.depot.storage.registry import Registry
from slipway.kube.api.client import Client
from slipway.serving.wire import upload_notes
from slipway.serving.wire.depot_token import Claim, sign

from .conftest import KEY, settings_with
from .fake_registry import FakeRegistry, digest_of, running

UID = "11111111-2222-3333-4444-555555555555"
REPOSITORY = f"namespaced/team/tiny/{UID}"
THING = "/apis/toys.test/v1/namespaces/team/things/tiny"
BOX = "/apis/toys.test/v1/boxes/tiny"
PIECE = 1 << 16
TUS = {"Tus-Resumable": "1.0.0", "Content-Type": "application/offset+octet-stream"}


def gguf(size: int, seed: int = 1) -> bytes:
    return b"GGUF" + random.Random(seed).randbytes(size - 4)


def token(**changes: Any) -> str:
    claim = {"use": "upload", "namespace": "team", "name": "tiny", "uid": UID, "expires": int(time.time()) + 600}
    return sign(KEY, Claim(**{**claim, **changes}))


def bearer(**changes: Any) -> dict[str, str]:
    return {"Authorization": f"Bearer {token(**changes)}"}


class Depot:
    """One replica, and a client of it."""

    def __init__(self, uploads: Uploads, url: str, session: aiohttp.ClientSession) -> None:
        self.uploads, self.url, self.session = uploads, url, session
        self.path = f"/v1/upload/team/tiny/{UID}"

    async def ask(
        self, method: str, body: Any = None, headers: dict[str, str] | None = None, path: str = ""
    ) -> aiohttp.ClientResponse:
        place = URL(self.url + (path or self.path), encoded=True)
        answer = await self.session.request(method, place, data=body, headers={**bearer(), **(headers or {})})
        await answer.read()
        return answer

    async def patch(self, body: Any, offset: int, length: int | None = None, **headers: str) -> aiohttp.ClientResponse:
        given = {**TUS, "Upload-Offset": str(offset)}
        if length is not None:
            given["Upload-Length"] = str(length)
        given |= headers
        return await self.ask("PATCH", body, given)

    async def offset(self) -> int:
        return int((await self.ask("HEAD")).headers["Upload-Offset"])

    async def begun(self, method: str, length: int, sent: bytes, **headers: str) -> asyncio.StreamWriter:
        """A request whose body is sent in part."""
        parts = URL(self.url)
        _reader, writer = await asyncio.open_connection(parts.host, parts.port)
        given = {"Host": "x", "Content-Length": str(length), **bearer(), **headers}
        lines = "".join(f"{name}: {value}\r\n" for name, value in given.items())
        writer.write(f"{method} {self.path} HTTP/1.1\r\n{lines}\r\n".encode() + sent)
        await writer.drain()
        return writer


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer_module, "PIECE_BYTES", PIECE)
    monkeypatch.setattr(writer_module, "LEAST_KEPT_BYTES", 1 << 10)
    monkeypatch.setattr(writer_module, "FIRST_PAUSE", 0.01)
    monkeypatch.setattr(listener, "LINGERING_SECONDS", 0.2)


@pytest.fixture
async def registry() -> AsyncIterator[FakeRegistry]:
    async with running() as fake:
        yield fake


@pytest.fixture
async def thing(server: Any) -> dict[str, Any]:
    return await server.put(THING, metadata={"uid": UID}, spec={})


@pytest.fixture
async def start_depot(registry: FakeRegistry, client: Client, signer: Any, metrics: Any) -> AsyncIterator[Any]:
    """Starts replicas; settings may be given."""
    closing: list[Any] = []

    async def start(**changes: Any) -> Depot:
        settings = settings_with(**{"registry": URL(registry.url).authority, "registryPlain": True, **changes})
        connected = Registry.connect(settings, signer)
        uploads = Uploads(settings, KEY, Models(client, settings, KEY), connected, type(metrics)())
        app = application([uploads], type(metrics)(), at_once=64)
        listening = listener.serve(app, "127.0.0.1:0", None, connections=64)
        bound = await listening.__aenter__()
        session = aiohttp.ClientSession()
        closing.append((listening, connected, session))
        return Depot(uploads, f"http://127.0.0.1:{bound.sockets[0].getsockname()[1]}", session)

    yield start
    for listening, connected, session in closing:
        await session.close()
        await listening.__aexit__(None, None, None)
        await connected.close()


@pytest.fixture
async def depot(start_depot: Any, thing: Any) -> Depot:
    return await start_depot()


def annotations(server: Any, path: str = THING) -> dict[str, str]:
    return server.objects[path]["metadata"].get("annotations") or {}


def noted(server: Any, path: str = THING) -> dict[str, Any]:
    return json.loads(annotations(server, path)["slipway.inference/upload"])


# --- whole files -----------------------------------------------------------------------------------------------------


async def test_a_whole_file_becomes_pieces_and_the_controller_is_notified(depot, registry, server):
    content = gguf(3 * PIECE + 100)
    answer = await depot.ask("PUT", content)
    assert (answer.status, await answer.text()) == (201, f"{len(content)} of {len(content)} bytes received\n")
    manifest = registry.tagged(REPOSITORY)
    assert registry.content(REPOSITORY) == content
    assert [layer["size"] for layer in manifest["layers"]] == [PIECE, PIECE, PIECE, 100]
    assert manifest["artifactType"] == "application/vnd.slipway.upload.v1+json"
    assert manifest["annotations"] == {
        "slipway.inference/file-name": "model.gguf",
        "slipway.inference/length": str(len(content)),
        "slipway.inference/complete": "true",
    }
    assert annotations(server)["slipway.inference/uploaded"] == registry.tags[REPOSITORY, "session"]
    note, length = noted(server), len(content)
    expires = note["expires"]
    assert expires > time.time()
    assert note == {"length": length, "expires": expires, "proof": upload_notes.proof(KEY, UID, length, expires)}
    assert registry.uploads == {}


async def test_a_model_of_the_cluster_has_a_dash_for_its_namespace(depot, registry, server):
    await server.put(BOX, metadata={"uid": UID}, spec={})
    content, headers = gguf(1000), bearer(namespace="")
    answer = await depot.ask("PUT", content, headers, f"/v1/upload/-/tiny/{UID}")
    assert answer.status == 201
    assert registry.content(f"cluster/tiny/{UID}") == content
    assert "slipway.inference/uploaded" in annotations(server, BOX)


def archive(kind: str) -> bytes:
    raw = io.BytesIO()
    if kind == "zip":
        with zipfile.ZipFile(raw, "w") as writer:
            writer.writestr("config.json", "{}")
    else:
        with tarfile.open(fileobj=raw, mode="w:gz" if kind == "tar.gz" else "w") as writer:
            member = tarfile.TarInfo("config.json")
            member.size = 2
            writer.addfile(member, io.BytesIO(b"{}"))
    return raw.getvalue()


@pytest.mark.parametrize(
    ("content", "name"),
    [
        (gguf(600), "model.gguf"),
        (gguf(20), "model.gguf"),
        (archive("zip"), "model.zip"),
        (archive("tar"), "model.tar"),
        (archive("tar.gz"), "model.tar.gz"),
        (b"\x28\xb5\x2f\xfd" + bytes(700), "model.tar.zst"),
    ],
    ids=["gguf", "short", "zip", "tar", "tar.gz", "tar.zst"],
)
async def test_the_first_bytes_determine_the_file_name_of_an_upload(depot, registry, content, name):
    assert (await depot.ask("PUT", content)).status == 201
    assert registry.tagged(REPOSITORY)["annotations"]["slipway.inference/file-name"] == name
    assert registry.content(REPOSITORY) == content


@pytest.mark.parametrize(
    "content",
    [b"\x80\x04pickle" * 100, b"GGU", b"MZ" + bytes(600), bytes(1000), b"\x1f\x8b\x08" + bytes(600), b"Rar!" * 200],
    ids=["pickle", "short", "program", "zeros", "gzip", "rar"],
)
async def test_wrong_magic_is_refused_at_the_first_bytes(depot, registry, server, content):
    answer = await depot.ask("PUT", content + bytes(0))
    assert answer.status == 415
    assert not [one for one in registry.log if one[0] in ("POST", "PATCH", "PUT")]
    assert "slipway.inference/uploaded" not in annotations(server)
    assert "writer" not in noted(server)


@pytest.mark.parametrize(
    ("query", "headers", "name"),
    [
        ("?filename=llama.gguf", {}, "llama.gguf"),
        ("?filename=..%2F..%2Fetc%2Fpasswd", {}, "passwd.gguf"),
        ("?filename=..", {}, "model.gguf"),
        ("?filename=a%0Ab", {}, "ab.gguf"),
        ("?filename=" + "x" * 400, {}, "x" * 200 + ".gguf"),
        ("", {"X-Upload-Filename": "C:\\tmp\\a.GGUF"}, "a.GGUF"),
        ("", {"Upload-Metadata": "type YQ==,filename dGlueS5nZ3Vm"}, "tiny.gguf"),
        ("", {"Upload-Metadata": "filename !!!"}, "model.gguf"),
    ],
)
async def test_a_file_gets_a_name_that_stays_in_its_folder(depot, registry, query, headers, name):
    assert (await depot.ask("PUT", gguf(600), headers, depot.path + query)).status == 201
    assert registry.tagged(REPOSITORY)["annotations"]["slipway.inference/file-name"] == name


# --- resumed ones ----------------------------------------------------------------------------------------------------


async def test_a_file_comes_in_parts_at_different_replicas(depot, start_depot, registry, server):
    other, content = await start_depot(), gguf(3 * PIECE)
    assert await depot.offset() == 0
    first = await depot.patch(content[: PIECE + 500], 0, len(content))
    assert (first.status, first.headers["Upload-Offset"]) == (204, str(PIECE + 500))
    response = await other.ask("HEAD")
    assert (response.headers["Upload-Offset"], response.headers["Upload-Length"]) == (
        str(PIECE + 500),
        str(len(content)),
    )
    assert response.headers["Tus-Resumable"] == "1.0.0"
    second = await other.patch(content[PIECE + 500 :], PIECE + 500)
    assert (second.status, second.headers["Upload-Offset"]) == (204, str(len(content)))
    assert registry.content(REPOSITORY) == content
    assert "slipway.inference/uploaded" in annotations(server)


async def test_bytes_from_before_an_interruption_stay(depot, registry, server, eventually):
    content = gguf(3 * PIECE)
    writer = await depot.begun("PUT", len(content), content[: 2 * PIECE + 5000])
    await eventually(lambda: len(registry.tagged(REPOSITORY)["layers"]) == 2 if registry.tags else False)
    writer.transport.abort()
    await eventually(lambda: "writer" not in noted(server))
    assert await depot.offset() in range(2 * PIECE, 2 * PIECE + 5001)
    offset = await depot.offset()
    assert (await depot.patch(content[offset:], offset, len(content))).status == 204
    assert registry.content(REPOSITORY) == content
    assert registry.uploads == {}


async def test_five_cuts_cost_at_most_a_piece_each(depot, registry, server, eventually):
    content, sent = gguf(12 * PIECE, 5), 0
    for turn in range(5):
        offset = await depot.offset()
        part = content[offset : offset + 2 * PIECE + 321 * turn]
        headers = {**TUS, "Upload-Offset": str(offset), "Upload-Length": str(len(content))}
        writer = await depot.begun("PATCH", len(content) - offset, part, **headers)
        sent += len(part)
        await eventually(
            lambda least=offset + 2 * PIECE: len(registry.content(REPOSITORY)) >= least if registry.tags else False
        )
        writer.transport.abort()
        await eventually(lambda: "writer" not in noted(server))
    offset = await depot.offset()
    assert sent - offset <= 5 * PIECE
    assert (await depot.patch(content[offset:], offset)).status == 204
    assert registry.content(REPOSITORY) == content


async def test_curl_goes_on_with_a_content_range(depot, registry):
    content = gguf(2 * PIECE)
    assert (await depot.patch(content[:PIECE], 0, len(content))).status == 204
    headers = {"Content-Range": f"bytes {PIECE}-{len(content) - 1}/{len(content)}"}
    assert (await depot.ask("PUT", content[PIECE:], headers)).status == 201
    assert registry.content(REPOSITORY) == content


async def test_put_starts_again(depot, registry):
    await depot.patch(gguf(PIECE, 7), 0, 2 * PIECE)
    content = gguf(PIECE, 8)
    assert (await depot.ask("PUT", content)).status == 201
    assert registry.content(REPOSITORY) == content


async def test_the_state_describes_the_upload(depot, registry):
    assert await (await depot.ask("GET")).json() | {"expiresAt": ""} == {
        "offset": 0,
        "length": None,
        "complete": False,
        "fileName": "",
        "expiresAt": "",
        "pieces": [],
    }
    content = gguf(PIECE + 10)
    await depot.patch(content[:PIECE], 0, len(content))
    state = await (await depot.ask("GET")).json()
    assert state["pieces"] == [{"digest": digest_of(content[:PIECE]), "size": PIECE}]
    assert (state["offset"], state["length"], state["complete"]) == (PIECE, len(content), False)
    await depot.patch(content[PIECE:], PIECE)
    assert (await (await depot.ask("GET")).json())["complete"] is True


async def test_a_published_upload_reports_its_full_length(depot, registry):
    content = gguf(500)
    await depot.ask("PUT", content)
    registry.tags.clear()
    response = await depot.ask("HEAD")
    assert (response.headers["Upload-Offset"], response.headers["Upload-Length"]) == ("500", "500")


async def test_the_controller_is_notified_later_if_it_was_unreachable(depot, registry, server, script):
    server.fault("PATCH", THING, script.refuse(500), times=0)
    content = gguf(500)

    async def lose(_request: web.Request) -> web.StreamResponse:
        return web.json_response({}, status=500)

    patches = 0

    async def second(request: web.Request) -> web.StreamResponse:
        return await lose(request)

    def takes(request: web.Request) -> bool:
        nonlocal patches
        patches += request.method == "PATCH"
        return request.method == "PATCH" and patches == 2

    fault = server.fault("PATCH", THING, second)
    fault.takes = takes  # type: ignore[method-assign]
    assert (await depot.ask("PUT", content)).status == 503
    assert "slipway.inference/uploaded" not in annotations(server)
    assert await depot.offset() == 500
    assert annotations(server)["slipway.inference/uploaded"] == registry.tags[REPOSITORY, "session"]


# --- two at once -----------------------------------------------------------------------------------------------------


async def test_a_second_writer_is_rejected_at_every_replica(depot, start_depot, registry, server, eventually):
    other, content = await start_depot(), gguf(2 * PIECE)
    writer = await depot.begun("PUT", len(content), content[:PIECE])
    await eventually(lambda: "writer" in noted(server) if annotations(server) else False)
    for replica in (depot, other):
        answer = await replica.ask("PUT", content)
        assert answer.status == 409
        assert 0 < int(answer.headers["Retry-After"]) <= 120
    writer.write(content[PIECE:])
    await eventually(lambda: "slipway.inference/uploaded" in annotations(server))
    assert registry.content(REPOSITORY) == content


async def test_two_that_begin_at_the_same_time_do_not_both_write(depot, start_depot, registry):
    other, contents = await start_depot(), [gguf(2 * PIECE, seed) for seed in (1, 2)]
    answers = await asyncio.gather(depot.ask("PUT", contents[0]), other.ask("PUT", contents[1]))
    assert sorted(answer.status for answer in answers) == [201, 409]
    assert registry.content(REPOSITORY) in contents


async def test_a_writer_that_died_blocks_others_only_briefly(depot, server):
    old = json.dumps({"length": 5, "writer": "gone", "until": int(time.time()) - 1})
    server.objects[THING]["metadata"]["annotations"] = {"slipway.inference/upload": old}
    assert (await depot.ask("PUT", gguf(500))).status == 201


async def test_a_writer_that_lost_the_right_writes_nothing_more(depot, registry, server, eventually, monkeypatch):
    monkeypatch.setattr(models_module, "RENEW_SECONDS", 0.01)
    content = gguf(3 * PIECE)
    writer = await depot.begun("PUT", len(content), content[: PIECE + 100])
    await eventually(lambda: bool(registry.tags))
    taken = json.dumps({"length": 5, "writer": "other", "until": int(time.time()) + 100})
    async with server.changed:
        server.objects[THING]["metadata"]["annotations"]["slipway.inference/upload"] = taken
        server.version += 1
        server.objects[THING]["metadata"]["resourceVersion"] = str(server.version)
    reads = len(server.requests("GET", "things"))
    await eventually(lambda: len(server.requests("GET", "things")) > reads)
    writer.write(content[PIECE + 100 :])
    await eventually(lambda: not depot.uploads._count)
    assert len(registry.tagged(REPOSITORY)["layers"]) == 1
    assert noted(server)["writer"] == "other"


async def test_the_file_of_a_model_that_is_deleted_meanwhile_is_not_left_behind(depot, registry, server, eventually):
    content = gguf(3 * PIECE)
    writer = await depot.begun("PUT", len(content), content[: PIECE + 100])
    await eventually(lambda: bool(registry.tags))
    await server.remove(THING)
    writer.transport.abort()
    await eventually(lambda: not depot.uploads._count)
    assert registry.tags == {}


# --- what is refused -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Authorization": ""}, 401),
        ({"Authorization": "Basic abc"}, 401),
        ({"Authorization": "Bearer "}, 401),
        ({"Authorization": "Bearer a.b"}, 401),
        (
            {"Authorization": f"Bearer {sign(bytes(32), Claim(use='upload', namespace='team', name='tiny', uid=UID))}"},
            401,
        ),
        (bearer(use="pull"), 401),
        (bearer(expires=1), 410),
        (bearer(uid="other"), 404),
        (bearer(uid=""), 404),
        (bearer(name="other"), 404),
        (bearer(namespace="other"), 404),
        (bearer(namespace=""), 404),
    ],
)
@pytest.mark.parametrize("method", ["PUT", "PATCH", "HEAD", "GET"])
async def test_tokens_that_do_not_fit_are_refused_and_not_shown(
    depot, registry, server, method, headers, status, caplog
):
    caplog.set_level(logging.DEBUG)
    body = gguf(100) if method in ("PUT", "PATCH") else None
    answer = await depot.ask(method, body, {**TUS, **headers} if method == "PATCH" else headers)
    assert answer.status == status
    assert registry.log == []
    assert server.log == []
    shown = headers["Authorization"].partition(" ")[2]
    assert not shown or shown not in caplog.text + await answer.text()


async def test_a_model_that_is_gone_is_404(depot, server):
    await server.remove(THING)
    assert (await depot.ask("PUT", gguf(100))).status == 404
    await server.put(THING, metadata={"uid": "another"}, spec={})
    assert (await depot.ask("HEAD")).status == 404
    await server.remove(THING)
    await server.put(THING, metadata={"uid": UID, "deletionTimestamp": "2026-01-01T00:00:00Z"}, spec={})
    assert (await depot.ask("HEAD")).status == 404


async def test_a_file_that_is_there_is_409(depot):
    content = gguf(500)
    assert (await depot.ask("PUT", content)).status == 201
    assert (await depot.ask("PUT", content)).status == 409
    assert (await depot.patch(b"", 500)).status == 409


async def test_wrong_offsets_and_lengths(depot, registry):
    content = gguf(2 * PIECE)
    assert (await depot.patch(content[:100], 5, len(content))).status == 409
    assert (await depot.patch(content[:PIECE], 0, len(content))).status == 204
    for offset in (0, 100, PIECE + 1):
        answer = await depot.patch(content[:10], offset)
        assert (answer.status, answer.headers["Upload-Offset"]) == (409, str(PIECE))
    assert (await depot.patch(content[PIECE:] + b"x", PIECE)).status == 413
    assert (await depot.patch(content[PIECE:] + b"x", PIECE, len(content))).status == 413
    assert (await depot.patch(content[PIECE:], PIECE, len(content) + 1)).status == 409
    assert (await depot.patch(content[PIECE:], PIECE, len(content))).status == 204
    assert registry.content(REPOSITORY) == content


async def test_a_request_without_a_length_is_answered_with_411(depot):
    async def chunks() -> AsyncIterator[bytes]:
        yield gguf(100)

    assert (await depot.ask("PUT", chunks())).status == 411
    assert (await depot.patch(gguf(100), 0)).status == 411
    assert (await depot.patch(chunks(), 0, 100)).status == 411


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Content-Encoding": "gzip"}, 415),
        ({"Content-Range": "bytes 0-1/2"}, 400),
        ({"Content-Range": "bytes */2"}, 400),
        ({"Content-Range": "x"}, 400),
    ],
)
async def test_odd_headers_of_put(depot, headers, status):
    assert (await depot.ask("PUT", gguf(100), headers)).status == status


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Content-Type": "application/octet-stream"}, 415),
        ({"Tus-Resumable": "0.2.2"}, 412),
        ({"Upload-Offset": "-1"}, 400),
        ({"Upload-Offset": "1e3"}, 400),
        ({"Upload-Offset": "\u0663"}, 400),
        ({"Upload-Length": "9" * 30}, 400),
    ],
)
async def test_odd_headers_of_patch(depot, headers, status):
    assert (await depot.patch(gguf(100), 0, 100, **headers)).status == status


async def test_an_empty_file_is_refused(depot):
    assert (await depot.ask("PUT", b"")).status == 400


async def test_a_file_may_be_only_so_long(start_depot, thing):
    depot = await start_depot(uploadLimit="1Ki")
    assert (await depot.ask("PUT", gguf(1025))).status == 413
    assert (await depot.patch(gguf(10), 0, 1025)).status == 413
    assert (await depot.ask("PUT", gguf(1024))).status == 201


def claimed(uid: str, length: int, **changes: Any) -> str:
    expires = changes.get("expires", 0)
    return json.dumps({"length": length, "proof": upload_notes.proof(KEY, uid, length, expires), **changes})


async def test_a_storage_without_room_is_507_before_a_byte_is_written(start_depot, thing, registry, server):
    depot = await start_depot(capacityLimit="10Ki")
    await server.put(
        "/apis/toys.test/v1/namespaces/a/things/b", status={"artifact": {"digest": "sha256:1", "sizeBytes": 4096}}
    )
    await server.put(
        "/apis/toys.test/v1/boxes/c",
        metadata={"uid": "c", "annotations": {"slipway.inference/upload": claimed("c", 5000)}},
    )
    for odd in ('{"length":99999}', claimed("c", 99999), claimed("c", 5, proof=""), "rubbish", "[" * 3000):
        path = f"/apis/toys.test/v1/boxes/odd{len(odd)}"
        await server.put(path, metadata={"annotations": {"slipway.inference/upload": odd}}, status="odd")
    answer = await depot.ask("PUT", gguf(2000))
    assert (answer.status, await answer.text()) == (507, "the storage has 1144 bytes left, and the file has 2000\n")
    assert not [one for one in registry.log if one[0] != "GET"]
    assert "slipway.inference/upload" not in annotations(server)
    assert (await depot.ask("PUT", gguf(1144))).status == 201


# Abandoned uploads

LEFT = "/apis/toys.test/v1/namespaces/team/things/left"
LEFT_REPOSITORY = "namespaced/team/left/left"
LEFT_DOOR = "/v1/upload/team/left/left"


def ended(length: int = 9000, *, model: str = "left", **changes: Any) -> dict[str, Any]:
    """Metadata of a model whose upload's session has ended."""
    note = claimed(model, length, **{"expires": int(time.time()) - 1, **changes})
    return {"uid": model, "annotations": {upload_notes.UPLOAD: note}}


@pytest.fixture
async def abandoned(start_depot: Any, thing: Any, server: Any) -> Depot:
    """A depot of 10 KiB in which an upload of 9,000 bytes was begun, and then abandoned."""
    depot = await start_depot(capacityLimit="10Ki")
    await server.put(LEFT, metadata={"uid": "left"})
    begun = {**TUS, **bearer(name="left", uid="left"), "Upload-Offset": "0", "Upload-Length": "9000"}
    assert (await depot.ask("PATCH", gguf(2000), begun, LEFT_DOOR)).status == 204
    await server.put(LEFT, metadata=ended())
    return depot


async def test_an_abandoned_upload_makes_room_for_another_author(abandoned, registry, server):
    assert (LEFT_REPOSITORY, "session") in registry.tags
    assert (await abandoned.ask("PUT", gguf(5000))).status == 201
    assert upload_notes.UPLOAD not in annotations(server, LEFT)
    assert (LEFT_REPOSITORY, "session") not in registry.tags


async def test_an_abandoned_upload_stays_as_long_as_there_is_room(abandoned, registry, server):
    assert (await abandoned.ask("PUT", gguf(1000))).status == 201
    assert noted(server, LEFT)["length"] == 9000
    assert (LEFT_REPOSITORY, "session") in registry.tags


@pytest.mark.parametrize(
    "changes",
    [
        {"expires": 0},
        {"expires": 1 << 40},
        {"writer": "x", "until": 1 << 40},
    ],
    ids=["it never ends", "its session goes on", "a client still writes"],
)
async def test_an_upload_that_may_still_be_completed_keeps_its_room(abandoned, server, changes):
    await server.put(LEFT, metadata=ended(**changes))
    assert (await abandoned.ask("PUT", gguf(5000))).status == 507
    assert noted(server, LEFT)["length"] == 9000


async def test_a_forged_end_of_a_session_costs_the_depot_nothing(abandoned, registry, server):
    """Authors may annotate models: their notes must not use up the removals of one request."""
    for number in range(models_module.MOST_RELEASED):
        uid = f"forged-{number}"
        forged = {"length": 9000, "expires": 1, "proof": upload_notes.proof(KEY, uid, 9000, 1 << 40)}
        metadata = {"uid": uid, "annotations": {upload_notes.UPLOAD: json.dumps(forged)}}
        await server.put(f"/apis/toys.test/v1/namespaces/team/things/{uid}", metadata=metadata)
    assert (await abandoned.ask("PUT", gguf(5000))).status == 201
    assert not [one for one in registry.log if "forged" in str(one)]


async def test_an_abandoned_upload_keeps_its_room_while_the_registry_does_not_answer(abandoned, registry, server):
    async def fail(request: web.Request) -> web.StreamResponse | None:
        return web.Response(status=503) if "/left/" in request.path else None

    registry.interfere = fail
    before = noted(server, LEFT)
    assert (await abandoned.ask("PUT", gguf(5000))).status == 507
    assert noted(server, LEFT) == before


async def test_an_abandoned_upload_that_its_owner_resumes_stays(abandoned, registry, server):
    async def resume(request: web.Request) -> web.StreamResponse:
        await server.put(LEFT, metadata=ended(writer="owner", until=1 << 40))
        return await server.patch(request, await request.json())

    server.fault("PATCH", "things/left", resume)
    assert (await abandoned.ask("PUT", gguf(5000))).status == 507
    assert noted(server, LEFT)["writer"] == "owner"
    assert (LEFT_REPOSITORY, "session") in registry.tags


async def test_an_abandoned_upload_cannot_be_resumed_while_it_is_removed(abandoned, registry):
    resumed: list[int] = []

    async def resume(request: web.Request) -> web.StreamResponse | None:
        if request.method == "DELETE" and "/left/" in request.path:
            at = {**TUS, **bearer(name="left", uid="left"), "Upload-Offset": "2000"}
            resumed.append((await abandoned.ask("PATCH", bytes(1000), at, LEFT_DOOR)).status)
        return None

    registry.interfere = resume
    assert (await abandoned.ask("PUT", gguf(5000))).status == 201
    assert resumed == [409]


async def test_an_owner_who_resumes_an_abandoned_upload_needs_room_again(abandoned, server):
    await server.put(
        "/apis/toys.test/v1/boxes/full",
        metadata={"uid": "full"},
        status={"artifact": {"digest": "sha256:1", "sizeBytes": 5000}},
    )
    at = {**TUS, **bearer(name="left", uid="left"), "Upload-Offset": "2000"}
    assert (await abandoned.ask("PATCH", bytes(1000), at, LEFT_DOOR)).status == 507


async def test_the_depot_removes_abandoned_uploads_without_waiting_clients(abandoned, registry, server):
    for number in range(2 * models_module.MOST_RELEASED):
        uid = f"left-{number}"
        await server.put(f"/apis/toys.test/v1/namespaces/team/things/{uid}", metadata=ended(model=uid))
    await abandoned.uploads._models.release(abandoned.uploads._remove)
    assert (LEFT_REPOSITORY, "session") not in registry.tags
    things = [one for path, one in server.objects.items() if "/things/left" in path]
    assert len(things) == 2 * models_module.MOST_RELEASED + 1
    assert not any(upload_notes.UPLOAD in one["metadata"]["annotations"] for one in things)
    assert (await abandoned.ask("PUT", gguf(9000))).status == 201


async def test_the_depot_removes_no_upload_that_may_still_be_completed(abandoned, registry, server):
    await server.put(LEFT, metadata=ended(expires=1 << 40))
    await abandoned.uploads._models.release(abandoned.uploads._remove)
    assert (LEFT_REPOSITORY, "session") in registry.tags


async def test_the_depot_looks_for_abandoned_uploads_again_after_the_cluster_did_not_answer(
    abandoned, registry, server, script, eventually, monkeypatch
):
    monkeypatch.setattr(uploads_module, "LOOK_SECONDS", 0.01)
    server.fault("GET", "/things", script.refuse(500, "InternalError"), times=5)
    running = asyncio.create_task(abandoned.uploads.run())
    await eventually(lambda: (LEFT_REPOSITORY, "session") not in registry.tags)
    running.cancel()


# The share of a namespace

MORE_DOOR = f"/v1/upload/other/more/{UID}"


async def test_a_namespace_leaves_a_part_of_the_storage_to_others(start_depot, thing, registry, server):
    depot = await start_depot(capacityLimit="10000")
    for number in range(8):
        path = f"/apis/toys.test/v1/namespaces/team/things/b{number}"
        await server.put(path, status={"artifact": {"digest": "sha256:1", "sizeBytes": 1000}})
    full = await depot.ask("PUT", gguf(1001))
    text = "namespace team has 1000 bytes left of its share of the storage, and the file has 1001"
    assert (full.status, await full.text()) == (507, f"{text}: delete models of the namespace\n")
    assert not registry.tags
    assert (await depot.ask("PUT", gguf(1000))).status == 201
    await server.put("/apis/toys.test/v1/namespaces/other/things/more", metadata={"uid": UID}, spec={})
    assert (await depot.ask("PUT", gguf(1000), bearer(namespace="other", name="more"), MORE_DOOR)).status == 201


async def test_models_that_are_images_too_take_twice_their_size(start_depot, thing, server):
    depot = await start_depot(capacityLimit="10000", copies=2)
    await server.put(
        "/apis/toys.test/v1/namespaces/other/things/b", status={"artifact": {"digest": "sha256:1", "sizeBytes": 3000}}
    )
    assert (await depot.ask("PUT", gguf(4001))).status == 507
    assert (await depot.ask("PUT", gguf(4000))).status == 201


async def test_a_right_that_is_missing_is_403_and_says_which(start_depot, thing, server, script):
    """Such as in a namespace that was deleted and made again, without the depot's Role."""
    depot = await start_depot()
    missing = 'things "tiny" is forbidden: User "slipway-depot" cannot patch resource "things"'
    server.fault("PATCH", "things", script.refuse(403, "Forbidden", missing), times=9)
    answer = await depot.ask("PUT", gguf(100))
    assert answer.status == 403
    text = await answer.text()
    assert missing in text
    assert text.endswith("run the role depot again\n")


async def test_all_that_is_free_cannot_be_noted_by_one_namespace(start_depot, thing, server):
    depot = await start_depot(capacityLimit="10000")
    begun = {**TUS, "Upload-Offset": "0", "Upload-Length": "10000"}
    assert (await depot.ask("PATCH", gguf(100), begun)).status == 507
    assert upload_notes.UPLOAD not in annotations(server)


async def test_lengths_that_were_noted_count_against_the_share(start_depot, thing, server):
    depot = await start_depot(capacityLimit="10000", namespaceShare=50)
    await server.put(
        "/apis/toys.test/v1/namespaces/team/things/b",
        metadata={"uid": "b", "annotations": {upload_notes.UPLOAD: claimed("b", 4000, expires=1 << 40)}},
    )
    assert (await depot.ask("PUT", gguf(1001))).status == 507
    assert (await depot.ask("PUT", gguf(1000))).status == 201


@pytest.mark.parametrize(("claimed", "remaining"), [(3000, 4000), (1 << 60, 1000)])
@pytest.mark.parametrize("phase", ["Publishing", "Pending", "Failed"])
async def test_sizes_that_publishers_report_take_at_most_the_share_of_their_namespace(
    start_depot, thing, server, phase, claimed, remaining
):
    depot = await start_depot(capacityLimit="10000")
    for name in ("b", "c"):
        claims = {"phase": phase, "artifact": {"sizeBytes": claimed}}
        await server.put(f"/apis/toys.test/v1/namespaces/other/things/{name}", metadata={"uid": name}, status=claims)
    assert (await depot.ask("PUT", gguf(remaining + 1))).status == 507
    assert (await depot.ask("PUT", gguf(remaining))).status == 201


async def test_a_model_that_is_being_published_counts_against_the_share_of_its_namespace(start_depot, thing, server):
    depot = await start_depot(capacityLimit="10000", namespaceShare=50)
    claims = {"phase": "Publishing", "artifact": {"sizeBytes": 4000}}
    await server.put("/apis/toys.test/v1/namespaces/team/things/b", metadata={"uid": "b"}, status=claims)
    assert (await depot.ask("PUT", gguf(1001))).status == 507
    assert (await depot.ask("PUT", gguf(1000))).status == 201


async def test_a_model_of_the_cluster_may_have_all_that_is_free(start_depot, thing, server):
    depot = await start_depot(capacityLimit="10000")
    await server.put(BOX, metadata={"uid": UID}, spec={})
    assert (await depot.ask("PUT", gguf(10000), bearer(namespace=""), f"/v1/upload/-/tiny/{UID}")).status == 201


async def test_abandoned_uploads_count_against_no_share(abandoned):
    assert (await abandoned.ask("PUT", gguf(9000))).status == 201


# Notes that the depot did not write

OTHER = "/apis/toys.test/v1/boxes/full"


async def fill(server: Any, size: int = 9000) -> None:
    await server.put(OTHER, metadata={"uid": "full"}, status={"artifact": {"digest": "sha256:1", "sizeBytes": size}})


async def annotate(server: Any, text: str, path: str = THING) -> None:
    await server.put(path, metadata={"uid": UID, "annotations": {upload_notes.UPLOAD: text}}, spec={})


def old_note(length: int, model: str = UID, **changes: Any) -> str:
    """As a depot wrote it whose notes had no end."""
    shown = hmac.digest(KEY, f"slipway-depot-note-v1\n{model}\n{length}".encode(), hashlib.sha256).hex()
    return json.dumps({"length": length, "proof": shown, **changes})


@pytest.mark.parametrize(
    "text",
    [
        json.dumps({"length": 5000}),
        json.dumps({"length": 5000, "proof": "0" * 64}),
        json.dumps({"length": 5000, "proof": upload_notes.proof(KEY, "another", 5000, 0)}),
        old_note(4000).replace("4000", "5000"),
        old_note(5000, expires=1 << 40),
        json.dumps({"length": 5000, "proof": upload_notes.request_proof(KEY, UID, 5000, 1), "until": 1}),
    ],
    ids=["no proof", "made up", "of another model", "of another length", "with another end", "of a request"],
)
async def test_a_forged_note_gives_no_room(start_depot, thing, registry, server, text):
    depot = await start_depot(capacityLimit="10Ki")
    await fill(server)
    await annotate(server, text)
    assert (await depot.ask("PUT", gguf(5000))).status == 507
    assert not registry.tags
    assert upload_notes.UPLOAD not in annotations(server)


async def test_a_note_that_an_author_keeps_of_a_refused_request_gives_no_room_and_takes_none(
    start_depot, thing, registry, server
):
    """An author can watch its model, and write back what the depot noted before it looked for room."""
    depot, copies = await start_depot(capacityLimit="10Ki"), []
    await fill(server)

    async def copy(request: web.Request) -> web.StreamResponse:
        copies.append((await request.json())["metadata"]["annotations"].get(upload_notes.UPLOAD))
        return await server.patch(request, await request.json())

    server.fault("PATCH", THING, copy, times=10)
    assert (await depot.ask("PUT", gguf(5000))).status == 507
    kept = [json.loads(one) for one in copies if one]
    assert kept
    for one in kept:
        now = int(time.time())
        for changes in ({"writer": "", "until": 0}, {"writer": "", "until": now + 9999}, {"writer": ""}):
            await annotate(server, json.dumps(one | changes))
            assert (await depot.ask("PUT", gguf(5000))).status == 507
        for forged in (one | {"until": now + 9999}, one | {"until": 0}):
            model = {"metadata": {"uid": UID, "annotations": {upload_notes.UPLOAD: json.dumps(forged)}}}
            assert models_module.used_bytes(model, KEY, now) == 0
    assert not registry.tags


@pytest.mark.parametrize(("seconds", "status"), [(100, 507), (-100, 201)], ids=["now", "until it ended"])
async def test_a_requested_size_counts_while_the_depot_makes_room(start_depot, thing, server, seconds, status):
    depot, until = await start_depot(capacityLimit="10Ki"), int(time.time()) + seconds
    request_note = {"length": 6000, "proof": upload_notes.request_proof(KEY, "left", 6000, until), "until": until}
    await server.put(LEFT, metadata={"uid": "left", "annotations": {upload_notes.UPLOAD: json.dumps(request_note)}})
    assert (await depot.ask("PUT", gguf(6000))).status == status


async def test_a_note_of_an_older_depot_keeps_its_room_and_is_resumed(start_depot, thing, server):
    depot = await start_depot(capacityLimit="10Ki")
    assert (await depot.patch(gguf(2000), 0, 8000)).status == 204
    await annotate(server, old_note(8000))
    await server.put(LEFT, metadata={"uid": "left"})
    full = await depot.ask("PUT", gguf(5000), bearer(name="left", uid="left"), LEFT_DOOR)
    assert (full.status, (await full.text())[:30]) == (507, "the storage has 2240 bytes lef")
    await fill(server, 5000)
    assert (await depot.patch(bytes(1000), 2000)).status == 204
    expires = noted(server)["expires"]
    assert noted(server)["proof"] == upload_notes.proof(KEY, UID, 8000, expires)


async def test_a_client_keeps_its_right_while_the_depot_makes_room(abandoned, server, registry, monkeypatch):
    monkeypatch.setattr(models_module, "RENEW_SECONDS", 0.001)
    renewed, registry_asked = asyncio.Event(), list[str]()

    async def renew(request: web.Request) -> web.StreamResponse:
        answer = await server.patch(request, await request.json())
        if registry_asked:
            renewed.set()
        return answer

    async def wait(request: web.Request) -> web.StreamResponse | None:
        if "/left/" in request.path and not registry_asked:
            registry_asked.append(request.path)
            await asyncio.wait_for(renewed.wait(), 30)
        return None

    registry.interfere = wait
    server.fault("PATCH", THING, renew, times=10**6)
    assert (await abandoned.ask("PUT", gguf(5000))).status == 201
    assert renewed.is_set()


async def test_a_replica_takes_so_many_uploads_and_no_more(start_depot, thing, server, eventually):
    depot = await start_depot(uploadsAtOnce=1)
    writer = await depot.begun("PUT", 1000, gguf(600))
    await eventually(lambda: depot.uploads._count)
    await server.put("/apis/toys.test/v1/namespaces/team/things/b", metadata={"uid": UID}, spec={})
    answer = await depot.ask("PUT", gguf(100), bearer(name="b"), f"/v1/upload/team/b/{UID}")
    assert (answer.status, answer.headers["Retry-After"]) == (503, "5")
    writer.transport.abort()
    await eventually(lambda: not depot.uploads._count)


# --- a client, a registry and a depot that are not well --------------------------------------------------------------


async def test_a_silent_client_is_given_up_and_what_came_stays(start_depot, thing, registry, server, eventually):
    depot = await start_depot(idleSeconds=1)
    content = gguf(3 * PIECE)
    writer = await depot.begun("PUT", len(content), content[: PIECE + 20_000])
    await eventually(lambda: depot.uploads._count)
    await eventually(lambda: not depot.uploads._count)
    assert await depot.offset() == PIECE + 20_000
    writer.close()


async def test_a_slow_client_loses_little_and_a_trickle_is_given_up(depot, registry, eventually, monkeypatch):
    monkeypatch.setattr(writer_module, "PIECE_SECONDS", 0.0)
    monkeypatch.setattr(writer_module, "LEAST_BYTES", 100)
    content = gguf(5000)
    writer = await depot.begun("PUT", 5000, content[:1000])
    await eventually(lambda: len(registry.content(REPOSITORY)) == 1000 if registry.tags else False)
    writer.write(content[1000:1050])
    await eventually(lambda: not depot.uploads._count)
    assert len(registry.content(REPOSITORY)) == 1000


async def test_a_depot_that_is_stopped_keeps_what_came(depot, start_depot, registry, eventually):
    other, content = await start_depot(), gguf(3 * PIECE)
    writer = await depot.begun("PUT", len(content), content[: PIECE + 20_000])
    await eventually(lambda: bool(registry.tags))
    depot.uploads.stop()
    writer.write(content[PIECE + 20_000 : PIECE + 20_001])
    await eventually(lambda: not depot.uploads._count)
    offset = await other.offset()
    assert offset >= PIECE + 20_000
    assert (await depot.patch(content[offset:], offset)).status == 503
    assert (await other.patch(content[offset:], offset)).status == 204
    assert registry.content(REPOSITORY) == content


async def test_a_registry_that_is_read_only_is_waited_for(depot, registry, eventually):
    closed, refused = True, 0

    async def read_only(request: web.Request) -> web.StreamResponse | None:
        nonlocal refused
        if not closed or request.method in ("GET", "HEAD"):
            return None
        refused += 1
        return web.Response(status=405)

    registry.interfere = read_only
    content = gguf(2 * PIECE)
    upload = asyncio.create_task(depot.ask("PUT", content))
    await eventually(lambda: refused >= 2)
    closed = False
    assert (await upload).status == 201
    assert registry.content(REPOSITORY) == content


async def test_a_registry_that_stays_away_is_503(start_depot, thing, registry):
    depot = await start_depot(registrySeconds=1)

    async def broken(request: web.Request) -> web.StreamResponse | None:
        return None if request.method == "GET" else web.Response(status=500)

    registry.interfere = broken
    answer = await depot.ask("PUT", gguf(PIECE))
    assert (answer.status, answer.headers["Retry-After"]) == (503, "5")


@pytest.mark.parametrize("method", ["POST", "PATCH", "PUT"])
async def test_a_registry_that_hangs_up_once_costs_at_most_a_piece(depot, registry, method):
    times = 1

    async def once(request: web.Request) -> web.StreamResponse | None:
        nonlocal times
        if request.method == method and times:
            times -= 1
            assert request.transport is not None
            request.transport.abort()
        return None

    registry.interfere = once
    content = gguf(3 * PIECE)
    answer = await depot.ask("PUT", content)
    if method == "PATCH":
        assert answer.status == 503
        offset = await depot.offset()
        assert (await depot.patch(content[offset:], offset, len(content))).status == 204
    else:
        assert answer.status == 201
    assert registry.content(REPOSITORY) == content


@pytest.mark.parametrize(
    "location",
    ["", "http://elsewhere.test/v2/x/blobs/uploads/1", f"/v2/{REPOSITORY}/blobs/uploads/../../../x", "http://[", "/"],
)
async def test_an_upload_that_leads_elsewhere_is_not_followed(depot, registry, location):
    async def lead(request: web.Request) -> web.StreamResponse | None:
        return web.Response(status=202, headers={"Location": location}) if request.method == "POST" else None

    registry.interfere = lead
    assert (await depot.ask("PUT", gguf(100))).status == 503
    assert not [one for one in registry.log if one[0] == "PATCH"]


@pytest.mark.parametrize(
    "text",
    [b"", b"{}", b"[" * 5000, b"\xff", b'{"schemaVersion":2}'],
    ids=["none", "empty", "deep", "no text", "other"],
)
async def test_a_session_that_makes_no_sense_is_reported_and_put_starts_again(depot, registry, text):
    registry.manifests[REPOSITORY, "x"], registry.tags[REPOSITORY, "session"] = text, "x"
    assert (await depot.ask("HEAD")).status == 503
    assert (await depot.patch(gguf(100), 0, 100)).status == 503
    assert (await depot.ask("PUT", gguf(100))).status == 201


async def test_a_client_that_waits_to_go_on_is_refused_first(depot, server):
    await server.remove(THING)
    parts = URL(depot.url)
    reader, writer = await asyncio.open_connection(parts.host, parts.port)
    head = f"PUT {depot.path} HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\nExpect: 100-continue\r\n"
    writer.write(f"{head}Authorization: {bearer()['Authorization']}\r\n\r\n".encode())
    assert (await reader.readline()).startswith(b"HTTP/1.1 404 ")
    writer.close()


async def test_a_client_that_expects_100_continue_gets_it(depot):
    answer = await depot.session.put(depot.url + depot.path, data=gguf(100), headers=bearer(), expect100=True)
    assert answer.status == 201


async def test_options_tell_what_is_understood(depot):
    answer = await depot.ask("OPTIONS", headers={"Authorization": ""})
    assert (answer.status, answer.headers["Tus-Version"], answer.headers["Tus-Max-Size"]) == (
        204,
        "1.0.0",
        str(2 << 40),
    )


async def test_every_answer_is_to_be_kept_nowhere(depot):
    for method, path in (("HEAD", ""), ("GET", "/nowhere"), ("DELETE", ""), ("GET", "/v1/upload/a")):
        answer = await depot.ask(method, path=path)
        assert answer.headers["Cache-Control"] == "no-store"
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert answer.headers["Referrer-Policy"] == "no-referrer"
        assert answer.headers["Pragma"] == "no-cache"


def words(chance: random.Random) -> Iterator[str]:
    letters = "ab01-._~%/:,;= \t\"\\'[]{}\u00e9"
    while True:
        yield "".join(chance.choices(letters, k=chance.randrange(24)))


async def test_fuzzed_requests_are_answered_below_500(depot, registry):
    chance = random.Random(3)
    word = words(chance)
    names = ["Upload-Offset", "Upload-Length", "Upload-Metadata", "Content-Range", "X-Upload-Filename", "Tus-Resumable"]
    for _unused in range(300):
        headers = {name: next(word).strip().encode().decode("latin-1") for name in chance.sample(names, 2)}
        if chance.random() < 0.5:
            headers = {**TUS, "Upload-Offset": "0", "Upload-Length": str(chance.randrange(200)), **headers}
        body = chance.choice([b"", b"GGUF", gguf(chance.randrange(4, 100)), chance.randbytes(50)])
        method = chance.choice(["PUT", "PATCH", "HEAD", "GET", "OPTIONS", "DELETE", "POST"])
        path = depot.path + chance.choice(["", "", "", "?filename=%ff", "/x", "/../y", "%00"])
        answer = await depot.ask(method, body, headers, path)
        assert answer.status < 500, (method, headers, body)


async def test_a_request_that_is_not_http_is_answered_and_its_token_is_not_logged(depot, caplog):
    caplog.set_level(logging.DEBUG)
    parts = URL(depot.url)
    for line in (
        b"Authorization: Bearer SECRET\x00\r\n",
        b"Authorization\x01 Bearer SECRET\r\n",
        b"A: " + b"S" * 20000,
    ):
        reader, writer = await asyncio.open_connection(parts.host, parts.port)
        writer.write(f"PUT {depot.path} HTTP/1.1\r\nHost: x\r\n".encode() + line + b"\r\n\r\n")
        assert b" 400 " in await reader.readline()
        writer.close()
    assert "SECRET" not in caplog.text
    assert "SSSS" not in caplog.text


async def test_connections_are_bounded(metrics, monkeypatch):
    monkeypatch.setattr(listener, "IDLE_SECONDS", 1000.0)
    app = application([], metrics, at_once=64)
    async with listener.serve(app, "127.0.0.1:0", None, connections=16) as bound:
        port = bound.sockets[0].getsockname()[1]
        first = [await asyncio.open_connection("127.0.0.1", port) for _unused in range(16)]
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        assert await reader.read() == b""
        for one in (*first, (reader, writer)):
            one[1].close()


def test_the_names_that_others_read():
    from slipway.apis.deckhouse import names

    assert models_module.UPLOADED == names.UPLOADED
