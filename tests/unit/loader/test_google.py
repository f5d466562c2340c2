"""gs:// against a small store: listing, both hashes, credentials of a key file."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from aiohttp import web
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from google.auth import exceptions

from slipway.artifacts.locations.address_policy import AddressPolicy
from slipway.loader.sources import google
from slipway.loader.transport import source as base
from slipway.loader.transport.errors import LoadError
from slipway.loader.transport.source import Access

from .conftest import FILES, WEIGHTS, Loading, Service, cut_after
from .google_store import Store

URL = "gs://models/team/tiny"


@pytest.fixture
def store() -> Store:
    objects = {f"team/tiny/{path}": body for path, body in FILES.items()}
    return Store({**objects, "team/tiny/": b"", "team/tiny-2/config.json": b"of a neighbour"})


@pytest.fixture
def gcs(start: Callable[[web.Application], Service], store: Store) -> Service:
    return start(store.application())


@pytest.fixture
def from_gcs(loading: Loading, gcs: Service) -> Loading:
    loading.env = {"STORAGE_EMULATOR_HOST": gcs.url.removeprefix("http://")}
    return loading


def test_a_folder_arrives_without_its_neighbour(from_gcs: Loading) -> None:
    from_gcs(URL)
    assert from_gcs.content == FILES


def test_a_cut_connection_is_resumed(from_gcs: Loading, gcs: Service) -> None:
    async def interfere(request: web.Request) -> web.StreamResponse | None:
        if not request.path.endswith("tiny.gguf") or "Range" in request.headers:
            return None
        return await cut_after(300_000)(request, WEIGHTS)

    gcs.interfere = interfere
    from_gcs(URL)
    assert from_gcs.content == FILES
    assert [seen.range for seen in gcs.seen if seen.path.endswith("gguf")] == ["", "bytes=300000-"]


def test_a_composite_object_is_checked_by_its_crc(from_gcs: Loading, store: Store) -> None:
    store.composite.add("team/tiny/tiny.gguf")
    from_gcs(URL)
    assert from_gcs.content == FILES


def test_an_object_that_is_replaced_meanwhile_is_not_mixed(from_gcs: Loading, gcs: Service, store: Store) -> None:
    async def interfere(request: web.Request) -> web.StreamResponse | None:
        if not request.path.endswith("tiny.gguf") or "Range" in request.headers:
            return None
        store.generation = "8"
        return await cut_after(1000)(request, WEIGHTS)

    gcs.interfere = interfere
    with pytest.raises(LoadError, match="gs://models/team/tiny changed during the download: retry") as caught:
        from_gcs(URL)
    assert caught.value.transient
    gcs.interfere = None
    from_gcs(URL)
    assert from_gcs.content == FILES


def test_a_wrong_crc_is_noticed(from_gcs: Loading, store: Store) -> None:
    store.composite.add("team/tiny/tiny.gguf")
    store.crc["team/tiny/tiny.gguf"] = "AAAAAA=="
    with pytest.raises(LoadError, match="did not match its checksum or size"):
        from_gcs(URL)


@pytest.mark.parametrize(
    ("url", "token", "words"),
    [
        ("gs://none/x", "", "no such bucket or object"),
        ("gs://models/none", "", "nothing found below gs://models/none"),
        (
            URL,
            "needed",
            "the store requires credentials: use a Secret with keys",
        ),
    ],
)
def test_refusals_say_what_to_do(from_gcs: Loading, store: Store, url: str, token: str, words: str) -> None:
    store.token = token
    with pytest.raises(LoadError) as caught:
        from_gcs(url)
    assert words in str(caught.value)
    assert not caught.value.transient


def test_a_bucket_with_more_files_than_any_model_is_refused(
    from_gcs: Loading, gcs: Service, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(base, "MOST_FILES", 4)
    store.objects |= {f"many/{number}": b"" for number in range(20)}
    with pytest.raises(LoadError, match="gs://models/many has more than 4 files, more than the limit"):
        from_gcs("gs://models/many")
    assert len(gcs.seen) == 3


def test_a_server_that_is_not_a_store_is_reported(from_gcs: Loading, gcs: Service) -> None:
    async def interfere(_request: web.Request) -> web.StreamResponse | None:
        return web.json_response(["welcome"])

    gcs.interfere = interfere
    with pytest.raises(LoadError, match="is not in the expected format: check the endpoint"):
        from_gcs(URL)


@pytest.fixture
def key_file(gcs: Service, tmp_path: Path) -> Path:
    """Of a service account whose tokens the store itself gives."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    pem = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ).decode()
    account = {"type": "service_account", "project_id": "p", "private_key_id": "1", "private_key": pem}
    account |= {"client_email": "loader@p.iam", "client_id": "1", "token_uri": f"{gcs.url}/token"}
    path = tmp_path / "credentials.json"
    path.write_text(json.dumps(account))
    return path


def test_a_key_file_gives_the_token(
    loading: Loading, gcs: Service, store: Store, key_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.token = "given-for-the-key"
    monkeypatch.setattr(google, "PUBLIC", gcs.url)
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(key_file))
    loading.env = {"GOOGLE_APPLICATION_CREDENTIALS": str(key_file)}
    loading(URL)
    assert loading.content == FILES
    assert len([seen for seen in gcs.seen if seen.path == "/token"]) == 1


def test_a_key_file_that_is_none_is_reported(loading: Loading, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "key.json").write_text("{}")
    loading.env = {"GOOGLE_APPLICATION_CREDENTIALS": str(tmp_path / "key.json")}
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "key.json"))
    with pytest.raises(LoadError, match="does not name a usable key file: check the Secret"):
        loading(URL)


def test_a_key_file_leads_only_where_the_guard_lets_it(
    loading: Loading, gcs: Service, key_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tenant's Secret names the address of the exchange."""
    monkeypatch.setattr(google, "PUBLIC", gcs.url)
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(key_file))
    loading.env = {"GOOGLE_APPLICATION_CREDENTIALS": str(key_file)}
    loading.access = Access(AddressPolicy())
    with pytest.raises(LoadError, match=r"^SourceNotAllowed: 127\.0\.0\.1 is this host"):
        loading(URL)
    assert gcs.seen == []


def test_credentials_without_read_access_are_reported(
    loading: Loading, gcs: Service, store: Store, key_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def interfere(request: web.Request) -> web.StreamResponse | None:
        return None if request.path == "/token" else web.Response(status=403)

    store.token, gcs.interfere = "given-for-the-key", interfere
    monkeypatch.setattr(google, "PUBLIC", gcs.url)
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(key_file))
    loading.env = {"GOOGLE_APPLICATION_CREDENTIALS": str(key_file)}
    with pytest.raises(LoadError, match="grant them the role Storage Object Viewer"):
        loading(URL)


def test_node_identities_are_used_only_if_the_operator_allows_it(
    from_gcs: Loading, gcs: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Google's library would ask the metadata service by itself."""
    calls: list[bool] = []

    def default(**_options: object) -> None:
        calls.append(True)
        raise exceptions.DefaultCredentialsError("no credentials")

    monkeypatch.setattr("google.auth.default", default)
    monkeypatch.setattr(google, "PUBLIC", gcs.url)
    from_gcs.env = {}
    from_gcs(URL)
    assert calls == []
    from_gcs.folder, from_gcs.access = from_gcs.folder.with_name("two"), Access(node_identity=True)
    from_gcs(URL)
    assert calls == [True]
