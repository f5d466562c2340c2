"""The depot in front of a real registry: it takes the depot's tokens, and uploads outlive a collection and cuts."""

from __future__ import annotations

import asyncio
import hashlib
import json
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import aiohttp
import pytest
from aiohttp.test_utils import TestClient, TestServer
from yarl import URL

from slipway.artifacts.documents import session
from slipway.depot.credentials import signing
from slipway.depot.credentials.signing import Access, Signer
from slipway.depot.handlers.sweep import Sweeper, SweepResult
from slipway.depot.handlers.tokens import Tokens
from slipway.depot.handlers.uploads import Uploads
from slipway.depot.http.app import application
from slipway.depot.settings import Settings, parse_settings
from slipway.depot.storage import writer
from slipway.depot.storage.models import UPLOADED, Models
from slipway.depot.storage.registry import Registry
from slipway.kube.api.client import Client
from slipway.kube.metrics import Metrics
from slipway.serving.wire.depot_token import Claim, sign
from tests.ports import reserved_port
from tests.registry.real import RealRegistry
from tests.unit.kube.conftest import kubeconfig_of, serving

KEY, UID = bytes(range(32)), "11111111-2222-3333-4444-555555555555"
REPOSITORY, OTHER = f"namespaced/team/tiny/{UID}", "namespaced/other/tiny/1"
THING = "/apis/toys.test/v1/namespaces/team/things/tiny"
PIECE = 1 << 20
CONTENT = b"GGUF" + random.Random(1).randbytes(4 * PIECE)
PATIENCE = 60.0


class World:
    """A registry, a depot before it and the API server behind it."""

    def __init__(self, registry: RealRegistry, signer: Signer, visitor: TestClient, objects: dict) -> None:
        self.registry, self.signer, self.visitor, self.objects = registry, signer, visitor, objects
        self.client: Client
        self.connected: Registry
        self.settings: Settings
        self.path = f"/v1/upload/team/tiny/{UID}"
        claim = Claim(use="upload", namespace="team", name="tiny", uid=UID, expires=int(time.time()) + 600)
        self.headers = {"Authorization": f"Bearer {sign(KEY, claim)}"}

    async def get(
        self, path: str, repository: str = REPOSITORY, actions: tuple[str, ...] = ("pull",)
    ) -> tuple[int, bytes]:
        """Asks the registry with a token for ``repository``."""
        token = self.signer.sign("test", [Access("repository", repository, actions)], time.time())
        headers = {"Authorization": f"Bearer {token}", "Accept": session.MANIFEST_TYPE}
        async with aiohttp.request("GET", f"http://{self.registry.host}/v2/{path}", headers=headers) as answer:
            return answer.status, await answer.read()

    async def pieces(self) -> tuple[session.Piece, ...]:
        status, manifest = await self.get(f"{REPOSITORY}/manifests/session")
        return session.parse_session(manifest).pieces if status == 200 else ()

    async def uploaded(self) -> bytes:
        answers = [await self.get(f"{REPOSITORY}/blobs/{piece.digest}") for piece in await self.pieces()]
        return b"".join(content for _status, content in answers)


@pytest.fixture
async def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    monkeypatch.setattr(writer, "PIECE_BYTES", PIECE)
    pem, folder = signing.generate_key(), tmp_path / "registry"
    folder.mkdir()
    (folder / "keys.json").write_text(signing.key_set(pem))
    signer = Signer(pem, issuer="slipway-depot", audience="slipway-registry", seconds=300)
    auth = {
        "realm": "https://depot.test/token",
        "service": "slipway-registry",
        "issuer": "slipway-depot",
        "jwks": str(folder / "keys.json"),
    }
    with RealRegistry(folder, reserved_port(), auth) as registry:
        async with serving() as api:
            await api.put(THING, metadata={"uid": UID}, spec={})
            settings = parse_settings(
                {
                    "namespace": "slipway-system",
                    "registry": registry.host,
                    "registryPlain": True,
                    "model": {"group": "toys.test", "version": "v1", "kind": "Thing", "plural": "things"},
                    "clusterModel": {"group": "toys.test", "version": "v1", "kind": "Box", "plural": "boxes"},
                }
            )
            metrics = Metrics()
            client = await Client.connect(kubeconfig_of(api, tmp_path), metrics=metrics)
            connected = Registry(aiohttp.ClientSession(), URL(f"http://{registry.host}"), signer)
            uploads = Uploads(settings, KEY, Models(client, settings, KEY), connected, metrics)
            async with TestClient(TestServer(application([uploads], metrics, at_once=8))) as visitor:
                new_world = World(registry, signer, visitor, api.objects)
                new_world.client, new_world.connected, new_world.settings = client, connected, settings
                yield new_world
            await connected.close()
            await client.close()


