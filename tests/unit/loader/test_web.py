"""http(s):// of a single file."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from aiohttp import web

from slipway.loader.transport.errors import LoadError

from .conftest import CHANGED, WEIGHTS, Loading, Service, cut_after

Headers = dict[str, str]


@pytest.fixture
def headers() -> Headers:
    return {"ETag": '"v1"'}


@pytest.fixture
def site(start: Callable[[web.Application], Service], headers: Headers) -> Service:
    async def get(request: web.Request) -> web.StreamResponse:
        if request.match_info["name"] == "secret.gguf" and "Authorization" not in request.headers:
            raise web.HTTPUnauthorized
        if request.match_info["name"] == "none":
            raise web.HTTPNotFound
        start = request.http_range.start
        if start is None or request.headers.get("If-Range") != headers["ETag"]:
            return web.Response(body=WEIGHTS, headers=headers)
        part = {"Content-Range": f"bytes {start}-{len(WEIGHTS) - 1}/{len(WEIGHTS)}"}
        return web.Response(status=206, body=WEIGHTS[start:], headers={**headers, **part})

    async def endless(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        response.enable_chunked_encoding()
        await response.prepare(request)
        await response.write(WEIGHTS)
        return response

    app = web.Application()
    app.router.add_get("/chunked.gguf", endless)
    app.router.add_get("/{name}", get)
    return start(app)


def cut_once(site: Service) -> None:
    async def interfere(request: web.Request) -> web.StreamResponse | None:
        return await cut_after(300_000)(request, WEIGHTS) if len(site.seen) == 2 else None

    site.interfere = interfere


def test_a_file_arrives_and_a_cut_is_resumed(loading: Loading, site: Service) -> None:
    cut_once(site)
    loading(f"{site.url}/a%20b.gguf?version=1")
    assert loading.content == {"a b.gguf": WEIGHTS}
    assert [seen.range for seen in site.seen] == ["", "", "bytes=300000-"]


def test_a_file_that_changes_meanwhile_comes_from_its_beginning(
    loading: Loading, site: Service, headers: Headers
) -> None:
    cut_once(site)
    headers["ETag"] = '"v1"'

    async def interfere(request: web.Request) -> web.StreamResponse | None:
        if len(site.seen) != 2:
            return None
        answer = await cut_after(300_000)(request, CHANGED)
        headers["ETag"] = '"v2"'
        return answer

    site.interfere = interfere
    loading(f"{site.url}/a.gguf")
    assert loading.content == {"a.gguf": WEIGHTS}


@pytest.mark.parametrize("tag", ['W/"weak"', ""])
def test_indistinguishable_files_are_not_resumed(loading: Loading, site: Service, headers: Headers, tag: str) -> None:
    headers["ETag"] = tag
    cut_once(site)
    loading(f"{site.url}/a.gguf")
    assert loading.content == {"a.gguf": WEIGHTS}
    assert [seen.range for seen in site.seen] == ["", "", ""]


def test_a_part_that_was_not_asked_for_is_not_taken(loading: Loading, site: Service) -> None:
    async def interfere(request: web.Request) -> web.StreamResponse | None:
        if len(site.seen) == 2:
            return await cut_after(300_000)(request, WEIGHTS)
        if len(site.seen) == 3:
            return web.Response(status=206, body=b"?", headers={"Content-Range": f"bytes 5-5/{len(WEIGHTS)}"})
        return None

    site.interfere = interfere
    loading(f"{site.url}/a.gguf")
    assert loading.content == {"a.gguf": WEIGHTS}


def test_a_file_of_unknown_size_arrives(loading: Loading, site: Service) -> None:
    loading(f"{site.url}/chunked.gguf")
    assert loading.content == {"chunked.gguf": WEIGHTS}


def test_a_hash_in_the_headers_is_checked(loading: Loading, site: Service, headers: Headers) -> None:
    headers["x-goog-hash"] = "crc32c=AAAAAA=="
    with pytest.raises(LoadError, match="did not match its checksum or size"):
        loading(f"{site.url}/a.gguf")


@pytest.mark.parametrize(
    ("path", "words"), [("none", "no such file"), ("secret.gguf", "it requires a user"), ("", "does not name a file")]
)
def test_refusals_name_no_secret(loading: Loading, site: Service, path: str, words: str) -> None:
    with pytest.raises(LoadError) as caught:
        loading(f"{site.url}/{path}?token=hush")
    assert words in str(caught.value)
    assert "hush" not in str(caught.value)


def test_a_user_and_password_are_used_and_never_written(loading: Loading, site: Service) -> None:
    loading(f"{site.url.replace('://', '://me:hush@')}/secret.gguf")
    assert loading.content == {"secret.gguf": WEIGHTS}
    assert "hush" not in (loading.folder / ".slipway-complete").read_text()
