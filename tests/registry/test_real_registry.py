"""Publications against the registry that clusters run: what the one in memory is taken to do, it does."""

from __future__ import annotations

import json
import os
import random
import struct
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import pytest
from aiohttp import web

from slipway.artifacts.documents import publication
from slipway.artifacts.documents.publication import Publication
from tests.ports import reserved_port
from tests.registry.conftest import Background, Cutter
from tests.registry.real import RealRegistry, Signer

REPOSITORY = "namespaced/a/m/uid"
BIG = 96 << 20


@pytest.fixture
def model(tmp_path: Path, hub: str) -> Path:
    """Its files, of which two are big."""
    folder = tmp_path / "hub/acme/llama"
    folder.mkdir(parents=True)
    config = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "max_position_embeddings": 4096}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "tokenizer.json").write_text("{}")
    for part, size in (("1", BIG), ("2", 20 << 20)):
        header = json.dumps({part: {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}}).encode()
        text = struct.pack("<Q", len(header)) + header + random.Random(part).randbytes(size)
        (folder / f"model-0000{part}-of-00002.safetensors").write_bytes(text)
    return folder


def loader(*words: str, env: Mapping[str, str], **options: object) -> subprocess.Popen[str]:
    paths = os.pathsep.join(filter(None, sys.path))
    return subprocess.Popen(
        [sys.executable, "-m", "slipway", "loader", *words],
        env={**os.environ, "PYTHONPATH": paths, **env},
        stderr=subprocess.PIPE,
        text=True,
    )


def published(host: str, hub: str, *words: str, env: Mapping[str, str] | None = None) -> Publication:
    place, given = f"{host}/{REPOSITORY}", {"HF_ENDPOINT": hub, **(env or {})}
    process = loader("publish", "hf://acme/llama", place, *words, env=given)
    _out, log = process.communicate(timeout=240)
    assert process.returncode == 0, log
    record = publication.parse_publication(log.strip().rpartition("slipway loader: ")[2])
    assert record
    return record


def same(host: str, record: Publication, model: Path, folder: Path, env: Mapping[str, str] | None = None) -> bool:
    """Whether what is pulled is what the hub has."""
    process = loader("pull", f"{host}/{REPOSITORY}@{record.digest}", str(folder), env=env or {})
    _out, log = process.communicate(timeout=240)
    assert process.returncode == 0, log
    names = {path.name for path in folder.iterdir() if not path.name.startswith(".")}
    return names == {path.name for path in model.iterdir()} and all(
        (folder / name).read_bytes() == (model / name).read_bytes() for name in names
    )


def test_a_model_goes_in_and_comes_out_as_it_was(registry: RealRegistry, hub: str, model: Path, tmp_path: Path) -> None:
    record = published(registry.host, hub, "--image")

    assert same(registry.host, record, model, tmp_path / "out")
    assert record.image
    assert published(registry.host, hub, "--image") == record
    assert not registry.uploads


def test_connections_that_are_cut_cost_no_byte_twice(
    registry: RealRegistry, cutter: Cutter, hub: str, model: Path, tmp_path: Path
) -> None:
    cutter.cuts = [30 << 20, 5 << 20, 20 << 20]
    record = published(cutter.host, hub)

    assert not cutter.cuts
    # What was on the way when a connection ended may be lost with it.
    assert cutter.sent < BIG + (20 << 20) + 3 * (8 << 20) + (1 << 20)
    assert same(registry.host, record, model, tmp_path / "out")


def test_a_publisher_that_is_killed_goes_on_where_the_registry_is(
    registry: RealRegistry, cutter: Cutter, hub: str, model: Path, tmp_path: Path
) -> None:
    for point in (10 << 20, 40 << 20, 70 << 20, 100 << 20):
        process = loader("publish", "hf://acme/llama", f"{cutter.host}/{REPOSITORY}", env={"HF_ENDPOINT": hub})
        while cutter.sent < point and process.poll() is None:
            time.sleep(0.005)
        process.kill()
        process.communicate(timeout=60)
    record = published(cutter.host, hub)

    assert cutter.sent < BIG + (20 << 20) + 4 * (16 << 20)
    assert same(registry.host, record, model, tmp_path / "out")
    assert not registry.uploads


def test_garbage_is_collected_while_something_is_published(
    registry: RealRegistry, hub: str, model: Path, tmp_path: Path
) -> None:
    process = loader("publish", "hf://acme/llama", f"{registry.host}/{REPOSITORY}", env={"HF_ENDPOINT": hub})
    while not (registry.stored and registry.uploads) and process.poll() is None:
        time.sleep(0.005)
    registry.collect()
    _out, log = process.communicate(timeout=240)

    assert process.returncode == 0, log
    assert same(registry.host, published(registry.host, hub), model, tmp_path / "out")


def test_a_collection_frees_the_room_of_an_unpublished_model(registry: RealRegistry, hub: str, model: Path) -> None:
    published(registry.host, hub, "--image")
    assert registry.stored > BIG
    process = loader("unpublish", f"{registry.host}/{REPOSITORY}", env={})
    assert process.wait(60) == 0
    registry.collect()

    assert registry.stored == 0


def test_tokens_open_what_they_say_and_nothing_else(
    background: Background, tmp_path: Path, hub: str, model: Path
) -> None:
    signer, authorizations, own = Signer(), [], tmp_path / "token"
    own.write_text("of-the-pod")
    (tmp_path / "keys.json").write_text(signer.key_set())

    async def token(request: web.Request) -> web.Response:
        authorizations.append(request.headers.get("Authorization"))
        scopes = [scope for scope in request.query.getall("scope", []) if ":namespaced/a/" in scope]
        return web.json_response({"token": signer.token(scopes), "expires_in": 300})

    app = web.Application()
    app.router.add_get("/token", token)
    auth = {
        "realm": f"http://{background.serve(app)}/token",
        "service": signer.SERVICE,
        "issuer": signer.ISSUER,
        "jwks": str(tmp_path / "registry/keys.json"),
    }
    (tmp_path / "registry").mkdir()
    (tmp_path / "registry/keys.json").write_text(signer.key_set())
    realm = auth["realm"].partition("://")[2].partition("/")[0]
    env = {"SLIPWAY_DEPOT_TOKEN_FILE": str(own), "SLIPWAY_REGISTRY_REALM": realm}
    with RealRegistry(tmp_path / "registry", reserved_port(), auth) as registry:
        record = published(registry.host, hub, env=env)
        assert same(registry.host, record, model, tmp_path / "out", env)
        other = f"{registry.host}/namespaced/b/m/uid@{record.digest}"
        process = loader("pull", other, str(tmp_path / "other"), env=env)
        _out, log = process.communicate(timeout=60)

    assert process.returncode == 3
    assert "has no permission" in log
    assert set(authorizations) == {"Bearer of-the-pod"}
