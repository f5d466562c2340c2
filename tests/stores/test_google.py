"""The loader against a server of Google's protocol that others wrote: what ours is taken to do, this one does."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable

import pytest
from aiohttp import web

from slipway.loader.digests import Digest, Kind
from slipway.loader.errors import LoadError
from slipway.loader.sources.base import Access, open_source
from tests.stores.conftest import MANY_OF_GOOGLE, ODD
from tests.stores.real import Google
from tests.unit.loader.conftest import FILES, WEIGHTS, Loading, Service, cut_after

URL = "gs://models/team/tiny"


@pytest.fixture
def front(gcs: Google, before: Callable[[str], Service]) -> Service:
    return before(gcs.url)


@pytest.fixture
def from_gcs(loading: Loading, front: Service) -> Loading:
    loading.env = {"STORAGE_EMULATOR_HOST": front.url}
    return loading


def test_a_folder_arrives_whatever_its_files_are_called(from_gcs: Loading) -> None:
    from_gcs(URL)
    assert from_gcs.content == {**FILES, **ODD}


def test_a_whole_key_means_that_file(from_gcs: Loading) -> None:
    from_gcs(f"{URL}/tiny.gguf")
    assert from_gcs.content == {"tiny.gguf": WEIGHTS}


def test_many_files_are_listed_page_by_page(from_gcs: Loading, front: Service) -> None:
    source = open_source("gs://many", from_gcs.env, Access())
    found = source.listing(lambda function: function()).entries
    assert [(entry.path, entry.size) for entry in found] == [(f"{n:05}", n % 3) for n in range(MANY_OF_GOOGLE)]
    assert len(front.seen) == 3


def test_a_cut_connection_is_resumed_where_it_ended(from_gcs: Loading, front: Service) -> None:
    async def interfere(request: web.Request) -> web.StreamResponse | None:
        first = request.path.endswith("tiny.gguf") and "Range" not in request.headers
        return await cut_after(300_000)(request, WEIGHTS) if first else None

    front.interfere = interfere
    from_gcs(URL)
    assert from_gcs.content == {**FILES, **ODD}
    assert [seen.range for seen in front.seen if seen.path.endswith("gguf")] == ["", "bytes=300000-"]


def test_a_range_behind_the_end_gives_the_whole(from_gcs: Loading) -> None:
    source = open_source(f"{URL}/config.json", from_gcs.env, Access())
    (entry,) = source.listing(lambda function: function()).entries
    with source.read(entry, 1_000_000) as body:
        assert (body.start, body.read(100)) == (0, FILES["config.json"])


def test_the_md5_of_an_object_is_checked(gcs: Google, from_gcs: Loading, front: Service) -> None:
    gcs.put("checked/tiny.gguf", WEIGHTS)
    source = open_source("gs://models/checked", from_gcs.env, Access())
    (entry,) = source.listing(lambda function: function()).entries
    assert entry.digest == Digest(Kind.MD5, hashlib.md5(WEIGHTS).hexdigest())  # noqa: S324

    async def interfere(request: web.Request) -> web.StreamResponse | None:
        return web.Response(body=bytes(len(WEIGHTS))) if request.path.endswith("gguf") else None

    front.interfere = interfere
    with pytest.raises(LoadError, match="did not match its checksum or size"):
        from_gcs("gs://models/checked")


@pytest.mark.parametrize("change", ["another", "gone"])
def test_an_object_that_changes_meanwhile_is_not_mixed(
    gcs: Google, from_gcs: Loading, front: Service, change: str
) -> None:
    key = f"changed-{change}/tiny.gguf"
    gcs.put(key, WEIGHTS)

    async def interfere(request: web.Request) -> web.StreamResponse | None:
        if not request.path.endswith("tiny.gguf") or "Range" in request.headers:
            return None
        gcs.remove(key) if change == "gone" else gcs.put(key, bytes(len(WEIGHTS)))
        return await cut_after(1000)(request, WEIGHTS)

    front.interfere = interfere
    with pytest.raises(LoadError, match="changed during the download: retry") as caught:
        from_gcs(f"gs://models/changed-{change}")
    assert caught.value.transient
    assert from_gcs.content == {}


@pytest.mark.parametrize("status", [429, 503])
def test_a_store_that_is_busy_is_asked_again(from_gcs: Loading, front: Service, status: int) -> None:
    asked: Counter[str] = Counter()

    async def interfere(request: web.Request) -> web.StreamResponse | None:
        asked[request.path_qs] += 1
        return web.Response(status=status) if asked[request.path_qs] <= 2 else None

    front.interfere = interfere
    from_gcs(URL)
    assert from_gcs.content == {**FILES, **ODD}
    assert set(asked.values()) == {3}


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("gs://none/x", "gs://none/x: no such bucket or object: check the address"),
        ("gs://models/none", "nothing found below gs://models/none: check bucket and folder"),
    ],
)
def test_refusals_say_what_to_do(from_gcs: Loading, url: str, words: str) -> None:
    with pytest.raises(LoadError, match=f"^{words}$") as caught:
        from_gcs(url)
    assert not caught.value.transient
