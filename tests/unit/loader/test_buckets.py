"""s3:// and oss:// against a small store: listing, ranges, checks, words."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
from aiohttp import web

from slipway.artifacts.locations.address_policy import AddressPolicy
from slipway.loader.transport import http, pool
from slipway.loader.transport import source as base
from slipway.loader.transport.errors import LoadError
from slipway.loader.transport.source import Access, open_source

from .conftest import CHANGED, FILES, WEIGHTS, Loading, Service, cut_after
from .s3 import KEYS, Store

URL = "s3://models/team/tiny"


@pytest.fixture
def store() -> Store:
    objects = {f"team/tiny/{path}": body for path, body in FILES.items()}
    return Store({**objects, "team/tiny/": b"", "team/tiny-2/config.json": b"of a neighbour", "single.gguf": WEIGHTS})


@pytest.fixture
def s3(start: Callable[[web.Application], Service], store: Store) -> Service:
    return start(store.application())


@pytest.fixture
def from_s3(loading: Loading, s3: Service) -> Loading:
    loading.env = {
        "AWS_ENDPOINT_URL": s3.url,
        "AWS_ACCESS_KEY_ID": KEYS.key,
        "AWS_SECRET_ACCESS_KEY": KEYS.secret,
        "AWS_EC2_METADATA_DISABLED": "true",
    }
    return loading


@pytest.mark.parametrize("scheme", ["s3", "oss"])
@pytest.mark.parametrize("bucket", ["", "localhost#x", "2130706433#", "user@host", "host:1", "..", "%2e", "a\\b"])
def test_a_bucket_that_would_lead_to_another_host_is_refused(scheme: str, bucket: str) -> None:
    env = {"OSS_ACCESS_KEY_ID": "id", "OSS_ACCESS_KEY_SECRET": "secret", "OSS_REGION": "cn-hangzhou"}
    with pytest.raises(LoadError, match="does not name a bucket"):
        open_source(f"{scheme}://{bucket}/folder", env)


@pytest.mark.parametrize("url", [URL, f"{URL}/"])
def test_a_folder_arrives_without_its_neighbour(from_s3: Loading, url: str) -> None:
    from_s3(url)
    assert from_s3.content == FILES


def test_a_whole_key_means_that_file(from_s3: Loading) -> None:
    from_s3("s3://models/single.gguf")
    assert from_s3.content == {"single.gguf": WEIGHTS}


def test_the_token_of_a_session_is_signed(from_s3: Loading, s3: Service) -> None:
    from_s3.env["AWS_SESSION_TOKEN"] = "token-of-a-session"
    from_s3(URL)
    assert from_s3.content == FILES
    assert all("x-amz-security-token" in seen.authorization for seen in s3.seen)


@pytest.mark.parametrize("place", ["http://localhost:{port}", "http://127.0.0.2:{port}", "http://127.0.0.1:9"])
@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_store_cannot_redirect_to_another_host(from_s3: Loading, s3: Service, place: str, status: int) -> None:
    """Neither do its bytes come from there, nor is a token of a session sent there."""
    from_s3.env["AWS_SESSION_TOKEN"] = "token-of-a-session"
    port = s3.url.rpartition(":")[2]

    async def interfere(request: web.Request) -> web.StreamResponse | None:
        if request.path.startswith("/cdn/"):
            return web.Response(body=WEIGHTS)
        if request.path.endswith("tiny.gguf"):
            return web.Response(status=status, headers={"Location": f"{place.format(port=port)}/cdn/tiny"})
        return None

    s3.interfere = interfere
    with pytest.raises(
        LoadError, match="redirects to another host, and signed requests do not follow redirects"
    ) as caught:
        from_s3(URL)
    assert not caught.value.transient
    assert not [seen for seen in s3.seen if seen.path.startswith("/cdn/")]


def test_a_store_may_redirect_within_itself(from_s3: Loading, s3: Service) -> None:
    async def interfere(request: web.Request) -> web.StreamResponse | None:
        if request.path.startswith("/cdn/"):
            return web.Response(body=WEIGHTS)
        if request.path.endswith("tiny.gguf"):
            raise web.HTTPTemporaryRedirect("/cdn/tiny")
        return None

    s3.interfere = interfere
    from_s3(URL)
    assert from_s3.content == FILES


@pytest.mark.parametrize("variable", ["AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"])
def test_a_store_that_a_secret_names_is_asked_only_where_the_guard_lets_it(
    from_s3: Loading, s3: Service, variable: str
) -> None:
    from_s3.env = {**from_s3.env, variable: s3.url}
    from_s3.access = Access(AddressPolicy())
    with pytest.raises(LoadError, match=r"^SourceNotAllowed: 127\.0\.0\.1 is this host: ask the operator to allow it"):
        from_s3(URL)
    assert s3.seen == []
    from_s3.access = Access(AddressPolicy(("127.0.0.0/8",)))
    from_s3(URL)
    assert from_s3.content == FILES


def test_alibabas_store_is_asked_only_where_the_guard_lets_it(loading: Loading, s3: Service) -> None:
    loading.env = {**ALIBABA, "OSS_ENDPOINT": s3.url}
    loading.access = Access(AddressPolicy())
    with pytest.raises(LoadError, match=r"^SourceNotAllowed: "):
        loading("oss://models/team/tiny")
    assert s3.seen == []


def test_a_cut_connection_is_resumed(from_s3: Loading, s3: Service) -> None:
    cuts = 0

    async def interfere(request: web.Request) -> web.StreamResponse | None:
        nonlocal cuts
        cuts += request.path.endswith("tiny.gguf")
        return await cut_after(300_000)(request, WEIGHTS) if request.path.endswith("tiny.gguf") and cuts < 4 else None

    s3.interfere = interfere
    from_s3(URL)
    assert from_s3.content == FILES
    assert [seen.range for seen in s3.seen if seen.path.endswith("gguf")] == [
        "",
        "bytes=300000-",
        "bytes=600000-",
        "bytes=900000-",
    ]


def test_an_etag_that_is_an_md5_is_checked(from_s3: Loading, store: Store) -> None:
    store.etags["team/tiny/tiny.gguf"] = f'"{"0" * 32}"'
    with pytest.raises(LoadError, match="did not match its checksum or size"):
        from_s3(URL)


@pytest.mark.parametrize(
    ("tag", "headers"),
    [
        (f'"{"0" * 32}-7"', {}),
        (f'"{"0" * 32}"', {"x-amz-server-side-encryption": "aws:kms"}),
    ],
)
def test_an_etag_of_another_kind_is_not_taken_for_one(
    from_s3: Loading, store: Store, tag: str, headers: dict[str, str]
) -> None:
    store.etags["team/tiny/tiny.gguf"], store.headers = tag, headers
    from_s3(URL)
    assert from_s3.content == FILES


def test_an_object_that_changes_meanwhile_is_not_mixed(from_s3: Loading, s3: Service, store: Store) -> None:
    async def interfere(request: web.Request) -> web.StreamResponse | None:
        if not request.path.endswith("tiny.gguf"):
            return None
        store.objects["team/tiny/tiny.gguf"] = CHANGED
        return await cut_after(1000)(request, WEIGHTS) if "Range" not in request.headers else None

    s3.interfere = interfere
    with pytest.raises(LoadError, match="changed during the download: retry") as caught:
        from_s3(URL)
    assert caught.value.transient
    s3.interfere = None
    from_s3(URL)
    assert from_s3.content == {**FILES, "tiny.gguf": CHANGED}


def test_an_object_that_is_deleted_meanwhile_ends_the_load(from_s3: Loading, s3: Service, store: Store) -> None:
    async def interfere(request: web.Request) -> web.StreamResponse | None:
        if request.path.endswith("tiny.gguf"):
            store.objects.pop("team/tiny/tiny.gguf", None)
        return None

    s3.interfere = interfere
    with pytest.raises(LoadError, match="changed during the download: retry") as caught:
        from_s3(URL)
    assert caught.value.transient


@pytest.mark.parametrize(
    ("url", "change", "words"),
    [
        ("s3://none/x", {}, "bucket none does not exist"),
        ("s3://models/none", {}, "nothing found below s3://models/none"),
        ("s3://", {}, "the address must begin with one of"),
        (URL, {"AWS_SECRET_ACCESS_KEY": "wrong"}, "rejects the credentials (SignatureDoesNotMatch)"),
        (URL, {"AWS_ACCESS_KEY_ID": "AKIAOTHER"}, "rejects the credentials (InvalidAccessKeyId)"),
        (URL, {"AWS_ACCESS_KEY_ID": ""}, "only one of AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY is set"),
        (
            URL,
            {"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": ""},
            "use a Secret with keys, or a service account with its own role",
        ),
        ("oss://models/x", {}, "set OSS_ACCESS_KEY_ID, OSS_ACCESS_KEY_SECRET, OSS_REGION"),
    ],
)
def test_refusals_say_what_to_do(from_s3: Loading, url: str, change: dict[str, str], words: str) -> None:
    from_s3.env |= change
    with pytest.raises(LoadError) as caught:
        from_s3(url)
    assert words in str(caught.value)
    assert not caught.value.transient
    assert KEYS.secret not in str(caught.value)


def test_a_store_that_is_busy_is_asked_again(from_s3: Loading, s3: Service) -> None:
    async def interfere(_request: web.Request) -> web.StreamResponse | None:
        return web.Response(status=503, text="<Error><Code>SlowDown</Code></Error>") if len(s3.seen) % 2 else None

    s3.interfere = interfere
    from_s3(URL)
    assert from_s3.content == FILES


def test_a_listing_goes_on_behind_what_it_has(from_s3: Loading, s3: Service) -> None:
    starts: list[str] = []

    async def interfere(request: web.Request) -> web.StreamResponse | None:
        if "list-type" not in request.query:
            return None
        starts.append("" if "continuation-token" in request.query else request.query.get("start-after", ""))
        return web.Response(status=500) if len(starts) == 3 else None

    s3.interfere = interfere
    from_s3(URL)
    assert from_s3.content == FILES
    assert [after for after in starts if after] == ["team/tiny/empty.txt"]


def test_a_bucket_with_more_files_than_any_model_is_refused(
    from_s3: Loading, s3: Service, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(base, "MOST_FILES", 4)
    store.objects |= {f"many/{number}": b"" for number in range(20)}
    with pytest.raises(LoadError, match="s3://models/many has more than 4 files, more than the limit") as caught:
        from_s3("s3://models/many")
    assert not caught.value.transient
    assert len(s3.seen) == 3
    from_s3(URL)


@pytest.mark.parametrize("status", [200, 403])
def test_a_listing_without_end_is_given_up(from_s3: Loading, s3: Service, status: int) -> None:
    sent = 0

    async def interfere(request: web.Request) -> web.StreamResponse | None:
        nonlocal sent
        response = web.StreamResponse(status=status, headers={"Content-Type": "application/xml"})
        await response.prepare(request)
        while sent < 8 * pool.LARGEST_PAGE:
            await response.write(b"<a>" * (1 << 18))
            sent += 3 << 18
        return response

    s3.interfere = interfere
    with pytest.raises(LoadError, match=f"sent a list of more than {pool.LARGEST_PAGE} bytes") as caught:
        from_s3(URL)
    assert not caught.value.transient
    assert sent < 3 * pool.LARGEST_PAGE


@pytest.mark.parametrize("text", ["<html>", "<a></a>", "welcome"])
def test_a_store_that_speaks_something_else_is_reported(from_s3: Loading, s3: Service, text: str) -> None:
    async def interfere(_request: web.Request) -> web.StreamResponse | None:
        return web.Response(text=text, content_type="text/html")

    s3.interfere = interfere
    with pytest.raises(LoadError, match=r"is not in the expected format|does not speak the S3 protocol"):
        from_s3(URL)


@pytest.mark.parametrize(
    ("endpoint", "words"),
    [
        ("http://127.0.0.1:9/path", "at 127.0.0.1 cannot be reached: path in endpoint is not allowed"),
        ("http://user:secret@127.0.0.1:9", "at 127.0.0.1 cannot be reached: username in endpoint is not allowed"),
        ("user:secret@127.0.0.1:9", "the store's endpoint must begin with https:// or http://"),
    ],
)
def test_an_endpoint_that_can_be_none_is_reported(from_s3: Loading, endpoint: str, words: str) -> None:
    from_s3.env["AWS_ENDPOINT_URL"] = endpoint
    with pytest.raises(LoadError) as caught:
        from_s3(URL)
    assert words in str(caught.value)
    assert "secret" not in str(caught.value)


def test_a_bucket_that_the_library_does_not_take_is_reported(from_s3: Loading) -> None:
    with pytest.raises(LoadError, match=r"s3://of-a-point-s3alias/x at 127\.0\.0\.1 cannot be reached: bucket name"):
        from_s3("s3://of-a-point-s3alias/x")


@pytest.mark.parametrize("status", [301, 400, 403])
def test_a_bucket_of_another_region_is_asked_there(from_s3: Loading, s3: Service, store: Store, status: int) -> None:
    store.region = "eu-west-1"

    async def interfere(request: web.Request) -> web.StreamResponse | None:
        if "/eu-west-1/" in request.headers["Authorization"]:
            return None
        return web.Response(status=status, headers={"x-amz-bucket-region": "eu-west-1"})

    s3.interfere = interfere
    from_s3(URL)
    assert from_s3.content == FILES


def test_a_region_in_the_body_of_a_refusal_is_used(from_s3: Loading, s3: Service, store: Store) -> None:
    store.region = "eu-west-1"
    from_s3(URL)
    assert from_s3.content == FILES
    assert [seen for seen in s3.seen if "/us-east-1/" in seen.authorization] == s3.seen[:1]


def refusal(status: int, code: str, more: str = "") -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    async def refuse(_request: web.Request) -> web.StreamResponse:
        text = f"<Error><Code>{code}</Code><Message>{code}</Message>{more}</Error>"
        return web.Response(status=status, text=text, content_type="application/xml")

    return refuse


@pytest.mark.parametrize(
    ("status", "code"), [(400, "AuthorizationHeaderMalformed"), (301, "PermanentRedirect"), (403, "IncorrectEndpoint")]
)
@pytest.mark.parametrize("more", ["", "<Region>eu/../x</Region>", f"<Region>{'a' * 65}</Region>"])
def test_a_wrong_region_is_an_error_if_the_store_does_not_name_the_right_one(
    from_s3: Loading, s3: Service, status: int, code: str, more: str
) -> None:
    s3.interfere = refusal(status, code, more)
    with pytest.raises(LoadError, match="is not in region us-east-1: set AWS_REGION to the bucket's region") as caught:
        from_s3(URL)
    assert not caught.value.transient
    assert len(s3.seen) == 1


def test_clocks_that_differ_are_reported(from_s3: Loading, s3: Service) -> None:
    s3.interfere = refusal(403, "RequestTimeTooSkewed")
    with pytest.raises(LoadError, match="the clocks of this node and the store differ by minutes") as caught:
        from_s3(URL)
    assert caught.value.transient


KEY_PAIR = {"AWS_ACCESS_KEY_ID": KEYS.key, "AWS_SECRET_ACCESS_KEY": KEYS.secret}
ALIBABA = {"OSS_ACCESS_KEY_ID": KEYS.key, "OSS_ACCESS_KEY_SECRET": KEYS.secret}


@pytest.mark.parametrize(
    ("url", "env", "address"),
    [
        ("s3://models/x", KEY_PAIR, "https://models.s3.us-east-1.amazonaws.com"),
        ("s3://models/x", {**KEY_PAIR, "AWS_REGION": "eu-west-1"}, "https://models.s3.eu-west-1.amazonaws.com"),
        ("s3://my.models/x", KEY_PAIR, "https://s3.us-east-1.amazonaws.com/my.models"),
        ("s3://models/x", {**KEY_PAIR, "AWS_ENDPOINT_URL": "http://minio:9000/"}, "http://minio:9000/models"),
        ("oss://models/x", {**ALIBABA, "OSS_REGION": "cn-beijing"}, "https://models.s3.oss-cn-beijing.aliyuncs.com"),
        ("oss://models/x", {**ALIBABA, "OSS_ENDPOINT": "oss-internal.example"}, "https://models.oss-internal.example"),
    ],
)
def test_where_a_bucket_is_asked(
    loading: Loading, monkeypatch: pytest.MonkeyPatch, url: str, env: dict[str, str], address: str
) -> None:
    addresses: list[str] = []

    def send(_client: object, _method: str, url: str, *_more: object) -> None:
        addresses.append(url.partition("?")[0].rstrip("/"))
        raise LoadError("not asked in a test")

    monkeypatch.setattr(http, "send", send)
    loading.env = env
    with pytest.raises(LoadError, match="not asked in a test"):
        loading(url)
    assert addresses == [address]


@pytest.mark.parametrize("key", ["team/tiny/../../etc/passwd", "team/tiny//x", "team/tiny/.slipway-report"])
def test_a_key_that_has_no_place_in_the_folder_is_refused(from_s3: Loading, store: Store, key: str) -> None:
    store.objects[key] = b"evil"
    with pytest.raises(LoadError, match="cannot load"):
        from_s3(URL)
    assert from_s3.content == {}


def test_a_key_that_a_listing_cannot_contain_is_named(from_s3: Loading, store: Store) -> None:
    """XML has no control characters. Stores list U+FFFD instead, and have no object of that key."""
    store.objects["team/tiny/a\ufffdb"] = b""
    with pytest.raises(LoadError, match="has a character that a listing cannot contain: rename the file") as caught:
        from_s3(URL)
    assert not caught.value.transient


def test_a_file_and_a_folder_of_one_name_are_refused(from_s3: Loading, store: Store) -> None:
    store.objects["team/tiny/config.json/x"] = b""
    with pytest.raises(LoadError, match="another file has the same name as its folder"):
        from_s3(URL)


def test_alibabas_store_is_asked_in_its_own_words(
    loading: Loading, start: Callable[..., Service], store: Store
) -> None:
    store.region = "cn-shanghai"
    loading.env = {
        "OSS_ENDPOINT": start(store.application()).url,
        "OSS_REGION": "oss-cn-shanghai",
        "OSS_ACCESS_KEY_ID": KEYS.key,
        "OSS_ACCESS_KEY_SECRET": KEYS.secret,
    }
    loading("oss://models/team/tiny")
    assert loading.content == FILES
