"""hf:// against the hub of this project: what is asked, what is resumed, what is refused and in which words."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable

import pytest
from aiohttp import web

from slipway.loader.transport import source as base
from slipway.loader.transport.errors import LoadError
from slipway.loader.transport.source import CHUNK

from .conftest import CHANGED, FILES, PROPOSED, TOKEN, WEIGHTS, Loading, Service, cut_after, write

URL = "hf://acme/tiny"


def test_a_repository_arrives_whole_and_is_not_asked_for_again(from_hub: Loading, hub: Service) -> None:
    assert from_hub(URL)
    assert from_hub.content == FILES
    count = len(hub.seen)
    assert not from_hub(URL)
    assert len(hub.seen) == count


def test_a_revision_and_a_folder_are_chosen(from_hub: Loading) -> None:
    from_hub("hf://acme/tiny/adapters/first@refs/pr/1")
    assert from_hub.content == {"adapter_config.json": b"{}"}


@pytest.mark.parametrize("count", [1, 1000, CHUNK - 1, CHUNK, CHUNK + 1, len(WEIGHTS) - 1])
def test_a_cut_connection_is_resumed_where_it_was_cut(from_hub: Loading, hub: Service, count: int) -> None:
    cuts = 0

    async def interfere(request: web.Request) -> web.StreamResponse | None:
        nonlocal cuts
        if not request.path.endswith("tiny.gguf") or cuts == 3:
            return None
        cuts += 1
        return await cut_after(count)(request, WEIGHTS)

    hub.interfere = interfere
    from_hub(URL)
    assert from_hub.content == FILES
    ranges = [seen.range for seen in hub.seen if seen.path.endswith("tiny.gguf")]
    offsets = [count * turn for turn in range(4)]
    assert ranges == [f"bytes={start}-" if start else "" for start in offsets if start < len(WEIGHTS)]


def test_a_connection_that_never_brings_a_byte_is_given_up(from_hub: Loading, hub: Service) -> None:
    async def interfere(request: web.Request) -> web.StreamResponse | None:
        return await cut_after(0)(request, WEIGHTS) if request.path.endswith("tiny.gguf") else None

    hub.interfere = interfere
    with pytest.raises(LoadError, match=r"gave up after 4 attempts: run it again$") as caught:
        from_hub(URL)
    assert caught.value.transient


def test_wrong_bytes_are_fetched_again_and_never_get_the_name(from_hub: Loading, hub: Service) -> None:
    turns = 0

    async def interfere(request: web.Request) -> web.StreamResponse | None:
        nonlocal turns
        if not request.path.endswith("tiny.gguf"):
            return None
        turns += 1
        return web.Response(body=CHANGED) if turns == 1 else None

    hub.interfere = interfere
    from_hub(URL)
    assert from_hub.content == FILES
    assert turns == 2


def test_bytes_that_stay_wrong_end_the_load(from_hub: Loading, hub: Service) -> None:
    async def interfere(request: web.Request) -> web.StreamResponse | None:
        return web.Response(body=b'{"model_type": "lldma"}') if request.path.endswith("config.json") else None

    hub.interfere = interfere
    with pytest.raises(LoadError, match="did not match its checksum or size 3 times"):
        from_hub(URL)
    assert "config.json" not in from_hub.content


@pytest.mark.parametrize("status", [429, 500, 502, 503, 504, 408])
def test_a_busy_hub_is_asked_again(from_hub: Loading, hub: Service, status: int) -> None:
    turns: dict[str, int] = {}

    async def interfere(request: web.Request) -> web.StreamResponse | None:
        turns[request.path] = turns.get(request.path, 0) + 1
        return web.Response(status=status, headers={"Retry-After": "600"}) if turns[request.path] <= 2 else None

    hub.interfere = interfere
    from_hub(URL)
    assert from_hub.content == FILES


def test_a_hub_that_stays_busy_ends_the_load_for_now(from_hub: Loading, hub: Service) -> None:
    async def interfere(_request: web.Request) -> web.StreamResponse | None:
        return web.Response(status=503)

    hub.interfere = interfere
    with pytest.raises(LoadError, match=r"hf://acme/tiny: 127.0.0.1:\d+ answers 503; gave up after 4") as caught:
        from_hub(URL)
    assert caught.value.transient
    assert len(hub.seen) == 4


@pytest.mark.parametrize(
    ("url", "token", "words"),
    [
        ("hf://acme/none", "", "has no repository acme/none: the name is wrong, or it is private and needs HF_TOKEN"),
        (
            "hf://acme/none",
            TOKEN,
            "has no repository acme/none: the name is wrong, or the token's account has no access",
        ),
        ("hf://acme/tiny", "hf_other", "rejects the token in HF_TOKEN: renew it"),
        ("hf://acme/tiny@v9", "", "acme/tiny has no revision 'v9'"),
        ("hf://acme/tiny/nowhere", "", "has no"),
        ("hf://acme/closed", "", "does not let this account read acme/closed: set HF_TOKEN to a token"),
        ("hf://acme", "", "does not name a repository"),
        ("hf://../x", "", "does not name a repository"),
        ("hf://acme/a..b", "", "does not name a repository"),
    ],
)
def test_refusals_say_what_to_do(from_hub: Loading, url: str, token: str, words: str) -> None:
    from_hub.env["HF_TOKEN"] = token
    with pytest.raises(LoadError) as caught:
        from_hub(url)
    assert words in str(caught.value)
    assert not caught.value.transient
    assert not token or token not in str(caught.value)


def test_a_gated_repository_opens_with_the_token(from_hub: Loading) -> None:
    from_hub.env["HF_TOKEN"] = TOKEN
    from_hub("hf://acme/closed")
    assert from_hub.content == {"config.json": b"{}"}


def test_the_token_stays_with_the_hub_when_it_redirects(from_hub: Loading, hub: Service) -> None:
    async def interfere(request: web.Request) -> web.StreamResponse | None:
        if request.path.startswith("/cdn/"):
            return web.Response(body=WEIGHTS)
        if request.path.endswith("tiny.gguf"):
            elsewhere = hub.url.replace("127.0.0.1", "localhost")
            raise web.HTTPFound(f"{elsewhere}/cdn/tiny?signature=secret")
        return None

    hub.interfere = interfere
    from_hub.env["HF_TOKEN"] = TOKEN
    from_hub(URL)
    assert from_hub.content == FILES
    assert {seen.authorization for seen in hub.seen if seen.path.startswith("/cdn/")} == {""}
    assert {seen.authorization for seen in hub.seen if seen.path.startswith("/api/")} == {f"Bearer {TOKEN}"}


@pytest.mark.parametrize("rows", [[{"type": "file"}], [{"type": "file", "path": "x", "size": "?", "oid": "1"}], [1]])
def test_a_listing_that_makes_no_sense_is_reported(from_hub: Loading, hub: Service, rows: list[object]) -> None:
    async def interfere(request: web.Request) -> web.StreamResponse | None:
        return web.json_response(rows) if "/tree/" in request.path else None

    hub.interfere = interfere
    with pytest.raises(LoadError, match="is not in the expected format: check the endpoint"):
        from_hub(URL)


def in_pages(link: str) -> Callable[[web.Request], Awaitable[web.StreamResponse | None]]:
    """The tree of one file a page; ``link`` leads to the next one."""
    paths = sorted(FILES)

    async def interfere(request: web.Request) -> web.StreamResponse | None:
        if "/tree/" not in request.path:
            return None
        turn = int(request.query.get("turn", "0"))
        body = FILES[paths[turn]]
        oid = hashlib.sha1(b"blob %d\0" % len(body) + body).hexdigest()  # noqa: S324
        row = {"type": "file", "path": paths[turn], "size": len(body), "oid": oid}
        headers = {"Link": f'<{link}?turn={turn + 1}>; rel="next"'} if turn + 1 < len(paths) else {}
        return web.json_response([row], headers=headers)

    return interfere


@pytest.mark.parametrize("relative", [True, False])
def test_a_tree_in_pages_is_listed_whole(from_hub: Loading, hub: Service, relative: bool) -> None:
    hub.interfere = in_pages("/api/models/acme/tiny/tree/main" if relative else f"{hub.url}/api/models/x/tree/main")
    from_hub(URL)
    assert from_hub.content == FILES


def test_a_page_that_fails_costs_no_other_one(from_hub: Loading, hub: Service) -> None:
    pages = in_pages(f"{hub.url}/api/models/x/tree/main")
    turns = 0

    async def interfere(request: web.Request) -> web.StreamResponse | None:
        nonlocal turns
        turns += "/tree/" in request.path
        return web.Response(status=502) if "/tree/" in request.path and turns % 2 else await pages(request)

    hub.interfere = interfere
    from_hub(URL)
    assert from_hub.content == FILES
    assert turns == 2 * len(FILES)


def test_a_listing_that_leads_to_another_host_is_not_followed(
    from_hub: Loading, hub: Service, start: Callable[[web.Application], Service]
) -> None:
    other = start(web.Application())
    hub.interfere = in_pages(f"{other.url}/api/models/acme/tiny/tree/main")
    from_hub.env["HF_TOKEN"] = TOKEN
    with pytest.raises(LoadError, match="links to another host in a listing; not following"):
        from_hub(URL)
    assert other.seen == []


def test_a_repository_with_more_files_than_any_model_is_refused(
    from_hub: Loading, hub: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(base, "MOST_FILES", 2)
    hub.interfere = in_pages(f"{hub.url}/api/models/x/tree/main")
    with pytest.raises(LoadError, match="has more than 2 files, more than the limit: name a folder in it"):
        from_hub(URL)
    assert len([seen for seen in hub.seen if "/tree/" in seen.path]) == 3


def test_a_server_that_is_not_a_hub_is_reported(from_hub: Loading, hub: Service) -> None:
    async def interfere(_request: web.Request) -> web.StreamResponse | None:
        return web.Response(text="<html>welcome</html>", content_type="text/html")

    hub.interfere = interfere
    with pytest.raises(LoadError, match="is not in the expected format: check the endpoint"):
        from_hub(URL)


def test_an_address_without_an_answer_is_reported_without_secrets(loading: Loading) -> None:
    loading.env = {"HF_ENDPOINT": "http://127.0.0.1:9", "HF_TOKEN": TOKEN}
    with pytest.raises(LoadError, match=r"127\.0\.0\.1:9 cannot be reached: connection refused") as caught:
        loading(URL)
    assert caught.value.transient


def test_another_revision_takes_the_place_of_the_first_and_leaves_nothing_of_it(from_hub: Loading) -> None:
    from_hub(URL)
    write(from_hub.folder, {"mine.txt": b"not of a load"})
    assert from_hub("hf://acme/tiny@refs/pr/1")
    assert from_hub.content == {**PROPOSED, "mine.txt": b"not of a load"}


def test_a_file_that_was_damaged_since_is_fetched_again(from_hub: Loading, hub: Service) -> None:
    from_hub(URL)
    (from_hub.folder / "tiny.gguf").write_bytes(b"short")
    count = len(hub.seen)
    assert from_hub(URL)
    assert from_hub.content == FILES
    assert [seen.path.rpartition("/")[2] for seen in hub.seen[count:] if "/resolve/" in seen.path] == ["tiny.gguf"]
