"""The loader against a real S3 server: what the small one of the unit tests is taken to do, this one does."""

from __future__ import annotations

import hashlib
import io
import random
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import TypeVar

import minio.time
import pytest
from aiohttp import web

from slipway.loader.digests import Digest, Kind
from slipway.loader.errors import LoadError, TransientError
from slipway.loader.sources.base import Access, Listing, open_source
from tests.stores.conftest import ODD
from tests.stores.real import OWNER, REGION, S3, STRANGER
from tests.unit.loader.conftest import FILES, WEIGHTS, Loading, Service, cut_after

T = TypeVar("T")
URL = "s3://models/team/tiny"
MANY = 10_000
PART = 5 << 20
BIG = random.Random("big").randbytes(2 * PART + 1000)


@pytest.fixture
def front(s3: S3, before: Callable[[str], Service]) -> Service:
    return before(s3.url)


@pytest.fixture
def from_s3(loading: Loading, front: Service) -> Loading:
    loading.env = {
        "AWS_ENDPOINT_URL": front.url,
        "AWS_REGION": REGION,
        "AWS_ACCESS_KEY_ID": OWNER[0],
        "AWS_SECRET_ACCESS_KEY": OWNER[1],
    }
    return loading


def put(s3: S3, key: str, body: bytes) -> str:
    """In parts where it is long. The ETag without quotes."""
    tag: str = s3.client.put_object("models", key, io.BytesIO(body), len(body), part_size=PART).etag
    return tag


def listed(loading: Loading, url: str) -> Listing:
    """As the store has it; each request may fail twice."""

    def patient(function: Callable[[], T]) -> T:
        for _unused in range(2):
            with suppress(TransientError):
                return function()
        return function()

    return open_source(url, loading.env, Access()).listing(patient)


def test_a_folder_arrives_whatever_its_files_are_called(from_s3: Loading) -> None:
    from_s3(URL)
    assert from_s3.content == {**FILES, **ODD}


def test_a_whole_key_means_that_file(from_s3: Loading) -> None:
    from_s3(f"{URL}/tiny.gguf")
    assert from_s3.content == {"tiny.gguf": WEIGHTS}


def test_ten_thousand_files_are_listed_page_by_page(s3: S3, from_s3: Loading, front: Service) -> None:
    """After a page that failed the listing goes on behind what it has. The last page may be empty."""
    folder = s3.data / "models/many"
    folder.mkdir()
    for number in range(MANY):
        (folder / f"{number:05}").write_bytes(b"x" * (number % 3))
    begun: list[str] = []

    async def interfere(request: web.Request) -> web.StreamResponse | None:
        if "continuation-token" not in request.query:
            begun.append(request.query.get("start-after", ""))
        return web.Response(status=503) if len(front.seen) == 5 else None

    front.interfere = interfere
    found = listed(from_s3, "s3://models/many").entries
    assert [(entry.path, entry.size) for entry in found] == [(f"{n:05}", n % 3) for n in range(MANY)]
    assert begun == ["", "many/03999"]
    assert len(front.seen) <= MANY // 1000 + 2


def test_a_cut_connection_is_resumed_where_it_ended(s3: S3, from_s3: Loading, front: Service) -> None:
    put(s3, "resumed/big.gguf", BIG)

    async def interfere(request: web.Request) -> web.StreamResponse | None:
        first = request.path.endswith("big.gguf") and "Range" not in request.headers
        return await cut_after(300_000)(request, BIG) if first else None

    front.interfere = interfere
    from_s3("s3://models/resumed")
    assert from_s3.content == {"big.gguf": BIG}
    assert [seen.range for seen in front.seen if seen.path.endswith("gguf")] == ["", "bytes=300000-"]


def test_a_range_behind_the_end_gives_the_whole(from_s3: Loading) -> None:
    source = open_source(f"{URL}/config.json", from_s3.env, Access())
    (entry,) = source.listing(lambda function: function()).entries
    with source.read(entry, 1_000_000) as body:
        assert (body.start, body.read(100)) == (0, FILES["config.json"])


def test_the_etag_of_an_object_of_several_parts_is_no_digest(s3: S3, from_s3: Loading) -> None:
    tag = put(s3, "parts/big.gguf", BIG)
    (entry,) = listed(from_s3, "s3://models/parts").entries
    assert tag.endswith("-3")
    assert (entry.version, entry.digest) == (f'"{tag}"', None)
    from_s3("s3://models/parts")
    assert from_s3.content == {"big.gguf": BIG}


def test_the_etag_of_an_object_of_one_part_is_its_md5(s3: S3, from_s3: Loading) -> None:
    put(s3, "whole/tiny.gguf", WEIGHTS)
    (entry,) = listed(from_s3, "s3://models/whole").entries
    assert entry.digest == Digest(Kind.MD5, hashlib.md5(WEIGHTS).hexdigest())  # noqa: S324
    (s3.data / "models/whole/tiny.gguf").write_bytes(bytes(len(WEIGHTS)))
    with pytest.raises(LoadError, match="did not match its checksum or size"):
        from_s3("s3://models/whole")