async def until(test: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(PATIENCE):
        while True:
            if await test():
                return
            await asyncio.sleep(0.02)


async def test_the_registry_stores_an_upload_and_tokens_open_that_repository_alone(world: World) -> None:
    answer = await world.visitor.put(world.path, data=CONTENT, headers=world.headers)
    assert answer.status == 201
    assert await world.uploaded() == CONTENT
    assert [piece.size for piece in await world.pieces()] == [PIECE] * 4 + [4]
    assert UPLOADED in world.objects[THING]["metadata"]["annotations"]
    assert world.registry.uploads == []
    first = (await world.pieces())[0].digest
    assert (await world.get(f"{REPOSITORY}/blobs/{first}", OTHER))[0] == 401
    assert (await world.get(f"{REPOSITORY}/blobs/{first}", actions=("push",)))[0] == 401


async def test_a_collection_removes_no_part_of_an_upload_and_uploads_wait(world: World) -> None:
    collected = asyncio.Event()

    async def body() -> AsyncIterator[bytes]:
        yield CONTENT[: 2 * PIECE]
        await collected.wait()
        yield CONTENT[2 * PIECE :]

    headers = {**world.headers, "Content-Length": str(len(CONTENT))}
    upload = asyncio.create_task(world.visitor.put(world.path, data=body(), headers=headers))

    async def two_are_there() -> bool:
        return len(await world.pieces()) == 2

    await until(two_are_there)
    await asyncio.to_thread(world.registry.stop)
    await asyncio.to_thread(world.registry.start, read_only=True)
    collected.set()
    await asyncio.sleep(1)
    assert not upload.done()
    await asyncio.to_thread(world.registry.collect)
    assert (await upload).status == 201
    assert await world.uploaded() == CONTENT


async def test_a_registry_that_dies_in_the_middle_costs_a_piece_and_the_rest_is_sent(world: World) -> None:
    dead = asyncio.Event()

    async def body() -> AsyncIterator[bytes]:
        yield CONTENT[: 2 * PIECE + 70_000]
        await dead.wait()
        yield CONTENT[2 * PIECE + 70_000 :]

    headers = {**world.headers, "Content-Length": str(len(CONTENT))}
    upload = asyncio.create_task(world.visitor.put(world.path, data=body(), headers=headers))

    async def two_and_a_part_are_there() -> bool:
        if len(await world.pieces()) == 2:
            with suppress(FileNotFoundError):  # it became a blob meanwhile
                return any(
                    part.stat().st_size
                    for part in world.registry.find_files(f"{world.registry.store}/**/_uploads/*/data")
                )
        return False

    await until(two_and_a_part_are_there)
    await asyncio.to_thread(world.registry.stop)
    await asyncio.to_thread(world.registry.start)
    dead.set()
    assert (await upload).status == 503
    response = await world.visitor.head(world.path, headers=world.headers)
    offset = int(response.headers["Upload-Offset"])
    assert offset == 2 * PIECE
    more = {"Tus-Resumable": "1.0.0", "Content-Type": "application/offset+octet-stream", "Upload-Offset": str(offset)}
    answer = await world.visitor.patch(world.path, data=CONTENT[offset:], headers={**world.headers, **more})
    assert answer.status == 204
    digest = hashlib.sha256(await world.uploaded()).hexdigest()
    assert digest == hashlib.sha256(CONTENT).hexdigest()


async def test_unreferenced_manifests_are_swept_and_collected(world: World) -> None:
    answer = await world.visitor.put(world.path, data=CONTENT, headers=world.headers)
    assert answer.status == 201
    stored = world.registry.stored
    orphan, other = f"namespaced/team/gone/{UID}", "library/other"
    for repository in (orphan, f"cluster/gone/{UID}", other):
        await push(world.connected, repository, repository.encode() * 100_000)
    more = world.registry.stored
    assert more > stored

    tokens = Tokens(world.settings, world.signer, KEY, world.client)
    swept = await Sweeper(world.settings, tokens, world.client, world.connected)._sweep_all()

    assert swept == SweepResult(removed=2, complete=True)
    assert [one async for one in world.connected.repositories()] == sorted(
        [orphan, f"cluster/gone/{UID}", other, REPOSITORY]
    )
    assert [tag async for tag in world.connected.tags(orphan)] == []
    await asyncio.to_thread(world.registry.collect)
    assert stored < world.registry.stored < more
    assert await world.uploaded() == CONTENT
    assert [tag async for tag in world.connected.tags(other)] == ["latest"]


async def push(registry: Registry, repository: str, content: bytes) -> None:
    """An artifact of one layer."""
    blobs = [{"digest": f"sha256:{hashlib.sha256(one).hexdigest()}", "size": len(one)} for one in (b"{}", content)]
    for blob, text in zip(blobs, (b"{}", content), strict=True):
        await registry.put_blob(repository, text, blob["digest"])
    layer, config = "application/octet-stream", "application/vnd.oci.empty.v1+json"
    manifest = {
        "schemaVersion": 2,
        "mediaType": session.MANIFEST_TYPE,
        "config": {"mediaType": config, **blobs[0]},
        "layers": [{"mediaType": layer, **blobs[1]}],
    }
    text = json.dumps(manifest).encode()
    await registry.put_manifest(repository, "latest", text, media_type=session.MANIFEST_TYPE)