def test_an_object_that_the_store_has_no_etag_of_arrives(s3: S3, from_s3: Loading) -> None:
    """As of a file that somebody put into the folder beside the store."""
    (s3.data / "models/beside").mkdir()
    (s3.data / "models/beside/tiny.gguf").write_bytes(WEIGHTS)
    assert listed(from_s3, "s3://models/beside").entries[0].version == ""
    from_s3("s3://models/beside")
    assert from_s3.content == {"tiny.gguf": WEIGHTS}


@pytest.mark.parametrize("change", ["another", "gone"])
def test_an_object_that_changes_meanwhile_is_not_mixed(s3: S3, from_s3: Loading, front: Service, change: str) -> None:
    key = f"changed-{change}/tiny.gguf"
    put(s3, key, WEIGHTS)

    async def interfere(request: web.Request) -> web.StreamResponse | None:
        if not request.path.endswith("tiny.gguf") or "Range" in request.headers:
            return None
        if change == "gone":
            s3.client.remove_object("models", key)
        else:
            put(s3, key, bytes(len(WEIGHTS)))
        return await cut_after(1000)(request, WEIGHTS)

    front.interfere = interfere
    with pytest.raises(LoadError, match="changed during the download: retry") as caught:
        from_s3(f"s3://models/changed-{change}")
    assert caught.value.transient
    assert from_s3.content == {}


def test_a_store_that_is_busy_is_asked_again(from_s3: Loading, front: Service) -> None:
    asked: Counter[str] = Counter()

    async def interfere(request: web.Request) -> web.StreamResponse | None:
        asked[request.path_qs] += 1
        text = "<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>"
        slow = asked[request.path_qs] <= 2
        return web.Response(status=503, text=text, content_type="application/xml") if slow else None

    front.interfere = interfere
    from_s3(URL)
    assert from_s3.content == {**FILES, **ODD}
    assert set(asked.values()) == {3}


@pytest.mark.parametrize("region", ["", "us-east-1"])
def test_a_bucket_of_another_region_is_asked_there(from_s3: Loading, front: Service, region: str) -> None:
    from_s3.env["AWS_REGION"] = region
    from_s3(URL)
    assert from_s3.content == {**FILES, **ODD}
    assert [seen for seen in front.seen if "/us-east-1/" in seen.authorization] == front.seen[:1]


@pytest.mark.parametrize("hours", [-1, 1, 72])
def test_a_clock_that_is_wrong_is_told(from_s3: Loading, monkeypatch: pytest.MonkeyPatch, hours: int) -> None:
    now = minio.time.utcnow
    monkeypatch.setattr(minio.time, "utcnow", lambda: now() + timedelta(hours=hours))
    with pytest.raises(LoadError, match="the clocks of this node and of the store differ") as caught:
        from_s3(URL)
    assert caught.value.transient


KEY, SECRET = "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"


@pytest.mark.parametrize(
    ("url", "change", "words"),
    [
        ("s3://none/x", {}, "bucket none does not exist: check the address, the region and the endpoint"),
        ("s3://models/none", {}, "nothing found below s3://models/none: check bucket and folder"),
        (URL, {SECRET: "wrong"}, "rejects the credentials (SignatureDoesNotMatch): check the Secret"),
        (URL, {KEY: "AKIANOBODY"}, "rejects the credentials (InvalidAccessKeyId): check the Secret"),
        (URL, {"AWS_SESSION_TOKEN": "of another store"}, "rejects the credentials (InvalidToken): check the Secret"),
        (URL, {KEY: STRANGER[0], SECRET: STRANGER[1]}, "these credentials lack permission: grant them list and read"),
        (URL, {KEY: "", SECRET: ""}, "the store requires credentials: name a Secret with keys"),
    ],
)
def test_refusals_say_what_to_do(
    from_s3: Loading, front: Service, url: str, change: dict[str, str], words: str
) -> None:
    from_s3.env |= change
    with pytest.raises(LoadError) as caught:
        from_s3(url)
    assert words in str(caught.value)
    assert not caught.value.transient
    assert OWNER[1] not in str(caught.value)
    assert len(front.seen) == 1


def test_a_name_that_a_listing_cannot_carry_is_told(s3: S3, from_s3: Loading) -> None:
    put(s3, "control/a\x01b.gguf", b"x")
    with pytest.raises(LoadError, match="has a file whose name no listing can carry: rename"):
        from_s3("s3://models/control")


def test_alibabas_words_reach_the_same_store(loading: Loading, s3: S3) -> None:
    """Its S3 dialect, at an address that no bucket's name can be put before."""
    loading.env = {
        "OSS_ENDPOINT": s3.url,
        "OSS_REGION": f"oss-{REGION}",
        "OSS_ACCESS_KEY_ID": OWNER[0],
        "OSS_ACCESS_KEY_SECRET": OWNER[1],
    }
    loading("oss://models/team/tiny")
    assert loading.content == {**FILES, **ODD}
